"""One training of a study: a log, a model, a method and a seed, measured on the log's test rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.studies.logs import Ready, StudyLog
from tacit.studies.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.privacy.calibration import Memory
    from tacit.train.examples import Examples
    from tacit.train.methods import Method
    from tacit.train.models.model import Architecture


@dataclass(frozen=True)
class Training:
    """Simulated, from a seed: its weights are measured and dropped, and never a release.

    See `figures` for what it is measured on.
    """

    log: StudyLog
    model: Architecture
    method: Method
    seed: int

    def measure(self, ready: Ready, memory: Memory) -> Record:
        from tacit.entropy import Simulation
        from tacit.train.examples import Examples
        from tacit.train.models.predicting import predict
        from tacit.train.plan import PrivatePhase
        from tacit.train.run import Run

        train, test = Examples.of(ready.columns, "train"), Examples.of(ready.columns, "test")
        secret = Simulation(f"secret {self.seed}").bytes(32)
        began = time.perf_counter()
        plan = self.method.plan(train, secret=secret, memory=memory)
        planned = time.perf_counter()
        model = self.model.build(train.sizes, Simulation(f"start {self.seed}").normal)
        Run(plan, model, train, Simulation(f"run {self.seed}"), secret, simulated=True).go()
        trained = time.perf_counter()
        predicted = predict(model, test, plan.part, plan.head)
        private = [phase for phase in plan.phases if isinstance(phase, PrivatePhase)]
        return {
            **figures(ready, test, predicted),
            "examples": len(train),
            "public_rows": train.sizes.public_rows,
            "sensitive_rows": train.sizes.sensitive_rows,
            "noise_multiplier": private[-1].clipping.noise_multiplier if private else None,
            "steps": plan.steps,
            "planning_seconds": round(planned - began, 3),
            "training_seconds": round(trained - planned, 3),
        }


def figures(ready: Ready, test: Examples, predicted: NDArray[np.floating]) -> Record:
    """How good predictions for the log's test rows are.

    Where the log's true probabilities are known, figures are expected ones, free of the labels' noise. Else
    they are exact figures on test labels, which is a release of them: for published logs alone.
    """
    from tacit.train.evaluation import auc, measures
    from tacit.train.evaluation.outcomes import Outcomes

    outcomes = (
        Outcomes.of_labels(test.labels)
        if ready.truth is None
        else Outcomes.of_probabilities(test.at.of(ready.truth))
    )
    return {
        "auc_loss": 1 - auc.value(outcomes, predicted),
        "log_loss": measures.log_loss(outcomes, predicted).value,
        "calibration_ratio": measures.calibration_ratio(outcomes, predicted).value,
        "measured_on": str(outcomes.known),
    }
