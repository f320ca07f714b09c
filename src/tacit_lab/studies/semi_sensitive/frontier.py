"""Loss over epsilon for randomized response, DP-SGD and the Hybrid, beside the model without privacy."""

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
from tacit_lab.studies.runs import LabelledTask, Runs, TrainingTask, mean, words
from tacit_lab.studies.semi_sensitive.recipe import RELATION, UNIT, Recipe
from tacit_lab.studies.study import StudyOutcome, StudyRequest

RR, DP_SGD, HYBRID, FROZEN = "RR", "DP-SGD", "Hybrid", "Hybrid, frozen"
NON_PRIVATE, TRUNCATED = "non-private", "public features only"
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
    data: str
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
            data=self.data,
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
