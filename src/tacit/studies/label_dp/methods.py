"""Where each method wins: randomized response with its best cap beside one noisy statistic, user unit.

Randomized response promises (epsilon, 0), the statistic (epsilon, delta) with delta 1e-6: the same epsilon is a
little less of a promise there. The statistic's prior takes the positive rate that was published as known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.units import Split, Unit, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.label_dp.arms import Arm, Measurements
from tacit.studies.label_dp.report import Y_LABEL, line
from tacit.studies.logs import Ready, StudyLog
from tacit.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit.studies.records import Record
from tacit.studies.results import Settings, write
from tacit.studies.runs import Floats, mean, words
from tacit.studies.study import Asked, Outcome, Scale, Study
from tacit.studies.tasks import run_all
from tacit.studies.training import figures
from tacit.studies.verdicts import below

if TYPE_CHECKING:
    from tacit.privacy.calibration import Memory

NAME = "label-dp-methods"
EPSILONS = {Scale.TOY: (1, 4), Scale.SMALL: (0.5, 1, 2, 4, 8), Scale.FULL: (0.5, 1, 2, 4, 8)}
DELTA = "1e-6"
PUBLISHED_RATE = 0.0674
FIGURES = ("auc_loss", "log_loss", "calibration_ratio")


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
        method = NoisyStatistic(prior=Prior(rate=PUBLISHED_RATE))
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
    settings = Settings(
        name=NAME,
        data=setting.data_words(asked),
        synthetic=setting.synthetic(asked),
        seeds=measured.seeds,
        unit="user",
        relation="replace label",
        command=asked.command(NAME),
        parameters={"delta": DELTA, "rate": PUBLISHED_RATE, "caps": list(caps)},
    )
    pairs = zip(epsilons, best, strict=True)
    rows = [_row(measured, arm, losses[epsilon], records[epsilon]) for epsilon, arm in pairs]
    header = (
        "epsilon", "RR, best K", "RR, %", "RR, predicted / observed", "statistic, %",
        "statistic, predicted / observed", "better",
    )  # fmt: skip
    panel = Panel("", [line("RR, best K", measured, best), _line(losses)])

    def draw(path: Path) -> object:
        subtitle = f"{settings.words}; delta 0 for RR, {DELTA} for the statistic"
        return line_figure(
            [panel], subtitle=subtitle, x_label="epsilon", y_label=Y_LABEL, path=path, log_x_ticks=epsilons
        )

    write(
        asked.out,
        settings,
        _table(measured, best, records, losses),
        minutes=(time.monotonic() - began) / 60,
        draw=draw,
    )
    files = [asked.out / f"{NAME}.{ending}" for ending in ("csv", "svg", "png", "json")]
    return Outcome(header, rows, (), files, settings.words)


def _table(
    measured: Measurements,
    best: Sequence[Arm],
    records: Mapping[float, Sequence[Record]],
    losses: Mapping[float, Floats],
) -> dict[str, list[Any]]:
    """A row for each epsilon and method."""
    rows: list[tuple[Any, ...]] = []
    for arm, (epsilon, loss) in zip(best, losses.items(), strict=True):
        flipped = ("randomized response", arm.cap, measured.percent(arm), measured.by_arm[arm])
        for name, cap, percent, some in (flipped, ("noisy statistic", None, loss, records[epsilon])):
            figures = [float(np.mean([record[figure] for record in some])) for figure in FIGURES]
            found = mean(percent)
            rows.append((epsilon, name, cap, found.value, found.low, found.high, *figures))
    columns = ("epsilon", "method", "cap", "relative_auc_loss_percent", "low", "high", *FIGURES)
    return {column: [row[at] for row in rows] for at, column in enumerate(columns)}


def _line(losses: dict[float, Floats]) -> Series:
    found = [mean(each) for each in losses.values()]
    return Series(
        "one noisy statistic",
        list(losses),
        [each.value for each in found],
        [each.low for each in found],
        [each.high for each in found],
        Mechanism.OURS,
    )


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
    (), {Scale.TOY: 0.2, Scale.SMALL: 8, Scale.FULL: 120},
    {Scale.TOY: 2, Scale.SMALL: 5, Scale.FULL: 3}, run,
)  # fmt: skip
