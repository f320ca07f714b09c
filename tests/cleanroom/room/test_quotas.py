"""Runs that compete for a record's releases: what a run needs is set aside when it begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cleanroom.platform.steps import AdapterPlan
from tacit.cleanroom.platform.training import AdapterRunSummary, train_adapter
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.room import quotas
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.store import MemoryRoomStore, RoomStore, _Transaction
from tacit.errors import BadInput, RoomRefused
from tacit.store.room import SqlRoomStore
from tests.support.cleanroom_platform_world import model, world
from tests.support.cleanroom_rooms import (
    NOW,
    PLATFORM,
    a_room,
    begin,
    honest_step,
    noised_terms,
    refused,
    some_tokens,
    state_but_for_the_log,
)

ROWS, EPOCHS = 100, 3


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RoomStore]:
    if request.param == "memory":
        yield MemoryRoomStore()
        return
    made = SqlRoomStore.open(tmp_path / "room.sqlite")
    yield made
    made.close()


def step(room: Room, number: int = 0, **asked: Any) -> Any:
    request, slabs = honest_step(room.terms, number=number, **asked)
    return room.step(request, slabs, peer=PLATFORM, now=NOW)


def hand_back(room: Room, store: RoomStore, run: str) -> int:
    with store.transaction() as transaction:
        return quotas.return_quota(transaction, room._open.release, run)


# What the platform sees


def trained(
    here: Any, run: str, checkpoint: Path, link: Any = None, **plan: Any
) -> tuple[Any, AdapterRunSummary]:
    fitted = model()
    chosen = AdapterPlan.for_terms(here.terms, **{"batch": 50, "epochs": EPOCHS, "codec": "int8", **plan})
    done = train_adapter(
        fitted, "shoes", here.examples, here.tokens, link or here.link, chosen, run=run, checkpoint=checkpoint
    )
    return fitted.adapter_values("shoes"), done


class Racing:
    """A link on which another run is begun after this one's second step."""

    def __init__(self, here: Any, other: Any) -> None:
        self._here, self._other = here, other

    def step(self, request: Any, slabs: Any) -> Any:
        if request.number == 2:
            self._other()
        return self._here.link.step(request, slabs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here.link, name)


def test_the_first_of_competing_runs_ends_and_the_others_leave_without_cost(tmp_path: Path) -> None:
    here = world(Mode.NOISED, rows=ROWS, releases_per_record=EPOCHS)
    said = []

    def second() -> None:
        with pytest.raises(RoomRefused) as refusal:
            trained(here, "second", tmp_path / "second")
        said.append(str(refusal.value))

    alone, _ = trained(world(Mode.NOISED, rows=ROWS, releases_per_record=EPOCHS), "first", tmp_path / "alone")
    values, done = trained(here, "first", tmp_path / "first", Racing(here, second))
    assert done.steps == 6
    assert np.array_equal(values, alone)
    assert "run second needs 3 releases of each record, 0 of 3 are left; first holds 3" in said[0]
    assert not (tmp_path / "second").exists()


# What the room does


def test_what_a_run_has_set_aside_nobody_else_uses(store: RoomStore) -> None:
    room = a_room(noised_terms(releases_per_record=3), store=store)
    begin(room, "first", releases=2)
    step(room, run="other", number=0)  # one was left for everybody
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        step(room, run="other", number=1)
    for number in range(2):
        step(room, run="first", number=number)
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        step(room, run="first", number=2)


def test_a_run_that_would_not_fit_is_refused_whole_and_nothing_changes(store: RoomStore) -> None:
    room = a_room(noised_terms(releases_per_record=3), store=store)
    begin(room, "first", releases=2)
    before = _state(store)
    with refused(RoomRefusal.RECORD_EXHAUSTED) as said:
        begin(room, "second", releases=2)
    assert "run second needs 2 releases of each record, 1 of 3 are left; first holds 2" in str(said.value)
    assert _state(store) == before
    begin(room, "elsewhere", releases=3, tokens=some_tokens(96)[64:])  # other records have all of theirs
    begin(room, "third", releases=1)


def _state(store: RoomStore) -> Any:
    return state_but_for_the_log(store) if isinstance(store, MemoryRoomStore) else None


def test_a_run_is_begun_once_with_one_content(store: RoomStore) -> None:
    room = a_room(noised_terms(releases_per_record=3), store=store)
    for _ in range(3):
        assert begin(room, "first", releases=2).releases == 2
    others: list[dict[str, Any]] = [{"releases": 3}, {"tokens": some_tokens(16)}, {"training": "ab" * 32}]
    for other in others:
        with refused(RoomRefusal.CONFLICT):
            begin(room, "first", **{"releases": 2, **other})
    step(room, run="other")
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        step(room, run="first", first=32)  # records that it did not name: of these it has set nothing aside


def test_what_is_handed_back_is_free_again_and_never_more(store: RoomStore) -> None:
    """By the room's operator. The run itself can come back for what it still needs, as long as it is there."""
    room = a_room(noised_terms(releases_per_record=3), store=store)
    begin(room, "first", releases=3)
    step(room, run="first", number=0)
    assert hand_back(room, store, "first") == 2 * 32
    assert hand_back(room, store, "first") == 0
    with refused(RoomRefusal.RECORD_EXHAUSTED) as said:
        step(room, run="first", number=1)
    assert "handed back" in str(said.value)
    begin(room, "first", releases=3)  # its two that are left
    step(room, run="first", number=1)
    assert hand_back(room, store, "first") == 32
    step(room, run="other", number=0)
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        begin(room, "first", releases=3)
    with refused(RoomRefusal.RECORD_EXHAUSTED):
        step(room, run="other", number=1)


def tried(store: RoomStore, seed: int, most: int = 3) -> int:
    """How often records were released, by who begins, steps, abandons and comes back at random."""
    room = a_room(noised_terms(releases_per_record=most, name=f"spring-{seed}"), store=store)
    draw, released = np.random.default_rng(seed), 0
    begin(room, "run 2", releases=most)
    for number in range(40):
        which, what = draw.integers(3), draw.integers(4)
        with suppress(RoomRefused, BadInput):
            if what == 0:
                begin(room, f"run {which}", releases=1 + int(which) % most)
            elif what == 1:
                hand_back(room, store, f"run {which}")
            else:
                step(room, run=f"run {which}", number=number)
                released += 1
    return released


def test_nothing_is_gained_by_setting_aside_abandoning_and_coming_back(store: RoomStore) -> None:
    assert [tried(store, seed) for seed in range(4)] == [3] * 4


def test_a_store_that_hands_back_what_was_used_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(self: Any, release: str, run: str) -> int:
        for record in self._state.held.get((release, run), {}):
            self._add_count(release, record, -sum(self._held_counts((release, run), record)))
            self.changes.held.setdefault((release, run), {})[record] = (0, 0)
        return 0

    monkeypatch.setattr(_Transaction, "return_quota", generous)
    assert max(tried(MemoryRoomStore(), seed) for seed in range(4)) > 3


def test_what_begin_refuses(store: RoomStore) -> None:
    room = a_room(noised_terms(releases_per_record=3), store=store)
    with refused(RoomRefusal.NOT_AGREED):
        begin(room, "first", releases=4)
    with refused(RoomRefusal.FOREIGN):
        begin(room, "first", releases=1, peer="somebody")
    with refused(RoomRefusal.REPEATED_RECORD):
        begin(room, "first", releases=1, tokens=np.repeat(some_tokens(16), 2, axis=0))
    flips = a_room()
    with refused(RoomRefusal.NOT_AGREED):  # nothing is counted there, so there is nothing to set aside
        begin(flips, "first", releases=1)
