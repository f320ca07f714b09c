"""A log's contexts as whole numbers: the node of each row at each level, and the parents of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Ids
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Attribute
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser

ColumnValues = Sequence[Any] | NDArray[Any]
UNKNOWN = -1
CHECKED = 200  # values whose levels are seen to nest


@dataclass(frozen=True, eq=False)
class _Level:
    """The nodes at some levels: `codes` (attributes, nodes) are the values' places in `texts`."""

    of_context: Ids  # (distinct contexts,) the node of each
    first: NDArray[np.int64]  # (nodes,) one of the contexts below each
    codes: Ids
    texts: tuple[tuple[str, ...], ...]  # by attribute

    @cached_property
    def id(self) -> dict[tuple[str, ...], int]:
        columns = ([texts[code] for code in codes] for texts, codes in zip(self.texts, self.codes, strict=True))
        return {values: node for node, values in enumerate(zip(*columns, strict=True))}


class ContextNodes:
    """The contexts of a log's rows at the levels of a hierarchy; nodes of a level are 0, 1, and so on.

    Distinct contexts are found once, and each value is generalised from one that stands for all that agree
    with it at a finer level: levels nest, so the others would say the same.
    """

    def __init__(self, hierarchy: Hierarchy, row: Ids, levels: Mapping[Levels, _Level]) -> None:
        expect.kind("levels", levels, Mapping)
        self.hierarchy, self._row, self._levels = hierarchy, row, dict(levels)

    def __repr__(self) -> str:
        return brief(self, contexts=len(self._row), levels=len(self._levels))

    @classmethod
    def of(
        cls,
        hierarchy: Hierarchy,
        columns: Mapping[str, ColumnValues],
        levels: Iterable[Levels] | None = None,
    ) -> ContextNodes:
        """`columns` has the rows' exact values by the attributes' names; by default all levels are kept."""
        expect.having("hierarchy", hierarchy, "levels", "a hierarchy of contexts")
        known = hierarchy.levels()
        asked = known if levels is None else tuple(tuple(each) for each in levels)
        for each in asked:
            hierarchy.parents(each)  # refuses levels that are not there
        rows = _Rows.of(hierarchy.attributes, columns)
        one_each, row = _combine_codes(rows.codes)
        contexts = rows.codes[:, one_each]  # (attributes, distinct contexts)
        ladders = [rows.ladder(place, {each[place] for each in asked}) for place in range(len(rows.codes))]
        found = {}
        for each in asked:
            rungs = [ladder[level] for ladder, level in zip(ladders, each, strict=True)]
            told = np.stack([rung[0][code] for rung, code in zip(rungs, contexts, strict=True)])
            first, of_context = _combine_codes(told)
            found[each] = _Level(of_context, first, told[:, first], tuple(rung[1] for rung in rungs))
        return cls(hierarchy, row, found)

    def only(self, levels: Iterable[Levels]) -> ContextNodes:
        """Some of the levels, their nodes numbered as here."""
        return ContextNodes(self.hierarchy, self._row, {tuple(each): self._at(each) for each in levels})

    @property
    def rows(self) -> int:
        return len(self._row)

    @property
    def levels(self) -> tuple[Levels, ...]:
        """Those that were kept."""
        return tuple(self._levels)

    def of_row(self, levels: Levels) -> Ids:
        """(rows,) the node of each row."""
        return self._at(levels).of_context[self._row]

    def count(self, levels: Levels) -> int:
        return int(self._at(levels).codes.shape[1])

    def name(self, levels: Levels, id: int) -> Node:
        level = self._at(levels)
        if not 0 <= id < level.codes.shape[1]:
            raise BadInput(f"expected a node from 0 to {level.codes.shape[1] - 1} at {levels}, got {id}")
        values = tuple(texts[code] for texts, code in zip(level.texts, level.codes[:, id], strict=True))
        return Node(tuple(levels), values, tuple(each.name for each in self.hierarchy.attributes))

    def parent(self, levels: Levels, parent_levels: Levels) -> Ids:
        """(nodes at `levels`,) the node above each at coarser levels, however far up."""
        level, above = self._at(levels), self._at(parent_levels)
        if not is_coarser(parent_levels, levels):
            raise BadInput(f"expected levels that are coarser than {levels}, got {parent_levels}")
        return above.of_context[level.first]

    def id(self, node: Node) -> int:
        found = self._at(node.levels).id.get(tuple(node.values))
        if found is None:
            raise BadInput(f"expected a context that is known, got {node}")
        return found

    def locate(self, levels: Levels, columns: Mapping[str, ColumnValues]) -> Ids:
        """(more rows,) the node of each at these levels, -1 where none of the log's rows was in it."""
        known = self._at(levels).id
        rows = _Rows.of(self.hierarchy.attributes, columns)
        one_each, row = _combine_codes(rows.codes)
        told = []
        for place, (level, codes) in enumerate(zip(levels, rows.codes[:, one_each], strict=True)):
            code_of_value, texts = rows.ladder(place, {level})[level]
            told.append([texts[code] for code in code_of_value[codes]])
        ids = np.array([known.get(each, UNKNOWN) for each in zip(*told, strict=True)], np.int32)
        return ids[row]

    def _at(self, levels: Levels) -> _Level:
        found = self._levels.get(tuple(levels))
        if found is None:
            kept = ", ".join(map(str, self._levels)) if len(self._levels) <= 12 else f"{len(self._levels)} kept"
            raise BadInput(f"expected levels among {kept}, got {levels!r}")
        return found


@dataclass(frozen=True, eq=False)
class _Rows:
    """Each attribute's distinct exact values, the row where each came first, and the rows' codes."""

    attributes: tuple[Attribute, ...]
    values: list[list[Any]]
    first: list[list[int]]
    codes: Ids  # (attributes, rows)

    @classmethod
    def of(cls, attributes: tuple[Attribute, ...], columns: Mapping[str, ColumnValues]) -> _Rows:
        names = [each.name for each in attributes]
        for name in names:
            if name not in columns:
                raise BadInput(f"column {name}: expected the values of the attribute, got no such column")
        for name in columns:
            if name not in names:
                raise BadInput(f"column {name}: expected the columns {', '.join(names)}, got another")
        lengths = [len(columns[name]) for name in names]
        if len(set(lengths)) > 1:
            said = ", ".join(f"{name} {length}" for name, length in zip(names, lengths, strict=True))
            raise BadInput(f"expected columns of equal length, got {said}")
        codes = np.empty((len(names), lengths[0]), np.int32)
        values, first = [], []
        for name, into in zip(names, codes, strict=True):
            seen: dict[Any, int] = {}
            came: list[int] = []
            for row, value in enumerate(_plain(columns[name])):
                try:
                    code = seen.setdefault(value, len(came))
                except TypeError:
                    raise BadInput(
                        f"row {row}: {name}: expected a value, got a container of another kind"
                    ) from None
                if code == len(came):
                    came.append(row)
                into[row] = code
            values.append(list(seen))
            first.append(came)
        return cls(attributes, values, first, codes)

    def ladder(self, place: int, levels: set[int]) -> dict[int, tuple[Ids, tuple[str, ...]]]:
        """For each level the code of every exact value of an attribute, and the texts that codes stand for."""
        attribute, stand_for = self.attributes[place], self.values[place]
        codes = np.arange(len(stand_for), dtype=np.int32)
        rungs: dict[int, tuple[Ids, tuple[str, ...]]] = {}
        for level in sorted(levels):
            try:
                told = [attribute.generalise(value, level) for value in stand_for]
            except BadInput:
                self._refuse(place)
                raise
            seen: dict[str, int] = {}
            up = np.array([seen.setdefault(text, len(seen)) for text in told], np.int32)
            one_each = np.unique(up, return_index=True)[1]  # nesting: any of those that agree will do
            codes, stand_for = up[codes], [stand_for[each] for each in one_each]
            rungs[level] = codes, tuple(seen)
            self._expect_nested(place, level, *rungs[level])
        return rungs

    def _expect_nested(self, place: int, level: int, codes: Ids, texts: tuple[str, ...]) -> None:
        """Some values are asked directly: without nesting, rows and devices would be in other nodes."""
        attribute, values = self.attributes[place], self.values[place]
        for at in range(0, len(values), max(1, len(values) // CHECKED)):
            if attribute.generalise(values[at], level) != texts[codes[at]]:
                raise BadInput(
                    f"{attribute.name}: expected levels that nest, got values that agree below level "
                    f"{level} and not there"
                )

    def _refuse(self, place: int) -> None:
        """Say in which row the value is that the attribute does not take."""
        for value, row in zip(self.values[place], self.first[place], strict=True):
            try:
                self.attributes[place].check(value)
            except BadInput as refusal:
                raise BadInput(f"row {row}: {refusal}") from None


def _plain(column: ColumnValues) -> Iterator[Any]:
    """The values as Python's own, lists as tuples and sets frozen, so that equal ones can be found."""
    for each in column.tolist() if isinstance(column, np.ndarray) else column:
        if isinstance(each, list | np.ndarray):
            yield tuple(each)
        else:
            yield frozenset(each) if isinstance(each, set) else each


def _combine_codes(codes: Ids) -> tuple[NDArray[np.int64], Ids]:
    """Where each distinct column of (attributes, n) codes comes first, and which of them each column is."""
    ids = codes[0].astype(np.int64)
    for more in codes[1:]:  # compressed before each, so that the products stay far below 2^63
        _, ids = np.unique(ids, return_inverse=True)
        ids = ids * (int(more.max(initial=0)) + 1) + more
    _, first, ids = np.unique(ids, return_index=True, return_inverse=True)
    return first.astype(np.int64), ids.astype(np.int32)
