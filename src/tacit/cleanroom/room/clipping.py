"""How much of each example's derivative is kept, so that one label cannot move a sum by more than agreed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.wire.derivatives import BlockDerivatives, Derivatives
from tacit.cleanroom.wire.modes import Noise
from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import RoomRefused

Doubles = NDArray[np.float64]

CANCELLING = 64.0
"""How many times the clipping norm the pairs of one example may add up to, each taken by itself. Honest pairs
add up to a few times their sum's norm; crafted ones that cancel are scaled down, because what rounding leaves
of them is as large as the pairs are."""

MOST_WRITTEN = 2**32
"""Pairs times parameters of one slab's sequences that are written out for their absolute norms: seconds."""

_UNIT = 2.0**-53  # the relative error of one operation in float64
_UP = 1 + 2.0**-40  # more than what rounding takes from the few operations below


def kept_shares(derivatives: Derivatives, clip_norm: float, noise: Noise) -> Doubles:
    """A factor in (0, 1] for each example, (n,): factor times derivative has a norm of at most `clip_norm`.

    The norm is over all blocks together: L2 for Gaussian noise, L1 for Laplace. A slab that would take too long
    is refused.

    Guarantee:  for every example, factor |d| <= clip_norm and factor s <= 64 clip_norm, in exact arithmetic on
                the decoded numbers, where s adds up the norms of the example's pairs (s = |d| for one pair).
    Neighbours: no label is looked at: the factors are the same in both.
    Assumes:    finite derivatives of at most 2^32 in size, as the decoders see to.
    Source:     norms of outer products: Goodfellow 2015 (arXiv 1510.01799). A computed norm of several pairs
                misses the true one by at most `_slack` times s, which is added to it (Higham, Accuracy and
                Stability of Numerical Algorithms, 2nd edition, section 3.1: inner products).
    """
    if noise is Noise.LAPLACE and sum(map(_written, derivatives.values())) > MOST_WRITTEN:
        said = f"with Laplace noise, expected at most {MOST_WRITTEN} pairs x parameters of sequences in a slab"
        raise RoomRefused(Refusal.OVERSIZED, f"{said}, got more: send fewer examples in each")
    first = next(iter(derivatives.values()))
    norms, spread, slack = (np.zeros(len(first)) for _ in range(3))
    for each in derivatives.values():
        norm, pairs = _norms(each, noise)
        norms += norm
        spread += pairs
        slack += _slack(each) * pairs
    if noise is Noise.GAUSSIAN:  # so far these were squares
        norms, spread = np.sqrt(norms + slack), np.sqrt(spread)
    else:
        norms = norms + slack
    norms, spread = norms * _UP, spread * _UP
    largest = np.maximum(np.maximum(norms, spread / CANCELLING), clip_norm)
    shares: Doubles = clip_norm / (largest * _UP)
    return np.where(largest > clip_norm, shares, 1.0)


def _norms(derivatives: BlockDerivatives, noise: Noise) -> tuple[Doubles, Doubles]:
    """The norm of each example and the sum over its pairs' norms, both (n,); squared for Gaussian noise."""
    if noise is Noise.GAUSSIAN:
        norms = derivatives.squared_norms()
        return norms, norms if derivatives.factors.ones else derivatives.triangle_norms() ** 2
    norms = derivatives.absolute_norms()
    return norms, norms if derivatives.factors.ones else derivatives.triangle_absolute_norms()


def _written(derivatives: BlockDerivatives) -> int:
    counts = derivatives.factors.counts
    return int(counts[counts > 1].sum(dtype=np.int64)) * derivatives.block.parameters


def _slack(derivatives: BlockDerivatives) -> float:
    """What rounding can add to or take from a norm of this block, in (squared) sums of its pairs' norms.

    Inner products of rows and cols entries, or the matrix written out, then a sum of pairs^2 terms or of all
    entries: each operation errs by 2^-53 of a partial sum, which is at most the sum of the pairs' norms.
    """
    block, pairs = derivatives.block, int(derivatives.factors.counts.max(initial=1))
    operations = block.rows + block.cols + block.parameters + pairs**2 + 16
    return 4 * operations * _UNIT


def rounding_of_sum(operations: int, rows: int, several: bool, clip_norm: float) -> float:
    """How far the computed sum of `rows` clipped derivatives can be from the exact one, in the same norm.

    An entry is a sum of products in float64 in some order: its error is at most 2^-53 for each operation,
    times the sum of the products' sizes. Over all entries that is at most the sum of the pairs' norms, which
    `kept_shares` bounds (slopes are within 1).
    """
    most = CANCELLING if several else 1.0
    return 2 * operations * _UNIT * rows * most * clip_norm
