"""Where a trained model goes: looked at before anything is paid for, and taken whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.data.encoding.encoder import Encoder
from tacit.data.folders import read_manifest
from tacit.errors import BadInput
from tacit.files import REPLACEABLE_SUFFIXES, check_writable, place_folder
from tacit.train.config import CheckpointSettings
from tacit.train.models.saving import MANIFEST, VERSION

if TYPE_CHECKING:
    from tacit.train.job.plan import PlannedTraining


@dataclass(frozen=True)
class Destination:
    """A folder for the model, and what it will say of its training. Beside it a run keeps its checkpoints.

    A checkpoint is of one training: of plan, model, secret and seed, and of all that a configuration says where
    it was `planned` from one. `settings` are facts for the model's manifest: never a private figure.
    """

    out: Path
    encoder: Encoder
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    planned: PlannedTraining | None = field(default=None, repr=False, compare=False)
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    secret_path: Path | None = None  # where the secret that keys flips is kept from now on
    onnx: Path | None = None
    resume: bool = False  # go on from the checkpoint, if there is one
    overwrite: bool = False  # replace the model that is there, once the new one is whole
    resume_hint: str = "resume=True"

    def check(self) -> None:
        """Refuse to lose anything, before anything is paid for."""
        check_destination(self.out, secret_path=self.secret_path, onnx=self.onnx, overwrite=self.overwrite)


def check_destination(
    out: Path, *, secret_path: Path | None = None, onnx: Path | None = None, overwrite: bool = False
) -> None:
    """Refuse to lose anything, and places that cannot be written, as far as one can tell beforehand."""
    check_writable("out", out)
    if out.exists() and not out.is_dir():
        raise BadInput(f"out: expected a folder for the model, got {out}, which is a file")
    if secret_path is not None:
        check_writable("ledger.secret", secret_path)
    if onnx is not None:
        _check_onnx(onnx, out, overwrite=overwrite)
    if not out.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for the model, got {out}, which exists; say --overwrite")
    ours = (out / MANIFEST).is_file() and all(entry.suffix in REPLACEABLE_SUFFIXES for entry in out.iterdir())
    if not ours:
        raise BadInput(f"expected a saved model to overwrite, got {out}, which holds something else")


def _check_onnx(onnx: Path, out: Path, *, overwrite: bool) -> None:
    if onnx.resolve().is_relative_to(out.resolve()):
        raise BadInput(f"export.onnx: expected a file outside of the model's folder {out}, got {onnx}")
    check_writable("export.onnx", onnx)
    if onnx.is_dir():
        raise BadInput(f"export.onnx: expected a file, got {onnx}, which is a folder")
    if onnx.exists() and not overwrite:
        raise BadInput(f"expected a new file for export.onnx, got {onnx}, which exists; say --overwrite")


def put_in_place(staged: Path, out: Path, *, overwrite: bool) -> None:
    """Whole or not at all; what was staged goes once the model is there."""
    with place_folder(out, MANIFEST, what="a saved model", overwrite=overwrite) as building:
        for file in staged.iterdir():
            _link(file, building / file.name)
    shutil.rmtree(staged)


def saved_run(out: Path) -> str | None:
    """The name of the run that made the model at `out`, if there is a model."""
    found = saved_settings(out).get("run")
    return found if isinstance(found, str) else None


def saved_settings(out: Path) -> Mapping[str, Any]:
    """What the model at `out` says of its training; nothing where there is no model."""
    if not (out / MANIFEST).is_file():
        return {}
    manifest = read_manifest(out, MANIFEST, what="a saved model", version=VERSION)
    settings: Mapping[str, Any] = manifest.get("settings", {})
    return settings


def _link(file: Path, name: Path) -> None:
    """The same file under another name; a copy where the file system has no such thing."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)
