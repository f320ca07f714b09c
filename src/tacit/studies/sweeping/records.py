"""What is done stays done: one small file for each finished run, by the digest of all that it depends on."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

from tacit.studies.sweeping.runs import REFUSED, Record, SweepRun


class Records:
    """A folder of records. Each appears whole or not at all, so a sweep may be killed at any moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, run: SweepRun) -> Record | None:
        """The record of a run; None if it is not done. One that cannot be read is done again."""
        try:
            found = json.loads(self._path(run).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def keep(self, run: SweepRun, record: Record) -> None:
        """Refusals are not kept: whoever asks again may have changed what was refused."""
        if REFUSED in record:
            return
        write_whole(self._path(run), json.dumps(record, indent=1) + "\n")

    def _path(self, run: SweepRun) -> Path:
        return self.folder / f"{run.digest}.json"


def write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with unfinished.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
