"""A run over rows that are all known, for studies: what devices would answer, summed, and published noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.estimate.planning import RunPlan
from tacit.gather.estimate.published import PublishedNoise
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.questions import Question
from tacit.privacy.randomness import Source, Words
from tacit.schema.contexts.nodes import Column, ContextNodes
from tacit.schema.statistics import Integers


@dataclass(frozen=True, eq=False)
class SimulatedResult:
    """What a round over known rows released."""

    values: Integers
    noise_variance: float
    count: int


@dataclass(frozen=True, eq=False)
class SimulatedCount:
    """Answers questions as all devices together would. Make it with `of`, which chooses their events."""

    nodes: ContextNodes  # that questions speak of
    context: Mapping[str, Column]  # of the chosen rows, by attribute
    device: Integers  # (chosen rows,)
    ad: Integers
    clicked: NDArray[np.bool_]
    devices: int
    plan: RunPlan
    entropy: Source

    @classmethod
    def of(
        cls,
        nodes: ContextNodes,
        context: Mapping[str, Column],
        device: ArrayLike,
        ad: ArrayLike,
        clicked: ArrayLike,
        *,
        devices: int,
        plan: RunPlan,
        entropy: Source,
    ) -> SimulatedCount:
        """Each row an impression on one of `devices`, 0 and up; those without any answer too."""
        owner = np.asarray(device, np.int64)
        if len(owner) and not 0 <= owner.min() <= owner.max() < devices:
            raise BadInput(f"expected devices from 0 to {devices - 1}, got others")
        kept = np.flatnonzero(chosen(owner, plan.contribution.events, entropy.words))
        columns = {
            name: column[kept] if isinstance(column, np.ndarray) else [column[row] for row in kept.tolist()]
            for name, column in context.items()
        }
        ads, clicks = np.asarray(ad, np.int64)[kept], np.asarray(clicked).astype(np.bool_)[kept]
        return cls(nodes, columns, owner[kept], ads, clicks, devices, plan, entropy)

    def exact(self, question: Question) -> Integers:
        """(cells,) the sum of all answers, without noise."""
        node = self.nodes.locate(question.levels, self.context).astype(np.int64)
        return clipped_counts(
            question, self.device, node, self.ad, self.clicked, contribution=self.plan.contribution
        )

    def __call__(self, question: Question) -> SimulatedResult:
        noise = PublishedNoise.of(self.plan.noise, self.devices)
        values = self.exact(question) + noise.sample(question.cells, self.entropy.words)
        return SimulatedResult(values, self.plan.noise.published_variance(self.devices), self.devices)


def chosen(device: Integers, most: int, words: Words) -> NDArray[np.bool_]:
    """(rows,) a uniform choice of at most `most` rows of each device."""
    rows, kept = len(device), np.zeros(len(device), np.bool_)
    expect.whole("most", most, at_least=1)
    order = np.lexsort((words(rows), device))
    first = np.r_[True, np.diff(device[order]) != 0] if rows else kept
    starts = np.flatnonzero(first)
    place = np.arange(rows) - np.repeat(starts, np.diff(np.r_[starts, rows]))
    kept[order[place < most]] = True
    return kept


def clipped_counts(
    question: Question,
    device: Integers,
    node: Integers,
    ad: Integers,
    clicked: NDArray[np.bool_],
    *,
    contribution: Contribution,
) -> Integers:
    """(cells,) the sum over devices of their answers, each cell of each cut to `contribution.most`.

    `node` is each row's at the question's level, -1 where it is unknown. Rows beyond a device's choice must be
    left out already.
    """
    place = np.minimum(np.searchsorted(question.nodes, node), len(question.nodes) - 1)
    asked = question.nodes[place] == node
    place, owner, clicks, ad = place[asked], device[asked], clicked[asked], ad[asked]
    ads = int(max(question.ad.max(initial=0), ad.max(initial=0))) + 1
    keys = question.entry_node * ads + question.ad
    entry = np.searchsorted(keys, place * ads + ad)
    listed = np.zeros(len(entry), np.bool_)
    if len(keys):
        listed = keys[np.minimum(entry, len(keys) - 1)] == place * ads + ad
    cell = len(question.nodes) + entry[listed] + np.where(clicks[listed], 0, question.entries)
    cells, owners = np.r_[place, cell], np.r_[owner, owner[listed]]
    pairs, times = np.unique(owners * question.cells + cells, return_counts=True)
    cut = np.minimum(times, contribution.most)
    counts = np.zeros(question.cells, np.int64)
    np.add.at(counts, pairs % question.cells, cut)
    return counts
