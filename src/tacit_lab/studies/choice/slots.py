"""Several slots: whole slates by overlap or by sum, against filling slots one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.data.generators.worlds import seeded_generator
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Scaled
from tacit.privacy.choice.slate_response import OverlapSlates, TopSlates, best_overlap, best_top_slates
from tacit.privacy.choice.slates import PeeledSlates, PrivateSlate
from tacit.privacy.choice.top_choice import ordered_means
from tacit.train.evaluation.intervals import LEVEL, MeasuredValue
from tacit_lab.studies.choice.lifts import (
    LiftRow,
    above_zero,
    interval_series,
    sample_mean,
    write_outcome,
)
from tacit_lab.studies.choice.markets import OURS, SEEDS
from tacit_lab.studies.plotting import Mechanism, Panel
from tacit_lab.studies.report import Axes, seeds_of
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

T6 = Claim(
    "T6",
    "RR and SNM, slot by slot",
    "with several slots choosing the slate as a whole beats filling them in turn",
)

NAME = "choice-slots"
EPSILONS = (0.5, 1, 2, 3, 4, 5, 6, 8)
CANDIDATES, SLOTS = 15, 3
DRAWS = {StudyScale.TOY: 100, StudyScale.SMALL: 2_000, StudyScale.FULL: 20_000}
PEELING, NOISY, OVERLAP, TOP = "peeling RR", "peeling SNM", "overlap RR", "top slates"
LOOKS = {PEELING: Mechanism.RR, NOISY: Mechanism.SNM, OVERLAP: Mechanism.OURS, TOP: Mechanism.OURS}
WHOLE = {OVERLAP: "overlap RR", TOP: "top slates (the slates of the largest sums)"}
IN_TURN = {
    PEELING: "peeling RR (the paper's RR, slot by slot)",
    NOISY: "peeling SNM (the paper's scaled SNM, exponential noise, slot by slot)",
}
HELD = {  # who is held against whom, and what the rule calls that
    (whole, turn): f"{whole_words} has more of the gain than {turn_words}"
    for whole, whole_words in WHOLE.items()
    for turn, turn_words in IN_TURN.items()
}
BESIDE = [(TOP, OVERLAP)]  # both choose the whole slate: no claim is about them
SAID = 5
_STREAM = 33


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("its scores are made up")
    began = time.monotonic()
    planning, measuring = draw_scores(asked)
    sums: dict[tuple[str, float], Floats] = {}
    for at, epsilon in enumerate(EPSILONS):
        asked.progress(f"{NAME}: epsilon {epsilon:g}", at, len(EPSILONS))
        sums[NOISY, epsilon] = peeled_noisy_sums(measuring, epsilon)
        for name, slate in _slates(planning, epsilon).items():
            sums[name, epsilon] = (slate.inclusion(measuring) * measuring).sum(axis=1)
    table = _table(sums, measuring)
    shares = _by(table)
    lines = [
        interval_series(name, EPSILONS, [shares[name, "", e] for e in EPSILONS], look)
        for name, look in LOOKS.items()
    ]
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=f"{len(measuring):,} draws of {CANDIDATES} uniform scores, {SLOTS} slots",
        parameters={"epsilons": list(EPSILONS), "candidates": CANDIDATES, "slots": SLOTS},
        table=table,
        columns=("epsilon", *LOOKS),
        rows=[(f"{e:g}", *(words(shares[name, "", e], 3) for name in LOOKS)) for e in EPSILONS],
        panels=[Panel("", lines)],
        axes=Axes("epsilon", "share of the greedy gain", EPSILONS),
    )


def draw_scores(asked: StudyRequest) -> tuple[Floats, Floats]:
    """Scores to plan on and others to measure on, (draws, candidates), as many of each seed."""
    sources = [seeded_generator(seed, _STREAM, 0) for seed in seeds_of(asked)]
    halves = [[draws.random((DRAWS[asked.scale], CANDIDATES)) for _ in range(2)] for draws in sources]
    planning, measuring = (np.concatenate(each) for each in zip(*halves, strict=True))
    return planning, measuring


def _slates(planning: Floats, epsilon: float) -> dict[str, PrivateSlate]:
    top, needed, _ = best_overlap(ordered_means(planning), SLOTS, epsilon)
    favoured = best_top_slates(planning, SLOTS, epsilon).top
    return {
        PEELING: PeeledSlates.for_epsilon(epsilon, CANDIDATES, SLOTS),
        OVERLAP: OverlapSlates.for_epsilon(epsilon, CANDIDATES, SLOTS, top=top, needed=needed),
        TOP: TopSlates.for_epsilon(epsilon, CANDIDATES, SLOTS, favoured=favoured),
    }


def peeled_noisy_sums(scores: Floats, epsilon: float) -> Floats:
    """The expected sum of a slate whose slots are filled in turn by noisy max on those left, exactly.

    Each slot has its share of epsilon and scales the scores of those left anew.
    """
    everyone = range(CANDIDATES)
    chances: dict[frozenset[int], Floats] = {frozenset(): np.ones(len(scores))}  # of who is taken
    total = np.zeros(len(scores))
    for slot in range(SLOTS):
        law = NoisyMax.nominal(Noise.EXPONENTIAL, Scaled(CANDIDATES - slot), epsilon / SLOTS)
        grown: dict[frozenset[int], Floats] = {}
        for taken, chance in chances.items():
            left = [candidate for candidate in everyone if candidate not in taken]
            shown = law.pmf(scores[:, left]) * chance[:, None]
            total += (shown * scores[:, left]).sum(axis=1)
            for place, candidate in enumerate(left):
                now = taken | {candidate}
                grown[now] = grown.get(now, 0.0) + shown[:, place]
        chances = grown
    return total


def _table(sums: dict[tuple[str, float], Floats], measuring: Floats) -> list[LiftRow]:
    """Shares of the gain from any public slate, all alike here, to the best one, whose ends are taken as known;
    and by how much of it one mechanism is above another, draw by draw."""
    base = SLOTS * float(measuring.mean())
    gain = float(np.sort(measuring, axis=1)[:, -SLOTS:].sum(axis=1).mean()) - base
    rows = []
    for epsilon in EPSILONS:
        own = [(name, "", SLOTS * measuring.mean(axis=1)) for name in LOOKS]  # paired with each draw's own mean
        pairs = [(name, over, sums[over, epsilon]) for name, over in (*HELD, *BESIDE)]
        for name, over, less in (*own, *pairs):
            found = sample_mean((sums[name, epsilon] - less) / gain)
            share = {"share_of_gain": found.value, "low": found.low, "high": found.high}
            rows.append({"mechanism": name, "over": over, "epsilon": epsilon, **share})
    return rows


def _by(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, float], MeasuredValue]:
    """By mechanism, by what it is held against (nothing for its own share) and by epsilon."""
    return {
        (row["mechanism"], row["over"] or "", row["epsilon"]): MeasuredValue(
            row["share_of_gain"], row["low"], row["high"], LEVEL
        )
        for row in rows
    }


def judge(kept: ResultFiles) -> list[Finding]:
    shares = _by(kept.rows)
    return [
        Finding(
            T6,
            f"{what}, at every epsilon, 95% over draws",
            f"at {SAID}: {name} {words(shares[name, '', SAID], 3)}, {over} {words(shares[over, '', SAID], 3)}",
            every(above_zero(shares[name, over, epsilon]) for epsilon in EPSILONS),
            where=f"{name} over {over}",
        )
        for (name, over), what in HELD.items()
    ]


STUDY = Study(
    NAME,
    "Several slots: share of the greedy gain over epsilon",
    OURS,
    "beyond section 2.1",
    (T6,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 3.0},
    SEEDS,
    run,
    judge,
)
