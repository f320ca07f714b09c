"""One training as it is carried out: where its randomness comes from, what is trained, and what comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.arrays import Floats32
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.privacy.statement import PrivacyStatement
from tacit.train.examples import Examples
from tacit.train.job.label_flips import secret_name
from tacit.train.job.plan import training_digest
from tacit.train.job.progress import Sink, SinkLog
from tacit.train.models.model import Architecture, Model, Part, predict
from tacit.train.plan import Plan
from tacit.train.recalibration import CalibrationResult
from tacit.train.run import CheckpointKeeper, Mark, Run, RunProgress
from tacit.train.settings import Speed
from tacit.train.statistic.model import FieldFactors
from tacit.train.targets import Head

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
        if plan.statistic is not None:
            return _fit_statistic(self), None
        source, start = _streams(seed, mark)
        if self.sinks:
            watch = SinkLog(plan, self.sinks, watch)
        model = self.architecture.build(plan.examples.sizes, start.normal)
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
