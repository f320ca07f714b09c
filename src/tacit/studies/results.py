"""What a study leaves in a folder: NAME.csv (plain columns), NAME.svg and .png, and NAME.json (its settings).

The JSON is written last and holds the digest of the table, so that anybody can tell a study that was
interrupted (no JSON) and a table that was edited (another digest).
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
from typing import Any

import numpy as np

from tacit import __version__
from tacit.errors import BadInput

Cell = str | int | float | bool | None
Table = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Settings:
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


def write(
    folder: Path,
    settings: Settings,
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
    (folder / f"{settings.name}.csv").write_text(text, newline="")
    if draw is not None:
        draw(folder / settings.name)
    figures = sorted(
        place.name for ending in ("png", "svg") if (place := folder / f"{settings.name}.{ending}").exists()
    )
    made = {"minutes": round(minutes, 1), "table_sha256": _digest(text), "figures": figures if draw else []}
    building = record.with_name(f".{record.name}")
    building.write_text(json.dumps({**settings.as_json(), **made}, indent=2) + "\n")
    building.replace(record)


def read(folder: Path, name: str) -> dict[str, list[Cell]]:
    """A study's table, by columns: whole numbers, numbers or texts, empty cells as None."""
    place = folder / f"{name}.csv"
    try:
        header, *rows = list(csv.reader(io.StringIO(place.read_bytes().decode(), newline="")))
    except (FileNotFoundError, ValueError):
        raise BadInput(f"{place}: expected a study's table, got none") from None
    return {column: _typed([row[at] for row in rows]) for at, column in enumerate(header)}


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


def _typed(cells: Sequence[str]) -> list[Cell]:
    for kind in (int, float):
        try:
            return [kind(cell) if cell else None for cell in cells]
        except ValueError:
            continue
    return [cell or None for cell in cells]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
