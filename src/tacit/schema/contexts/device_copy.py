"""A hierarchy of contexts as JSON, for devices that generalise their own context without Python.

    Path("contexts.json").write_text(json.dumps(hierarchy_as_json(load_hierarchy("contexts.toml"))))

{"version": 1, "attributes": [{"name", "kind", "sizes", ...}, ...], "levels": [[0, 0], ...]}: `sizes` says what
each level but the last keeps (steps below the root of a tree, or decimals of a degree, null for the exact
place), and `levels` lists all that a context may be told at, as `Hierarchy.levels` does. What a device says at
each of them is then what `Hierarchy.at` says here. It is all public: nothing in it is of anybody's context.
"""

from __future__ import annotations

from typing import Any

from tacit import expect
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Attribute, Decimals, SetOf, Steps
from tacit.schema.contexts.hierarchy import Hierarchy

VERSION = 1
MOST_LEVELS = 1000
"""Of a lattice: a device says all of them of every context."""

MOST_NODES = 100_000
"""Of all trees."""


def hierarchy_as_json(hierarchy: Hierarchy) -> dict[str, Any]:
    """The hierarchy as devices read it; attributes that they do not have are refused by name."""
    expect.having("hierarchy", hierarchy, "levels", "a hierarchy of contexts")
    levels = hierarchy.levels()
    if len(levels) > MOST_LEVELS:
        raise BadInput(f"expected at most {MOST_LEVELS} levels for devices, got {len(levels)}")
    attributes = [_attribute_as_json(each) for each in hierarchy.attributes]
    nodes = sum(len(each.get("parents", ())) for each in attributes)
    if nodes > MOST_NODES:
        raise BadInput(f"expected trees of at most {MOST_NODES} nodes for devices, got {nodes}")
    return {"version": VERSION, "attributes": attributes, "levels": [list(each) for each in levels]}


def _attribute_as_json(attribute: Attribute) -> dict[str, Any]:
    """By its own type: a kind that is made from one of these may say something else."""
    if type(attribute) is Steps:
        return {"name": attribute.name, "kind": "tree", **_steps_as_json(attribute)}
    if type(attribute) is SetOf and type(attribute.of) is Steps:
        for node in attribute.of.tree.nodes:
            if max(node) > "\uffff":  # which other languages put in another order
                raise BadInput(
                    f"{attribute.name}: expected names below U+10000 in a set for devices, got {node!r}"
                )
        own = _steps_as_json(attribute.of)
        return {"name": attribute.name, "kind": "set", "most": attribute.most, **own}
    if type(attribute) is Decimals:
        return {"name": attribute.name, "kind": "decimals", "sizes": list(attribute.digits)}
    raise BadInput(
        f"{attribute.name}: expected a tree, a set of its nodes or decimals for devices, got "
        f"{type(attribute).__name__}"
    )


def _steps_as_json(steps: Steps) -> dict[str, Any]:
    tree = steps.tree
    depths = steps.depths or range(tree.height, 0, -1)
    return {"sizes": list(depths), "parents": {node: tree.parent(node) for node in tree.nodes}}
