"""Plans for several slots: their exact epsilon over all rankings, what they gain, what their reports teach."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import comb

import numpy as np
import pytest

from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.priors import Favourite
from tacit.deliver.protocol.slate_plans import plan_slate
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.deliver.server.report_chances import LAWS
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.choice.slates import all_slates, expected_sum

PUBLIC = np.array([3.0, 2.6, 2.5, 2.4, 0.2])


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
@pytest.mark.parametrize("prior", [Spread(0.3), Spread(), Spread(10), Favourite(1, 1)], ids=str)
def test_a_planned_slate_tells_no_more_than_it_spends(prior: Spread, slots: int, epsilon: float) -> None:
    """Over all private rankings, in whole words; of laws by sums, over scores whose sums rank otherwise too."""
    plan = plan_slate(PUBLIC, slots, prior, epsilon)
    if plan.law is None:
        assert plan.epsilon_spent == 0
        return
    assert plan.epsilon_spent == epsilon
    assert slots < plan.kept <= len(PUBLIC)
    rows = [np.array(row) ** power for row in permutations(range(plan.kept)) for power in (1.0, 3.0)]
    columns = list(zip(*(plan.law.weights(row) for row in rows), strict=True))
    assert len(columns) == comb(plan.kept, slots)
    assert max(Fraction(max(words), min(words)) for words in columns) <= exp_rounded_down(Fraction(epsilon))


def test_nothing_is_spent_where_nothing_is_won() -> None:
    for public, slots, prior in (
        ([3.0, 2.0, 1.0], 3, Spread()),  # all are shown
        ([3.0, 2.0, 1e-6], 2, Spread()),  # nobody can catch up
        ([3.0, 2.9, 2.8], 2, Spread(0)),  # nobody differs
    ):
        plan = plan_slate(public, slots, prior, 1)
        assert (plan.law, plan.epsilon_spent, plan.forecast_gain, plan.skipped) == (None, 0.0, 0.0, True)
        scores = np.random.default_rng(1).random((5, 3))
        assert plan.choose(scores, Simulation(1).words).tolist() == [list(range(slots))] * 5


def test_it_gains_what_it_forecasts_and_beats_slots_of_all_candidates() -> None:
    prior, slots, epsilon = Spread(0.6), 2, 3.0
    plan = plan_slate(PUBLIC, slots, prior, epsilon)
    assert plan.law is not None
    assert plan.kept == 4, "the last is far behind"
    draws = PUBLIC * np.random.default_rng(2).lognormal(-0.18, 0.6, (40_000, 5))
    base = draws[:, :slots].sum(axis=1).mean()
    gained = expected_sum(plan.law, draws[:, : plan.kept]) - base
    assert gained == pytest.approx(plan.forecast_gain, rel=0.15)
    chosen = plan.choose(draws, Simulation(3).words)
    drawn = np.take_along_axis(draws, chosen, 1).sum(axis=1).mean() - base
    assert drawn == pytest.approx(gained, rel=0.15)
    assert chosen.max() < plan.kept


def test_reports_of_slates_teach_the_prior_that_plans_the_next() -> None:
    """From the plan to the evidence and back: people who differ little, by slates that assumed much."""
    public, slots, epsilon = np.array([3.0, 2.9, 2.8, 2.7]), 2, 4.0
    plan = plan_slate(public, slots, Spread(), epsilon)
    assert plan.law is not None
    people = public * np.random.default_rng(4).lognormal(-0.005, 0.1, (3_000, 4))
    chosen = plan.choose(people, Simulation(5).words)
    listed = all_slates(plan.kept, slots).tolist()
    numbers = [listed.index(row) for row in chosen.tolist()]
    counts = np.bincount(numbers, minlength=len(listed))
    evidence = PriorEvidence().learn([ReportedRanks(public[: plan.kept], plan.law, counts)])
    weights = evidence.posterior()
    narrow = [law in (Spread(0.05), Spread(0.1), Spread(0.2)) for law in LAWS]
    assert evidence.reports == 3_000
    assert weights[LAWS.index(Spread())] < 1e-6
    assert weights[narrow].sum() > 0.3
    learnt = evidence.prior()
    assert plan_slate(public, slots, learnt, epsilon).forecast_gain < plan.forecast_gain


def test_slots_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadInput, match="expected at most as many slots as candidates, 3, got 4"):
        plan_slate([3.0, 2.0, 1.0], 4)
    with pytest.raises(BadInput, match="slots"):
        plan_slate([3.0, 2.0, 1.0], 0)
    with pytest.raises(BadInput, match="from the largest down"):
        plan_slate([1.0, 2.0], 1)


def test_many_candidates_are_kept_as_far_as_words_can_tell_their_slates_apart() -> None:
    plan = plan_slate(np.ones(40), 8, epsilon=20)
    assert plan.law is not None
    assert plan.kept < 40
    assert plan.law.low_weight >= 1_000
