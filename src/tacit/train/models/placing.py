"""Puts a folder or a file in its place only when it is whole and on the disk."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import BadInput

OURS = (".json", ".npy", ".safetensors")


@contextmanager
def placed(folder: Path, manifest: str, *, what: str, overwrite: bool) -> Iterator[Path]:
    """An empty folder beside `folder` to write into, which takes its place when the block ends well.

    Another one is replaced only if it has this `manifest` and no files of other kinds than ours, and only where
    `overwrite` says so.
    """
    place = folder.resolve()  # through links, so that what they point to is replaced and not they
    _check(folder, place, manifest, what, overwrite)
    place.parent.mkdir(parents=True, exist_ok=True)
    building = _beside(place)
    building.mkdir()
    try:
        yield building
        for path in building.iterdir():
            _to_disk(path)
        _to_disk(building)
        _check(folder, place, manifest, what, overwrite)  # once more: somebody may have written there meanwhile
        if place.exists():
            _replace(place, building)
        else:
            building.rename(place)
        _to_disk(place.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def place_file(path: Path, content: bytes, *, what: str, overwrite: bool) -> None:
    """Write a whole file or none."""
    if path.exists() and not (overwrite and path.is_file()):
        raise BadInput(f"expected a new file for {what}, got {path}, which exists; say --overwrite")
    place = path.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    building = _beside(place)
    try:
        building.write_bytes(content)
        _to_disk(building)
        building.replace(place)
        _to_disk(place.parent)
    finally:
        building.unlink(missing_ok=True)


def _check(folder: Path, place: Path, manifest: str, what: str, overwrite: bool) -> None:
    if not place.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for {what}, got {folder}, which exists; say --overwrite")
    ours = (place / manifest).is_file() and all(entry.suffix in OURS for entry in place.iterdir())
    if not ours:
        raise BadInput(f"expected {what} to overwrite, got {folder}, which holds something else")


def _replace(place: Path, building: Path) -> None:
    replaced = place.with_name(f"{building.name}.replaced")
    place.rename(replaced)
    try:
        building.rename(place)
    except OSError:
        replaced.rename(place)
        raise
    shutil.rmtree(replaced)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.{uuid.uuid4().hex}")


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
