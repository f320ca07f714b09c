"""Whole or not at all: what is written beside its place, and moved there when it is on the disk."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path


def beside(place: Path) -> Path:
    """A new name in the same folder, which nobody looks for."""
    return place.with_name(f".{place.name}.{uuid.uuid4().hex}")


def place_whole(place: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file, or replace it; on the disk when this returns. `mode` is what the umask takes from."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = beside(place)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    to_disk(place.parent)


def move_folder(building: Path, place: Path) -> None:
    """Put a folder in its place; one that is there goes once the new one has its name."""
    if not place.exists():
        building.rename(place)
        return
    replaced = place.with_name(f"{building.name}.replaced")
    place.rename(replaced)
    try:
        building.rename(place)
    except OSError:
        replaced.rename(place)
        raise
    shutil.rmtree(replaced)


def to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's names, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
