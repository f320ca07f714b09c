"""Figures 4 and 5: a smaller sensitive vocabulary, and hash bins against a vocabulary of the same size.

Two studies. At epsilon 12 a list of values that is known is cut to the likeliest values of each field, by
the world's own law; a list that is not known is selected privately from counts, and the training composes
that selection into its epsilon. Over epsilon, bins are compared with a vocabulary that has as many rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tacit.arrays import Floats
from tacit_lab.studies.logs import Hashed, KnownDomain, Selected, Sensitive
from tacit_lab.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit_lab.studies.report import file_results, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import LabelledTask, Runs, TrainingTask, mean, words
from tacit_lab.studies.semi_sensitive.recipe import (
    DISPLAY,
    DISPLAY_LOG,
    EPSILONS,
    PAPER,
    RELATION,
    SEEDS,
    UNIT,
    data_words,
    display_log,
    factorization_machine,
)
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import at_most, below, between, every, signed_gap

SIZE_NAME = "semi-sensitive-size"
EPSILON, CHEAPER = 12, 8
KNOWN, LIST_PAID = "list known", "list selected, paid for"
TENTH, FIFTIETH = 480, 70  # likeliest values per field: 2,887 and 595 rows where all values take 28,612
Lists = Mapping[str, Sequence[Sensitive]]
SIZES = [KnownDomain(), KnownDomain(2_000), KnownDomain(TENTH), KnownDomain(150), KnownDomain(FIFTIETH)]
LISTS: dict[StudyScale, Lists] = {
    StudyScale.TOY: {
        KNOWN: [KnownDomain(), KnownDomain(TENTH), KnownDomain(FIFTIETH)],
        LIST_PAID: [Selected(0, 6, "5e-7")],
    },
    StudyScale.SMALL: {KNOWN: SIZES},
    StudyScale.FULL: {
        KNOWN: SIZES,
        LIST_PAID: [Selected(threshold, 2, "5e-7") for threshold in (0, 128, 512, 2048)],
    },
}
MEASURES = {"auc_loss": "AUC loss", "log_loss": "Log loss"}
FULL = {"list": KNOWN, "sensitive": repr(KnownDomain()), "epsilon": EPSILON}
PUBLISHED = {"auc_loss": ((10, 0.025), (50, 0.078)), "log_loss": ((10, 0.027), (50, 0.059))}  # times smaller, %
S10 = Claim(
    "S10",
    "figure 4, section 5.4.4",
    "a sensitive vocabulary ten or fifty times smaller costs almost nothing, less than going to epsilon 8",
    "AUC loss +.025% | +.078%; the rule tests at most .1%, and the direction",
)
MOST_PERCENT = 0.1  # "almost nothing": four times what is published for ten times smaller


def run_size(asked: StudyRequest) -> StudyOutcome:
    """Figure 4: a smaller sensitive vocabulary at epsilon 12; the list of its values is known, or paid for."""
    asked.refuse_data("the list of sensitive values is known only of a made-up world")
    began = time.monotonic()
    lists = LISTS[asked.scale]
    trainings = []
    for seed in range(1, asked.seeds + 1):
        for name, encodings in lists.items():
            for sensitive in encodings:
                log = display_log(asked, seed, sensitive=sensitive)
                labels = {"list": name, "sensitive": repr(sensitive), "epsilon": EPSILON, "seed": seed}
                method = DISPLAY.hybrid(EPSILON)
                trainings.append(
                    LabelledTask(labels, TrainingTask(log, factorization_machine(asked.scale), method, seed))
                )
        labels = {**FULL, "epsilon": CHEAPER, "seed": seed}
        training = TrainingTask(
            display_log(asked, seed), factorization_machine(asked.scale), DISPLAY.hybrid(CHEAPER), seed
        )
        trainings.append(LabelledTask(labels, training))
    runs = Runs.of(trainings, asked, f"{SIZE_NAME}: training")
    filed = file_results(
        asked,
        SIZE_NAME,
        runs,
        data=data_words(asked, DISPLAY_LOG),
        unit=UNIT,
        relation=RELATION,
        parameters={"epsilon": EPSILON, "lists": repr(lists)},
        began=began,
        draw=lambda path, subtitle: _draw_sizes(runs, lists, subtitle, path),
    )
    rows = [
        (
            name,
            f"{mean(runs.figures('sensitive_rows', **_labels(name, sensitive))).value:,.0f}",
            *(words(mean(_size_percent(runs, figure, name, sensitive)), 3) for figure in MEASURES),
        )
        for name, encodings in lists.items()
        for sensitive in encodings
    ]
    columns = ("list of values", "sensitive rows", "AUC loss +%", "log loss +%")
    note = f"Hybrid at epsilon {EPSILON}, against all values known. {filed.words}"
    return StudyOutcome(columns, rows, filed.files, note)


def judge_sizes(kept: ResultFiles) -> list[Finding]:
    runs = Runs(kept.rows)
    sizes = {"a tenth of the rows": TENTH, "a fiftieth of the rows": FIFTIETH}
    return [judge_size(runs, where, most) for where, most in sizes.items()]


def judge_size(runs: Runs, where: str, most: int) -> Finding:
    smaller = _size_percent(runs, "auc_loss", KNOWN, KnownDomain(most))
    cheaper = runs.percent_over("auc_loss", FULL, **{**FULL, "epsilon": CHEAPER})
    return Finding(
        S10,
        f"its AUC loss is at most {MOST_PERCENT}% above that of all values, and below that of all values at "
        f"epsilon {CHEAPER}, 95% over paired seeds",
        f"{signed_gap(smaller, 0 * smaller, 3)}%, epsilon {CHEAPER} {signed_gap(cheaper, 0 * cheaper, 3)}%",
        every([at_most(smaller, MOST_PERCENT), below(smaller, cheaper)]),
        where,
    )


def _labels(name: str, sensitive: Sensitive) -> dict[str, object]:
    return {"list": name, "sensitive": repr(sensitive), "epsilon": EPSILON}


def _size_percent(runs: Runs, figure: str, name: str, sensitive: Sensitive) -> Floats:
    return runs.percent_over(figure, FULL, **_labels(name, sensitive))


def _draw_sizes(runs: Runs, lists: Lists, subtitle: str, path: Path) -> None:
    full = float(np.mean(runs.figures("sensitive_rows", **FULL)))
    panels = []
    for figure, title in MEASURES.items():
        lines = []
        for name, encodings in lists.items():
            rows = [mean(runs.figures("sensitive_rows", **_labels(name, each))).value for each in encodings]
            losses = [_size_percent(runs, figure, name, each) for each in encodings]
            lines.append(mean_line(name, rows, losses, Mechanism.HYBRID))
        cheaper = mean(runs.percent_over(figure, FULL, **{**FULL, "epsilon": CHEAPER})).value
        smallest = min(float(np.min(line.columns[0])) for line in lines)
        lines.append(
            Series(
                f"all values, epsilon {CHEAPER}", [smallest, full], [cheaper] * 2, mechanism=Mechanism.HYBRID
            )
        )
        sizes, percents = zip(*PUBLISHED[figure], strict=True)
        lines.append(
            Series(
                "published",
                [full / times for times in sizes],
                percents,
                mechanism=Mechanism.HYBRID,
                published=True,
            )
        )
        panels.append(Panel(title, lines))
    line_figure(
        panels,
        subtitle=subtitle,
        x_label="rows of the sensitive table",
        y_label=f"increase over all values at epsilon {EPSILON}, %",
        path=path,
        log_x_ticks=(300, 1_000, 3_000, 10_000, 30_000),
        share_y=False,
    )


SIZE_STUDY = Study(
    SIZE_NAME,
    "AUC loss and log loss over the size of the sensitive vocabulary",
    PAPER,
    "figure 4",
    (S10,),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.4, StudyScale.FULL: 130.0},
    SEEDS,
    run_size,
    judge_sizes,
)


HASHING_NAME = "semi-sensitive-hashing"
ROWS, MOST = 2_888, 480  # the likeliest 480 values per field make one of 2,887 rows
HASHED, LISTED, PAID = "hashing", "vocabulary, list known", "vocabulary, selected and paid for"
ENCODINGS: dict[str, Callable[[int], Sensitive]] = {
    HASHED: lambda _: Hashed(ROWS),
    LISTED: lambda _: KnownDomain(MOST),
    PAID: lambda epsilon: Selected(0, f"{epsilon}/6", "5e-7"),
}
SHOWN = {StudyScale.TOY: (*ENCODINGS,), StudyScale.SMALL: (HASHED, LISTED), StudyScale.FULL: (*ENCODINGS,)}
ALIKE_PERCENT = 1.0
S11 = Claim(
    "S11",
    "figure 5",
    "hashing and a thresholded vocabulary are alike at the same size, the vocabulary slightly ahead",
)


def run_hashing(asked: StudyRequest) -> StudyOutcome:
    """Figure 5: bins against a vocabulary of the same size, over epsilon."""
    asked.refuse_data("the list of sensitive values is known only of a made-up world")
    began = time.monotonic()
    epsilons = EPSILONS[asked.scale]
    trainings = []
    for seed in range(1, asked.seeds + 1):
        base = TrainingTask(
            display_log(asked, seed), factorization_machine(asked.scale), DISPLAY.non_private, seed
        )
        trainings.append(LabelledTask({"encoding": None, "epsilon": None, "seed": seed}, base))
        for epsilon in epsilons:
            for encoding in SHOWN[asked.scale]:
                log = display_log(asked, seed, sensitive=ENCODINGS[encoding](epsilon))
                labels = {"encoding": encoding, "epsilon": epsilon, "seed": seed}
                task = TrainingTask(log, factorization_machine(asked.scale), DISPLAY.hybrid(epsilon), seed)
                trainings.append(LabelledTask(labels, task))
    runs = Runs.of(trainings, asked, f"{HASHING_NAME}: training")
    filed = file_results(
        asked,
        HASHING_NAME,
        runs,
        data=data_words(asked, DISPLAY_LOG),
        unit=UNIT,
        relation=RELATION,
        parameters={"epsilons": list(epsilons), "rows": ROWS},
        began=began,
        draw=lambda path, subtitle: _draw_hashing(runs, epsilons, SHOWN[asked.scale], subtitle, path),
    )
    rows = [
        (
            str(epsilon),
            encoding,
            f"{np.mean(runs.figures('sensitive_rows', encoding=encoding, epsilon=epsilon)):,.0f}",
            words(mean(_hashing_percent(runs, encoding, epsilon))),
        )
        for epsilon in epsilons
        for encoding in SHOWN[asked.scale]
    ]
    columns = ("epsilon", "sensitive values", "sensitive rows", "AUC loss +%")
    return StudyOutcome(columns, rows, filed.files, f"Hybrid. {filed.words}")


def judge_hashing(kept: ResultFiles) -> list[Finding]:
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
            f"vocabulary {signed_gap(ahead, 0 * ahead)}% against hashing",
            every((between(ahead, -ALIKE_PERCENT, ALIKE_PERCENT), below(listed, hashed))),
        )
    ]


def _hashing_percent(runs: Runs, encoding: str, epsilon: int) -> Floats:
    return runs.percent_over("auc_loss", {"encoding": None}, encoding=encoding, epsilon=epsilon)


def _draw_hashing(
    runs: Runs, epsilons: Sequence[int], encodings: Sequence[str], subtitle: str, path: Path
) -> None:
    lines = []
    for encoding in encodings:
        losses = [_hashing_percent(runs, encoding, epsilon) for epsilon in epsilons]
        lines.append(mean_line(encoding, epsilons, losses, Mechanism.HYBRID))
    line_figure(
        [Panel("Hybrid, display ads", lines)],
        subtitle=subtitle,
        x_label="epsilon",
        y_label="AUC loss over the non-private model, all values known, %",
        path=path,
        log_x_ticks=epsilons,
    )


HASHING_STUDY = Study(
    HASHING_NAME,
    "AUC loss over epsilon, with bins and with a vocabulary of the same size",
    PAPER,
    "figure 5",
    (S11,),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.5, StudyScale.FULL: 200.0},
    SEEDS,
    run_hashing,
    judge_hashing,
)
