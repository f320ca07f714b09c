"""A saved model measured on a part of a prepared log, as `tacit evaluate` does: figures, and what they tell.

With the true labels the figures are exact, and on private labels a release that nobody has paid for; the notes
say so. With `FlipSettings` they are of labels that were flipped once, within a budget of their own
(`noisy_evaluation`). What can be refused is refused before anything is paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.data.columns import Columns
from tacit.display import brief_repr
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.files import check_writable
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.units import Cap, Relation, Unit, UnitKind
from tacit.train.config import PrivacySettings
from tacit.train.config_file import check_epsilon
from tacit.train.evaluation.measures import Outcomes
from tacit.train.evaluation.report import (
    Evaluation,
    ReliabilityBin,
    ValueEvaluation,
    evaluate_outcomes,
    evaluate_values,
    reliability_table,
)
from tacit.train.examples import EVERYTHING, Examples
from tacit.train.job.label_flips import LabelFlipRelease, read_secret
from tacit.train.job.noisy_evaluation import RESPONSE, LabelFlips, add_ledger_standing, plan_flips
from tacit.train.job.payment import TrainingLedger
from tacit.train.job.planned_training import flip_key
from tacit.train.models.saving import SavedModel, load
from tacit.train.targets import Head

MADE_UP = "the labels are made up: these figures are about nobody"
AGREED = "the labels were said to be public, or agreed for measuring"
EXACT = (
    "exact figures of private labels: to show them to anybody who may not see the labels is a release that "
    "nobody has paid for"
)
EXACT_VALUES = (
    "exact figures of private values: to show them to anybody who may not see the labels is a release that "
    "nobody has paid for"
)
EXACT_FEATURES = (
    "the model reads sensitive features of these rows: exact figures are a release about those features too, "
    "public labels or not, and nobody has paid for it"
)
IMPRESSION, ONE = Unit(UnitKind.IMPRESSION), Cap(1)


@dataclass(frozen=True)
class FlipSettings:
    """Labels that are flipped once to be measured on: their epsilon, whom it is for, and the key of the flips.

    `scope` is the ledger's name for these people's data, and `secret` the file that keys the flips, which is
    made if it is absent; made-up data needs neither. `version` rises when labels have changed. `relation` is
    that of the ledger's line, where it is not one of labels.
    """

    epsilon: expect.Number
    unit: Unit = IMPRESSION
    cap: Cap = ONE
    version: int = 0
    scope: str | None = None
    secret: Path | None = None
    relation: Relation | None = None

    def __post_init__(self) -> None:
        check_epsilon("epsilon", self.epsilon)
        if self.secret is not None:
            expect.kind("secret", self.secret, Path)
        expect.kind("unit", self.unit, Unit)
        expect.kind("cap", self.cap, Cap)
        if self.unit.kind is UnitKind.IMPRESSION and self.cap.impressions != 1:
            raise BadInput(
                f"cap: expected only with a unit of several rows, got {self.cap.impressions} of unit impression"
            )
        expect.whole("version", self.version, at_least=0)
        if self.relation is not None:
            Relation(self.relation)


@dataclass(frozen=True)
class ModelEvaluation:
    """The figures of one model on one part of a log, and in words what they give away and how far they go.

    `reliability` is there if it was asked for.
    """

    evaluation: Evaluation | ValueEvaluation
    notes: tuple[str, ...]
    reliability: tuple[ReliabilityBin, ...] | None
    method: str  # how the model was trained
    synthetic: bool  # whether the rows are made up


def evaluate_model(
    model: str | Path,
    data: str | Path,
    *,
    part: str = "test",
    baseline: str | Path | None = None,
    labels_are_public: bool = False,
    flips: FlipSettings | None = None,
    ledger: TrainingLedger | None = None,
    now: int | None = None,
    reliability: bool = False,
) -> ModelEvaluation:
    """Measure the model that a folder holds on a part of a prepared log, beside a baseline on the same rows.

    Without `flips` the figures are exact; with them they are of flipped labels, which a `ledger` pays for once.
    `now`, in seconds, refuses time windows that are still open. `ModelsOnRows` does the same in steps, and says
    what flips would cost before they are paid for.
    """
    models = ModelsOnRows.open(model, data, part=part, baseline=baseline)
    planned = models.plan(flips=flips, labels_are_public=labels_are_public, now=now, reliability=reliability)
    return planned.measure(ledger)


@dataclass(frozen=True, eq=False)
class ModelsOnRows:
    """A `SavedModel`, another as baseline if there is one, and the rows to measure them on: of one encoder."""

    places: list[Path]  # of the model that is measured, and of its baseline if there is one
    models: list[SavedModel]
    columns: Columns
    part: str
    examples: Examples

    __repr__ = brief_repr

    @classmethod
    def open(
        cls, model: str | Path, data: str | Path, *, part: str = "test", baseline: str | Path | None = None
    ) -> ModelsOnRows:
        """The models that two folders hold, and a part of the log that a third one holds."""
        places = [expect.path("model", model)]
        places += [] if baseline is None else [expect.path("baseline", baseline)]
        columns = Columns.open(expect.path("data", data))
        examples = Examples.of(columns, part)
        models = [load(place) for place in places]
        for place, each in zip(places, models, strict=True):
            if each.encoder.digest != examples.encoder_digest:
                raise BadInput(
                    f"{place}: expected a model of the encoder that {columns.folder} was prepared with, got "
                    "another"
                )
            if each.head != models[0].head:
                raise BadInput(f"{place}: expected a {models[0].head} head as {places[0]} has, got {each.head}")
        if not len(examples):
            raise BadInput(f"{columns.folder}: expected rows in part {part}, got none")
        return cls(places, models, columns, part, examples)

    def expect_probabilities(self, asked: str) -> None:
        """Refuse models of counts or amounts, of which what was asked for is not known."""
        for place, model in zip(self.places, self.models, strict=True):
            if model.head is not Head.LOGISTIC:
                raise BadInput(
                    f"{place}: expected a model of probabilities with {asked}, got a {model.head} head"
                )

    def plan(
        self,
        *,
        flips: FlipSettings | None = None,
        labels_are_public: bool = False,
        now: int | None = None,
        reliability: bool = False,
    ) -> PlannedEvaluation:
        """Plan the flips, if there are to be any, and predict: all that may fail before labels are paid for."""
        if reliability:
            self.expect_probabilities("a reliability table")
        rows, planned = self.examples, None
        if flips is not None:
            expect.kind("flips", flips, FlipSettings)
            self.expect_probabilities("flips")
            if labels_are_public:
                raise BadInput("labels_are_public: expected only with the true labels, got it with flips")
            planned = self._plan_flips(flips, now)
            rows = planned.examples
        predictions = [each.predict(rows) for each in self.models]
        return PlannedEvaluation(self, predictions, planned, labels_are_public, reliability)

    def _plan_flips(self, settings: FlipSettings, now: int | None) -> LabelFlips:
        """Which labels would be flipped, how and for whom."""
        if not self.examples.synthetic:
            for name in ("scope", "secret"):
                if getattr(settings, name) is None:
                    raise BadInput(f"flips.{name}: expected one for flips of people's labels, got none")
        privacy = PrivacySettings(
            "label-dp", settings.unit, settings.cap, check_epsilon("flips.epsilon", settings.epsilon)
        )
        scope = settings.scope or str(self.columns.manifest.get("log"))
        key = flip_key(scope, self.columns, self.part, version=settings.version)
        place, kept = settings.secret, None
        if place is not None:
            check_writable("flips.secret", place)
            kept = read_secret(place)
        secret = kept or Entropy().bytes(SECRET_BYTES)
        noisy = LabelFlipRelease(privacy, RESPONSE, key, secret, scope, place)
        reads = {
            str(where): each.sensitive_columns for where, each in zip(self.places, self.models, strict=True)
        }
        return plan_flips(self.examples, noisy, reads, now=now, relation=settings.relation)


@dataclass(frozen=True, eq=False)
class PlannedEvaluation:
    """Models with their predictions, and the labels that they would be measured on; nothing is paid for yet."""

    on: ModelsOnRows
    predictions: Sequence[Floats32]  # of each model
    flips: LabelFlips | None
    labels_are_public: bool
    reliability: bool

    @property
    def cost(self) -> Guarantee | None:
        """What a ledger is asked for; None of exact figures, which nobody pays for."""
        return None if self.flips is None else self.flips.cost

    def measure(self, ledger: TrainingLedger | None = None) -> ModelEvaluation:
        """The figures; flips are paid for by this ledger, of made-up labels by none."""
        if self.flips is None and ledger is not None:
            raise BadInput("ledger: expected one only with flips, got one for exact figures")
        if self.on.models[0].head is not Head.LOGISTIC:
            return self._with_notes(self._measure_values(), self._exact_notes())
        if self.flips is None:
            examples = self.on.examples
            outcomes = Outcomes.of_labels(examples.labels, clusters=_users(examples))
            notes, standing = self._exact_notes(), ""
        else:
            measured = self.flips.measured(ledger)
            outcomes, notes, standing = measured.outcomes, measured.notes, measured.standing
        with add_ledger_standing(standing):
            predicted, baseline = self._predicted
            evaluation = evaluate_outcomes(outcomes, predicted, baseline)
            bins = reliability_table(outcomes, predicted) if self.reliability else None
        return self._with_notes(evaluation, notes, bins)

    def _measure_values(self) -> ValueEvaluation:
        """The figures of a model that predicts counts or amounts."""
        examples = self.on.examples
        if examples.label is None:
            raise BadInput("expected a label column, got a log without one")
        predicted, baseline = self._predicted
        labels = examples.at.of(examples.label)
        return evaluate_values(labels, predicted, baseline=baseline, clusters=_users(examples))

    @property
    def _predicted(self) -> tuple[Floats32, Floats32 | None]:
        """By the model, and by the baseline."""
        return self.predictions[0], self.predictions[1] if len(self.predictions) > 1 else None

    def _with_notes(
        self,
        evaluation: Evaluation | ValueEvaluation,
        told: Sequence[str],
        bins: tuple[ReliabilityBin, ...] | None = None,
    ) -> ModelEvaluation:
        model, synthetic = self.on.models[0], self.on.examples.synthetic
        notes = (*told, *trust_notes(model, self.on.part, synthetic=synthetic))
        return ModelEvaluation(evaluation, notes, bins, model.method, synthetic)

    def _exact_notes(self) -> tuple[str, ...]:
        """What exact figures of these rows give away."""
        models = self.on.models
        if self.on.examples.synthetic:
            return (MADE_UP,)
        exact = EXACT if models[0].head is Head.LOGISTIC else EXACT_VALUES
        labels = AGREED if self.labels_are_public else exact
        return (labels, EXACT_FEATURES) if any(each.sensitive_columns for each in models) else (labels,)


def trust_notes(model: SavedModel, part: str, *, synthetic: bool) -> list[str]:
    """How far figures of this model on this part tell what it would do elsewhere; and whether it is private."""
    notes = []
    if model.simulated:
        noise = "the model's noise was simulated" if model.settings.get("as_if") else "the model is a study"
        notes.append(f"{noise}: it is not private")
    if part in (model.settings.get("part"), EVERYTHING):
        notes.append(f"the model may have been trained on {part}: expect worse on rows it has not seen")
    if model.synthetic != synthetic:
        notes.append("the model was trained on made-up data" if model.synthetic else "these rows are made up")
    return notes


def _users(examples: Examples) -> NDArray[Any] | None:
    """Whose rows belong together, where the log has users."""
    return examples.key("user") if "user" in examples.keys else None
