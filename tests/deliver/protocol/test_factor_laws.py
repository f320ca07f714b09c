"""Laws of independent factors: means of one, known quantiles, and the shares that they are named after."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.deliver.protocol.factor_laws import (
    SCENARIOS,
    FewLiked,
    HeavyTails,
    IndependentFactors,
    ObservedRatios,
    SomeKnown,
    Spread,
    factors,
)
from tacit.errors import BadInput

LAWS = [
    *(Spread(sigma) for sigma in (0.0, 0.05, 1.0, 2.2, 10.0)),
    Spread((0.0, 0.5, 1.0, 10.0)),
    *(HeavyTails(scale) for scale in (0.01, 0.5, 0.8, 0.95)),
    *(FewLiked(share, times) for share in (0.001, 0.03, 0.5, 1.0) for times in (1.5, 30.0, 1000.0)),
    *(SomeKnown(share, sigma) for share in (0.0001, 0.1, 0.5, 1.0) for sigma in (0.6, 2.0, 10.0)),
    ObservedRatios((0.0, 0.5, 3.0), "made up", weights=(5.0, 1.0, 0.5)),
    ObservedRatios((1e-9, 1.0, 1e9), "made up"),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("count", [SCENARIOS, 512, 64, 7])
def test_every_law_keeps_the_mean_of_every_candidate(law: IndependentFactors, count: int) -> None:
    public = np.array([[8.0, 4.0, 2.0, 0.5], [1.0, 1.0, 1.0, 0.0]])
    scores = law.scores(public, count)
    assert scores.shape == (4, 2, count)
    assert (scores >= 0).all()
    np.testing.assert_allclose(scores.mean(axis=2).T, public, rtol=1e-9)


@given(
    st.floats(0.001, 1.0),
    st.floats(0.01, 10.0),
    st.floats(0.001, 0.95),
    st.floats(1.001, 1000.0),
    st.integers(1, 2000),
)
def test_means_are_kept_whatever_the_parameters(
    share: float, sigma: float, scale: float, times: float, count: int
) -> None:
    for law in (Spread(sigma), HeavyTails(scale), FewLiked(share, times), SomeKnown(share, sigma)):
        strata = law.strata(1, count)
        assert strata.shape == (count, 1)
        assert strata.min() >= 0
        assert strata.mean() == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("scale", [0.1, 0.35, 0.8])
def test_quantiles_of_heavy_tails_are_those_of_a_log_laplace(scale: float) -> None:
    strata = HeavyTails(scale).strata(1)[:, 0]
    law = stats.loglaplace(c=1 / scale)  # exp of a Laplace law of this scale
    edges = law.ppf(np.arange(SCENARIOS + 1) / SCENARIOS) / law.mean()
    assert ((strata >= edges[:-1] * (1 - 1e-9)) & (strata <= edges[1:] * (1 + 1e-9))).all(), (
        "a mean in its stratum"
    )
    middle = strata[SCENARIOS // 2 - 1 : SCENARIOS // 2 + 1]
    assert math.sqrt(middle.prod()) == pytest.approx(1 - scale**2, rel=1e-3), "the median of a law of mean one"
    # Of the last stratum, by the law's own integral.
    last = SCENARIOS * law.expect(lambda x: x, lb=float(law.ppf(1 - 1 / SCENARIOS)), ub=np.inf) / law.mean()
    assert strata[-1] == pytest.approx(last, rel=1e-3)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 2.2])
def test_quantiles_of_a_spread_are_those_of_a_lognormal(sigma: float) -> None:
    strata = Spread(sigma).strata(1)[:, 0]
    law = stats.lognorm(s=sigma, scale=math.exp(-(sigma**2) / 2))
    edges = law.ppf(np.arange(SCENARIOS + 1) / SCENARIOS)
    assert ((strata >= edges[:-1] * (1 - 1e-9)) & (strata <= edges[1:] * (1 + 1e-9))).all()


@pytest.mark.parametrize(("share", "times"), [(0.25, 10.0), (0.5, 3.0), (1 / 1024, 30.0)])
def test_few_liked_are_as_many_as_it_says_and_as_much_better(share: float, times: float) -> None:
    found = FewLiked(share, times).strata(1)[:, 0]
    low = 1 / (1 - share + share * times)
    liked = found > (low + low * times) / 2
    assert liked.sum() == round(share * SCENARIOS)
    np.testing.assert_allclose(found[liked], times * low, rtol=1e-9)
    np.testing.assert_allclose(found[~liked], low, rtol=1e-9)
    # A stratum that holds some of both has the mean of both.
    assert FewLiked(0.3, 10.0).strata(1, 1)[0, 0] == pytest.approx(1.0)


def test_if_all_ads_are_liked_none_is_more_than_another() -> None:
    np.testing.assert_allclose(FewLiked(1.0, 30.0).strata(1)[:, 0], 1.0)


@pytest.mark.parametrize("share", [0.1, 0.25, 1.0])
def test_some_known_leaves_the_others_as_everybody_knows_them(share: float) -> None:
    found = SomeKnown(share, 1.2).strata(1)[:, 0]
    known = round(share * SCENARIOS)
    assert np.count_nonzero(np.abs(found - 1) < 1e-6) in (SCENARIOS - known, SCENARIOS - known + 1)
    own = np.sort(np.r_[Spread(1.2).strata(1, known)[:, 0], np.ones(SCENARIOS - known)])
    np.testing.assert_allclose(found, own, rtol=1e-9)


def test_weights_say_how_often_a_ratio_was_seen() -> None:
    by_weight = ObservedRatios((2.0, 0.5), "made up", weights=(1.0, 3.0))
    one_by_one = ObservedRatios((0.5, 0.5, 0.5, 2.0), "made up")
    assert by_weight.values == (0.5, 2.0)
    assert by_weight.weights == (3.0, 1.0), "sorted with their ratios"
    np.testing.assert_allclose(factors(by_weight, 3), factors(one_by_one, 3), rtol=1e-12)


def test_deviation_is_that_of_the_factors() -> None:
    for law in LAWS:
        assert law.deviation(4) == pytest.approx(float(factors(law, 4).std()))
    assert Spread(0.0).deviation(3) < 1e-9
    assert Spread(0.5).deviation(3) == pytest.approx(math.sqrt(math.expm1(0.25)), rel=0.02)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: HeavyTails(0.0), "scale"),
        (lambda: HeavyTails(0.96), "scale <= 0.95"),
        (lambda: HeavyTails(float("nan")), "scale"),
        (lambda: FewLiked(0.0, 3.0), "share"),
        (lambda: FewLiked(1.1, 3.0), "share"),
        (lambda: FewLiked(0.1, 1.0), "times in 1"),
        (lambda: FewLiked(0.1, 1001.0), "times in 1"),
        (lambda: SomeKnown(0.1, 0.0), "sigma"),
        (lambda: SomeKnown(0.1, 10.5), "sigma <= 10"),
        (lambda: SomeKnown(-0.1, 1.0), "share"),
        (lambda: Spread("a"), "sigma"),  # type: ignore[arg-type]
        (lambda: Spread((0.1, -1.0)), "every sigma"),
        (lambda: Spread((0.1, 10.5)), "sigma <= 10"),
        (lambda: Spread(()), "sigma"),
        (lambda: Spread(True), "sigma"),
        (lambda: ObservedRatios((1.0, 2.0), "  "), "statement"),
        (lambda: ObservedRatios((1.0, 2.0), "x", weights=(1.0,)), "weight for each of 2"),
        (lambda: ObservedRatios((1.0, 2.0), "x", weights=(1.0, -1.0)), "weights >= 0"),
        (lambda: ObservedRatios((1.0, 2.0), "x", weights=(1.0, float("nan"))), "weights >= 0"),
        (lambda: ObservedRatios((0.0, 2.0), "x", weights=(1.0, 0.0)), "not all on ratios of 0"),
        (lambda: ObservedRatios((1.0, 2.0), "x", weights=("a", "b")), "weight"),  # type: ignore[arg-type]
        (lambda: ObservedRatios(((1.0,), (2.0, 3.0)), "x"), "ratios"),  # type: ignore[arg-type]
        (lambda: ObservedRatios((1.0, 2.0), "x", weights=((1.0,), (2.0, 3.0))), "weight"),  # type: ignore[arg-type]
    ],
)
def test_bad_laws_are_refused_in_one_line(make: object, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        make()  # type: ignore[operator]
    assert "\n" not in str(refused.value)
