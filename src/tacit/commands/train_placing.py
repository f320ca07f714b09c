"""Puts a finished model in its place, and says whose model is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def put_in_place(staged: Path, out: Path, *, overwrite: bool) -> None:
    """Whole or not at all; what was staged goes once the model is there."""
    from tacit.files import place_folder
    from tacit.train.models.saving import MANIFEST

    with place_folder(out, MANIFEST, what="a saved model", overwrite=overwrite) as building:
        for file in staged.iterdir():
            _linked(file, building / file.name)
    shutil.rmtree(staged)


def saved_run(out: Path) -> str | None:
    """The name of the run that made the model at `out`, if there is a model."""
    found = saved_settings(out).get("run")
    return found if isinstance(found, str) else None


def saved_settings(out: Path) -> Mapping[str, Any]:
    """What the model at `out` says of its training; nothing where there is no model."""
    from tacit.data.folders import read_manifest
    from tacit.train.models.saving import MANIFEST, VERSION

    if not (out / MANIFEST).is_file():
        return {}
    manifest = read_manifest(out, MANIFEST, what="a saved model", version=VERSION)
    settings: Mapping[str, Any] = manifest.get("settings", {})
    return settings


def _linked(file: Path, name: Path) -> None:
    """The same file under another name; a copy where the file system has no such thing."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)
