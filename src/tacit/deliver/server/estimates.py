"""Click-rate estimation along a hierarchy of contexts: the interface, and the machinery of all estimators.

An estimator answers for nodes and ads with rates and the expected squares of their errors. It works on frames
of (node, ad) cells, dense blocks or single pairs, whose rows are named by keys: for a block of nodes and ads
a key is a node, and all rows have the same ads as columns; for pairs a key is node * ads + ad, and there is
one column. Rates are computed from the top of the hierarchy down to the cells asked for, through their
distinct ancestors only.

Of noisy counts: how many opportunities there were, and how far clicks may be from their expectation.

The rates of contexts below a node vary around the node's own. So the clicks at a node vary more than a
binomial: requests from one and the same child share that child's deviation. With n_c requests at child c,
whose rate has the variance s around its parent's, that adds sum_c n_c (n_c - 1) s to the variance of the
clicks, at each level below. A general context therefore tells less than its count suggests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit.arrays import Flags, Floats, Integers
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.counts import Counts, LevelCounts


@dataclass(frozen=True, eq=False)
class RateEstimate:
    """Rates, and the expected squares of their errors; both (nodes, ads) as they were asked for."""

    rate: Floats
    variance: Floats


class RateEstimator(Protocol):
    """A way from counts to rates. Refuses nodes that are unknown or have no statistics, by name."""

    def rates(self, counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> RateEstimate: ...


def check_cells(counts: Counts, levels: Levels, nodes: Integers, ads: Integers) -> tuple[Integers, Integers]:
    """Nodes and ads as whole numbers of 64 bits; refuses unknown ones, and nodes without any statistics.

    Those have a total of 0 (or less, by noisy counts), and so have all their ancestors.
    """
    level = counts.at(levels)
    nodes, ads = np.asarray(nodes), np.asarray(ads)
    for name, ids, most in (("nodes", nodes, level.nodes), ("ads", ads, level.ads)):
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise BadInput(
                f"expected {name} to be a list of whole numbers, got {ids.dtype} of shape {ids.shape}"
            )
        strange = ids[(ids < 0) | (ids >= most)]
        if strange.size:
            raise BadInput(
                f"level {levels}: expected {name} from 0 to {most - 1}, got {strange[0]}"
                + (", a context that is unknown here: ask at a coarser level" if name == "nodes" else "")
            )
    nodes, ads = nodes.astype(np.int64), ads.astype(np.int64)
    bare = nodes[~has_statistics(counts, levels)[nodes]]
    if bare.size:
        raise BadInput(
            f"context {counts.name(levels, int(bare[0]))}: expected statistics of it or of a more general one, "
            "got a total of 0 for all"
        )
    return nodes, ads


def has_statistics(counts: Counts, levels: Levels) -> Flags:
    """(nodes,) whether a node or one of its ancestors has a total above 0."""
    found: dict[Levels, Flags] = {}
    for each in reversed(counts.levels):
        found[each] = counts.by_level[each].total > 0
        for coarser in counts.parents(each):
            found[each] = found[each] | found[coarser][counts.parent[each, coarser]]
    return found[levels]


@dataclass(frozen=True, eq=False)
class FrameCells:
    """A block of cells at one level."""

    node: Integers  # (rows,)
    entry: Integers  # (rows, columns) the place in the level's entries, -1 where there is none

    def take(self, by_entry: Floats) -> Floats:
        """(rows, columns) what the entries have, 0 where there is none."""
        if not len(by_entry):
            return np.zeros(self.entry.shape)
        found: Floats = np.where(self.entry >= 0, by_entry[self.entry], 0.0)
        return found

    def spread(self, level: LevelCounts, values: Floats) -> Floats:
        """Values by entry where the level knows what was shown of each ad, by node (one column) where not."""
        return self.take(values) if level.shown is not None else values[self.node][:, None]

    def opportunities(self, level: LevelCounts) -> Floats:
        """(rows, columns or 1) how often the ad could be clicked; noisy ones can be negative."""
        found = self.spread(level, level.total if level.shown is None else level.shown)
        if level.shown is None and level.noise_sd:  # not listed: not released, so nothing is known
            found = np.where(self.entry >= 0, found, 0.0)
        return found


class Frame(Protocol):
    def above(self, counts: Counts, levels: Levels, keys: Integers, coarser: Levels) -> Integers: ...

    def cells(self, level: LevelCounts, keys: Integers) -> FrameCells: ...


@dataclass(frozen=True, eq=False)
class BlockFrame:
    """Rows are nodes, columns the ads asked for, each once."""

    ads: Integers

    def above(self, counts: Counts, levels: Levels, keys: Integers, coarser: Levels) -> Integers:
        return counts.parent[levels, coarser][keys]

    def cells(self, level: LevelCounts, keys: Integers) -> FrameCells:
        column = np.full(level.ads, -1, np.int64)
        column[self.ads] = np.arange(len(self.ads))
        starts = level.offsets[keys]
        sizes = level.offsets[keys + 1] - starts
        row = np.repeat(np.arange(len(keys)), sizes)
        within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        entry = starts[row] + within
        wanted = column[level.ad[entry]]
        places = np.full((len(keys), len(self.ads)), -1, np.int64)
        places[row[wanted >= 0], wanted[wanted >= 0]] = entry[wanted >= 0]
        return FrameCells(keys, places)


@dataclass(frozen=True, eq=False)
class PairFrame:
    """Each row is one node and one ad."""

    ads: int

    def above(self, counts: Counts, levels: Levels, keys: Integers, coarser: Levels) -> Integers:
        up: Integers = counts.parent[levels, coarser][keys // self.ads] * self.ads + keys % self.ads
        return up

    def cells(self, level: LevelCounts, keys: Integers) -> FrameCells:
        place = np.searchsorted(level.entry_key, keys)
        there = place < len(level.entry_key)
        there[there] = level.entry_key[place[there]] == keys[there]
        return FrameCells(keys // self.ads, np.where(there, place, -1)[:, None])


@dataclass(frozen=True, eq=False)
class RateState:
    """What is known of a block of cells; arrays broadcast to (rows, columns).

    rate       the estimate
    variance   the expected square of its error
    unit       the part of the variance that grows with rate (1 - rate), over it: what parents are weighed by,
    noise      and the part that noise in counts adds. Weights by `variance` would prefer low rates.
    influence  how much one more click in the cell's own count moves the estimate
    pull       minus the mean of rate * error: how far the estimate is drawn to a mean, in squares
    """

    rate: Floats
    variance: Floats
    unit: Floats
    noise: Floats
    influence: Floats
    pull: Floats

    @classmethod
    def known(cls, rate: float) -> RateState:
        """A rate without error, above the top."""
        zero = np.zeros((1, 1))
        return cls(np.full((1, 1), rate), zero, zero, zero, zero, zero)

    def rows(self, places: Integers) -> RateState:
        """The rows at these places; a part with one row holds for all."""

        def pick(part: Floats) -> Floats:
            return part[places] if len(part) > 1 else np.broadcast_to(part, (len(places), part.shape[1]))

        return RateState(*(pick(getattr(self, part.name)) for part in fields(self)))


LevelStep = Callable[[Levels, Integers, RateState], RateState]  # levels, keys, what is known of the parents
FramedStep = Callable[[Levels, Integers, RateState, Frame], RateState]


def descend(counts: Counts, frame: Frame, levels: Levels, keys: Integers, step: LevelStep) -> RateState:
    """`step` at each level from the top to `levels`, on the ancestors of `keys`; distinct and sorted ones."""
    needed: dict[Levels, Integers] = {levels: keys}
    for finer in counts.levels:  # finest first, so that all children of a level come before it
        for coarser in counts.parents(finer) if finer in needed else ():
            up = np.unique(frame.above(counts, finer, needed[finer], coarser))
            needed[coarser] = np.union1d(needed[coarser], up) if coarser in needed else up
    waiting = {each: sum(each in counts.parents(finer) for finer in needed) for each in needed}
    states: dict[Levels, RateState] = {}
    for each in reversed(counts.levels):
        if each not in needed:
            continue
        parents = []
        for coarser in counts.parents(each):
            above = frame.above(counts, each, needed[each], coarser)
            parents.append(states[coarser].rows(np.searchsorted(needed[coarser], above)))
            waiting[coarser] -= 1
            if not waiting[coarser]:
                del states[coarser]  # blocks are large
        prior = combine_parents(parents) if parents else RateState.known(overall_rate(counts, each))
        states[each] = step(each, needed[each], prior)
    return states[levels]


def combine_parents(parents: list[RateState]) -> RateState:
    """Several estimates of one rate: their mean, weighted by the inverse variance each has at the same rate.

    They rest on the same requests, so their errors go together: the error of the mean is taken to be as large
    as that allows, the weighted mean of their standard deviations.
    """
    if len(parents) == 1:
        return parents[0]
    middle = sum(parent.rate for parent in parents) / len(parents)
    spread = np.maximum(middle * (1 - middle), 1e-12)
    weights = [1 / np.maximum(parent.unit * spread + parent.noise, 1e-300) for parent in parents]
    whole = sum(weights)
    weights = [weight / whole for weight in weights]

    def mean(parts: list[Floats]) -> Floats:
        total: Floats = np.sum([w * p for w, p in zip(weights, parts, strict=True)], axis=0)
        return total

    return RateState(
        rate=mean([parent.rate for parent in parents]),
        variance=mean([np.sqrt(parent.variance) for parent in parents]) ** 2,
        unit=mean([np.sqrt(parent.unit) for parent in parents]) ** 2,
        noise=mean([np.sqrt(parent.noise) for parent in parents]) ** 2,
        influence=mean([parent.influence for parent in parents]),
        pull=mean([parent.pull for parent in parents]),
    )


def overall_rate(counts: Counts, levels: Levels) -> float:
    """Clicks over opportunities, of all ads and nodes of a level together; 0 where there are none."""
    level = counts.by_level[levels]
    if level.shown is not None:
        opportunities = float(level.shown.sum())
    elif level.noise_sd:
        opportunities = float(level.total[level.entry_node].sum())  # of what was released
    else:
        opportunities = float(level.total.sum()) * level.ads
    return min(max(float(level.clicks.sum()) / opportunities, 0.0), 1.0) if opportunities > 0 else 0.0


CELLS = 2**16
"""Cells that are worked on at a time: arrays of this many doubles stay in a processor's cache."""


def estimate_cells(
    counts: Counts, levels: Levels, nodes: Integers, ads: Integers, step: FramedStep
) -> RateEstimate:
    """The cells asked for, by `step` from the top down, as many nodes at a time as fit the cache."""
    nodes, ads = check_cells(counts, levels, nodes, ads)
    keys, row = np.unique(nodes, return_inverse=True)
    distinct, column = np.unique(ads, return_inverse=True)
    found = RateEstimate(np.zeros((len(keys), len(distinct))), np.zeros((len(keys), len(distinct))))
    frame = BlockFrame(distinct)
    family = _by_ancestors(counts, levels, keys)
    rows = max(CELLS // max(len(distinct), 1), 1)
    for first in range(0, len(keys), rows):
        some = np.sort(family[first : first + rows])
        state = descend(counts, frame, levels, keys[some], lambda at, each, prior: step(at, each, prior, frame))
        found.rate[some], found.variance[some] = state.rate, state.variance
    if len(keys) == len(nodes) and len(distinct) == len(ads) and _rising(nodes) and _rising(ads):
        return found
    return RateEstimate(found.rate[np.ix_(row, column)], found.variance[np.ix_(row, column)])


def _by_ancestors(counts: Counts, levels: Levels, keys: Integers) -> Integers:
    """An order in which nodes with a common ancestor are near each other: its part is done once or twice."""
    lines, at = [keys], levels
    while counts.parents(at):
        above = counts.parents(at)[0]
        lines.append(counts.parent[at, above][lines[-1]])
        at = above
    return np.lexsort(lines)


def _rising(numbers: Integers) -> bool:
    return bool((np.diff(numbers) > 0).all())


@dataclass(frozen=True, eq=False)
class Opportunities:
    """The true number behind a noisy one, any number >= 0 being as likely beforehand: a normal cut off at 0."""

    mean: Floats
    square: Floats  # the mean of the square
    error: Floats  # the mean of (noisy - true)^2

    @classmethod
    def behind(cls, noisy: Floats, variance: float) -> Opportunities:
        if not variance:
            return cls(noisy, noisy**2, np.zeros_like(noisy))
        sd = math.sqrt(variance)
        at = noisy / sd
        pull = np.exp(-0.5 * at**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(at))  # phi / Phi, far tails too
        mean = np.maximum(noisy + sd * pull, 0.0)
        return cls(mean, variance + noisy * mean, variance - noisy * sd * pull)


def residual(level: LevelCounts, rate: Floats, error: Floats) -> Floats:
    """The mean square of what noise adds to clicks - rate * opportunities, given the noisy opportunities.

    Without conditioning, that is sd^2 ((1-rate)^2 + rate^2) where clicks and no-clicks are counted, and
    sd^2 (1 + rate^2) where clicks and totals are. `error` is the mean square of the noise in the opportunities;
    half of the noise in clicks + no-clicks is that of the clicks, give or take sd^2 / 2.
    """
    variance = level.noise_sd**2
    if level.shown is None:
        return variance + rate**2 * error
    return variance / 2 + (0.5 - rate) ** 2 * error


def plain_residual(level: LevelCounts, rate: Floats) -> Floats:
    """The same before the noisy opportunities are looked at."""
    if not level.noise_sd:
        return np.zeros((1, 1))
    other = rate if level.shown is not None else np.zeros_like(rate)
    return level.noise_sd**2 * ((1 - other) ** 2 + rate**2)


def variance_after_clipping(variance: Floats, rate: Floats) -> Floats:
    """The mean square of an error that is normal, once the estimate around `rate` is clipped to 0..1."""
    sd = np.sqrt(np.maximum(variance, 1e-300))
    low, high = -rate / sd, (1 - rate) / sd
    density_low, density_high = (np.exp(-0.5 * at**2) / math.sqrt(2 * math.pi) for at in (low, high))
    within = ndtr(high) - ndtr(low) - (high * density_high - low * density_low)
    found: Floats = variance * within + rate**2 * ndtr(low) + (1 - rate) ** 2 * ndtr(-high)
    return found


def excess_variance(counts: Counts, share: Mapping[Levels, float], keep: float = 1.0) -> dict[Levels, Floats]:
    """The variance of a node's clicks above the binomial: by entry where `shown` is known, else by node.

    E(v) = sum over children c of keep E(c) + share n_c (n_c - 1), with `share` by the child's level. Under
    several levels of children (a lattice) the largest of them; noise is taken off n_c^2, and what is below 0
    is 0.
    """
    found: dict[Levels, Floats] = {}
    for levels in counts.levels:  # finest first
        level = counts.by_level[levels]
        most = np.zeros(level.nodes if level.shown is None else len(level.ad))
        for finer in counts.levels:
            if (finer, levels) in counts.parent:
                child = counts.by_level[finer]
                n = child.total if child.shown is None else child.shown
                parts = keep * found[finer] + share[finer] * (n**2 - n - child.opportunity_variance)
                most = np.maximum(most, _summed(child, level, counts.parent[finer, levels], parts))
        found[levels] = most
    return found


def _summed(child: LevelCounts, level: LevelCounts, above: Integers, parts: Floats) -> Floats:
    if level.shown is None and child.shown is None:
        summed: Floats = np.bincount(above, parts, minlength=level.nodes).astype(np.float64)
        return summed
    if level.shown is None or child.shown is None:  # one level by ads and the other not: they cannot be matched
        return np.zeros(level.nodes if level.shown is None else len(level.ad))
    key = above[child.entry_node] * child.ads + child.ad
    place = np.minimum(np.searchsorted(level.entry_key, key), len(level.entry_key) - 1)
    there = level.entry_key[place] == key if len(level.entry_key) else np.zeros(len(key), bool)
    matched: Floats = np.bincount(place[there], parts[there], minlength=len(level.ad)).astype(np.float64)
    return matched
