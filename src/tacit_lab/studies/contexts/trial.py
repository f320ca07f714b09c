"""A log of visits as a trial: its first part is counted, and later requests are tests.

As in section 5.1 of Hardt and Nath, CCS 2012, a visit is a click on the ad of a place. The context of a
visit is what was known just before it:

    location   where the person's previous visit was; the visited place's own coordinates would give it away
    interest   the three kinds of places that the person had visited most often, ties by name
    query      the kind of the place that is visited; it follows from the answer, as in the paper's trace

People with fewer than three visits are left out, and so is everybody's first visit, before which nothing
was known. The log has no names of chains, so the exact query says no more than the kind of place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.arrays import Flags, Floats, Integers
from tacit.deliver.server.estimates import RateEstimator
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Attribute, Decimals, SetOf, Steps
from tacit.schema.contexts.hierarchy import HARDT_NATH_STEPS, Lattice, Levels, Sequence, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import ANYTHING, Tree
from tacit.schema.counts import Counts

FEWEST_VISITS = 3
MOST_INTERESTS = 3
POINT = ("latitude", "longitude")
NEEDED = ("user", "place", "category", "category_root", *POINT)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in time order; `context` has their exact values by attribute, each (rows,)."""

    user: Integers
    place: Integers  # the ad that was clicked
    context: Mapping[str, list[Any]]
    again: Flags  # whether the person had been there before
    attributes: tuple[Attribute, ...]
    point: Floats  # (places, 2) the latitude and longitude of each place
    left_out: int = 0  # rows of the log that could not be read, or lack a value

    @property
    def rows(self) -> int:
        return len(self.user)

    @property
    def places(self) -> int:
        return int(self.place.max()) + 1


def read_trace(batches: Iterable[pa.RecordBatch]) -> Trace:
    """Visits of the log `visits`, in time order where they have a time, else as they come.

    Where none of them has coordinates, everybody is at one point, and a location says nothing.
    """
    table = _with_points(pa.Table.from_batches(list(batches)))
    if "time" in table.schema.names:
        table = table.sort_by("time")
    rows = table.num_rows
    table = table.select(NEEDED).drop_null()
    visits = table.filter(_of_frequent_people(table.column("user")))
    if not visits.num_rows:
        raise BadInput(f"expected people with at least {FEWEST_VISITS} visits, got none")
    user, place = (_codes(visits.column(name)) for name in ("user", "place"))
    roots, leaves = (_texts(visits.column(name)) for name in ("category_root", "category"))
    kinds = [root if root == leaf else f"{root}>{leaf}" for root, leaf in zip(roots, leaves, strict=True)]
    points = list(zip(*(visits.column(name).to_pylist() for name in ("latitude", "longitude")), strict=True))
    kept, location, interest, again = _requests(user.tolist(), place.tolist(), kinds, points)
    query = [exact_query(kinds[row]) for row in kept]
    point = np.zeros((int(place.max()) + 1, 2))
    point[place] = points
    tree = Tree.of(dict(_parents(kinds, roots)))
    return Trace(
        user[kept],
        place[kept],
        {"location": location, "interest": interest, "query": query},
        np.array(again),
        (
            Decimals("location"),
            SetOf(Steps("interest", tree), MOST_INTERESTS),
            Steps("query", Tree([*tree.pairs, *((exact_query(kind), kind) for kind in dict.fromkeys(kinds))])),
        ),
        point,
        left_out=rows - table.num_rows,
    )


def _with_points(table: pa.Table) -> pa.Table:
    if any(table.column(name).null_count < table.num_rows for name in POINT):
        return table
    nowhere = pa.array(np.zeros(table.num_rows))
    for name in POINT:
        table = table.set_column(table.schema.get_field_index(name), name, nowhere)
    return table


def exact_query(kind: str) -> str:
    """The exact query for a kind of place."""
    return f"“{kind}”"


def _of_frequent_people(user: pa.ChunkedArray) -> pa.Array:
    codes = _codes(user)
    return pa.array(np.bincount(codes)[codes] >= FEWEST_VISITS)


def _requests(
    user: list[int], place: list[int], kinds: list[str], points: list[tuple[float, float]]
) -> tuple[list[int], list[tuple[float, float]], list[tuple[str, ...]], list[bool]]:
    """Of every visit but a person's first: its row, where they were, what they liked, if it is a repeat."""
    here: dict[int, tuple[float, float]] = {}
    liked: defaultdict[int, Counter[str]] = defaultdict(Counter)
    most: defaultdict[int, list[str]] = defaultdict(list)
    seen: defaultdict[int, set[int]] = defaultdict(set)
    kept, location, interest, again = [], [], [], []
    for row, (person, to, kind) in enumerate(zip(user, place, kinds, strict=True)):
        if person in here:
            kept.append(row)
            location.append(here[person])
            interest.append(tuple(sorted(most[person])))
            again.append(to in seen[person])
        here[person] = points[row]
        counts = liked[person]
        counts[kind] += 1
        # Only this kind has risen, so no other can join the most frequent.
        rivals = {*most[person], kind}
        most[person] = sorted(rivals, key=lambda each: (-counts[each], each))[:MOST_INTERESTS]
        seen[person].add(to)
    return kept, location, interest, again


def _parents(kinds: list[str], roots: list[str]) -> Iterable[tuple[str, str | None]]:
    yield ANYTHING, None
    for kind, root in sorted(set(zip(kinds, roots, strict=True))):
        yield root, ANYTHING
        if kind != root:
            yield kind, root


def _codes(column: pa.ChunkedArray) -> Integers:
    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [str(each) for each in column.cast(pa.string()).to_pylist()]


LEARNT = 0.9  # the first part of the trace, by time
FEWEST_REQUESTS = 10  # so that something is learnt and something is tested
EXACT, LAST = HARDT_NATH_STEPS[0], HARDT_NATH_STEPS[-1]
QUERY_ALONE = (6, 2, 0)  # nothing of location and interest
LOCATION, INTEREST, QUERY = range(3)


@dataclass(frozen=True, eq=False)
class TrialBlock:
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
class VisitsTrial:
    """`tests` are rows of the trace after the part that was learnt from."""

    trace: Trace
    tests: Integers

    @classmethod
    def of(cls, trace: Trace, tests: int, seed: int) -> VisitsTrial:
        """All later requests, or a number of them, drawn without replacement."""
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

    def blocks(self, levels: Levels, estimator: RateEstimator) -> list[TrialBlock]:
        """All tests, in blocks that hold whole nodes of these levels; made once for all arms."""
        if (levels, estimator) not in self._blocks:
            self._blocks[levels, estimator] = list(self._make_blocks(levels, estimator))
        return self._blocks[levels, estimator]

    def known(self, levels: Levels) -> Mapping[int, tuple[Integers, Integers]]:
        """By node of these levels, what the server knows to be below it: exact contexts, and ads."""
        exact = self.exact_of_row
        rows = group_by_key(self.disclosed(levels)[exact], np.flatnonzero(self.learnt))
        return {
            node: (np.unique(exact[here]), np.unique(self.trace.place[here])) for node, here in rows.items()
        }

    @cached_property
    def weight(self) -> Floats:
        """(exact contexts,) how likely the server takes each to be, up to a factor: how often it was learnt."""
        contexts = self.nodes.count(EXACT)
        return np.bincount(self.exact_of_row[self.learnt], minlength=contexts).astype(np.float64)

    def _make_blocks(self, levels: Levels, estimator: RateEstimator) -> Iterator[TrialBlock]:
        known, exact = self.known(levels), self.exact_of_row
        tests = group_by_key(self.disclosed(levels)[exact[self.tests]], np.arange(len(self.tests)))
        for node, here in tests.items():
            if node in known:
                contexts, ad = known[node]
                at = exact[self.tests[here]]
                context = np.union1d(contexts, at)
                rate = estimator.rates(self.counts, EXACT, context, ad).rate
                yield TrialBlock(rate, context, ad, self.weight[context], here, np.searchsorted(context, at))

    @cached_property
    def _blocks(self) -> dict[tuple[Levels, RateEstimator], list[TrialBlock]]:
        return {}

    @cached_property
    def exact_of_row(self) -> Integers:
        """(rows,)"""
        return np.asarray(self.nodes.of_row(EXACT), np.int64)


def group_by_key(key: Integers, of: Integers) -> dict[int, Integers]:
    """Some places of an array of keys, by their key."""
    order = of[np.argsort(key[of], kind="stable")]
    parts = np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else []
    return {int(key[part[0]]): part for part in parts}


def block_levels(levels: Levels) -> Levels:
    """Levels whose nodes are blocks: as coarse as the paper's last step, and as these are."""
    found = tuple(map(max, levels, LAST))
    assert is_coarser(found, levels)
    return found
