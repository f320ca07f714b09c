"""How much each unit's rows count, and how far one unit's labels can move the statistic."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.train.statistic.cells import Cells, Reals

GRID = 2.0**-20
"""Weights are multiples of it, so that sums of weights over fewer than 2^33 rows are exact in any order."""

ROUNDING = 1 + 2.0**-30
"""More than rounding can take from a norm, a sum of positive terms: 2^-53 for each of fewer than 2^22."""


def unit_norms(cells: Cells, shares: Reals, unit: NDArray[np.intp]) -> Reals:
    """For each unit 0, 1, ... the length of the sum of its rows' vectors, tables scaled by roots of shares.

    Guarantee:  replacing the labels of one unit moves S = sum_i y_i phi_i, in that scale, by at most its norm;
                by exactly that much when they all turn from 0 to 1.
    Neighbours: replace label, for one unit. Rows, cells and units are the same in both datasets.
    Assumes:    labels in [0, 1].
    Source:     S moves by sum_j d_j phi_j over the unit's rows, |d_j| <= 1. Entries of phi are >= 0, so no
                entry of that sum is larger in size than that of sum_j phi_j, and neither is its length.
    """
    units = int(unit.max()) + 1 if len(unit) else 0
    squares = np.zeros(units)
    order = np.argsort(unit, kind="stable")
    counts = np.bincount(unit, minlength=units)
    alone = counts[unit] == 1
    several = order[~alone[order]]  # rows of units of more than one, unit by unit
    sorted_unit = unit[several].astype(np.int64)
    for cell, size, share in zip(cells.cell, cells.sizes, shares, strict=True):
        squares[unit[alone]] += share * (cell[alone] < size)
        key = np.sort(sorted_unit * (size + 1) + cell[several])
        first = np.flatnonzero(np.diff(key, prepend=-1))
        times = np.diff(np.append(first, len(key))).astype(np.float64)
        owner, where = np.divmod(key[first], size + 1)
        squares += share * np.bincount(owner, np.where(where < size, times, 0.0) ** 2, minlength=units)
    return np.sqrt(squares)


def unit_weights(norms: Reals, clip_norm: float) -> Reals:
    """1 for a unit whose norm is at most `clip_norm`, and less in proportion for others; rounded down."""
    share = np.minimum(1.0, clip_norm / np.maximum(norms * ROUNDING, clip_norm))
    weights: Reals = np.floor(share / GRID) * GRID
    return weights


def sensitivity(norms: Reals, weights: Reals) -> float:
    """The largest weighted norm of a unit, rounded up: what `GaussianStatistic` asks for."""
    most = float(np.max(norms * weights, initial=0.0))
    return math.nextafter(most * ROUNDING, math.inf)
