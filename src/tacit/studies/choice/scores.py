"""Figure 10: made-up scores, uniform or Bernoulli(.9), of 15 and of 100 candidates without public scores."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.generators.generated import generator
from tacit.privacy.choice.choice import Choice
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.prior import checked_draws
from tacit.privacy.choice.ranked import TopChoice
from tacit.privacy.choice.scores import Scaled
from tacit.privacy.choice.top_plan import best_exchangeable_plan, ordered_means
from tacit.studies.choice.contestants import EPSILONS
from tacit.studies.choice.lifts import Record, above_zero, around, mean_of
from tacit.studies.choice.lines import series
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS
from tacit.studies.plotting import Mechanism, Panel
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every
from tacit.train.evaluation.estimates import LEVEL, Measured

R13 = Claim("R13", "figure 10", "RR degrades as choices grow, SNM does not")
R14 = Claim("R14", "figure 10", "on extreme scores SNM beats RR at small epsilon")

NAME = "choice-scores"
SETS = {Scale.TOY: 50, Scale.SMALL: 2_000, Scale.FULL: 50_000}
SIZES = (15, 100)
LAWS = ("uniform", "Bernoulli(.9)")
LOW, MIDDLE = 1, 3
SNM, RR, OURS = "SNM scaled", "RR", "top-m RR"
SCORE, FALL, MORE, LEAD = "score", "fall with more candidates", "fall beyond that of SNM", "lead over RR"
LOOKS = {RR: Mechanism.RR, SNM: Mechanism.SNM, OURS: Mechanism.OURS}
_STREAM = 31
Floats = NDArray[np.float64]
Key = tuple[str, int, str, float]  # law, candidates, mechanism, epsilon


def run(asked: Asked) -> Outcome:
    asked.refuse_data("its scores are made up by the figure itself")
    began = time.monotonic()
    found: dict[Key, Floats] = {}
    for law in LAWS:
        for size in SIZES:
            asked.track(
                f"{NAME}: {law}, {size}", len(found), len(LAWS) * len(SIZES) * len(LOOKS) * len(EPSILONS)
            )
            plan_on, sets = drawn(law, size, asked, "plan"), drawn(law, size, asked, "measure")
            found |= {(law, size, name, e): v for (name, e), v in measured(sets, plan_on).items()}
    panels = [
        Panel(
            f"{law}, {size} candidates",
            [
                series(name, EPSILONS, [mean_of(found[law, size, name, e]) for e in EPSILONS], look)
                for name, look in LOOKS.items()
            ],
        )
        for law in LAWS
        for size in SIZES
    ]
    rows = [
        (law, str(size), f"{e:g}", *(words(mean_of(found[law, size, name, e]), 4) for name in LOOKS))
        for law in LAWS
        for size in SIZES
        for e in (LOW, MIDDLE, 5)
    ]
    return outcome(
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


def drawn(law: str, size: int, asked: Asked, use: str) -> Floats:
    """Sets of scores (sets, candidates); those that are planned on are others than those measured."""
    parts = []
    for seed in range(1, asked.seeds + 1):
        draws = generator(seed, _STREAM, 4 * LAWS.index(law) + 2 * SIZES.index(size) + (use == "plan"))
        uniform = draws.random((SETS[asked.scale], size))
        parts.append(uniform if law == LAWS[0] else (uniform < 0.9).astype(np.float64))
    return checked_draws(np.concatenate(parts))


def measured(sets: Floats, plan_on: Floats) -> dict[tuple[str, float], Floats]:
    """The expected score of every set, by mechanism and epsilon."""
    size = sets.shape[1]
    means = ordered_means(plan_on)
    found = {}
    for epsilon in EPSILONS:
        laws: dict[str, Choice] = {
            RR: TopChoice.for_epsilon(epsilon, size, size, 1),
            SNM: NoisyMax.nominal(Noise.EXPONENTIAL, Scaled(size), epsilon),
            OURS: best_exchangeable_plan(means, epsilon).mechanism(epsilon),
        }
        for name, law in laws.items():
            found[name, epsilon] = (law.pmf(sets) * sets).sum(axis=1)
    return found


def _scores(found: dict[Key, Floats]) -> list[Record]:
    return [
        _row(SCORE, mean_of(values), law=law, candidates=size, mechanism=name, epsilon=epsilon)
        for (law, size, name, epsilon), values in found.items()
    ]


def _contrasts(found: dict[Key, Floats]) -> list[Record]:
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
            lead = mean_of(found[law, size, SNM, LOW] - found[law, size, RR, LOW])
            rows.append(_row(LEAD, lead, law=law, candidates=size, mechanism=SNM, epsilon=LOW))
    return rows


def _row(kind: str, found: Measured, **labels: Any) -> Record:
    return {"kind": kind, **labels, "value": found.value, "low": found.low, "high": found.high}


def judge(kept: Kept) -> list[Finding]:
    few, many = SIZES
    _, extreme = LAWS
    rows: Sequence[Mapping[str, Any]] = kept.rows
    found = {
        (row["kind"], row["law"], row["mechanism"], row["candidates"]): Measured(
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


def _apart(a: Floats, b: Floats) -> Measured:
    """The difference of two means of independent sets."""
    errors = (float(each.std(ddof=1)) / math.sqrt(len(each)) for each in (a, b))
    return around(float(a.mean() - b.mean()), math.hypot(*errors))


STUDY = Study(
    NAME,
    "Made-up scores over epsilon",
    PAPER,
    "figure 10",
    (R13, R14),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 5.0},
    SEEDS,
    run,
    judge,
)
