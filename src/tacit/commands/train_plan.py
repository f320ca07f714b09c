"""A planned training with a sign of life, and whether its places can be written."""

from __future__ import annotations

import time
from pathlib import Path

from tacit.commands.output import spinner
from tacit.errors import BadInput
from tacit.files import check_folder, check_writable
from tacit.store.calibration_cache import CalibrationCache, default_cache_path
from tacit.train.config import TrainingConfig
from tacit.train.job.plan import PlannedTraining, plan_training


def plan_with_spinner(config: TrainingConfig) -> PlannedTraining:
    """Planned as of now, with calibrations that were computed before on this machine."""
    what = "tables" if config.privacy.method == "statistic" else "allocation"
    with spinner(f"planning: {what} and noise"):
        memory = CalibrationCache(Path(default_cache_path()))
        return plan_training(config, now=int(time.time()), memory=memory)


def check_out(config: TrainingConfig, *, overwrite: bool) -> None:
    """Refuse to lose anything, before anything is paid for."""
    from tacit.files import REPLACEABLE_SUFFIXES
    from tacit.train.models.saving import MANIFEST

    _check_places(config, overwrite=overwrite)
    if not config.out.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for the model, got {config.out}, which exists; say --overwrite")
    ours = (config.out / MANIFEST).is_file() and all(
        entry.suffix in REPLACEABLE_SUFFIXES for entry in config.out.iterdir()
    )
    if not ours:
        raise BadInput(f"expected a saved model to overwrite, got {config.out}, which holds something else")


def _check_places(config: TrainingConfig, *, overwrite: bool) -> None:
    """Where something will be written, it can be, as far as one can tell beforehand."""
    check_writable("out", config.out)
    if config.out.exists() and not config.out.is_dir():
        raise BadInput(f"out: expected a folder for the model, got {config.out}, which is a file")
    if config.ledger.secret is not None:
        check_writable("ledger.secret", config.ledger.secret)
    if config.run.tensorboard is not None:
        check_folder("run.tensorboard", config.run.tensorboard)
    if config.onnx is None:
        return
    onnx = config.onnx
    if onnx.resolve().is_relative_to(config.out.resolve()):
        raise BadInput(f"export.onnx: expected a file outside of the model's folder {config.out}, got {onnx}")
    check_writable("export.onnx", onnx)
    if onnx.is_dir():
        raise BadInput(f"export.onnx: expected a file, got {onnx}, which is a folder")
    if onnx.exists() and not overwrite:
        raise BadInput(f"expected a new file for export.onnx, got {onnx}, which exists; say --overwrite")
