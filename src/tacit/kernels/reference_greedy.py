"""Greedy choice in NumPy, by looking at every ad in every round: what the tests hold the compiled one to.

The arguments are those of the compiled functions, already checked; `greedy` says what they mean. Sums run in
the order of the compiled loops (in lanes, which are folded at the end), so that near-ties are settled alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Integers

Gains = Callable[[Floats], Floats]

DENSE_LANES, SPARSE_LANES = 16, 4


def dense_first_gains(values: NDArray[Any], weight: Floats, gains: Floats) -> int:
    with np.errstate(all="ignore"):  # what is not finite is named below
        gains[:] = _dense_gains(values, weight)(np.zeros(len(weight)))
    return _first_bad(((values < 0) | ~np.isfinite(values)).any(axis=1) | ~np.isfinite(gains))


def sparse_first_gains(
    offsets: Integers, context: NDArray[np.int32], value: NDArray[Any], weight: Floats, gains: Floats
) -> int:
    with np.errstate(all="ignore"):
        gains[:] = _sparse_gains(offsets, context, value, weight)(np.zeros(len(weight)))
    bad = ~np.isfinite(gains)
    owner = np.repeat(np.arange(len(gains)), np.diff(offsets))
    bad[owner[(value < 0) | ~np.isfinite(value)]] = True
    return _first_bad(bad)


def dense_gains(values: NDArray[Any], weight: Floats, best: Floats, gains: Floats) -> None:
    gains[:] = _dense_gains(values, weight)(best)


def sparse_gains(
    offsets: Integers,
    context: NDArray[np.int32],
    value: NDArray[Any],
    weight: Floats,
    best: Floats,
    gains: Floats,
) -> None:
    gains[:] = _sparse_gains(offsets, context, value, weight)(best)


def dense_greedy(
    values: NDArray[Any],
    weight: Floats,
    first: Floats,
    unread: bool,
    k: int,
    at_least: float,
    enough: float,
    certify: bool,
    room: NDArray[np.uint8],  # noqa: ARG001  for a sketch, which nothing here needs
    ads: Integers,
    gains: Floats,
) -> tuple[int, int, float]:
    def raised(best: Floats, ad: int) -> Floats:
        higher: Floats = np.maximum(best, values[ad])
        return higher

    if unread and (bad := dense_first_gains(values, weight, first)) >= 0:
        return -1, bad, 0.0
    rules = (k, at_least, enough, certify)
    return _greedy(_dense_gains(values, weight), raised, values.shape, *rules, ads, gains)


def sparse_greedy(
    offsets: Integers,
    context: NDArray[np.int32],
    value: NDArray[Any],
    weight: Floats,
    first: Floats,
    unread: bool,
    k: int,
    at_least: float,
    enough: float,
    certify: bool,
    room: NDArray[np.uint8],  # noqa: ARG001  for a sketch, which nothing here needs
    ads: Integers,
    gains: Floats,
) -> tuple[int, int, float]:
    def raised(best: Floats, ad: int) -> Floats:
        own = slice(offsets[ad], offsets[ad + 1])
        out = best.copy()
        out[context[own]] = np.maximum(out[context[own]], value[own])
        return out

    if unread and (bad := sparse_first_gains(offsets, context, value, weight, first)) >= 0:
        return -1, bad, 0.0
    gain, shape = _sparse_gains(offsets, context, value, weight), (len(offsets) - 1, len(weight))
    return _greedy(gain, raised, shape, k, at_least, enough, certify, ads, gains)


def _greedy(
    gains_beside: Gains,
    raised: Callable[[Floats, int], Floats],
    shape: tuple[int, ...],
    k: int,
    at_least: float,
    enough: float,
    certify: bool,
    ads: Integers,
    gains: Floats,
) -> tuple[int, int, float]:
    count, contexts = shape
    best, left = np.zeros(contexts), np.ones(count, dtype=bool)
    picked, evaluations, total, bound = 0, 0, 0.0, math.inf
    while True:
        gain = np.where(left, gains_beside(best), -math.inf)
        evaluations += count
        if certify:
            reach = total
            for one in np.sort(gain)[::-1][:k]:
                if one > at_least:
                    reach += float(one) - at_least
            bound = min(bound, reach)
        if picked == k or total >= enough or not count or not gain.max() > at_least:
            return picked, evaluations, bound
        ad = int(np.argmax(gain))  # the first of equals
        ads[picked], gains[picked] = ad, gain[ad]
        picked, total = picked + 1, total + float(gain[ad])
        left[ad], best = False, raised(best, ad)


def _dense_gains(values: NDArray[Any], weight: Floats) -> Gains:
    def beside(best: Floats) -> Floats:
        sums = np.zeros((len(values), DENSE_LANES))
        for start in range(0, len(weight), DENSE_LANES):
            own = slice(start, start + DENSE_LANES)
            terms = weight[own] * np.maximum(values[:, own].astype(np.float64) - best[own], 0.0)
            sums[:, : terms.shape[1]] += terms
        return _fold_sums(sums)

    return beside


def _sparse_gains(offsets: Integers, context: NDArray[np.int32], value: NDArray[Any], weight: Floats) -> Gains:
    sizes = np.diff(offsets)

    def beside(best: Floats) -> Floats:
        terms = weight[context] * np.maximum(value.astype(np.float64) - best[context], 0.0)
        sums = np.zeros((len(sizes), SPARSE_LANES))
        for place in range(int(sizes.max(initial=0))):
            longer = np.flatnonzero(sizes > place)
            sums[longer, place % SPARSE_LANES] += terms[offsets[longer] + place]
        return _fold_sums(sums)

    return beside


def _fold_sums(sums: Floats) -> Floats:
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0]


def _first_bad(bad: NDArray[np.bool_]) -> int:
    return int(np.argmax(bad)) if bad.any() else -1
