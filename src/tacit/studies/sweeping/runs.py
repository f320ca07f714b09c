"""One training of a sweep: trained, measured on held-out rows, and dropped. What stays is a flat record."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput, TacitError
from tacit.studies.digests import TRAINING, digest, room_of
from tacit.studies.records import Record

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.memoised import FlipKey
    from tacit.train.configuration.values import TrainingConfig
    from tacit.train.examples import Examples

__all__ = ["FIGURES", "REFUSED", "Record", "SweepRun"]

FIGURES = ("auc_loss", "log_loss", "calibration_ratio")
REFUSED = "refused"


@dataclass(frozen=True)
class SweepRun:
    """A training and its seed, as texts that any process can be handed.

    It is a study: everything random comes from the seed, so its figures promise nothing to anybody, and on
    people's data it must be told so (`nothing_promised`).
    """

    said: str  # the configuration, as JSON
    place: str  # of the configuration's file: paths are relative to it
    part: str
    seed: int
    data: str  # a digest of what the log's manifest says
    nothing_promised: bool = False

    @property
    def digest(self) -> str:
        """Of all that the figures depend on, the code included."""
        said = (self.said, self.part, str(self.seed), self.data)
        return digest(*said, rooms=(*TRAINING, *room_of(self)))

    def measure(self) -> Record:
        """The figures; a refusal of this training is an answer too."""
        try:
            return self._measured()
        except TacitError as refusal:
            return {REFUSED: str(refusal)}

    def _measured(self) -> Record:
        from tacit.data.columns import Columns
        from tacit.train.configuration import parse
        from tacit.train.configuration.configured import flip_key
        from tacit.train.evaluation.report import evaluate
        from tacit.train.examples import Examples

        config = parse({**json.loads(self.said), "out": "unused"}, Path(self.place))
        columns = Columns.open(config.data)
        train, held_out = Examples.of(columns, config.part), Examples.of(columns, self.part)
        if not train.synthetic and not self.nothing_promised:
            raise BadInput('expected made-up data, or promise = "nothing", got people\'s data')
        began = time.perf_counter()
        if config.privacy.method == "statistic":
            predicted = self._by_statistic(config, train, held_out)
        else:
            scope = config.ledger.scope or str(columns.manifest.get("log"))
            flips = flip_key(scope, columns, config.part, version=config.labels.version)
            predicted = self._by_steps(config, flips, train, held_out)
        found = evaluate(held_out.labels, predicted)
        return {
            **{name: getattr(found, name).value for name in FIGURES},
            "rows": len(held_out),
            "seconds": round(time.perf_counter() - began, 3),
        }

    def _by_steps(
        self, config: TrainingConfig, flips: FlipKey, train: Examples, held_out: Examples
    ) -> NDArray[np.floating]:
        """Predictions of a model that is trained step by step."""
        from tacit.entropy import Simulation
        from tacit.privacy.mechanisms.memoised import SECRET_BYTES
        from tacit.store.answers import RememberedAnswers, default_path
        from tacit.train.configuration.configured import method_of
        from tacit.train.models.predicting import predict
        from tacit.train.run import Run

        secret = Simulation(f"secret {self.seed}").bytes(SECRET_BYTES) if config.privacy.flips_labels else None
        method = method_of(config, flips, now=int(time.time()))
        plan = method.plan(train, secret=secret, memory=RememberedAnswers(default_path()))
        model = config.model.build(train.sizes, Simulation(f"start {self.seed}").normal)
        source = Simulation(f"run {self.seed}")
        Run(plan, model, train, source, secret, speed=config.speed, simulated=True).go()
        return predict(model, held_out, plan.part, plan.head)

    def _by_statistic(
        self, config: TrainingConfig, train: Examples, held_out: Examples
    ) -> NDArray[np.floating]:
        """Predictions of a model that is fitted to one noisy statistic."""
        from tacit.entropy import Simulation

        privacy, method = config.privacy, config.statistic
        assert privacy.epsilon is not None, "checked when the configuration was read"
        assert privacy.delta is not None, "checked when the configuration was read"
        ids = np.asarray(train.at.of(train.public))
        plan = method.plan(
            ids,
            {name: train.key(name) for name in train.keys},
            public=train.public_keys,
            unit=privacy.unit,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            now=int(time.time()),
        )
        released = method.release(plan, train.labels, Simulation(f"run {self.seed}"), simulated=True)
        model = method.fit(released, ids, Simulation(f"start {self.seed}"))
        return model.predict_proba(np.asarray(held_out.at.of(held_out.public)))
