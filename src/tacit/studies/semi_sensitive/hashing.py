"""Figure 5: bins against a vocabulary of the same size, over epsilon."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tacit.studies.encodings import Hashed, KnownDomain, Selected, Sensitive
from tacit.studies.filing import file_results, line
from tacit.studies.plotting import Mechanism, Panel, line_figure
from tacit.studies.results import Kept
from tacit.studies.runs import Floats, Labelled, Runs, mean, words
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    EPSILONS,
    PAPER,
    RELATION,
    SEEDS,
    UNIT,
    data_words,
    display_log,
    machine,
)
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.training import Training
from tacit.studies.verdicts import apart, below, between, every

NAME = "semi-sensitive-hashing"
ROWS, MOST = 2_888, 480  # the likeliest 480 values a field make one of 2,887 rows
HASHED, LISTED, PAID = "hashing", "vocabulary, list known", "vocabulary, selected and paid for"
ENCODINGS: dict[str, Callable[[int], Sensitive]] = {
    HASHED: lambda _: Hashed(ROWS),
    LISTED: lambda _: KnownDomain(MOST),
    PAID: lambda epsilon: Selected(0, f"{epsilon}/6", "5e-7"),
}
SHOWN = {Scale.TOY: (*ENCODINGS,), Scale.SMALL: (HASHED, LISTED), Scale.FULL: (*ENCODINGS,)}
ALIKE_PERCENT = 1.0
S11 = Claim(
    "S11",
    "figure 5",
    "hashing and a thresholded vocabulary are alike at the same size, the vocabulary slightly ahead",
)


def run(asked: Asked) -> Outcome:
    asked.refuse_data("the list of sensitive values is known only of a made-up world")
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    trainings = []
    for seed in range(1, asked.seeds + 1):
        base = Training(display_log(asked, seed), machine(asked.scale), DISPLAY.non_private, seed)
        trainings.append(Labelled({"encoding": None, "epsilon": None, "seed": seed}, base))
        for epsilon in epsilons:
            for encoding in SHOWN[asked.scale]:
                log = display_log(asked, seed, sensitive=ENCODINGS[encoding](epsilon))
                labels = {"encoding": encoding, "epsilon": epsilon, "seed": seed}
                task = Training(log, machine(asked.scale), DISPLAY.hybrid(epsilon), seed)
                trainings.append(Labelled(labels, task))
    runs = Runs.of(trainings, asked, f"{NAME}: training")
    filed = file_results(
        asked,
        NAME,
        runs,
        data=data_words(asked, DISPLAY_LOG),
        unit=UNIT,
        relation=RELATION,
        parameters={"epsilons": list(epsilons), "rows": ROWS},
        began=began,
        draw=lambda path, subtitle: _draw(runs, epsilons, SHOWN[asked.scale], subtitle, path),
    )
    rows = [
        (
            str(epsilon),
            encoding,
            f"{np.mean(runs.figures('sensitive_rows', encoding=encoding, epsilon=epsilon)):,.0f}",
            words(mean(_percent(runs, encoding, epsilon))),
        )
        for epsilon in epsilons
        for encoding in SHOWN[asked.scale]
    ]
    columns = ("epsilon", "sensitive values", "sensitive rows", "AUC loss +%")
    return Outcome(columns, rows, filed.files, f"Hybrid. {filed.words}")


def judge(kept: Kept) -> list[Finding]:
    """Compared at the same size: the list that is known, as in the paper, against bins."""
    runs = Runs(kept.rows)
    epsilons = sorted({row["epsilon"] for row in runs.rows} - {None})
    hashed, listed = (
        np.mean([runs.figures("auc_loss", encoding=name, epsilon=epsilon) for epsilon in epsilons], axis=0)
        for name in (HASHED, LISTED)
    )
    ahead = 100 * (listed / hashed - 1)
    return [
        Finding(
            S11,
            f"mean AUC losses over all epsilons are within {ALIKE_PERCENT:g}%, and the vocabulary's is lower, "
            "95% over paired seeds",
            f"vocabulary {apart(ahead, 0 * ahead)}% against hashing",
            every((between(ahead, -ALIKE_PERCENT, ALIKE_PERCENT), below(listed, hashed))),
        )
    ]


def _percent(runs: Runs, encoding: str, epsilon: int) -> Floats:
    return runs.percent_over("auc_loss", {"encoding": None}, encoding=encoding, epsilon=epsilon)


def _draw(runs: Runs, epsilons: Sequence[int], encodings: Sequence[str], subtitle: str, path: Path) -> None:
    lines = []
    for encoding in encodings:
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
    (S11,),
    {Scale.TOY: 0.2, Scale.SMALL: 0.5, Scale.FULL: 200.0},
    SEEDS,
    run,
    judge,
)
