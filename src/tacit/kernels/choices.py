"""Choices over ragged arrays of private scores: checked here, done in C++ or by their NumPy twins.

Request i has the candidates offsets[i] to offsets[i + 1], in public order; ties of scores go to the one that
comes first. Nothing here is random: choices are made of the words that are handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np

from tacit.arrays import Floats, Integers, Words
from tacit.errors import BadInput
from tacit.kernels.auctions import all_within, expect_offsets, expect_top_laws
from tacit.kernels.backend import load_kernel
from tacit.kernels.checks import ANY, expect_array

LARGEST = float(np.finfo(np.float64).max) / 4  # so that no difference of two scores overflows
UnitNodes = Callable[[int], tuple[Floats, Floats]]


@dataclass(frozen=True)
class TopLaws:
    """The laws of top-m randomized response that occur; `law` (requests) says which of them each request has.

    Of the first `kept` candidates, the private best `top` are favoured. The 2^64 words are cut into blocks, one
    per candidate, in public order: `high_weight` words for the favoured, `low_weight` for the others, one more
    for the first `spare_words`. Where at most one is kept, or one is favoured and `low_weight` is 0, no word is
    looked at, and weights may be anything.
    """

    law: Integers
    kept: Integers
    top: Integers
    low_weight: Words
    high_weight: Words
    spare_words: Integers

    def __post_init__(self) -> None:
        expect_array("law", self.law, np.int64, (ANY,))
        expect_top_laws(self.kept, self.top, self.low_weight, self.high_weight, self.spare_words)


def choose_top(offsets: Integers, scores: Floats, laws: TopLaws, words: Words) -> Integers:
    """The place chosen in each request, from one word; -1 where there are no candidates."""
    count = _expect_requests(offsets, scores, laws)
    expect_array("words", words, np.uint64, (count,))
    out = np.empty(count, np.int64)
    weights = (laws.low_weight, laws.high_weight, laws.spare_words)
    if not _kernel().choose_top(offsets, scores, laws.law, laws.kept, laws.top, *weights, words, out):
        raise BadInput("expected a law that fits each request's candidates, got another")
    return out


def top_pmf(offsets: Integers, scores: Floats, laws: TopLaws) -> Floats:
    """The law of `choose_top`, spare words left out: they are 2^-64 each."""
    _expect_requests(offsets, scores, laws)
    out = np.empty(len(scores), np.float64)
    low = np.where(laws.kept > 1, laws.low_weight * 2.0**-64, 1.0)
    high = np.where(laws.kept > 1, laws.high_weight * 2.0**-64, 1.0)
    if not _kernel().top_pmf(offsets, scores, laws.law, laws.kept, laws.top, low, high, out):
        raise BadInput("expected a law that fits each request's candidates, got another")
    return out


def softmax_pmf(offsets: Integers, scores: Floats, rates: Floats) -> Floats:
    """Chances in proportion to exp(rate x score): the exponential mechanism, the maximum with Gumbel noise."""
    _expect_scores(offsets, scores)
    expect_array("rates", rates, np.float64, (len(offsets) - 1,))
    out = np.empty(len(scores), np.float64)
    _kernel().softmax_pmf(offsets, scores, rates, out)
    return out


def flip_pmf(offsets: Integers, scores: Floats, rates: Floats, unit_nodes: UnitNodes) -> Floats:
    """Permute-and-flip, or the maximum with exponential noise: exact, by as many nodes as the polynomial needs.

    `unit_nodes(n)` gives nodes and weights of Gauss and Legendre on [0, 1]; a candidates need ceil(a / 2).
    """
    _expect_scores(offsets, scores)
    expect_array("rates", rates, np.float64, (len(offsets) - 1,))
    out = np.empty(len(scores), np.float64)
    sizes = np.flatnonzero(np.bincount(np.diff(offsets))).tolist() if len(offsets) > 1 else []
    _kernel().flip_pmf(offsets, scores, rates, *_nodes(tuple(sizes), unit_nodes), out)
    return out


def choose_by_pmf(offsets: Integers, pmf: Floats, words: Words) -> Integers:
    """One candidate of each auction by its chances, from one word; -1 where there is none.

    A candidate has 1 + floor(p (2^64 - 2^32)) of the words, and the likeliest also all that are left: no chance
    is 0, and none is off by more than 2^-30 of itself and 2^-64, for up to a million candidates.
    """
    total = expect_offsets(offsets)
    expect_array("pmf", pmf, np.float64, (total,))
    expect_array("words", words, np.uint64, (len(offsets) - 1,))
    out = np.empty(len(offsets) - 1, np.int64)
    _kernel().choose_by_pmf(offsets, pmf, words, out)
    return out


def expected(offsets: Integers, pmf: Floats, values: Floats) -> Floats:
    """The expectation of every column of `values` (candidates, columns) in every auction."""
    total = expect_offsets(offsets)
    expect_array("pmf", pmf, np.float64, (total,))
    expect_array("values", values, np.float64, (total, ANY))
    out = np.empty((len(offsets) - 1, values.shape[1]), np.float64)
    _kernel().expected(offsets, pmf, values, out)
    return out


@lru_cache(maxsize=64)
def _nodes(sizes: tuple[int, ...], unit_nodes: UnitNodes) -> tuple[Integers, Floats, Floats]:
    """For each size a from 0 on, where its nodes begin; those of sizes that do not occur are left out."""
    counts = np.zeros(max(sizes, default=0) + 2, np.int64)
    nodes, weights = [np.zeros(0)], [np.zeros(0)]
    for size in filter(None, sizes):
        node, weight = unit_nodes(-(-size // 2))
        nodes.append(node)
        weights.append(weight)
        counts[size + 1] = len(node)
    return np.cumsum(counts), np.concatenate(nodes), np.concatenate(weights)


def _expect_scores(offsets: Integers, scores: Floats) -> None:
    expect_array("scores", scores, np.float64, (expect_offsets(offsets),))
    if not all_within(scores, -LARGEST, LARGEST):
        raise BadInput("expected finite scores, got others")


def _expect_requests(offsets: Integers, scores: Floats, laws: TopLaws) -> int:
    _expect_scores(offsets, scores)
    if len(laws.law) != len(offsets) - 1:
        raise BadInput(f"expected a law for each of {len(offsets) - 1} requests, got {len(laws.law)}")
    return len(laws.law)


def _kernel() -> ModuleType:
    return load_kernel("_choices", "reference_choices")
