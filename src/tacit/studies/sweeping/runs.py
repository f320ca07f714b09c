"""One training of a sweep: trained, measured on held-out rows, and dropped. What stays is a flat record."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import __version__
from tacit.errors import BadInput, TacitError

Record = dict[str, Any]
FIGURES = ("auc_loss", "log_loss", "calibration_ratio")
REFUSED = "refused"


@dataclass(frozen=True)
class SweepRun:
    """A training and its seed, as texts that any process can be handed.

    Without `paid_by` it is a study on made-up data: everything random comes from the seed. With it, the run is
    a release that a ledger has paid for: noise and flips are fresh, under a secret that is forgotten with the
    run, and seeds only tell repetitions apart.
    """

    said: str  # the configuration, as JSON
    place: str  # of the configuration's file: paths are relative to it
    part: str
    seed: int
    data: str  # a digest of what the log's manifest says
    paid_by: str = ""

    @property
    def digest(self) -> str:
        spelled = json.dumps([__version__, self.said, self.part, self.seed, self.data, self.paid_by])
        return hashlib.sha256(spelled.encode()).hexdigest()[:24]

    def measure(self) -> Record:
        """The figures; a refusal of this training is an answer too."""
        try:
            return self._measured()
        except TacitError as refusal:
            return {REFUSED: str(refusal)}

    def _measured(self) -> Record:
        from tacit.data.columns import Columns
        from tacit.entropy import Entropy, Simulation
        from tacit.privacy.mechanisms.memoised import SECRET_BYTES
        from tacit.store.answers import RememberedAnswers, default_path
        from tacit.train.configuration import parse
        from tacit.train.configured import flip_key, method_of
        from tacit.train.evaluation.report import evaluate
        from tacit.train.examples import Examples
        from tacit.train.models.predicting import predict
        from tacit.train.run import Run
        from tacit.train.targets import Head

        config = parse({**json.loads(self.said), "out": "unused"}, Path(self.place))
        columns = Columns.open(config.data)
        train, held_out = Examples.of(columns, config.part), Examples.of(columns, self.part)
        simulated = not self.paid_by
        if simulated and config.privacy.is_private and not train.synthetic:
            raise BadInput("expected a run on people's data to be paid for, got one that is not")
        source = Simulation(f"run {self.seed}") if simulated else Entropy()
        chosen = Simulation(f"secret {self.seed}") if simulated else source
        secret = chosen.bytes(SECRET_BYTES) if config.privacy.flips_labels else None
        scope = config.ledger.scope or str(columns.manifest.get("log"))
        flips = flip_key(scope, columns, config.part, version=config.labels.version)
        began = time.perf_counter()
        plan = method_of(config, flips, now=int(time.time())).plan(
            train, secret=secret, memory=RememberedAnswers(default_path())
        )
        model = config.model.build(train.sizes, Simulation(f"start {self.seed}").normal)
        Run(plan, model, train, source, secret, speed=config.speed, simulated=simulated).go()
        predicted = predict(model, held_out, plan.part, Head.LOGISTIC)
        found = evaluate(held_out.labels, predicted)
        return {
            **{name: getattr(found, name).value for name in FIGURES},
            "rows": len(held_out),
            "seconds": round(time.perf_counter() - began, 3),
        }
