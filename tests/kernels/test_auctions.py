"""The compiled loops of auctions against their NumPy twins: ranks, prices, and all of it in one pass."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from tacit.deliver.auction.choices import TopChoiceRule
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.kernels import auctions, choices
from tacit.kernels.auctions import EMPTY, RESERVE, Pricing, run_auctions, shown, take_scores
from tacit.kernels.choices import TopLaws
from tests.support.auction_blocks import awkward_block
from tests.support.auction_ways import Ways, served

PRICINGS = [
    Pricing(first_price, per_event, reserve, keep, empty)
    for first_price in (False, True)
    for per_event in (False, True)
    for reserve, keep, empty in (
        (0.0, 0.0, None),
        (20.0, 0.2, None),
        (20.0, 1.0, 0.0),
        (0.0, 0.5, 50.0),
        (100.0, 0.9, 100.0),
        (50.0, 0.3, 20.0),
        (50.0, 0.01, 20.0),  # the empty slot stays, below the reserve: who is just above it pays the reserve
    )
]


def same(ours: Any, twins: Any) -> None:
    for mine, theirs in zip(astuple(ours), astuple(twins), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("way", ["wide", "narrow"])
@pytest.mark.parametrize("largest", [3, 12, 200])
@pytest.mark.parametrize("pricing", PRICINGS, ids=str)
def test_ranking_and_pricing_are_those_of_the_twin(way: str, largest: int, pricing: Pricing) -> None:
    public = awkward_block(largest, 40 if largest < 100 else 4, largest).public
    columns = (public.offsets, public.bid_micros, public.event_rate)
    with served(way):
        ranked = auctions.rank_and_price(*columns, pricing)
    with served("twin"):
        same(ranked, auctions.rank_and_price(*columns, pricing))


@Ways
@pytest.mark.parametrize(
    "rule",
    [TopChoiceRule(1.0), TopChoiceRule(2.0, kept=4, top=2), TopChoiceRule(0.5, top=3), TopChoiceRule(0.0)],
    ids=str,
)
@pytest.mark.parametrize("charged", range(4))
def test_one_pass_does_what_the_steps_do(way: str, rule: TopChoiceRule, charged: int) -> None:
    block = awkward_block(3)
    public, rate = block.public, block.private_event_rate
    words = Simulation("steps").words(public.count)
    laws = rule.laws_by_size(public.largest + 1)
    assert laws is not None
    columns = (public.offsets, public.bid_micros, public.event_rate)
    for pricing in PRICINGS[charged * len(PRICINGS) // 4 : (charged + 1) * len(PRICINGS) // 4]:
        with served(way):
            at_once = run_auctions(*columns, pricing, rate, laws, words)
        with served("twin"):
            ranked = auctions.rank_and_price(*columns, pricing)
            scores = take_scores(ranked.rows, public.bid_micros, rate, pricing.empty or 0.0)
            table = TopLaws(np.diff(ranked.offsets), *laws)
            same(at_once, shown(ranked, choices.choose_top(ranked.offsets, scores, table, words)))


@Ways
@pytest.mark.parametrize("pricing", PRICINGS, ids=str)
def test_auctions_of_none_and_of_as_many_as_are_ranked_at_once(way: str, pricing: Pricing) -> None:
    """Four and eight fill the loops of a fixed length; of none, nothing may be read."""
    offsets = np.cumsum([0, 0, 1, 4, 0, 8, 5, 0, 3, 4, 8, 9, 0])
    draws = np.random.default_rng(4)
    bids = draws.choice(np.array([0, 1, 50, 100, 1000]), size=offsets[-1])
    public, private = (draws.choice(np.array([0.0, 0.1, 0.5, 1.0]), size=offsets[-1]) for _ in range(2))
    laws, words = TopChoiceRule(1.0).laws_by_size(10), Simulation("few").words(len(offsets) - 1)
    assert laws is not None
    with served(way):
        ranked = auctions.rank_and_price(offsets, bids, public, pricing)
        at_once = run_auctions(offsets, bids, public, pricing, private, laws, words)
    with served("twin"):
        same(ranked, auctions.rank_and_price(offsets, bids, public, pricing))
        scores = take_scores(ranked.rows, bids, private, pricing.empty or 0.0)
        table = TopLaws(np.diff(ranked.offsets), *laws)
        same(at_once, shown(ranked, choices.choose_top(ranked.offsets, scores, table, words)))


@Ways
@pytest.mark.parametrize("keep", [0.0, 0.01, 0.2])
def test_nobody_pays_less_than_the_reserve(way: str, keep: float) -> None:
    """By hand: the empty slot is worth 20, the reserve is 50, and the last bidder's score is 60."""
    offsets, bids, rates = np.array([0, 3]), np.array([100, 60, 40]), np.ones(3)
    with served(way):
        ranked = auctions.rank_and_price(offsets, bids, rates, Pricing(False, False, 50.0, keep, 20.0))
    assert ranked.rows.tolist() == [0, 1, EMPTY]
    assert ranked.prices.tolist() == [60, 50, 0]
    assert ranked.setters.tolist() == [1, RESERVE, EMPTY]


@Ways
@pytest.mark.parametrize("size", [3, 7, 40, 200])
def test_the_smallest_rates_are_not_zero(way: str, size: int) -> None:
    """Public and private scores of a few times 5e-324, in one pass and in steps."""
    draws = np.random.default_rng(size)
    requests = 20
    offsets, bids = np.arange(requests + 1) * size, np.ones(requests * size, np.int64)
    smallest = np.array([0.0, 5e-324, 1e-323])
    public, private = (draws.choice(smallest, size=requests * size) for _ in range(2))
    laws = TopChoiceRule(2.0, top=2).laws_by_size(size + 1)
    assert laws is not None
    words = Simulation("smallest").words(requests)
    columns = (offsets, bids, public)
    with served(way):
        ranked = auctions.rank_and_price(*columns, PRICINGS[0])
        at_once = run_auctions(*columns, PRICINGS[0], private, laws, words)
        assert not auctions.all_within(np.array([0.5, -5e-324]), 0.0, 1.0)
    for i in range(requests):
        here = slice(i * size, (i + 1) * size)
        order = np.argsort(-public[here], kind="stable")
        np.testing.assert_array_equal(ranked.rows[here], i * size + order)
    with served("twin"):
        scores = take_scores(ranked.rows, bids, private, 0.0)
        table = TopLaws(np.diff(ranked.offsets), *laws)
        same(at_once, shown(ranked, choices.choose_top(ranked.offsets, scores, table, words)))


@pytest.mark.parametrize("way", ["wide", "twin"])
def test_sums_are_exact_or_refused(way: str) -> None:
    with served(way):
        assert auctions.add_by_code(np.array([1, 0, 1]), np.array([2**62, 5, 7]), 3).tolist() == [
            5,
            2**62 + 7,
            0,
        ]
        with pytest.raises(BadInput, match="below 2\\^63"):
            auctions.add_by_code(np.array([0, 0]), np.array([2**62, 2**62]), 1)


def test_what_kernels_refuse() -> None:
    bids, rates = np.array([1, 2]), np.array([0.1, 0.2])
    pricing = PRICINGS[0]
    for offsets in (np.array([0, 3]), np.array([1, 2]), np.array([0, 2, 1, 2])):
        with pytest.raises(BadInput):
            auctions.rank_and_price(offsets, bids, rates, pricing)
    with pytest.raises(BadInput, match="bids"):
        auctions.rank_and_price(np.array([0, 2]), np.array([1, -2]), rates, pricing)
    laws = TopChoiceRule(1.0).laws_by_size(1)
    assert laws is not None
    with pytest.raises(BadInput, match="number of candidates"):
        run_auctions(np.array([0, 2]), bids, rates, pricing, rates, laws, np.zeros(1, np.uint64))
    two = TopChoiceRule(1.0).laws_by_size(2)
    assert two is not None
    for wrong in (np.nan, np.inf, -np.inf, 1e308):  # the last makes a score that is not finite
        with pytest.raises(BadInput, match="finite private rates"):
            run_auctions(
                np.array([0, 2]), bids, rates, pricing, np.array([0.1, wrong]), two, np.zeros(1, np.uint64)
            )
    table = TopLaws(np.array([5]), *laws)
    with pytest.raises(BadInput, match="fits"):
        choices.choose_top(np.array([0, 2]), rates, table, np.zeros(1, np.uint64))
    with pytest.raises(BadInput, match="finite"):
        choices.softmax_pmf(np.array([0, 2]), np.array([0.0, np.nan]), np.ones(1))


@Ways
@pytest.mark.parametrize("kept", [0, 3])
def test_a_law_that_does_not_fit_its_auction_is_refused(way: str, kept: int) -> None:
    """Two candidates, and the law of two keeps none of them, or three."""
    laws = TopChoiceRule(1.0).laws_by_size(3)
    assert laws is not None
    columns = tuple(column.copy() for column in laws)
    for column, other in zip(columns, laws, strict=True):
        column[2] = other[kept]
    rates, word = np.array([0.1, 0.2]), np.zeros(1, np.uint64)
    with served(way), pytest.raises(BadInput, match="a law for every number of candidates"):
        run_auctions(np.array([0, 2]), np.array([5, 5]), rates, PRICINGS[0], rates, columns, word)  # type: ignore[arg-type]
