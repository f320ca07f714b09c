"""Hostile requests: refused with a reason, nothing changed, and not a bit about labels in how it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.cleanroom.protocol.encoding import MOST_MESSAGE_BYTES, RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.requests import StepRequest
from tacit.cleanroom.room import sums
from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.store import MemoryRoomStore
from tacit.entropy import Simulation
from tacit.errors import RoomRefused
from tacit.memory_ledger import MemoryLedger
from tests.support.cleanroom_rooms import (
    LAYOUT,
    NOW,
    PLATFORM,
    a_metric,
    a_room,
    for_labels,
    honest_step,
    noised_terms,
    some_derivatives,
    some_logits,
    some_table,
    some_tokens,
    step_request,
    step_slabs,
    terms,
)

ROWS = 32
Hostile = Callable[[Room], Any]
MODES = {"aggregate": terms(), "noised": noised_terms()}


def sent(
    room: Room, slabs: Any, request: StepRequest | None = None, peer: str = PLATFORM, now: int = NOW
) -> Any:
    return room.step(request or step_request(room.terms, ROWS), slabs, peer=peer, now=now)


def honest(room: Room) -> list[bytes]:
    return honest_step(room.terms, ROWS)[1]


def repeated_tokens(room: Room) -> list[bytes]:
    """The last row is the first once more, in another slab."""
    tokens = some_tokens(ROWS).copy()
    tokens[-1] = tokens[0]
    request = step_request(room.terms, ROWS)
    return step_slabs(request, tokens, some_derivatives(ROWS), some_logits(ROWS))


def other_logits(room: Room) -> list[bytes]:
    request = step_request(room.terms, ROWS)
    return step_slabs(request, some_tokens(ROWS), some_derivatives(ROWS), 2 * some_logits(ROWS))


def with_bytes(slab: bytes, pattern: bytes, times: int = 1) -> bytes:
    """The slab with its last numbers written over."""
    return slab[: -len(pattern) * times] + pattern * times


NAN, INFINITY, HUGE = (np.float32(each).tobytes() for each in (np.nan, np.inf, 3e38))

HOSTILE: dict[str, tuple[RoomRefusal, Hostile]] = {
    "a foreign peer": (RoomRefusal.FOREIGN, lambda room: sent(room, honest(room), peer="evil.example")),
    "too early": (RoomRefusal.NOT_YET_VALID, lambda room: sent(room, honest(room), now=-1)),
    "too late": (RoomRefusal.EXPIRED, lambda room: sent(room, honest(room), now=2 * NOW)),
    "other terms": (
        RoomRefusal.UNKNOWN_AGREEMENT,
        lambda room: sent(room, honest(room), step_request(terms(epsilon=5), ROWS)),
    ),
    "an unknown task": (
        RoomRefusal.UNKNOWN_TASK,
        lambda room: sent(room, honest(room), step_request(room.terms, ROWS, task="purchase")),
    ),
    "a codec that was not agreed": (
        RoomRefusal.NOT_AGREED,
        lambda room: sent(room, honest(room), step_request(room.terms, ROWS, codec="top-10")),
    ),
    "a small batch": (RoomRefusal.TOO_SMALL_BATCH, lambda room: sent(room, [], step_request(room.terms, 3))),
    "too many rows": (RoomRefusal.OVERSIZED, lambda room: sent(room, [], step_request(room.terms, 2**22 + 1))),
    "too many parameters": (
        RoomRefusal.OVERSIZED,
        lambda room: sent(
            room,
            [],
            step_request(room.terms, ROWS, layout=ParameterLayout((ParameterBlock("large", 2**13, 2**13),))),
        ),
    ),
    "no slabs": (RoomRefusal.WRONG_SHAPE, lambda room: sent(room, [])),
    "a slab short": (RoomRefusal.WRONG_SHAPE, lambda room: sent(room, honest(room)[:-1])),
    "a slab twice": (RoomRefusal.WRONG_SHAPE, lambda room: sent(room, [*honest(room), honest(room)[-1]])),
    "slabs out of order": (RoomRefusal.WRONG_SHAPE, lambda room: sent(room, honest(room)[::-1])),
    "fewer rows announced": (
        RoomRefusal.WRONG_SHAPE,
        lambda room: sent(room, honest(room), step_request(room.terms, ROWS - 1)),
    ),
    "more rows announced": (
        RoomRefusal.WRONG_SHAPE,
        lambda room: sent(room, honest(room), step_request(room.terms, ROWS + 1)),
    ),
    "a record twice": (RoomRefusal.REPEATED_RECORD, lambda room: sent(room, repeated_tokens(room))),
    "no number": (
        RoomRefusal.NOT_FINITE,
        lambda room: sent(room, [*honest(room)[:-1], with_bytes(honest(room)[-1], NAN)]),
    ),
    "an infinity": (
        RoomRefusal.NOT_FINITE,
        lambda room: sent(room, [*honest(room)[:-1], with_bytes(honest(room)[-1], INFINITY)]),
    ),
    "a number that overflows": (
        RoomRefusal.NOT_FINITE,
        lambda room: sent(room, [*honest(room)[:-1], with_bytes(honest(room)[-1], HUGE)]),
    ),
    "an oversized slab": (RoomRefusal.OVERSIZED, lambda room: sent(room, [bytes(MOST_MESSAGE_BYTES + 1)])),
    "half a slab": (RoomRefusal.MALFORMED, lambda room: sent(room, [honest(room)[0][:-40]])),
    "nothing in a slab": (RoomRefusal.MALFORMED, lambda room: sent(room, [b""])),
    "another layout": (
        RoomRefusal.MALFORMED,
        lambda room: sent(
            room, honest(room), step_request(room.terms, ROWS, layout=ParameterLayout(LAYOUT.blocks[:2]))
        ),
    ),
    "a metric of too few": (
        RoomRefusal.TOO_SMALL_BATCH,
        lambda room: room.statistic(
            *a_metric(room.terms, some_tokens(3), np.zeros(3, np.int32)), peer=PLATFORM, now=NOW
        ),
    ),
    "labels where sums were agreed": (
        RoomRefusal.NOT_AGREED,
        lambda room: room.labels(*for_labels(room.terms, some_tokens(8)), peer=PLATFORM, now=NOW),
    ),
}


def opposite(table: LabelTable) -> LabelTable:
    return LabelTable.of(table.records, 1 - table.labels, table.tasks)


def outcome(room: Room, hostile: Hostile) -> tuple[str, ...]:
    """All that the sender sees of a refusal."""
    try:
        hostile(room)
    except RoomRefused as refusal:
        return str(refusal.reason), refusal.detail, str(refusal), repr(refusal.args)
    raise AssertionError("expected a refusal")


def kept(store: MemoryRoomStore, *, labels: bool = True) -> Any:
    """What the store holds; without the digest of labels, which is under the room's secret and stays there."""
    everything: Any = store.everything()
    if not labels:
        everything["values"] = {k: v for k, v in everything["values"].items() if not k.startswith("labels/")}
    return everything


def but_for_the_log(everything: Any) -> Any:
    return {key: value for key, value in everything.items() if key != "entries"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_is_refused_alike_whatever_the_labels_are(name: str, mode: str) -> None:
    reason, hostile = HOSTILE[name]
    outcomes, states = [], []
    for table in (some_table(), opposite(some_table()), some_table(0)):
        store = MemoryRoomStore()
        room = a_room(MODES[mode], table, store=store, entropy=Simulation("store"))
        before = kept(store)
        outcomes.append(outcome(room, hostile))
        assert but_for_the_log(kept(store)) == but_for_the_log(before), "a refusal changed something"
        states.append(kept(store))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert states[0] == states[1] == states[2]
    assert outcomes[0][0] == reason
    assert states[0]["entries"][-1].event["reason"] == reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HOSTILE)
def test_the_room_goes_on_as_if_nothing_had_been(name: str, mode: str) -> None:
    _, hostile = HOSTILE[name]
    request, slabs = honest_step(MODES[mode], ROWS)
    room, untouched = a_room(MODES[mode]), a_room(MODES[mode])
    outcome(room, hostile)
    answers = [each.step(request, slabs, peer=PLATFORM, now=NOW) for each in (room, untouched)]
    assert np.array_equal(answers[0].sum, answers[1].sum)


def test_after_a_release_refusals_are_alike_too() -> None:
    """Exhausted records, conflicts and a spent budget: what the store knows of labels shows in none of them."""
    request, slabs = honest_step(noised_terms(), ROWS)
    later: list[Hostile] = [
        lambda room: sent(room, slabs, step_request(room.terms, ROWS, number=1)),
        lambda room: sent(
            room, honest_step(room.terms, ROWS, codec="bf16")[1], honest_step(room.terms, ROWS, codec="bf16")[0]
        ),
        lambda room: sent(room, repeated_tokens(room), step_request(room.terms, ROWS, number=2)),
    ]
    seen = []
    for table in (some_table(), opposite(some_table())):
        store = MemoryRoomStore()
        room = a_room(noised_terms(), table, store=store, entropy=Simulation("store"))
        room.step(request, slabs, peer=PLATFORM, now=NOW)
        found = [outcome(room, hostile) for hostile in later]
        state = kept(store, labels=False)
        state["values"] = {key: value for key, value in state["values"].items() if "holder/" not in key}
        # Digests of released answers do differ: they are of noise that was drawn for these labels.
        state["answered"] = {name: each.asked for name, each in state["answered"].items()}
        events = [{k: v for k, v in entry.event.items() if k != "answer"} for entry in state.pop("entries")]
        seen.append((found, state, events))
    assert seen[0] == seen[1]
    assert [each[0] for each in seen[0][0]] == ["record_exhausted", "conflict", "record_exhausted"]


def lookups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many labels were read at a time, from now on."""
    found: list[int] = []
    look_up = LabelTable.look_up

    def counted(table: LabelTable, records: Any, task: str) -> Any:
        found.append(len(records))
        return look_up(table, records, task)

    monkeypatch.setattr(LabelTable, "look_up", counted)
    return found


def never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any) -> Any:
        raise AssertionError("a label was read")

    monkeypatch.setattr(LabelTable, "look_up", read)


def test_no_label_is_read_of_a_record_that_has_no_release_left(monkeypatch: pytest.MonkeyPatch) -> None:
    room = a_room(noised_terms())
    sent(room, honest(room))
    fresh = some_tokens(3 * ROWS)[2 * ROWS :]
    spent_last = np.concatenate([fresh[:7], some_tokens(ROWS)[: ROWS - 7]])
    request = step_request(room.terms, ROWS, number=1)
    slabs = step_slabs(request, spent_last, some_derivatives(ROWS), some_logits(ROWS))
    looked_up = lookups(monkeypatch)
    with pytest.raises(RoomRefused, match=RoomRefusal.RECORD_EXHAUSTED.words):
        sent(room, slabs, request)
    assert looked_up == [7]  # the first slab's, which have theirs


def test_no_label_is_read_for_other_content_under_a_known_number(monkeypatch: pytest.MonkeyPatch) -> None:
    room = a_room(noised_terms(releases_per_record=9))
    slabs = honest(room)
    sent(room, slabs)
    never_read(monkeypatch)
    other = other_logits(room)
    with pytest.raises(RoomRefused, match=RoomRefusal.CONFLICT.words):
        sent(room, [other[0], *slabs[1:]])
    request, metric = a_metric(room.terms, some_tokens(8), np.zeros(8, np.int32), run="metric")
    monkeypatch.undo()
    room.statistic(request, metric, peer=PLATFORM, now=NOW)
    never_read(monkeypatch)
    request, metric = a_metric(room.terms, some_tokens(8), np.ones(8, np.int32), run="metric")
    with pytest.raises(RoomRefused, match=RoomRefusal.CONFLICT.words):
        room.statistic(request, metric, peer=PLATFORM, now=NOW)


def test_a_conflict_in_the_last_slab_is_found_before_any_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    room = a_room(noised_terms(releases_per_record=9))
    slabs = honest(room)
    answer = sent(room, slabs)
    other = other_logits(room)
    looked_up = lookups(monkeypatch)
    with pytest.raises(RoomRefused, match=RoomRefusal.CONFLICT.words):
        sent(room, [*slabs[:-1], other[-1]])
    assert np.array_equal(sent(room, slabs).sum, answer.sum)
    assert looked_up == []


@pytest.mark.parametrize("mode", MODES)
def test_no_label_is_read_that_the_budget_does_not_pay_for(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    first = a_room(MODES[mode], ledger=ledger)
    sent(first, honest(first))
    never_read(monkeypatch)
    second = a_room(MODES[mode], ledger=ledger)
    with pytest.raises(RoomRefused, match=RoomRefusal.BUDGET.words):
        sent(second, honest(second))


@pytest.mark.parametrize(
    "name", ["a foreign peer", "too late", "other terms", "a small batch", "too many rows"]
)
def test_what_the_terms_refuse_is_refused_before_anything_is_read(name: str) -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("a slab was asked for")
        yield b""

    room = a_room()
    requests: dict[str, tuple[StepRequest, dict[str, Any]]] = {
        "a foreign peer": (step_request(room.terms, ROWS), {"peer": "evil.example"}),
        "too late": (step_request(room.terms, ROWS), {"now": 2 * NOW}),
        "other terms": (step_request(terms(epsilon=5), ROWS), {}),
        "a small batch": (step_request(room.terms, 3), {}),
        "too many rows": (step_request(room.terms, 2**22 + 1), {}),
    }
    request, how = requests[name]
    with pytest.raises(RoomRefused, match=HOSTILE[name][0].words):
        sent(room, never(), request, **how)


def test_a_stream_that_breaks_off_changes_nothing() -> None:
    class LinkLost(Exception):
        pass

    def broken(room: Room) -> Iterator[bytes]:
        yield from honest(room)[:3]
        raise LinkLost

    store = MemoryRoomStore()
    room = a_room(noised_terms(), store=store)
    before = kept(store)
    with pytest.raises(LinkLost):
        sent(room, broken(room))
    assert kept(store) == before


SLABS = honest_step(terms(), ROWS)[1]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_garbled_stream_does_more_than_be_refused_or_answered(data: st.DataObject) -> None:
    slabs = [bytearray(each) for each in SLABS]
    for _ in range(data.draw(st.integers(1, 3))):
        slab = data.draw(st.sampled_from(range(len(slabs))))
        what = data.draw(st.sampled_from(["flip", "cut", "grow", "drop"]))
        place = data.draw(st.integers(0, max(len(slabs[slab]) - 1, 0)))
        if what == "flip" and slabs[slab]:
            slabs[slab][place] ^= data.draw(st.integers(1, 255))
        elif what == "cut":
            del slabs[slab][place:]
        elif what == "grow":
            slabs[slab] += data.draw(st.binary(max_size=40))
        elif what == "drop":
            slabs[slab] = bytearray()
    with suppress(RoomRefused):
        answer = sent(ROOM, [bytes(each) for each in slabs])
        assert np.isfinite(answer.sum).all()


ROOM = a_room()


def test_a_twin_that_tells_of_labels_in_its_refusals_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: here a refusal says how many positives a batch has."""
    honest_sum = sums.StepQuery.compute

    def telling(query: Any, labels_of: Any) -> Any:
        positives = 0

        def counting(records: Any) -> Any:
            nonlocal positives
            positives += int((found := labels_of(records)).sum())
            return found

        try:
            return honest_sum(query, counting)
        except RoomRefused as refusal:
            raise RoomRefused(refusal.reason, f"after {positives} positives") from None

    monkeypatch.setattr(sums.StepQuery, "compute", telling)
    _, hostile = HOSTILE["a slab short"]
    seen = [outcome(a_room(terms(), table), hostile) for table in (some_table(), opposite(some_table()))]
    assert seen[0] != seen[1]
