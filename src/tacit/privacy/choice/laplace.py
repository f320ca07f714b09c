"""The winner of a contest with Laplace noise: a polynomial above the best signal, quadrature between signals.

Candidate i wins with probability ∫ f(z - t_i) prod_{j != i} F(z - t_j) dz. Where z is above all signals t it
is the integral of a polynomial in e^-z. Below all of them it has a closed form. In the gap between two
neighbouring signals the integrand is a sum of exponentials e^(r z) with |r| <= a, and positive, so
Gauss-Legendre on panels of width about 32 / a, wider further inside a wide gap, is as good as doubles are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.choice.choice import Floats
from tacit.privacy.choice.nodes import unit_nodes
from tacit.privacy.choice.permute_and_flip import others_stay_below

WIDE, NARROW = 32.0, 4.0
"""Widths of a panel times the number of candidates."""

WIDE_NODES, NARROW_NODES = 24, 10
"""q nodes err by about (width a / 4)^2q / (2q)! of the integral: below 1e-17 for both."""

NEGLIGIBLE = 50.0
"""A gap that adds less than e^-50 / a^2 to chances of at least 1 / 2a, all relative, is left out."""

AT_ONCE = 2**18  # doubles in one block of the quadrature


def log_pmf(signals: Floats) -> Floats:
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
        from_above = (everyone * np.exp(z - end)).sum(axis=1, keepdims=True) * np.exp(
            np.minimum(end - signal, 0.0)
        )  # f / F = 1
        np.add.at(relative, row, np.where(above, from_above, from_below))
