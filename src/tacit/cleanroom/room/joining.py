"""From the platform's tokens to records: what a label, a flip and a count are kept under."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.room.labels import LabelTable, Records
from tacit.cleanroom.wire.intersection import POINT_BYTES, Mask, Offer, Points, matched, offer
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.tokens import TOKEN_BYTES
from tacit.entropy import Keyed
from tacit.errors import RoomRefused


class Joining(Protocol):
    """How long a token is, and which record it names; different tokens may name the same one."""

    token_bytes: int

    def records(self, tokens: NDArray[np.uint8]) -> Records:
        """(n, 16)."""


class ByToken:
    """Keyed tokens: each is a record's name as it stands."""

    token_bytes = TOKEN_BYTES

    def records(self, tokens: NDArray[np.uint8]) -> Records:
        return tokens


class ByPoint:
    """Private set intersection over the keyed tokens: a record is what the room's mask makes of a point.

    The mask, the padding and the order of the offer come from the room's secret and what they are for, so that
    they are the same after a restart.
    """

    token_bytes = POINT_BYTES

    def __init__(self, secret: bytes, release: str) -> None:
        label = b"tacit room, intersection\n" + release.encode()
        self._mask = Mask.new(Keyed(secret, label + b"\nmask"))
        self._order = Keyed(secret, label + b"\norder")

    def records(self, tokens: NDArray[np.uint8]) -> Records:
        return _records(self._mask.again(tokens))

    def offer(self, table: LabelTable, most_ids: int) -> Offer:
        """The room's side of the exchange. Call it once: its order is drawn from one stream."""
        return offer(self._mask, [each.tobytes() for each in table.records], most_ids, self._order)


def renamed(table: LabelTable, made: Offer, answered: bytes, most_ids: int) -> LabelTable:
    """The labels under the records that the platform's tokens will lead to, once its answer has come."""
    return table.renamed(_records(matched(made.places, points_of(answered, most_ids), most_ids)))


def points_of(data: bytes, most_ids: int) -> Points:
    """The points that these bytes are; refused unless they are exactly so many."""
    if len(data) != most_ids * POINT_BYTES:
        raise RoomRefused(Refusal.WRONG_SHAPE, f"expected {most_ids} points of {POINT_BYTES} bytes")
    return np.frombuffer(data, np.uint8).reshape(-1, POINT_BYTES)


def _records(identities: Points) -> Records:
    spelled = b"".join(hashlib.sha256(each.tobytes()).digest()[:TOKEN_BYTES] for each in identities)
    return np.frombuffer(spelled, np.uint8).reshape(-1, TOKEN_BYTES)
