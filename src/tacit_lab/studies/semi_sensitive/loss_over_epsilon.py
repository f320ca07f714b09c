"""Figures 1 and 2: loss over epsilon on the display and search logs, for two models.

A `Frontier` is one of these for one model: randomized response, DP-SGD and the Hybrid beside the model without
privacy.

Three studies: the display log with the factorization machine, where rare values carry signal and where they
do not; the search log with the same model, where devices and audiences matter by partner; and the display
log with the two-tower network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.arrays import Floats
from tacit.train.methods import TrainingMethod
from tacit.train.models.model import Architecture
from tacit_lab.studies.logs import StudyLog
from tacit_lab.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit_lab.studies.report import file_results, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import LabelledTask, Runs, TrainingTask, mean, words
from tacit_lab.studies.semi_sensitive.frontier_verdicts import S1, S2, S3, S4, S5, S6, S7, S8, FrontierJudge
from tacit_lab.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    DP_SGD,
    EPSILONS,
    FROZEN,
    HYBRID,
    LEAST_DISPLAY,
    NETWORK,
    NO_RARE_SIGNAL,
    NON_PRIVATE,
    PAPER,
    PUBLISHED_EPSILONS,
    PUBLISHED_LOGS,
    PUBLISHED_NETWORK,
    RELATION,
    RR,
    SEARCH_LOG,
    SEEDS,
    TRUNCATED,
    UNIT,
    Recipe,
    data_words,
    display_log,
    factorization_machine,
    inputs,
    search_alone,
    search_log,
    search_recipe,
    two_tower_network,
)
from tacit_lab.studies.study import Finding, Study, StudyInputs, StudyOutcome, StudyRequest, StudyScale

MECHANISMS = {RR: Mechanism.RR, DP_SGD: Mechanism.DP_SGD, HYBRID: Mechanism.HYBRID, FROZEN: Mechanism.HYBRID}
MEASURES = {"auc_loss": "AUC loss", "log_loss": "Log loss"}


@dataclass(frozen=True)
class FrontierWorld:
    """A log for each seed. `epsilons` and `methods` may be fewer than all where a world is a side view."""

    name: str
    log: Callable[[int], StudyLog]
    epsilons: Sequence[int]
    methods: Sequence[str] = (RR, DP_SGD, HYBRID, FROZEN)


@dataclass(frozen=True)
class PublishedLoss:
    """A figure that the paper prints: by how many percent a method's AUC loss is above the non-private one."""

    method: str
    epsilon: int
    percent: float


@dataclass(frozen=True)
class Frontier:
    """Figure 1 or 2 for one model: what is trained, on which worlds."""

    name: str
    log: str
    model: Architecture
    recipe: Recipe
    worlds: Sequence[FrontierWorld]
    published: Sequence[PublishedLoss] = ()

    def run(self, asked: StudyRequest) -> StudyOutcome:
        began = time.monotonic()
        runs = Runs.of(list(self._trainings(asked)), asked, f"{self.name}: training")
        filed = file_results(
            asked,
            self.name,
            runs,
            data=data_words(asked, self.log, runs=runs),
            unit=UNIT,
            relation=RELATION,
            parameters={"model": repr(self.model), "recipe": repr(self.recipe)},
            began=began,
            draw=lambda path, subtitle: self.draw(runs, subtitle, path),
        )
        return StudyOutcome(*self.table(runs), filed.files, filed.words)

    def _trainings(self, asked: StudyRequest) -> Sequence[LabelledTask]:
        every = []
        for seed in range(1, asked.seeds + 1):
            for world in self.worlds:
                log = world.log(seed)
                for method, epsilon, chosen in self._methods(world):
                    labels = {"world": world.name, "method": method, "epsilon": epsilon, "seed": seed}
                    every.append(LabelledTask(labels, TrainingTask(log, self.model, chosen, seed)))
        return every

    def _methods(self, world: FrontierWorld) -> Sequence[tuple[str, int | None, TrainingMethod]]:
        by_epsilon: dict[str, Callable[[int], TrainingMethod]] = {
            RR: self.recipe.rr,
            DP_SGD: self.recipe.dp_sgd,
            HYBRID: self.recipe.hybrid,
            FROZEN: lambda epsilon: self.recipe.hybrid(epsilon, frozen=True),
        }
        return [
            (NON_PRIVATE, None, self.recipe.non_private),
            (TRUNCATED, None, self.recipe.truncated),
            *(
                (name, epsilon, by_epsilon[name](epsilon))
                for epsilon in world.epsilons
                for name in world.methods
            ),
        ]

    def table(self, runs: Runs) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """For people: each method's increase over the non-private model, by world and epsilon."""
        rows = []
        for world in self.worlds:
            for epsilon in (None, *world.epsilons):
                for method in (TRUNCATED,) if epsilon is None else world.methods:
                    labels: dict[str, Any] = {"world": world.name, "method": method, "epsilon": epsilon}
                    cells = [words(mean(increase(runs, figure, **labels))) for figure in MEASURES]
                    calibration = words(mean(runs.figures("calibration_ratio", **labels)))
                    rows.append(
                        (world.name, "" if epsilon is None else str(epsilon), method, *cells, calibration)
                    )
        return ("world", "epsilon", "method", "AUC loss +%", "log loss +%", "predicted / observed"), rows

    def draw(self, runs: Runs, subtitle: str, path: Path) -> None:
        """Each world has a panel for each measure."""
        panels = [
            Panel(f"{label}, {world.name}", self._lines(runs, world, figure))
            for world in self.worlds
            for figure, label in MEASURES.items()
        ]
        ticks = sorted({epsilon for world in self.worlds for epsilon in world.epsilons})
        line_figure(
            panels,
            subtitle=subtitle,
            x_label="epsilon",
            y_label="increase over the non-private model, %",
            path=path,
            log_x_ticks=ticks,
            share_y=False,
        )

    def _lines(self, runs: Runs, world: FrontierWorld, figure: str) -> list[Series]:
        lines = []
        for method in world.methods:
            losses = [
                increase(runs, figure, world=world.name, method=method, epsilon=epsilon)
                for epsilon in world.epsilons
            ]
            lines.append(mean_line(method, world.epsilons, losses, MECHANISMS[method]))
        limit = mean(increase(runs, figure, world=world.name, method=TRUNCATED)).value
        flat = [(NON_PRIVATE, 0.0), (TRUNCATED, limit)]
        lines += [
            Series(name, world.epsilons, [level] * len(world.epsilons), mechanism=Mechanism.NON_PRIVATE)
            for name, level in flat
        ]
        if figure == "auc_loss" and world is self.worlds[0]:
            for each in self.published:
                name, mechanism = f"{each.method}, published", MECHANISMS[each.method]
                lines.append(Series(name, [each.epsilon], [each.percent], mechanism=mechanism, published=True))
        return lines


def increase(runs: Runs, figure: str, *, world: str, **labels: Any) -> Floats:
    """Percent over the non-private model of the same world and seed."""
    base = {"world": world, "method": NON_PRIVATE}
    return runs.percent_over(figure, base, world=world, **labels)


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
        DISPLAY_LOG,
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
    StudyInputs((PUBLISHED_LOGS[DISPLAY_LOG],), minutes=dict.fromkeys(StudyScale, 600.0), least=LEAST_DISPLAY),
)


SEARCH_NAME = "semi-sensitive-search"
SEARCH_WORLD = "sponsored search"


def run_search(asked: StudyRequest) -> StudyOutcome:
    """Figure 2, factorization machine: the search log, where devices and audiences matter by partner."""
    published = asked.data is not None
    frontier = Frontier(
        SEARCH_NAME,
        SEARCH_LOG,
        factorization_machine(asked.scale, published=published),
        search_recipe(asked),
        [
            FrontierWorld(
                SEARCH_WORLD,
                lambda seed: search_log(asked, seed),
                (PUBLISHED_EPSILONS if published else EPSILONS)[asked.scale],
            )
        ],
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
    inputs(12.0, 40.0, display=False),
)


NETWORK_NAME = "semi-sensitive-network"
NETWORK_WORLD = "display ads"
NETWORK_EPSILONS = {StudyScale.TOY: (12,), StudyScale.SMALL: (4, 8, 12), StudyScale.FULL: (4, 8, 12)}
NETWORK_PUBLISHED = (PublishedLoss(DP_SGD, 12, 6.3), PublishedLoss(HYBRID, 12, 3.2))


def run_network(asked: StudyRequest) -> StudyOutcome:
    """Figures 1 and 2 for the two-tower network, on the display log; on the search log where that is what a
    folder of published files has."""
    epsilons, methods = NETWORK_EPSILONS[asked.scale], (RR, DP_SGD, HYBRID)
    display = FrontierWorld(NETWORK_WORLD, lambda seed: display_log(asked, seed), epsilons, methods)
    search = FrontierWorld(SEARCH_WORLD, lambda seed: search_log(asked, seed), epsilons, methods)
    on_search = search_alone(asked)
    frontier = Frontier(
        NETWORK_NAME,
        SEARCH_LOG if on_search else DISPLAY_LOG,
        two_tower_network(StudyScale.SMALL if on_search and asked.scale is StudyScale.FULL else asked.scale),
        PUBLISHED_NETWORK if on_search else NETWORK,
        [search if on_search else display],
        () if on_search else NETWORK_PUBLISHED,
    )
    return frontier.run(asked)


def judge_network(kept: ResultFiles) -> list[Finding]:
    if SEARCH_WORLD in kept.table["world"]:
        search = FrontierJudge(Runs(kept.rows), SEARCH_WORLD, "MLP: search log only")
        return [search.hybrid_wins(S2), search.cheaper_privacy(), search.gap_halved(S5)]
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
    inputs(50.0, 170.0),
)
