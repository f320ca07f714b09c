"""A real room behind a real network: bytes that were sent before, in every disguise, release nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tacit.cleanroom.protocol.audit_log import verify_log
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.room.party import Room
from tacit.errors import RoomRefused
from tacit.services.room.keys import CertificateAuthority
from tacit.services.room.remote_room import RemoteRoom
from tacit.services.room.settings import TlsIdentity
from tests.support.cleanroom_rooms import NOW, PLATFORM, ROOM, a_room, honest_step, noised_terms, terms
from tests.support.room_network import NOW as TODAY
from tests.support.room_network import identities, listening, remote

AGREED = noised_terms(releases_per_record=2)


@pytest.fixture(scope="module")
def parties() -> dict[str, TlsIdentity]:
    return identities(CertificateAuthority("trial", now=TODAY), platform=PLATFORM, room=ROOM)


@pytest.fixture
def room() -> Room:
    return a_room(AGREED)


@pytest.fixture
def link(room: Room, parties: dict[str, TlsIdentity]) -> Iterator[RemoteRoom]:
    with (
        listening(room, parties["room"], now=NOW) as place,
        remote(place, parties["platform"], room=ROOM) as opened,
    ):
        yield opened
        log = opened.audit(0)
        head = verify_log(log)
        assert (head.sequence, head.hash) == (opened.describe().head.sequence, opened.describe().head.hash)


def refused(link: RemoteRoom, sent: tuple, reason: RoomRefusal) -> None:  # type: ignore[type-arg]
    with pytest.raises(RoomRefused) as refusal:
        link.step(*sent)
    assert refusal.value.reason is reason


def test_the_same_step_again_gives_the_same_answer_and_counts_once(link: RemoteRoom) -> None:
    first = link.step(*honest_step(AGREED))
    for _ in range(5):
        again = link.step(*honest_step(AGREED))
        np.testing.assert_array_equal(again.sum, first.sum)
    link.step(*honest_step(AGREED, number=1))  # the second of two releases is still there
    refused(link, honest_step(AGREED, number=2), RoomRefusal.RECORD_EXHAUSTED)
    np.testing.assert_array_equal(link.step(*honest_step(AGREED)).sum, first.sum)


def test_bytes_of_another_run_are_a_release_of_their_own_until_there_is_none_left(link: RemoteRoom) -> None:
    """Averaging the noise away by asking under many names ends where the agreement says."""
    answers = [link.step(*honest_step(AGREED, run=name)).sum for name in ("first", "second")]
    assert not np.array_equal(answers[0], answers[1])
    for name in ("third", "fourth"):
        refused(link, honest_step(AGREED, run=name), RoomRefusal.RECORD_EXHAUSTED)


def test_other_bytes_under_a_name_that_was_used(link: RemoteRoom) -> None:
    link.step(*honest_step(AGREED))
    refused(link, honest_step(AGREED, first=8), RoomRefusal.CONFLICT)


def test_bytes_of_another_agreement(link: RemoteRoom) -> None:
    refused(link, honest_step(terms()), RoomRefusal.UNKNOWN_AGREEMENT)
    refused(link, honest_step(replace(AGREED, epsilon=Fraction(4))), RoomRefusal.UNKNOWN_AGREEMENT)


def test_slabs_of_one_request_under_another(link: RemoteRoom) -> None:
    """Fewer rows than were announced, more, none at all, or twice the same."""
    request, slabs = honest_step(AGREED, rows=32)
    half = honest_step(AGREED, rows=16)[1]
    for wrong in (half, [*slabs, *half], [], [*slabs, *slabs], [slab[:-3] for slab in slabs], [b"\0" * 100]):
        with pytest.raises(RoomRefused):
            link.step(request, wrong)
    assert link.step(request, slabs).rows == 32
    assert link.step(*honest_step(AGREED, rows=32, number=1)).rows == 32  # none of those counted
