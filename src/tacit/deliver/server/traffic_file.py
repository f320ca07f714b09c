"""Counted traffic as a CSV file: a column per attribute of contexts, and a column `count` of requests.

    city,topic,count
    Berlin,Coffee,18200
    Berlin,Yoga,950

Each line is an exact context; lines of the same context add up. A hierarchy (`load_hierarchy`) says how
contexts become coarser. Without one the columns do, the last first: city and topic, the city, then nothing.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.config import error_prefix
from tacit.deliver.server.cohorts import Traffic
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Hierarchy, Lattice, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import ANYTHING, Tree

COUNT = "count"
MOST_REQUESTS = 1e15


def read_traffic(path: str | Path, hierarchy: Hierarchy | None = None, *, days: expect.Number = 1) -> Traffic:
    """The traffic in a file, counted over so many days; what is wrong is said with its line and column."""
    path = expect.path("path", path)
    if hierarchy is not None:
        expect.having("hierarchy", hierarchy, "levels", "a hierarchy of contexts")
    if isinstance(hierarchy, Lattice):
        raise BadInput("expected a hierarchy with [sequence], one way up from each context, got [lattice]")
    with error_prefix(str(path)):
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                lines = _lines(csv.reader(file, strict=True))
                columns = next(lines)[1]
                _check_columns(columns, hierarchy)
                texts: dict[str, list[str]] = {name: [] for name in columns}
                at: list[int] = []
                for line, fields in lines:
                    if len(fields) != len(columns):
                        raise BadInput(f"line {line}: expected {len(columns)} fields, got {len(fields)}")
                    for name, text in zip(columns, fields, strict=True):
                        texts[name].append(text.strip())
                    at.append(line)
        except OSError as problem:
            raise BadInput(f"expected counts in CSV, got none ({(problem.strerror or '').lower()})") from None
        except (csv.Error, UnicodeDecodeError):
            raise BadInput("expected counts in CSV, got something else") from None
        if not at:
            raise BadInput("expected at least one line of counts, got none")
        requests = [_count(line, text) for line, text in zip(at, texts.pop(COUNT), strict=True)]
        known = hierarchy or _by_columns(texts, at)
        values = {each.name: _values(each, texts[each.name], at) for each in known.attributes}
        return Traffic.of_rows(ContextNodes.of(known, values), requests, days)


def _lines(rows: Any) -> Iterator[tuple[int, list[str]]]:
    """Where each row ends, and its fields; rows without any are passed over."""
    found = ((rows.line_num, fields) for fields in rows if fields)
    header = next(found, None)
    if header is None:
        raise BadInput(f"expected a first line with the columns' names, one of them {COUNT}, got none")
    yield header[0], [name.strip() for name in header[1]]
    yield from found


def _check_columns(columns: list[str], hierarchy: Hierarchy | None) -> None:
    for name in columns:
        if columns.count(name) > 1:
            raise BadInput(f"column {name}: expected it once, got it {columns.count(name)} times")
    known = columns if hierarchy is None else [*(each.name for each in hierarchy.attributes), COUNT]
    if COUNT not in columns or len(known) < 2:
        raise BadInput(f"expected a column {COUNT} beside those of contexts, got {', '.join(columns)}")
    for name in columns:
        if name not in known:
            raise BadInput(f"column {name}: expected one of {', '.join(known)}, got another")
        if not name:
            raise BadInput("expected a name above each column, got none above one")
    for name in known:
        if name not in columns:
            raise BadInput(f"column {name}: expected the hierarchy's attribute, got no such column")


def _by_columns(texts: dict[str, list[str]], at: list[int]) -> Sequence:
    """Each column tells its value or nothing, and the last is the first to say nothing."""
    for name, column in texts.items():
        for line, text in zip(at, column, strict=True):
            if not text or text == ANYTHING:
                raise BadInput(f"line {line}: column {name}: expected a value, got {text!r}")
    attributes = [
        Steps(name, Tree((value, ANYTHING) for value in dict.fromkeys(column)))
        for name, column in texts.items()
    ]
    size = len(attributes)
    return Sequence(attributes, [[0] * (size - dropped) + [1] * dropped for dropped in range(size)])


def _values(attribute: Any, column: list[str], at: list[int]) -> list[Any]:
    """Each text read by its attribute, once."""
    read: dict[str, Any] = {}
    for line, text in zip(at, column, strict=True):
        if text not in read:
            with error_prefix(f"line {line}"):
                read[text] = attribute.parse(text)
                attribute.check(read[text])
    return [read[text] for text in column]


def _count(line: int, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= MOST_REQUESTS:
        raise BadInput(f"line {line}: column {COUNT}: expected a number of requests, got {text[:40]!r}")
    return found
