"""The compiled loops of auctions and choices against their NumPy twins, and against the laws they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from typing import Any

import numpy as np
import pytest

from auction_blocks import awkward_block
from exact_tests import assert_matches_pmf
from tacit.deliver.auction.choices import TopOf
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.kernels import auctions, choices, reference_auctions, reference_choices
from tacit.kernels.auctions import Pricing, run_auctions, shown, take_scores
from tacit.kernels.choices import TopLaws
from tacit.privacy.choice.nodes import unit_nodes
from tacit.privacy.choice.permute_and_flip import log_pmf
from tacit.privacy.choice.ranked import TopChoice

CLOSE = 1e-13
"""Sums of at most a few hundred positive doubles in another order."""

WITHOUT_WIDTH = {"shown", "take_scores", "add_by_code", "all_within", "choose_by_pmf"}

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
    )
]


class _Narrow:
    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        return function if name in WITHOUT_WIDTH else partial(function, wide=False)


@contextmanager
def served(way: str) -> Iterator[None]:
    """Within this, the wrappers run the compiled loops of either width, or the twins."""
    with pytest.MonkeyPatch.context() as patch:
        for wrapper, name, twin in (
            (auctions, "_auctions", reference_auctions),
            (choices, "_choices", reference_choices),
        ):
            module = twin if way == "twin" else pytest.importorskip(f"tacit.kernels.{name}")
            served_module = _Narrow(module) if way == "narrow" else module
            patch.setattr(wrapper, "_kernel", lambda served_module=served_module: served_module)
        yield


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


@pytest.mark.parametrize("way", ["wide", "narrow", "twin"])
@pytest.mark.parametrize(
    "rule", [TopOf(1.0), TopOf(2.0, kept=4, top=2), TopOf(0.5, top=3), TopOf(0.0)], ids=str
)
@pytest.mark.parametrize("pricing", PRICINGS[1:5], ids=str)
def test_one_pass_does_what_the_steps_do(way: str, rule: TopOf, pricing: Pricing) -> None:
    block = awkward_block(3)
    public, rate = block.public, block.private_event_rate
    words = Simulation("steps").words(public.count)
    laws = rule.laws_by_size(public.largest + 1)
    assert laws is not None
    columns = (public.offsets, public.bid_micros, public.event_rate)
    with served(way):
        at_once = run_auctions(*columns, pricing, rate, laws, words)
    with served("twin"):
        ranked = auctions.rank_and_price(*columns, pricing)
        scores = take_scores(ranked.rows, public.bid_micros, rate, pricing.empty or 0.0)
        table = TopLaws(np.diff(ranked.offsets), *laws)
        same(at_once, shown(ranked, choices.choose_top(ranked.offsets, scores, table, words)))


@pytest.mark.parametrize("way", ["wide", "narrow", "twin"])
@pytest.mark.parametrize(
    ("size", "kept", "top"), [(1, 1, 1), (4, 4, 1), (5, 3, 2), (9, 9, 3), (7, 7, 7), (200, 180, 60)]
)
def test_choices_are_those_of_top_choice_word_for_word(way: str, size: int, kept: int, top: int) -> None:
    requests = 50
    source = Simulation(f"{size} {kept} {top}")
    scores = np.random.default_rng(size).standard_normal((requests, size)).round(1)  # with ties
    scores[::2] = scores[::2].round() * 5e-324  # as small as doubles get: not 0, and not tied with it
    law = TopChoice.for_epsilon(1.5, size, kept, top)
    words = source.words(requests)
    words[:4] = [0, 2**64 - 1, law.low_weight % 2**64, law.high_weight % 2**64]
    laws = TopLaws(
        np.zeros(requests, np.int64),
        np.array([kept]),
        np.array([top]),
        np.array([law.low_weight if kept > 1 else 1], np.uint64),
        np.array([law.high_weight if kept > 1 else 1], np.uint64),
        np.array([law.spare if kept > 1 else 0]),
    )
    offsets = np.arange(requests + 1) * size
    with served(way):
        chosen = choices.choose_top(offsets, scores.reshape(-1), laws, words)
        pmf = choices.top_pmf(offsets, scores.reshape(-1), laws)
    np.testing.assert_array_equal(chosen, law.choose(scores, lambda _: words))
    np.testing.assert_allclose(pmf.reshape(requests, size), law.pmf(scores), rtol=1e-15)


@pytest.mark.parametrize("way", ["wide", "narrow", "twin"])
@pytest.mark.parametrize("size", [3, 7, 40, 200])
def test_the_smallest_rates_are_not_zero(way: str, size: int) -> None:
    """Public and private scores of a few times 5e-324, in one pass and in steps."""
    draws = np.random.default_rng(size)
    requests = 20
    offsets, bids = np.arange(requests + 1) * size, np.ones(requests * size, np.int64)
    smallest = np.array([0.0, 5e-324, 1e-323])
    public, private = (draws.choice(smallest, size=requests * size) for _ in range(2))
    laws = TopOf(2.0, top=2).laws_by_size(size + 1)
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


@pytest.mark.parametrize("way", ["wide", "narrow", "twin"])
def test_noisy_laws_are_those_of_the_maths(way: str) -> None:
    draws = np.random.default_rng(1)
    for size in (1, 2, 15, 100):
        scores = draws.standard_normal((20, size))
        offsets, rates = np.arange(21) * size, np.linspace(0.1, 30.0, 20)
        with served(way):
            flip = choices.flip_pmf(offsets, scores.reshape(-1), rates, unit_nodes).reshape(20, size)
            soft = choices.softmax_pmf(offsets, scores.reshape(-1), rates).reshape(20, size)
        np.testing.assert_allclose(flip, np.exp(log_pmf(scores * rates[:, None])), rtol=1e-10, atol=CLOSE)
        odds = np.exp((scores - scores.max(axis=1, keepdims=True)) * rates[:, None])
        np.testing.assert_allclose(soft, odds / odds.sum(axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("way", ["wide", "narrow"])
def test_expectations_and_draws_by_a_law(way: str) -> None:
    source = Simulation("expectations")
    offsets = np.array([0, 3, 3, 4, 20])
    pmf = np.concatenate([[0.5, 0.25, 0.25], [1.0], np.full(16, 1 / 16)])
    values = np.random.default_rng(2).standard_normal((20, 4))
    words = source.words(4)
    words[0] = 2**64 - 1  # beyond all shares: the likeliest
    with served(way):
        found, drawn = choices.expected(offsets, pmf, values), choices.choose_by_pmf(offsets, pmf, words)
    with served("twin"):
        np.testing.assert_allclose(found, choices.expected(offsets, pmf, values), atol=CLOSE)
        np.testing.assert_array_equal(drawn, choices.choose_by_pmf(offsets, pmf, words))
    assert drawn[0] == 0
    assert drawn[1] == -1


def test_draws_follow_the_law() -> None:
    """False alarms: ALPHA. The twin below takes the law of another rate, and must fail."""
    trials, size = 20_000, 4
    scores = np.tile([0.0, 1.0, 0.5, 0.9], trials)
    offsets = np.arange(trials + 1) * size
    pmf = choices.flip_pmf(offsets, scores, np.full(trials, 2.0), unit_nodes)
    chosen = choices.choose_by_pmf(offsets, pmf, Simulation("draws").words(trials))
    counts = {place: int(np.count_nonzero(chosen == place)) for place in range(size)}
    assert_matches_pmf(counts, dict(enumerate(pmf[:size].tolist())))
    other = choices.flip_pmf(offsets[:2], scores[:size], np.full(1, 2.3), unit_nodes)
    with pytest.raises(AssertionError):
        assert_matches_pmf(counts, dict(enumerate(other.tolist())))


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
    laws = TopOf(1.0).laws_by_size(1)
    assert laws is not None
    with pytest.raises(BadInput, match="number of candidates"):
        run_auctions(np.array([0, 2]), bids, rates, pricing, rates, laws, np.zeros(1, np.uint64))
    two = TopOf(1.0).laws_by_size(2)
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
