"""Auctions over ragged arrays, by public columns: checked here, done in C++ or by their NumPy twins.

Auction i has the candidates offsets[i] to offsets[i + 1]. What is private is in `choices`: it reads the outcome
of `rank_and_price`, and nothing of it comes back here but which place was chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from tacit.arrays import Floats, Integers, Words
from tacit.errors import BadInput
from tacit.kernels.backend import load_kernel
from tacit.kernels.checks import ANY, expect_array, expect_below

TopColumns = tuple[Integers, Integers, Words, Words, Integers]
"""Laws of top-m randomized response, one per row: the columns of `TopLaws` after the first."""

EMPTY, RESERVE = -1, -2
"""Rows that are no candidate's: the empty slot, and (as the setter of a price) the reserve."""

MOST_MICROS = 2**53
"""Bids up to here are whole numbers in float64 too: nine billion currency units."""

LARGEST_RATE = float(np.finfo(np.float64).max) / 4 / MOST_MICROS  # so that every score is finite


@dataclass(frozen=True)
class RankedCandidates:
    """The candidates that stay, publicly ranked: `rows` says where each was, `setters` who priced it."""

    offsets: Integers
    rows: Integers
    scores: Floats
    prices: Integers
    setters: Integers


@dataclass(frozen=True)
class Pricing:
    """How auctions are ranked, priced and cut."""

    first_price: bool
    per_event: bool
    reserve: float
    keep: float
    empty: float | None

    @property
    def arguments(self) -> tuple[bool, bool, float, float, float]:
        empty = math.nan if self.empty is None else self.empty
        return self.first_price, self.per_event, self.reserve, self.keep, empty


def rank_and_price(offsets: Integers, bids: Integers, rates: Floats, pricing: Pricing) -> RankedCandidates:
    """Rank by bid x rate, price each candidate by the next one (or by itself), and keep scores >= keep x best.

    Candidates below the reserve take no part. `empty` is the worth of an empty slot where abstaining is a
    candidate: ranked like any other, price 0, kept always. Prices are whole and rounded down: for an
    impression, or for an event that happens at this rate, and then at most the bid.
    """
    total = _expect_public(offsets, bids, rates)
    room = total + (0 if pricing.empty is None else len(offsets) - 1)
    kept = np.empty(len(offsets), np.int64)
    rows, prices, setters = (np.empty(room, np.int64) for _ in range(3))
    scores = np.empty(room, np.float64)
    arrays = (kept, rows, scores, prices, setters)
    stayed: int = _kernel().rank_and_price(offsets, bids, rates, *pricing.arguments, *arrays)
    return RankedCandidates(kept, rows[:stayed], scores[:stayed], prices[:stayed], setters[:stayed])


def take_scores(rows: Integers, bids: Integers, rates: Floats, empty: float) -> Floats:
    """bid x rate of each row, and the worth of the empty slot where the row is EMPTY."""
    expect_array("rows", rows, np.int64, (ANY,))
    expect_array("bids", bids, np.int64, (ANY,))
    expect_array("rates", rates, np.float64, bids.shape)
    if len(rows) and not EMPTY <= rows.min() <= rows.max() < len(bids):
        raise BadInput(f"expected rows in 0..{len(bids) - 1}, got one outside")
    out = np.empty(len(rows), np.float64)
    _kernel().take_scores(rows, bids, rates, empty, out)
    return out


@dataclass(frozen=True)
class ShownCandidates:
    """What was shown: one entry per auction that shows something, with the rank it was chosen from."""

    rows: Integers
    prices: Integers
    ranks: Integers
    setters: Integers


def shown(ranked: RankedCandidates, chosen: Integers) -> ShownCandidates:
    """What the chosen places show. Nothing is shown where the place is -1, or that of the empty slot."""
    total = expect_offsets(ranked.offsets)
    for name in ("rows", "prices", "setters"):
        expect_array(name, getattr(ranked, name), np.int64, (total,))
    expect_array("chosen", chosen, np.int64, (len(ranked.offsets) - 1,))
    out = tuple(np.empty(len(chosen), np.int64) for _ in range(4))
    columns = (ranked.rows, ranked.prices, ranked.setters)
    count: int = _kernel().shown(ranked.offsets, chosen, *columns, *out)
    if count < 0:
        raise BadInput("expected chosen places among those offered, got one beyond")
    return ShownCandidates(*(array[:count] for array in out))


def run_auctions(
    offsets: Integers,
    bids: Integers,
    rates: Floats,
    pricing: Pricing,
    private_rates: Floats,
    laws: TopColumns,
    words: Words,
) -> ShownCandidates:
    """Rank, choose and price in one pass: as `rank_and_price`, `take_scores`, `choose_top` and `shown` would.

    An auction's law is the row of its number of candidates. Prices come from public columns here, too: what is
    private only picks among them. Private rates are finite, or all are refused: no order would rank NaN.
    """
    _expect_public(offsets, bids, rates)
    expect_array("private_rates", private_rates, np.float64, bids.shape)
    if not all_within(private_rates, -LARGEST_RATE, LARGEST_RATE):
        raise BadInput("expected finite private rates, got others")
    expect_top_laws(*laws)
    expect_array("words", words, np.uint64, (len(offsets) - 1,))
    out = tuple(np.empty(len(words), np.int64) for _ in range(4))
    count: int = _kernel().run_auctions(
        offsets, bids, rates, *pricing.arguments, private_rates, *laws, words, *out
    )
    if count < 0:
        raise BadInput("expected a law for every number of candidates, got none for one")
    return ShownCandidates(*(array[:count] for array in out))


def all_within(values: Floats, low: float, high: float) -> bool:
    """Whether every value is in low..high; NaN is not. One pass, which NumPy's minimum and maximum are not."""
    expect_array("values", values, np.float64, (ANY,))
    inside: bool = _kernel().all_within(values, low, high)
    return inside


def add_by_code(codes: Integers, amounts: Integers, count: int) -> Integers:
    """The sum of the amounts of each code in 0..count-1, exact, or refused where it does not fit 64 bits."""
    expect_array("codes", codes, np.int64, (ANY,))
    expect_array("amounts", amounts, np.int64, (len(codes),))
    expect_below("codes", codes, count)
    totals = np.zeros(count, np.int64)
    if not _kernel().add_by_code(codes, amounts, totals):
        raise BadInput("expected totals below 2^63, got a larger one")
    return totals


def expect_offsets(offsets: Integers) -> int:
    """How many candidates there are in all."""
    expect_array("offsets", offsets, np.int64, (ANY,))
    if not len(offsets) or offsets[0] or (offsets[1:] < offsets[:-1]).any():
        raise BadInput("expected offsets that begin at 0 and never fall, got others")
    return int(offsets[-1])


def expect_top_laws(
    kept: Integers, top: Integers, low_weight: Words, high_weight: Words, spare_words: Integers
) -> None:
    """Refuse laws that are not what `TopLaws` says, above all those whose words are not 2^64 in all."""
    expect_array("kept", kept, np.int64, (ANY,))
    for name, wholes in (("top", top), ("spare_words", spare_words)):
        expect_array(name, wholes, np.int64, kept.shape)
    for name, weights in (("low_weight", low_weight), ("high_weight", high_weight)):
        expect_array(name, weights, np.uint64, kept.shape)
    if (kept < 0).any() or (top > kept).any() or ((top < 1) & (kept > 0)).any():
        raise BadInput("expected laws with 1 <= top <= kept, got others")
    if (spare_words < 0).any() or (spare_words >= top.clip(1)).any():
        raise BadInput("expected laws with spare_words in 0..top-1, got others")
    drawn = (kept > 1) & ((top > 1) | (low_weight > 0))  # the others look at no word
    others = kept - top
    # Whole numbers wrap around at 2^64, where they should end; doubles say that it is no multiple of that.
    past = top.view(np.uint64) * high_weight + others.view(np.uint64) * low_weight + spare_words.view(np.uint64)
    roughly = top * (high_weight * 2.0**-64) + others * (low_weight * 2.0**-64)
    if (drawn & ((past != 0) | (roughly > 1.5))).any():
        raise BadInput("expected laws of 2^64 words in all, got others")


def _expect_public(offsets: Integers, bids: Integers, rates: Floats) -> int:
    total = expect_offsets(offsets)
    expect_array("bids", bids, np.int64, (total,))
    expect_array("rates", rates, np.float64, (total,))
    expect_below("bids", bids, MOST_MICROS + 1)
    return total


def _kernel() -> ModuleType:
    return load_kernel("_auctions", "reference_auctions")
