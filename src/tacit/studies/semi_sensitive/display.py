"""Figure 1, factorization machine: the display log, where rare values carry signal and where they do not."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.studies.runs import Runs
from tacit.studies.semi_sensitive.frontier import DP_SGD, HYBRID, RR, Frontier, Published, World
from tacit.studies.semi_sensitive.frontier_verdicts import Judge
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
    EPSILONS,
    NO_RARE_SIGNAL,
    PAPER,
    SEEDS,
    display_log,
    machine,
    size_words,
)
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "semi-sensitive-display"
RARE, COMMON = "rare values tell much", "rare values tell little"
PUBLISHED = (Published(DP_SGD, 12, 3.0), Published(HYBRID, 12, 1.2))


def run(asked: Asked) -> Outcome:
    worlds = [World(RARE, lambda seed: display_log(asked, seed), EPSILONS[asked.scale])]
    if asked.data is None:  # a published log is as it is
        some = tuple(epsilon for epsilon in (4, 12) if epsilon in EPSILONS[asked.scale])
        worlds.append(
            World(COMMON, lambda seed: display_log(asked, seed, NO_RARE_SIGNAL), some, (RR, DP_SGD, HYBRID))
        )
    frontier = Frontier(
        NAME,
        f"display log, {size_words(asked)}",
        machine(asked.scale),
        DISPLAY,
        worlds,
        PUBLISHED,
    )
    return frontier.run(asked, lambda runs, epsilons: judged(runs, epsilons, synthetic=asked.data is None))


def judged(runs: Runs, epsilons: Sequence[int], *, synthetic: bool) -> list[Finding]:
    judge = Judge(runs, RARE, epsilons, "FM, display")
    findings = [
        judge.hybrid_wins("S1"),
        judge.cheaper_privacy(),
        judge.gap_halved("S4", "3.0% and 1.2% published"),
        judge.no_gain_at_one(),
        judge.plateau(),
        judge.freezing_costs(),
    ]
    if synthetic:
        findings.append(
            Judge(
                runs, COMMON, [each for each in epsilons if each in (4, 12)], f"FM, display, {COMMON}"
            ).hybrid_wins("S1")
        )
    return findings


STUDY = Study(
    NAME,
    "AUC loss and log loss over epsilon, display log, factorization machine",
    PAPER,
    "figure 1",
    ("S1", "S3", "S4", "S6", "S7", "S8"),
    {Scale.TOY: 0.2, Scale.SMALL: 4.0, Scale.FULL: 240.0},
    SEEDS,
    run,
)
