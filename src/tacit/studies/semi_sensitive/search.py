"""Figure 2, factorization machine: the search log, where devices and audiences matter by partner."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.studies.runs import Runs
from tacit.studies.semi_sensitive.frontier import Frontier, World
from tacit.studies.semi_sensitive.frontier_verdicts import Judge
from tacit.studies.semi_sensitive.recipe import (
    EPSILONS,
    PAPER,
    SEARCH,
    SEEDS,
    machine,
    search_log,
    size_words,
)
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "semi-sensitive-search"
WORLD = "sponsored search"


def run(asked: Asked) -> Outcome:
    frontier = Frontier(
        NAME,
        f"search log, {size_words(asked)}",
        machine(asked.scale),
        SEARCH,
        [World(WORLD, lambda seed: search_log(asked, seed), EPSILONS[asked.scale])],
    )
    return frontier.run(asked, judged)


def judged(runs: Runs, epsilons: Sequence[int]) -> list[Finding]:
    judge = Judge(runs, WORLD, epsilons, "FM, search")
    return [
        judge.hybrid_wins("S1"),
        judge.cheaper_privacy(),
        judge.no_gain_at_one(),
        judge.plateau(),
        judge.freezing_costs(),
    ]


STUDY = Study(
    NAME,
    "AUC loss and log loss over epsilon, search log, factorization machine",
    PAPER,
    "figure 2",
    ("S1", "S3", "S6", "S7", "S8"),
    {Scale.TOY: 0.2, Scale.SMALL: 7.0, Scale.FULL: 450.0},
    SEEDS,
    run,
)
