"""Exploring costs no epsilon; private bandits have linear regret, at a rate that nothing private can avoid."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.top_choice import TopChoice
from tacit_lab.studies.choice.bandits import Bandit, exploration_scores, regret_curve

BANDIT = Bandit(arms=4, gap=1.0)


def test_drawn_scores_keep_the_epsilon_of_the_law() -> None:
    """The chance of each arm, averaged over posterior draws of two very different states."""
    law = TopChoice.for_epsilon(1, 3, 3, 1)
    states = [
        (np.array([5.0, 0.0, 0.0]), np.full(3, 0.1)),
        (np.array([0.0, 0.0, 1.0]), np.array([2.0, 0.5, 3.0])),
    ]
    chances = []
    for mean, deviation in states:
        shape = (2000, 3)
        drawn = exploration_scores(
            np.broadcast_to(mean, shape), np.broadcast_to(deviation, shape), "thompson", Simulation(1)
        )
        chances.append(law.pmf(drawn).mean(axis=0))
    ratios = np.log(chances[0] / chances[1])
    assert np.abs(ratios).max() <= 1  # an average of chances in [l, h] is in [l, h]: no sampling error
    assert np.abs(ratios).max() > 0.3


def test_scores_are_the_posterior_as_asked() -> None:
    mean, deviation = np.array([[1.0, 2.0]]), np.array([[0.5, 0.0]])
    assert exploration_scores(mean, deviation, "point", Simulation(1)).tolist() == [[1.0, 2.0]]
    assert exploration_scores(mean, deviation, "upper-bound", Simulation(1)).tolist() == [[2.0, 2.0]]
    drawn = exploration_scores(np.zeros((4000, 1)), np.full((4000, 1), 3.0), "thompson", Simulation(1))
    # A deviation from 4000 normals errs by 1/sqrt(8000) of itself; six of those.
    assert abs(drawn.std() / 3 - 1) < 6 / math.sqrt(8000)


def test_private_regret_is_linear_at_the_least_rate_and_unprivate_regret_is_not() -> None:
    law = TopChoice.for_epsilon(2, 4, 4, 1)
    private = regret_curve(BANDIT, law, "thompson", rounds=500, people=100, source=Simulation(1))
    greedy = regret_curve(BANDIT, None, "thompson", rounds=500, people=100, source=Simulation(1))
    least = BANDIT.least_regret(2)
    assert private.exponent > 0.9
    assert greedy.exponent < 0.5
    assert private.last_slope == pytest.approx(least, rel=0.02)
    assert greedy.last_slope < 0.1 * least
    # Every round costs at least that, from the first one on: by the exact law, so without tolerance.
    assert (np.diff(private.mean) >= least * (1 - 1e-9)).all()
    assert (private.standard_error >= 0).all()


def test_without_exploring_only_the_unprivate_device_gets_stuck() -> None:
    """What is shown at random for privacy also explores."""
    settings = {"rounds": 400, "people": 200}
    stuck = regret_curve(BANDIT, None, "point", **settings, source=Simulation(2))
    law = TopChoice.for_epsilon(5, 4, 4, 1)
    private = regret_curve(BANDIT, law, "point", **settings, source=Simulation(2))
    assert stuck.last_slope > 2 * private.last_slope


@pytest.mark.parametrize(("arms", "epsilon"), [(2, 0.5), (2, 2.0), (3, 1.0), (4, 0.5), (4, 2.0)])
def test_no_private_law_avoids_the_least_regret(arms: int, epsilon: float) -> None:
    """The best chance of the best arm over all epsilon-LDP laws of who likes what, as a linear program."""
    rows = []
    for one, two, arm in itertools.product(range(arms), repeat=3):
        if one != two:
            row = np.zeros((arms, arms))
            row[one, arm], row[two, arm] = 1, -math.exp(epsilon)
            rows.append(row.ravel())
    sums = [np.repeat(np.eye(arms)[one], arms) for one in range(arms)]
    found = linprog(
        -np.eye(arms).ravel() / arms, np.array(rows), np.zeros(len(rows)), np.array(sums), np.ones(arms)
    )
    bandit = Bandit(arms, 0.7)
    assert bandit.least_regret(epsilon) == pytest.approx(0.7 * (1 + found.fun), rel=1e-6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bandit(1, 1.0), "arms"),
        (lambda: Bandit(2, 0.0), "gap"),
        (lambda: regret_curve(BANDIT, None, "best", rounds=9, people=9, source=Simulation(1)), "one of"),
        (lambda: regret_curve(BANDIT, None, "point", rounds=1, people=9, source=Simulation(1)), "rounds"),
        (
            lambda: regret_curve(
                BANDIT, TopChoice.for_epsilon(1, 3, 3, 1), "point", rounds=9, people=9, source=Simulation(1)
            ),
            "4 arms",
        ),
        (lambda: exploration_scores(np.zeros(2), np.zeros(3), "point", Simulation(1)), "shape"),
        (lambda: exploration_scores(np.zeros(2), -np.ones(2), "point", Simulation(1)), "deviations >= 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(make: object, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        make()  # type: ignore[operator]
    assert "\n" not in str(refused.value)
