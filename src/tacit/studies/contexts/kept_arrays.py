"""Arrays in one file of the cache, which appears whole or not at all."""

from __future__ import annotations

import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]  # names to arrays


def kept(path: Path) -> Arrays | None:
    """What is there; None if nothing is, or nothing that can be read: then it is to be made again."""
    try:
        with path.open("rb") as file, np.load(file) as arrays:  # which leaves open what it cannot read
            return dict(arrays)
    except (FileNotFoundError, EOFError, ValueError, zipfile.BadZipFile):
        return None


def keep(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{uuid.uuid4().hex}.npz")
    np.savez_compressed(unfinished, **arrays)
    unfinished.replace(path)
