"""What a training configuration comes to, before anything is paid for or written: data, method, plan, memory.

The names of flips and of a checkpoint's training are digests: they change with everything that a release
depends on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tacit import expect
from tacit.config import error_prefix
from tacit.data.columns import Columns
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.privacy.budget import format_rounded_up
from tacit.privacy.calibration import CalibrationMemory
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES, FlipKey
from tacit.train.config import TrainingConfig
from tacit.train.examples import Examples, count_units
from tacit.train.job.checkpoints import training_digest
from tacit.train.job.label_flips import LabelFlipRelease, read_secret, secret_name
from tacit.train.job.memory import MemoryEstimate, estimate_memory
from tacit.train.job.training_job import Destination
from tacit.train.labels.windows import RepeatedFlips
from tacit.train.method_choice import settle_method
from tacit.train.methods import DpSgd, Hybrid, LabelDp, Plain, StatisticMethod, TrainingMethod
from tacit.train.models.architectures import only_part
from tacit.train.models.device_export import check_device_export
from tacit.train.models.model import Architecture, Part
from tacit.train.models.onnx_export import check_exportable
from tacit.train.plan import LabelPhase, Plan, PrivatePhase

FACTS = ("log", "rows", "rows_read", "rows_passed_over", "split", "columns")
"""What a manifest says of which rows a log has. All of it is public; the rate of positives would not be."""
NO_PAYMENT = (
    "on made-up data, [run] simulated = 1 (a seed) in place of [ledger] makes a trial that costs nothing"
)
SETTINGS = ("model", "privacy", "labels", "descent", "statistic")  # what a model says of its configuration
FEW = 1000  # examples, or units
LONG = 1_000  # events of a history


@dataclass(frozen=True, eq=False)
class PlannedTraining:
    """A configuration with its data and its plan. `secret` is None where no label is flipped."""

    config: TrainingConfig
    columns: Columns
    examples: Examples
    plan: Plan
    flips: FlipKey
    secret: bytes | None = field(repr=False)
    memory: MemoryEstimate

    @property
    def simulated(self) -> bool:
        return self.config.run.simulated is not None

    @cached_property
    def units(self) -> int | None:
        """How many units are promised something, which public keys tell; None where nothing is promised."""
        if self.plan.statement is None or self.simulated:
            return None
        return count_units(self.examples, self.config.privacy.unit)

    @property
    def digest(self) -> str:
        """For checkpoints alone: it covers the labels."""
        config, named = self.config, "" if self.secret is None else secret_name(self.secret)
        unit = config.privacy.unit if config.privacy.is_private else None
        rows = rows_identity(self.columns, config.part)
        return training_digest(config.digest, unit, self.plan, self.examples, rows, named)

    def is_of(self, plan: Plan, model: Architecture, secret: bytes | None, seed: int | None) -> bool:
        """Whether these are what the configuration says, so that its digest is of a run of them."""
        ours = (self.config.model, self.secret, self.config.run.simulated)
        return self.plan is plan and ours == (model, secret, seed)

    @property
    def label_flips(self) -> LabelFlipRelease:
        """What label DP releases, and the first phase of the Hybrid."""
        config = self.config
        assert self.secret is not None, "both have one"
        assert config.ledger.scope is not None, "checked when the configuration was read"
        return LabelFlipRelease(
            config.privacy, config.labels.spelled, self.flips, self.secret,
            config.ledger.scope, config.ledger.secret,
        )  # fmt: skip

    def destination(self, *, resume: bool = False, overwrite: bool = False) -> Destination:
        """Where the configuration wants its model, and what that will say of its training."""
        config = self.config
        said = {name: config.said[name] for name in SETTINGS if name in config.said}
        settings = {
            "configuration": said,
            "part": config.part,
            "units": self.units,
            "log": self.columns.manifest.get("log"),
        }
        if config.labels.words is not None:
            settings["reports"] = config.labels.words
        for default in self.plan.defaults:
            if default.key == "privacy.method":
                settings["method_chosen"] = default.words
        return Destination(
            config.out, self.columns.encoder, config.privacy.method, settings, self, config.keeping,
            config.ledger.secret, config.onnx, resume, overwrite, f"tacit train {config.place} --resume",
            config.device,
        )  # fmt: skip

    @property
    def warnings(self) -> list[str]:
        """What to think over before anything is spent, a line each."""
        statement = None if self.plan.statement is None else self.plan.statement.as_json()
        found = (
            few_warning(self),
            delta_warning(statement, self.units),
            long_warning(self),
            calibration_warning(self.plan),
        )
        return [warning for warning in found if warning is not None]


def plan_training(
    config: TrainingConfig, *, now: int, memory: CalibrationMemory | None = None
) -> PlannedTraining:
    """Plan a configuration: open its data, decide everything from public quantities. No label is read, and
    nothing is written.

    `now`, in seconds, refuses time windows that are still open; `memory` remembers calibrations.
    """
    expect.kind("config", config, TrainingConfig)
    columns = Columns.open(config.data)
    examples = Examples.of(columns, config.part)
    if examples.label is None:
        raise BadInput(f"{config.data}: expected a label column to learn from, got a log without one")
    config, chosen = settle_method(config, examples, now)
    _check_payer(config, synthetic=examples.synthetic)
    scope = config.ledger.scope or str(columns.manifest.get("log"))
    key = config.ledger.key if config.privacy.method == "hybrid" else None
    flips = flip_key(scope, columns, config.part, version=config.labels.version, release=key)
    secret = _flip_secret(config) if config.privacy.flips_labels else None
    plan = method_from_config(config, flips, now=now).plan(examples, secret=secret, memory=memory)
    plan = replace(plan, defaults=(*chosen, *plan.defaults))
    plan.check(config.model)
    size = estimate_memory(config.model, examples, plan, config.speed)
    if config.onnx is not None:
        with error_prefix("export.onnx"):
            # A truncated model leaves its sensitive tables out: how large its file is, the export will say.
            check_exportable(config.model, size.weights if plan.part is Part.WHOLE else 0)
    if config.device is not None:
        with error_prefix("export.device"):
            held = size.weights if plan.part is Part.WHOLE else 0
            check_device_export(config.model, plan.head, columns.encoder, held)
    return PlannedTraining(config, columns, examples, plan, flips, secret, size)


def method_from_config(config: TrainingConfig, key: FlipKey, now: int) -> TrainingMethod:
    """`now`, in seconds, refuses time windows that are still open."""
    privacy, labels = config.privacy, config.labels
    part = only_part(config.model)
    if privacy.method == "plain":
        return Plain(config.plain, part or Part.WHOLE)
    assert privacy.epsilon is not None, "checked when the configuration was read"
    if privacy.method == "label-dp":
        return LabelDp(
            privacy.epsilon, privacy.unit, privacy.cap, labels.mechanism, labels.learning, key, now,
            part=part or Part.TRUNCATED, windows=labels.windows, as_of=labels.as_of,
        )  # fmt: skip
    assert privacy.delta is not None, "checked when the configuration was read"
    if privacy.method == "dp-sgd":
        return DpSgd(privacy.epsilon, privacy.delta, privacy.unit, config.descent, now)
    if privacy.method == "statistic":
        return StatisticMethod(privacy.epsilon, privacy.delta, privacy.unit, config.statistic, now)
    return Hybrid(
        privacy.epsilon,
        privacy.delta,
        k=privacy.k,
        unit=privacy.unit,
        frozen=privacy.frozen,
        cap=privacy.cap,
        mechanism=None if privacy.tells else labels.mechanism,
        statistic=config.statistic
        if privacy.tells and (privacy.k != "auto" or config.said.get("statistic"))
        else None,
        label_learning=labels.learning,
        learning=config.descent,
        key=key,
        now=now,
    )


def flip_key(
    scope: str, columns: Columns, part: str, *, version: int = 0, release: str | None = None
) -> FlipKey:
    """The key of a log's flips: the scope, which rows they are of, and the version of their labels.

    Label DP's flips are drawn once and read by every training, so they carry no `release`. The Hybrid pays for
    its labels each time: named by its release they are fresh each time too, and may be of labels that have
    changed meanwhile.
    """
    task = f"{scope}: label of {rows_identity(columns, part)}"
    return FlipKey(task if release is None else f"{task}, for {release}", 0, version)


def rows_identity(columns: Columns, part: str) -> str:
    """A name for these rows of this log, from public facts alone."""
    facts: Mapping[str, Any] = {name: columns.manifest.get(name) for name in FACTS}
    spelled = json.dumps({**facts, "part": part}, sort_keys=True)
    return f"{columns.manifest.get('log')}/{part}/{hashlib.sha256(spelled.encode()).hexdigest()[:16]}"


def few_warning(planned: PlannedTraining) -> str | None:
    """In one line, where there is too little to learn from under any noise."""
    if planned.plan.statement is None:
        return None
    count, what = len(planned.examples), "examples"
    if planned.units is not None and planned.units < count:
        count, what = planned.units, "units"
    for phase in planned.plan.phases:
        noisy = phase.labelling if isinstance(phase, LabelPhase) else None
        if noisy is not None and isinstance(noisy.mechanism, RepeatedFlips) and noisy.count < count:
            count, what = noisy.count, "labels with a report by then"
    if count >= FEW:
        return None
    return (
        f"{count:,} {what} are too few: under differential privacy next to nothing can be learned from fewer "
        f"than {FEW:,}; expect a model that guesses"
    )


def calibration_warning(plan: Plan) -> str | None:
    """In one line, where clipping makes predictions too low and nothing puts them right. How low is private, so
    it is not measured: this is said of the settings."""
    clipped = [phase for phase in plan.phases if isinstance(phase, PrivatePhase)]
    if not clipped or plan.recalibration is not None:
        return None
    return (
        f"predictions will not be recalibrated: gradients are clipped to {clipped[-1].clipping.clip_norm:g}, "
        "positives most of all, so that predictions are likely too low, by half at times; rank by them, do not "
        "bid by them, or say descent.recalibrate = true"
    )


def long_warning(planned: PlannedTraining) -> str | None:
    """In one line, where histories are taken whole. How long they are is private, so it is not looked up."""
    length = getattr(planned.config.model, "length", 0)
    if length <= LONG:
        return None
    return (
        f"length {length:,} takes next to every event of every history, and time and memory grow with them: "
        f"tens to hundreds are usual"
    )


def delta_warning(statement: Mapping[str, Any] | None, units: int | None) -> str | None:
    """In one line, where delta alone would allow to show somebody's data whole."""
    if statement is None or not units or statement["delta"] <= 1 / units:
        return None
    delta, share = format_rounded_up(statement["delta"], 3), f"1/{units:,} = {1 / units:.3g}"
    return (
        f"delta {delta} is more than {share}, one part in all units: to show the data of one unit, chosen at "
        "random, would keep such a promise; choose a delta far below it"
    )


def _check_payer(config: TrainingConfig, *, synthetic: bool) -> None:
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


def _flip_secret(config: TrainingConfig) -> bytes:
    """The one that is kept, or a new one, which is kept once the training is paid for."""
    if config.run.simulated is not None:
        return Simulation(f"secret {config.run.simulated}").bytes(SECRET_BYTES)
    assert config.ledger.secret is not None, "checked before"
    return read_secret(config.ledger.secret) or Entropy().bytes(SECRET_BYTES)
