"""An answer for the nodes and ads asked for, in their order, through distinct ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit.deliver.estimates.climbing import State, descend
from tacit.deliver.estimates.estimate import Estimate, expect_asked
from tacit.deliver.estimates.frames import Block, Frame
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.statistics import Counts, Integers

FramedStep = Callable[[Levels, Integers, State, Frame], State]


CELLS = 2**16
"""What is worked on at a time: arrays of so many doubles stay in a processor's cache."""


def answered(counts: Counts, levels: Levels, nodes: Integers, ads: Integers, step: FramedStep) -> Estimate:
    nodes, ads = expect_asked(counts, levels, nodes, ads)
    keys, row = np.unique(nodes, return_inverse=True)
    distinct, column = np.unique(ads, return_inverse=True)
    found = Estimate(np.zeros((len(keys), len(distinct))), np.zeros((len(keys), len(distinct))))
    frame = Block(distinct)
    family = _by_ancestors(counts, levels, keys)
    rows = max(CELLS // max(len(distinct), 1), 1)
    for first in range(0, len(keys), rows):
        some = np.sort(family[first : first + rows])
        state = descend(counts, frame, levels, keys[some], lambda at, each, prior: step(at, each, prior, frame))
        found.rate[some], found.variance[some] = state.rate, state.variance
    if len(keys) == len(nodes) and len(distinct) == len(ads) and _rising(nodes) and _rising(ads):
        return found
    return Estimate(found.rate[np.ix_(row, column)], found.variance[np.ix_(row, column)])


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
