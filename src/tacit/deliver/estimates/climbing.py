"""From the top of the hierarchy down to the cells asked for, through their distinct ancestors only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from tacit.deliver.estimates.frames import Frame
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.statistics import Counts, Floats, Integers


@dataclass(frozen=True, eq=False)
class State:
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
    def known(cls, rate: float) -> State:
        """A rate without error, above the top."""
        zero = np.zeros((1, 1))
        return cls(np.full((1, 1), rate), zero, zero, zero, zero, zero)

    def rows(self, places: Integers) -> State:
        """The rows at these places; a part with one row holds for all."""

        def pick(part: Floats) -> Floats:
            return part[places] if len(part) > 1 else np.broadcast_to(part, (len(places), part.shape[1]))

        return State(*(pick(getattr(self, part.name)) for part in fields(self)))


Step = Callable[[Levels, Integers, State], State]  # levels, keys, what is known of the parents


def descend(counts: Counts, frame: Frame, levels: Levels, keys: Integers, step: Step) -> State:
    """`step` at each level from the top to `levels`, on the ancestors of `keys`; distinct and sorted ones."""
    needed: dict[Levels, Integers] = {levels: keys}
    for finer in counts.levels:  # finest first, so that all children of a level come before it
        for coarser in counts.parents(finer) if finer in needed else ():
            up = np.unique(frame.above(counts, finer, needed[finer], coarser))
            needed[coarser] = np.union1d(needed[coarser], up) if coarser in needed else up
    waiting = {each: sum(each in counts.parents(finer) for finer in needed) for each in needed}
    states: dict[Levels, State] = {}
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
        prior = combined(parents) if parents else State.known(overall_rate(counts, each))
        states[each] = step(each, needed[each], prior)
    return states[levels]


def combined(parents: list[State]) -> State:
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

    return State(
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
