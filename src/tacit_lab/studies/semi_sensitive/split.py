"""Figure 3: how much of epsilon the noisy labels should get."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tacit.arrays import Floats
from tacit.train.methods import TrainingMethod
from tacit_lab.studies.logs import StudyLog
from tacit_lab.studies.plotting import Mechanism, Panel, line_figure
from tacit_lab.studies.report import file_results, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import LabelledTask, Runs, TrainingTask, difference, mean, words
from tacit_lab.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    EPSILONS,
    PAPER,
    RELATION,
    SEARCH_LOG,
    SEEDS,
    UNIT,
    Recipe,
    data_words,
    display_log,
    factorization_machine,
    inputs,
    search_alone,
    search_log,
    search_recipe,
)
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import below, every

NAME = "semi-sensitive-split"
ALL = (0.0, 0.25, 0.5, 0.75, 1.0)
SHARES = {StudyScale.TOY: (0.0, 0.25, 1.0), StudyScale.SMALL: ALL, StudyScale.FULL: ALL}
HALF_OR_MORE = (0.5, 0.75, 1.0)
BEST = {1: (0.0,), 4: HALF_OR_MORE, 8: HALF_OR_MORE, 12: (0.25,)}  # as published, at each epsilon
S9 = Claim(
    "S9",
    "figure 3",
    "noisy labels should get none of epsilon 1, at least half of 4 and 8, and a quarter of 12",
    "k = 0 | >= .5 | >= .5 | .25",
)
World = tuple[Callable[[StudyRequest, int], StudyLog], Callable[[StudyRequest], Recipe]]
WORLDS: dict[str, World] = {
    "display ads": (display_log, lambda _: DISPLAY),
    "sponsored search": (search_log, search_recipe),
}


def worlds_of(asked: StudyRequest) -> dict[str, World]:
    """Both; of published files the search log, where the display log is not there or a mere sample."""
    return {name: world for name, world in WORLDS.items() if world[0] is search_log or not search_alone(asked)}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    epsilons, shares = EPSILONS[asked.scale], SHARES[asked.scale]
    worlds = worlds_of(asked)
    logs = (SEARCH_LOG,) if search_alone(asked) else (DISPLAY_LOG, SEARCH_LOG)
    runs = Runs.of(_trainings(asked), asked, f"{NAME}: training")
    filed = file_results(
        asked,
        NAME,
        runs,
        data=data_words(asked, *logs, runs=runs),
        unit=UNIT,
        relation=RELATION,
        parameters={"shares": list(shares), "epsilons": list(epsilons)},
        began=began,
        draw=lambda path, subtitle: _draw(runs, (*worlds,), epsilons, shares, subtitle, path),
    )
    rows = [
        (world, str(epsilon), *(words(mean(runs.percent_over("auc_loss", _base(world), **at))) for at in ats))
        for world in worlds
        for epsilon in epsilons
        for ats in [[_at(world, epsilon, k) for k in shares]]
    ]
    columns = ("world", "epsilon", *(f"k = {k:g}" for k in shares))
    note = f"AUC loss over the non-private model's, %. {filed.words}"
    return StudyOutcome(columns, rows, filed.files, note)


def judge(kept: ResultFiles) -> list[Finding]:
    runs = Runs(kept.rows)
    return [judge_world(runs, world) for world in WORLDS if world in kept.table["world"]]


def judge_world(runs: Runs, world: str) -> Finding:
    verdicts, seen = [], []
    shares = sorted({row["k"] for row in runs.rows} - {None})
    for epsilon in sorted({row["epsilon"] for row in runs.rows} - {None}):
        losses = {k: runs.figures("auc_loss", **_at(world, epsilon, k)) for k in shares}
        few = [k for k in shares if k in BEST[epsilon]]
        others = [k for k in shares if k not in BEST[epsilon]]
        best = _best(losses, shares)
        seen.append(f"{epsilon}: k = {best:g}")
        if few and others:
            one, other = _best(losses, few), _best(losses, others)
            ahead, behind = (one, other) if best in few else (other, one)
            seen[-1] += f" ({behind:g} loses {words(difference(losses[behind], losses[ahead]), 4)} more)"
            verdicts.append(_best_is_among(losses, few, others))
        else:
            verdicts.append(None)
    return Finding(
        S9,
        "at each epsilon one of the published k (of 0, .25, .5, .75 and 1) has an AUC loss below that of every "
        "other; fails where one of the others' is below that of all of these; 95% over paired seeds",
        "best at epsilon " + "; ".join(seen),
        every(verdicts),
        world,
    )


def _best(losses: Mapping[float, Floats], among: Sequence[float]) -> float:
    """By the mean over seeds."""
    return min(among, key=lambda k: float(np.mean(losses[k])))


def _best_is_among(
    losses: Mapping[float, Floats], few: Sequence[float], others: Sequence[float]
) -> bool | None:
    """Whether one of a few is below all others, or one of the others below all of these."""
    one, other = _best(losses, few), _best(losses, others)
    if every(below(losses[one], losses[k]) for k in others):
        return True
    return False if every(below(losses[other], losses[k]) for k in few) else None


def _trainings(asked: StudyRequest) -> list[LabelledTask]:
    trainings = []
    for seed in range(1, asked.seeds + 1):
        for world, (log_of, recipe_of) in worlds_of(asked).items():
            log, recipe = log_of(asked, seed), recipe_of(asked)
            model = factorization_machine(asked.scale, published=asked.data is not None)
            methods: list[tuple[int | None, float | None, TrainingMethod]] = [(None, None, recipe.non_private)]
            for epsilon in EPSILONS[asked.scale]:
                methods += [(epsilon, k, _method(recipe, epsilon, k)) for k in SHARES[asked.scale]]
            for budget, k, method in methods:
                labels = {"world": world, "epsilon": budget, "k": k, "seed": seed}
                trainings.append(LabelledTask(labels, TrainingTask(log, model, method, seed)))
    return trainings


def _method(recipe: Recipe, epsilon: int, k: float) -> TrainingMethod:
    """The ends are the two other methods, spelled as these are: figures 1 and 2 have trained them already."""
    if k in (0, 1):
        return recipe.rr(epsilon) if k else recipe.dp_sgd(epsilon)
    return recipe.hybrid(epsilon, k)


def _base(world: str) -> dict[str, object]:
    return {"world": world, "epsilon": None}


def _at(world: str, epsilon: int, k: float) -> dict[str, object]:
    return {"world": world, "epsilon": epsilon, "k": k}


def _draw(
    runs: Runs,
    worlds: Sequence[str],
    epsilons: Sequence[int],
    shares: Sequence[float],
    subtitle: str,
    path: Path,
) -> None:
    panels = []
    for world in worlds:
        lines = []
        for epsilon in epsilons:
            losses = [runs.percent_over("auc_loss", _base(world), **_at(world, epsilon, k)) for k in shares]
            lines.append(mean_line(f"epsilon {epsilon}", shares, losses, Mechanism.HYBRID))
        panels.append(Panel(world.capitalize(), lines))
    line_figure(
        panels,
        subtitle=subtitle,
        x_label="k, the share of epsilon for noisy labels (0: DP-SGD, 1: RR)",
        y_label="AUC loss over the non-private model, %",
        path=path,
    )


STUDY = Study(
    NAME,
    "AUC loss over the share of epsilon that goes to noisy labels",
    PAPER,
    "figure 3",
    (S9,),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 1.8, StudyScale.FULL: 660.0},
    SEEDS,
    run,
    judge,
    inputs(12.0, 40.0),
)
