"""The kernels of choices in NumPy, one request after another: what the tests hold the compiled ones to.

The arguments are those of the compiled functions, already checked; `choices` says what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tacit.arrays import Floats, Integers, Words


def iterate_ragged(offsets: Integers) -> Iterator[Integers]:
    """The places of each auction's candidates."""
    for start, end in pairwise(offsets):
        yield np.arange(start, end)


def choose_top(
    offsets: Integers,
    scores: Floats,
    law: Integers,
    kept: Integers,
    top: Integers,
    low_weight: Words,
    high_weight: Words,
    spare_words: Integers,
    words: Words,
    chosen: Integers,
) -> bool:
    if not _fit(offsets, law, kept):
        return False
    for i, candidates in enumerate(iterate_ragged(offsets)):
        row = law[i]
        favoured = _find_favoured(scores[candidates], kept[row], top[row])
        if top[row] == 1 and not low_weight[row]:  # no word is looked at
            chosen[i] = min(favoured)
            continue
        end, found = 0, 0
        for place in range(kept[row] - 1):
            weight = high_weight[row] if place in favoured else low_weight[row]
            end += int(weight) + int(place < spare_words[row])
            found += end <= int(words[i])
        chosen[i] = found if kept[row] else -1
    return True


def top_pmf(
    offsets: Integers,
    scores: Floats,
    law: Integers,
    kept: Integers,
    top: Integers,
    low_chance: Floats,
    high_chance: Floats,
    pmf: Floats,
) -> bool:
    if not _fit(offsets, law, kept):
        return False
    pmf[:] = 0
    for i, candidates in enumerate(iterate_ragged(offsets)):
        row = law[i]
        pmf[candidates[: kept[row]]] = low_chance[row]
        pmf[candidates[list(_find_favoured(scores[candidates], kept[row], top[row]))]] = high_chance[row]
    return True


def _fit(offsets: Integers, law: Integers, kept: Integers) -> bool:
    if len(law) and (law.min() < 0 or law.max() >= len(kept)):
        return False
    sizes = np.diff(offsets)
    return bool(np.all((kept[law] <= sizes) & (kept[law] >= (sizes > 0))))


def _find_favoured(scores: Floats, kept: int, top: int) -> set[int]:
    return set(np.argsort(-scores[:kept], kind="stable")[:top].tolist())


def softmax_pmf(offsets: Integers, scores: Floats, rates: Floats, pmf: Floats) -> None:
    for i, candidates in enumerate(iterate_ragged(offsets)):
        if len(candidates):
            odds = np.exp(rates[i] * (scores[candidates] - scores[candidates].max()))
            pmf[candidates] = odds / odds.sum()


def flip_pmf(
    offsets: Integers,
    scores: Floats,
    rates: Floats,
    node_offsets: Integers,
    nodes: Floats,
    weights: Floats,
    pmf: Floats,
) -> None:
    for i, candidates in enumerate(iterate_ragged(offsets)):
        size = len(candidates)
        if not size:
            continue
        at = slice(node_offsets[size], node_offsets[size + 1])
        odds = np.exp(rates[i] * (scores[candidates] - scores[candidates].max()))
        tails = 1 - odds[:, None] * nodes[at]  # (candidates, nodes)
        chances = odds * (weights[at] * tails.prod(axis=0) / tails).sum(axis=1)
        pmf[candidates] = chances / chances.sum()


def choose_by_pmf(offsets: Integers, pmf: Floats, words: Words, chosen: Integers) -> None:
    for i, candidates in enumerate(iterate_ragged(offsets)):
        shares = [int(p * (2.0**64 - 2.0**32)) + 1 for p in pmf[candidates]]
        ends = np.cumsum(np.array(shares, dtype=object))  # Python's whole numbers: these pass 2^63
        reached = [j for j, end in enumerate(ends) if int(words[i]) < end]
        likeliest = int(np.argmax(pmf[candidates])) if len(candidates) else -1
        chosen[i] = reached[0] if reached else likeliest


def expected(offsets: Integers, pmf: Floats, values: Floats, out: Floats) -> None:
    for i, candidates in enumerate(iterate_ragged(offsets)):
        out[i] = pmf[candidates] @ values[candidates]
