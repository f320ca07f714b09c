"""Which way of spreading a device's events over cells is the easiest to see in the noisy counts.

Noise that is not Gaussian does not go by the L2 norm alone. `exposed_exchanges` looks at each step towards less
equal parts, (a, b) -> (a + 1, b - 1) with a >= b, and says where it is *not* the easier one to see.
"""

from __future__ import annotations

import numpy as np

from tacit.errors import BadInput
from tacit.privacy.accounting.counts import shift_atoms
from tacit.privacy.accounting.grid import Floats
from tacit.privacy.releases import NoisyCounts

MOST_PARTS = 8  # up to here all exchanges are looked at; beyond, parts of some sizes
ROUNDING = 1e-12
MOST_WORK = 10**6  # values of noise times exchanges: ten seconds or so
BEYOND_ALL = 1e4  # a loss that stands for infinity


def exposed_exchanges(release: NoisyCounts, each: int, points: int = 60) -> list[tuple[int, int]]:
    """The (a, b) with a >= b for which counts that change by (a + 1, b - 1) do *not* dominate (a, b).

    Where the list is empty, any change of a level by parts of at most `each` is dominated by the most unequal
    one: steps of this kind lead there from every other. Dominating pairs compose, also adaptively, so that
    holds for all levels of a run together, however the parts differ between them.

    Compared are the hockey-stick divergences, at `points` epsilons from 0 to the largest loss, up to 1e-12. For
    discrete Gaussian and Skellam noise we know no proof, and found none exposed at any noise tried; for single
    Gaussian counts it follows from the L2 norm, and for discrete Laplace at delta = 0 only the sum counts.

    Noise so wide that this would take long is refused: devices look, too, at whatever round comes.

    Source: domination: Zhu, Dong, Wang 2022 (arXiv 2106.08567).
    """
    exchanges = _exchanges(each)
    atoms = len(shift_atoms(release, 1)[0])
    if atoms * len(exchanges) > MOST_WORK:
        raise BadInput(
            f"expected narrower noise or at most a few counts in a cell, got {atoms:,} values of noise and "
            f"{each} counts: too many ways to look at"
        )
    return [pair for pair in exchanges if _is_exposed(release, *pair, points)]


def _exchanges(each: int) -> list[tuple[int, int]]:
    sizes = list(range(1, each))
    if each > MOST_PARTS:
        sizes = sorted({round(float(size)) for size in np.geomspace(1, each - 1, MOST_PARTS)})
    return [(a, b) for a in sizes for b in sizes if b <= a]


def _is_exposed(release: NoisyCounts, a: int, b: int, points: int) -> bool:
    losses = shift_atoms(release, a + 1)[0]
    highest = float(losses[np.isfinite(losses)].max())
    epsilons = np.r_[0.0, np.geomspace(highest * 1e-4, highest * 1.5, points - 1)]
    apart, equal = hockey_stick(release, (a + 1, b - 1), epsilons), hockey_stick(release, (a, b), epsilons)
    return bool((equal > apart * (1 + ROUNDING) + ROUNDING).any())


def hockey_stick(release: NoisyCounts, changes: tuple[int, int], epsilons: Floats) -> Floats:
    """(epsilons,) the delta at each epsilon of two counts that change by so much; the second may be 0."""
    losses, mass = _falling_atoms(release, changes[0])
    second, second_mass = _falling_atoms(release, changes[1]) if changes[1] else (np.zeros(1), np.ones(1))
    # Of the second count, P(loss >= l_j), and the neighbour's probability there: the sum of p e^-loss.
    above = np.r_[0.0, np.cumsum(second_mass)]
    neighbour = np.r_[0.0, np.cumsum(np.exp(np.minimum(np.log(second_mass) - second, 0.0)))]
    with np.errstate(divide="ignore"):
        log_neighbour = np.log(neighbour)
    found = np.empty(len(epsilons))
    for at, epsilon in enumerate(epsilons):
        needed = epsilon - losses  # of the second count, to go beyond epsilon
        beyond = np.searchsorted(-second, -needed)
        lost = np.exp(np.minimum(needed + log_neighbour[beyond], 700.0))
        found[at] = mass @ np.maximum(above[beyond] - lost, 0.0)
    return found


def _falling_atoms(release: NoisyCounts, change: int) -> tuple[Floats, Floats]:
    """Losses from the largest down, and their masses; infinite ones count as larger than any that matters."""
    losses, mass = shift_atoms(release, change)
    seen = mass > 1e-300
    losses, mass = np.minimum(losses[seen], BEYOND_ALL), mass[seen]
    order = np.argsort(-losses)
    return losses[order], mass[order]
