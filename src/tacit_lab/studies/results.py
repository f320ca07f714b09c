"""Result files of a study: NAME.csv (plain columns), NAME.svg and .png, and NAME.json (its settings).

The JSON is written last. It holds the digests of the table and the figures, and one of all that it says
itself (`record_sha256`), so that anybody can tell a study that was interrupted (no JSON) and files that
were edited (another digest). That finds accidents, not forgers: an editor of a file can write its digest,
too. `Study.outcome` adds to the JSON what was shown to people and what the figures depend on
(`complete_result`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from tacit import __version__
from tacit.errors import BadInput
from tacit.files import write_atomically

Cell = str | int | float | bool | None
Table = Mapping[str, Sequence[Any]]
DIGEST = "record_sha256"
_KINDS: Mapping[str, tuple[type, ...]] = {
    "a text": (str,),
    "true or false": (bool,),
    "a number": (int, float),
    "a list": (list,),
    "an object": (dict,),
}
_RECORD = {  # what every record has, by its kind
    **dict.fromkeys(("name", "data", "unit", "relation", "command", "code_version", "table_sha256"), "a text"),
    "synthetic": "true or false",
    "seeds": "a list",
    "parameters": "an object",
    "minutes": "a number",
    "figures": "an object",
    DIGEST: "a text",
}


@dataclass(frozen=True)
class StudySettings:
    """All that decides a study's figures; `parameters` are its own (epsilons, rows), as JSON can hold them."""

    name: str
    data: str
    synthetic: bool
    seeds: tuple[int, ...]
    unit: str
    relation: str
    command: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    code_version: str = __version__

    def __post_init__(self) -> None:
        if not self.name or any(letter not in _LETTERS for letter in self.name):
            raise BadInput(f"expected a study's name in small letters, digits and hyphens, got {self.name!r}")
        try:
            json.dumps(self.as_json(), allow_nan=False)
        except (TypeError, ValueError):
            raise BadInput(f"study {self.name}: expected parameters that JSON can hold, got others") from None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "seeds": list(self.seeds), "parameters": dict(self.parameters)}

    @property
    def words(self) -> str:
        """For a subtitle: unit, relation and data."""
        made_up = "synthetic, " if self.synthetic else ""
        seeds = f"{len(self.seeds)} seed{'' if len(self.seeds) == 1 else 's'}"
        return f"Per {self.unit}, {self.relation}; {made_up}{self.data}, {seeds}"


_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def write_result(
    folder: Path,
    settings: StudySettings,
    table: Table,
    *,
    minutes: float,
    draw: Callable[[Path], object] | None = None,
) -> None:
    """Write a study's results; `draw(path)` makes `path`.svg and `path`.png."""
    text = _as_csv(settings.name, table)
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{settings.name}.json"
    record.unlink(missing_ok=True)  # until the new one is whole, nothing here is up to date
    (folder / f"{settings.name}.csv").write_text(text, encoding="utf-8", newline="")
    if draw is not None:
        draw(folder / settings.name)
    drawn = [folder / f"{settings.name}.{ending}" for ending in ("png", "svg")] if draw else []
    made = {
        "minutes": round(minutes, 1),
        "table_sha256": _digest(text.encode()),
        "figures": {place.name: _digest(place.read_bytes()) for place in drawn if place.exists()},
    }
    _replace(record, {**settings.as_json(), **made})


def complete_result(folder: Path, name: str, **more: Any) -> None:
    """Add to a finished study's settings what is known only once it is whole."""
    _replace(folder / f"{name}.json", {**ResultFiles.of(folder, name).settings, **more})


def read_table(folder: Path, name: str) -> dict[str, list[Cell]]:
    """A study's table, by columns: whole numbers, numbers or texts, empty cells as None."""
    place = folder / f"{name}.csv"
    try:
        header, *rows = list(csv.reader(io.StringIO(place.read_bytes().decode(), newline="")))
    except UnicodeDecodeError:
        raise BadInput(f"{place}: expected a study's table in UTF-8, got other bytes") from None
    except csv.Error as problem:
        raise BadInput(f"{place}: expected a study's table, got {problem}") from None
    except (FileNotFoundError, ValueError):
        raise BadInput(f"{place}: expected a study's table, got none") from None
    if len(set(header)) < len(header):
        raise BadInput(f"{place}: expected each column once, got {', '.join(header)}")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise BadInput(f"{place}, row {number}: expected {len(header)} cells, got {len(row)}")
    return {column: _type_cells([row[at] for row in rows]) for at, column in enumerate(header)}


@dataclass(frozen=True)
class ResultFiles:
    """A study as it lies in a folder: its table by columns, and its settings."""

    table: Mapping[str, Sequence[Cell]]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, name: str) -> ResultFiles:
        """What `write_result` left; a study that was interrupted, or whose files were edited, is refused."""
        place = folder / f"{name}.json"
        settings = _record(place)
        if settings["name"] != name:
            raise BadInput(f"{place}, key name: expected {name}, got {settings['name']!r}")
        table = folder / f"{name}.csv"
        if not table.exists() or _digest(table.read_bytes()) != settings["table_sha256"]:
            raise BadInput(f"{table}: expected the table that {place.name} describes, got another")
        return cls(read_table(folder, name), settings)

    def figure(self, place: Path) -> bytes | None:
        """A figure that was drawn of this table; None if it is not there. Another one is refused."""
        drawn = self.settings["figures"].get(place.name)
        if drawn is None or not place.exists():
            return None
        content = place.read_bytes()
        if _digest(content) != drawn:
            raise BadInput(f"{place}: expected the figure that was drawn of this table, got another")
        return content

    def has_figures(self, folder: Path) -> bool:
        """Whether all that were drawn are there, as they were."""
        try:
            return all(self.figure(folder / name) is not None for name in self.settings["figures"])
        except BadInput:
            return False

    @property
    def scale(self) -> str:
        return str(self.settings["parameters"]["scale"])

    @property
    def words(self) -> str:
        """What the data was, at which scale and over how many seeds; made-up data is called so."""
        of = self.settings
        seeds = f"{len(of['seeds'])} seed{'' if len(of['seeds']) == 1 else 's'}"
        return f"{'synthetic, ' if of['synthetic'] else ''}{of['data']}, {self.scale} scale, {seeds}"

    @property
    def rows(self) -> list[dict[str, Cell]]:
        """The table by rows."""
        return [dict(zip(self.table, row, strict=True)) for row in zip(*self.table.values(), strict=True)]


def numeric_columns(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The columns of a table for people that hold figures, which are set to the right."""
    return [
        name
        for at, name in enumerate(columns)
        if all(not row[at] or row[at][0] in "-+.0123456789" for row in rows)
    ]


def _replace(place: Path, content: Mapping[str, Any]) -> None:
    """The whole new content or the whole old one, whenever we are stopped."""
    others = {key: value for key, value in content.items() if key != DIGEST}
    plain = json.loads(json.dumps(others))  # as it will be read: keys are texts there, and tuples lists
    whole = {**plain, DIGEST: _digest_of_record(plain)}
    write_atomically(place, (json.dumps(whole, indent=2) + "\n").encode(), durable=False)


def _record(place: Path) -> dict[str, Any]:
    """A study's JSON, if it is what `_replace` wrote."""
    expected = f"{place}: expected a finished study's settings"
    try:
        record = json.loads(place.read_bytes())
        digest = _digest_of_record(record) if isinstance(record, dict) else ""
    except FileNotFoundError:
        raise BadInput(f"{expected}, got none") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{expected}, got what cannot be read as JSON") from None
    if not isinstance(record, dict):
        raise BadInput(f"{expected}, got {_kind(record)}")
    for key, kind in _RECORD.items():
        if key not in record:
            raise BadInput(f"{place}: expected the key {key}, got none")
        if not isinstance(record[key], _KINDS[kind]):
            raise BadInput(f"{place}, key {key}: expected {kind}, got {_kind(record[key])}")
    if not isinstance(record["parameters"].get("scale"), str):
        raise BadInput(f"{place}, key parameters: expected a scale among them, got none")
    if "shown" in record and not _can_be_shown(record["shown"]):
        raise BadInput(
            f"{place}, key shown: expected note, files, columns and rows of as many texts, got something else"
        )
    if digest != record[DIGEST]:
        raise BadInput(f"{place}: expected the settings that its {DIGEST} describes, got others")
    return record


def _kind(value: Any) -> str:
    return next((words for words, kinds in _KINDS.items() if isinstance(value, kinds)), "null")


def _can_be_shown(shown: Any) -> bool:
    """Whether it is what `Study.outcome` adds: a table for people, and the files that go with it."""
    if not isinstance(shown, dict) or not isinstance(shown.get("note"), str):
        return False
    columns, rows = shown.get("columns"), shown.get("rows")
    return (
        _are_texts(shown.get("files"))
        and _are_texts(columns)
        and isinstance(rows, list)
        and all(_are_texts(row) and len(row) == len(columns) for row in rows)
    )


def _are_texts(values: Any) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _digest_of_record(record: Mapping[str, Any]) -> str:
    """Of all that it says but this: in one spelling, whatever the order and spaces of the file."""
    others = {key: value for key, value in record.items() if key != DIGEST}
    return _digest(json.dumps(others, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def _as_csv(name: str, table: Table) -> str:
    lengths = {len(column) for column in table.values()}
    if len(lengths) != 1:
        raise BadInput(f"study {name}: expected columns of one length, got {sorted(lengths) or 'no columns'}")
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow(table)
    for row in zip(*table.values(), strict=True):
        rows.writerow([_cell(name, column, value) for column, value in zip(table, row, strict=True)])
    return written.getvalue()


def _cell(name: str, column: str, value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadInput(f"study {name}, column {column}: expected finite numbers, got NaN or infinity")
        return repr(value)
    if isinstance(value, bool | int | str):
        return str(value)
    raise BadInput(f"study {name}, column {column}: expected numbers and texts, got {type(value).__name__}")


def _type_cells(cells: Sequence[str]) -> list[Cell]:
    for kind in (int, float):
        try:
            return [kind(cell) if cell else None for cell in cells]
        except ValueError:
            continue
    return [cell or None for cell in cells]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
