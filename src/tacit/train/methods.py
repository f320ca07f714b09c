"""The ways to train, as values: `Plain`, `LabelDp`, `DpSgd`, `Hybrid`, `StatisticMethod`. Each makes a `Plan`
for given examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.calibration import CalibrationMemory, noise_multiplier
from tacit.privacy.calibration import epsilon as epsilon_of
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.privacy.releases import Composed, Release, SubsampledGaussian
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Cap, CapChoice, Relation, Unit, UnitKind
from tacit.train.examples import Examples, group_by_unit
from tacit.train.label_share import flips_share, plan_offset, statistic_share
from tacit.train.labels.mechanism import BINARY, LabelMechanism
from tacit.train.labels.noisy_targets import NoisyLabelling
from tacit.train.labels.randomizers import FlipLabels
from tacit.train.labels.windows import RepeatedFlips, ReportingWindows
from tacit.train.models.model import Part
from tacit.train.plan import LabelPhase, Phase, Plan, PrivatePhase
from tacit.train.recalibration import Recalibration, plan_statistic, record_weights
from tacit.train.settings import (
    Default,
    Defaults,
    Learning,
    PrivateLearning,
    label_course,
    private_course,
    private_rate,
)
from tacit.train.sgd.descent import Clipping
from tacit.train.statistic.method import NoisyStatistic, PlannedStatistic
from tacit.train.statistic.release import StatisticPrior
from tacit.train.targets import Head

IMPRESSION, ONE, LABEL = Unit(UnitKind.IMPRESSION), Cap(1), FlipKey("label", 0)
READS_ALL = "sensitive features, which this model reads: its weights may tell what they are"


class TrainingMethod(Protocol):
    def plan(
        self, examples: Examples, *, secret: bytes | None = None, memory: CalibrationMemory | None = None
    ) -> Plan:
        """`secret` is for random caps, which are drawn once and for all; `memory` remembers calibrations."""
        ...


@dataclass(frozen=True)
class Plain:
    """Training without privacy, on true labels and all features: what the others are measured against."""

    learning: Learning = field(default_factory=Learning)
    part: Part = Part.WHOLE

    def __post_init__(self) -> None:
        _check(self, learning=Learning)

    def plan(
        self, examples: Examples, *, secret: bytes | None = None, memory: CalibrationMemory | None = None
    ) -> Plan:
        del secret, memory
        course, schedule, chosen = label_course(self.learning, len(examples), "descent")
        phase = LabelPhase(self.part, course, schedule, None)
        return Plan((phase,), (), None, None, examples, defaults=chosen)


@dataclass(frozen=True)
class LabelDp:
    """Label DP: labels are made noisy once, then a truncated model is trained on them and on public features.

    With `part` whole, sensitive features are read as well: the promise is about labels alone, and the features
    are not protected. With `windows` labels of 0 or 1 are reported several times, and what there is of them
    `as_of` a time (None: now) is learned from; the plan promises, and pays for, all reports that will come.

    Guarantee:  (epsilon, 0)-DP for the labels of one `unit`, as the mechanism composes them under `cap`.
    Neighbours: replace label, for one unit (and window): all features, unit keys and times are the same.
    Assumes:    what the mechanism and `allocation.allocate` assume. No feature was made from labels. Of a
                truncated model, sensitive features are not read at all.
    Source:     Ghazi et al., Evaluation of Label DP Mechanisms on Binary Conversion Models.
    """

    epsilon: expect.Number
    unit: Unit = IMPRESSION
    cap: Cap = ONE
    mechanism: LabelMechanism = field(default_factory=FlipLabels)
    learning: Learning = field(default_factory=Learning)
    key: FlipKey = LABEL
    now: int | None = None
    part: Part = Part.TRUNCATED
    windows: ReportingWindows | None = None
    as_of: int | None = None

    def __post_init__(self) -> None:
        _check(self, unit=Unit, cap=Cap, learning=Learning, key=FlipKey)

    def plan(
        self, examples: Examples, *, secret: bytes | None = None, memory: CalibrationMemory | None = None
    ) -> Plan:
        if self.windows is not None:
            reported = replace(self, mechanism=self._reports(self.windows, examples), windows=None)
            return reported.plan(examples, secret=secret, memory=memory)
        labelling = _labelling(self, self.epsilon, examples, secret)
        release = labelling.release
        reads_all = self.part is not Part.TRUNCATED
        statement = PrivacyStatement.of(
            [release],
            unit=self.unit,
            relation=Relation.REPLACE_LABEL,
            delta=0,
            also_not_protected=(READS_ALL,) if reads_all else (),
            whole_units=True,
        )
        course, schedule, chosen = label_course(self.learning, labelling.count, "labels")
        phase = LabelPhase(self.part, course, schedule, labelling)
        charge = statement.guarantee(sensitive_features=reads_all)
        return Plan((phase,), (release,), statement, charge, examples, defaults=chosen)

    def _reports(self, windows: ReportingWindows, examples: Examples) -> RepeatedFlips:
        """What has been reported by the time that is meant."""
        if not isinstance(self.mechanism, FlipLabels) or self.mechanism.classes != BINARY:
            raise BadInput("expected flips of 0 or 1 for labels that are reported several times, got another")
        as_of = self.now if self.as_of is None else self.as_of
        if as_of is None:
            raise BadInput("expected the time as of which labels are read, or now, got neither")
        if self.now is not None and as_of > self.now:
            raise BadInput(f"expected reports as of a time that has come, got {as_of}, after {self.now}")
        assert self.mechanism.correction is not None, "chosen when it was made"
        return RepeatedFlips.as_of(windows, examples, as_of, self.mechanism.correction)


@dataclass(frozen=True)
class DpSgd:
    """DP-SGD: the whole model is trained by clipped gradients of Poisson samples, with Gaussian noise.

    Guarantee:  (epsilon, delta)-DP for the trained weights, all steps and the recalibration together.
    Neighbours: the private part (sensitive features and label) of one `unit` replaced; public features, unit
                keys and which records exist stay.
    Assumes:    Poisson samples and their sizes stay secret; a unit's records are clipped as one (`unit`).
    Source:     Abadi et al. 2016 (arXiv 1607.00133); accounting: `privacy.accounting.accountant`.
    """

    epsilon: expect.Number
    delta: expect.Number
    unit: Unit = IMPRESSION
    learning: PrivateLearning = field(default_factory=PrivateLearning)
    now: int | None = None

    def __post_init__(self) -> None:
        _check(self, unit=Unit, learning=PrivateLearning)

    def plan(
        self, examples: Examples, *, secret: bytes | None = None, memory: CalibrationMemory | None = None
    ) -> Plan:
        alone = Hybrid(self.epsilon, self.delta, 0, self.unit, learning=self.learning, now=self.now)
        return alone.plan(examples, secret=secret, memory=memory)


@dataclass(frozen=True)
class Hybrid:
    """Label DP, then DP-SGD: first the truncated model on noisy labels, then the whole model.

    Labels get a share `k` of epsilon: 0 is DP-SGD alone, 1 is label DP alone, "auto" chooses from public
    quantities. With `frozen`, the second phase leaves the public tower as the first has made it.

    With a `statistic`, labels are not flipped: one noisy statistic of them is told first, and the logit of what
    is fitted to it is added to that of the model that DP-SGD trains (`BesideStatistic`). "auto" does so where
    no `mechanism` is named and nothing is frozen.

    Guarantee:  (epsilon, delta)-DP for everything that both phases and the recalibration let out, composed
                jointly.
    Neighbours: the private part (sensitive features and label) of one `unit` replaced; public features, unit
                keys and which records exist stay.
    Assumes:    what `LabelDp` and `DpSgd` assume.
    Source:     Chua et al., AdKDD 2024 (arXiv 2401.15246), section 4; composed by PLD instead of by addition.
    """

    epsilon: expect.Number
    delta: expect.Number
    k: float | Literal["auto"] = "auto"
    unit: Unit = IMPRESSION
    frozen: bool = False
    cap: Cap = ONE
    mechanism: LabelMechanism | None = None
    label_learning: Learning = field(default_factory=Learning)
    learning: PrivateLearning = field(default_factory=PrivateLearning)
    key: FlipKey = LABEL
    now: int | None = None
    statistic: NoisyStatistic | None = None

    def __post_init__(self) -> None:
        if self.k != "auto":
            expect.probability("k", self.k, zero=True, one=True)
        kinds = {"cap": Cap, "label_learning": Learning, "learning": PrivateLearning, "key": FlipKey}
        _check(self, unit=Unit, frozen=bool, **kinds)
        if self.statistic is None:
            return
        if not isinstance(self.statistic, NoisyStatistic):
            raise BadInput(f"expected statistic to be a NoisyStatistic, got {self.statistic!r}")
        if self.k == 1:
            raise BadInput("expected k below 1 with a statistic, got 1: StatisticMethod is label DP by it")
        if self.frozen:
            raise BadInput("expected no frozen public tower with a statistic, which trains none, got one")

    def plan(
        self, examples: Examples, *, secret: bytes | None = None, memory: CalibrationMemory | None = None
    ) -> Plan:
        epsilon, delta = expect.exact("epsilon", self.epsilon), expect.exact("delta", self.delta)
        flips = self.mechanism or FlipLabels()
        share, chosen = (0.0, ()) if self._tells is not None else self._share(examples)
        if share < 1 and flips.classes.head is not Head.LOGISTIC:
            raise BadInput(
                "expected labels of 0 or 1 for DP-SGD, got a mechanism of bins: it fits label DP alone"
            )
        if share == 1:
            labels = LabelDp(epsilon, self.unit, self.cap, flips, self.label_learning, self.key, self.now)
            return labels.plan(examples, secret=secret)
        _expect_rows(examples)
        phases: list[Phase] = []
        beside: list[Release] = []
        if share > 0:
            labelling = _labelling(self, epsilon * expect.exact("k", share), examples, secret)
            beside.append(labelling.release)
            course, schedule, said = label_course(self.label_learning, len(labelling.allocation), "labels")
            phases.append(LabelPhase(Part.TRUNCATED, course, schedule, labelling))
            chosen += said
        groups = group_by_unit(examples, self.unit, self.now)
        records = len(examples) if groups is None else int(groups.max()) + 1
        offset, tells = None, self._tells
        if tells is not None:
            told_noise, _, said = statistic_share(examples, records, epsilon=epsilon, delta=delta, k=self.k)
            chosen += said
            if told_noise is not None:
                offset = plan_offset(
                    tells, examples, self.unit, epsilon=epsilon, delta=delta, noise=told_noise, now=self.now
                )
                beside.append(offset.plan.release)
        course, clip_norm, said = private_course(self.learning, records, float(epsilon), examples.sizes)
        sampling = min(1.0, course.batch / records)
        steps = max(1, round(course.epochs / sampling))
        chosen += said
        before = [] if examples.selection is None else [examples.selection.release]
        if before and self.unit.kind is not UnitKind.IMPRESSION:
            raise BadInput(
                f"expected an encoder without a private selection for unit {self.unit}, got one: its promise "
                "is for impressions"
            )
        told: list[Release] = []
        recalibration = None
        if self.learning.recalibrate:
            left = float(epsilon) * (1 - share)
            statistic = plan_statistic(left, float(delta), records, self.learning.start_rate)
            weights = None if groups is None else record_weights(groups)
            recalibration = Recalibration(statistic, weights)
            told.append(statistic)
            why = "clipping holds positives back; one noisy statistic, paid for here, puts predictions right"
            chosen += (Default("descent.recalibrate", "true", why),)
        noise = noise_multiplier(
            epsilon=epsilon,
            delta=delta,
            relation=Relation.REPLACE_ONE,
            sampling_probability=sampling,
            steps=steps,
            beside=[*beside, *before, *told],
            memory=memory,
        )
        release = SubsampledGaussian(noise, sampling, steps)
        part = Part.SENSITIVE if self.frozen and phases else Part.WHOLE
        course, schedule, said = private_rate(
            self.learning, course, steps, noise, clip_norm, sampling * records, examples.sizes
        )
        phases.append(PrivatePhase(part, course, schedule, Clipping(clip_norm, noise), sampling, groups))
        releases = (*beside, release, *told)
        statement = PrivacyStatement.of(
            [*before, *releases],
            unit=self.unit,
            relation=Relation.REPLACE_ONE,
            delta=delta,
            whole_units=True,
        )
        charge = _charge(statement, releases, before, delta, memory)
        return Plan(tuple(phases), releases, statement, charge, examples, recalibration, chosen + said, offset)

    @property
    def _tells(self) -> NoisyStatistic | None:
        """The statistic that labels are told by, unless they are flipped."""
        if self.statistic is not None or self.k != "auto" or self.mechanism is not None or self.frozen:
            return self.statistic
        rate = self.learning.start_rate
        return NoisyStatistic() if rate is None else NoisyStatistic(prior=StatisticPrior(rate=rate))

    def share(self, examples: Examples) -> float:
        """`k`, chosen from public quantities where it was left to us; a statistic's is what it takes alone."""
        if self._tells is None:
            return self._share(examples)[0]
        groups = group_by_unit(examples, self.unit, self.now)
        records = len(examples) if groups is None else int(groups.max()) + 1
        epsilon, delta = expect.exact("epsilon", self.epsilon), expect.exact("delta", self.delta)
        return statistic_share(examples, records, epsilon=epsilon, delta=delta, k=self.k)[1]

    def _share(self, examples: Examples) -> tuple[float, Defaults]:
        """With the reason."""
        if self.k != "auto":
            return float(expect.exact("k", self.k)), ()
        return flips_share(float(expect.exact("epsilon", self.epsilon)), examples, self.learning.start_rate)


@dataclass(frozen=True)
class StatisticMethod:
    """Label DP by one noisy statistic of public features, to which a model is fitted (`NoisyStatistic`)."""

    epsilon: expect.Number
    delta: expect.Number
    unit: Unit = IMPRESSION
    statistic: NoisyStatistic = field(default_factory=NoisyStatistic)
    now: int | None = None

    def __post_init__(self) -> None:
        _check(self, unit=Unit, statistic=NoisyStatistic)

    def plan(
        self, examples: Examples, *, secret: bytes | None = None, memory: CalibrationMemory | None = None
    ) -> Plan:
        """From public ids and keys alone."""
        del secret, memory
        chosen = self.statistic.plan(
            examples.public_ids,
            {name: examples.key(name) for name in examples.keys},
            public=examples.public_keys,
            unit=self.unit,
            epsilon=self.epsilon,
            delta=self.delta,
            now=self.now,
        )
        statement = chosen.statement
        charge = statement.guarantee(sensitive_features=False)
        planned = PlannedStatistic(self.statistic, chosen)
        return Plan((), (chosen.release,), statement, charge, examples, statistic=planned)


def _check(method: Plain | LabelDp | DpSgd | Hybrid | StatisticMethod, **kinds: type) -> None:
    """BadInput where a method is asked for what it cannot mean; fields of these names are of these kinds."""
    if not isinstance(method, Plain):
        expect.positive("epsilon", method.epsilon)
        if method.now is not None:
            expect.integer("now", method.now)
    if isinstance(method, DpSgd | Hybrid | StatisticMethod):
        expect.probability("delta", method.delta)
    for name, kind in kinds.items():
        if not isinstance(getattr(method, name), kind):
            raise BadInput(f"expected {name} to be a {kind.__name__}, got {getattr(method, name)!r}")
    if isinstance(method, Plain | LabelDp):
        object.__setattr__(method, "part", Part.named("part", method.part))
    if isinstance(method, LabelDp | Hybrid) and not hasattr(method.mechanism or FlipLabels(), "targets"):
        raise BadInput(
            f"expected mechanism to make noisy labels, such as FlipLabels(), got {method.mechanism!r}"
        )


def _labelling(
    method: LabelDp | Hybrid, epsilon: expect.Number, examples: Examples, secret: bytes | None
) -> NoisyLabelling:
    _expect_rows(examples)
    if not examples.sizes.public_fields:
        raise BadInput("expected public features to learn from noisy labels, got a log without any")
    if method.cap.choice is CapChoice.RANDOM and secret is None:
        raise BadInput("expected the secret for a random cap, which is drawn once and for all, got none")
    return NoisyLabelling.of(
        examples, method.mechanism or FlipLabels(), method.unit, method.cap, epsilon,
        key=method.key, secret=secret or b"", now=method.now,
    )  # fmt: skip


def _charge(
    statement: PrivacyStatement,
    releases: tuple[Release, ...],
    before: Sequence[Release],
    delta: expect.Number,
    memory: CalibrationMemory | None,
) -> Guarantee:
    """What is new on the ledger: all of the statement, but for what was paid when it was released."""
    if not before:
        return statement.guarantee(sensitive_features=True)
    epsilon = epsilon_of(Composed(releases), delta=delta, relation=statement.relation, memory=memory)
    return Guarantee(Budget.of(epsilon, delta), statement.unit, statement.relation, sensitive_features=True)


def _expect_rows(examples: Examples) -> None:
    if not len(examples):
        raise BadInput("expected at least one example to train on, got none")
