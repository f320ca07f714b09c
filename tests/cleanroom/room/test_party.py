"""The room as a party: what it counts, registers and writes down."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.cleanroom.protocol.audit_log import check_receipt, verify_log
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Signer
from tacit.cleanroom.room import quotas, sums
from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.store import REFUSALS_A_MINUTE, MemoryRoomStore
from tacit.errors import RoomRefused
from tacit.memory_ledger import MemoryLedger
from tests.support.cleanroom_rooms import (
    NOW,
    PLATFORM,
    PLATFORM_KEY,
    ROOM_KEY,
    SECRET,
    a_metric,
    a_room,
    both,
    honest_step,
    noised_terms,
    refused,
    signed,
    some_parts,
    some_table,
    some_tokens,
    state_but_for_the_log,
    step,
    terms,
)

# --- counting


def test_a_record_is_released_k_times_and_then_no_more() -> None:
    store = MemoryRoomStore()
    room = a_room(noised_terms(releases_per_record=3), store=store)
    for number in range(3):
        step(room, number=number)
    before = state_but_for_the_log(store)
    for changes in ({"number": 3}, {"number": 0, "run": "another"}, {"number": 3, "first": 31}):
        with refused(RoomRefusal.RECORD_EXHAUSTED):
            step(room, **changes)
    request, slabs = a_metric(room.terms, some_tokens(8), np.zeros(8, np.int32), number=7)
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        room.statistic(request, slabs, peer=PLATFORM, now=NOW)
    assert state_but_for_the_log(store) == before
    step(room, number=3, first=32)  # other records have theirs


def test_records_without_labels_are_counted_like_all_others() -> None:
    room = a_room(noised_terms(), table=some_table(4))
    step(room, first=4, rows=8)
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        step(room, first=11, rows=8, number=1)


def test_a_repeated_step_has_the_same_answer_and_is_counted_once() -> None:
    room = a_room(noised_terms())
    first = step(room)
    for _ in range(3):
        again = step(room)
        assert np.array_equal(again.sum, first.sum)
        assert again.noise_stddev == first.noise_stddev
    counted = [entry.event.get("counted") for entry in room.audit(0, peer=PLATFORM)]
    assert counted == [None, True, False, False, False]


def test_the_same_run_and_number_with_other_content_is_a_conflict() -> None:
    store = MemoryRoomStore()
    room = a_room(noised_terms(releases_per_record=9), store=store)
    request, slabs = honest_step(room.terms)
    room.step(request, slabs, peer=PLATFORM, now=NOW)
    before = state_but_for_the_log(store)
    flipped_byte = bytearray(slabs[1])
    flipped_byte[60] ^= 1  # another token
    others = [(request, [slabs[0], bytes(flipped_byte), *slabs[2:]]), honest_step(room.terms, codec="bf16")]
    for asked, sent in others:
        with refused(RoomRefusal.CONFLICT):
            room.step(asked, sent, peer=PLATFORM, now=NOW)
    assert state_but_for_the_log(store) == before


def test_an_answer_is_given_again_as_it_was_without_a_look_at_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor may round a sum otherwise. Whether it does can be made to depend on a label, so what
    was answered is kept, and not computed again."""
    room = a_room(noised_terms())
    first = step(room)
    honest = sums.StepQuery.compute
    monkeypatch.setattr(sums.StepQuery, "compute", lambda *given: honest(*given) + 2.0**-15)  # another rounding
    monkeypatch.setattr(LabelTable, "look_up", lambda *_: pytest.fail("a label was read"))
    again = step(room)
    assert np.array_equal(first.sum, again.sum)
    assert first.noise_stddev == again.noise_stddev


def test_answers_are_kept_up_to_a_bound_and_none_is_computed_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers' names are counted like records, so that a platform is not short of them: disks are."""
    room = a_room(noised_terms(releases_per_record=9))
    first = step(room)
    monkeypatch.setattr(quotas, "MOST_KEPT_BYTES", first.sum.nbytes)
    monkeypatch.setattr(LabelTable, "look_up", lambda *_: pytest.fail("a label was read"))
    with pytest.raises(RoomRefused, match="keeps at most"):
        step(room, number=1)
    assert np.array_equal(step(room).sum, first.sum)  # what is kept is still given again


def test_of_two_calls_at_once_the_first_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second had read labels already, and rounded otherwise: it gives out what the first one did."""
    store = MemoryRoomStore()
    one, other = a_room(noised_terms(), store=store), a_room(noised_terms(), store=store)
    honest, answers = sums.StepQuery.compute, []

    def meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(sums.StepQuery, "compute", honest)
        found = honest(*given) + 2.0**-15
        answers.append(step(other))
        return found

    monkeypatch.setattr(sums.StepQuery, "compute", meanwhile)
    answers.append(step(one))
    assert np.array_equal(answers[0].sum, answers[1].sum)


def test_noise_differs_where_labels_differ_and_where_anything_asked_does() -> None:
    table = some_table()
    other = LabelTable.of(table.records, 1 - table.labels, table.tasks)
    agreed = noised_terms(releases_per_record=5, epsilon=40)
    first = step(a_room(agreed, table))
    answers = [
        step(a_room(agreed, table), run="another"),
        step(a_room(agreed, table), number=1),
        step(a_room(agreed, other)),
        step(a_room(agreed, table, secret=SECRET[::-1])),
    ]
    for answer in answers:
        assert not np.array_equal(answer.sum, first.sum)


# --- labels


def test_a_changed_table_under_the_same_version_is_refused_and_costs_nothing() -> None:
    store, ledger = MemoryRoomStore(), MemoryLedger()
    step(a_room(store=store, ledger=ledger))
    table = some_table()
    changed = LabelTable.of(table.records, 1 - table.labels, table.tasks)
    for agreed in (terms(), terms(smallest_batch=8)):
        agreement = signed(terms())
        if agreed != terms():
            agreement = agreement.amend(agreed, Signer.ROOM, ROOM_KEY)
        room = Room(agreement, changed, **some_parts(store=store, ledger=ledger))
        before = state_but_for_the_log(store)
        with refused(RoomRefusal.LABELS_CHANGED):
            step(room)
        assert state_but_for_the_log(store) == before
    renewed = both(
        signed(terms()).amend(terms(smallest_batch=8), Signer.ROOM, ROOM_KEY), terms(label_version=1)
    )
    room = Room(renewed, changed, **some_parts(store=store, ledger=ledger))
    step(room)
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_spent == 6


def test_tasks_in_another_order_and_tasks_that_are_not_agreed_are_the_same_labels() -> None:
    agreed = terms(tasks=("a", "b"))
    table = some_table(tasks=("a", "b"))
    parts = some_parts()
    step(Room(signed(agreed), table, **parts))
    turned = signed(agreed).amend(replace(agreed, tasks=("b", "a")), Signer.PLATFORM, PLATFORM_KEY)
    step(Room(turned, LabelTable.of(table.records, table.labels[:, ::-1], ("b", "a")), **parts))
    fewer = turned.amend(replace(agreed, tasks=("b",), epsilon=Fraction(3, 2)), Signer.ROOM, ROOM_KEY)
    narrow = LabelTable.of(table.records, table.labels[:, 1:], ("b",))
    room = Room(fewer, narrow, **parts)
    with refused(RoomRefusal.BUDGET):  # and not as changed: fewer tasks are other draws
        step(room)
    swapped = LabelTable.of(table.records, table.labels[:, ::-1], ("a", "b"))
    renewed = both(fewer, replace(agreed, epsilon=Fraction(4)))
    with refused(RoomRefusal.LABELS_CHANGED):
        step(Room(renewed, swapped, **parts))
    step(Room(renewed, table, **parts))


def test_another_secret_under_the_same_version_is_refused() -> None:
    """It would flip every label afresh."""
    store, ledger = MemoryRoomStore(), MemoryLedger()
    step(a_room(store=store, ledger=ledger))
    with refused(RoomRefusal.LABELS_CHANGED):
        step(a_room(store=store, ledger=ledger, secret=SECRET[::-1]))


# --- the log


def test_the_log_holds_together_and_every_answer_has_a_signed_receipt_in_it() -> None:
    room = a_room()
    receipts = [step(room, number=number).receipt for number in range(3)]
    with refused(RoomRefusal.FOREIGN):
        room.step(*honest_step(room.terms), peer="somebody", now=NOW)
    receipts.append(room.describe(peer=PLATFORM, now=NOW).head)
    for receipt in receipts:
        check_receipt(receipt, room.terms.room_key)
    entries = room.audit(0, peer=PLATFORM)
    verify_log(entries, heads=receipts)
    assert [entry.event["kind"] for entry in entries] == ["terms", "step", "step", "step", "refused"]
    assert entries[-1].event["reason"] == "foreign"
    assert entries[-1].event["peer"] == "somebody"
    assert [entry.sequence for entry in room.audit(3, peer=PLATFORM)] == [4, 5]
    expected = {"kind", "at", "peer", "request", "rows", "task", "mode", "charged", "counted", "answer"}
    assert set(entries[1].event) == expected
    with refused(RoomRefusal.FOREIGN):
        room.audit(0, peer="somebody")


def test_refusals_do_not_flood_the_log() -> None:
    room = a_room()
    request, slabs = honest_step(room.terms)

    def knock(times: int, now: int) -> None:
        for _ in range(times):
            with refused(RoomRefusal.FOREIGN):
                room.step(request, slabs, peer="somebody\n" * 1000, now=now)

    knock(REFUSALS_A_MINUTE + 20, NOW)
    assert len(room.audit(0, peer=PLATFORM)) == 1 + REFUSALS_A_MINUTE
    knock(1, NOW + 60)
    last = room.audit(0, peer=PLATFORM)[-1].event
    assert last["passed_over"] == 20
    assert len(last["peer"]) <= 128
    assert "\n" not in last["peer"]
