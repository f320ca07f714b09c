"""Where each method wins: randomized response with its best cap beside one noisy statistic, user unit.

Randomized response promises (epsilon, 0), the statistic (epsilon, delta) with delta 1e-6: the same epsilon
is a little less of a promise there. The statistic's prior takes the positive rate that was published as
known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.arrays import Floats
from tacit.privacy.units import Split, Unit, UnitKind
from tacit_lab.studies import report
from tacit_lab.studies.label_dp import setting
from tacit_lab.studies.label_dp.setting import (
    FIGURES,
    PERCENT,
    RELATION,
    Y_LABEL,
    LabelDpArm,
    LabelDpMeasurements,
)
from tacit_lab.studies.label_dp.setting import loss_line as flipped_line
from tacit_lab.studies.logs import ReadyLog, StudyLog
from tacit_lab.studies.plotting import Panel
from tacit_lab.studies.report import mean_line
from tacit_lab.studies.runs import Record, mean, measure_predictions, run_tasks, words
from tacit_lab.studies.semi_sensitive.recipe import BASE_RATES, SEARCH_LOG
from tacit_lab.studies.study import Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import below

if TYPE_CHECKING:
    from tacit.privacy.calibration import CalibrationMemory

NAME = "label-dp-methods"
EPSILONS = {StudyScale.TOY: (1, 4), StudyScale.SMALL: (0.5, 1, 4, 8), StudyScale.FULL: (0.5, 1, 2, 4, 8)}
DELTA = "1e-6"
PUBLISHED_RATE = 0.0674
HEADER = (
    "epsilon", "RR, best K", "RR, %", "RR, predicted / observed", "statistic, %",
    "statistic, predicted / observed", "better",
)  # fmt: skip


@dataclass(frozen=True)
class StatisticTask:
    """One release of a noisy statistic of a user's labels, and the model that is fitted to it."""

    log: StudyLog
    epsilon: float
    seed: int
    rate: float = PUBLISHED_RATE

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        from tacit.entropy import Simulation
        from tacit.train.examples import Examples
        from tacit.train.methods import StatisticMethod
        from tacit.train.statistic.method import NoisyStatistic
        from tacit.train.statistic.release import StatisticPrior

        train, test = Examples.of(ready.columns, "train"), Examples.of(ready.columns, "test")
        statistic = NoisyStatistic(rank=4, prior=StatisticPrior(rate=self.rate))
        method = StatisticMethod(self.epsilon, DELTA, Unit(UnitKind.USER), statistic)
        began = time.perf_counter()
        planned = method.plan(train, memory=memory).statistic
        assert planned is not None
        source, start = Simulation(f"run {self.seed}"), Simulation(f"start {self.seed}")
        model = planned.train(train.labels, train.public_ids, source, start, simulated=True)
        trained = time.perf_counter()
        predicted = model.predict_proba(test.public_ids)
        return {**measure_predictions(ready, test, predicted), "training_seconds": round(trained - began, 3)}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    epsilons, caps = EPSILONS[asked.scale], setting.CAPS[asked.scale][:3]
    arms = {
        epsilon: [LabelDpArm(UnitKind.USER, epsilon, cap, Split.BY_COUNT) for cap in caps]
        for epsilon in epsilons
    }
    measured = LabelDpMeasurements.of(asked, [arm for each in arms.values() for arm in each])
    best = [measured.best(arms[epsilon]) for epsilon in epsilons]
    rate = BASE_RATES[SEARCH_LOG] if setting.on_search(asked) else PUBLISHED_RATE
    tasks = [
        StatisticTask(setting.study_log(asked, seed), epsilon, seed, rate)
        for epsilon in epsilons
        for seed in measured.seeds
    ]
    found = run_tasks(
        tasks, asked.cache, processes=asked.processes, progress=asked.progress, label="noisy statistic"
    )
    records = {epsilon: found[at * asked.seeds : (at + 1) * asked.seeds] for at, epsilon in enumerate(epsilons)}
    plain = [record["auc_loss"] for record in measured.by_arm[LabelDpArm()]]
    losses = {
        epsilon: 100 * (np.array([record["auc_loss"] for record in records[epsilon]]) / plain - 1)
        for epsilon in epsilons
    }
    pairs = zip(epsilons, best, strict=True)
    panel = Panel(
        "",
        [
            flipped_line("RR, best K", measured, best),
            mean_line("one noisy statistic", epsilons, list(losses.values())),
        ],
    )
    return report.write_outcome(
        NAME,
        asked,
        unit="user",
        relation=f"{RELATION}; delta 0 for RR, {DELTA} for the statistic",
        began=began,
        data=setting.data_words(asked),
        parameters={"delta": DELTA, "rate": rate, "caps": list(caps)},
        table=[
            *({**row, "method": "randomized response"} for row in measured.rows()),
            *_statistic_rows(measured.seeds, records, losses),
        ],
        columns=HEADER,
        rows=[_row(measured, arm, losses[epsilon], records[epsilon]) for epsilon, arm in pairs],
        panels=[panel],
        axes=report.Axes("epsilon", Y_LABEL, epsilons),
        used=setting.log_files(asked),
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


def _row(
    measured: LabelDpMeasurements, arm: LabelDpArm, losses: Floats, records: Sequence[Record]
) -> tuple[str, ...]:
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
    (), {StudyScale.TOY: 0.2, StudyScale.SMALL: 1.7, StudyScale.FULL: 120},
    {StudyScale.TOY: 2, StudyScale.SMALL: 3, StudyScale.FULL: 3}, run,
    inputs=setting.inputs(15, 30),
)  # fmt: skip
