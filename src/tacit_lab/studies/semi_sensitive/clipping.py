"""Appendix A: AUC wants a smaller clip norm than log loss does, so each should have its own.

Clipping hits the rare class hardest, so a small norm ranks well and predicts too little. Verdicts say which
clip norm each measure wants (S12), and what a norm for each is worth (T28).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tacit.arrays import Floats
from tacit.train.methods import TrainingMethod
from tacit_lab.studies.plotting import Mechanism, Panel, line_figure
from tacit_lab.studies.report import file_results, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import LabelledTask, Runs, TrainingTask, mean, words
from tacit_lab.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    DP_SGD,
    HYBRID,
    NON_PRIVATE,
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
from tacit_lab.studies.verdicts import below, every, signed_gap

MEASURES = {"auc_loss": "AUC loss", "log_loss": "Log loss"}
BASE = {"method": NON_PRIVATE}
S12 = Claim("S12", "appendix A", "log loss wants a larger clip norm than AUC")
SAME_NORM = "one norm of the grid is best for both"
FINER = "a finer grid of norms around it"
T28 = Claim(
    "T28", "one clip norm for both", "a clip norm chosen for the measure that counts beats one for both"
)


def judge(kept: ResultFiles) -> list[Finding]:
    runs = Runs(kept.rows)
    private = [row for row in runs.rows if row["clip_norm"] is not None]
    methods = dict.fromkeys(str(row["method"]) for row in private)
    norms = sorted({float(row["clip_norm"]) for row in private})
    return [
        finding
        for method in methods
        for finding in (best_norms(runs, method, norms), own_norms(runs, method, norms))
    ]


def best_norms(runs: Runs, method: str, norms: Sequence[float]) -> Finding:
    losses = {
        figure: {norm: runs.figures(figure, method=method, clip_norm=norm) for norm in norms}
        for figure in MEASURES
    }
    ranking, logarithmic = (
        min(norms, key=lambda norm: float(np.mean(losses[figure][norm]))) for figure in ("auc_loss", "log_loss")
    )
    apart_for_sure = logarithmic != ranking and every(
        below(losses[figure][own], losses[figure][other])
        for figure, own, other in (("auc_loss", ranking, logarithmic), ("log_loss", logarithmic, ranking))
    )
    percent = [100 * (losses[figure][logarithmic] / losses[figure][ranking] - 1) for figure in MEASURES]
    moved = ", ".join(
        f"{title} {signed_gap(each, 0 * each)}%" for title, each in zip(MEASURES.values(), percent, strict=True)
    )
    return Finding(
        S12,
        "the best norm for log loss is larger, and each beats the other on its own figure, 95% over seeds; "
        "fails where it is smaller and each does; where both are one norm, the grid cannot tell",
        f"best for AUC {ranking:g}, for log loss {logarithmic:g}: from the first to the second, {moved}",
        logarithmic > ranking if apart_for_sure else None,
        method,
        why=SAME_NORM if logarithmic == ranking else "",
        decider=FINER if logarithmic == ranking else "",
    )


def own_norms(runs: Runs, method: str, norms: Sequence[float]) -> Finding:
    """A norm is chosen on all seeds but the one that it is tried on: choosing well by luck earns nothing."""
    rule = (
        "the mean of both increases is lower with a norm for each than with the best norm for their sum, "
        "norms chosen on the other seeds, 95% over seeds; where all of these are one norm, the grid cannot tell"
    )
    # (measure, norm, seed)
    percent = np.array(
        [
            [runs.percent_over(figure, BASE, method=method, clip_norm=norm) for norm in norms]
            for figure in MEASURES
        ]
    )
    if percent.shape[2] < 2:
        return Finding(T28, rule, "one seed: there is no other to choose a norm on", None, method)
    own, shared, at = leave_one_seed_out(percent)
    same = bool((own == shared).all())
    return Finding(
        T28,
        rule,
        f"{signed_gap(own, shared)} points of increase; one norm for both: "
        + ", ".join(f"{norms[each]:g}" for each in dict.fromkeys(at)),
        None if same else below(own, shared),
        method,
        why=SAME_NORM if same else "",
        decider=FINER if same else "",
    )


def leave_one_seed_out(percent: Floats) -> tuple[Floats, Floats, list[int]]:
    """For each seed: the mean increase with a norm for each measure, with one for both, and which that is."""
    own, shared, at = [], [], []
    for seed in range(percent.shape[2]):
        others = np.delete(percent, seed, axis=2).mean(axis=2)  # (measure, norm)
        here = percent[:, :, seed]
        own.append(float(np.mean([here[measure, best] for measure, best in enumerate(others.argmin(axis=1))])))
        at.append(int(others.sum(axis=0).argmin()))
        shared.append(float(here[:, at[-1]].mean()))
    return np.array(own), np.array(shared), at


NAME = "semi-sensitive-clipping"
EPSILON = 12
NORMS = {
    StudyScale.TOY: (1.0, 10.0),
    StudyScale.SMALL: (1.0, 2.0, 5.0, 10.0, 20.0),
    StudyScale.FULL: (1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
}
METHODS: dict[str, tuple[Mechanism, Callable[[Recipe], TrainingMethod]]] = {
    DP_SGD: (Mechanism.DP_SGD, lambda recipe: recipe.dp_sgd(EPSILON)),
    HYBRID: (Mechanism.HYBRID, lambda recipe: recipe.hybrid(EPSILON)),
}


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    norms, on_search = NORMS[asked.scale], search_alone(asked)
    recipe = search_recipe(asked) if on_search else DISPLAY
    model = factorization_machine(asked.scale, published=on_search)
    trainings = []
    for seed in range(1, asked.seeds + 1):
        log = search_log(asked, seed) if on_search else display_log(asked, seed)
        trainings.append(
            LabelledTask({**BASE, "seed": seed}, TrainingTask(log, model, recipe.non_private, seed))
        )
        for norm in norms:
            for name, (_, method) in METHODS.items():
                task = TrainingTask(log, model, method(recipe.clipped_at(norm)), seed)
                trainings.append(LabelledTask({"method": name, "clip_norm": norm, "seed": seed}, task))
    runs = Runs.of(trainings, asked, f"{NAME}: training")
    filed = file_results(
        asked,
        NAME,
        runs,
        data=data_words(asked, SEARCH_LOG if on_search else DISPLAY_LOG, runs=runs),
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
    return StudyOutcome(columns, rows, filed.files, f"Epsilon {EPSILON}. {filed.words}")


def _draw(runs: Runs, norms: tuple[float, ...], subtitle: str, path: Path) -> None:
    panels = []
    for figure, title in MEASURES.items():
        lines = []
        for name, (mechanism, _) in METHODS.items():
            losses = [runs.percent_over(figure, BASE, method=name, clip_norm=norm) for norm in norms]
            lines.append(mean_line(name, norms, losses, mechanism))
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
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.8, StudyScale.FULL: 240.0},
    SEEDS,
    run,
    judge,
    inputs(10.0, 40.0),
)
