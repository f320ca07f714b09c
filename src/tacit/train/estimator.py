"""Training in scikit-learn's manner: fit, predict_proba, score.

model = Estimator(FactorizationMachine(dim=16), Hybrid(epsilon=8, delta="1e-6"))
model.fit(Examples.of(columns, "train"))
model.predict_proba(Examples.of(columns, "test"))        # (rows, 2)
print(model.statement.as_text())
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.display import brief
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.privacy.calibration import CalibrationMemory
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.randomness import Source
from tacit.privacy.statement import PrivacyStatement
from tacit.train.evaluation.measures import auc
from tacit.train.examples import Examples
from tacit.train.methods import TrainingMethod
from tacit.train.models.model import Architecture, Model, predict
from tacit.train.plan import Plan
from tacit.train.recalibration import CalibrationResult
from tacit.train.settings import Speed
from tacit.train.steps import DEFAULT_SPEED, Run, RunProgress
from tacit.train.targets import Head


class Estimator:
    """A model and a method with `fit` and `predict`, in the manner of scikit-learn.

    Nothing is paid for here: fit within `LedgerStore.once`, which reserves what `plan` says, and lets nobody in
    for a second model.

    `source` is an `Entropy` of its own unless a `Simulation` is handed in for a study (`simulated`), whose
    result promises nothing. `secret` keys the flips of labels and should be kept: with another one, labels are
    flipped anew, which is another release. After a fit by DP-SGD, `calibration` says how far off predictions
    were before they were put right, by a noisy statistic that is part of the promise.
    """

    def __init__(
        self,
        model: Architecture,
        method: TrainingMethod,
        *,
        source: Source | None = None,
        secret: bytes | None = None,
        simulated: bool = False,
        speed: Speed = DEFAULT_SPEED,
    ) -> None:
        self.architecture, self.method, self.speed, self.simulated = model, method, speed, simulated
        if source is not None:
            expect.having("source", source, "bytes", "an Entropy or a Simulation")
        self.source: Source = source or Entropy()
        self.secret = secret or self.source.bytes(SECRET_BYTES)
        self._model: Model | None = None
        self._plan: Plan | None = None
        self.calibration: CalibrationResult | None = None

    def __repr__(self) -> str:
        return brief(self, model=self.architecture, method=self.method, fitted=self._model is not None)

    def plan(self, examples: Examples, memory: CalibrationMemory | None = None) -> Plan:
        """What `fit` will do and promise, before anything is read that is private."""
        return self.method.plan(examples, secret=self.secret, memory=memory)

    def fit(
        self, examples: Examples, plan: Plan | None = None, watch: Callable[[RunProgress], None] | None = None
    ) -> Estimator:
        chosen = plan or self.plan(examples)
        model = chosen.trained_shape(self.architecture).build(examples.sizes, self.source.normal)
        run = Run(chosen, model, examples, self.source, self.secret, speed=self.speed, simulated=self.simulated)
        self._model, self._plan = run.go(watch), chosen
        self.calibration = run.calibrated
        return self

    @property
    def model(self) -> Model:
        if self._model is None:
            raise BadInput("expected a model that was fitted, got one before fit")
        return self._model

    @property
    def statement(self) -> PrivacyStatement | None:
        """What is promised; None where nothing is, because nothing was private or the noise was simulated."""
        promised = self._fitted_by.statement
        return None if self.simulated else promised

    @property
    def head(self) -> Head:
        """What the model's scores mean."""
        return self._fitted_by.head

    def predict(self, examples: Examples) -> Floats32:
        """The expected label: a probability, a count or a value, by the head."""
        return predict(self.model, examples, self._fitted_by.part, self.head)

    def predict_proba(self, examples: Examples) -> NDArray[np.float32]:
        """The probabilities of 0 and of 1, (rows, 2)."""
        if self.head is not Head.LOGISTIC:
            raise BadInput(f"expected a model of probabilities, got a {self.head} head: use predict")
        positive = self.predict(examples)
        return np.stack([1 - positive, positive], axis=1)

    def score(self, examples: Examples) -> float:
        """AUC on the true labels of these examples. On private ones that is itself a release."""
        return auc(examples.labels, self.predict(examples))

    @property
    def _fitted_by(self) -> Plan:
        if self._plan is None:
            raise BadInput("expected a model that was fitted, got one before fit")
        return self._plan
