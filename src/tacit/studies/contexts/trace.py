"""A log of visits read as requests for ads, as in section 5.1 of Hardt and Nath, CCS 2012.

A visit is a click on the ad of a place. The context of a visit is what was known just before it:

    location   where the person's previous visit was; the visited place's own coordinates would give it away
    interest   the three kinds of places that the person had visited most often, ties by name
    query      the kind of the place that is visited; it follows from the answer, as in the paper's trace

People with fewer than three visits are left out, and so is everybody's first visit, before which nothing was
known. The log has no names of chains, so the exact query says no more than the kind of place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Attribute, SetOf, Steps
from tacit.schema.contexts.places import Decimals
from tacit.schema.contexts.tree import ANYTHING, Tree

FEWEST_VISITS = 3
MOST_INTERESTS = 3
NEEDED = ("user", "place", "category", "category_root", "latitude", "longitude")

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


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


def trace_of(batches: Iterable[pa.RecordBatch]) -> Trace:
    """Visits of the log `visits`, in time order where they have a time, else as they come."""
    table = pa.Table.from_batches(list(batches))
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
    query = [asked(kinds[row]) for row in kept]
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
            Steps("query", Tree([*tree.pairs, *((asked(kind), kind) for kind in dict.fromkeys(kinds))])),
        ),
        point,
        left_out=rows - table.num_rows,
    )


def asked(kind: str) -> str:
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
