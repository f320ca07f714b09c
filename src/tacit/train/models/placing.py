"""Puts a folder or a file in its place only when it is whole and on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.data.placing import beside, move_folder, place_whole, to_disk
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
    building = beside(place)
    building.mkdir()
    try:
        yield building
        for path in building.iterdir():
            to_disk(path)
        to_disk(building)
        _check(folder, place, manifest, what, overwrite)  # once more: somebody may have written there meanwhile
        move_folder(building, place)
        to_disk(place.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def place_file(path: Path, content: bytes, *, what: str, overwrite: bool) -> None:
    """Write a whole file or none."""
    if path.exists() and not (overwrite and path.is_file()):
        raise BadInput(f"expected a new file for {what}, got {path}, which exists; say --overwrite")
    place_whole(path.resolve(), content)


def _check(folder: Path, place: Path, manifest: str, what: str, overwrite: bool) -> None:
    if not place.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for {what}, got {folder}, which exists; say --overwrite")
    ours = (place / manifest).is_file() and all(entry.suffix in OURS for entry in place.iterdir())
    if not ours:
        raise BadInput(f"expected {what} to overwrite, got {folder}, which holds something else")
