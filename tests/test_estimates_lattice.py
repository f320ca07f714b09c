"""Several parents: rates by hand, what their mean is worth, and that back-off does not know where to go."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from drawn_counts import Noise, everything, level_counts
from small_contexts import lattice
from tacit.deliver.estimates.backing_off import BackOff
from tacit.deliver.estimates.climbing import State, combined
from tacit.deliver.estimates.estimate import Estimator
from tacit.deliver.estimates.moments import MomentShrinkage
from tacit.deliver.estimates.shrinkage import Shrinkage
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.statistics import Counts, Floats, Integers

CELL: Levels = (0, 0)
ROW: Levels = (0, 1)
COLUMN: Levels = (1, 0)
ROOT: Levels = (1, 1)
WHERE = ["North"] * 6 + ["South"] * 4
WHAT = ["Coffee", "Coffee", "Tea", "Tea", "Tea", "Yoga", "Coffee", "Coffee", "Coffee", "Tea"]
AD = [0, 0, 1, 1, 0, 2, 1, 1, 1, 0]


def small() -> tuple[ContextNodes, Counts]:
    nodes = ContextNodes.of(lattice(), {"where": WHERE, "what": WHAT})
    return nodes, Counts.of_rows(nodes, AD, 3)


def test_a_node_with_two_parents_by_hand() -> None:
    nodes, counts = small()
    k, ad = 4.0, 0
    assert counts.parents(CELL) == (ROW, COLUMN)
    root = (4 + k / 3) / (10 + k)
    north = (3 + k * root) / (6 + k)
    coffee = (2 + k * root) / (5 + k)
    # What the parents are weighed by: B + w^2 * B_root, with the excess of their clicks over their children.
    share, keep = 1 / (k + 1), k / (k + 1)
    excess = {"north": share * (2 + 6 + 0), "coffee": share * (2 + 6)}
    largest = max(
        keep * (excess["north"] + share * (3 * 2)) + share * (6 * 5 + 4 * 3),
        keep * (excess["coffee"] + share * (3 * 2)) + share * (5 * 4 + 4 * 3),
    )  # South: 3 Coffee, 1 Tea; Tea: 3 North, 1 South
    influence = 1 / (10 + k)
    unit_root = (10 + k + largest) / (10 + k) ** 2
    units = [
        (n + k + excess[name] * (1 + 2 * k * influence)) / (n + k) ** 2 + (k / (n + k)) ** 2 * unit_root
        for name, n in (("north", 6), ("coffee", 5))
    ]
    weight = units[1] / (units[0] + units[1])
    prior = weight * north + (1 - weight) * coffee
    node = nodes.id(lattice().at(["North", "Coffee"], CELL))
    found = Shrinkage(k).rates(counts, CELL, np.array([node]), np.array([ad]))
    assert found.rate[0, 0] == pytest.approx((2 + k * prior) / (2 + k), rel=1e-12)


def test_back_off_refuses_a_lattice() -> None:
    with pytest.raises(BadInput, match=r"expected a sequence of levels to back off along, got several parents"):
        everything(BackOff(), small()[1], CELL)


def state(rate: Floats, unit: float, variance: float) -> State:
    zero = np.zeros((1, 1))
    return State(rate, np.full_like(rate, variance), np.full((1, 1), unit), zero, zero, zero)


@pytest.mark.parametrize("together", [0.0, 0.5, 1.0])
def test_the_mean_of_parents_is_never_worse_than_said(together: float) -> None:
    """Errors with correlation `together`; over 40,000 the standard error of a mean square is .7 %."""
    rng = np.random.default_rng(0)
    shared, *own = rng.normal(0, 1, (3, 40_000, 1))
    sds = (0.02, 0.04)
    rates = [
        0.4 + sd * (np.sqrt(together) * shared + np.sqrt(1 - together) * each)
        for sd, each in zip(sds, own, strict=True)
    ]
    mean = combined([state(rate, sd**2, sd**2) for rate, sd in zip(rates, sds, strict=True)])
    square = float(((mean.rate - 0.4) ** 2).mean())
    stated = float(mean.variance.mean())
    assert square <= stated * 1.04
    as_if_independent = 1 / sum(1 / sd**2 for sd in sds)
    if together == 1.0:
        assert square > 0.96 * stated
        assert square > 1.5 * as_if_independent  # the twin that adds up inverse variances


def test_the_mean_does_not_prefer_low_rates() -> None:
    """Two parents that know as much: weights by the variance at their own rates would give .055."""
    low, high = np.full((1, 1), 0.01), np.full((1, 1), 0.3)
    mean = combined([state(low, 0.01, 0.01 * 0.0099), state(high, 0.01, 0.01 * 0.21)])
    assert float(mean.rate[0, 0]) == pytest.approx(0.155)


def additive(seed: int) -> tuple[Counts, Counts, Counts, Floats]:
    """Rates = root + row + column + their own; counts of all four levels, and of either chain alone."""
    rng, rows, columns, ads = np.random.default_rng(seed), 8, 8, 60
    root = rng.uniform(0.2, 0.4, (1, 1, ads))
    middle = root + rng.normal(0, 0.06, (rows, 1, ads)) + rng.normal(0, 0.06, (1, columns, ads))
    truth = np.clip(middle + rng.normal(0, 0.06, (rows, columns, ads)), 0.0, 1.0)
    shown = np.floor(np.exp(rng.normal(2.0, 1.2, (rows, columns, 1)))).astype(np.int64) * np.ones(ads, np.int64)
    clicks = rng.binomial(shown, truth)
    by_level = {
        levels: level_counts(
            levels, clicks.sum(axes).reshape(-1, ads), shown.sum(axes).reshape(-1, ads), Noise(totals=True), rng
        )
        for levels, axes in ((CELL, ()), (ROW, (1,)), (COLUMN, (0,)), (ROOT, (0, 1)))
    }
    row, column = np.divmod(np.arange(rows * columns), columns)
    up: dict[tuple[Levels, Levels], Integers] = {(CELL, ROW): row, (CELL, COLUMN): column}
    up |= {(ROW, ROOT): np.zeros(rows, np.int64), (COLUMN, ROOT): np.zeros(columns, np.int64)}

    def chosen(*levels: Levels) -> Counts:
        parent = {pair: above for pair, above in up.items() if set(pair) <= set(levels)}
        return Counts(levels, {each: by_level[each] for each in levels}, parent)

    flat_truth = truth.reshape(-1, ads)
    return chosen(CELL, ROW, COLUMN, ROOT), chosen(CELL, ROW, ROOT), chosen(CELL, COLUMN, ROOT), flat_truth


@pytest.mark.parametrize("estimator", [Shrinkage(40.0), MomentShrinkage()], ids=lambda e: type(e).__name__)
def test_two_parents_beat_either(estimator: Estimator) -> None:
    errors = np.zeros(3)
    for seed in range(3):
        *all_counts, truth = additive(seed)
        errors += [np.mean((everything(estimator, counts, CELL)[0] - truth) ** 2) for counts in all_counts]
    assert errors[0] < 0.95 * errors[1:].min()


def test_one_parent_given_twice_is_that_parent() -> None:
    one = state(np.full((2, 2), 0.3), 0.1, 0.02)
    twice = combined([one, one])
    assert_allclose(twice.rate, one.rate)
    assert_allclose(twice.variance, one.variance)
