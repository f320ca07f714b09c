"""A trace with its hierarchy, the counts of its first part, and the requests of the rest as tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.deliver.estimates.estimate import Estimator
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import HARDT_NATH_STEPS, Lattice, Levels, Sequence, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.statistics import Counts
from tacit.studies.contexts.trace import Flags, Integers, Trace

LEARNT = 0.9  # the first part of the trace, by time
FEWEST_REQUESTS = 10  # so that something is learnt and something is tested
EXACT, LAST = HARDT_NATH_STEPS[0], HARDT_NATH_STEPS[-1]
QUERY_ALONE = (6, 2, 0)  # nothing of location and interest
LOCATION, INTEREST, QUERY = range(3)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Block:
    """Contexts whose disclosed nodes lie in one coarse node, with the rates of all ads seen there.

    rate     (contexts, ads)
    context  (contexts,) exact nodes
    ad       (ads,)
    weight   (contexts,) how likely the server takes each to be, up to a factor; all 0: as likely as each other
    tests    (tests,) of the trial's tests, those whose context is here
    at       (tests,) the place of each test's context in `context`
    """

    rate: Floats
    context: Integers
    ad: Integers
    weight: Floats
    tests: Integers
    at: Integers


@dataclass(frozen=True, eq=False)
class Trial:
    """`tests` are rows of the trace after the part that was learnt from."""

    trace: Trace
    tests: Integers

    @classmethod
    def of(cls, trace: Trace, tests: int, seed: int) -> Trial:
        """All later requests, or so many of them, drawn without replacement."""
        if trace.rows < FEWEST_REQUESTS:
            raise BadInput(f"expected a trace of at least {FEWEST_REQUESTS} requests, got {trace.rows}")
        later = np.arange(int(LEARNT * trace.rows), trace.rows)
        if len(later) > tests:
            draws = np.random.default_rng(seed)
            later = np.sort(draws.choice(later, tests, replace=False))
        return cls(trace, later)

    @cached_property
    def nodes(self) -> ContextNodes:
        return ContextNodes.of(Sequence(self.trace.attributes, HARDT_NATH_STEPS), self.trace.context)

    @cached_property
    def learnt(self) -> Flags:
        """(rows,)"""
        return np.arange(self.trace.rows) < int(LEARNT * self.trace.rows)

    @cached_property
    def counts(self) -> Counts:
        return Counts.of_rows(self.nodes, self.trace.place, self.trace.places, rows=self.learnt)

    def disclosed(self, levels: Levels) -> Integers:
        """(contexts,) what a person in each exact context says at these levels, of the sequence or not."""
        if levels not in self._disclosed:
            lattice = Lattice(self.trace.attributes)
            nodes = ContextNodes.of(lattice, self.trace.context, [EXACT, levels])
            self._disclosed[levels] = np.asarray(nodes.parent(EXACT, levels), np.int64)
        return self._disclosed[levels]

    @cached_property
    def _disclosed(self) -> dict[Levels, Integers]:
        return {}

    def rows_of(self, disclosed: Integers) -> Integers:
        """(rows that were learnt from,) what each discloses, given what each exact context does."""
        return disclosed[self.exact_of_row[self.learnt]]

    def users(self, disclosed: Integers) -> Integers:
        """(disclosed nodes,) how many people were in each, in the part that was learnt from."""
        node = self.rows_of(disclosed)
        pairs = np.unique(np.stack([node, self.trace.user[self.learnt]]), axis=1)
        return np.bincount(pairs[0], minlength=int(disclosed.max()) + 1)

    def bits(self, disclosed: Integers) -> float:
        """What a disclosure tells on average: the entropy of what each of the rows learnt from discloses."""
        share = np.bincount(self.rows_of(disclosed) + 1) / self.learnt.sum()  # nothing, -1, is one of them
        share = share[share > 0]
        return float(-(share * np.log2(share)).sum())

    def blocks(self, levels: Levels, estimator: Estimator) -> list[Block]:
        """All tests, in blocks that hold whole nodes of these levels; made once for all arms."""
        if (levels, estimator) not in self._blocks:
            self._blocks[levels, estimator] = list(self._made(levels, estimator))
        return self._blocks[levels, estimator]

    def known(self, levels: Levels) -> Mapping[int, tuple[Integers, Integers]]:
        """By node of these levels, what the server knows to be below it: exact contexts, and ads."""
        exact = self.exact_of_row
        rows = by_key(self.disclosed(levels)[exact], np.flatnonzero(self.learnt))
        return {
            node: (np.unique(exact[here]), np.unique(self.trace.place[here])) for node, here in rows.items()
        }

    @cached_property
    def weight(self) -> Floats:
        """(exact contexts,) how likely the server takes each to be, up to a factor: how often it was learnt."""
        contexts = self.nodes.count(EXACT)
        return np.bincount(self.exact_of_row[self.learnt], minlength=contexts).astype(np.float64)

    def _made(self, levels: Levels, estimator: Estimator) -> Iterator[Block]:
        known, exact = self.known(levels), self.exact_of_row
        tests = by_key(self.disclosed(levels)[exact[self.tests]], np.arange(len(self.tests)))
        for node, here in tests.items():
            if node in known:
                contexts, ad = known[node]
                at = exact[self.tests[here]]
                context = np.union1d(contexts, at)
                rate = estimator.rates(self.counts, EXACT, context, ad).rate
                yield Block(rate, context, ad, self.weight[context], here, np.searchsorted(context, at))

    @cached_property
    def _blocks(self) -> dict[tuple[Levels, Estimator], list[Block]]:
        return {}

    @cached_property
    def exact_of_row(self) -> Integers:
        """(rows,)"""
        return np.asarray(self.nodes.of_row(EXACT), np.int64)


def by_key(key: Integers, of: Integers) -> dict[int, Integers]:
    """Some places of an array of keys, by their key."""
    order = of[np.argsort(key[of], kind="stable")]
    parts = np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else []
    return {int(key[part[0]]): part for part in parts}


def coarse_for(levels: Levels) -> Levels:
    """Levels whose nodes are blocks: as coarse as the paper's last step, and as these are."""
    found = tuple(map(max, levels, LAST))
    assert is_coarser(found, levels)
    return found
