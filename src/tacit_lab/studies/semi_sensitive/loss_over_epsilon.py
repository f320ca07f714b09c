"""Figures 1 and 2: loss over epsilon on the display and search logs, for two models.

Three studies: the display log with the factorization machine, where rare values carry signal and where they
do not; the search log with the same model, where devices and audiences matter by partner; and the display
log with the two-tower network.
"""

from __future__ import annotations

from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import Runs
from tacit_lab.studies.semi_sensitive.frontier import DP_SGD, HYBRID, RR, Frontier, FrontierWorld, PublishedLoss
from tacit_lab.studies.semi_sensitive.frontier_verdicts import S1, S2, S3, S4, S5, S6, S7, S8, FrontierJudge
from tacit_lab.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    EPSILONS,
    NETWORK,
    NO_RARE_SIGNAL,
    PAPER,
    SEARCH,
    SEARCH_LOG,
    SEEDS,
    data_words,
    display_log,
    factorization_machine,
    search_log,
    two_tower_network,
)
from tacit_lab.studies.study import Finding, Study, StudyOutcome, StudyRequest, StudyScale

DISPLAY_NAME = "semi-sensitive-display"
RARE, COMMON = "rare values tell much", "rare values tell little"
DISPLAY_PUBLISHED = (PublishedLoss(DP_SGD, 12, 3.0), PublishedLoss(HYBRID, 12, 1.2))


def run_display(asked: StudyRequest) -> StudyOutcome:
    """Figure 1, factorization machine: the display log, where rare values carry signal and where they do
    not."""
    worlds = [FrontierWorld(RARE, lambda seed: display_log(asked, seed), EPSILONS[asked.scale])]
    if asked.data is None:  # a published log is as it is
        some = tuple(epsilon for epsilon in (4, 12) if epsilon in EPSILONS[asked.scale])
        worlds.append(
            FrontierWorld(
                COMMON, lambda seed: display_log(asked, seed, NO_RARE_SIGNAL), some, (RR, DP_SGD, HYBRID)
            )
        )
    frontier = Frontier(
        DISPLAY_NAME,
        data_words(asked, DISPLAY_LOG),
        factorization_machine(asked.scale),
        DISPLAY,
        worlds,
        DISPLAY_PUBLISHED,
    )
    return frontier.run(asked)


def judge_display(kept: ResultFiles) -> list[Finding]:
    runs = Runs(kept.rows)
    rare = FrontierJudge(runs, RARE, "display")
    findings = [
        rare.hybrid_wins(S1),
        rare.cheaper_privacy(),
        rare.gap_halved(S4),
        rare.no_gain_at_one(),
        rare.plateau(),
        rare.freezing_costs(),
    ]
    if COMMON in kept.table["world"]:
        findings.append(FrontierJudge(runs, COMMON, f"display, {COMMON}").hybrid_wins(S1))
    return findings


DISPLAY_STUDY = Study(
    DISPLAY_NAME,
    "AUC loss and log loss over epsilon, display log, factorization machine",
    PAPER,
    "figure 1",
    (S1, S3, S4, S6, S7, S8),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 2.4, StudyScale.FULL: 240.0},
    {**SEEDS, StudyScale.SMALL: 5},  # Student's interval of three is 2.5 deviations wide, of five half of that
    run_display,
    judge_display,
)


SEARCH_NAME = "semi-sensitive-search"
SEARCH_WORLD = "sponsored search"


def run_search(asked: StudyRequest) -> StudyOutcome:
    """Figure 2, factorization machine: the search log, where devices and audiences matter by partner."""
    frontier = Frontier(
        SEARCH_NAME,
        data_words(asked, SEARCH_LOG),
        factorization_machine(asked.scale),
        SEARCH,
        [FrontierWorld(SEARCH_WORLD, lambda seed: search_log(asked, seed), EPSILONS[asked.scale])],
    )
    return frontier.run(asked)


def judge_search(kept: ResultFiles) -> list[Finding]:
    search = FrontierJudge(Runs(kept.rows), SEARCH_WORLD, "search")
    return [
        search.hybrid_wins(S1),
        search.cheaper_privacy(),
        search.no_gain_at_one(),
        search.plateau(),
        search.freezing_costs(),
    ]


SEARCH_STUDY = Study(
    SEARCH_NAME,
    "AUC loss and log loss over epsilon, search log, factorization machine",
    PAPER,
    "figure 2",
    (S1, S3, S6, S7, S8),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 2.5, StudyScale.FULL: 450.0},
    SEEDS,
    run_search,
    judge_search,
)


NETWORK_NAME = "semi-sensitive-network"
NETWORK_WORLD = "display ads"
NETWORK_EPSILONS = {StudyScale.TOY: (12,), StudyScale.SMALL: (4, 8, 12), StudyScale.FULL: (4, 8, 12)}
NETWORK_PUBLISHED = (PublishedLoss(DP_SGD, 12, 6.3), PublishedLoss(HYBRID, 12, 3.2))


def run_network(asked: StudyRequest) -> StudyOutcome:
    """Figures 1 and 2 for the two-tower network, on the display log."""
    epsilons = NETWORK_EPSILONS[asked.scale]
    frontier = Frontier(
        NETWORK_NAME,
        data_words(asked, DISPLAY_LOG),
        two_tower_network(asked.scale),
        NETWORK,
        [FrontierWorld(NETWORK_WORLD, lambda seed: display_log(asked, seed), epsilons, (RR, DP_SGD, HYBRID))],
        NETWORK_PUBLISHED,
    )
    return frontier.run(asked)


def judge_network(kept: ResultFiles) -> list[Finding]:
    display = FrontierJudge(Runs(kept.rows), NETWORK_WORLD, "MLP: display log only")
    return [display.hybrid_wins(S2), display.cheaper_privacy(), display.gap_halved(S5)]


NETWORK_STUDY = Study(
    NETWORK_NAME,
    "AUC loss and log loss over epsilon, display log, two-tower network",
    PAPER,
    "figure 1",
    (S2, S3, S5),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 2.3, StudyScale.FULL: 4000.0},
    SEEDS,
    run_network,
    judge_network,
)
