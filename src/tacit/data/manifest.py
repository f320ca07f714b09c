"""The JSON that says what a folder of ours holds, read back with every way it can be wrong named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.errors import BadInput


def read_manifest(folder: Path, name: str, *, what: str, version: int) -> dict[str, Any]:
    """The record in `folder/name`; `what` the folder should hold is for the refusal."""
    place = folder / name
    try:
        record = json.loads(place.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{folder}: expected {what} here ({name}), got none") from None
    except ValueError:
        raise BadInput(f"{place}: expected JSON, got something else") from None
    found = record.get("version") if isinstance(record, dict) else None
    if found != version:
        raise BadInput(f"{place}: expected version {version}, got {found!r}")
    read: dict[str, Any] = record
    return read
