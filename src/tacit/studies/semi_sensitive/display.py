"""Figure 1, factorization machine: the display log, where rare values carry signal and where they do not."""

from __future__ import annotations

from tacit.studies.results import Kept
from tacit.studies.runs import Runs
from tacit.studies.semi_sensitive.frontier import DP_SGD, HYBRID, RR, Frontier, Published, World
from tacit.studies.semi_sensitive.frontier_verdicts import S1, S3, S4, S6, S7, S8, Judge
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    EPSILONS,
    NO_RARE_SIGNAL,
    PAPER,
    SEEDS,
    data_words,
    display_log,
    machine,
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
        data_words(asked, DISPLAY_LOG),
        machine(asked.scale),
        DISPLAY,
        worlds,
        PUBLISHED,
    )
    return frontier.run(asked)


def judge(kept: Kept) -> list[Finding]:
    runs = Runs(kept.rows)
    rare = Judge(runs, RARE, "display")
    findings = [
        rare.hybrid_wins(S1),
        rare.cheaper_privacy(),
        rare.gap_halved(S4),
        rare.no_gain_at_one(),
        rare.plateau(),
        rare.freezing_costs(),
    ]
    if COMMON in kept.table["world"]:
        findings.append(Judge(runs, COMMON, f"display, {COMMON}").hybrid_wins(S1))
    return findings


STUDY = Study(
    NAME,
    "AUC loss and log loss over epsilon, display log, factorization machine",
    PAPER,
    "figure 1",
    (S1, S3, S4, S6, S7, S8),
    {Scale.TOY: 0.2, Scale.SMALL: 2.4, Scale.FULL: 240.0},
    {**SEEDS, Scale.SMALL: 5},  # Student's interval of three is 2.5 deviations wide, of five half of that
    run,
    judge,
)
