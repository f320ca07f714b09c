"""Noise for both phases at once: the Hybrid's labels and steps accounted jointly, against adding up
epsilons.

The paper gives k epsilon to the labels and solves the noise of DP-SGD for the other (1 - k) epsilon, by
Renyi divergences (its section 4). No training is needed to compare: only noise, at the same total
guarantee.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.optimize import brentq

from tacit.privacy.accounting import accountant, rdp_epsilon
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import Composed, FlippedLabels, Release, SubsampledGaussian
from tacit.privacy.units import Relation
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import ONE_SEED, Axes, write_outcome
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import Record
from tacit_lab.studies.semi_sensitive.recipe import (
    DELTA,
    DISPLAY_LOG,
    PRIVATE_BATCH,
    PRIVATE_EPOCHS,
    RELATION,
    ROWS,
    UNIT,
)
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

NAME = "semi-sensitive-accounting"
T27 = Claim(
    "T27",
    "epsilon_1 + epsilon_2, added up",
    "labels and steps accounted jointly never need more noise, and less wherever both phases are paid for",
)
EPSILONS = {StudyScale.TOY: (4,), StudyScale.SMALL: (1, 4, 8, 12), StudyScale.FULL: (1, 2, 4, 8, 12)}
SHARES = {
    StudyScale.TOY: (0.5,),
    StudyScale.SMALL: (0.0, 0.25, 0.5, 0.75),
    StudyScale.FULL: (0.0, 0.25, 0.5, 0.75),
}
GRIDS_PER_EPSILON = (
    10_000  # of the second phase; both ways are read on one grid, so that its rounding favours neither
)
STEP = 0.05  # of log noise: the first look beside a guess
SOLVED = 1e-9  # of noise: where labels get 9 of epsilon 12, joint accounting saves only some millionths of it
EQUAL = 100 * SOLVED


@dataclass(frozen=True)
class StepWorkload:
    """So many steps, each with so much of the log."""

    name: str
    sampling_probability: float
    steps: int

    @classmethod
    def of(cls, rows: int, batch: int, epochs: float) -> StepWorkload:
        size = f"{rows // 1_000_000}M" if rows >= 1_000_000 else f"{rows // 1000}k"
        return cls(f"{size} rows", batch / rows, round(epochs * rows / batch))

    def release(self, noise: float) -> Release:
        return SubsampledGaussian(noise, self.sampling_probability, self.steps)


STUDIED = StepWorkload.of(ROWS[DISPLAY_LOG][StudyScale.SMALL] * 4 // 5, PRIVATE_BATCH, PRIVATE_EPOCHS)
# The display log's size, and the batch and epochs of appendix A.
PUBLISHED = StepWorkload.of(32_000_000, 16_384, 64)
WORKLOADS = {
    StudyScale.TOY: (STUDIED,),
    StudyScale.SMALL: (STUDIED, PUBLISHED),
    StudyScale.FULL: (STUDIED, PUBLISHED),
}


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("its bounds need no data")
    began = time.monotonic()
    cells = [
        (work, epsilon, k)
        for work in WORKLOADS[asked.scale]
        for epsilon in EPSILONS[asked.scale]
        for k in SHARES[asked.scale]
    ]
    table: list[Record] = []
    for done, cell in enumerate(cells, start=1):
        table.append(compare_noise(*cell))
        asked.progress(f"{NAME}: solving for noise", done, len(cells))
    return write_outcome(
        NAME,
        asked,
        unit=UNIT,
        relation=RELATION,
        began=began,
        seeds=ONE_SEED,
        data=f"bounds at delta {DELTA}",
        parameters={"delta": DELTA, "grids_per_epsilon": GRIDS_PER_EPSILON},
        table=table,
        columns=(
            "steps",
            "epsilon",
            "k",
            "added up, RDP",
            "added up, PLD",
            "joint",
            "less noise",
            "epsilon left",
        ),
        rows=[
            (
                str(row["workload"]),
                str(row["epsilon"]),
                f"{row['k']:g}",
                *(f"{row[way]:.4f}" for way in ("noise_rdp", "noise_added", "noise_joint")),
                f"{_saved_percent(row):.2g}%",
                f"{max(row['epsilon_left'], 0.0):.2g}",
            )
            for row in table
        ],
        panels=[_panel(table, work.name) for work in WORKLOADS[asked.scale]],
        axes=Axes("epsilon", "noise saved by joint accounting, %", EPSILONS[asked.scale]),
    )


def compare_noise(work: StepWorkload, epsilon: int, k: float) -> Record:
    """The least noise by each way, and what is left of epsilon if joint accounting keeps the added-up noise."""
    labels = [] if k == 0 else [FlippedLabels(RandomizedResponse.for_epsilon(k * epsilon).truth)]
    rest, delta = (1 - k) * epsilon, float(DELTA)
    grid = rest / GRIDS_PER_EPSILON

    def alone(noise: float) -> float:
        return accountant.coarse_epsilon(
            work.release(noise), delta=delta, relation=Relation.REPLACE_ONE, grid=grid
        )

    def jointly(noise: float) -> float:
        both = Composed((work.release(noise), *labels))
        return accountant.coarse_epsilon(both, delta=delta, relation=Relation.REPLACE_ONE, grid=grid)

    def by_divergences(noise: float) -> float:
        return rdp_epsilon(work.release(noise), delta=delta, relation=Relation.REPLACE_ONE)

    added = least_noise(alone, rest)
    return {
        "workload": work.name,
        "epsilon": epsilon,
        "k": k,
        "noise_rdp": least_noise(by_divergences, rest, added),
        "noise_added": added,
        "noise_joint": least_noise(jointly, epsilon, added),
        "epsilon_left": epsilon - jointly(added),
    }


def least_noise(epsilon_of: Callable[[float], float], target: float, near: float = 1.0) -> float:
    """Where a falling epsilon meets its target."""

    def over(log_noise: float) -> float:
        return math.log(epsilon_of(math.exp(log_noise)) / target)

    low = high = math.log(near)
    step = STEP if over(low) > 0 else -STEP
    while (over(high) if step > 0 else -over(low)) > 0:
        low, high = (high, high + step) if step > 0 else (low + step, low)
        step *= 2
    return math.exp(float(brentq(over, low, high, xtol=SOLVED)))


def judge(kept: ResultFiles) -> list[Finding]:
    rows = kept.rows
    return [
        judge_workload(str(name), [row for row in rows if row["workload"] == name])
        for name in dict.fromkeys(kept.table["workload"])
    ]


def judge_workload(work: str, rows: Sequence[Record]) -> Finding:
    both = [row for row in rows if row["k"] > 0]
    verdicts: list[bool | None] = [_saved_percent(row) > 100 * EQUAL for row in both]
    verdicts += [_saved_percent(row) >= -100 * EQUAL for row in rows if row["k"] == 0]
    least, most = min(map(_saved_percent, both)), max(map(_saved_percent, both))
    left = [100 * row["epsilon_left"] / row["epsilon"] for row in both]
    against_rdp = [100 * (1 - row["noise_joint"] / row["noise_rdp"]) for row in both]
    return Finding(
        T27,
        "at the same (epsilon, delta) noise is lower at every epsilon and 0 < k < 1, and not higher at k = 0",
        f"{least:.2g} to {most:.2g}% less noise, {min(left):.2g} to {max(left):.2g}% of epsilon left; against "
        f"RDP added up {min(against_rdp):.1f} to {max(against_rdp):.1f}% less noise (bounds: no interval)",
        every(verdicts),
        work,
        why="a theorem: only a bug could fail it",
    )


def _saved_percent(row: Record) -> float:
    """Percent of the noise that adding up needs."""
    return float(100 * (1 - row["noise_joint"] / row["noise_added"]))


def _panel(table: Sequence[Record], work: str) -> Panel:
    shares = sorted({row["k"] for row in table if row["k"] > 0})
    lines = []
    for k in shares:
        rows = [row for row in table if row["workload"] == work and row["k"] == k]
        x, y = [row["epsilon"] for row in rows], [_saved_percent(row) for row in rows]
        lines.append(Series(f"k = {k:g}", x, y, mechanism=Mechanism.HYBRID))
    return Panel(f"{work}, against adding up", lines)


STUDY = Study(
    NAME,
    "Noise of the second phase, both phases accounted jointly or added up",
    "ours, beside Chua et al. 2024 (arXiv 2401.15246)",
    "beyond section 4",
    (T27,),
    {StudyScale.TOY: 0.05, StudyScale.SMALL: 0.6, StudyScale.FULL: 0.8},
    {StudyScale.TOY: 1, StudyScale.SMALL: 1, StudyScale.FULL: 1},
    run,
    judge,
)
