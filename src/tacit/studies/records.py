"""What is done stays done: one small file for each finished run, by the digest of all that it depends on."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

Record = dict[str, Any]  # flat: names to numbers, texts or None


class Records:
    """A folder of records. Each appears whole or not at all, so whoever makes them may be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, digest: str) -> Record | None:
        """The record of this name; None if it is not there. One that cannot be read is to be made again."""
        try:
            found = json.loads(self.path(digest).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def keep(self, digest: str, record: Record) -> None:
        path = self.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(json.dumps(record, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def path(self, digest: str) -> Path:
        """Where a record is, or will be."""
        return self.folder / f"{digest}.json"
