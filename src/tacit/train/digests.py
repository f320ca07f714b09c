"""Whether a record or a file is still what was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def record_digest(record: Mapping[str, Any]) -> str:
    """Of all of a record but its key `digest`."""
    rest = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """Of every file that is in a folder, by name."""
    return record_digest({path.name: file_digest(path) for path in sorted(folder.iterdir())})
