"""Running tallies of a run's randomness, tested as they grow, with exact tails and a stated false alarm rate.

A tally is tested at counts that are fixed beforehand and grow by a constant factor, each time with an equal
share of its chance of a false alarm. So all tests of a tally together accuse honest draws with at most that
chance, however long the run is and whenever it ends (a union bound; nothing is assumed of how tests hang
together). Between two counts a tally only adds up.

What is tested are draws, never data: that a draw is looked at may depend on what happened before it, its value
does not. So what a tally says tells nothing about anybody: honest draws pass whatever the records are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammainc, gammaincc

from tacit.errors import SelfCheckFailed

FALSE_ALARM = 1e-15
"""The chance that an honest run is ended, per run: so small that e^epsilon of it is nothing beside a delta."""

TESTS = 64
"""Tests of a tally at most, each with this part of its chance of a false alarm."""

FIRST_DRAWS, MORE_DRAWS = 8, 1.5  # the last test of squares would be at 10^12 draws
MORE_STEPS = 1.25  # the last test of counts at 10^6 steps
ROUNDING = 1e-6  # of a norm: what sums of so many floats may be off by


class SquareTally:
    """The squares of what must be independent standard normals: their sum has a chi-square law.

    Draws may be known only roughly: `add` is told by how much all of them together may be off, in norm.
    """

    def __init__(self, what: str, alpha: float) -> None:
        self._what, self._alpha = what, alpha / (2 * TESTS)  # two tails
        self._count, self._total, self._off, self._tests = 0, 0.0, 0.0, 0
        self._next = FIRST_DRAWS

    def add(self, draws: NDArray[np.floating], rounding: NDArray[np.floating] | None = None) -> None:
        """Take these in, in their order; stops the run where a test fails."""
        if not len(draws):
            return
        squares = np.square(draws, dtype=np.float64)
        if rounding is not None:
            self._off += float(np.square(rounding, dtype=np.float64).sum())
        first = 0
        while self._count + len(squares) - first >= self._next and self._tests < TESTS:
            past = first + self._next - self._count
            self._take(squares[first:past])
            self._test()
            first = past
        self._take(squares[first:])

    def _take(self, squares: NDArray[np.float64]) -> None:
        self._count += len(squares)
        self._total += float(squares.sum())

    def _test(self) -> None:
        self._tests += 1
        self._next = math.ceil(self._next * MORE_DRAWS)
        _expect_squares(self._what, self._count, self._total, self._off, self._alpha)


def expect_normals(what: str, draws: NDArray[np.float64], alpha: float) -> None:
    """Stop unless the squares of these are those of standard normals: one test, of so small a chance."""
    _expect_squares(what, draws.size, float(np.square(draws).sum()), 0.0, alpha / 2)


def _expect_squares(what: str, count: int, total: float, off: float, tail: float) -> None:
    """Stop unless each tail beyond this sum of so many squares has a chance of at least `tail`; `off` is the
    square of what all draws together may be off by."""
    norm, off = math.sqrt(total), math.sqrt(off)
    most, least = norm * (1 + ROUNDING) + off, max(0.0, norm * (1 - ROUNDING) - off)
    # Written so that what is not a number fails.
    if gammainc(count / 2, most**2 / 2) >= tail and gammaincc(count / 2, least**2 / 2) >= tail:
        return
    raise SelfCheckFailed(
        f"noise: expected {what} to have the variance that was paid for, got {total / count:.3g} times it "
        f"over {count} draws; the run was stopped and nothing leaves"
    )


class CountTally:
    """How many of independent trials of one known chance came up, `trials` of them in each step."""

    def __init__(self, what: str, trials: int, chance: float, alpha: float) -> None:
        self._what, self._trials, self._chance = what, trials, chance
        self._alpha = alpha / (2 * TESTS)
        self._steps, self._hits, self._tests, self._next = 0, 0, 0, 1

    def add(self, hits: int) -> None:
        """One more step; stops the run where a test fails. How many there were stays secret."""
        self._steps, self._hits = self._steps + 1, self._hits + hits
        if self._steps < self._next or self._tests >= TESTS:
            return
        self._tests += 1
        self._next = max(self._next + 1, math.ceil(self._next * MORE_STEPS))
        low, high = binomial_tails(self._hits, self._steps * self._trials, self._chance)
        if not (low >= self._alpha and high >= self._alpha):
            raise SelfCheckFailed(
                f"sampling: expected {self._what}, got too {'few' if low < self._alpha else 'many'} over "
                f"{self._steps} steps; the run was stopped and nothing leaves"
            )


def binomial_tails(hits: int, trials: int, chance: float) -> tuple[float, float]:
    """P(X <= hits) and P(X >= hits) for a binomial X, by the incomplete beta function."""
    if chance >= 1 or trials == 0:
        expected = trials if chance >= 1 else 0
        return float(hits >= expected), float(hits <= expected)
    low = 1.0 if hits >= trials else float(betainc(trials - hits, hits + 1, 1 - chance))
    high = 1.0 if hits <= 0 else float(betainc(hits, trials - hits + 1, chance))
    return low, high
