"""What each mode answers, what it refuses, and joining by private set intersection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.modes import Join, Mode, Signer
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.protocol.tokens import PointMask, answer_points
from tacit.cleanroom.room.labels import LabelTable, flipped_labels
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.payment import agreed_budget
from tacit.cleanroom.room.store import MemoryRoomStore
from tacit.entropy import Simulation
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
    a_statistic,
    for_labels,
    honest_step,
    noised_terms,
    signed,
    some_derivatives,
    some_logits,
    some_table,
    some_tokens,
    step_request,
    step_slabs,
    terms,
)

ROWS = 24
BY_MODE = {
    Mode.AGGREGATE: terms(),
    Mode.RELEASE: terms(mode=Mode.RELEASE),
    Mode.NOISED: noised_terms(),
    Mode.STATISTIC: terms(mode=Mode.STATISTIC, delta="1e-6"),
}


def refused(reason: RoomRefusal) -> Any:
    return pytest.raises(RoomRefused, match=reason.words)


def ask(room: Room, kind: str, **changes: Any) -> Any:
    """One of the four kinds of question, about the first rows, made honestly."""
    agreed, tokens = room.terms, some_tokens(ROWS)
    cells = np.arange(ROWS, dtype=np.int32) % 4
    if kind == "step":
        return room.step(*honest_step(agreed, ROWS, **changes), peer=PLATFORM, now=NOW)
    if kind == "labels":
        return room.labels(*for_labels(agreed, tokens, **changes), peer=PLATFORM, now=NOW)
    if kind == "metric":
        return room.statistic(*a_metric(agreed, tokens, cells, **changes), peer=PLATFORM, now=NOW)
    features = Simulation("features").normal((ROWS, 2)).astype(np.float32)
    return room.statistic(
        *a_statistic(agreed, tokens, cells.reshape(-1, 1), features, **changes), peer=PLATFORM, now=NOW
    )


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("kind", ["step", "labels", "metric", "statistic"])
def test_each_mode_answers_what_it_is_for(mode: Mode, kind: str) -> None:
    allowed = {
        Mode.AGGREGATE: {"step", "metric"},
        Mode.RELEASE: {"labels", "metric"},
        Mode.NOISED: {"step", "metric"},
        Mode.STATISTIC: {"statistic", "metric"},
    }
    room = a_room(BY_MODE[mode])
    if kind in allowed[mode]:
        ask(room, kind)
    else:
        with refused(RoomRefusal.NOT_AGREED):
            ask(room, kind)


@pytest.mark.parametrize("mode", list(Mode))
def test_metrics_that_are_switched_off_are_refused(mode: Mode) -> None:
    agreed = Terms.from_json({**BY_MODE[mode].as_json(), "metrics": False})
    with refused(RoomRefusal.NOT_AGREED):
        ask(a_room(agreed), "metric")


def test_noised_sums_take_the_raw_loss_only() -> None:
    for loss in (Loss.FORWARD, Loss.UNBIASED):
        with refused(RoomRefusal.NOT_AGREED):
            ask(a_room(BY_MODE[Mode.NOISED]), "step", loss=loss)


def test_released_labels_are_the_flips_in_order_as_often_as_asked_for() -> None:
    room = a_room(BY_MODE[Mode.RELEASE], table := some_table())
    expected = flipped_labels(table, some_tokens(ROWS), "conversion", room.terms, SECRET)
    for run in ("one", "two"):
        assert np.array_equal(ask(room, "labels", run=run).labels, expected)
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_spent == 3


def test_aggregates_and_metrics_are_free_after_the_first() -> None:
    room = a_room(BY_MODE[Mode.AGGREGATE])
    for number in range(4):
        ask(room, "step", number=number, loss=list(Loss)[number % 3])
        ask(room, "metric", number=number)
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_spent == 3


def test_a_statistic_is_released_once_for_each_record() -> None:
    room = a_room(BY_MODE[Mode.STATISTIC])
    first = ask(room, "statistic")
    assert np.array_equal(ask(room, "statistic").sums, first.sums)
    for changes in ({"number": 1}, {"run": "another"}):
        with refused(RoomRefusal.RECORD_EXHAUSTED):
            ask(room, "statistic", **changes)
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        ask(room, "metric")


def test_a_metric_on_true_labels_takes_one_of_the_releases() -> None:
    room = a_room(noised_terms(releases_per_record=2))
    metric = ask(room, "metric")
    assert metric.noise_stddev == pytest.approx(room.terms.noise_multiplier)
    ask(room, "step")
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        ask(room, "step", number=1)


def test_releases_are_counted_over_all_tasks_together() -> None:
    agreed = noised_terms(tasks=("conversion", "cart"))
    room = a_room(agreed, some_table(tasks=agreed.tasks))
    ask(room, "step", task="conversion")
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        ask(room, "step", task="cart", number=1)


def test_laplace_noise_is_answered_with_its_own_deviation() -> None:
    agreed = noised_terms(noise="laplace", delta=0, epsilon=2, releases_per_record=3)
    step = ask(a_room(agreed), "step")
    assert step.noise_stddev == pytest.approx(np.sqrt(2) * 3 / 2, rel=1e-5)


# --- private set intersection


def psi_terms(**changes: Any) -> Terms:
    return terms(join=Join.PSI, most_ids=20, **changes)


def exchanged(room: Room, mask: PointMask) -> None:
    offered = np.frombuffer(room.exchange(None, peer=PLATFORM, now=NOW), np.uint8).reshape(-1, 32)
    assert len(offered) == 20
    assert room.exchange(answer_points(mask, offered, 20).tobytes(), peer=PLATFORM, now=NOW) == b""


def points(mask: PointMask, tokens: np.ndarray) -> np.ndarray:
    return mask.mask([each.tobytes() for each in tokens])


def test_labels_are_found_by_points_and_by_nobody_before_the_exchange() -> None:
    table, mask = some_table(12), PointMask.new(Simulation("platform"))
    agreed = psi_terms(mode=Mode.RELEASE, epsilon=40)  # flips about one label in 2^57
    store, ledger = MemoryRoomStore(), MemoryLedger()
    room = a_room(agreed, table, store=store, ledger=ledger)
    named = points(mask, some_tokens(16))  # the last four have no label
    with refused(RoomRefusal.NOT_AGREED):
        room.labels(*for_labels(agreed, named), peer=PLATFORM, now=NOW)
    exchanged(room, mask)
    expected = table.look_up(some_tokens(16), "conversion")
    assert expected.any()
    answered = room.labels(*for_labels(agreed, named), peer=PLATFORM, now=NOW)
    assert np.array_equal(answered.labels, expected)
    again = a_room(agreed, table, store=store, ledger=ledger)  # after a restart
    assert np.array_equal(again.labels(*for_labels(agreed, named), peer=PLATFORM, now=NOW).labels, expected)


def test_points_are_exchanged_once() -> None:
    room = a_room(psi_terms(), some_table(12))
    exchanged(room, PointMask.new(Simulation("platform")))
    exchanged(room, PointMask.new(Simulation("platform")))  # the same again: a retry
    with refused(RoomRefusal.CONFLICT):
        exchanged(room, PointMask.new(Simulation("another")))
    with refused(RoomRefusal.WRONG_SHAPE):
        room.exchange(b"short", peer=PLATFORM, now=NOW)
    with refused(RoomRefusal.NOT_AGREED):
        a_room().exchange(None, peer=PLATFORM, now=NOW)
    with refused(RoomRefusal.FOREIGN):
        room.exchange(None, peer="somebody", now=NOW)


def test_labels_are_fixed_from_the_moment_that_points_leave() -> None:
    store, ledger, table = MemoryRoomStore(), MemoryLedger(), some_table(12)
    a_room(psi_terms(), table, store=store, ledger=ledger).exchange(None, peer=PLATFORM, now=NOW)
    changed = LabelTable.of(table.records, 1 - table.labels, table.tasks)
    with refused(RoomRefusal.LABELS_CHANGED):
        a_room(psi_terms(), changed, store=store, ledger=ledger).exchange(None, peer=PLATFORM, now=NOW)


def test_other_numbers_of_points_are_another_exchange_and_another_release() -> None:
    agreed, mask = psi_terms(mode=Mode.RELEASE, epsilon=2), PointMask.new(Simulation("platform"))
    room = a_room(agreed, some_table(12))
    first = room.exchange(None, peer=PLATFORM, now=NOW)
    exchanged(room, mask)
    named = points(mask, some_tokens(16))
    room.labels(*for_labels(agreed, named), peer=PLATFORM, now=NOW)
    wider = replace(agreed, most_ids=30)
    agreement = signed(agreed).amend(wider, Signer.PLATFORM, PLATFORM_KEY).sign(Signer.ROOM, ROOM_KEY)
    assert agreed_budget(agreement, lambda each: each == agreed).epsilon == 4
    room.amend(agreement, now=NOW)
    offered = np.frombuffer(room.exchange(None, peer=PLATFORM, now=NOW), np.uint8).reshape(-1, 32)
    assert len(offered) == 30
    # No point comes back: those that did would be the records, and the others the padding.
    assert not {each.tobytes() for each in offered} & {first[at : at + 32] for at in range(0, len(first), 32)}
    room.exchange(answer_points(mask, offered, 30).tobytes(), peer=PLATFORM, now=NOW)
    room.labels(*for_labels(wider, named), peer=PLATFORM, now=NOW)
    assert room.describe(peer=PLATFORM, now=NOW).remaining.epsilon_spent == 4


def test_two_spellings_of_one_record_are_one_record() -> None:
    """A point plus one of low order is another token, but leads to the same record."""
    mask = PointMask.new(Simulation("platform"))
    agreed = psi_terms(mode=Mode.NOISED, delta="1e-6")
    room = a_room(agreed, some_table(12))
    exchanged(room, mask)
    named = points(mask, some_tokens(8))
    spelled = low_order_added(named[0])
    assert not np.array_equal(spelled, named[0])

    def step(tokens: np.ndarray, number: int) -> None:
        request = step_request(agreed, len(tokens), number=number)
        derivatives = some_derivatives(len(tokens))
        slabs = step_slabs(request, tokens, derivatives, some_logits(len(tokens)))
        room.step(request, slabs, peer=PLATFORM, now=NOW)

    with refused(RoomRefusal.REPEATED_RECORD):
        step(np.concatenate([named, spelled[None]]), 0)
    step(named, 0)
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        step(np.concatenate([spelled[None], points(mask, some_tokens(20)[10:14])]), 1)


def low_order_added(point: np.ndarray) -> np.ndarray:
    """P + (0, 0) on v^2 = u^3 + A u^2 + u: the point (0, 0) has order two, and u becomes 1 / u."""
    prime = 2**255 - 19
    u = int.from_bytes(point.tobytes(), "little")
    return np.frombuffer(pow(u, -1, prime).to_bytes(32, "little"), np.uint8)
