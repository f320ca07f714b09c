"""Figures 1 and 2 for the two-tower network, on the display log."""

from __future__ import annotations

from tacit.studies.results import Kept
from tacit.studies.runs import Runs
from tacit.studies.semi_sensitive.frontier import DP_SGD, HYBRID, RR, Frontier, Published, World
from tacit.studies.semi_sensitive.frontier_verdicts import S2, S3, S5, Judge
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY_LOG,
    NETWORK,
    PAPER,
    SEEDS,
    data_words,
    display_log,
    network,
)
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "semi-sensitive-network"
WORLD = "display ads"
EPSILONS = {Scale.TOY: (12,), Scale.SMALL: (4, 8, 12), Scale.FULL: (4, 8, 12)}
PUBLISHED = (Published(DP_SGD, 12, 6.3), Published(HYBRID, 12, 3.2))


def run(asked: Asked) -> Outcome:
    epsilons = EPSILONS[asked.scale]
    frontier = Frontier(
        NAME,
        data_words(asked, DISPLAY_LOG),
        network(asked.scale),
        NETWORK,
        [World(WORLD, lambda seed: display_log(asked, seed), epsilons, (RR, DP_SGD, HYBRID))],
        PUBLISHED,
    )
    return frontier.run(asked)


def judge(kept: Kept) -> list[Finding]:
    display = Judge(Runs(kept.rows), WORLD, "MLP: display log only")
    return [display.hybrid_wins(S2), display.cheaper_privacy(), display.gap_halved(S5)]


STUDY = Study(
    NAME,
    "AUC loss and log loss over epsilon, display log, two-tower network",
    PAPER,
    "figure 1",
    (S2, S3, S5),
    {Scale.TOY: 0.2, Scale.SMALL: 2.3, Scale.FULL: 4000.0},
    SEEDS,
    run,
    judge,
)
