"""What the verdicts of the studies of contexts stand on: rules, groups, weights, and who was tested."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.schema.contexts.hierarchy import Node
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.contexts.bootstrap import PeopleTally, bootstrap_interval, falls, rises, stays, within
from tacit_lab.studies.contexts.contest import ArmTallies, ContextOffers, ServedTests, _record, disclosed_groups
from tacit_lab.studies.contexts.own_history import RememberedVisits
from tacit_lab.studies.contexts.private_choice import group_requests
from tacit_lab.studies.contexts.setting import trial_sources
from tacit_lab.studies.contexts.trial import EXACT, LAST, Trace, TrialBlock, VisitsTrial
from tacit_lab.studies.study import StudyRequest, StudyScale


def measured(low: float, value: float, high: float) -> MeasuredValue:
    return MeasuredValue(value, low, high, 0.95)


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict"),
    [(0.01, 0.1, 0.2, True), (-0.1, 0.1, 0.3, None), (-0.3, -0.1, 0.1, None), (-0.2, -0.1, -0.01, False)],
)
def test_a_direction_is_decided_by_the_whole_interval(
    low: float, value: float, high: float, verdict: bool | None
) -> None:
    assert rises(measured(low, value, high)) is verdict
    assert falls(measured(-high, -value, -low)) is verdict
    assert stays(measured(low, value, high)) is verdict, "but for an end at 0"
    assert stays(measured(0, 0, high + 1)) is True


def test_what_could_not_be_measured_decides_nothing() -> None:
    nothing = measured(math.nan, math.nan, math.nan)
    assert rises(nothing) is falls(nothing) is stays(nothing) is within(nothing, 1) is None


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.04, 0.04, True), (-0.06, 0.02, None), (0.02, 0.06, None), (0.06, 0.1, False), (-0.1, -0.06, False)],
)
def test_alike_is_decided_by_the_whole_interval(low: float, high: float, verdict: bool | None) -> None:
    assert within(measured(low, (low + high) / 2, high), 0.05) is verdict


def test_an_interval_is_the_middle_95_percent() -> None:
    found = bootstrap_interval(np.array([0.5, *np.linspace(0, 1, 1001)]))
    assert (found.low, found.value, found.high) == pytest.approx((0.025, 0.5, 0.975))


def test_a_figure_that_most_resamples_lack_is_none() -> None:
    figures = np.r_[0.5, np.full(400, 0.5), np.full(600, np.nan)]
    assert math.isnan(bootstrap_interval(figures).value)
    assert bootstrap_interval(np.r_[0.5, np.full(900, 0.5), np.full(100, np.nan)]).value == 0.5


def test_first_visits_and_repeats_are_told_apart() -> None:
    trace = Trace(
        user=np.array([1, 1, 2]),
        place=np.array([0, 0, 0]),
        context={},
        again=np.array([False, True, True]),
        attributes=(),
        point=np.zeros((1, 2)),
    )
    given = ServedTests(np.array([[True], [False], [True]]), np.array([[True], [False], [False]]), bits=0.0)
    found = ArmTallies.of(_record(VisitsTrial(trace, np.arange(3)), given))
    assert found.discovery.requests.tolist() == [1, 0]
    assert found.repeats.requests.tolist() == [1, 1]
    assert found.discovery.clicked.sum() == 1
    assert isinstance(found.everything, PeopleTally)


def block(rate: list[list[float]], learnt: list[int], at: list[int]) -> TrialBlock:
    """Contexts 0, 1, ... with the rates of ads 10, 11, ...; tests 0, 1, ... are in the contexts `at`."""
    rates = np.array(rate)
    return TrialBlock(
        rates,
        np.arange(len(rates)),
        10 + np.arange(rates.shape[1]),
        np.array(learnt),
        np.arange(len(at)),
        np.array(at),
    )


def test_the_server_weighs_contexts_by_how_often_they_were_seen() -> None:
    here = block([[0.9, 0.0], [0.0, 0.5], [0.0, 0.5]], [1, 5, 5], [0])
    assert ContextOffers.of(here, np.arange(3)).select(1, 0.0).tolist() == [1]
    assert ContextOffers.of(block([[0.9, 0.0], [0.0, 0.5]], [9, 1], [0]), np.arange(2)).select(
        1, 0.0
    ).tolist() == [0]


def test_an_ad_below_the_floor_is_not_sent_and_one_at_it_is() -> None:
    here = block([[0.4, 0.3, 0.2]], [3], [0])
    # In one context the best is enough.
    assert set(ContextOffers.of(here, np.arange(1)).select(3, 0.3).tolist()) == {0}
    other = block([[0.4, 0.0], [0.0, 0.3]], [3, 3], [0])
    assert set(ContextOffers.of(other, np.arange(2)).select(3, 0.3).tolist()) == {0, 1}
    assert set(ContextOffers.of(other, np.arange(2)).select(3, 0.31).tolist()) == {0}


def test_the_server_thinks_only_of_contexts_that_were_learnt_from() -> None:
    here = block([[0.5], [0.6], [0.7]], [2, 0, 0], [1, 2])
    told = np.array([4, 4, 9])
    found = {contexts[0]: (contexts.tolist(), tests) for contexts, tests in disclosed_groups(here, told)}
    assert found == {0: ([0], [(0, 1)]), 2: ([2], [(1, 2)])}  # 2 was never seen: then it is itself


def test_nothing_of_the_tests_is_learnt(trial: VisitsTrial) -> None:
    later = np.arange(trial.trace.rows) >= int(0.9 * trial.trace.rows)
    assert np.array_equal(trial.learnt, ~later)
    clicked = trial.counts.at(EXACT).clicks.sum()
    assert clicked == (~later).sum()


def test_candidates_of_a_private_choice_are_in_public_order(trial: VisitsTrial) -> None:
    for request in group_requests(trial):
        public = request.likely.mean(axis=0)
        assert (np.diff(public) <= 1e-12).all()


def test_a_visited_place_that_was_not_sent_starts_from_nothing() -> None:
    root = Node((1,), ("*",))
    history, here = ClickHistory(((1,),)), DeviceContext((root,), root)
    ads, rates = RememberedVisits({0: (history, here, (5, 7))}, cached=True)(0, np.array([5]), np.array([0.3]))
    assert (ads.tolist(), rates.tolist()) == ([5, 7], [0.3, 0.0])


@pytest.fixture(scope="module")
def trial() -> VisitsTrial:
    return trial_sources(StudyRequest(Path("unused"), StudyScale.TOY, seeds=1))[0].trial()


def test_the_levels_of_a_trial_are_the_paper_s(trial: VisitsTrial) -> None:
    assert (trial.counts.levels[0], trial.counts.levels[-2]) == (EXACT, LAST)
