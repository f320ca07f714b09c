"""What a training will do and promise, decided from public quantities alone, before anything is touched.

plan = Hybrid(epsilon=8, delta="1e-6").plan(examples)       # accounts; reads no label and no sensitive feature
with ledger.once(Request(key, line, plan.charge, purpose)):  # pay; where that is done already, do not enter
    Run(plan, model, examples, Entropy(), secret).go()       # and only then train
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tacit.display import html_table
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.releases import Release
from tacit.privacy.statement import PrivacyStatement
from tacit.train.examples import Examples, Places
from tacit.train.labels.noisy_targets import NoisyLabelling
from tacit.train.models.architectures import expect_history, expect_part
from tacit.train.models.model import Architecture, Part
from tacit.train.recalibration import Recalibration
from tacit.train.settings import Course, Default
from tacit.train.sgd.descent import Clipping
from tacit.train.sgd.optimizers import Schedule
from tacit.train.statistic.offset import BesideStatistic
from tacit.train.targets import Head

if TYPE_CHECKING:
    from tacit.train.statistic.method import PlannedStatistic


@dataclass(frozen=True)
class LabelPhase:
    """Ordinary training; private because its labels are noisy, or not at all where `labelling` is None."""

    part: Part
    learning: Course
    schedule: Schedule
    labelling: NoisyLabelling | None

    name = "labels"

    @property
    def head(self) -> Head:
        """What a score means after it; true labels are 0 or 1."""
        return Head.LOGISTIC if self.labelling is None else self.labelling.mechanism.classes.head

    @property
    def span(self) -> float:
        """What values are divided by while they are learned: their public range, so that rates suit them which
        suit labels of 0 or 1."""
        if self.labelling is None or self.head is not Head.SQUARED:
            return 1.0
        values = self.labelling.mechanism.classes.values
        return max(values) - min(values) or 1.0


@dataclass(frozen=True)
class PrivatePhase:
    """DP-SGD. With `groups` (each example's unit, 0, 1, ...) whole units are sampled, and clipped as one."""

    part: Part
    learning: Course
    schedule: Schedule
    clipping: Clipping
    sampling_probability: float
    groups: Places | None

    name = "dp-sgd"
    head = Head.LOGISTIC


Phase = LabelPhase | PrivatePhase


@dataclass(frozen=True)
class Plan:
    """What a training will do, release and promise: its phases in order, with their noise.

    `charge` is what the ledger is asked for; the statement also counts what was released before and is used
    here, such as a vocabulary. A plan is for its own `examples` and no others: the shares of epsilon and the
    groups are theirs. After the last phase comes `recalibration`, if there is one. A `statistic` comes first:
    what is fitted to it is the model, or where there are phases what they train beside.
    """

    phases: tuple[Phase, ...]
    releases: tuple[Release, ...]
    statement: PrivacyStatement | None
    charge: Guarantee | None
    examples: Examples = field(repr=False, compare=False)
    recalibration: Recalibration | None = field(default=None, repr=False, compare=False)
    defaults: tuple[Default, ...] = ()  # what was left to us, and why it was chosen so
    statistic: PlannedStatistic | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        phases = " and ".join(phase.name for phase in self.phases) or "statistic"
        promised = "nothing promised" if self.statement is None else self.statement.headline
        return f"Plan({phases}: {self.steps:,} steps, {len(self.examples):,} examples; {promised})"

    def _repr_html_(self) -> str:
        head, rows = ["phase", "steps", "batch", "rate"], []
        private = any(isinstance(phase, PrivatePhase) for phase in self.phases)
        if private:
            head += ["noise multiplier", "clip norm", "sampling probability"]
        for phase in self.phases:
            steps, batch = f"{phase.schedule.steps:,}", f"{phase.learning.batch:,}"
            row, noise = [phase.name, steps, batch, f"{phase.schedule.rate:.4g}"], ["", "", ""]
            if isinstance(phase, PrivatePhase):
                clipping, share = phase.clipping, phase.sampling_probability
                noise = [f"{clipping.noise_multiplier:.6g}", f"{clipping.clip_norm:g}", f"{share:.4g}"]
            rows.append([*row, *noise] if private else row)
        promised = "Nothing is promised." if self.statement is None else f"{self.statement.headline}."
        return html_table(f"Plan for {len(self.examples):,} examples", head, rows, note=promised)

    @property
    def only_fits(self) -> bool:
        """Whether the model is what is fitted to a statistic, and nothing is trained in steps."""
        return self.statistic is not None and not self.phases

    def trained_shape(self, shape: Architecture) -> Architecture:
        """What is trained where a model of this shape is asked for."""
        if self.statistic is None or self.only_fits:
            return shape
        return BesideStatistic(shape, self.statistic.plan.rank)

    def check(self, shape: Architecture) -> None:
        """Refuse a model that these phases cannot train, or that reads what the examples do not have."""
        for phase in self.phases:
            expect_part(shape, phase.part, clipped=isinstance(phase, PrivatePhase))
        expect_history(shape, self.examples)

    @property
    def steps(self) -> int:
        return sum(phase.schedule.steps for phase in self.phases)

    @property
    def needs_secret(self) -> bool:
        return any(isinstance(phase, LabelPhase) and phase.labelling is not None for phase in self.phases)

    @property
    def part(self) -> Part:
        """What of the model predicts in the end."""
        return Part.TRUNCATED if all(phase.part is Part.TRUNCATED for phase in self.phases) else Part.WHOLE

    @property
    def head(self) -> Head:
        """What the model's scores mean; all phases agree. A statistic's fit has none: its labels are 0 or 1."""
        return self.phases[-1].head if self.phases else Head.LOGISTIC
