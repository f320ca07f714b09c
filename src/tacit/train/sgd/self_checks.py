"""How a private run checks itself: sequential tests of its draws, and records computed a second time.

A run that clips too little or forgets its noise looks like a very good run. In every step one record and one
table row are computed again, slowly and independently. They are drawn afresh in every step, so that an error
anywhere is met sooner or later; then the run stops, and nothing leaves.

A tally of draws is tested at counts that are fixed beforehand and grow by a constant factor, each time with an
equal share of half of its chance of a false alarm; the other half is for tests before something leaves, of
which the k-th has the share 1 / (k (k + 1)). So all tests of a tally together accuse honest draws with at most
that chance, however long the run is and whenever it ends (a union bound; nothing is assumed of how tests depend
on one another). Between two counts a tally only adds up. What is tested are draws, never data: that a draw is
looked at may depend on what happened before it, its value does not. So a tally tells nothing about anybody:
honest draws pass whatever the records are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammainc, gammaincc

from tacit.arrays import Floats, Floats32
from tacit.errors import SelfCheckFailed
from tacit.train.examples import Places
from tacit.train.models.model import GradientSums, Model, Part, TableIds

FALSE_ALARM = 1e-15
"""The chance that an honest run is ended, per run: so small that e^epsilon of it is nothing beside a delta."""

TESTS = 64
"""Tests of a tally at most, each with this part of its chance of a false alarm."""

FIRST_DRAWS, MORE_DRAWS = 8, 1.5  # the last test of squares would be at 10^12 draws
MORE_STEPS = 1.25  # the last test of counts at 10^6 steps
NEAR = 4.0  # standard deviations: no test is failed by as little
ROUNDING = 1e-6  # of a norm: what sums of many floats may be off by
TOLERANCE = 1e-3
"""Both sides are float32 sums of different order; a forgotten term is off by percents."""

ULPS = 8 * float(np.finfo(np.float32).eps)
TINY = 1e-37  # kernels take smaller numbers for 0

MOST_MEMBERS = 16  # of a group that is looked at; of larger ones the smallest is taken
CANDIDATES = 4  # rows of a record that are tried for one that no other record reads

Counts = NDArray[np.int64]


class SquareTally:
    """The squares of what must be independent standard normals: their sum has a chi-square law.

    Draws may be known only roughly: `add` is told by how much all of them together may be off, in norm.
    """

    def __init__(self, what: str, alpha: float) -> None:
        self._what, self._alpha = what, alpha
        self._whole, self._recent = SquareSum(), SquareSum()  # since the last test
        self._tests, self._closings, self._next = 0, 0, FIRST_DRAWS

    def add(self, draws: NDArray[np.floating], rounding: NDArray[np.floating] | None = None) -> None:
        """Take these in, in their order; stops the run where a test fails."""
        if not len(draws):
            return
        squares = np.square(draws, dtype=np.float64)
        off = None if rounding is None else np.square(rounding, dtype=np.float64)
        first = 0
        while self._whole.count + len(squares) - first >= self._next and self._tests < TESTS:
            past = first + self._next - self._whole.count
            self._take(squares, off, slice(first, past))
            self._tests += 1
            self._next = math.ceil(self._next * MORE_DRAWS)
            self._test(self._alpha / (2 * TESTS))
            first = past
        self._take(squares, off, slice(first, len(squares)))

    def close(self) -> None:
        """Something is about to leave: test what was added since the last test, too."""
        self._closings += 1
        self._test(self._alpha / 2 * closing_share(self._closings))

    def _take(self, squares: Floats, off: Floats | None, some: slice) -> None:
        if some.start == some.stop:
            return
        total, roughly = float(squares[some].sum()), 0.0 if off is None else float(off[some].sum())
        for tally in (self._whole, self._recent):
            tally.add(some.stop - some.start, total, roughly)

    def _test(self, alpha: float) -> None:
        """All that was added, and what was since the last test, by two tails each."""
        self._whole.expect(self._what, alpha / 4)
        if 0 < self._recent.count < self._whole.count:
            self._recent.expect(self._what, alpha / 4)
        self._recent = SquareSum()


@dataclass
class SquareSum:
    """How many there are, their sum, and the square of what all of their draws may be off by, in norm."""

    count: int = 0
    total: float = 0.0
    off: float = 0.0

    def add(self, count: int, total: float, off: float) -> None:
        self.count, self.total, self.off = self.count + count, self.total + total, self.off + off

    def expect(self, what: str, tail: float) -> None:
        """Stop unless both tails of a chi-square law beyond this sum have a chance of at least `tail`."""
        if self.count == 0:
            return
        norm, off = math.sqrt(self.total), math.sqrt(self.off)
        most, least = norm * (1 + ROUNDING) + off, max(0.0, norm * (1 - ROUNDING) - off)
        # Written so that what is not a number fails.
        half = self.count / 2
        if gammainc(half, most**2 / 2) >= tail and gammaincc(half, least**2 / 2) >= tail:
            return
        raise SelfCheckFailed(
            f"noise: expected {what} to have the variance that was paid for, got "
            f"{self.total / self.count:.3g} times it over {self.count} draws; the run was stopped and "
            "nothing leaves"
        )


def expect_normals(what: str, draws: NDArray[np.float64], alpha: float) -> None:
    """Stop unless the squares of these are those of standard normals: one test, of so small a chance."""
    SquareSum(draws.size, float(np.square(draws).sum())).expect(what, alpha / 2)


class LikenessTally:
    """Draws beside others that were there before. In any direction that is fixed beforehand, the component of
    independent standard normals is itself one; earlier draws give such directions."""

    def __init__(self, alpha: float) -> None:
        self._alpha, self._tests = alpha, 0

    def compare(self, draws: NDArray[np.floating], earlier: NDArray[np.floating], off: float) -> None:
        """Stop where draws that may be off by so much, in norm, go along with earlier ones, or against them."""
        count = min(len(draws), len(earlier))
        new, old = draws[:count].astype(np.float64), earlier[:count].astype(np.float64)
        length = math.sqrt(float(old @ old))
        if length == 0:
            return
        self._tests += 1
        along = max(0.0, abs(float(new @ old)) / length - off)
        if not math.erfc(along / math.sqrt(2)) >= self._alpha * closing_share(self._tests):
            raise SelfCheckFailed(
                "noise: expected fresh draws, got some that are like earlier ones; the run was stopped and "
                "nothing leaves"
            )


class CountTally:
    """How many of independent trials of one known chance came up, `trials` of them in each step: of one kind,
    or of several at once, each with an equal share of the chance of a false alarm."""

    def __init__(self, what: str, trials: int | Counts, chance: float, alpha: float) -> None:
        self._what, self._chance = what, chance
        self._trials = np.atleast_1d(np.asarray(trials, np.int64))
        self._alpha = alpha / len(self._trials)
        self._steps, self._hits = 0, np.zeros_like(self._trials)
        self._tested, self._before = 0, self._hits.copy()  # when it was last tested
        self._tests, self._closings, self._next = 0, 0, 1

    def add(self, hits: int | Counts) -> None:
        """One more step; stops the run where a test fails. How many there were stays secret."""
        self._steps += 1
        self._hits += hits
        if self._steps < self._next or self._tests >= TESTS:
            return
        self._tests += 1
        self._next = max(self._next + 1, math.ceil(self._next * MORE_STEPS))
        self._test(self._alpha / (2 * TESTS))

    def close(self) -> None:
        """Something is about to leave: test what was counted since the last test, too."""
        self._closings += 1
        self._test(self._alpha / 2 * closing_share(self._closings))

    def _test(self, alpha: float) -> None:
        """All that was counted, and what was since the last test, by two tails each."""
        self._expect(self._steps, self._hits, alpha / 4)
        if 0 < self._tested < self._steps:
            self._expect(self._steps - self._tested, self._hits - self._before, alpha / 4)
        self._tested, self._before = self._steps, self._hits.copy()

    def _expect(self, steps: int, hits: Counts, tail: float) -> None:
        trials = steps * self._trials
        expected = trials * self._chance
        if not np.any(np.square(hits - expected) > NEAR**2 * expected * (1 - self._chance)):
            return  # nowhere near a tail: exact ones would take a while
        low, high = binomial_tails(hits, trials, self._chance)
        if not (low.min() >= tail and high.min() >= tail):
            raise SelfCheckFailed(
                f"sampling: expected {self._what}, got too {'few' if low.min() < tail else 'many'} over "
                f"{steps} steps; the run was stopped and nothing leaves"
            )


def closing_share(closings: int) -> float:
    """Of the k-th closing test of a tally, however many there will be: all of them add up to 1."""
    return 1 / (closings * (closings + 1))


def binomial_tails(hits: int | Counts, trials: int | Counts, chance: float) -> tuple[Floats, Floats]:
    """P(X <= hits) and P(X >= hits) for a binomial X, by the incomplete beta function."""
    found, of = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    if chance >= 1:
        return np.where(found >= of, 1.0, 0.0), np.where(found <= of, 1.0, 0.0)
    low = betainc(np.maximum(of - found, 1), found + 1, 1 - chance)
    high = betainc(np.maximum(found, 1), np.maximum(of - found + 1, 1), chance)
    low, high = np.where(found >= of, 1.0, low), np.where(found <= 0, 1.0, high)
    return low, np.where(found > of, 0.0, high)


def expect_close(
    what: str, found: NDArray[np.floating], expected: NDArray[np.floating], scale: float = 0.0
) -> None:
    """Stop unless both agree, up to the rounding of numbers as large as `scale` or the largest expected."""
    size = np.abs(expected)
    rounding = 1e-5 * (scale + float(size.max()))
    close = np.abs(found - expected) <= rounding + TOLERANCE * size  # np.allclose takes ten times as long
    if not math.isfinite(rounding) or not close.all():  # what is not finite is not close
        raise SelfCheckFailed(f"{what}, got another; the run was stopped and nothing leaves")


@dataclass(frozen=True)
class ExpectedMove:
    """Where numbers were, how far they are to go from there, and how large the parts are that add up to it,
    which bound what rounding does to it."""

    was: NDArray[np.float64]
    move: NDArray[np.float64]
    size: NDArray[np.float64]


def expect_moved(what: str, found: NDArray[np.floating], moved: ExpectedMove) -> None:
    """Stop unless numbers went by their move: to within a part of the move itself, however small it is beside
    the numbers, and their rounding."""
    rounding = ULPS * (np.abs(moved.was) + np.abs(moved.move) + moved.size) + TINY
    close = np.abs(found - moved.was - moved.move) <= TOLERANCE * np.abs(moved.move) + rounding
    if not close.all():
        raise SelfCheckFailed(f"{what}, got another; the run was stopped and nothing leaves")


def check_clipping(
    model: Model,
    ids: TableIds,
    part: Part,
    residual: Floats32,
    norms: Floats32,
    scale: Floats32,
    clip_norm: np.float32,
    groups: Places | None,
    chosen: int,
) -> None:
    """Stop unless the chosen record's norm is what it says, and every clipped norm keeps within the bound."""
    members = np.array([chosen]) if groups is None else np.flatnonzero(groups == chosen)
    if len(members) > MOST_MEMBERS:  # computed one by one, they would take longer than the step
        members, chosen = _smallest_group(groups)
    slow = slow_norm(model, ids, part, residual, members)
    expect_close(
        "clipping: expected the fast gradient norm of a record to equal the slow one",
        norms[chosen : chosen + 1],
        np.array([slow]),
        float(clip_norm),
    )
    if not float((scale * norms).max()) <= clip_norm:
        raise SelfCheckFailed(
            f"clipping: expected norms of at most {clip_norm:g}, got a larger one; nothing leaves"
        )


def _smallest_group(groups: Places | None) -> tuple[Places, int]:
    assert groups is not None, "a single record is never too many"
    smallest = int(np.argmin(np.bincount(groups)))
    return np.flatnonzero(groups == smallest), smallest


@dataclass(frozen=True)
class RowProbe:
    """A table row that one record of a microbatch reads and no other, as it is before gradients are added
    up."""

    table: str
    row: int
    gradient: Floats32  # what the record is to add to it
    before: Floats32
    pull_before: float

    @classmethod
    def on(
        cls, model: Model, ids: TableIds, part: Part, record: int, coefficient: np.float32, sums: GradientSums
    ) -> RowProbe | None:
        """None where others read all of the rows that were tried."""
        rows = [name for name in model.example_gradient(ids, record, part) if name.endswith("]")]
        for name in rows[:CANDIDATES]:
            table, row = name[:-1].split("[")
            reads = np.count_nonzero(ids[table] == int(row))
            if reads == np.count_nonzero(ids[table][record] == int(row)):
                gradient = model.example_gradient(ids, record, part)[name] * coefficient
                pulls = sums.pulls.get(table)
                before = sums.tables[table][int(row)].copy()
                return cls(table, int(row), gradient, before, 0.0 if pulls is None else float(pulls[int(row)]))
        return None

    def check(self, model: Model, sums: GradientSums) -> None:
        """Stop unless the row got that record's gradient, once."""
        added = sums.tables[self.table][self.row] - self.before
        if self.table in sums.pulls:
            pull = float(sums.pulls[self.table][self.row]) - self.pull_before
            added[1:] -= np.float32(pull) * model.tables[self.table][self.row, 1:]
        scale = float(np.abs(self.before).max() + np.abs(self.gradient).max())
        expect_close(
            "clipping: expected a row to get its one reader's clipped gradient", added, self.gradient, scale
        )


def slow_norm(model: Model, ids: TableIds, part: Part, residual: Floats32, members: Places) -> float:
    """The gradient norm of some records together, from their gradients."""
    total: dict[str, Floats32] = {}
    for index in members.tolist():
        for name, gradient in model.example_gradient(ids, index, part).items():
            own = residual[index] * gradient
            total[name] = total[name] + own if name in total else own
    whole = np.concatenate([gradient.ravel() for gradient in total.values()]).astype(np.float64)
    return math.sqrt(float(whole @ whole))
