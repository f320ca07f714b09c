"""Holds a private run to the release that was paid for: its noise, its sampling and its clipping.

A run with too little noise, a sampler that reads more than it says, or records that are clipped too late looks
like a very good run. So the run is watched by code that is independent of the code that draws: how far weights
really moved beside how far the noise of the release must move them, how many records were sampled beside how
many should be, and each record's part of a sum beside what its norm allows. A run that differs is stopped, and
nothing leaves.

Guarantee:  an honest run is ended with a probability of at most `FALSE_ALARM`, all of its tests together.
Neighbours: those of the release. Tests are of draws: noise is independent of all records, and so is how many
            of them are sampled, where their total is public. A run that ends only if its draws are as unlikely
            as that keeps its promise with a delta larger by at most e^epsilon `FALSE_ALARM`: what leaves under
            one dataset and would have been stopped under its neighbour is that unlikely there.
Assumes:    the release's numbers are those that were paid for.
Source:     chi-square and binomial tails, exact; their tests over time: `self_checks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from tacit.arrays import Floats32, Ids
from tacit.errors import SelfCheckFailed
from tacit.privacy.randomness import UniformBelow
from tacit.train.examples import Places
from tacit.train.sgd.self_checks import FALSE_ALARM, CountTally, LikenessTally, SquareTally, binomial_tails

LOOKED_AT = 2**14  # weights of a block that dense noise was added to
LOOKED_AT_LAZY = 2**11  # weights of rows that were paid what they are owed
EVERY_STEP, LATER = 16, 8  # all of the first steps are looked at, and one in `LATER` later ones, drawn
STRETCHES = 16  # of places, and their halves: a power of two
SPOTS = 16  # records that are counted one by one
BEGINNING = 8  # draws that two blocks do not share by chance, not even to within a thousandth
COMPARED, ENOUGH = 256, 64  # draws that are compared with earlier ones: fewer than enough would tell nothing
EPS = float(np.finfo(np.float32).eps)
ROUGHEST = 0.02  # of the noise: where a weight's own rounding is more, its move tells nothing
CLOSE = 1e-3

Reals = NDArray[np.floating]


class ReleaseMonitor:
    """Watches the noise and the clipping of one private phase.

    `noise_multiplier` is the release's, in units of `clip_norm`; sums are divided by `expected_batch`.
    """

    def __init__(
        self,
        noise_multiplier: float,
        clip_norm: float,
        expected_batch: float,
        *,
        alpha: float = FALSE_ALARM,
    ) -> None:
        self.noise_stddev = noise_multiplier * clip_norm / expected_batch
        self.clip_norm, self.expected_batch = clip_norm, expected_batch
        self._alpha = alpha / 2
        self._likeness = LikenessTally(alpha / 2)
        self._began = np.empty(0, np.float32)  # of the last look, whatever parameter it was at

    def noise_of(
        self, parameter: str, parameters: int, momentum: float = 0.0, *, below: UniformBelow
    ) -> NoiseMonitor:
        """Watch one of `parameters` parameters, with an equal share of the chance of a false alarm. When and
        where it is looked at is drawn by `below`."""
        return NoiseMonitor(self, parameter, momentum, self._alpha / parameters, below)

    def compare(self, began: Floats32, own: list[Floats32], rounding: float) -> None:
        """Stop unless a look's first draws are unlike those of its own last looks and of the last of all."""
        off = math.sqrt(len(began)) * rounding
        for earlier in (*own, self._began):
            self._likeness.compare(began, earlier, off)
        self._began = began

    def check_clipped(self, residual: Floats32, norms: Floats32, coefficients: Floats32) -> None:
        """Stop unless each example's part of the sum is what its (or its group's) norm leaves of it."""
        # coefficient max(norm, C) = residual C / batch, up to the margin that clipping leaves and rounding.
        found = coefficients * np.maximum(norms, np.float32(self.clip_norm))
        expected = residual * np.float32(self.clip_norm / self.expected_batch)
        off = np.abs(found - expected) - np.float32(1e-4) * np.abs(expected)
        if not off.max(initial=0.0) <= 1e-30:  # what is not a number is no less
            raise SelfCheckFailed(
                f"clipping: expected gradients scaled to norms of at most {self.clip_norm:g}, got others; the "
                "run was stopped and nothing leaves"
            )


@dataclass(frozen=True)
class ArrayBefore:
    """A flat array before noise is added to it: its beginning, and a stretch somewhere."""

    places: tuple[slice, slice]
    values: tuple[Floats32, Floats32]


@dataclass(frozen=True)
class RowsBefore:
    """Some rows of a table before they are paid what they are owed."""

    rows: Ids | slice
    starts: Ids
    weights: Floats32
    velocity: Floats32 | None


def is_looked_at(step: int, below: UniformBelow) -> bool:
    """Whether step 0, 1, ... is looked at: all of the first, so that short runs are seen, and some later ones
    that nobody can tell beforehand, so that long ones are cheap."""
    return step < EVERY_STEP or below(LATER) == 0


class NoiseMonitor:
    """The noise of one parameter, as it arrives in its weights (or in the sum that its optimizer is given)."""

    def __init__(
        self, whole: ReleaseMonitor, parameter: str, momentum: float, alpha: float, below: UniformBelow
    ) -> None:
        self._whole, self.stddev = whole, whole.noise_stddev
        self._momentum, self.below = momentum, below
        each = alpha / 2 if momentum else alpha
        self._weights = SquareTally(f"the noise of {parameter}", each)
        self._velocity = SquareTally(f"the noise in the velocity of {parameter}", each)
        self._began: list[Floats32] = []  # of the last two looks
        self._rates, self._steps = np.empty(64), 0
        self._law: OwedNoise | None = None

    def before_adding(self, array: Floats32) -> ArrayBefore:
        first = self.below(max(1, len(array) - LOOKED_AT + 1))  # elsewhere every time
        places = slice(0, COMPARED), slice(first, first + LOOKED_AT)
        return ArrayBefore(places, (array[places[0]].copy(), array[places[1]].copy()))

    def check_added(self, array: Floats32, before: ArrayBefore, factor: float = 1.0) -> None:
        """Stop unless `array` has moved by fresh noise of this factor's share of the standard deviation."""
        stddev = self.stddev * factor
        began, moved = (
            (array[place] - was) / np.float32(stddev)
            for place, was in zip(before.places, before.values, strict=True)
        )
        self._expect_fresh(began, float(np.abs(before.values[0]).max(initial=0.0)) * EPS / stddev)
        self._tally(self._weights, moved, np.abs(before.values[1]) / np.float32(stddev))

    def step(self, rate: float) -> None:
        """A step was taken whose noise rows are owed."""
        if self._steps == len(self._rates):
            self._rates = np.concatenate([self._rates, np.empty_like(self._rates)])
        self._rates[self._steps] = rate
        self._steps += 1
        self._law = None

    def clear_owed(self) -> None:
        """All rows were paid."""
        self._steps, self._law = 0, None

    def close(self) -> None:
        """Test what was added since the last tests, before weights leave: SelfCheckFailed if it is wrong."""
        self._weights.close()
        self._velocity.close()

    @property
    def waits(self) -> bool:
        """Whether steps have passed whose noise rows are still owed."""
        return self._steps > 0

    @property
    def owed(self) -> OwedNoise:
        if self._law is None:
            self._law = OwedNoise.after_steps(self._rates[: self._steps], self._momentum)
        return self._law

    def check_factors(self, factors: Floats32, keep: float) -> None:
        """Stop unless the factors by which rows are paid, by start, give the variances that they are owed."""
        law, exact = self.owed, factors.astype(np.float64)
        weights, velocity = law.weights * self.stddev**2, law.velocities * (keep * self.stddev) ** 2
        if not self._momentum:
            close = np.abs(exact[:, 0] ** 2 - weights) <= CLOSE * weights
        else:
            a, b, c = exact.T
            both = law.both * keep * self.stddev**2
            close = np.abs(a * a - velocity) <= CLOSE * velocity
            close &= np.abs(b * b + c * c - weights) <= CLOSE * weights
            close &= np.abs(a * b - both) <= CLOSE * np.abs(both)
        if not close.all():
            raise SelfCheckFailed(
                "noise: expected rows to be owed the noise of the steps that they waited, got another; the run "
                "was stopped and nothing leaves"
            )

    def before_paying(
        self, rows: Ids | range, since: Ids, weights: Floats32, velocity: Floats32 | None
    ) -> RowsBefore:
        count = max(1, LOOKED_AT_LAZY // weights.shape[1])
        first = self.below(max(1, len(rows) - count + 1))
        some = rows[first : first + count]
        place: Ids | slice = slice(some.start, some.stop) if isinstance(some, range) else some
        speed = None if velocity is None else velocity[place].copy()
        return RowsBefore(place, since[place].copy(), weights[place].copy(), speed)

    def check_paid(self, before: RowsBefore, weights: Floats32, velocity: Floats32 | None, keep: float) -> None:
        """Stop unless these rows moved by noise of the variance that each is owed, and by their velocity."""
        law, starts = self.owed, before.starts
        stddev = (np.sqrt(law.weights) * self.stddev).astype(np.float32)[starts, None]
        moved, size = weights[before.rows] - before.weights, 2 * np.abs(before.weights)
        if before.velocity is not None:
            drift = law.drifts.astype(np.float32)[starts, None] * before.velocity
            moved -= drift
            size += 4 * np.abs(drift)
        self._tally(self._weights, moved / stddev, size / stddev)
        if before.velocity is None or velocity is None:
            return
        stddev = (np.sqrt(law.velocities) * self.stddev * keep).astype(np.float32)[starts, None]
        kept = (law.decays * keep).astype(np.float32)[starts, None] * before.velocity
        self._tally(self._velocity, (velocity[before.rows] - kept) / stddev, 2 * np.abs(kept) / stddev)

    def _tally(self, tally: SquareTally, moved: Reals, size: Reals) -> None:
        """Moves in units of their noise, of numbers as large as `size` of it: they are known to a few units in
        the last place of that, and not looked at where this would hide too much."""
        rounding = np.float32(EPS) * size.ravel()
        fine = rounding <= ROUGHEST
        if fine.all():
            tally.add(moved.ravel(), rounding)
        else:
            tally.add(moved.ravel()[fine], rounding[fine])

    def _expect_fresh(self, began: Floats32, rounding: float) -> None:
        if len(began) < BEGINNING or not rounding <= 0.01:
            return
        if self._began:
            apart = np.abs(self._began[-1][:BEGINNING] - began[:BEGINNING])
            if len(apart) == BEGINNING and np.all(apart <= 1e-3 + 2 * rounding):
                raise SelfCheckFailed(
                    "noise: expected fresh draws, got the last ones again; the run was stopped"
                )
        if len(began) >= ENOUGH:
            self._whole.compare(began, self._began, 1e-5 + 2 * rounding)
        self._began = [*self._began[-1:], began]


@dataclass(frozen=True)
class OwedNoise:
    """What rows are owed by when they were last up to date, in units of one step's noise.

    By start: 0 for rows that have waited through all steps, j > 0 for those that step j read, which are owed
    that step's noise too. Written as sums over the steps, of terms of one sign: nothing cancels, so each is
    right to a few 1e-13 of itself at any schedule. (`draws` brings variances up to date step by step.)
    """

    weights: NDArray[np.float64]  # variances
    velocities: NDArray[np.float64]
    both: NDArray[np.float64]  # covariances: a velocity's noise goes against its weight's
    decays: NDArray[np.float64]  # what is left of a velocity that a row had
    drifts: NDArray[np.float64]  # how far it has moved the weight

    @classmethod
    def after_steps(cls, rates: NDArray[np.float64], momentum: float) -> OwedNoise:
        """After one or more steps of these rates.

        A unit of noise in step i moves the weight, in the end, by -(r_i + momentum r_(i+1) + momentum^2 r_(i+2)
        + ...), and leaves momentum^(steps - i) of the velocity.
        """
        backwards = rates[::-1]
        effects = lfilter([1.0], [1.0, -momentum], backwards) if momentum else backwards
        left = momentum ** np.arange(len(rates), dtype=np.float64)  # of a velocity, the last step first

        def by_start(terms: NDArray[np.float64]) -> NDArray[np.float64]:
            sums = np.cumsum(terms)[::-1]
            return np.concatenate([sums[:1], sums])  # start 0 is owed all steps, and so is start 1

        return cls(
            weights=by_start(effects**2),
            velocities=by_start(left**2),
            both=-by_start(left * effects),
            decays=momentum ** np.arange(len(rates), -1.0, -1.0),
            drifts=-momentum * np.concatenate([effects[::-1], [0.0]]),
        )


class SamplingMonitor:
    """The samples of one private phase: of `records`, each joins a step with the release's probability.

    Their sizes are secret: they are counted here and told nobody. Tests are of how many joined, over all steps;
    of how often a size was close to the expected one (batches of a fixed size always are); of how many joined
    from each half, quarter, eighth and sixteenth of the places; and of how often a few records did: the first,
    the last, and others that `below` draws.
    """

    def __init__(
        self,
        records: int,
        sampling_probability: float,
        steps: int,
        *,
        below: UniformBelow,
        alpha: float = FALSE_ALARM,
    ) -> None:
        self._records, self._steps, self._taken = records, steps, 0
        share, expected = sampling_probability, records * sampling_probability
        what = f"records sampled with probability {share:.4g}"
        self._members = CountTally(what, records, share, alpha / 4)
        reach = math.floor(0.3 * math.sqrt(expected * (1 - share)))
        self._middle = round(expected) - reach, round(expected) + reach
        least = float(binomial_tails(self._middle[0] - 1, records, share)[0]) if self._middle[0] else 0.0
        within = float(binomial_tails(self._middle[1], records, share)[0]) - least
        self._close = CountTally("Poisson samples, whose sizes differ", 1, within, alpha / 4)
        self._bounds = np.arange(STRETCHES + 1, dtype=np.int64) * records // STRETCHES
        self._stretches = CountTally(f"all {what}", _by_halves(np.diff(self._bounds)), share, alpha / 4)
        some = [0, records - 1, *(below(records) for _ in range(SPOTS - 2))]
        self._spots = np.unique(np.array(some, np.int64))
        self._single = CountTally(f"single {what}", np.ones_like(self._spots), share, alpha / 4)

    def begin(self, taken: int) -> None:
        """`taken` steps were taken before, by a run that this one goes on from."""
        self._taken = taken

    def check_sample(self, places: Places) -> None:
        """Stop where a step is one too many, or samples are not those of the sampler that was accounted for."""
        self._taken += 1
        if self._taken > self._steps:
            raise SelfCheckFailed(
                f"sampling: expected {self._steps} steps, which were paid for, got one more; nothing leaves"
            )
        size = len(places)
        if size and not (places[0] >= 0 and places[-1] < self._records and (np.diff(places) > 0).all()):
            raise SelfCheckFailed("sampling: expected each record at most once, in order, got others")
        self._members.add(size)
        self._close.add(self._middle[0] <= size <= self._middle[1])
        self._stretches.add(_by_halves(np.diff(np.searchsorted(places, self._bounds))))
        first = np.searchsorted(places, self._spots)
        self._single.add(np.searchsorted(places, self._spots, side="right") - first)

    def close(self) -> None:
        """The last step was taken: stop unless samples since the last tests were right, too."""
        for tally in (self._members, self._close, self._stretches, self._single):
            tally.close()


def _by_halves(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts of a power of two stretches, and of all stretches twice, four times ... as long but the whole."""
    levels = [counts]
    while len(levels[-1]) > 2:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    return np.concatenate(levels)
