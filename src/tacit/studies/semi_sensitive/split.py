"""Figure 3: how much of epsilon the noisy labels should get."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tacit.studies.filing import file_results, line
from tacit.studies.logs import StudyLog
from tacit.studies.plotting import Mechanism, Panel, line_figure
from tacit.studies.runs import Labelled, Runs, difference, mean, words
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
    EPSILONS,
    PAPER,
    RELATION,
    SEARCH,
    SEEDS,
    UNIT,
    Recipe,
    display_log,
    machine,
    search_log,
    size_words,
)
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.training import Training
from tacit.studies.verdicts import FEWEST_SEEDS
from tacit.train.methods import Method

NAME = "semi-sensitive-split"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
BEST = {1: (0.0,), 4: (0.5, 0.75), 8: (0.5, 0.75), 12: (0.25,)}  # as published, at each epsilon
WORLDS: dict[str, tuple[Callable[[Asked, int], StudyLog], Recipe]] = {
    "display ads": (display_log, DISPLAY),
    "sponsored search": (search_log, SEARCH),
}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    runs = Runs.of(_trainings(asked), asked, f"{NAME}: training")
    filed = file_results(
        asked,
        NAME,
        runs,
        data=f"display and search logs, {size_words(asked)}",
        unit=UNIT,
        relation=RELATION,
        parameters={"shares": list(SHARES), "epsilons": list(epsilons)},
        began=began,
        draw=lambda path, subtitle: _draw(runs, epsilons, subtitle, path),
    )
    rows = [
        (world, str(epsilon), *(words(mean(runs.percent_over("auc_loss", _base(world), **at))) for at in ats))
        for world in WORLDS
        for epsilon in epsilons
        for ats in [[{"world": world, "epsilon": epsilon, "k": k} for k in SHARES]]
    ]
    columns = ("world", "epsilon", *(f"k = {k:g}" for k in SHARES))
    findings = [judged(runs, world, epsilons) for world in WORLDS]
    note = f"AUC loss over the non-private model's, %. {filed.words}"
    return Outcome(columns, rows, findings, filed.files, note)


def judged(runs: Runs, world: str, epsilons: Sequence[int]) -> Finding:
    """At each epsilon: is a published best share the best here, or at least not clearly worse?"""
    verdicts: list[bool | None] = []
    seen = []
    for epsilon in epsilons:
        losses = {k: runs.figures("auc_loss", world=world, epsilon=epsilon, k=k) for k in SHARES}
        best = min(losses, key=lambda k: float(np.mean(losses[k])))
        published = min(BEST[epsilon], key=lambda k: float(np.mean(losses[k])))
        seen.append(f"{epsilon}: k = {best:g}")
        if best in BEST[epsilon]:
            verdicts.append(True)
        else:
            clearly_worse = difference(losses[published], losses[best]).low > 0
            verdicts.append(False if clearly_worse else None)
    holds = False if False in verdicts else None if None in verdicts else True
    return Finding(
        "S9",
        f"the best split is k = 0 at epsilon 1, k >= .5 at 4 and 8, k = .25 at 12 (FM, {world})",
        "holds if each published k has the lowest mean; fails if one is worse than the best, 95% over seeds",
        "best at epsilon " + "; ".join(seen),
        holds if len(losses[0.0]) >= FEWEST_SEEDS else None,
    )


def _trainings(asked: Asked) -> list[Labelled]:
    every = []
    for seed in range(1, asked.seeds + 1):
        for world, (log_of, recipe) in WORLDS.items():
            log = log_of(asked, seed)
            methods: list[tuple[int | None, float | None, Method]] = [(None, None, recipe.non_private)]
            for epsilon in EPSILONS[asked.scale]:
                methods.append((epsilon, 0.0, recipe.dp_sgd(epsilon)))
                methods += [(epsilon, k, recipe.hybrid(epsilon, k)) for k in SHARES[1:-1]]
                methods.append((epsilon, 1.0, recipe.rr(epsilon)))
            for budget, k, method in methods:
                labels = {"world": world, "epsilon": budget, "k": k, "seed": seed}
                every.append(Labelled(labels, Training(log, machine(asked.scale), method, seed)))
    return every


def _base(world: str) -> dict[str, object]:
    return {"world": world, "epsilon": None}


def _draw(runs: Runs, epsilons: Sequence[int], subtitle: str, path: Path) -> None:
    panels = []
    for world in WORLDS:
        lines = []
        for epsilon in epsilons:
            losses = [
                runs.percent_over("auc_loss", _base(world), world=world, epsilon=epsilon, k=k) for k in SHARES
            ]
            lines.append(line(f"epsilon {epsilon}", SHARES, losses, Mechanism.HYBRID))
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
    ("S9",),
    {Scale.TOY: 0.2, Scale.SMALL: 10.0, Scale.FULL: 660.0},
    SEEDS,
    run,
)
