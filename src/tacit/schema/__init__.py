"""Shared nouns, frozen: what the stages hand to each other.

`columns`      what the columns of a log mean: `Role` and `Kind` of each, together a `LogSchema`
`contexts`     hierarchies of contexts, and their nodes
`counts`       clicks and impressions along a hierarchy: what gathering fills and estimates read
`impressions`  what was shown, its public price, and why: from delivery to the bill
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.schema.columns import Column, Kind, LogSchema, Role
    from tacit.schema.contexts.attributes import Decimals, MetreCells, SetOf, Steps
    from tacit.schema.contexts.device_copy import hierarchy_as_json
    from tacit.schema.contexts.hierarchy import Hierarchy, Lattice, Node, Sequence, load_hierarchy
    from tacit.schema.contexts.nodes import ContextNodes
    from tacit.schema.contexts.tree import Tree
    from tacit.schema.counts import Counts
    from tacit.schema.impressions import Impressions
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "columns": "Column Kind LogSchema Role",
            "contexts.attributes": "Decimals MetreCells SetOf Steps",
            "contexts.device_copy": "hierarchy_as_json",
            "contexts.hierarchy": "Hierarchy Lattice Node Sequence load_hierarchy",
            "contexts.nodes": "ContextNodes",
            "contexts.tree": "Tree",
            "counts": "Counts",
            "impressions": "Impressions",
        },
    )

__all__ = [
    "Column", "ContextNodes", "Counts", "Decimals", "Hierarchy", "Impressions", "Kind", "Lattice",
    "LogSchema", "MetreCells", "Node", "Role", "Sequence", "SetOf", "Steps", "Tree", "hierarchy_as_json",
    "load_hierarchy",
]  # fmt: skip
