"""Private models of frames, as scikit-learn's estimators: `Classifier` and `Regressor`.

    model = Classifier("fm", epsilon=2, public=["site", "hour"], sensitive=["age"])
    model.fit(frame, "clicked")                     # or fit(X, y)
    model.predict_proba(frame)                      # (rows, 2)
    print(model.explain())                          # what is promised, to whom, and what is not

A fitted model holds weights, its encoder and its statement, and nothing of any row: it can be pickled and sent.
Every fit draws from a new cryptographic stream, and every fit is a release of its own.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from tacit import expect
from tacit.arrays import Floats32
from tacit.errors import BadInput
from tacit.files import refuse_bad_record
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Cap, CapChoice, Split, Unit
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.train.examples import Examples, count_units
from tacit.train.frame_model import ESTIMATOR, FittedModel, FrameModel
from tacit.train.labels.values import FlipEnds
from tacit.train.methods import DpSgd, Hybrid, LabelDp, Plain, StatisticMethod, TrainingMethod
from tacit.train.models import saving
from tacit.train.models.model import Architecture
from tacit.train.settings import Speed
from tacit.train.statistic.model import FieldFactors
from tacit.train.targets import Head

METHODS = ("hybrid", "dp-sgd", "label-dp", "statistic", "plain")


class Classifier(ClassifierMixin, FrameModel):  # type: ignore[misc]
    """A private model of a yes or no: clicked, bought, came back.

    `model` is "fm" (a factorization machine), "logistic", "mlp" (needs torch), or an architecture of
    `tacit.train`. `method` is "hybrid" (noisy labels, then DP-SGD, by shares chosen for you), "dp-sgd",
    "label-dp" (labels alone are private), "statistic" (labels alone, through one noisy sum) or "plain" (no
    privacy); or a method of `tacit.train`, with its own epsilon.

    `epsilon` and `delta` are the promise: whatever somebody concludes from the model, they would have concluded
    if one unit's private data had been different, at most e^epsilon times less or more often. Without a `delta`
    it is at most a tenth of one over the number of units. `unit` names the column of people; None promises for
    each row alone. `public` columns anybody may know; `sensitive` ones are protected with the label. Columns
    that are not named are sensitive, or left out where both lists are given. `categories` are numbers that are
    names. `schema` is a log's TOML file instead of these lists. `cap` is how many rows of one unit noisy labels
    are made for. `bins` is the size of each hashed table. With a `random_state` the noise is simulated, and
    nothing is promised.

    After `fit`: `classes_`, `statement_` (None where nothing is promised), `explain()`, `save(folder)`.
    """

    def __init__(
        self,
        model: str | Architecture = "fm",
        *,
        method: str | TrainingMethod = "hybrid",
        epsilon: int | float | Fraction | Decimal = 1.0,
        delta: int | float | Fraction | Decimal | None = None,
        public: Any = None,
        sensitive: Any = None,
        unit: str | Unit | None = None,
        cap: int = 1,
        categories: Any = None,
        schema: str | Path | LogSchema | None = None,
        bins: int | None = None,
        speed: Speed | None = None,
        random_state: int | None = None,
    ) -> None:
        self.model, self.method, self.epsilon, self.delta = model, method, epsilon, delta
        self.public, self.sensitive, self.unit, self.cap = public, sensitive, unit, cap
        self.categories, self.schema, self.bins, self.speed = categories, schema, bins, speed
        self.random_state = random_state

    def predict_proba(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """The probabilities of the two classes, (rows, 2)."""
        positive = self._expected_labels(X)
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likelier class of each row."""
        positive = self._expected_labels(X) > 0.5
        likelier: NDArray[Any] = self.classes_[positive.astype(np.intp)]
        return likelier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # noise may cost any accuracy
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _read_targets(self, labels: NDArray[Any]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        try:
            check_classification_targets(labels)
        except ValueError as problem:
            raise BadInput(f"{problem}") from None
        classes, found = np.unique(labels, return_inverse=True)
        if len(classes) > 2:
            raise BadInput(
                f"Only binary classification is supported. The type of the target is multiclass: expected two "
                f"classes in y, got {len(classes)}"
            )
        if len(classes) < 2:
            raise BadInput(f"expected two classes in y, got one class: {classes.tolist()[0]!r}")
        return found.astype(np.uint8), {"classes": classes}

    def _make_method(self, examples: Examples) -> TrainingMethod:
        if not isinstance(self.method, str):
            if self.unit is not None:
                raise BadInput("unit: expected it within the method that was made by hand, got it beside one")
            return self.method
        if self.method not in METHODS:
            near = expect.nearest(self.method, METHODS)
            raise BadInput(f"method: expected {', '.join(METHODS)}, got {self.method!r}{near}")
        if self.method == "plain":
            return Plain()
        unit, epsilon = self._find_unit(), self._find_epsilon()
        cap = Cap(expect.whole("cap", self.cap, at_least=1), CapChoice.RANDOM, Split.BY_COUNT)
        if self.method == "label-dp":
            return LabelDp(epsilon, unit, cap)
        expect.not_text("delta", self.delta)
        delta = expect.probability("delta", default_delta(examples, unit) if self.delta is None else self.delta)
        if self.method == "statistic":
            return StatisticMethod(epsilon, delta, unit)
        if self.method == "dp-sgd" or not examples.sizes.public_fields:
            return DpSgd(epsilon, delta, unit)
        return Hybrid(epsilon, delta, unit=unit, cap=cap)

    def _make_shape(self) -> Architecture:
        return FieldFactors() if self.method == "statistic" else super()._make_shape()


class Regressor(RegressorMixin, FrameModel):  # type: ignore[misc]
    """A private model of a count or an amount within a public range, under label DP.

    Labels outside `low` to `high` count as the ends. Each is rounded to one end at random and flipped, which
    has the label as its mean; with `count` the model's mean is never below 0 (a Poisson head). Everything else
    is as for `Classifier`; features that are sensitive are not read, for the promise is about labels alone.
    """

    method = "label-dp"

    def __init__(
        self,
        model: str | Architecture = "fm",
        *,
        low: float = 0.0,
        high: float | None = None,
        count: bool = False,
        epsilon: int | float | Fraction | Decimal = 1.0,
        public: Any = None,
        sensitive: Any = None,
        unit: str | Unit | None = None,
        cap: int = 1,
        categories: Any = None,
        schema: str | Path | LogSchema | None = None,
        bins: int | None = None,
        speed: Speed | None = None,
        random_state: int | None = None,
    ) -> None:
        self.model, self.low, self.high, self.count, self.epsilon = model, low, high, count, epsilon
        self.public, self.sensitive, self.unit, self.cap = public, sensitive, unit, cap
        self.categories, self.schema, self.bins, self.speed = categories, schema, bins, speed
        self.random_state = random_state

    def predict(self, X: Any) -> Floats32:  # noqa: N803
        """The expected value of each row."""
        return self._expected_labels(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _read_targets(self, labels: NDArray[Any]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        if labels.dtype.kind not in "biufO":
            raise BadInput(f"expected numbers in y, got {labels.dtype}")
        try:
            return labels.astype(np.float64), {}
        except (TypeError, ValueError):
            raise BadInput(f"expected numbers in y, got {labels.dtype}") from None

    def _make_method(self, examples: Examples) -> TrainingMethod:
        del examples
        unit, epsilon = self._find_unit(), self._find_epsilon()
        cap = Cap(expect.whole("cap", self.cap, at_least=1), CapChoice.RANDOM, Split.BY_COUNT)
        head = Head.POISSON if self.count else Head.SQUARED
        if self.high is None:
            raise BadInput("high: expected the largest value that labels may have, which is public, got none")
        return LabelDp(epsilon, unit, cap, FlipEnds(self.low, self.high, head))


def default_delta(examples: Examples, unit: Unit) -> str:
    """The largest power of ten that is at most a tenth of one over the number of units, and at most 1e-5."""
    digits = len(str(count_units(examples, unit) - 1))
    return f"1e-{max(5, digits + 1)}"


def load(folder: str | Path) -> Classifier | Regressor:
    """A fitted model from the folder that `save`, or `tacit train`, has written."""
    saved = saving.load(folder)
    place = Path(folder) / saving.MANIFEST
    shape, record = saved.model.architecture, saved.settings.get(ESTIMATOR)
    estimator = Classifier(shape) if saved.head is Head.LOGISTIC else Regressor(shape)
    with refuse_bad_record(place, "a model"):
        if record is None:  # of `tacit train`, whose labels are 0 and 1
            label = Column("label", {Role.LABEL}, Kind.REAL)
            schema, classes = LogSchema("frame", (label, *saved.encoder.columns)), [0, 1]
            sources = tuple(dict.fromkeys(column.source for column in saved.encoder.columns))
        else:
            schema = LogSchema("frame", tuple(Column(**each) for each in record["columns"]))
            sources, classes = tuple(map(str, record["sources"])), record.get("classes", [])
            estimator.set_params(**record.get("parameters", {}))
        statement = None if saved.statement is None else PrivacyStatement.from_json(saved.statement)
    estimator._keep(FittedModel(saved, statement, schema, sources))
    if isinstance(estimator, Classifier):
        estimator.classes_ = np.array(classes)
    return estimator
