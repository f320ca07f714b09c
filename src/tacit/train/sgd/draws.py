"""What a step draws: the examples that it reads, and Gaussian noise, which table rows may be owed.

Examples are a Poisson sample where the accountant assumes one, shuffled epochs elsewhere. Noise is added block
by block, or owed to table rows until they are next read (`SparseTable`).

A row that no example reads in a step still gets that step's noise. Instead of drawing it then, it is drawn when
the row is read: the sum of what it is owed is Gaussian, and one draw replaces all. With momentum the noise of a
step moves the velocity, and through it the weight in all later steps, so velocity and weight are owed a pair
with a joint law:

    [v; w] <- M [v; w] + b x,  M = [[momentum, 0], [-rate momentum, 1]],  b = [1; -rate],  x ~ N(0, stddev^2)

For each step since which a row may have waited (a start), `PendingNoise` keeps the product P of the M of the
steps after it and the covariance of all noise from it on, and brings all of them up to date once per step.
Exact for SGD with any schedule; Adam, Yogi, RMSProp and weight decay are not linear in this way and do not use
it. `monitor` holds the noise that arrives to the release that was paid for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput, SelfCheckFailed
from tacit.kernels import training as kernels
from tacit.privacy.randomness import Source, UniformBelow, WordSource
from tacit.train.examples import Places
from tacit.train.sgd.monitor import BEGINNING, EVERY_STEP, NoiseMonitor, is_looked_at


def poisson_sample(records: int, sampling_probability: float, words: WordSource) -> Places:
    """Each of `records` joins independently with this probability; found by skips, so the cost is the sample's.

    The gap to the next member is geometric: floor(ln u / ln(1 - q)) for a uniform u. u has 64 bits and the
    logarithms are doubles, so a probability is off by a relative 1e-15 or so, and gaps beyond 45 / q do not
    occur. The size of the sample is secret: never print or log it.
    """
    records = expect.whole("records", records, at_least=0)
    share = float(expect.probability("sampling_probability", sampling_probability, one=True))
    if share == 1:
        return np.arange(records, dtype=np.int64)
    per_log = 1 / math.log1p(-share)
    chunks, last = [np.empty(0, np.int64)], -1
    while last < records:
        expected = (records - last) * share
        count = int(expected + 4 * math.sqrt(expected) + 16)
        # (w + 1/2) / 2^64 lies in (0, 1]: never 0, so the logarithm is finite.
        uniform = (words(count).astype(np.float64) + 0.5) * 2.0**-64
        gaps = np.minimum(np.floor(np.log(uniform) * per_log), float(records)).astype(np.int64)
        found = last + np.cumsum(gaps + 1)
        chunks.append(found)
        last = int(found[-1])
    places = np.concatenate(chunks)
    return places[places < records]


def shuffled_epochs(records: int, batch: int, epochs: int, words: WordSource) -> Iterator[Places]:
    """Every record once per epoch, in batches of a fresh order. Not for DP-SGD, which needs Poisson samples."""
    for _ in range(epochs):
        order = order_by_words(words(records))
        for first in range(0, records, batch):
            yield order[first : first + batch]


def order_by_words(words: NDArray[np.uint64]) -> Places:
    """Places in the order of their words, of equals the first: a stable argsort, in a fraction of its time.

    Numbers sort much faster than their places, so each place takes the lowest bits of its word. Where two words
    agree in all other bits (one epoch of a million records in 35) these decide, and then they are sorted whole.
    """
    bits = np.uint64(max(len(words) - 1, 1).bit_length())
    mask = (np.uint64(1) << bits) - np.uint64(1)
    packed = words & ~mask
    packed |= np.arange(len(words), dtype=np.uint64)
    packed.sort()
    leading = packed >> bits
    if (leading[1:] == leading[:-1]).any():
        return np.argsort(words, kind="stable").astype(np.int64)
    packed &= mask
    return packed.view(np.int64)


MOST_STARTS = 1024
"""Steps after which all rows are brought up to date, to bound the starts: one pass in a thousand steps."""
BLOCK = 2**18
"""Normals drawn or added at once: a megabyte, few enough to stay in some cache and many for one call."""

LOOK_EVERY = 16
"""Of the blocks of a large table, one in this number is looked at in a step that is."""


class PendingNoise:
    """The law of the noise that rows are owed which nobody has read, by the start from which each waits.

    Start 0 is the last time that all rows were up to date; start j > 0 is step j after it, when a row that was
    read got its gradient but not that step's noise.
    """

    def __init__(self, noise_stddev: float, momentum: float) -> None:
        self.noise_stddev, self.momentum = noise_stddev, momentum
        self.begin()

    def begin(self) -> None:
        """Begin to count anew: all rows are up to date, and none is owed noise."""
        self.steps = 0
        size = MOST_STARTS + 1
        self._decay, self._drift = np.ones(size), np.zeros(size)  # the first column of P
        self._vv, self._vw, self._ww = np.zeros(size), np.zeros(size), np.zeros(size)

    @property
    def full(self) -> bool:
        return self.steps == MOST_STARTS

    def advance(self, rate: float) -> None:
        """One more step was taken at this rate; it is a start for the rows that it read."""
        open_starts = slice(0, self.steps + 1)
        momentum, variance = self.momentum, self.noise_stddev**2
        vv, vw, ww = self._vv[open_starts], self._vw[open_starts], self._ww[open_starts]
        # Sigma <- M Sigma M' + variance b b', written out; the old values are used up in the order w, v w, v.
        moved = rate * momentum
        ww += moved * (moved * vv - 2 * vw) + variance * rate**2
        vw *= momentum
        vw -= momentum * moved * vv + variance * rate
        vv *= momentum**2
        vv += variance
        # P <- M P.
        self._drift[open_starts] -= moved * self._decay[open_starts]
        self._decay[open_starts] *= momentum
        self.steps += 1
        new = self.steps
        self._decay[new], self._drift[new] = 1.0, 0.0
        self._vv[new], self._vw[new], self._ww[new] = variance, -variance * rate, variance * rate**2

    @property
    def decay(self) -> NDArray[np.float64]:
        """By start: what is left of a velocity."""
        return self._decay[: self.steps + 1]

    @property
    def drift(self) -> NDArray[np.float64]:
        """By start: how far a velocity of 1 has moved its weight."""
        return self._drift[: self.steps + 1]

    @property
    def factors(self) -> NDArray[np.float64]:
        """By start: (a, b, c), so that (a x, b x + c y) for normals x, y is the pair that (v, w) is owed."""
        vv, vw, ww = (part[: self.steps + 1] for part in (self._vv, self._vw, self._ww))
        a = np.sqrt(vv)
        b = np.divide(vw, a, out=np.zeros_like(a), where=a > 0)
        c = np.sqrt(np.maximum(ww - b * b, 0.0))
        return np.stack([a, b, c], axis=1)

    @property
    def weight_factors(self) -> NDArray[np.float64]:
        """The same for a weight alone, where there is no momentum: (stddev, 0, 0)."""
        stddev = np.sqrt(self._ww[: self.steps + 1])
        return np.stack([stddev, np.zeros_like(stddev), np.zeros_like(stddev)], axis=1)


def noise_blocks(
    size: int, at_once: int, step: int, below: UniformBelow | None
) -> Iterator[tuple[slice, bool]]:
    """Cut 0..size into blocks, and say which of them to look at in this step: each in its turn at first, and
    later on as `below` draws it. Without it, none."""
    count = -(-size // at_once)
    turns, looks = max(1, min(count, LOOK_EVERY)), below is not None and is_looked_at(step, below)
    turn = step % turns if step < EVERY_STEP or below is None else below(turns)
    for index in range(count):
        yield slice(index * at_once, min(size, (index + 1) * at_once)), looks and index % LOOK_EVERY == turn


class TrainingNoise:
    """N(0, stddev^2) from `source`: in blocks of at most `BLOCK` that the next draw overwrites, or added."""

    def __init__(self, source: Source, stddev: float) -> None:
        self.stddev = float(expect.positive("noise stddev", stddev))
        self._source = source
        self._block = np.empty(BLOCK, np.float32)
        self._began = np.empty(0, np.float32)

    def draw_unit(self, count: int) -> Floats32:
        """The next `count` draws, scaled to 1, for a caller that scales them by a law of its own."""
        block: Floats32 = self._source.normal(out=self._block[:count])
        began, self._began = self._began, block[:BEGINNING].copy()
        if count >= BEGINNING and np.array_equal(began, self._began):
            raise SelfCheckFailed("noise: expected fresh draws, got the last ones again; the run was stopped")
        return block

    def add_to(self, array: Floats32, factor: float = 1.0) -> None:
        """array += factor * noise, for a flat array, in place."""
        self._source.add_normal(array, self.stddev * factor)


def add_noise(
    noise: TrainingNoise, monitor: NoiseMonitor, array: Floats32, factor: float = 1.0, *, look: bool
) -> None:
    """array += factor * noise, for a flat array, in place; with a look at how far some of it moved."""
    before = monitor.before_adding(array) if look else None
    noise.add_to(array, factor)
    if before is not None:
        monitor.check_added(array, before, factor)


class SparseTable:
    """SGD that touches only the rows that a step reads; noise waits until a row is read again (`lazy`), or is
    added to the whole table (dense, without momentum), or there is none."""

    def __init__(
        self,
        weights: Floats32,
        rows: slice,
        momentum: float,
        noise: TrainingNoise | None,
        monitor: NoiseMonitor | None = None,
        *,
        lazy: bool,
    ) -> None:
        if noise is not None and not lazy and momentum:
            raise BadInput("expected lazy noise for row-wise SGD with momentum, got dense noise")
        if (noise is None) != (monitor is None):
            raise BadInput("expected noise and its monitor, got one without the other")
        self.accumulator = np.zeros_like(weights)
        self.pulls: Floats32 | None = np.zeros(len(weights), np.float32)
        self._weights, self._rows, self._momentum = weights, rows, momentum
        self._noise, self._monitor = noise, monitor
        self._waits = momentum > 0 or (noise is not None and lazy)
        stddev = noise.stddev if noise is not None and lazy else 0.0
        self._pending = PendingNoise(stddev, momentum)
        self._stamps = np.full(len(weights), -1, np.int32)
        self._since = np.zeros(len(weights) if self._waits else 0, np.int32)
        self._read = np.empty(2 * len(weights), np.int32)  # each microbatch is offered room for every row
        self._reads, self._step = 0, 0

    def prepare(self, ids: Ids) -> None:
        first = self._reads
        self._reads += kernels.touch(ids, self._stamps, self._step, self._read[first:])
        if self._waits:
            self._catch_up(self._read[first : self._reads])

    def finish(self, rate: float) -> None:
        read = self._read[: self._reads]
        keep = 1.0 if self._momentum else 0.0  # a velocity slows down when its row is next brought up to date
        kernels.apply_rows(self._weights, self.accumulator, read, rate, keep, self.pulls)
        if self._waits:
            self._pending.advance(rate)
            if self._monitor is not None:
                self._monitor.step(rate)
            if self._pending.full:
                self.settle()
        elif self._noise is not None and self._monitor is not None:
            weights = self._weights[self._rows].reshape(-1)
            for block, look in noise_blocks(len(weights), 4 * BLOCK, self._step, self._monitor.below):
                add_noise(self._noise, self._monitor, weights[block], rate, look=look)
        self._reads, self._step = 0, self._step + 1

    def settle(self) -> None:
        if not self._waits or self._pending.steps == 0:
            return
        self._catch_up(range(self._rows.start, self._rows.stop), next_step=False)
        self._pending.begin()
        if self._monitor is not None:
            self._monitor.clear_owed()
        self._since[:] = 0

    @property
    def memory(self) -> dict[str, Floats32]:
        return {"velocity": self.accumulator} if self._momentum else {}

    def _catch_up(self, rows: Ids | range, *, next_step: bool = True) -> None:
        """Pay what these rows are owed; before the next step also decay their velocity, which it will add
        to."""
        pending, width = self._pending, self._weights.shape[1]
        keep = self._momentum if next_step else 1.0
        velocity = self.accumulator if self._momentum else None
        factors = pending.factors if self._momentum else pending.weight_factors
        if self._momentum:
            factors[:, 0] *= keep
        decay, drift = (pending.decay * keep).astype(np.float32), pending.drift.astype(np.float32)
        owed = kernels.never_closer_to_zero(factors)
        monitor = self._monitor if self._monitor is not None and self._monitor.waits else None
        if monitor is not None and next_step and not is_looked_at(self._step, monitor.below):
            monitor = None
        if monitor is not None:
            monitor.check_factors(owed, keep)
        now = pending.steps + 1  # the step to come, from which these rows will wait next
        at_once = max(1, BLOCK // (width * (2 if self._momentum else 1)))
        for first in range(0, len(rows), at_once):
            some = rows[first : first + at_once]
            normals = None
            if self._noise is not None:
                shape = (2, len(some), width) if self._momentum else (len(some), width)
                normals = self._noise.draw_unit(math.prod(shape)).reshape(shape)
            before = None
            if monitor is not None:
                before = monitor.before_paying(some, self._since, self._weights, velocity)
            kernels.catch_up(self._weights, velocity, some, self._since, 0, now, decay, drift, owed, normals)
            if monitor is not None and before is not None:
                monitor.check_paid(before, self._weights, velocity, keep)
