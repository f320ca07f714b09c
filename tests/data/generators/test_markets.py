"""The made-up markets: their contract, their law, and that the server's guess is the mean of the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm

from tacit.arrays import Floats
from tacit.data.generators.markets import (
    AUCTIONS_PER_BLOCK,
    Auctions,
    Campaigns,
    Market,
    best_first,
    expected_click,
    offsets_of,
)
from tacit.errors import BadInput
from tests.support.exact_tests import ALPHA, assert_matches_pmf

TAOBAO, SEARCH = Market.taobao_like(), Market.search_like()
FIELDS = ("bid", "eta", "server", "device")


def whole(market: Market, count: int, seed: int) -> Auctions:
    """All blocks as one."""
    blocks = list(market.auctions(count, seed))
    sizes = np.concatenate([np.diff(block.offsets) for block in blocks])
    values = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in FIELDS}
    return Auctions(offsets_of(sizes), **values)


def z_of_mean(values: Floats, mean: float) -> float:
    return float((values.mean() - mean) / (values.std() / len(values) ** 0.5))


WORST_Z = norm.isf(ALPHA / 2)


@pytest.mark.parametrize("market", [TAOBAO, SEARCH], ids=["taobao", "search"])
def test_exact_number_same_seed_and_a_longer_run_begins_with_the_shorter(market: Market) -> None:
    short, again = whole(market, 1000, seed=3), whole(market, 1000, seed=3)
    long = whole(market, AUCTIONS_PER_BLOCK + 7, seed=3)
    assert short.count == 1000
    assert long.count == AUCTIONS_PER_BLOCK + 7
    other, end = whole(market, 1000, seed=4), short.offsets[-1]
    assert np.array_equal(long.offsets[:1001], short.offsets)
    for name in FIELDS:
        values = getattr(short, name)
        assert len(values) == end
        assert np.array_equal(values, getattr(again, name))
        assert np.array_equal(values, getattr(long, name)[:end])
        assert not np.array_equal(values[:100], getattr(other, name)[:100])


@pytest.mark.parametrize("market", [TAOBAO, SEARCH], ids=["taobao", "search"])
def test_campaigns_come_again_and_never_twice_in_an_auction(market: Market) -> None:
    names = Campaigns(60, 1.0, seed=5)
    [block] = market.auctions(2_000, seed=3)
    found = names.numbers(0, block.offsets, block.bid)
    assert found.dtype == np.int64
    assert set(found.tolist()) == set(range(60))
    of = np.repeat(np.arange(2_000), np.diff(block.offsets))
    assert len(np.unique(of * 60 + found)) == len(found)
    # A longer block begins with the same, and so does another call; another seed or block does not.
    [longer] = market.auctions(3_000, seed=3)
    assert np.array_equal(names.numbers(0, longer.offsets, longer.bid)[: len(found)], found)
    assert not np.array_equal(names.numbers(1, block.offsets, block.bid), found)
    assert not np.array_equal(replace(names, seed=6).numbers(0, block.offsets, block.bid), found)
    # Bids of a campaign lie around a level of its own: some campaigns are dearer than others, here and there.
    half = of < 1_000
    first, last = (
        np.array([np.log(block.bid[(found == campaign) & part]).mean() for campaign in range(20)])
        for part in (half, ~half)
    )
    assert np.corrcoef(first, last)[0, 1] > 0.5


def test_popularity_is_the_law_that_is_stated() -> None:
    """In auctions of one candidate, its campaign is drawn with weights 1 / rank: an exact test of each."""
    auctions, weights = 4_000, 1 / np.arange(1, 51)
    offsets, bid = np.arange(auctions + 1), np.ones(auctions)

    def drawn(exponent: float) -> Counter[int]:
        return Counter(Campaigns(50, exponent, seed=2).numbers(0, offsets, bid).tolist())

    law = dict(enumerate((weights / weights.sum()).tolist()))
    assert_matches_pmf(drawn(1.0), law)
    with pytest.raises(AssertionError, match="p_value"):
        assert_matches_pmf(drawn(0.7), law)


def test_no_auctions() -> None:
    assert list(TAOBAO.auctions(0, seed=1)) == []


def test_taobao_like_moments() -> None:
    """Sizes against the exact law of ⌈LN⌉ cut at 40: a mean near 4.2, and 6.6% with ten or more."""
    auctions = whole(TAOBAO, 100_000, seed=1)
    sizes = np.diff(auctions.offsets).astype(np.float64)
    k = np.arange(1, 41)
    tail = norm.sf((np.log(k[:-1]) - np.log(2.7)) / 0.8)  # P(n > k)
    mean, ten_or_more = 1 + tail.sum(), tail[8]
    assert mean == pytest.approx(4.2, abs=0.05)
    assert ten_or_more == pytest.approx(0.066, abs=0.001)
    assert abs(z_of_mean(sizes, mean)) < WORST_Z
    assert abs(z_of_mean((sizes >= 10).astype(np.float64), ten_or_more)) < WORST_Z
    assert sizes.min() == 1
    assert sizes.max() <= 40
    assert abs(z_of_mean(np.log(auctions.bid), 5.0)) < WORST_Z
    assert np.log(auctions.bid).std() == pytest.approx(1.2, rel=0.01)  # 420,000 bids: 0.1% a standard error


def test_a_context_is_shared_within_an_auction() -> None:
    """Within an auction η varies by the item alone, over auctions by the context too; 2% is over five sd."""
    auctions = whole(replace(TAOBAO, candidates_median=40.0, candidates_spread=0.0), 5000, seed=2)
    eta = auctions.eta.reshape(-1, 40)
    assert eta.std(axis=1, ddof=1).mean() == pytest.approx(0.5, rel=0.02)
    assert auctions.eta.var() == pytest.approx(0.5**2 + 0.3**2, rel=0.03)


def server_z_scores(auctions: Auctions, server: Floats) -> list[float]:
    """Device minus server in ten bins of η, in standard errors."""
    order = np.argsort(auctions.eta)
    return [z_of_mean(auctions.device[part] - server[part], 0.0) for part in np.array_split(order, 10)]


@pytest.mark.parametrize("market", [TAOBAO, replace(SEARCH, kept=None)], ids=["taobao", "search"])
def test_the_server_is_the_mean_of_the_device(market: Market) -> None:
    auctions = whole(market, 40_000, seed=5)
    worst = norm.isf(ALPHA / 20)
    assert max(map(abs, server_z_scores(auctions, auctions.server))) < worst
    # The twin: the probability at the mean log-odds, which forgets what the person adds, is caught.
    assert max(map(abs, server_z_scores(auctions, expit(auctions.eta)))) > worst


def test_search_like_keeps_the_best_fifteen_by_server_score() -> None:
    kept, all_of_them = whole(SEARCH, 500, seed=6), whole(replace(SEARCH, kept=None), 500, seed=6)
    assert np.all(np.diff(kept.offsets) == 15)
    assert np.all(np.diff(all_of_them.offsets) == 40)
    expected = -np.sort(-(all_of_them.bid * all_of_them.server).reshape(-1, 40), axis=1)[:, :15]
    assert np.array_equal((kept.bid * kept.server).reshape(-1, 15), expected)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=5), st.integers(1, 7))
def test_best_first_is_a_sort_of_each_list(scores: list[list[float]], kept: int) -> None:
    flat = np.array([score for auction in scores for score in auction])
    offsets = offsets_of(np.array([len(auction) for auction in scores]))
    expected = [score for auction in scores for score in sorted(auction, reverse=True)[:kept]]
    assert flat[best_first(offsets, flat, kept)].tolist() == expected


@pytest.mark.parametrize("spread", [0.0, 0.35, 1.0, 3.0])
def test_expected_click_is_the_integral(spread: float) -> None:
    """Against quadrature with thirty digits, at points that are not on the grid."""
    points = np.array([-60.0, -9.876, -3.178, -0.123, 0.0, 1.2345, 4.321, 60.0])

    def weighted(eta: float, z: Any) -> Any:
        return mpmath.npdf(z) / (1 + mpmath.exp(-(eta + spread * z)))

    def integral(eta: float) -> float:
        with mpmath.workdps(30):
            return float(mpmath.quad(partial(weighted, eta), [-12, -6, -2, 0, 2, 6, 12]))

    assert np.abs(expected_click(points, spread) - [integral(eta) for eta in points]).max() < 1e-6


@pytest.mark.parametrize(
    "change",
    [{"base": 0.0}, {"kept": 0}, {"user_spread": -1.0}, {"candidates_median": 0.0}, {"most_candidates": 0}],
    ids=str,
)
def test_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(change))):
        replace(TAOBAO, **change)
