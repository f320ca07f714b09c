"""Rates by hand: back-off as published, what shrinkage mends, and the edges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from small_contexts import ANY, LEAF, TOP, counts_of, nodes_of, places
from tacit.deliver.estimates.backing_off import BackOff
from tacit.deliver.estimates.estimate import Estimator
from tacit.deliver.estimates.moments import MomentShrinkage
from tacit.deliver.estimates.shrinkage import Shrinkage
from tacit.errors import BadInput
from tacit.schema.statistics import Counts, LevelCounts

# 40 clicks on Food, spread over 4 ads; two people went for a run, and both clicked ad 3.
LOG = [("Coffee", i % 3) for i in range(30)] + [("Tea", 3)] * 10 + [("Run", 3)] * 2 + [("Yoga", 0)]
ESTIMATORS: list[Estimator] = [BackOff(), Shrinkage(), MomentShrinkage()]


def one(estimator: Estimator, place: str, ad: int) -> tuple[float, float]:
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
    def test_gives_what_was_asked_in_its_order(self, estimator: Estimator) -> None:
        counts = counts_of(LOG, 5)
        nodes, ads = np.array([2, 0, 2]), np.array([4, 1, 1, 0])
        whole = estimator.rates(counts, LEAF, np.arange(4), np.arange(5))
        part = estimator.rates(counts, LEAF, nodes, ads)
        assert_allclose(part.rate, whole.rate[nodes][:, ads], rtol=1e-12)
        assert_allclose(part.variance, whole.variance[nodes][:, ads], rtol=1e-12)
        none = estimator.rates(counts, LEAF, np.array([], np.int64), ads)
        assert none.rate.shape == none.variance.shape == (0, 4)

    def test_is_a_probability_everywhere(self, estimator: Estimator) -> None:
        for levels in (LEAF, TOP, ANY):
            counts = counts_of(LOG, 5)
            found = estimator.rates(counts, levels, np.arange(counts.at(levels).nodes), np.arange(5))
            assert ((found.rate >= 0) & (found.rate <= 1)).all()
            assert ((found.variance >= 0) & (found.variance <= 1)).all()

    def test_an_ad_never_seen(self, estimator: Estimator) -> None:
        rate, variance = one(estimator, "Coffee", 4)
        assert rate < 0.1
        assert np.isfinite(variance)

    def test_noisy_counts_below_zero_say_nothing(self, estimator: Estimator) -> None:
        counts = noisy_counts(total=-12.0, clicks=-5.0)
        child = estimator.rates(counts, TOP, np.array([0]), np.array([0, 1]))
        parent = estimator.rates(counts, ANY, np.array([0]), np.array([0, 1]))
        assert_allclose(child.rate, parent.rate)
        assert (child.variance >= parent.variance - 1e-12).all()

    def test_a_huge_noisy_click_count_stays_a_probability(self, estimator: Estimator) -> None:
        for clicks in (-500.0, 900.0):
            counts = noisy_counts(total=3.0, clicks=clicks)
            found = estimator.rates(counts, TOP, np.array([0]), np.array([0, 1]))
            assert ((found.rate >= 0) & (found.rate <= 1) & np.isfinite(found.variance)).all()

    @pytest.mark.parametrize("total", [0.0, -3.0])
    def test_a_root_without_data_is_refused(self, estimator: Estimator, total: float) -> None:
        counts = Counts((ANY,), {ANY: bare(total)}, {})
        with pytest.raises(BadInput, match=r"context 0 at \(2,\): expected statistics"):
            estimator.rates(counts, ANY, np.array([0]), np.array([0]))

    def test_a_context_without_statistics_is_named(self, estimator: Estimator) -> None:
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
        self, estimator: Estimator, nodes: list[int], ads: list[int], message: str
    ) -> None:
        with pytest.raises(BadInput, match=message):
            estimator.rates(counts_of(LOG, 5), LEAF, np.array(nodes), np.array(ads))

    def test_an_unknown_level(self, estimator: Estimator) -> None:
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
