"""Hierarchies of contexts: which tuples of levels a context may be told at, and how a TOML file describes one.

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

Unknown keys are refused. In a CSV file and in `parent`, a node with the parent "*" is a top below a root
that needs no line; an empty parent marks a root that has one.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Sequence as Values
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tacit import expect
from tacit.config import error_prefix, read_toml
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Attribute, Decimals, MetreCells, SetOf, Steps
from tacit.schema.contexts.tree import ANYTHING, Tree

Levels = tuple[int, ...]  # one level per attribute; 0 is the finest

# Hardt and Nath, CCS 2012, section 5.1: (location, interest, query), one attribute at a time.
HARDT_NATH_STEPS: tuple[Levels, ...] = (
    (0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1), (1, 2, 1), (2, 2, 1), (3, 2, 1), (3, 2, 2), (4, 2, 2),
)  # fmt: skip
MOST_LEVELS = 100_000  # of a lattice


@dataclass(frozen=True, order=True)
class Node:
    """What is said at some levels; equal if levels and values are. `names` are for reading only."""

    levels: Levels
    values: tuple[str, ...]
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        names = self.names or ("",) * len(self.values)
        said = zip(names, self.values, strict=True)
        return " · ".join(f"{name} {value}".strip() for name, value in said if value != ANYTHING) or "anything"


class Hierarchy(Protocol):
    """Contexts at several levels. A context is one value per attribute, in the order of `attributes`."""

    @property
    def attributes(self) -> tuple[Attribute, ...]: ...

    def levels(self) -> tuple[Levels, ...]:
        """All of them, each before those that are coarser; the last is the root, where nothing is said."""

    def parents(self, levels: Levels) -> tuple[Levels, ...]:
        """The next coarser levels; none for the root."""

    def at(self, context: Values[Any], levels: Levels) -> Node:
        """What is said of the context at these levels."""

    def path(self, context: Values[Any]) -> tuple[Node, ...]:
        """What is said of the context at each of the levels, in their order."""


@dataclass(frozen=True)
class Sequence:
    """One chain of ever coarser levels, the first exact; the root is added where it is not the last step."""

    attributes: tuple[Attribute, ...]
    steps: tuple[Levels, ...]

    def __init__(self, attributes: Iterable[Attribute], steps: Iterable[Iterable[int]]) -> None:
        attributes = _distinct(attributes)
        chain = [_in_range("steps", attributes, each) for each in _expect_list("steps", steps)]
        if not chain or any(chain[0]):
            got = chain[0] if chain else "none"
            raise BadInput(f"steps: expected the first to be exact, {(0,) * len(attributes)}, got {got}")
        for finer, coarser in itertools.pairwise(chain):
            if finer == coarser or not is_coarser(coarser, finer):
                raise BadInput(
                    "steps: expected each coarser in one attribute and finer in none, "
                    f"got {coarser} after {finer}"
                )
        if chain[-1] != _root(attributes):
            chain.append(_root(attributes))
        object.__setattr__(self, "attributes", attributes)
        object.__setattr__(self, "steps", tuple(chain))

    def levels(self) -> tuple[Levels, ...]:
        return self.steps

    def parents(self, levels: Levels) -> tuple[Levels, ...]:
        place = self.steps.index(_expect_known(self.steps, levels))
        return self.steps[place + 1 : place + 2]

    def at(self, context: Values[Any], levels: Levels) -> Node:
        return _node(self.attributes, context, _expect_known(self.steps, levels))

    def path(self, context: Values[Any]) -> tuple[Node, ...]:
        return tuple(_node(self.attributes, context, levels) for levels in self.steps)


@dataclass(frozen=True)
class Lattice:
    """Every tuple of levels, or those `between` a finest and a coarsest one; then the root is above them."""

    attributes: tuple[Attribute, ...]
    between: tuple[Levels, Levels]
    _levels: tuple[Levels, ...] = field(init=False, compare=False, repr=False)
    _set: frozenset[Levels] = field(init=False, compare=False, repr=False)

    def __init__(
        self,
        attributes: Iterable[Attribute],
        between: tuple[Iterable[int], Iterable[int]] | None = None,
    ) -> None:
        attributes = _distinct(attributes)
        root = _root(attributes)
        if between is None:
            between = ((0,) * len(attributes), root)
        if not isinstance(between, list | tuple) or len(between) != 2:
            raise BadInput(f"between: expected the finest and the coarsest levels, got {between!r}")
        finest, coarsest = (_in_range("between", attributes, each) for each in between)
        if not is_coarser(coarsest, finest):
            raise BadInput(f"between: expected finest and then coarser levels, got {finest} and {coarsest}")
        size = 1
        for low, high in zip(finest, coarsest, strict=True):
            size *= high - low + 1
        if size > MOST_LEVELS:
            raise BadInput(f"expected a lattice of at most {MOST_LEVELS} levels, got {size}: say between which")
        ranges = (range(low, high + 1) for low, high in zip(finest, coarsest, strict=True))
        levels = sorted(itertools.product(*ranges), key=lambda each: (sum(each), each))
        if levels[-1] != root:
            levels.append(root)
        object.__setattr__(self, "attributes", attributes)
        object.__setattr__(self, "between", (finest, coarsest))
        object.__setattr__(self, "_levels", tuple(levels))
        object.__setattr__(self, "_set", frozenset(levels))

    def levels(self) -> tuple[Levels, ...]:
        return self._levels

    def parents(self, levels: Levels) -> tuple[Levels, ...]:
        levels = self._expect(levels)
        if levels == self._levels[-1]:
            return ()
        up = (tuple(value + (at == each) for at, value in enumerate(levels)) for each in range(len(levels)))
        return tuple(each for each in up if each in self._set) or (self._levels[-1],)

    def join(self, one: Levels, other: Levels) -> Levels:
        """The finest levels at which what is said follows from either."""
        return tuple(map(max, self._expect(one), self._expect(other)))

    def at(self, context: Values[Any], levels: Levels) -> Node:
        return _node(self.attributes, context, self._expect(levels))

    def path(self, context: Values[Any]) -> tuple[Node, ...]:
        return tuple(_node(self.attributes, context, levels) for levels in self._levels)

    def _expect(self, levels: Levels) -> Levels:
        quick = isinstance(levels, tuple) and levels in self._set  # a lattice may have many levels
        return levels if quick else _expect_known(self._levels, levels)


def is_coarser(levels: Levels, than: Levels) -> bool:
    """Whether no attribute is told more finely; equal levels count."""
    return all(one >= other for one, other in zip(levels, than, strict=True))


def expect_context(attributes: tuple[Attribute, ...], context: Values[Any]) -> None:
    """Refuse a context with too few or too many values."""
    if isinstance(context, str) or not isinstance(context, Values) or len(context) != len(attributes):
        names = ", ".join(each.name for each in attributes)
        got = len(context) if isinstance(context, Values) and not isinstance(context, str) else "something else"
        raise BadInput(f"expected a context of {len(attributes)} values ({names}), got {got}")


def _node(attributes: tuple[Attribute, ...], context: Values[Any], levels: Levels) -> Node:
    expect_context(attributes, context)
    said = zip(attributes, context, levels, strict=True)
    values = tuple(attribute.generalise(value, level) for attribute, value, level in said)
    return Node(levels, values, tuple(each.name for each in attributes))


def _expect_known(known: tuple[Levels, ...], levels: Any) -> Levels:
    levels = tuple(levels) if isinstance(levels, list) else levels
    if levels not in known:
        listed = ", ".join(map(str, known)) if len(known) <= 12 else f"the {len(known)} of this hierarchy"
        raise BadInput(f"expected levels among {listed}, got {levels!r}")
    found: Levels = levels
    return found


def _root(attributes: tuple[Attribute, ...]) -> Levels:
    return tuple(each.levels - 1 for each in attributes)


def _distinct(attributes: Iterable[Attribute]) -> tuple[Attribute, ...]:
    attributes = expect.several("attributes", attributes)
    attributes = tuple(attributes)
    if not attributes:
        raise BadInput("expected at least one attribute, got none")
    names = [each.name for each in attributes]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"attribute {name!r}: expected it once, got it {names.count(name)} times")
    return attributes


def _expect_list(name: str, values: Any) -> Iterable[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise BadInput(f"{name}: expected a list, got {values!r}")
    return values


def _in_range(name: str, attributes: tuple[Attribute, ...], levels: Any) -> Levels:
    found = tuple(expect.integer(f"each level of {name}", each) for each in _expect_list(name, levels))
    if len(found) != len(attributes):
        raise BadInput(f"{name}: expected a level for each of {len(attributes)} attributes, got {found}")
    for attribute, level in zip(attributes, found, strict=True):
        if not 0 <= level < attribute.levels:
            raise BadInput(
                f"{name}: expected a level of {attribute.name} from 0 to {attribute.levels - 1}, got {level} "
                f"in {found}"
            )
    return found


TOP = ("attribute", "sequence", "lattice")
TREES = ("tree", "parent", "paths")
EXACT = "exact"  # TOML has no None
Made = TypeVar("Made")


def load_hierarchy(path: str | Path) -> Sequence | Lattice:
    """The hierarchy that a TOML file describes; files named in it are relative to its folder."""
    with error_prefix(str(path)):
        return parse_hierarchy(read_toml(path, "a hierarchy of contexts"), Path(path).parent)


def parse_hierarchy(record: Mapping[str, Any], folder: Path) -> Sequence | Lattice:
    """The hierarchy that these words describe."""
    _check_keys("", record, TOP)
    entries = record.get("attribute")
    if isinstance(entries, Mapping):
        raise BadInput("attribute: expected tables [[attribute]], in double brackets, got [attribute]")
    if not isinstance(entries, list) or not entries:
        raise BadInput("attribute: expected at least one table [[attribute]], got none")
    attributes = [_attribute(place, entry, folder) for place, entry in enumerate(entries, start=1)]
    if ("sequence" in record) == ("lattice" in record):
        raise BadInput("expected either [sequence] or [lattice], got both or neither")
    if "sequence" in record:
        table = _check_keys("sequence", record["sequence"], ("steps",))
        if "steps" not in table:
            raise BadInput("sequence.steps: expected a list of levels, got no such key")
        with error_prefix("sequence"):
            return Sequence(attributes, table["steps"])
    table = _check_keys("lattice", record["lattice"], ("finest", "coarsest"))
    finest = table.get("finest", [0] * len(attributes))
    coarsest = table.get("coarsest", [each.levels - 1 for each in attributes])
    with error_prefix("lattice"):
        for key, levels in (("finest", finest), ("coarsest", coarsest)):  # each alone, to be named by its key
            _in_keys({"between": key}, Lattice, attributes, (levels, levels))
        keys = {"between which": "finest and coarsest", "between": "finest and coarsest"}
        return _in_keys(keys, Lattice, attributes, (finest, coarsest))


def _attribute(place: int, entry: Any, folder: Path) -> Attribute:
    path = f"attribute {place}"
    _check_keys(path, entry, ("name", *KINDS, "depths", "most"))
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
    with error_prefix(f"attribute {name}"):
        tree = _tree(kind, entry[kind], folder)
    steps = Steps(name, tree, entry.get("depths"))
    if steps.depths is not None and steps.depths[0] > steps.tree.height:
        raise BadInput(
            f"attribute {name}: expected depths of at most {steps.tree.height}, as deep as its tree, "
            f"got {steps.depths[0]}"
        )
    return SetOf(steps, entry["most"]) if "most" in entry else steps


def _decimals(name: str, digits: Any) -> Decimals:
    return _in_keys({"digits": "decimals"}, Decimals, name, digits)


# Each kind of attribute that is no tree, by its key.
PLACES: Mapping[str, Callable[[str, Any], Attribute]] = {"decimals": _decimals, "metres": MetreCells}
KINDS = (*PLACES, *TREES)


def _sizes(value: Any) -> Any:
    """As the kinds of place take them, which check the rest."""
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
    with error_prefix(value):
        return read_tree(folder / value)


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


def _check_keys(path: str, record: Any, allowed: Collection[str]) -> Mapping[str, Any]:
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
