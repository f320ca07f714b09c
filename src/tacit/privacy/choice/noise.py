"""Noise for report-noisy-max, and the exact law of the winner under each.

Gumbel noise gives softmax, the exponential mechanism. Exponential noise gives permute-and-flip, by Gauss-
Legendre quadrature that is exact for its polynomial. For Laplace noise, candidate i wins with probability
the integral of f(z - t_i) prod_{j != i} F(z - t_j) dz. Where z is above all signals t it is the integral of
a polynomial in e^-z. Below all of them it has a closed form. In the gap between two neighbouring signals
the integrand is a sum of exponentials e^(r z) with |r| <= a, and positive, so Gauss-Legendre on panels of
width about 32 / a, wider further inside a wide gap, is as good as doubles are.

`ragged_pmf` takes requests with different numbers of candidates, those of one size together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import log_softmax

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.privacy.choice.choice import check_scores

Long = NDArray[np.longdouble]


@cache
def unit_nodes(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1]: exact for polynomials of degree below 2 `count`.

    NumPy's weights next to the ends are off by 1e-12 at 50 nodes, just where laws of many candidates have their
    mass. One more Newton step, in long doubles where the machine has them, leaves the last digit of a double.
    """
    nodes = leggauss(count)[0].astype(np.longdouble)
    value, slope = _legendre(nodes, count)
    nodes -= value / slope
    _, slope = _legendre(nodes, count)
    weights = 1 / ((1 - nodes**2) * slope**2)
    return ((1 + nodes) / 2).astype(np.float64), (weights / weights.sum()).astype(np.float64)


def _legendre(x: Long, degree: int) -> tuple[Long, Long]:
    """The Legendre polynomial of this degree and its derivative, by their recurrence."""
    before: Long = np.ones_like(x)
    value = x
    for n in range(2, degree + 1):
        before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / np.longdouble(n)
    return value, degree * (before - x * value) / (1 - x**2)


def gumbel_log_pmf(signals: Floats) -> Floats:
    """ln of each candidate's chance when independent standard Gumbel noise is added to signals (n, a).

    Source: McSherry, Talwar 2007; Laro et al. 2023, eq. 5.
    """
    law: Floats = log_softmax(signals, axis=1)
    return law


def permute_and_flip_log_pmf(signals: Floats) -> Floats:
    """ln of each candidate's chance when independent Exp(1) noise is added to signals (n, a).

    Source: McKenna, Sheldon 2020 (arXiv 2010.12603); as noise: Ding et al. 2021 (arXiv 2105.07260).
    """
    below = signals - signals.max(axis=1, keepdims=True)
    law: Floats = below + np.log(others_stay_below(np.exp(below)))
    return law


def others_stay_below(odds: Floats) -> Floats:
    """The integral over y in [0, 1] of prod_{j != i} (1 - odds_j y), for every i; odds (n, a) in [0, 1].

    With y the chance that one's own noise goes so high, it is the chance that nobody else's goes higher. The
    integrand is a polynomial of degree a - 1, so Gauss-Legendre with ceil(a / 2) nodes is exact, and since all
    its terms are positive nothing cancels. (Expanding the product would lose half the digits at a = 100.)
    """
    nodes, node_weights = unit_nodes((odds.shape[1] + 1) // 2)
    total = np.zeros_like(odds)
    for y, weight in zip(nodes.tolist(), node_weights.tolist(), strict=True):
        stays = 1.0 - odds * y  # (n, a), at least 1 - y > 0
        total += weight * (stays.prod(axis=1, keepdims=True) / stays)
    return total


WIDE, NARROW = 32.0, 4.0
"""Widths of a panel times the number of candidates."""

WIDE_NODES, NARROW_NODES = 24, 10
"""q nodes err by about (width a / 4)^2q / (2q)! of the integral: below 1e-17 for both."""

NEGLIGIBLE = 50.0
"""A gap that adds less than e^-50 / a^2 to chances of at least 1 / 2a, all relative, is left out."""

AT_ONCE = 2**18  # doubles in one block of the quadrature


def laplace_log_pmf(signals: Floats) -> Floats:
    """ln of each candidate's chance when independent Laplace(1) noise is added to signals (n, a)."""
    count = signals.shape[1]
    below = signals - signals.max(axis=1, keepdims=True)  # (n, a), at most 0
    # Chances relative to e^below, which is their order of magnitude: none of them underflows.
    relative = others_stay_below(np.exp(below) / 2) / 2
    lowest = below.min(axis=1, keepdims=True)
    tail = count * (lowest - math.log(2)) - below.sum(axis=1, keepdims=True) - math.log(count)
    relative += np.exp(tail - below)
    rows, starts, widths = _panels(below)
    narrow = widths * count <= NARROW
    for nodes, some in ((NARROW_NODES, narrow), (WIDE_NODES, ~narrow)):
        _add_panels(relative, below, rows[some], starts[some], widths[some], nodes)
    law: Floats = below + np.log(relative)
    return law


def _panels(below: Floats) -> tuple[NDArray[np.intp], Floats, Floats]:
    """The gaps between neighbouring signals, cut into panels: row, start and width of each.

    A wide gap is cut in its middle, and each half into panels that double away from the signal: what is steep
    next to a signal has levelled off, or died out, in proportion to the distance.
    """
    count = below.shape[1]
    ordered = np.sort(below, axis=1)
    gaps = np.diff(ordered, axis=1)
    matters = (gaps > 0) & (_log_most_inside(ordered) > -NEGLIGIBLE - 2 * math.log(count))
    first = WIDE / count
    row, place = np.nonzero(matters & (gaps <= first))
    parts = [(row, ordered[row, place], gaps[row, place])]
    row, place = np.nonzero(matters & (gaps > first))
    half = gaps[row, place] / 2
    near, far = np.zeros_like(half), np.minimum(first, half)
    while row.size:
        parts.append((row, ordered[row, place] + near, far - near))
        parts.append((row, ordered[row, place + 1] - far, far - near))
        more = far < half
        row, place, half, near = row[more], place[more], half[more], far[more]
        far = np.minimum(2 * near, half)
    rows, starts, widths = (np.concatenate(part) for part in zip(*parts, strict=True))
    return rows, starts, widths


def _log_most_inside(ordered: Floats) -> Floats:
    """ln of the most that each gap can add to anyone, relative to e^below: everybody above it must fall below.

    For one signal above this is its width / 2; each further one at distance d from the gap's top divides it by
    2 e^d, so that of many signals only the gaps near the best matter.
    """
    tops = ordered[:, 1:]
    above = np.arange(tops.shape[1], 0, -1)
    sums = np.cumsum(tops[:, ::-1], axis=1)[:, ::-1]
    most: Floats = above * (tops - math.log(2)) - sums - tops
    return most + np.log(np.maximum(np.diff(ordered, axis=1), np.finfo(np.float64).tiny))


def _add_panels(
    relative: Floats, below: Floats, rows: NDArray[np.intp], starts: Floats, widths: Floats, nodes: int
) -> None:
    """Add the panels' integrals, over e^below as everything here, to their rows."""
    places, node_weights = unit_nodes(nodes)
    block = max(1, AT_ONCE // (nodes * below.shape[1]))
    for begin in range(0, len(rows), block):
        row = rows[begin : begin + block]
        start, width = starts[begin : begin + block, None], widths[begin : begin + block, None]
        end, signal = start + width, below[row]  # (panels, 1) and (panels, a)
        above = signal > start + width / 2
        log_beyond = np.where(above, -np.inf, np.minimum(signal - start, 0.0) - math.log(2))
        # F of the signals below the panel, 1 for those above: (panels, nodes, a). Both exponents are negative.
        under = 1.0 - np.exp(-width * places)[:, :, None] * np.exp(log_beyond)[:, None, :]
        higher = above.sum(axis=1, keepdims=True)
        fall = np.where(above, signal, 0.0).sum(axis=1, keepdims=True) + higher * math.log(2)
        z = start + width * places  # (panels, nodes)
        everyone = width * node_weights * under.prod(axis=2) * np.exp((higher - 1) * z - fall)  # prod F / e^z
        from_below = np.einsum("pn,pna->pa", everyone / 2, 1.0 / under)  # f / F = e^(t - z) / 2 / F
        from_above = (everyone * np.exp(z - end)).sum(axis=1, keepdims=True)  # f / F = 1
        from_above = from_above * np.exp(np.minimum(end - signal, 0.0))
        np.add.at(relative, row, np.where(above, from_above, from_below))


class Noise(Choice):
    """Independent noise of scale 1, added to each candidate's signal; the largest sum wins.

    Every noise here has P(noise > t + s) >= e^-s P(noise > t) for all t and s >= 0: a hazard rate of at most 1.
    `nominal_rate` rests on it. With all other noise held fixed, a candidate wins where its own is above some t.
    Where each signal moves by d at most, that t moves by 2 d, and so the chance by a factor of e^2d at most. A
    normal law's tail falls ever faster: with it the nominal rate would spend more than it says.
    """

    GUMBEL = "gumbel"
    EXPONENTIAL = "exponential"
    LAPLACE = "laplace"

    def log_pmf(self, signals: Floats) -> Floats:
        """ln of each candidate's chance to win, for signals (n, a): scores times the rate of the noise.

        No chance underflows, however far behind a candidate is.
        """
        return _LAWS[self](signals)

    def pmf(self, signals: Floats) -> Floats:
        law: Floats = np.exp(self.log_pmf(signals))
        return law


_LAWS = {
    Noise.GUMBEL: gumbel_log_pmf,
    Noise.EXPONENTIAL: permute_and_flip_log_pmf,
    Noise.LAPLACE: laplace_log_pmf,
}


def ragged_pmf(noise: Noise, signals: Floats, offsets: NDArray[np.int64]) -> Floats:
    """The law of each request, in the places of its signals; request i has offsets[i] to offsets[i + 1]."""
    expect.kind("signals", signals, np.ndarray)
    given = check_scores(signals, len(signals), axes=1)
    law = np.empty_like(given)
    for places in places_by_size(offsets, len(given)):  # (requests of one size, that size)
        law[places] = noise.pmf(given[places])
    return law


def places_by_size(offsets: NDArray[np.int64], count: int) -> Iterator[NDArray[np.int64]]:
    """Where the candidates of all requests of one size lie, size by size; offsets (requests + 1,)."""
    edges = np.asarray(offsets)
    if edges.dtype.kind not in "iu" or edges.ndim != 1 or not edges.size:
        raise BadInput(f"expected offsets to be a list of whole numbers, got {edges.dtype} of {edges.shape}")
    edges = edges.astype(np.int64)
    sizes = np.diff(edges)
    if edges[0] != 0 or edges[-1] != count:
        raise BadInput(f"expected offsets from 0 to {count}, got {edges[0]} to {edges[-1]}")
    empty = np.flatnonzero(sizes < 1)
    if empty.size:
        raise BadInput(f"expected at least one candidate per request, got none for request {empty[0]}")
    for size in np.unique(sizes).tolist():
        yield edges[:-1][sizes == size][:, None] + np.arange(size)
