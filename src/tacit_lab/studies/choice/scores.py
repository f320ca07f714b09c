"""Figure 10: made-up scores, uniform or Bernoulli(.9), of 15 and of 100 candidates without public scores."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.data.generators.worlds import seeded_generator
from tacit.privacy.choice.choice import ChoiceLaw, check_draws
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Scaled
from tacit.privacy.choice.top_choice import TopChoice, best_exchangeable_plan, ordered_means
from tacit.train.evaluation.intervals import LEVEL, MeasuredValue
from tacit_lab.studies.choice.contestants import EPSILONS
from tacit_lab.studies.choice.lifts import (
    LiftRow,
    above_zero,
    interval_around,
    interval_series,
    sample_mean,
    write_outcome,
)
from tacit_lab.studies.choice.markets import PAPER, SEEDS
from tacit_lab.studies.plotting import Mechanism, Panel
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

R13 = Claim("R13", "figure 10", "RR degrades as choices grow, SNM does not")
R14 = Claim("R14", "figure 10", "on extreme scores SNM beats RR at small epsilon")

NAME = "choice-scores"
SETS = {StudyScale.TOY: 50, StudyScale.SMALL: 2_000, StudyScale.FULL: 50_000}
SIZES = (15, 100)
LAWS = ("uniform", "Bernoulli(.9)")
LOW, MIDDLE = 1, 3
SNM, RR, OURS = "SNM scaled", "RR", "top-m RR"
SCORE, FALL, MORE, LEAD = "score", "fall with more candidates", "fall beyond that of SNM", "lead over RR"
LOOKS = {RR: Mechanism.RR, SNM: Mechanism.SNM, OURS: Mechanism.OURS}
_STREAM = 31
Key = tuple[str, int, str, float]  # law, candidates, mechanism, epsilon


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("its scores are made up by the figure itself")
    began = time.monotonic()
    found: dict[Key, Floats] = {}
    for law in LAWS:
        for size in SIZES:
            asked.progress(
                f"{NAME}: {law}, {size}", len(found), len(LAWS) * len(SIZES) * len(LOOKS) * len(EPSILONS)
            )
            plan_on, sets = (
                draw_score_sets(law, size, asked, "plan"),
                draw_score_sets(law, size, asked, "measure"),
            )
            found |= {(law, size, name, e): v for (name, e), v in expected_scores(sets, plan_on).items()}
    panels = [
        Panel(
            f"{law}, {size} candidates",
            [
                interval_series(
                    name, EPSILONS, [sample_mean(found[law, size, name, e]) for e in EPSILONS], look
                )
                for name, look in LOOKS.items()
            ],
        )
        for law in LAWS
        for size in SIZES
    ]
    rows = [
        (law, str(size), f"{e:g}", *(words(sample_mean(found[law, size, name, e]), 4) for name in LOOKS))
        for law in LAWS
        for size in SIZES
        for e in (LOW, MIDDLE, 5)
    ]
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=f"{SETS[asked.scale] * asked.seeds:,} sets of scores each",
        parameters={"epsilons": list(EPSILONS), "sets": SETS[asked.scale]},
        table=[*_scores(found), *_contrasts(found)],
        columns=("scores", "candidates", "epsilon", *LOOKS),
        rows=rows,
        panels=panels,
        axes=Axes("epsilon", "expected score of the choice", EPSILONS),
    )


def draw_score_sets(law: str, size: int, asked: StudyRequest, use: str) -> Floats:
    """Sets of scores (sets, candidates); those that are planned on are others than those measured."""
    parts = []
    for seed in range(1, asked.seeds + 1):
        draws = seeded_generator(seed, _STREAM, 4 * LAWS.index(law) + 2 * SIZES.index(size) + (use == "plan"))
        uniform = draws.random((SETS[asked.scale], size))
        parts.append(uniform if law == LAWS[0] else (uniform < 0.9).astype(np.float64))
    return check_draws(np.concatenate(parts))


def expected_scores(sets: Floats, plan_on: Floats) -> dict[tuple[str, float], Floats]:
    """The expected score of every set, by mechanism and epsilon."""
    size = sets.shape[1]
    means = ordered_means(plan_on)
    found = {}
    for epsilon in EPSILONS:
        laws: dict[str, ChoiceLaw] = {
            RR: TopChoice.for_epsilon(epsilon, size, size, 1),
            SNM: NoisyMax.nominal(Noise.EXPONENTIAL, Scaled(size), epsilon),
            OURS: best_exchangeable_plan(means, epsilon).mechanism(epsilon),
        }
        for name, law in laws.items():
            found[name, epsilon] = (law.pmf(sets) * sets).sum(axis=1)
    return found


def _scores(found: dict[Key, Floats]) -> list[LiftRow]:
    return [
        _row(SCORE, sample_mean(values), law=law, candidates=size, mechanism=name, epsilon=epsilon)
        for (law, size, name, epsilon), values in found.items()
    ]


def _contrasts(found: dict[Key, Floats]) -> list[LiftRow]:
    """What verdicts rest on: scores of a set are paired, sets of different sizes are independent."""
    few, many = SIZES
    rows = []
    for law in LAWS:
        for name in (RR, SNM):
            fall = _apart(found[law, few, name, MIDDLE], found[law, many, name, MIDDLE])
            rows.append(_row(FALL, fall, law=law, mechanism=name, epsilon=MIDDLE))
        behind = [found[law, size, RR, MIDDLE] - found[law, size, SNM, MIDDLE] for size in SIZES]
        rows.append(_row(MORE, _apart(*behind), law=law, mechanism=RR, epsilon=MIDDLE))
        for size in SIZES:
            lead = sample_mean(found[law, size, SNM, LOW] - found[law, size, RR, LOW])
            rows.append(_row(LEAD, lead, law=law, candidates=size, mechanism=SNM, epsilon=LOW))
    return rows


def _row(kind: str, found: MeasuredValue, **labels: Any) -> LiftRow:
    return {"kind": kind, **labels, "value": found.value, "low": found.low, "high": found.high}


def judge(kept: ResultFiles) -> list[Finding]:
    few, many = SIZES
    _, extreme = LAWS
    rows: Sequence[Mapping[str, Any]] = kept.rows
    found = {
        (row["kind"], row["law"], row["mechanism"], row["candidates"]): MeasuredValue(
            row["value"], row["low"], row["high"], LEVEL
        )
        for row in rows
        if row["kind"] != SCORE
    }
    falls = {(law, name): found[FALL, law, name, None] for law in LAWS for name in (RR, SNM)}
    wins = {size: found[LEAD, extreme, SNM, size] for size in SIZES}
    return [
        *(
            Finding(
                R13,
                f"at epsilon {MIDDLE} RR's score falls from {few} to {many} candidates, and by more than "
                "SNM's, 95% over sets, and SNM's does not: the interval of its fall reaches 0 or is below",
                f"RR falls by {words(falls[law, RR], 3)}, SNM by {words(falls[law, SNM], 3)}",
                every(
                    [
                        above_zero(falls[law, RR]),
                        above_zero(found[MORE, law, RR, None]),
                        falls[law, SNM].low <= 0,
                    ]
                ),
                where=f"{law} scores",
            )
            for law in LAWS
        ),
        Finding(
            R14,
            f"Bernoulli(.9), epsilon {LOW}, {few} and {many} candidates: SNM's score above RR's, 95% over sets",
            ", ".join(f"{size} candidates: {words(gap, 4)} above" for size, gap in wins.items()),
            every(above_zero(gap) for gap in wins.values()),
        ),
    ]


def _apart(a: Floats, b: Floats) -> MeasuredValue:
    """The difference of two means of independent sets."""
    errors = (float(each.std(ddof=1)) / math.sqrt(len(each)) for each in (a, b))
    return interval_around(float(a.mean() - b.mean()), math.hypot(*errors))


STUDY = Study(
    NAME,
    "Made-up scores over epsilon",
    PAPER,
    "figure 10",
    (R13, R14),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 5.0},
    SEEDS,
    run,
    judge,
)
