"""Where each method wins: randomized response with its best cap beside one noisy statistic, user unit.

Randomized response promises (epsilon, 0), the statistic (epsilon, delta) with delta 1e-6: the same epsilon is a
little less of a promise there. The statistic's prior takes the positive rate that was published as known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.units import Split, Unit, UnitKind
from tacit.studies import report
from tacit.studies.filing import line
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import FIGURES, PERCENT, Arm, Measurements
from tacit.studies.label_dp.report import RELATION, Y_LABEL
from tacit.studies.label_dp.report import line as flipped_line
from tacit.studies.logs import Ready, StudyLog
from tacit.studies.plotting import Panel
from tacit.studies.records import Record
from tacit.studies.runs import Floats, mean, words
from tacit.studies.study import Asked, Outcome, Scale, Study
from tacit.studies.tasks import run_all
from tacit.studies.training import figures
from tacit.studies.verdicts import below

if TYPE_CHECKING:
    from tacit.privacy.calibration import Memory

NAME = "label-dp-methods"
EPSILONS = {Scale.TOY: (1, 4), Scale.SMALL: (0.5, 1, 4, 8), Scale.FULL: (0.5, 1, 2, 4, 8)}
DELTA = "1e-6"
PUBLISHED_RATE = 0.0674
HEADER = (
    "epsilon", "RR, best K", "RR, %", "RR, predicted / observed", "statistic, %",
    "statistic, predicted / observed", "better",
)  # fmt: skip


@dataclass(frozen=True)
class Statistic:
    """One release of a noisy statistic of a user's labels, and the model that is fitted to it."""

    log: StudyLog
    epsilon: float
    seed: int

    def measure(self, ready: Ready, memory: Memory) -> Record:
        from tacit.entropy import Simulation
        from tacit.train.examples import Examples
        from tacit.train.statistic import NoisyStatistic
        from tacit.train.statistic.prior import Prior

        del memory
        train, test = Examples.of(ready.columns, "train"), Examples.of(ready.columns, "test")
        ids = np.asarray(train.at.of(train.public))
        keys = {name: train.key(name) for name in train.keys}
        method = NoisyStatistic(rank=4, prior=Prior(rate=PUBLISHED_RATE))
        began = time.perf_counter()
        plan = method.plan(
            ids, keys, public=train.public_keys, unit=Unit(UnitKind.USER), epsilon=self.epsilon, delta=DELTA
        )
        released = method.release(plan, train.labels, Simulation(f"run {self.seed}"), simulated=True)
        model = method.fit(released, ids, Simulation(f"start {self.seed}"))
        trained = time.perf_counter()
        predicted = model.predict_proba(np.asarray(test.at.of(test.public)))
        return {**figures(ready, test, predicted), "training_seconds": round(trained - began, 3)}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    epsilons, caps = EPSILONS[asked.scale], setting.CAPS[asked.scale][:3]
    arms = {epsilon: [Arm(UnitKind.USER, epsilon, cap, Split.BY_COUNT) for cap in caps] for epsilon in epsilons}
    measured = Measurements.of(asked, [arm for each in arms.values() for arm in each])
    best = [measured.best(arms[epsilon]) for epsilon in epsilons]
    tasks = [
        Statistic(setting.log(asked, seed), epsilon, seed) for epsilon in epsilons for seed in measured.seeds
    ]
    found = run_all(tasks, asked.cache, processes=asked.processes, track=asked.track, label="noisy statistic")
    records = {epsilon: found[at * asked.seeds : (at + 1) * asked.seeds] for at, epsilon in enumerate(epsilons)}
    plain = [record["auc_loss"] for record in measured.by_arm[Arm()]]
    losses = {
        epsilon: 100 * (np.array([record["auc_loss"] for record in records[epsilon]]) / plain - 1)
        for epsilon in epsilons
    }
    pairs = zip(epsilons, best, strict=True)
    panel = Panel(
        "",
        [
            flipped_line("RR, best K", measured, best),
            line("one noisy statistic", epsilons, list(losses.values())),
        ],
    )
    return report.outcome(
        NAME,
        asked,
        unit="user",
        relation=f"{RELATION}; delta 0 for RR, {DELTA} for the statistic",
        began=began,
        data=setting.data_words(asked),
        parameters={"delta": DELTA, "rate": PUBLISHED_RATE, "caps": list(caps)},
        table=[
            *({**row, "method": "randomized response"} for row in measured.rows()),
            *_statistic_rows(measured.seeds, records, losses),
        ],
        columns=HEADER,
        rows=[_row(measured, arm, losses[epsilon], records[epsilon]) for epsilon, arm in pairs],
        panels=[panel],
        axes=report.Axes("epsilon", Y_LABEL, epsilons),
        used=setting.files(asked),
    )


def _statistic_rows(
    seeds: Sequence[int], records: Mapping[float, Sequence[Record]], losses: Mapping[float, Floats]
) -> list[dict[str, Any]]:
    """A row for each epsilon and seed; what an arm is labelled with besides is empty."""
    return [
        {
            "method": "noisy statistic",
            "unit": str(UnitKind.USER),
            "epsilon": epsilon,
            "seed": seed,
            PERCENT: float(percent),
            **{name: record[name] for name in FIGURES},
        }
        for epsilon in records
        for seed, record, percent in zip(seeds, records[epsilon], losses[epsilon], strict=True)
    ]


def _row(measured: Measurements, arm: Arm, losses: Floats, records: Sequence[Record]) -> tuple[str, ...]:
    flipped = measured.percent(arm)
    winner = "statistic" if below(losses, flipped) else "RR" if below(flipped, losses) else "undecided"
    return (
        f"{arm.epsilon:g}",
        str(arm.cap),
        words(mean(flipped)),
        f"{measured.mean(arm, 'calibration_ratio'):.3f}",
        words(mean(losses)),
        f"{np.mean([record['calibration_ratio'] for record in records]):.3f}",
        winner,
    )


STUDY = Study(
    NAME, "Randomized response beside one noisy statistic", setting.PAPER,
    "limitations and future directions",
    (), {Scale.TOY: 0.2, Scale.SMALL: 1.7, Scale.FULL: 120},
    {Scale.TOY: 2, Scale.SMALL: 3, Scale.FULL: 3}, run,
)  # fmt: skip
