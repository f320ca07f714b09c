"""The JSON that says what a folder of ours holds, read back with every way it can be wrong named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.errors import BadInput
from tacit.records import read_record


def read_manifest(folder: Path, name: str, *, what: str, version: int) -> dict[str, Any]:
    """The record in `folder/name`; `what` the folder should hold is for the refusal."""
    place = folder / name
    try:
        record = read_record(place)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{folder}: expected {what} here ({name}), got none") from None
    found = record.get("version") if isinstance(record, dict) else None
    if found != version or isinstance(found, bool):
        raise BadInput(f"{place}: expected version {version}, got {repr(found)[:60]}")
    read: dict[str, Any] = record
    return read
