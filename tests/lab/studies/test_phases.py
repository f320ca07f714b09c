"""Figure 8: closed forms against their limits, against each other and against simulated people."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit.errors import BadInput
from tacit_lab.studies import results
from tacit_lab.studies.gather.phases import (
    ACS,
    COUNT,
    COUNT_COMMIT,
    DAP,
    PROTOCOLS,
    RASTOGI,
    RIVALS,
    SECAGG,
    SHI,
    Churn,
    QueryProtocol,
    SimulatedQueries,
    expected_phases,
    people_until,
    phases_words,
    simulate_queries,
)
from tacit_lab.studies.gather.phases_verdicts import PhasePoint, exponential, impractical
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.study import StudyRequest, StudyScale

ALPHA = 1e-9  # chance of a false alarm, each comparison


def away_in(
    protocol: QueryProtocol, people: int, churn: Churn, seed: int, queries: int = 2_000
) -> SimulatedQueries:
    draws = np.random.default_rng(seed)
    return simulate_queries(protocol, people, churn, queries=queries, limit=20_000, draws=draws)


def standard_errors_apart(walked: SimulatedQueries, expected: float) -> float:
    assert walked.unanswered == 0
    if walked.standard_error == 0:
        return 0.0 if walked.mean == expected else math.inf
    return abs(walked.mean - expected) / walked.standard_error


# The mean of 2000 nearly geometric counts has heavier tails than a normal: two more standard errors cover that
# (the skewness of the mean, 2 / sqrt(2000), moves a tail of 6 standard errors by less than one).
APART = float(norm.isf(ALPHA / 2)) + 2


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
def test_nobody_away_means_the_optimum(protocol: QueryProtocol) -> None:
    assert expected_phases(protocol, 10_000, Churn(0.0)) == protocol.optimum
    assert (away_in(protocol, 10_000, Churn(0.0), 1, 50).phases == protocol.optimum).all()


def test_closed_forms_are_the_textbook_ones_where_few_are_away() -> None:
    for people_away, expected in ((0.1, (1.21, 2.55, 2.21)), (1, (4.44, 16.5, 5.44)), (5, (296, 4.4e4, 297))):
        people = 10**6  # q^j is the limit of few who are away each
        churn = Churn(people_away / people)
        q = (1 - churn.away) ** people
        closed = [2 / q - 1, ((1 + q) + 1 - q**2) / q**2, 2 / q]
        found = [expected_phases(each, people, churn) for each in RIVALS]
        np.testing.assert_allclose(found, closed, rtol=1e-4)
        np.testing.assert_allclose(found, expected, rtol=6e-3)


def test_the_set_being_those_who_joined_changes_little() -> None:
    """All N instead of those who joined: a factor of about exp(N p^2)."""
    churn, people = Churn(1e-3), 3_000
    all_of_them = 2 / (1 - churn.away) ** people
    ratio = all_of_them / expected_phases(ACS, people, churn)
    assert math.isclose(ratio, math.exp(people * churn.away**2), rel_tol=1e-4)


@pytest.mark.parametrize("protocol", RIVALS, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("people", "churn"),
    [
        (10_000, Churn(1e-4)),
        (1_000_000, Churn(2e-6)),
        (50, Churn(0.03)),
        (10_000, Churn(1e-3, stay_away=10)),
        (100_000, Churn(2e-4, stay_away=20)),
    ],
    ids=str,
)
def test_simulated_people_agree_with_the_closed_forms(
    protocol: QueryProtocol, people: int, churn: Churn
) -> None:
    walked = away_in(protocol, people, churn, seed=people)
    assert standard_errors_apart(walked, expected_phases(protocol, people, churn)) < APART


@pytest.mark.parametrize(
    ("protocol", "away"), [(COUNT, 0.24), (COUNT_COMMIT, 0.09), (DAP, 0.24), (SECAGG, 0.066)], ids=str
)
def test_protocols_that_tolerate_losses_agree_too(protocol: QueryProtocol, away: float) -> None:
    expected = expected_phases(protocol, 400, Churn(away))
    assert expected > 1.05 * protocol.optimum  # there is something to see
    assert standard_errors_apart(away_in(protocol, 400, Churn(away), seed=3), expected) < APART


def test_a_wrong_closed_form_would_be_seen() -> None:
    """Twins: one phase forgotten, an attempt that is not cut short, sticky taken for independent."""
    twins = [
        (SHI, 10_000, Churn(1e-4), replace(SHI, later=2)),
        (RASTOGI, 10_000, Churn(1e-4), replace(RASTOGI, later=1)),
        (SECAGG, 400, Churn(0.066), replace(SECAGG, later=2)),
        (SECAGG, 8, Churn(0.15), replace(SECAGG, at_each_phase=False)),
        (COUNT_COMMIT, 8, Churn(0.15), replace(COUNT_COMMIT, at_each_phase=True)),
    ]
    for protocol, people, churn, twin in twins:
        walked = away_in(protocol, people, churn, seed=5)
        assert standard_errors_apart(walked, expected_phases(protocol, people, churn)) < APART
        assert standard_errors_apart(walked, expected_phases(twin, people, churn)) > APART
    sticky = away_in(ACS, 10_000, Churn(1e-4, stay_away=10), seed=5)
    assert standard_errors_apart(sticky, expected_phases(ACS, 10_000, Churn(1e-4))) > APART


def test_losses_that_are_seen_late_cost_whole_attempts() -> None:
    stayed = binom.sf(299, 400, 0.91**3)  # of 400, three quarters are enough
    assert math.isclose(expected_phases(COUNT_COMMIT, 400, Churn(0.09)), 3 / stayed)
    assert COUNT_COMMIT.fewest(400) == 300
    assert COUNT_COMMIT.fewest(10) == 8


def test_sticky_churn_keeps_the_share_away_and_its_length() -> None:
    churn = Churn(0.2, stay_away=8)
    assert math.isclose(churn.leaving / (churn.leaving + churn.returning), 0.2)
    assert 1 / churn.returning == 8
    same = Churn(0.2, stay_away=1 / 0.8)
    assert math.isclose(same.leaving, 0.2)
    assert math.isclose(same.returning, Churn(0.2).returning)
    assert expected_phases(RASTOGI, 30, churn) < expected_phases(RASTOGI, 30, Churn(0.2))


@pytest.mark.parametrize(
    ("away", "stay_away"), [(-0.1, None), (1.0, None), (0.1, 0.5), (0.9, 2.0), (0.1, math.nan)]
)
def test_churn_that_cannot_be_is_refused(away: float, stay_away: float | None) -> None:
    with pytest.raises(BadInput, match="expected"):
        Churn(away, stay_away)


def test_a_query_beyond_the_limit_is_said_to_take_more() -> None:
    walked = simulate_queries(SHI, 10**6, Churn(1e-3), queries=20, limit=50, draws=np.random.default_rng(1))
    assert walked.unanswered == 20
    assert phases_words(walked.mean, walked.standard_error, walked.unanswered) == "more than 50"
    assert expected_phases(SHI, 10**6, Churn(1e-2)) == math.inf


def test_people_until_is_where_the_factor_is_reached() -> None:
    churn = Churn(1e-4)
    for protocol in RIVALS:
        people = people_until(protocol, churn, 10)
        assert people is not None
        assert expected_phases(protocol, people, churn) >= 10 * protocol.optimum
        assert expected_phases(protocol, people - 1, churn) < 10 * protocol.optimum
    assert people_until(COUNT, churn, 10) is None


def points(times: float = 1.0, flat: float = 1.0) -> list[PhasePoint]:
    """Made-up figures: rivals at `times` their closed forms, Count at `flat` times its optimum."""
    made = []
    for people in (1_000, 10_000, 20_000, 30_000):
        for protocol in PROTOCOLS:
            expected = expected_phases(protocol, people, Churn(1e-4))
            seen = expected * times if protocol in RIVALS else protocol.optimum * flat
            walked = SimulatedQueries(np.full(3, seen), 10**6, 0)
            made.append(PhasePoint.of(protocol, people, Churn(1e-4), expected, walked))
    return made


def test_verdicts_follow_their_rules() -> None:
    assert exponential(points()).holds is True
    assert exponential(points(flat=1.02)).holds is False
    linear = [replace(each, mean=float(each.people)) if each.protocol is SHI else each for each in points()]
    assert exponential(linear).holds is False
    assert exponential(points()[: 2 * len(PROTOCOLS)]).holds is None  # too few points for a slope
    assert impractical(points(), 23_000).holds is False
    assert impractical(points(times=10), 23_000).holds is True


def test_simulated_means_that_span_a_bar_decide_nothing() -> None:
    def rough(share: float, times: float = 1.0, flat: float = 1.0) -> list[PhasePoint]:
        return [replace(each, standard_error=share * each.mean) for each in points(times, flat)]

    assert exponential(rough(0.001)).holds is True
    assert exponential(rough(0.02, flat=1.02)).holds is None, "above the bar by less than its interval"
    assert exponential(rough(0.5)).holds is None, "a slope that may be less steep"
    assert impractical(rough(0.2, times=10), 23_000).holds is None
    assert impractical(rough(0.001, times=10), 23_000).holds is True
    given_up = [replace(each, unanswered=3) for each in points()]
    assert impractical(given_up, 23_000).holds is None, "their mean is a lower bound"


def test_protocols_that_were_not_run_decide_nothing() -> None:
    slow = points(times=10)
    without = [each for each in slow if each.protocol is not SHI]
    assert impractical(without, 23_000).holds is None
    assert f"{SHI.name} not run" in impractical(without, 23_000).seen
    assert impractical([], 23_000).holds is None
    assert impractical([each for each in points() if each.protocol is not SHI], 23_000).holds is False
    assert exponential([each for each in points() if each.protocol is not COUNT]).holds is None
    assert exponential([]).holds is None


def test_a_point_is_the_same_after_a_table() -> None:
    beyond = PhasePoint.of(
        SHI, 10**6, Churn(1e-2, stay_away=10), None, SimulatedQueries(np.array([50, 50]), 50, unanswered=2)
    )
    for point in (*points(), beyond):
        assert PhasePoint.of_row(point.row("away")) == point


def test_the_study_leaves_its_files_and_decides_nothing_at_toy_scale(tmp_path: Path) -> None:
    found = load_study("gather-phases").outcome(StudyRequest(tmp_path, StudyScale.TOY, seeds=1))
    assert [finding.claim.id for finding in found.findings] == ["M10", "M11"]
    assert load_study("gather-phases").findings(tmp_path) == found.findings  # the folder is enough
    assert all(finding.holds is None for finding in found.findings)
    assert all(place.exists() for place in found.files)
    table = results.read_table(tmp_path, "gather-phases")
    assert set(table["protocol"]) == {each.name for each in PROTOCOLS}
    assert set(table["panel"]) == {"away", "people", "away-sticky", "people-sticky"}
    count = [
        v for v, name in zip(table["phases_simulated"], table["protocol"], strict=True) if name == COUNT.name
    ]
    assert set(count) == {1.0}
