"""Hierarchies as devices read them: what they hold, and what is refused by name."""

from __future__ import annotations

import json

import pytest

from tacit.errors import BadInput
from tacit.schema.contexts import device_copy
from tacit.schema.contexts.attributes import Decimals, MetreCells, SetOf, Steps
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tacit.schema.contexts.hierarchy import Lattice, Sequence
from tacit.schema.contexts.tree import Tree

DRINKS = Tree.of_paths(["Food>Coffee", "Food>Tea", "Sport>Skating"])


def test_a_sequence_of_a_place_and_a_tree() -> None:
    hierarchy = Sequence([Decimals("place", (None, 2)), Steps("query", DRINKS)], [(0, 0), (1, 1)])
    record = hierarchy_as_json(hierarchy)
    assert json.loads(json.dumps(record)) == record
    parents = {"*": None, "Food": "*", "Sport": "*", "Coffee": "Food", "Tea": "Food", "Skating": "Sport"}
    assert record == {
        "version": 1,
        "attributes": [
            {"name": "place", "kind": "decimals", "sizes": [None, 2]},
            {"name": "query", "kind": "tree", "sizes": [2, 1], "parents": parents},
        ],
        "levels": [[0, 0], [1, 1], [2, 2]],
    }


def test_a_set_says_how_many_it_may_have() -> None:
    record = hierarchy_as_json(Sequence([SetOf(Steps("likes", DRINKS, (1,)), 3)], [(0,)]))
    (likes,) = record["attributes"]
    assert (likes["kind"], likes["most"], likes["sizes"]) == ("set", 3, [1])


def test_what_devices_do_not_have_is_refused_by_name() -> None:
    cells = Sequence([MetreCells("cell")], [(0,)])
    with pytest.raises(BadInput, match="cell: expected a tree, a set of its nodes or decimals for devices"):
        hierarchy_as_json(cells)
    notes = SetOf(Steps("notes", Tree.of_paths(["Music>\U0001d11e", "Music>Jazz"])), 2)
    with pytest.raises(BadInput, match=r"notes: expected names below U\+10000 in a set"):
        hierarchy_as_json(Sequence([notes], [(0,)]))


def test_too_many_levels_or_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = [Decimals(f"place {each}") for each in range(4)]
    with pytest.raises(BadInput, match="expected at most 1000 levels for devices, got 2401"):
        hierarchy_as_json(Lattice(attributes))
    monkeypatch.setattr(device_copy, "MOST_NODES", 5)
    with pytest.raises(BadInput, match="expected trees of at most 5 nodes for devices, got 6"):
        hierarchy_as_json(Sequence([Steps("query", DRINKS)], [(0,)]))
