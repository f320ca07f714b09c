"""Appendix A: AUC wants a smaller clip norm than log loss does.

Clipping hits the rare class hardest, so a small norm ranks well and predicts too little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tacit.studies.filing import file_results, line
from tacit.studies.plotting import Mechanism, Panel, line_figure
from tacit.studies.runs import Labelled, Runs, mean, words
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
    PAPER,
    RELATION,
    SEEDS,
    UNIT,
    Recipe,
    display_log,
    machine,
    size_words,
)
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.training import Training
from tacit.studies.verdicts import FEWEST_SEEDS, below, every
from tacit.train.methods import Method

NAME = "semi-sensitive-clipping"
EPSILON = 12
NORMS = {Scale.TOY: (1, 10), Scale.SMALL: (1, 2, 5, 10, 20), Scale.FULL: (1, 2, 5, 10, 20, 40)}
METHODS: dict[str, tuple[Mechanism, Callable[[Recipe], Method]]] = {
    "DP-SGD": (Mechanism.DP_SGD, lambda recipe: recipe.dp_sgd(EPSILON)),
    "Hybrid": (Mechanism.HYBRID, lambda recipe: recipe.hybrid(EPSILON)),
}
MEASURES = {"auc_loss": "AUC loss", "log_loss": "Log loss"}
BASE = {"method": "non-private"}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    norms = NORMS[asked.scale]
    trainings = []
    for seed in range(1, asked.seeds + 1):
        log, model = display_log(asked, seed), machine(asked.scale)
        trainings.append(Labelled({**BASE, "seed": seed}, Training(log, model, DISPLAY.non_private, seed)))
        for norm in norms:
            for name, (_, method) in METHODS.items():
                task = Training(log, model, method(DISPLAY.clipped_at(norm)), seed)
                trainings.append(Labelled({"method": name, "clip_norm": norm, "seed": seed}, task))
    runs = Runs.of(trainings, asked, f"{NAME}: training")
    filed = file_results(
        asked,
        NAME,
        runs,
        data=f"display log, {size_words(asked)}",
        unit=UNIT,
        relation=RELATION,
        parameters={"epsilon": EPSILON, "clip_norms": list(norms)},
        began=began,
        draw=lambda path, subtitle: _draw(runs, norms, subtitle, path),
    )
    rows = [
        (
            name,
            f"{norm:g}",
            *(words(mean(runs.percent_over(figure, BASE, method=name, clip_norm=norm))) for figure in MEASURES),
            words(mean(runs.figures("calibration_ratio", method=name, clip_norm=norm))),
        )
        for name in METHODS
        for norm in norms
    ]
    columns = ("method", "clip norm", "AUC loss +%", "log loss +%", "predicted / observed")
    findings = [judged(runs, name, norms) for name in METHODS]
    return Outcome(columns, rows, findings, filed.files, f"Epsilon {EPSILON}. {filed.words}")


def judged(runs: Runs, name: str, norms: tuple[int, ...]) -> Finding:
    best = {
        figure: min(norms, key=lambda c: float(np.mean(runs.figures(figure, method=name, clip_norm=c))))
        for figure in MEASURES
    }
    ranking, logarithmic = best["auc_loss"], best["log_loss"]
    verdict: bool | None = False
    if logarithmic > ranking:
        verdict = every(
            below(
                runs.figures(figure, method=name, clip_norm=own),
                runs.figures(figure, method=name, clip_norm=other),
            )
            for figure, own, other in (("auc_loss", ranking, logarithmic), ("log_loss", logarithmic, ranking))
        )
    return Finding(
        "S12",
        f"log loss wants a larger clip norm than AUC ({name}, FM, display)",
        "the best norm for log loss is larger, and each beats the other on its own figure, 95% over seeds",
        f"best for AUC {ranking:g}, for log loss {logarithmic:g}",
        verdict if len(runs.figures("auc_loss", **BASE)) >= FEWEST_SEEDS else None,
    )


def _draw(runs: Runs, norms: tuple[int, ...], subtitle: str, path: Path) -> None:
    panels = []
    for figure, title in MEASURES.items():
        lines = []
        for name, (mechanism, _) in METHODS.items():
            losses = [runs.percent_over(figure, BASE, method=name, clip_norm=norm) for norm in norms]
            lines.append(line(name, norms, losses, mechanism))
        panels.append(Panel(title, lines))
    line_figure(
        panels,
        subtitle=subtitle,
        x_label=f"clip norm, at epsilon {EPSILON}",
        y_label="increase over the non-private model, %",
        path=path,
        log_x_ticks=norms,
        share_y=False,
    )


STUDY = Study(
    NAME,
    "AUC loss and log loss over the clip norm",
    PAPER,
    "appendix A",
    ("S12",),
    {Scale.TOY: 0.2, Scale.SMALL: 3.0, Scale.FULL: 240.0},
    SEEDS,
    run,
)
