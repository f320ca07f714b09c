"""Privacy amplification by shuffling: delta, epsilon and a composable privacy loss of a shuffled batch.

By the best bound known: clones for any mechanism, and the blanket where the rows of the mechanism are
known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.privacy.budget import rounded_up
from tacit.privacy.releases import ShuffledChoice
from tacit.privacy.shuffling import bounds, mechanism
from tacit.privacy.shuffling.bounds import Blanket

Curve = Callable[[float], float]
"""From epsilon to an upper bound on delta."""

_PRECISION = 2.0**-16  # of an epsilon that is searched for, relative, rounded up
_DENSE_DOTS, _SPARSE_DOTS = 192, 64
_DENSE_TAIL, _LAST_TAIL = 1e-9, 1e-15


def delta_curves(release: ShuffledChoice) -> tuple[Curve, Curve]:
    """The bound for any mechanism, and the best that is known: the same where the rows are not."""

    def for_any(epsilon: float) -> float:
        return bounds.clone_delta(release.epsilon, release.cohort, epsilon)

    if not release.mechanism:
        return for_any, for_any
    mechanism.check_rows(release.mechanism, release.epsilon)
    blanket = Blanket.of(release.mechanism)
    if blanket is None:
        return for_any, for_any
    return for_any, lambda epsilon: min(for_any(epsilon), blanket.delta(release.cohort, epsilon))


def delta(release: ShuffledChoice, epsilon: expect.Number) -> float:
    """An upper bound on delta(epsilon) of one shuffled batch.

    Guarantee:  the batch is (epsilon, delta)-DP with the delta returned.
    Neighbours: replace one member's private input; the others' inputs are arbitrary and fixed.
    Assumes:    what `ShuffledChoice` says; `cohort` counts only members who really randomise and do not
                reveal their report.
    Source:     `clone_delta` and, where the rows are known, `Blanket`.

    >>> from fractions import Fraction
    >>> batch = ShuffledChoice(epsilon=Fraction(5), cohort=10_000)
    >>> delta(batch, "0.7422") < 1e-6 < delta(batch, "0.742")
    True
    """
    _, best = delta_curves(release)
    return best(-rounded_up(-expect.at_least_zero("epsilon", epsilon)))  # rounded down


def epsilon(release: ShuffledChoice, delta: expect.Number) -> float:
    """The smallest epsilon that the bounds give at this delta, rounded up; the local one at delta = 0.

    Guarantee:  the batch is (epsilon, delta)-DP with the epsilon returned.
    Neighbours: replace one member's private input; the others' inputs are arbitrary and fixed.
    Assumes:    as for `delta`.
    Source:     the inverse of `delta`.

    >>> from fractions import Fraction
    >>> round(epsilon(ShuffledChoice(epsilon=Fraction(5), cohort=10_000), 1e-6), 3)
    0.742
    """
    allowed = float(expect.probability("delta", delta, zero=True))
    for_any, best = delta_curves(release)
    # The clones are quick to ask, and the best bound is never above theirs: they narrow the search.
    within = _smallest(for_any, allowed, rounded_up(release.epsilon))
    return within if best is for_any else _smallest(best, allowed, within)


@dataclass(frozen=True)
class LossAtoms:
    """A privacy loss with finitely many values: P(loss = losses[i]) = mass[i], and infinite with the rest."""

    losses: NDArray[np.float64]
    mass: NDArray[np.float64]
    infinite: float


@lru_cache(maxsize=64)
def loss_atoms(release: ShuffledChoice) -> LossAtoms:
    """A privacy loss that dominates one batch, for the accountant to compose with others.

    Guarantee:  its hockey-stick divergence at every epsilon, also below zero, is at least the batch's, so a
                composition of such losses bounds the composition of the batches.
    Neighbours: replace one member's private input. One curve serves both directions: it is the worst over
                both orders of every pair.
    Assumes:    as for `delta`; the members of each batch randomise afresh.
    Source:     connect-the-dots: Doroshenko et al. 2022 (arXiv 2207.04380); composition of dominating pairs:
                Zhu, Dong, Wang 2022 (arXiv 2106.08567).
    """
    _, bound = delta_curves(release)
    epsilons = _dots(bound, rounded_up(release.epsilon))
    deltas = np.array([bound(float(epsilon)) for epsilon in epsilons])
    local = rounded_up(release.epsilon)
    if epsilons[-1] < local:  # there each report alone is private enough, and nothing is left over
        epsilons, deltas = np.append(epsilons, local), np.append(deltas, 0.0)
    # Below zero the other direction rules: D(P||Q) at -epsilon is 1 - e^-epsilon (1 - D(Q||P) at epsilon).
    mirrored = 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1])
    epsilons = np.concatenate([-epsilons[:0:-1], epsilons])
    deltas = np.minimum.accumulate(np.concatenate([mirrored, deltas]))
    kept = _lower_hull(np.exp(epsilons), deltas)
    losses, deltas = epsilons[kept], deltas[kept]
    # Between two dots delta is linear in e^epsilon: each slope is the weight of all losses above it.
    steps, gaps = np.diff(deltas), np.diff(losses)
    mass = np.zeros(len(losses))
    mass[0] = 1 - deltas[0]
    mass[1:] -= steps / -np.expm1(-gaps)
    mass[:-1] += steps / np.expm1(gaps)
    return LossAtoms(losses, np.maximum(mass, 0.0), float(deltas[-1]))


def _smallest(bound: Curve, allowed: float, largest: float) -> float:
    """The smallest epsilon with bound(epsilon) <= allowed, rounded up; `largest` is known to be enough."""
    if bound(0.0) <= allowed:
        return 0.0
    low, high = 0.0, largest
    while high - low > high * _PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if bound(middle) <= allowed else (middle, high)
    return high


def _dots(bound: Curve, local: float) -> NDArray[np.float64]:
    """Epsilons from zero to where next to nothing is left: any choice of dots is a bound."""
    near, last = (_smallest(bound, tail, local) for tail in (_DENSE_TAIL, _LAST_TAIL))
    dense = np.linspace(0, near, _DENSE_DOTS + 1)
    sparse = np.linspace(near, max(last, near), _SPARSE_DOTS + 1)
    return np.unique(np.concatenate([dense, sparse]))


def _lower_hull(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> list[int]:
    """The corners of the largest convex function below the dots: delta, convex in e^epsilon, is below it."""
    hull: list[int] = []
    for place in range(len(xs)):
        while len(hull) >= 2:
            first, second = hull[-2], hull[-1]
            turn = (ys[second] - ys[first]) * (xs[place] - xs[first]) - (ys[place] - ys[first]) * (
                xs[second] - xs[first]
            )
            if turn < 0:
                break
            hull.pop()
        hull.append(place)
    return hull
