"""Figure 5: bins against a vocabulary of the same size, over epsilon."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tacit.studies.encodings import Hashed, KnownDomain, Selected, Sensitive
from tacit.studies.filing import file_results, line
from tacit.studies.plotting import Mechanism, Panel, line_figure
from tacit.studies.runs import Floats, Labelled, Runs, mean, words
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
    EPSILONS,
    PAPER,
    RELATION,
    SEEDS,
    UNIT,
    display_log,
    machine,
    size_words,
)
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.training import Training
from tacit.studies.verdicts import apart, at_most, below, every

NAME = "semi-sensitive-hashing"
ROWS, MOST = 2_888, 480  # the likeliest 480 values a field make a table of 2,888 rows
HASHED, LISTED, PAID = "hashing", "vocabulary, list known", "vocabulary, selected and paid for"
ENCODINGS: dict[str, Callable[[int], Sensitive]] = {
    HASHED: lambda _: Hashed(ROWS),
    LISTED: lambda _: KnownDomain(MOST),
    PAID: lambda epsilon: Selected(0, f"{epsilon}/6", "5e-7"),
}
ALIKE_PERCENT = 1.0


def run(asked: Asked) -> Outcome:
    asked.refuse_data("the list of sensitive values is known only of a made-up world")
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    trainings = []
    for seed in range(1, asked.seeds + 1):
        base = Training(display_log(asked, seed), machine(asked.scale), DISPLAY.non_private, seed)
        trainings.append(Labelled({"encoding": None, "epsilon": None, "seed": seed}, base))
        for epsilon in epsilons:
            for encoding, sensitive in ENCODINGS.items():
                log = display_log(asked, seed, sensitive=sensitive(epsilon))
                labels = {"encoding": encoding, "epsilon": epsilon, "seed": seed}
                task = Training(log, machine(asked.scale), DISPLAY.hybrid(epsilon), seed)
                trainings.append(Labelled(labels, task))
    runs = Runs.of(trainings, asked, f"{NAME}: training")
    filed = file_results(
        asked,
        NAME,
        runs,
        data=f"display log, {size_words(asked)}",
        unit=UNIT,
        relation=RELATION,
        parameters={"epsilons": list(epsilons), "rows": ROWS},
        began=began,
        draw=lambda path, subtitle: _draw(runs, epsilons, subtitle, path),
    )
    rows = [
        (
            str(epsilon),
            encoding,
            f"{np.mean(runs.figures('sensitive_rows', encoding=encoding, epsilon=epsilon)):,.0f}",
            words(mean(_percent(runs, encoding, epsilon))),
        )
        for epsilon in epsilons
        for encoding in ENCODINGS
    ]
    columns = ("epsilon", "sensitive values", "sensitive rows", "AUC loss +%")
    return Outcome(columns, rows, [judged(runs, epsilons)], filed.files, f"Hybrid. {filed.words}")


def judged(runs: Runs, epsilons: Sequence[int]) -> Finding:
    """Compared at the same size: the list that is known, as in the paper, against bins."""
    losses = {
        name: np.mean(
            [runs.figures("auc_loss", encoding=name, epsilon=epsilon) for epsilon in epsilons], axis=0
        )
        for name in (HASHED, LISTED)
    }
    apart_percent = np.abs(100 * (losses[LISTED] / losses[HASHED] - 1))
    return Finding(
        "S11",
        "hashing and a thresholded vocabulary are alike at the same size, the vocabulary slightly ahead",
        f"mean AUC losses over all epsilons differ by at most {ALIKE_PERCENT}%, and the vocabulary's is lower",
        f"vocabulary {apart(100 * losses[LISTED] / losses[HASHED], 0 * losses[HASHED] + 100)}% against hashing",
        every((at_most(apart_percent, ALIKE_PERCENT), below(losses[LISTED], losses[HASHED]))),
    )


def _percent(runs: Runs, encoding: str, epsilon: int) -> Floats:
    return runs.percent_over("auc_loss", {"encoding": None}, encoding=encoding, epsilon=epsilon)


def _draw(runs: Runs, epsilons: Sequence[int], subtitle: str, path: Path) -> None:
    lines = []
    for encoding in ENCODINGS:
        losses = [_percent(runs, encoding, epsilon) for epsilon in epsilons]
        lines.append(line(encoding, epsilons, losses, Mechanism.HYBRID))
    line_figure(
        [Panel("Hybrid, display ads", lines)],
        subtitle=subtitle,
        x_label="epsilon",
        y_label="AUC loss over the non-private model, all values known, %",
        path=path,
        log_x_ticks=epsilons,
    )


STUDY = Study(
    NAME,
    "AUC loss over epsilon, with bins and with a vocabulary of the same size",
    PAPER,
    "figure 5",
    ("S11",),
    {Scale.TOY: 0.2, Scale.SMALL: 3.0, Scale.FULL: 200.0},
    SEEDS,
    run,
)
