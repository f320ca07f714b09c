"""The room behind gRPC and TLS: what is asked comes through, in bounded memory, and again where it was lost."""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from tacit.cleanroom.platform.steps import AdapterPlan
from tacit.cleanroom.protocol.answers import StepAnswer
from tacit.cleanroom.protocol.audit_log import answer_hash, sign_receipt, verify_log
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.requests import LabelsRequest, Purpose, StatisticRequest
from tacit.cleanroom.protocol.signatures import new_key, public_key
from tacit.cleanroom.protocol.tokens import POINT_BYTES, TOKEN_BYTES
from tacit.entropy import Simulation
from tacit.errors import AuditBroken, BadInput, RoomError, RoomRefused
from tacit.privacy.ledger.chain import ChainHead
from tacit.services.room.keys import CertificateAuthority
from tacit.services.room.platform_run import PreparedRun, estimate_cost
from tacit.services.room.receipts import KeptReceipt, ReceiptFile
from tacit.services.room.settings import LinkPatience, PlatformSettings, RoomPace, TlsIdentity
from tests.support.cleanroom_platform_world import model, world
from tests.support.cleanroom_rooms import NOW as ROOM_NOW
from tests.support.cleanroom_rooms import PLATFORM, a_room, honest_step
from tests.support.room_fakes import LAYOUT, OFFERED, TERMS, Echo, a_request
from tests.support.room_network import NOW, identities, listening, remote


@pytest.fixture(scope="module")
def parties() -> dict[str, TlsIdentity]:
    return identities(CertificateAuthority("trial", now=NOW))


@pytest.fixture(scope="module")
def address(parties: dict[str, TlsIdentity]) -> Iterator[str]:
    with listening(Echo(), parties["room"]) as place:
        yield place


def test_every_method_answers(parties: dict[str, TlsIdentity], address: str) -> None:
    receipts: list[KeptReceipt] = []
    with remote(address, parties["platform"]) as link:
        link._received = receipts.append
        assert link.describe().terms == TERMS
        slabs = [b"x" * 1000, b"y" * 2_000_000]
        answer = link.step(a_request(), slabs)
        assert receipts == [KeptReceipt(answer.receipt, a_request().digest, answer_hash(answer.sum))]
        assert list(answer.sum[:2]) == [2, 2_001_000]
        assert (answer.rows, len(answer.sum)) == (7, LAYOUT.parameters)
        statistic = StatisticRequest("b" * 64, "first", 0, "conversion", Purpose.STATISTIC, 7, 5, 2, 0.5, 3)
        assert link.statistic(statistic, [b"abc"]).sums.tolist() == [3.0] * 8
        labels = LabelsRequest("b" * 64, "first", "conversion", 5)
        assert link.labels(labels, [b"abc"]).labels.tolist() == [0, 1, 0, 1, 0]
        assert link.exchange(None) == OFFERED
        assert link.exchange(b"ab" * 1_000_000) == b"ba" * 1_000_000
        log = link.audit(0)
        assert verify_log(log).sequence == 2000
        assert link.audit(1990) == log[1990:]
    assert len(receipts) == 3
    assert link.bytes_sent > 4_000_000
    assert link.bytes_received > 4 * LAYOUT.parameters


def test_memory_does_not_grow_with_the_stream(parties: dict[str, TlsIdentity], address: str) -> None:
    """Both sides are in this process: 400 MB go through, of which it holds a few slabs at a time.

    What counts is that 400 MB do not fit: windows that adapt and an allocator's leftovers take up to 100.
    """
    slab = bytes(2**20)
    with remote(address, parties["platform"]) as link:
        link.step(a_request(), [slab] * 8)  # what grows once, grows now
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = link.step(a_request(), [slab] * 400)
        assert answer.sum[0] == 400
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 160 * 1024, f"{grown} KB more at the peak"


def test_masked_points_cost_their_own_bytes() -> None:
    """Private intersection names a record by 32 bytes, keyed tokens by 16: both are foreseen."""
    here = world(Mode.AGGREGATE, rows=100)
    settings = cast(PlatformSettings, SimpleNamespace(adapter="shoes"))
    plain, masked = (
        estimate_cost(
            PreparedRun(model(), AdapterPlan(batch=50), here.terms, {"train": here.examples}, {"train": named}),
            settings,
        )
        for named in (here.tokens, np.zeros((100, POINT_BYTES), np.uint8))
    )
    more = POINT_BYTES - TOKEN_BYTES
    assert masked.bytes_an_example == pytest.approx(plain.bytes_an_example + more)
    assert masked.bytes_sent - plain.bytes_sent == more * plain.examples


def test_a_slow_room_makes_the_sender_wait(parties: dict[str, TlsIdentity]) -> None:
    """Flow control, not memory, takes up the difference."""
    taken: list[int] = []
    reading = threading.Event()

    class Slow(Echo):
        def step(self, request, slabs, *, peer, now):  # type: ignore[no-untyped-def]
            def one_by_one() -> Iterator[bytes]:
                for slab in slabs:
                    taken.append(len(made))
                    reading.wait(0.02)
                    yield slab

            return super().step(request, one_by_one(), peer=peer, now=now)

    made: list[int] = []

    def slabs() -> Iterator[bytes]:
        for number in range(120):
            made.append(number)
            yield bytes(2**20)

    with listening(Slow(), parties["room"]) as place, remote(place, parties["platform"]) as link:
        link.step(a_request(), slabs())
    ahead = [sent - number for number, sent in enumerate(taken)]
    # Windows of both sides adapt, to some 20 messages; a sender that did not wait would be 119 ahead.
    assert max(ahead) <= 60, ahead


def test_refusals_come_back_as_themselves(parties: dict[str, TlsIdentity]) -> None:
    class Refusing(Echo):
        def step(self, request, slabs, *, peer, now):  # type: ignore[no-untyped-def]
            del slabs, peer, now
            raise RoomRefused(list(RoomRefusal)[request.number], "as agreed, not ε")

    with listening(Refusing(), parties["room"]) as place, remote(place, parties["platform"]) as link:
        for number, reason in enumerate(RoomRefusal):
            with pytest.raises(RoomRefused) as refused:
                link.step(a_request(number=number), [bytes(2**20)] * 50)
            assert (refused.value.reason, refused.value.detail) == (reason, "as agreed, not ε")
        assert link.describe().terms == TERMS


def test_a_fault_in_the_room_says_nothing_of_itself(
    parties: dict[str, TlsIdentity], caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Echo):
        def step(self, *_: object, **__: object) -> StepAnswer:
            raise ValueError("label of record 17 is 1")

    with listening(Faulty(), parties["room"]) as place, remote(place, parties["platform"]) as link:
        with pytest.raises(RoomError, match="its own log says what") as told:
            link.step(a_request(), [b"x"])
        assert "17" not in str(told.value)
        assert link.describe().terms == TERMS
    assert "unexpected ValueError at test_room_services.py" in caplog.text or "ValueError" in caplog.text
    assert "17" not in caplog.text


def test_our_own_fault_in_making_slabs_is_ours(parties: dict[str, TlsIdentity], address: str) -> None:
    class Slabs:
        def __iter__(self) -> Iterator[bytes]:
            yield b"x"
            raise ZeroDivisionError("ours")

    with remote(address, parties["platform"]) as link:
        with pytest.raises(ZeroDivisionError, match="ours"):
            link.step(a_request(), Slabs())
        assert link.tries == 1


def test_a_call_that_is_lost_is_made_again(parties: dict[str, TlsIdentity]) -> None:
    """The room ends in the middle of a step, and another takes its place: the step is sent again, whole."""
    first, second = Echo(), Echo()
    halfway, restarted = threading.Event(), threading.Event()
    passes = []

    class Slabs:
        def __iter__(self) -> Iterator[bytes]:
            passes.append(1)
            yield bytes(1000)
            if len(passes) == 1:
                halfway.set()
                restarted.wait(10)
            yield bytes(500)

    answers = []
    with listening(first, parties["room"]) as place:
        link = remote(place, parties["platform"], patience=LinkPatience(call_seconds=20, again_seconds=20))
        caller = threading.Thread(target=lambda: answers.append(link.step(a_request(), Slabs())))
        caller.start()
        assert halfway.wait(10)
    with listening(second, parties["room"], address=place):
        restarted.set()
        caller.join(20)
        assert answers[0].sum[1] == 1500
    assert (first.finished, second.finished) == (0, 1)
    assert len(passes) >= 2
    link.close()


def test_a_stream_that_can_be_read_once_is_not_sent_twice(parties: dict[str, TlsIdentity]) -> None:
    with listening(Echo(), parties["room"]) as place:
        pass
    with remote(place, parties["platform"]) as link:
        with pytest.raises(RoomError, match="did not answer"):
            link.step(a_request(), iter([b"x"]))
        assert link.tries == 1


def test_patience_with_a_room_that_is_not_there_ends(parties: dict[str, TlsIdentity]) -> None:
    with listening(Echo(), parties["room"]) as place:
        pass
    said: list[str] = []
    began = time.monotonic()
    with remote(place, parties["platform"], patience=LinkPatience(call_seconds=5, again_seconds=1)) as link:
        link._waiting = said.append
        with pytest.raises(RoomError, match=f"expected a room that answers at {place}, got none for"):
            link.describe()
    assert 0.3 < time.monotonic() - began < 6
    assert len(said) >= 3


def test_a_room_that_is_asked_to_end_answers_first(parties: dict[str, TlsIdentity], tmp_path: Path) -> None:
    del tmp_path
    inside = threading.Event()

    def wait(_: int) -> None:
        inside.set()
        time.sleep(0.4)

    answers = []
    with listening(Echo(wait), parties["room"], grace=5) as place:
        link = remote(place, parties["platform"])
        caller = threading.Thread(target=lambda: answers.append(link.step(a_request(), [b"abc"])))
        caller.start()
        assert inside.wait(5)
    caller.join(10)
    assert answers[0].sum[1] == 3
    assert link.tries == 1
    link.close()


def test_pace_and_patience_refuse_nonsense() -> None:
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match=r"pace\.stall_seconds"):
            RoomPace(stall_seconds=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"patience\.call_seconds"):
            LinkPatience(call_seconds=wrong)  # type: ignore[arg-type]


def test_receipts_are_kept_whole_and_only_those_of_the_room(tmp_path: Path) -> None:
    key, other = new_key(Simulation(1)), new_key(Simulation(2))
    place = tmp_path / "runs/receipts.jsonl"
    given = [
        KeptReceipt(sign_receipt(ChainHead(number, "a" * 64), key), f"asked {number}", "answer")
        for number in range(1, 4)
    ]
    keys = [public_key(key)]
    ReceiptFile(place, keys).keep(given[0])
    with place.open("a") as torn:  # the process was killed while it wrote the second
        torn.write('{"hash": "aaaa')
    assert ReceiptFile(place, keys).read() == given[:1]
    again = ReceiptFile(place, keys)
    again.keep(given[1])
    again.keep(given[2])
    assert ReceiptFile(place, keys).read() == given
    by_other = KeptReceipt(sign_receipt(ChainHead(4, "a" * 64), other), "asked 4", "answer")
    with pytest.raises(AuditBroken, match="not signed by the room"):
        again.keep(by_other)
    assert again.read() == given
    for text in ("nonsense", "[]", json.dumps(given[0].receipt.as_json())):
        place.write_text(f"{text}\n")
        with pytest.raises(BadInput, match="expected receipts"):
            again.read()


def test_receipts_outlive_a_change_of_the_rooms_key(tmp_path: Path) -> None:
    old, new, never = (new_key(Simulation(name)) for name in ("old", "new", "never"))
    by_old, by_new, by_never = (
        KeptReceipt(sign_receipt(ChainHead(1, "a" * 64), key), "", "") for key in (old, new, never)
    )
    place = tmp_path / "receipts.jsonl"
    ReceiptFile(place, [public_key(old)]).keep(by_old)
    changed = ReceiptFile(place, [public_key(old), public_key(new)])
    changed.keep(by_new)
    assert changed.read() == [by_old, by_new]
    for late in (by_old, by_never):  # what is given now is signed with the key that is in force now
        with pytest.raises(AuditBroken, match="not signed by the room"):
            changed.keep(late)
    ReceiptFile(place, [public_key(never)]).keep(by_never)
    with pytest.raises(AuditBroken, match="not signed by the room"):
        changed.read()


def test_the_entry_behind_a_receipt_must_be_about_our_request_and_the_answer_that_came() -> None:
    room = a_room()
    request, slabs = honest_step(room.terms)
    answer = room.step(request, slabs, peer=PLATFORM, now=ROOM_NOW)
    given = KeptReceipt(answer.receipt, request.digest, answer_hash(answer.sum))
    entry = room.audit(0, peer=PLATFORM)[-1]
    given.check(entry)
    others = (
        replace(given, request=honest_step(room.terms, number=1)[0].digest),
        replace(given, answer=answer_hash(answer.sum + 1)),
    )
    for other in others:
        with pytest.raises(AuditBroken, match="another request or answer"):
            other.check(entry)
    for wrong in (room.audit(0, peer=PLATFORM)[0], None):
        with pytest.raises(AuditBroken, match="another request or answer"):
            given.check(wrong)
