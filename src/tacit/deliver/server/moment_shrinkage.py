"""Moment shrinkage: click rates drawn towards the more general context as far as the counts themselves say.

For noisy counts. How much rates vary around those of their parents is measured by moments, level by level,
noise taken off; each cell is then drawn towards its parent by the best linear weight for that spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from tacit.arrays import Floats, Integers
from tacit.deliver.server.estimates import (
    Frame,
    FrameCells,
    Opportunities,
    PairFrame,
    RateEstimate,
    RateState,
    combine_parents,
    descend,
    estimate_cells,
    excess_variance,
    overall_rate,
    plain_residual,
    residual,
    variance_after_clipping,
)
from tacit.display import brief_repr
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.counts import Counts, LevelCounts


def moment_step(
    level: LevelCounts, keys: Integers, prior: RateState, frame: Frame, spread: float, excess: Floats
) -> RateState:
    """The cells of one level, given their parents; `spread` is the variance of rates around the parents'.

    The error of a cell is that of its parent and of its own deviation, as far as shrinkage leaves them; the
    clicks' own variance and the noise, as far as it lets them in; and what ties them, since the parent's count
    holds the same clicks (with noise of its own, which makes it a second look at them).
    """
    cells = frame.cells(level, keys)
    n, weight, rate = _shrink(level, cells, prior.rate, spread)
    bernoulli = prior.rate * (1 - prior.rate)
    noise_in_clicks = plain_residual(level, prior.rate)
    true = Opportunities.behind(n, level.opportunity_variance)
    possible = np.minimum(spread, bernoulli)  # no rate in [0, 1] varies more around its mean
    left = 1 - 2 * weight * true.mean + weight**2 * true.square
    more = np.minimum(cells.spread(level, excess), bernoulli * true.square)
    own = weight**2 * (true.mean * (bernoulli - possible) + more)
    noise = weight**2 * residual(level, prior.rate, true.error)
    tied = 2 * (1 - weight * true.mean) * prior.influence * weight * (more - noise_in_clicks)
    variance = np.maximum(left * (possible + prior.variance) + own + noise + tied, 0.0)
    if level.noise_sd:
        variance = variance_after_clipping(variance, prior.rate)
    none = np.zeros((1, 1))
    return RateState(
        rate=rate,
        variance=np.minimum(variance, np.maximum(rate, 1 - rate) ** 2),  # no error is larger
        unit=none,
        noise=variance,  # parents are weighed by the whole of it
        influence=weight + (1 - weight * n) * prior.influence,
        pull=none,
    )


def _shrink(
    level: LevelCounts, cells: FrameCells, above: Floats, spread: float
) -> tuple[Floats, Floats, Floats]:
    """Opportunities of the cells, how much of their clicks counts (w / n), and their rates, given the parents'
    rates."""
    n = np.maximum(cells.opportunities(level), 0.0)
    against = spread * n**2 + n * (above * (1 - above)) + plain_residual(level, above)
    weight = np.where(against > 0, spread * n / np.where(against > 0, against, 1.0), 0.0)
    return n, weight, np.clip(above + weight * (cells.take(level.clicks) - above * n), 0.0, 1.0)


def rate_step(level: LevelCounts, keys: Integers, prior: RateState, frame: Frame, spread: float) -> RateState:
    """As `moment_step`, of the rates alone."""
    none = np.zeros((1, 1))
    rate = _shrink(level, frame.cells(level, keys), prior.rate, spread)[2]
    return RateState(rate, none, none, none, none, none)


PAIRS_AT_ONCE = 1_000_000
NOTICEABLE = 4.0  # standard deviations of its noise that the scale of a spread must pass

LevelSpreads = dict[Levels, float]

LevelExcess = dict[Levels, Floats]

_kept: WeakKeyDictionary[Counts, dict[bool, tuple[LevelSpreads, LevelExcess]]] = WeakKeyDictionary()


def _measured_once(counts: Counts, corrected: bool) -> tuple[LevelSpreads, LevelExcess]:
    """The spread of these counts, and the excess variance that follows from it, measured once for as long as
    this very object lives."""
    known = _kept.setdefault(counts, {})
    if corrected not in known:
        measured = measured_spread(counts)
        spread = corrected_spread(counts, measured) if corrected else measured
        known[corrected] = spread, excess_variance(counts, spread)
    return known[corrected]


def measured_spread(counts: Counts) -> LevelSpreads:
    """At each level sum(e^2 - S - n pi (1-pi)) / sum((n^2 - noise in n - n)+), at least 0, from the top down.

    e = clicks - pi n, with pi the parent's estimate as if it were known, and S the noise in e.

    Exact counts without `shown` have a zero for every ad that is not listed. At the top those are counted in
    closed form; below, an ad takes part where it is listed at the node's (first) parent.

    Where impressions are so noisy that the lower sum may be noise, the spread is 0: contexts are then taken to
    be like their parents, which is what can be said of them.
    """
    found: LevelSpreads = {}
    no_excess = excess_variance(counts, dict.fromkeys(counts.levels, 0.0))
    for levels in reversed(counts.levels):
        level = counts.by_level[levels]
        above, below, noise = 0.0, 0.0, _Noise(level)
        for keys in _measured_pairs(counts, levels):
            cells = PairFrame(counts.ads).cells(level, keys)
            n = cells.opportunities(level)
            rate = _parents(counts, levels, keys, found, no_excess).rate
            e = cells.take(level.clicks) - rate * n
            above += float((e**2 - plain_residual(level, rate) - n * rate * (1 - rate)).sum())
            below += float(np.maximum(n**2 - level.opportunity_variance - n, 0.0).sum())
            noise.add(n)
        n, unlisted = _unlisted_at_top(counts, levels)
        top = overall_rate(counts, levels)
        above += float((unlisted * ((top * n) ** 2 - n * top * (1 - top))).sum())
        below += float((unlisted * np.maximum(n**2 - n, 0.0)).sum())
        found[levels] = noise.ratio(above, below)
    return found


def corrected_spread(counts: Counts, spread: Mapping[Levels, float], passes: int = 3) -> LevelSpreads:
    """The same with the parents' estimates as uncertain as they are, and made in part from the cell's own
    clicks.

    With V the variance of the parent's estimate, g how far a click of the cell moves it, and E the excess
    variance of the cell's clicks, the mean of e^2 is

        (1 - 2 n g) (n pi (1-pi) + E + spread n (n-1)) + n^2 V + S.

    V holds spread g^2 sum_c n_c (n_c - 1) over the parent's children c, which goes to the left side. V and E
    take the spread of the pass before. Few children to a parent make the difference: with four, the uncorrected
    spread is a quarter too small.
    """
    for _ in range(passes):
        excess = excess_variance(counts, spread)
        spread = {levels: _corrected(counts, levels, spread, excess) for levels in counts.levels}
    return dict(spread)


def _corrected(
    counts: Counts, levels: Levels, spread: Mapping[Levels, float], excess: Mapping[Levels, Floats]
) -> float:
    level, frame = counts.by_level[levels], PairFrame(counts.ads)
    siblings = excess_variance(counts, {each: float(each == levels) for each in counts.levels}, keep=0.0)
    above, below, noise = 0.0, 0.0, _Noise(level)
    for keys in _measured_pairs(counts, levels):
        cells = frame.cells(level, keys)
        n = cells.opportunities(level)
        squares = n**2 - level.opportunity_variance
        prior = _parents(counts, levels, keys, spread, excess)
        rate, moved = prior.rate, prior.influence
        bernoulli = rate * (1 - rate)
        e = cells.take(level.clicks) - rate * n
        shared = np.zeros((len(keys), 1))  # sum_c n_c (n_c - 1), of the parents together
        for coarser in counts.parents(levels):
            up = frame.above(counts, levels, keys, coarser)
            parent = counts.by_level[coarser]
            shared = np.maximum(shared, frame.cells(parent, up).spread(parent, siblings[coarser]))
        more = np.minimum(cells.spread(level, excess[levels]), bernoulli * np.maximum(squares, 0.0))
        own = n * bernoulli + more - 2 * moved * (squares * bernoulli + n * more)
        others = np.maximum(prior.variance - moved**2 * spread[levels] * shared, 0.0)
        above += float((e**2 - plain_residual(level, rate) - own - n**2 * others).sum())
        below += float(((1 - 2 * n * moved) * (squares - n) + squares * moved**2 * shared).sum())
        noise.add(n)
    n, unlisted = _unlisted_at_top(counts, levels)
    top = overall_rate(counts, levels)
    more = np.minimum(excess[levels], top * (1 - top) * n**2) if len(n) else n
    above += float((unlisted * ((top * n) ** 2 - n * top * (1 - top) - more)).sum())
    below += float((unlisted * (n**2 - n)).sum())
    return noise.ratio(above, below)


class _Noise:
    """How far noise in a level's impressions alone could move the lower sum: its variance, as of normals.

    A square of variance v varies by 2 v^2, and by 4 m^2 v more around a mean of m.
    """

    def __init__(self, level: LevelCounts) -> None:
        self._of_n, self._below = level.opportunity_variance, 0.0

    def add(self, n: Floats) -> None:
        squares = np.maximum(n**2 - self._of_n, 0.0)
        self._below += float((2 * self._of_n**2 + 4 * squares * self._of_n).sum())

    def ratio(self, above: float, below: float) -> float:
        """above / below, at least 0; 0 where the lower may be noise, and their ratio anything."""
        return max(above / below, 0.0) if below > NOTICEABLE * math.sqrt(self._below) else 0.0


def _unlisted_at_top(counts: Counts, levels: Levels) -> tuple[Floats, Floats]:
    """(nodes,) totals, and how many ads have an exact zero there that is not listed; nothing below the top."""
    level = counts.by_level[levels]
    if counts.parents(levels) or level.shown is not None or level.noise_sd:
        return np.zeros(0), np.zeros(0)
    return level.total, (level.ads - np.diff(level.offsets)).astype(np.float64)


def _measured_pairs(counts: Counts, levels: Levels) -> Iterator[Integers]:
    """Keys (node * ads + ad), distinct, some at a time."""
    level, parents = counts.by_level[levels], counts.parents(levels)
    if level.shown is not None or level.noise_sd or not parents:
        for start in range(0, len(level.ad), PAIRS_AT_ONCE):
            yield level.entry_key[start : start + PAIRS_AT_ONCE]
        return
    above, upper = counts.parent[levels, parents[0]], counts.by_level[parents[0]]
    sizes = np.diff(upper.offsets)[above]  # how many ads each node takes part with
    ends = np.cumsum(sizes)
    start, done = 0, 0
    while done < ends[-1]:
        stop = max(start + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
        size = sizes[start:stop]
        node = np.repeat(np.arange(start, stop), size)
        within = np.arange(len(node)) - np.repeat(np.cumsum(size) - size, size)
        if len(node):
            yield node * level.ads + upper.ad[upper.offsets[above[node]] + within]
        start, done = stop, int(ends[stop - 1])


def _parents(
    counts: Counts,
    levels: Levels,
    keys: Integers,
    spread: Mapping[Levels, float],
    excess: Mapping[Levels, Floats],
) -> RateState:
    """What the cells are drawn towards."""
    frame = PairFrame(counts.ads)

    def step(at: Levels, each: Integers, prior: RateState) -> RateState:
        return moment_step(counts.by_level[at], each, prior, frame, spread[at], excess[at])

    parents = []
    for coarser in counts.parents(levels):
        up, place = np.unique(frame.above(counts, levels, keys, coarser), return_inverse=True)
        parents.append(descend(counts, frame, coarser, up, step).rows(place))
    if not parents:
        return RateState.known(overall_rate(counts, levels)).rows(np.zeros(len(keys), np.int64))
    return combine_parents(parents)


@dataclass(frozen=True, eq=False)
class MomentShrinkage:
    """Best linear shrinkage, with the spread of rates around their parents' found by moments, level by level.

    With pi the parent's rate, n noisy opportunities, c noisy clicks of noise sd s (so that n has 2 s^2, or s^2
    where it is a total), e = c - pi n and S = s^2 ((1-pi)^2 + pi^2) (or s^2 (1 + pi^2)):

        spread  = sum(e^2 - S - n pi (1-pi)) / sum((n^2 - 2 s^2 - n)+), at least 0,
        rate    = clip(pi + w e / n),  w = spread n^2 / (spread n^2 + n pi (1-pi) + S);  pi where n <= 0.

    `corrected` refines the spread for what the parents' estimates do not know (`corrected_spread`).

    The variance is the expected squared error given the noisy n, where any n >= 0 was as likely, rates vary
    around their parents' by the spread, and clicks at general contexts vary more than binomially
    (`excess_variance`). It takes the spread as known, and as one for all ads of a level: where their popularity
    ranges over orders of magnitude, it is too small for the popular ones, and `Shrinkage` does better on exact
    counts.

    Unless it is given, the spread of counts is measured when they are first asked, and kept for as long as that
    very `Counts` lives: where its arrays are changed afterwards, answers still go by the old spread.
    """

    corrected: bool = True
    spread: Mapping[Levels, float] | None = None

    __repr__ = brief_repr

    def rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> RateEstimate:
        spread, excess = self._measures(counts)

        def step(at: Levels, keys: Integers, prior: RateState, frame: Frame) -> RateState:
            return moment_step(counts.by_level[at], keys, prior, frame, spread[at], excess[at])

        return estimate_cells(counts, levels, nodes, ads, step)

    def only_rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> Floats:
        """The rates of `rates`, in a fraction of the time where no context has several parents; those are
        weighed by their errors, which then have to be known."""
        if any(len(counts.parents(each)) > 1 for each in counts.levels):
            return self.rates(counts, levels, nodes, ads).rate
        spread, _ = self._measures(counts)

        def step(at: Levels, keys: Integers, prior: RateState, frame: Frame) -> RateState:
            return rate_step(counts.by_level[at], keys, prior, frame, spread[at])

        return estimate_cells(counts, levels, nodes, ads, step).rate

    def _measures(self, counts: Counts) -> tuple[LevelSpreads, LevelExcess]:
        if self.spread is None:
            return _measured_once(counts, self.corrected)
        if missing := [each for each in counts.levels if each not in self.spread]:
            raise BadInput(f"expected a spread for every level of the counts, got none for {missing[0]}")
        return dict(self.spread), excess_variance(counts, self.spread)
