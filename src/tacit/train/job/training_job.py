"""One training as it is carried out: where its randomness comes from, what is trained, and what comes of it.

A `Destination` is where the model goes: looked at before anything is paid for, and taken whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.arrays import Floats32
from tacit.data.encoding.encoder import Encoder
from tacit.data.folders import read_manifest
from tacit.display import brief_repr
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.files import REPLACEABLE_SUFFIXES, check_writable, place_folder
from tacit.privacy.statement import PrivacyStatement
from tacit.train.config import CheckpointSettings
from tacit.train.examples import Examples
from tacit.train.job.checkpoints import training_digest
from tacit.train.job.label_flips import secret_name
from tacit.train.job.progress import Sink, SinkLog
from tacit.train.models.model import Architecture, Model, Part, predict
from tacit.train.models.saving import MANIFEST, VERSION
from tacit.train.plan import Plan
from tacit.train.recalibration import CalibrationResult
from tacit.train.settings import Speed
from tacit.train.statistic.model import FieldFactors
from tacit.train.steps import CheckpointKeeper, Mark, Run, RunProgress
from tacit.train.targets import Head

if TYPE_CHECKING:
    from tacit.train.job.planned_training import PlannedTraining

Watch = Callable[[RunProgress], None]


@dataclass(frozen=True, eq=False)
class TrainingOutcome:
    """A model that was trained and paid for, and what is promised of it: `statement` is None where nothing is,
    because nothing was private or the noise came from a seed."""

    model: Model
    part: Part
    head: Head
    statement: PrivacyStatement | None
    calibrated: Mapping[str, Any] | None  # `CalibrationResult.as_json`, as a saved model has it
    seconds: float
    paid: str | None  # in words
    run: str | None  # the name of the run, which its payment and its saved model carry

    __repr__ = brief_repr

    def predict(self, examples: Examples) -> Floats32:
        """The expected label: a probability, a count or a value, by the head."""
        return predict(self.model, examples, self.part, self.head)


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """A plan with the model that it trains. With a `seed` it is a simulation, whose result promises nothing."""

    plan: Plan
    architecture: Architecture
    secret: bytes | None = field(repr=False)
    seed: int | None
    speed: Speed
    sinks: tuple[Sink, ...] = ()
    watch: Watch | None = None

    @property
    def digest(self) -> str:
        """Of all that a checkpoint depends on, where no configuration says more."""
        unit = None if self.plan.statement is None else self.plan.statement.unit
        named = "" if self.secret is None else secret_name(self.secret)
        settings = repr((self.architecture.name, self.architecture, self.seed))
        return training_digest(settings, unit, self.plan, self.plan.examples, "", named)

    def train(
        self, watch: Watch | None, keeper: CheckpointKeeper | None = None, mark: Mark | None = None
    ) -> tuple[Model, CalibrationResult | None]:
        """The model, and how far off its predictions were. A run that goes on from a checkpoint at `mark` draws
        from another stream: never the same noise twice, in a study neither."""
        plan, seed = self.plan, self.seed
        if plan.only_fits:
            return _fit_statistic(self), None
        source, start = _streams(seed, mark)
        if self.sinks:
            watch = SinkLog(plan, self.sinks, watch)
        model = plan.trained_shape(self.architecture).build(plan.examples.sizes, start.normal)
        run = Run(plan, model, plan.examples, source, self.secret, speed=self.speed, simulated=seed is not None)
        return run.go(watch, keeper), run.calibrated

    def outcome(
        self,
        model: Model,
        calibrated: Mapping[str, Any] | None,
        *,
        seconds: float,
        paid: str | None = None,
        run: str | None = None,
    ) -> TrainingOutcome:
        plan = self.plan
        statement = plan.statement if self.seed is None else None
        return TrainingOutcome(model, plan.part, plan.head, statement, calibrated, seconds, paid, run)


def weights_digest(model: Model) -> str:
    """Of a model that is not saved: a name for this release and no other."""
    spelled = hashlib.sha256()
    for name, array in sorted({**model.tables, **model.dense}.items()):
        spelled.update(f"{name} {array.shape}\n".encode())
        spelled.update(np.ascontiguousarray(array).tobytes())
    return spelled.hexdigest()


def _streams(seed: int | None, mark: Mark | None) -> tuple[Entropy | Simulation, Entropy | Simulation]:
    """What batches and noise are drawn from, and what the first weights are."""
    if seed is None:
        source = Entropy()
        return source, source
    run = f"run {seed}" if mark is None else f"run {seed} {mark}"
    return Simulation(run), Simulation(f"start {seed}")


def _fit_statistic(job: TrainingJob) -> Model:
    """Release the statistic and fit a model to it. A run that goes on after a crash draws it afresh: nobody has
    seen the one before."""
    planned, examples, shape = job.plan.statistic, job.plan.examples, job.architecture
    assert planned is not None
    if not isinstance(shape, FieldFactors):
        raise BadInput(f"expected a model that is fitted to a statistic (FieldFactors), got {shape.name}")
    source, start = _streams(job.seed, None)
    fitted = planned.train(examples.labels, examples.public_ids, source, start, simulated=job.seed is not None)
    return shape.filled(examples.sizes, fitted)


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
    device: Path | None = None

    def check(self) -> None:
        """Refuse to lose anything, before anything is paid for."""
        exports = {"onnx": self.onnx, "device": self.device}
        check_destination(self.out, secret_path=self.secret_path, exports=exports, overwrite=self.overwrite)


def check_destination(
    out: Path,
    *,
    secret_path: Path | None = None,
    exports: Mapping[str, Path | None] = MappingProxyType({}),
    overwrite: bool = False,
) -> None:
    """Refuse to lose anything, and places that cannot be written, as far as one can tell beforehand. `exports`
    are files by their key in a configuration."""
    check_writable("out", out)
    if out.exists() and not out.is_dir():
        raise BadInput(f"out: expected a folder for the model, got {out}, which is a file")
    if secret_path is not None:
        check_writable("ledger.secret", secret_path)
    for key, path in exports.items():
        if path is not None:
            _check_export(f"export.{key}", path, out, overwrite=overwrite)
    if not out.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for the model, got {out}, which exists; say --overwrite")
    ours = (out / MANIFEST).is_file() and all(entry.suffix in REPLACEABLE_SUFFIXES for entry in out.iterdir())
    if not ours:
        raise BadInput(f"expected a saved model to overwrite, got {out}, which holds something else")


def _check_export(key: str, path: Path, out: Path, *, overwrite: bool) -> None:
    if path.resolve().is_relative_to(out.resolve()):
        raise BadInput(f"{key}: expected a file outside of the model's folder {out}, got {path}")
    check_writable(key, path)
    if path.is_dir():
        raise BadInput(f"{key}: expected a file, got {path}, which is a folder")
    if path.exists() and not overwrite:
        raise BadInput(f"expected a new file for {key}, got {path}, which exists; say --overwrite")


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
