"""The kernels of auctions in NumPy, one auction after another: what the tests hold the compiled ones to.

The arguments are those of the compiled functions, already checked; `auctions` says what they mean.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.arrays import Floats, Integers, Words
from tacit.kernels import reference_choices
from tacit.kernels.reference_choices import iterate_ragged

EMPTY, RESERVE = -1, -2


def rank_and_price(
    offsets: Integers,
    bids: Integers,
    rates: Floats,
    first: bool,
    per_event: bool,
    reserve: float,
    keep: float,
    empty: float,
    kept_offsets: Integers,
    rows: Integers,
    scores: Floats,
    prices: Integers,
    setters: Integers,
) -> int:
    kept_offsets[0] = at = 0
    for i, candidates in enumerate(iterate_ragged(offsets)):
        listed = [(float(bids[row]) * float(rates[row]), row) for row in candidates]
        eligible = [(score, row) for score, row in listed if score >= reserve]
        if not math.isnan(empty):
            eligible.append((empty, EMPTY))
        ranked = sorted(eligible, key=lambda one: -one[0])  # stable: ties stay in the order given
        for rank, (score, row) in enumerate(ranked):
            if row == EMPTY:
                price, setter = 0, EMPTY
            elif score < ranked[0][0] * keep:
                continue
            else:
                due, setter = ranked[rank + 1] if rank + 1 < len(ranked) else (reserve, RESERVE)
                if due < reserve:
                    due, setter = reserve, RESERVE
                if first:
                    due, setter = score, row
                price = _price(first, per_event, due, float(rates[row]), int(bids[row]))
            rows[at], scores[at], prices[at], setters[at] = row, score, price, setter
            at += 1
        kept_offsets[i + 1] = at
    return at


def _price(first: bool, per_event: bool, due: float, rate: float, bid: int) -> int:
    if not per_event:
        return math.floor(due)
    if first:
        return bid
    with np.errstate(over="ignore"):
        return int(min(np.floor(np.float64(due) / rate), np.float64(bid))) if rate > 0 else 0


def take_scores(rows: Integers, bids: Integers, rates: Floats, empty: float, scores: Floats) -> None:
    for i, row in enumerate(rows):
        scores[i] = empty if row == EMPTY else float(bids[row]) * float(rates[row])


def shown(
    offsets: Integers,
    chosen: Integers,
    rows: Integers,
    prices: Integers,
    setters: Integers,
    shown_row: Integers,
    shown_price: Integers,
    shown_rank: Integers,
    shown_setter: Integers,
) -> int:
    found = 0
    for i, place in enumerate(chosen):
        if place >= offsets[i + 1] - offsets[i]:
            return -1
        at = offsets[i] + place
        if place >= 0 and rows[at] != EMPTY:
            shown_row[found], shown_price[found] = rows[at], prices[at]
            shown_rank[found], shown_setter[found] = place, setters[at]
            found += 1
    return found


def run_auctions(
    offsets: Integers,
    bids: Integers,
    rates: Floats,
    first: bool,
    per_event: bool,
    reserve: float,
    keep: float,
    empty: float,
    private_rates: Floats,
    kept: Integers,
    top: Integers,
    low_weight: Words,
    high_weight: Words,
    spare_words: Integers,
    words: Words,
    shown_row: Integers,
    shown_price: Integers,
    shown_rank: Integers,
    shown_setter: Integers,
) -> int:
    count, room = len(words), len(bids) + len(words)
    ends, rows, prices, setters = (np.empty(size, np.int64) for size in (count + 1, room, room, room))
    scores = np.empty(room)
    rules = (first, per_event, reserve, keep, empty)
    stayed = rank_and_price(offsets, bids, rates, *rules, ends, rows, scores, prices, setters)
    private = np.empty(stayed)
    take_scores(rows[:stayed], bids, private_rates, empty, private)
    chosen = np.empty(count, np.int64)
    laws = (kept, top, low_weight, high_weight, spare_words)
    if not reference_choices.choose_top(ends, private, np.diff(ends), *laws, words, chosen):
        return -1
    out = (shown_row, shown_price, shown_rank, shown_setter)
    return shown(ends, chosen, rows, prices, setters, *out)


def all_within(values: Floats, low: float, high: float) -> bool:
    return bool(np.all((values >= low) & (values <= high)))


def add_by_code(codes: Integers, amounts: Integers, totals: Integers) -> bool:
    sums = [0] * len(totals)
    for code, amount in zip(codes.tolist(), amounts.tolist(), strict=True):
        sums[code] += amount
    if any(not -(2**63) <= total < 2**63 for total in sums):
        return False
    totals[:] = sums
    return True
