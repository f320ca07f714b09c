"""How the platform names its records to the room: keyed tokens, or masked points after private intersection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.platform.link import RoomLink
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.intersection import POINT_BYTES, Mask, answer
from tacit.cleanroom.wire.modes import Join
from tacit.cleanroom.wire.tokens import token_key, tokens
from tacit.errors import BadInput, RoomError
from tacit.services.room.settings import PlatformSettings


def names_of(records: NDArray[np.uint64], settings: PlatformSettings, terms: Terms) -> NDArray[np.uint8]:
    """(n, 16) tokens, or (n, 32) points."""
    named = tokens(records, token_key(settings.token_secret, terms.name))
    if terms.join is Join.TOKENS:
        return named
    return _mask(settings).mask([each.tobytes() for each in named])


def exchange(link: RoomLink, settings: PlatformSettings, terms: Terms) -> None:
    """Mask the room's points, where records are joined so. The same answer each time, of which one counts."""
    if terms.join is Join.TOKENS:
        return
    assert terms.most_ids is not None, "it goes with this way of joining"
    points = link.exchange(None)
    if len(points) != terms.most_ids * POINT_BYTES:
        raise RoomError(f"expected {terms.most_ids} points of the room, got {len(points)} bytes")
    theirs = np.frombuffer(points, np.uint8).reshape(-1, POINT_BYTES)
    link.exchange(answer(_mask(settings), theirs, terms.most_ids).tobytes())


def _mask(settings: PlatformSettings) -> Mask:
    if settings.mask is None:
        raise BadInput(
            "secrets.mask: expected a file, which an agreement with join = psi needs, got no such key"
        )
    return Mask(settings.mask)
