"""Rates by hand: back-off as published, what shrinkage mends, unlisted ads, lattices, and the edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tacit.arrays import Floats, Integers
from tacit.deliver.server.estimates import RateEstimator, RateState, combine_parents, overall_rate
from tacit.deliver.server.moment_shrinkage import MomentShrinkage
from tacit.deliver.server.shrinkage import BackOff, Shrinkage
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.counts import Counts, LevelCounts
from tests.support.drawn_counts import Noise, everything, level_counts
from tests.support.small_contexts import ANY, LEAF, TOP, counts_of, lattice, nodes_of, places

# 40 clicks on Food, spread over 4 ads; two people went for a run, and both clicked ad 3.
LOG = [("Coffee", i % 3) for i in range(30)] + [("Tea", 3)] * 10 + [("Run", 3)] * 2 + [("Yoga", 0)]
ESTIMATORS: list[RateEstimator] = [BackOff(), Shrinkage(), MomentShrinkage()]


def one(estimator: RateEstimator, place: str, ad: int) -> tuple[float, float]:
    node = nodes_of(LOG).id(places().at([place], LEAF))
    found = estimator.rates(counts_of(LOG, 5), LEAF, np.array([node]), np.array([ad]))
    return float(found.rate[0, 0]), float(found.variance[0, 0])


def test_back_off_believes_two_clicks() -> None:
    assert one(BackOff(min_support=2), "Run", 3) == (1.0, 0.0)


def test_shrinkage_mends_it() -> None:
    root = (12 + 4 * 0.2) / (43 + 4)  # 0.2: the rate of all 5 ads together
    sport = (2 + 4 * root) / (3 + 4)
    rate, variance = one(Shrinkage(4.0), "Run", 3)
    assert rate == pytest.approx((2 + 4 * sport) / (2 + 4))
    assert rate < 0.7
    assert variance > 0.02
    assert one(Shrinkage(1e-9), "Run", 3)[0] == pytest.approx(1.0)
    assert one(Shrinkage(1e9), "Run", 3)[0] == pytest.approx(0.2)


def test_back_off_climbs_to_enough_support() -> None:
    assert one(BackOff(min_support=2), "Yoga", 0)[0] == pytest.approx(
        1 / 3
    )  # one click at Yoga, three at Sport
    assert one(BackOff(min_support=4), "Yoga", 0)[0] == pytest.approx(11 / 43)
    assert one(BackOff(min_support=1000), "Yoga", 0)[0] == pytest.approx(
        11 / 43
    )  # at the top any total will do


def test_where_ads_have_impressions_of_their_own_back_off_asks_for_one() -> None:
    nodes = nodes_of([("Coffee", 0), ("Coffee", 0), ("Tea", 1), ("Tea", 1)])
    counts = Counts.of_rows(nodes, [0, 0, 1, 1], 3, clicked=[1, 0, 1, 1])
    coffee = nodes.id(places().at(["Coffee"], LEAF))
    found = BackOff().rates(counts, LEAF, np.array([coffee]), np.arange(3))
    assert found.rate.tolist() == [[0.5, 1.0, 0.0]]  # ad 1 from Food; ad 2 was never shown
    assert found.variance[0, 2] == 0.25


def test_without_excess_and_parents_the_variance_is_the_posterior_s() -> None:
    """One level whose prior rate is known for certain: p (1 - p) / (n + k + 1)."""
    counts = counts_of(LOG, 5, levels=[ANY])
    found = Shrinkage(4.0).rates(counts, ANY, np.array([0]), np.arange(5))
    assert_allclose(found.variance, found.rate * (1 - found.rate) / (43 + 4 + 1))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
class TestEveryEstimator:
    def test_gives_what_was_asked_in_its_order(self, estimator: RateEstimator) -> None:
        counts = counts_of(LOG, 5)
        nodes, ads = np.array([2, 0, 2]), np.array([4, 1, 1, 0])
        whole = estimator.rates(counts, LEAF, np.arange(4), np.arange(5))
        part = estimator.rates(counts, LEAF, nodes, ads)
        assert_allclose(part.rate, whole.rate[nodes][:, ads], rtol=1e-12)
        assert_allclose(part.variance, whole.variance[nodes][:, ads], rtol=1e-12)
        none = estimator.rates(counts, LEAF, np.array([], np.int64), ads)
        assert none.rate.shape == none.variance.shape == (0, 4)

    def test_is_a_probability_everywhere(self, estimator: RateEstimator) -> None:
        for levels in (LEAF, TOP, ANY):
            counts = counts_of(LOG, 5)
            found = estimator.rates(counts, levels, np.arange(counts.at(levels).nodes), np.arange(5))
            assert ((found.rate >= 0) & (found.rate <= 1)).all()
            assert ((found.variance >= 0) & (found.variance <= 1)).all()

    def test_an_ad_never_seen(self, estimator: RateEstimator) -> None:
        rate, variance = one(estimator, "Coffee", 4)
        assert rate < 0.1
        assert np.isfinite(variance)

    def test_noisy_counts_below_zero_say_nothing(self, estimator: RateEstimator) -> None:
        counts = noisy_counts(total=-12.0, clicks=-5.0)
        child = estimator.rates(counts, TOP, np.array([0]), np.array([0, 1]))
        parent = estimator.rates(counts, ANY, np.array([0]), np.array([0, 1]))
        assert_allclose(child.rate, parent.rate)
        assert (child.variance >= parent.variance - 1e-12).all()

    def test_a_huge_noisy_click_count_stays_a_probability(self, estimator: RateEstimator) -> None:
        for clicks in (-500.0, 900.0):
            counts = noisy_counts(total=3.0, clicks=clicks)
            found = estimator.rates(counts, TOP, np.array([0]), np.array([0, 1]))
            assert ((found.rate >= 0) & (found.rate <= 1) & np.isfinite(found.variance)).all()

    @pytest.mark.parametrize("total", [0.0, -3.0])
    def test_a_root_without_data_is_refused(self, estimator: RateEstimator, total: float) -> None:
        counts = Counts((ANY,), {ANY: bare(total)}, {})
        with pytest.raises(BadInput, match=r"context 0 at \(2,\): expected statistics"):
            estimator.rates(counts, ANY, np.array([0]), np.array([0]))

    def test_a_context_without_statistics_is_named(self, estimator: RateEstimator) -> None:
        counts = counts_of([("Coffee", 0), ("Tea", 1)], 2, levels=[LEAF])
        level = counts.by_level[LEAF]
        empty = LevelCounts(
            LEAF, 2, 2, np.array([1.0, 0.0]), np.array([0, 1, 1]), level.ad[:1], level.clicks[:1]
        )
        with pytest.raises(
            BadInput, match=r"^context place Tea: expected statistics .* got a total of 0 for all$"
        ):
            estimator.rates(
                Counts((LEAF,), {LEAF: empty}, {}, counts.names), LEAF, np.array([1]), np.array([0])
            )

    @pytest.mark.parametrize(
        ("nodes", "ads", "message"),
        [
            ([-1], [0], "expected nodes from 0 to 3, got -1, a context that is unknown here"),
            ([4], [0], "expected nodes from 0 to 3, got 4"),
            ([0], [5], "expected ads from 0 to 4, got 5"),
            ([0.5], [0], "expected nodes to be a list of whole numbers"),
            ([[0]], [0], "expected nodes to be a list of whole numbers"),
        ],
    )
    def test_unknown_nodes_and_ads(
        self, estimator: RateEstimator, nodes: list[int], ads: list[int], message: str
    ) -> None:
        with pytest.raises(BadInput, match=message):
            estimator.rates(counts_of(LOG, 5), LEAF, np.array(nodes), np.array(ads))

    def test_an_unknown_level(self, estimator: RateEstimator) -> None:
        with pytest.raises(BadInput, match=r"expected a level with counts, one of .* got \(9,\)"):
            estimator.rates(counts_of(LOG, 5), (9,), np.array([0]), np.array([0]))


def bare(total: float) -> LevelCounts:
    none = np.zeros(0)
    sd = 1.0 if total < 0 else 0.0
    return LevelCounts(
        ANY, 1, 1, np.array([total]), np.zeros(2, np.int64), none.astype(np.int64), none, None, sd
    )


def noisy_counts(total: float, clicks: float) -> Counts:
    """A noisy context below a root that is known well."""
    two = np.array([0, 1])
    root = LevelCounts(ANY, 1, 2, np.array([1e4]), np.array([0, 2]), two, np.array([3e3, 5e3]), None, 10.0)
    child = LevelCounts(
        TOP, 1, 2, np.array([total]), np.array([0, 2]), two, np.array([clicks, 1.0]), None, 10.0
    )
    return Counts((TOP, ANY), {TOP: child, ANY: root}, {(TOP, ANY): np.array([0])})


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_bad_settings(bad: float) -> None:
    with pytest.raises(BadInput, match="expected strength"):
        Shrinkage(bad)
    if bad:
        with pytest.raises(BadInput, match="expected min_support"):
            BackOff(bad)


ROWS = [*[("Coffee", 0)] * 30, *[("Coffee", 1)] * 10, *[("Tea", 0)] * 40]  # nobody at tea clicked ad 1
TEA = nodes_of(ROWS).of_row(LEAF)[-1]


def noisy(counts: Counts, sd: float) -> Counts:
    """The same counts, said to carry noise; a draw of it that happens to be nothing."""
    return replace(
        counts, by_level={each: replace(level, noise_sd=sd) for each, level in counts.by_level.items()}
    )


@pytest.mark.parametrize("estimator", [Shrinkage(4.0), MomentShrinkage()], ids=["shrinkage", "moments"])
def test_what_was_not_released_stays_with_the_parent(estimator: RateEstimator) -> None:
    exact = counts_of(ROWS, 2)
    below, above = (
        {
            sd: estimator.rates(counts, levels, np.array([node]), np.array([1])).rate[0, 0]
            for sd, counts in ((0.0, exact), (0.5, noisy(exact, 0.5)))
        }
        for levels, node in ((LEAF, TEA), (TOP, exact.parent[LEAF, TOP][TEA]))
    )
    assert below[0.0] < 0.6 * above[0.0]  # 40 requests without a click
    assert below[0.5] == pytest.approx(above[0.5])  # nothing is known of it there


def test_the_rate_of_all_ads_is_over_what_was_released() -> None:
    exact = counts_of(ROWS, 2)
    assert overall_rate(exact, LEAF) == pytest.approx(80 / 160)  # each request could be a click on either
    assert overall_rate(noisy(exact, 0.5), LEAF) == pytest.approx(80 / 120)  # ad 1 at tea is not among them


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


def state(rate: Floats, unit: float, variance: float) -> RateState:
    zero = np.zeros((1, 1))
    return RateState(rate, np.full_like(rate, variance), np.full((1, 1), unit), zero, zero, zero)


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
    mean = combine_parents([state(rate, sd**2, sd**2) for rate, sd in zip(rates, sds, strict=True)])
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
    mean = combine_parents([state(low, 0.01, 0.01 * 0.0099), state(high, 0.01, 0.01 * 0.21)])
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
def test_two_parents_beat_either(estimator: RateEstimator) -> None:
    errors = np.zeros(3)
    for seed in range(3):
        *all_counts, truth = additive(seed)
        errors += [np.mean((everything(estimator, counts, CELL)[0] - truth) ** 2) for counts in all_counts]
    assert errors[0] < 0.95 * errors[1:].min()


def test_one_parent_given_twice_is_that_parent() -> None:
    one = state(np.full((2, 2), 0.3), 0.1, 0.02)
    twice = combine_parents([one, one])
    assert_allclose(twice.rate, one.rate)
    assert_allclose(twice.variance, one.variance)
