"""Appendix A: AUC wants a smaller clip norm than log loss does, so each should have its own.

Clipping hits the rare class hardest, so a small norm ranks well and predicts too little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tacit.studies.filing import file_results, line
from tacit.studies.plotting import Mechanism, Panel, line_figure
from tacit.studies.runs import Labelled, Runs, mean, words
from tacit.studies.semi_sensitive.clipping_verdicts import BASE, MEASURES, S12, T28, judge
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    PAPER,
    RELATION,
    SEEDS,
    UNIT,
    Recipe,
    data_words,
    display_log,
    machine,
)
from tacit.studies.study import Asked, Outcome, Scale, Study
from tacit.studies.training import Training
from tacit.train.methods import Method

NAME = "semi-sensitive-clipping"
EPSILON = 12
NORMS = {
    Scale.TOY: (1.0, 10.0),
    Scale.SMALL: (1.0, 2.0, 5.0, 10.0, 20.0),
    Scale.FULL: (1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
}
METHODS: dict[str, tuple[Mechanism, Callable[[Recipe], Method]]] = {
    "DP-SGD": (Mechanism.DP_SGD, lambda recipe: recipe.dp_sgd(EPSILON)),
    "Hybrid": (Mechanism.HYBRID, lambda recipe: recipe.hybrid(EPSILON)),
}


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
        data=data_words(asked, DISPLAY_LOG),
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
    return Outcome(columns, rows, filed.files, f"Epsilon {EPSILON}. {filed.words}")


def _draw(runs: Runs, norms: tuple[float, ...], subtitle: str, path: Path) -> None:
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
    (S12, T28),
    {Scale.TOY: 0.2, Scale.SMALL: 0.8, Scale.FULL: 240.0},
    SEEDS,
    run,
    judge,
)
