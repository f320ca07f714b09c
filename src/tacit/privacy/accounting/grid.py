"""Privacy losses on a grid: exact delta curves become pmfs that can only overstate them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


LARGEST_LOSS = 600.0
"""A loss beyond this counts as infinite: e to that power is no promise."""

MOST_POINTS = 2**23


class TooFine(Exception):
    """The grid would take more points than one mechanism is worth; a coarser one is still a bound."""


def check_size(span: float, grid: float) -> None:
    if span / grid > MOST_POINTS:
        raise TooFine(f"{span / grid:.0f} grid points")


@dataclass(frozen=True)
class LossPmf:
    """One mechanism's loss under the upper distribution: P(loss = (lowest + i) * grid) = probs[i].

    What the pmf lacks to one is the chance of an infinite loss, `infinite`.
    """

    grid: float
    lowest: int
    probs: Floats
    infinite: float = 0.0

    @property
    def losses(self) -> Floats:
        return (self.lowest + np.arange(len(self.probs), dtype=np.float64)) * self.grid


def connect_dots(grid: float, lowest: int, deltas: Floats) -> LossPmf:
    """The pmf on consecutive grid points whose delta curve passes through `deltas` and never below the truth.

    Between two points its delta is linear in e^epsilon, the true one convex in it.
    Source: Doroshenko et al. 2022 (arXiv 2207.04380), algorithm 1.
    """
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    steps = np.diff(deltas)
    probs = np.zeros(len(deltas))
    probs[0] = 1.0 - deltas[0]
    probs[1:] -= steps / -math.expm1(-grid)
    probs[:-1] += steps / math.expm1(grid)
    return LossPmf(grid, lowest, np.maximum(probs, 0.0), float(deltas[-1]))


def from_atoms(grid: float, losses: Floats, mass: Floats, infinite: float = 0.0) -> LossPmf:
    """The pmf of a loss with finitely many values, each split between the grid points around it.

    The split keeps the mass under both distributions, p and p e^-loss, which is what connecting the dots does.
    """
    known = mass > 0
    losses, mass = np.maximum(losses[known], -LARGEST_LOSS), mass[known]
    far = losses > LARGEST_LOSS
    infinite += float(mass[far].sum())
    losses, mass = losses[~far], mass[~far]
    if not len(losses):
        return LossPmf(grid, 0, np.zeros(1), 1.0)
    check_size(float(losses.max() - losses.min()), grid)
    cells = np.floor(losses / grid).astype(np.int64)
    lowest = int(cells.min())
    over = losses - cells * grid
    up = np.clip(np.expm1(-over) / math.expm1(-grid), 0.0, 1.0)
    places = cells - lowest
    probs = np.zeros(int(places.max()) + 2)
    np.add.at(probs, places, mass * (1 - up))
    np.add.at(probs, places + 1, mass * up)
    return LossPmf(grid, lowest, probs, infinite)
