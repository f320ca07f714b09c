"""Several slots: whole slates by overlap or by sum, against filling slots one after the other."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from tacit.data.generators.generated import generator
from tacit.privacy.choice.slates.overlap import OverlapSlates, best_overlap
from tacit.privacy.choice.slates.peeling import PeeledSlates
from tacit.privacy.choice.slates.slate import Slate
from tacit.privacy.choice.slates.top_slates import TopSlates, best_top_slates
from tacit.privacy.choice.top_plan import ordered_means
from tacit.studies.choice.lifts import above_zero, mean_of, series
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import OURS, SEEDS
from tacit.studies.plotting import Mechanism, Panel
from tacit.studies.runs import words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every
from tacit.train.evaluation.estimates import Measured

NAME = "choice-slots"
EPSILONS = (0.5, 1, 2, 3, 4, 5, 6, 8)
CANDIDATES, SLOTS = 15, 3
DRAWS = {Scale.TOY: 100, Scale.SMALL: 2_000, Scale.FULL: 20_000}
PEELING, OVERLAP, TOP = "peeling RR", "overlap RR", "top slates"
LOOKS = {PEELING: Mechanism.RR, OVERLAP: Mechanism.OURS, TOP: Mechanism.OURS}
_STREAM = 33
Floats = NDArray[np.float64]


def run(asked: Asked) -> Outcome:
    asked.refuse_data("its scores are made up")
    began = time.monotonic()
    draws = generator(1, _STREAM, 0)
    planning, measuring = (draws.random((DRAWS[asked.scale] * asked.seeds, CANDIDATES)) for _ in range(2))
    sums: dict[tuple[str, float], Floats] = {}
    for at, epsilon in enumerate(EPSILONS):
        asked.track(f"{NAME}: epsilon {epsilon:g}", at, len(EPSILONS))
        for name, slate in _slates(planning, epsilon).items():
            sums[name, epsilon] = (slate.inclusion(measuring) * measuring).sum(axis=1)
    shares = {key: _share(found, measuring) for key, found in sums.items()}
    lines = [series(name, EPSILONS, [shares[name, e] for e in EPSILONS], look) for name, look in LOOKS.items()]
    return outcome(
        NAME,
        asked,
        began=began,
        data=f"{len(measuring):,} draws of {CANDIDATES} uniform scores, {SLOTS} slots",
        parameters={"epsilons": list(EPSILONS), "candidates": CANDIDATES, "slots": SLOTS},
        table=[
            {"mechanism": name, "epsilon": e, "share_of_gain": s.value, "low": s.low, "high": s.high}
            for (name, e), s in shares.items()
        ],
        columns=("epsilon", *LOOKS),
        rows=[(f"{e:g}", *(words(shares[name, e], 3) for name in LOOKS)) for e in EPSILONS],
        findings=_judged(sums, shares),
        panels=[Panel("", lines)],
        axes=Axes("epsilon", "share of the greedy gain", EPSILONS),
    )


def _slates(planning: Floats, epsilon: float) -> dict[str, Slate]:
    top, needed, _ = best_overlap(ordered_means(planning), SLOTS, epsilon)
    favoured = best_top_slates(planning, SLOTS, epsilon).top
    return {
        PEELING: PeeledSlates.for_epsilon(epsilon, CANDIDATES, SLOTS),
        OVERLAP: OverlapSlates.for_epsilon(epsilon, CANDIDATES, SLOTS, top=top, needed=needed),
        TOP: TopSlates.for_epsilon(epsilon, CANDIDATES, SLOTS, favoured=favoured),
    }


def _share(sums: Floats, measuring: Floats) -> Measured:
    """Of the gain from any public slate, all alike here, to the best one; the ends are taken as known."""
    base = SLOTS * float(measuring.mean())
    best = float(np.sort(measuring, axis=1)[:, -SLOTS:].sum(axis=1).mean())
    gained = (sums - SLOTS * measuring.mean(axis=1)) / (best - base)  # paired with each draw's own mean
    return mean_of(gained)


def _judged(sums: dict[tuple[str, float], Floats], shares: dict[tuple[str, float], Measured]) -> list[Finding]:
    def seen(*names: str) -> str:
        return ", ".join(f"{name} {words(shares[name, 5], 3)}" for name in names)

    def ahead(better: str, worse: str) -> bool | None:
        gaps = [mean_of(sums[better, e] - sums[worse, e]) for e in EPSILONS]
        return every(above_zero(gap) for gap in gaps)

    return [
        Finding(
            "T6",
            f"for {SLOTS} slots choosing the slate as a whole beats filling slots in turn",
            "overlap RR above peeling RR at every epsilon, 95% over draws",
            f"at 5: {seen(PEELING, OVERLAP)}",
            ahead(OVERLAP, PEELING),
        ),
        Finding(
            "T6",
            "favouring the slates of the largest sums, which is optimal here, beats counting overlaps",
            "top slates above overlap RR at every epsilon, 95% over draws",
            f"at 5: {seen(OVERLAP, TOP)}",
            ahead(TOP, OVERLAP),
        ),
    ]


STUDY = Study(
    NAME,
    "Several slots: share of the greedy gain over epsilon",
    OURS,
    "beyond section 2.1",
    ("T6",),
    {Scale.TOY: 0.1, Scale.SMALL: 0.3, Scale.FULL: 3.0},
    SEEDS,
    run,
)
