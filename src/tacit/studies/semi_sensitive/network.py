"""Figures 1 and 2 for the two-tower network, on the display log."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.studies.runs import Runs
from tacit.studies.semi_sensitive.frontier import DP_SGD, HYBRID, RR, Frontier, Published, World
from tacit.studies.semi_sensitive.frontier_verdicts import Judge
from tacit.studies.semi_sensitive.recipe import NETWORK, PAPER, SEEDS, display_log, network, size_words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "semi-sensitive-network"
WORLD = "display ads"
EPSILONS = {Scale.TOY: (12,), Scale.SMALL: (4, 8, 12), Scale.FULL: (4, 8, 12)}
PUBLISHED = (Published(DP_SGD, 12, 6.3), Published(HYBRID, 12, 3.2))


def run(asked: Asked) -> Outcome:
    epsilons = EPSILONS[asked.scale]
    frontier = Frontier(
        NAME,
        f"display log, {size_words(asked)}",
        network(asked.scale),
        NETWORK,
        [World(WORLD, lambda seed: display_log(asked, seed), epsilons, (RR, DP_SGD, HYBRID))],
        PUBLISHED,
    )
    return frontier.run(asked, lambda runs, _: judged(runs, epsilons))


def judged(runs: Runs, epsilons: Sequence[int]) -> list[Finding]:
    judge = Judge(runs, WORLD, epsilons, "MLP, display")
    return [
        judge.hybrid_wins("S2"),
        judge.cheaper_privacy(),
        judge.gap_halved("S5", "6.3% and 3.2% published"),
    ]


STUDY = Study(
    NAME,
    "AUC loss and log loss over epsilon, display log, two-tower network",
    PAPER,
    "figure 1",
    ("S2", "S3", "S5"),
    {Scale.TOY: 0.2, Scale.SMALL: 12.0, Scale.FULL: 4000.0},
    SEEDS,
    run,
)
