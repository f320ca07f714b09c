"""A hierarchy of contexts in one TOML file.

[[attribute]]                                 # in the order in which a context lists its values
name = "location"
decimals = ["exact", 4, 3, 2, 1, 0]           # or metres = [100, 500, 2_500]

[[attribute]]
name = "interest"
tree = "businesses.csv"                       # columns node,parent; relative to this file
most = 3                                      # several values at once
depths = [2, 1]                               # steps below the root that levels keep; without it, every depth

[[attribute]]
name = "query"
paths = ["Food > Coffee > Starbucks", "Food > Tea"]
# or parent = { Everything = "", Food = "Everything", Coffee = "Food" }, where "" marks the root

[sequence]                                    # levels, the finest first; nothing at all is added at the end
steps = [[0, 0, 0], [0, 0, 1], [3, 1, 1]]
# or [lattice], every combination; finest = [1, 0, 0] and coarsest = [4, 2, 2] bound it

Unknown keys are refused. In a CSV file and in `parent`, a node with the parent "*" is a top below a root that
needs no line; an empty parent marks a root that has one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tacit import expect
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Attribute, SetOf, Steps
from tacit.schema.contexts.hierarchy import Lattice, Sequence
from tacit.schema.contexts.places import Cells, Decimals
from tacit.schema.contexts.tree import Tree
from tacit.toml import read_toml

TOP = ("attribute", "sequence", "lattice")
TREES = ("tree", "parent", "paths")
EXACT = "exact"  # TOML has no None
Made = TypeVar("Made")


def load(path: str | Path) -> Sequence | Lattice:
    """The hierarchy that a TOML file describes; files named in it are relative to its folder."""
    try:
        return parse(read_toml(path, "a hierarchy of contexts"), Path(path).parent)
    except BadInput as refusal:
        raise BadInput(f"{path}: {refusal}") from None


def parse(record: Mapping[str, Any], folder: Path) -> Sequence | Lattice:
    """The hierarchy that these words describe."""
    _known("", record, TOP)
    entries = record.get("attribute")
    if isinstance(entries, Mapping):
        raise BadInput("attribute: expected tables [[attribute]], in double brackets, got [attribute]")
    if not isinstance(entries, list) or not entries:
        raise BadInput("attribute: expected at least one table [[attribute]], got none")
    attributes = [_attribute(place, entry, folder) for place, entry in enumerate(entries, start=1)]
    if ("sequence" in record) == ("lattice" in record):
        raise BadInput("expected either [sequence] or [lattice], got both or neither")
    if "sequence" in record:
        table = _known("sequence", record["sequence"], ("steps",))
        if "steps" not in table:
            raise BadInput("sequence.steps: expected a list of levels, got no such key")
        return _under("sequence", Sequence, attributes, table["steps"])
    table = _known("lattice", record["lattice"], ("finest", "coarsest"))
    finest = table.get("finest", [0] * len(attributes))
    coarsest = table.get("coarsest", [each.levels - 1 for each in attributes])
    for key, levels in (("finest", finest), ("coarsest", coarsest)):  # each by itself, to be named by its key
        _under("lattice", _in_keys, {"between": key}, Lattice, attributes, (levels, levels))
    keys = {"between which": "finest and coarsest", "between": "finest and coarsest"}
    lattice: Lattice = _under("lattice", _in_keys, keys, Lattice, attributes, (finest, coarsest))
    return lattice


def _attribute(place: int, entry: Any, folder: Path) -> Attribute:
    path = f"attribute {place}"
    _known(path, entry, ("name", *KINDS, "depths", "most"))
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"{path}: expected a name, a text in quotes, got {name!r}")
    given = [key for key in KINDS if key in entry]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise BadInput(f"attribute {name}: expected one of {', '.join(KINDS)}, got {got}")
    kind = given[0]
    if kind not in TREES:
        for key in ("depths", "most"):
            if key in entry:
                raise BadInput(f"attribute {name}: expected {key} only with a tree, got it with {kind}")
        return PLACES[kind](name, _sizes(entry[kind]))
    steps = Steps(name, _under(f"attribute {name}", _tree, kind, entry[kind], folder), entry.get("depths"))
    if steps.depths is not None and steps.depths[0] > steps.tree.height:
        raise BadInput(
            f"attribute {name}: expected depths of at most {steps.tree.height}, as deep as its tree, "
            f"got {steps.depths[0]}"
        )
    return SetOf(steps, entry["most"]) if "most" in entry else steps


def _decimals(name: str, digits: Any) -> Decimals:
    return _in_keys({"digits": "decimals"}, Decimals, name, digits)


# Each kind of attribute that is no tree, by its key.
PLACES: Mapping[str, Callable[[str, Any], Attribute]] = {"decimals": _decimals, "metres": Cells}
KINDS = (*PLACES, *TREES)


def _sizes(value: Any) -> Any:
    """As the kinds of place take them, who check the rest."""
    return tuple(None if each == EXACT else each for each in value) if isinstance(value, list) else value


def _tree(kind: str, value: Any, folder: Path) -> Tree:
    if kind == "paths":
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadInput('paths: expected a list such as ["Food > Coffee"], got something else')
        return Tree.of_paths(value)
    if kind == "parent":
        if not isinstance(value, Mapping):
            raise BadInput('parent: expected a table such as { Coffee = "Food" }, got something else')
        return Tree((node, None if above == "" else above) for node, above in value.items())
    if not isinstance(value, str) or not value.endswith(".csv"):
        raise BadInput(f"tree: expected the name of a .csv file, got {value!r}")
    return _under(value, read_tree, folder / value)


def read_tree(path: str | Path) -> Tree:
    """The tree in a CSV file with the columns node and parent."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, strict=True)
            columns = list(rows.fieldnames or ())
            for column in ("node", "parent"):
                if columns.count(column) != 1:
                    got = f"{column} twice" if column in columns else f"no {column}"
                    raise BadInput(f"expected the columns node and parent, got {got}")
            pairs = []
            for row in rows:
                node, above = row["node"], row["parent"]
                if node is None or above is None or None in row:  # None marks lacking fields and spare ones
                    got = "too many fields" if None in row else "too few fields"
                    raise BadInput(f"line {rows.line_num}: expected a node and its parent, got {got}")
                pairs.append((node.strip(), above.strip() or None))
    except OSError as problem:
        raise BadInput(f"expected a tree, got none ({(problem.strerror or '').lower()})") from None
    except (csv.Error, UnicodeDecodeError) as problem:
        raise BadInput(f"expected CSV, got {problem}") from None
    return Tree(pairs)


def _known(path: str, record: Any, allowed: Collection[str]) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise BadInput(f"{path}: expected a table, got {record!r}")
    for key in record:
        if key not in allowed:
            raise BadInput(expect.unknown_key(f"{path}.{key}" if path else key, key, allowed))
    return record


def _in_keys(keys: Mapping[str, str], make: Callable[..., Made], *given: Any) -> Made:
    """What is made, or its refusal in the file's words: what the code calls digits, the file calls decimals."""
    try:
        return make(*given)
    except BadInput as refusal:
        words = str(refusal)
        for ours, key in keys.items():
            words = words.replace(ours, key)
        raise BadInput(words) from None


def _under(path: str, make: Callable[..., Made], *given: Any) -> Made:
    """What is made, or its refusal with the path in front."""
    try:
        return make(*given)
    except BadInput as refusal:
        raise BadInput(f"{path}: {refusal}") from None
