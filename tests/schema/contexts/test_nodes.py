"""Contexts as numbers: against the slow definition, row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Attribute, Decimals, MetreCells, SetOf, Steps
from tacit.schema.contexts.hierarchy import HARDT_NATH_STEPS, Hierarchy, Lattice, Node, Sequence, is_coarser
from tacit.schema.contexts.nodes import ContextNodes
from tests.support.context_attributes import BUSINESSES, NODES, PLACES, FlooredAtEachLevel, Rounded

INTEREST, QUERY = SetOf(Steps("interest", BUSINESSES, (2, 1)), 3), Steps("query", BUSINESSES, (3, 2, 1))
PAPER = Sequence((Decimals("location"), INTEREST, QUERY), HARDT_NATH_STEPS)
CELLS = Lattice(
    (MetreCells("location", (500, 5_000, 500_000)), INTEREST, QUERY), between=((0, 0, 0), (2, 1, 1))
)
NEAR = st.tuples(st.sampled_from([40.7, 40.75, 40.704]), st.sampled_from([-74.0, -73.98, -73.9801]))
CONTEXTS = st.lists(st.tuples(NEAR | PLACES, st.lists(NODES, max_size=3), NODES), max_size=12)
LOG = [
    ((40.7, -74.0), ["Coffee"], "Wine"),
    ((40.7001, -73.99), [], "Park"),
    ((40.7, -74.0), ["Coffee"], "Wine"),
]


def columns(contexts: list[Any]) -> dict[str, list[Any]]:
    return {name: [each[at] for each in contexts] for at, name in enumerate(("location", "interest", "query"))}


@pytest.mark.parametrize("hierarchy", [PAPER, CELLS], ids=["sequence", "lattice"])
@given(log=CONTEXTS, later=CONTEXTS)
@settings(max_examples=25, deadline=None)
def test_numbers_say_what_the_hierarchy_says(hierarchy: Hierarchy, log: list[Any], later: list[Any]) -> None:
    nodes = ContextNodes.of(hierarchy, columns(log))
    assert nodes.rows == len(log)
    for levels in hierarchy.levels():
        said = [hierarchy.at(context, levels) for context in log]
        ids = nodes.of_row(levels)
        assert ids.dtype == np.int32
        assert [nodes.name(levels, int(id)) for id in ids] == said
        assert sorted(set(ids.tolist())) == list(range(nodes.count(levels)))
        assert [nodes.id(node) for node in said] == ids.tolist()
        known = dict(zip(said, ids.tolist(), strict=True))
        expected = [known.get(hierarchy.at(context, levels), -1) for context in later]
        assert nodes.locate(levels, columns(later)).tolist() == expected


def parents_commute(nodes: ContextNodes) -> bool:
    """Whether the parent of a row's node is the row's node at the parent's levels, which `at` would say too."""
    return all(
        np.array_equal(nodes.parent(levels, above)[nodes.of_row(levels)], nodes.of_row(above))
        for levels in nodes.levels
        for above in nodes.levels
        if is_coarser(above, levels)
    )


@pytest.mark.parametrize("hierarchy", [PAPER, CELLS], ids=["sequence", "lattice"])
@given(log=CONTEXTS)
@settings(max_examples=25, deadline=None)
def test_parents_commute_with_generalising(hierarchy: Hierarchy, log: list[Any]) -> None:
    nodes = ContextNodes.of(hierarchy, columns(log))
    assert parents_commute(nodes)
    for levels in hierarchy.levels():
        for above in hierarchy.parents(levels):
            for context in log:
                parent = nodes.parent(levels, above)[nodes.id(hierarchy.at(context, levels))]
                assert nodes.name(above, int(parent)) == hierarchy.at(context, above)


@pytest.mark.parametrize(
    ("twin", "places"),
    [(Rounded(), [(0.446, 0.0), (0.454, 0.0)]), (FlooredAtEachLevel(), [(0.0, -163.8), (0.0, -163.801)])],
)
def test_levels_that_do_not_nest_are_refused(twin: Attribute, places: list[Any]) -> None:
    with pytest.raises(BadInput, match="location: expected levels that nest, got values that agree"):
        ContextNodes.of(Lattice((twin,)), {"location": places})


def test_a_few_levels_may_do() -> None:
    nodes = ContextNodes.of(PAPER, columns(LOG), levels=[(1, 1, 1), (4, 2, 2)])
    assert nodes.levels == ((1, 1, 1), (4, 2, 2))
    assert nodes.of_row((4, 2, 2)).tolist()[0] == nodes.of_row((4, 2, 2)).tolist()[2]
    assert nodes.parent((1, 1, 1), (4, 2, 2)).tolist() == [nodes.of_row((4, 2, 2))[row] for row in (0, 1)]
    with pytest.raises(BadInput, match=r"expected levels among \(1, 1, 1\), \(4, 2, 2\), got \(3, 2, 2\)"):
        nodes.of_row((3, 2, 2))


def test_places_may_come_as_an_array() -> None:
    rows: dict[str, Any] = {**columns(LOG)}
    as_array = ContextNodes.of(PAPER, rows | {"location": np.array(rows["location"])})
    for levels in PAPER.levels():
        assert np.array_equal(as_array.of_row(levels), ContextNodes.of(PAPER, rows).of_row(levels))


def test_a_hundred_thousand_rows_share_their_work() -> None:
    """Each distinct value is generalised at most once a level, and once more to see that levels nest."""
    calls = 0

    class Counted(Steps):
        def generalise(self, value: Any, level: int) -> str:
            nonlocal calls
            calls += 1
            return super().generalise(value, level)

    nodes = ContextNodes.of(Lattice((Counted("query", BUSINESSES),)), {"query": ["Wine", "Park"] * 50_000})
    assert nodes.rows == 100_000
    assert calls <= 2 * 2 * 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"query": ["Wine", "Park", "Gloom"]},
            "row 2: query: expected a node of its tree, got a value that is not in",
        ),
        ({"query": ["Wine", {}, "Park"]}, "row 1: query: expected a value, got a container of another kind"),
        (
            {"location": [(0, 0), (math.nan, 0), (0, 0)]},
            "row 1: location: expected latitude and longitude to be fin",
        ),
        ({"query": ["Wine"]}, "expected columns of equal length, got location 3, interest 3, query 1"),
        ({"mood": ["Park"] * 3}, "column mood: expected the columns location, interest, query, got another"),
    ],
)
def test_bad_rows_are_refused_by_their_number(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        ContextNodes.of(PAPER, columns(LOG) | change)
    assert said in str(refusal.value)
    assert "Gloom" not in str(refusal.value)
    with pytest.raises(BadInput):
        ContextNodes.of(PAPER, columns(LOG)).locate((4, 2, 2), columns(LOG) | change)


def test_what_is_not_known_is_refused_by_name() -> None:
    nodes = ContextNodes.of(PAPER, columns(LOG))
    with pytest.raises(BadInput, match=r"expected a context that is known, got 1.0,1.0 · Sport"):
        nodes.id(Node((4, 2, 2), ("1.0,1.0", "*", "Sport")))
    with pytest.raises(BadInput, match="expected levels among"):
        ContextNodes.of(PAPER, columns(LOG), levels=[(9, 9, 9)])
    with pytest.raises(BadInput, match=r"coarser than \(4, 2, 2\), got \(3, 2, 2\)"):
        nodes.parent((4, 2, 2), (3, 2, 2))
    with pytest.raises(BadInput, match=r"expected a node from 0 to 1 at \(0, 0, 0\), got 2"):
        nodes.name((0, 0, 0), 2)
    with pytest.raises(
        BadInput, match="column query: expected the values of the attribute, got no such column"
    ):
        ContextNodes.of(PAPER, {"location": [], "interest": []})
