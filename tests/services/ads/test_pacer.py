"""Whatever devices report, processes crash and clocks say, nobody is over its budget by more than the share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tacit.bill.protocol.menus import Lane
from tacit.deliver.campaigns.campaign import DAY_SECONDS, Schedule
from tacit.deliver.campaigns.store import MACHINE, Author
from tacit.deliver.server.pacing import PacingSettings
from tacit.services.ads.pacer import Pacer
from tacit.store.campaigns import SqlCampaignStore
from tests.support.ledger_places import Place
from tests.support.paced_town import (
    LAST_DAY_SECONDS,
    ForgetfulPacer,
    HopefulPacer,
    PacedTown,
    forgetful_counter,
)

Open = Callable[..., PacedTown]
LAST_DAY = LAST_DAY_SECONDS // DAY_SECONDS


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    towns: list[PacedTown] = []

    def make(**given: object) -> PacedTown:
        where = given.pop("where", tmp_path / f"{len(towns)}.sqlite")
        towns.append(PacedTown(where, **given))  # type: ignore[arg-type]
        return towns[-1]

    yield make
    for each in towns:
        each.end()


def storm(town: PacedTown, steps: int) -> int:
    """By how much somebody was ever over, in micros."""
    over = -(10**9)
    for _ in range(steps):
        town.step()
        over = max(over, town.over())
    town.spend_all(victim=1)
    return max(over, town.over())


@pytest.mark.parametrize("seed", range(2))
def test_nobody_is_over_by_more_than_the_share(opened: Open, seed: int) -> None:
    town = opened(seed=seed)
    for _ in range(24):
        town.step()
        town.check()
    town.spend_all(victim=2)
    town.check()


def test_nobody_is_over_on_postgres(opened: Open, postgres_place: Place) -> None:
    town = opened(where=postgres_place.where, seed=7, workers=3)
    for _ in range(20):
        town.step()
    town.check()
    town.spend_all(victim=3)
    town.check()


@pytest.mark.parametrize(
    "broken", [{"pacer": ForgetfulPacer}, {"pacer": HopefulPacer}, {"counter": forgetful_counter}],
    ids=["forgets what is out", "retires what was not reported", "forgets what a process signed"],
)  # fmt: skip
def test_a_pacer_that_counts_less_is_caught(opened: Open, broken: dict[str, Any]) -> None:
    assert any(storm(opened(seed=seed, **broken), 30) > 0 for seed in range(8))


def test_a_bound_is_not_kept_by_not_selling(opened: Open) -> None:
    town = opened(seed=1)
    for _ in range(30):
        town.open()
        town.spend_all(victim=1)
        town.now += 100
    spent = town.spent()
    assert 2_900 <= spent[1] <= 3_060
    assert 4_000 <= spent[2] <= 4_794
    town.check()


def test_menus_are_closed_when_they_are_no_longer_offered_and_public_ones_when_notices_are_over(
    opened: Open,
) -> None:
    town = opened(pacer=partial(Pacer, notice_seconds=120))
    town.open()
    town.take(0, 0.5)

    def lanes_open() -> set[Lane]:
        town.settle()
        moment = town.store.look(0)
        still = [each for each in moment.tokens if not each.is_closed]
        return {moment.epochs[each.epoch].menus[each.menu].lane for each in still}

    town.now += 104
    assert lanes_open() == set(Lane)
    town.now += 1  # the epoch is over, and five seconds
    assert lanes_open() == {Lane.PUBLIC}
    town.check()
    town.now += 115
    assert lanes_open() == set()
    town.check()


def test_a_daily_budget_is_spread_over_the_hours_in_which_it_runs(opened: Open) -> None:
    town = opened()
    town.now = 50 * DAY_SECONDS  # a day begins
    even = Pacer(town.store, PacingSettings(even=True, first_tokens=40), lambda: town.now)

    def target(seconds: int) -> int | None:
        town.now = 50 * DAY_SECONDS + seconds
        found = {each.campaign.campaign: each.money for each in even.report(town.now).campaigns}
        assert found[1].target_micros is None, "no daily budget"
        return found[5].target_micros

    assert [target(hours * 3_600) for hours in (0, 6, 12, 24)] == [0, 625, 1_250, 0]
    sold = SqlCampaignStore(town.ads.database)
    stored = sold.campaign(5)
    assert stored is not None
    by_turns = replace(stored.campaign, schedule=Schedule(hours=tuple(range(168))[::2]))
    sold.change_campaign(by_turns, stored.version, Author(MACHINE, 0))
    assert [target(hours * 3_600) for hours in (1, 2, 12)] == [208, 208, 1_250], "every other hour"


def test_what_a_day_earned_of_its_worst_case_is_known_the_next(opened: Open) -> None:
    town = opened()
    town.open()
    town.spend_all(victim=5)
    town.now += 400
    town.settle()
    moment = town.store.look(LAST_DAY)
    spent = {number: each.spent_micros for number, each in moment.days.items()}
    assert spent == {number: micros for number, micros in town.spent().items() if number in spent}
    assert all(each.spent_micros <= each.exposed_micros for each in moment.days.values())
    town.now = (LAST_DAY + 1) * DAY_SECONDS
    money = {each.campaign.campaign: each.money for each in town.pacer.report(town.now).campaigns}
    for number, each in moment.days.items():
        assert money[number].earned == Fraction(each.spent_micros, each.exposed_micros)


class PacedTownMachine(RuleBasedStateMachine):
    """The same by hypothesis, which looks for the shortest way to be over."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.town = PacedTown(Path(self._folder.name) / "ads.sqlite")

    @rule(ahead=st.sampled_from([0, 50]), publishes=st.booleans())
    def open(self, ahead: int, publishes: bool) -> None:
        self.town.open(ahead=ahead, publishes=publishes)

    @rule()
    def open_twice(self) -> None:
        self.town.open_twice()

    @rule(worker=st.integers(0, 1), part=st.sampled_from([0.8, 1.0]))
    def take(self, worker: int, part: float) -> None:
        self.town.take(worker, part)

    @rule(worker=st.integers(0, 1))
    def restart(self, worker: int) -> None:
        self.town.restart(worker)

    @rule(victim=st.sampled_from([1, 2, 3, 5]), part=st.sampled_from([0.3, 1.0]))
    def report(self, victim: int, part: float) -> None:
        self.town.report(victim, part)

    @rule(seconds=st.sampled_from([-50, 10, 120, 400]))
    def jump(self, seconds: int) -> None:
        self.town.now += seconds

    @rule()
    def settle(self) -> None:
        self.town.settle()

    @rule(number=st.sampled_from([1, 2]), budget=st.sampled_from([0, 1_000, 8_000]))
    def set_budget(self, number: int, budget: int) -> None:
        self.town.set_budget(number, budget)

    @invariant()
    def nobody_is_over(self) -> None:
        self.town.check()

    def teardown(self) -> None:
        self.town.end()
        self._folder.cleanup()


TestPacedTown = PacedTownMachine.TestCase
TestPacedTown.settings = settings(max_examples=2, stateful_step_count=15, deadline=None)


@pytest.mark.slow
def test_nobody_is_over_whatever_hypothesis_finds() -> None:
    run_state_machine_as_test(
        PacedTownMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
