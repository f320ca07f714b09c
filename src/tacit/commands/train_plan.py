"""What a training configuration comes to, before anything is paid for or written: data, plan, memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.missing_line_help import NO_PAYMENT
from tacit.commands.output import spinner
from tacit.errors import BadInput
from tacit.files import check_folder, check_writable

if TYPE_CHECKING:
    from tacit.data.columns import Columns
    from tacit.privacy.mechanisms.memoisation import FlipKey
    from tacit.train.config import TrainingConfig
    from tacit.train.examples import Examples
    from tacit.train.job.label_flips import LabelFlipRelease
    from tacit.train.job.memory import MemoryEstimate
    from tacit.train.plan import Plan


@dataclass(frozen=True, eq=False)
class PlannedTraining:
    """A configuration with its data and its plan. `secret` is None where no label is flipped."""

    config: TrainingConfig
    columns: Columns
    examples: Examples
    plan: Plan
    flips: FlipKey
    secret: bytes | None
    memory: MemoryEstimate

    @property
    def simulated(self) -> bool:
        return self.config.run.simulated is not None

    @cached_property
    def units(self) -> int | None:
        """How many units are promised something, which public keys tell; None where nothing is promised."""
        from tacit.train.examples import count_units

        if self.plan.statement is None or self.simulated:
            return None
        return count_units(self.examples, self.config.privacy.unit)

    @property
    def digest(self) -> str:
        """For checkpoints alone: it covers the labels."""
        from tacit.train.job.label_flips import secret_name
        from tacit.train.job.plan import rows_identity, training_digest

        named = "" if self.secret is None else secret_name(self.secret)
        rows = rows_identity(self.columns, self.config.part)
        return training_digest(self.config, self.plan, self.examples, rows, named)

    @property
    def label_flips(self) -> LabelFlipRelease:
        """What label DP releases, and the first phase of the Hybrid."""
        from tacit.train.job.label_flips import LabelFlipRelease

        config = self.config
        assert self.secret is not None, "both have one"
        assert config.ledger.scope is not None, "checked when the configuration was read"
        return LabelFlipRelease(
            config.privacy, config.labels.spelled, self.flips, self.secret,
            config.ledger.scope, config.ledger.secret,
        )  # fmt: skip


def plan_training(config: TrainingConfig) -> PlannedTraining:
    """Open the data and decide everything from public quantities. No label is read, and nothing is written."""
    from tacit.config import error_prefix
    from tacit.data.columns import Columns
    from tacit.store.calibration_cache import CalibrationCache, default_cache_path
    from tacit.train.examples import Examples
    from tacit.train.job.memory import estimate_memory
    from tacit.train.job.plan import flip_key, method_from_config
    from tacit.train.models.model import Part
    from tacit.train.models.onnx_export import check_exportable

    columns = Columns.open(config.data)
    examples = Examples.of(columns, config.part)
    if examples.label is None:
        raise BadInput(f"{config.data}: expected a label column to learn from, got a log without one")
    _check_payment(config, synthetic=examples.synthetic)
    scope = config.ledger.scope or str(columns.manifest.get("log"))
    key = config.ledger.key if config.privacy.method == "hybrid" else None
    flips = flip_key(scope, columns, config.part, version=config.labels.version, release=key)
    secret = _secret(config) if config.privacy.flips_labels else None
    now = int(time.time())
    what = "tables" if config.privacy.method == "statistic" else "allocation"
    with spinner(f"planning: {what} and noise"):
        method = method_from_config(config, flips, now=now)
        plan = method.plan(examples, secret=secret, memory=CalibrationCache(Path(default_cache_path())))
    plan.check(config.model)
    memory = estimate_memory(config.model, examples, plan, config.speed)
    if config.onnx is not None:
        with error_prefix("export.onnx"):
            # A truncated model leaves its sensitive tables out: how large its file is, the export will say.
            check_exportable(config.model, memory.weights if plan.part is Part.WHOLE else 0)
    return PlannedTraining(config, columns, examples, plan, flips, secret, memory)


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


def _check_payment(config: TrainingConfig, *, synthetic: bool) -> None:
    """Who pays, who keeps the secret, and who may go without."""
    ledger, privacy = config.ledger, config.privacy
    if config.run.simulated is not None:
        if not synthetic:
            raise BadInput(
                "run.simulated: expected made-up data for a run that protects nobody, got a real log"
            )
        return
    if not privacy.is_private:
        return
    if ledger.path is None and not synthetic:
        raise BadInput(
            f"ledger.path: expected the ledger that pays for {privacy.method} on data that is not made up, "
            "got no such key"
        )
    if ledger.path is not None and ledger.key is None and privacy.method != "label-dp":
        raise BadInput("ledger.key: expected a name for this release, got no such key")
    if privacy.flips_labels and ledger.secret is None:
        trial = f"; {NO_PAYMENT}" if synthetic and ledger.path is None else ""
        raise BadInput(
            "ledger.secret: expected the path of the file that keys the flips of labels (made if absent), "
            f"got no such key{trial}"
        )


def _secret(config: TrainingConfig) -> bytes:
    """The one that is kept, or a new one, which is kept once the training is paid for."""
    from tacit.entropy import Entropy, Simulation
    from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
    from tacit.train.job.label_flips import read_secret

    if config.run.simulated is not None:
        return Simulation(f"secret {config.run.simulated}").bytes(SECRET_BYTES)
    assert config.ledger.secret is not None, "checked before"
    return read_secret(config.ledger.secret) or Entropy().bytes(SECRET_BYTES)
