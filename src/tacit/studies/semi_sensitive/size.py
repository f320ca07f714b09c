"""Figure 4: a smaller sensitive vocabulary at epsilon 12; the list of its values is known, or paid for.

A list that is known is cut to the likeliest values of each field, by the world's own law. A list that is not
known is selected privately from counts, and the training composes that selection into its epsilon.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tacit.studies.encodings import KnownDomain, Selected, Sensitive
from tacit.studies.filing import file_results, line
from tacit.studies.plotting import Mechanism, Panel, Series, line_figure
from tacit.studies.runs import Floats, Labelled, Runs, mean, words
from tacit.studies.semi_sensitive.recipe import (
    DISPLAY,
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
from tacit.studies.verdicts import at_most, below, said

NAME = "semi-sensitive-size"
EPSILON, CHEAPER = 12, 8
KNOWN, PAID = "list known", "list selected, paid for"
TENTH, FIFTIETH = 480, 70  # likeliest values a field: 2,888 and 595 rows where all values take 28,612
LISTS: dict[str, tuple[Sensitive, ...]] = {
    KNOWN: (KnownDomain(), KnownDomain(2_000), KnownDomain(TENTH), KnownDomain(150), KnownDomain(FIFTIETH)),
    PAID: tuple(Selected(threshold, 2, "5e-7") for threshold in (0, 128, 512, 2048)),
}
TOY_LISTS: dict[str, tuple[Sensitive, ...]] = {
    KNOWN: (KnownDomain(), KnownDomain(TENTH), KnownDomain(FIFTIETH)),
    PAID: (Selected(0, 6, "5e-7"),),
}
MEASURES = {"auc_loss": "AUC loss", "log_loss": "Log loss"}
FULL = {"list": KNOWN, "sensitive": repr(KnownDomain()), "epsilon": EPSILON}
PUBLISHED = {"auc_loss": ((10, 0.025), (50, 0.078)), "log_loss": ((10, 0.027), (50, 0.059))}  # times smaller, %
MOST_PERCENT = 0.1  # four times the published increase


def run(asked: Asked) -> Outcome:
    asked.refuse_data("the list of sensitive values is known only of a made-up world")
    began = time.monotonic()
    lists = TOY_LISTS if asked.scale is Scale.TOY else LISTS
    trainings = []
    for seed in range(1, asked.seeds + 1):
        for name, encodings in lists.items():
            for sensitive in encodings:
                log = display_log(asked, seed, sensitive=sensitive)
                labels = {"list": name, "sensitive": repr(sensitive), "epsilon": EPSILON, "seed": seed}
                method = DISPLAY.hybrid(EPSILON)
                trainings.append(Labelled(labels, Training(log, machine(asked.scale), method, seed)))
        labels = {**FULL, "epsilon": CHEAPER, "seed": seed}
        training = Training(display_log(asked, seed), machine(asked.scale), DISPLAY.hybrid(CHEAPER), seed)
        trainings.append(Labelled(labels, training))
    runs = Runs.of(trainings, asked, f"{NAME}: training")
    filed = file_results(
        asked,
        NAME,
        runs,
        data=f"display log, {size_words(asked)}",
        unit=UNIT,
        relation=RELATION,
        parameters={"epsilon": EPSILON, "lists": repr(lists)},
        began=began,
        draw=lambda path, subtitle: _draw(runs, lists, subtitle, path),
    )
    rows = [
        (
            name,
            f"{mean(runs.figures('sensitive_rows', **_labels(name, sensitive))).value:,.0f}",
            *(words(mean(_percent(runs, figure, name, sensitive)), 3) for figure in MEASURES),
        )
        for name, encodings in lists.items()
        for sensitive in encodings
    ]
    columns = ("list of values", "sensitive rows", "AUC loss +%", "log loss +%")
    note = f"Hybrid at epsilon {EPSILON}, against all values known. {filed.words}"
    return Outcome(columns, rows, judged(runs), filed.files, note)


def judged(runs: Runs) -> list[Finding]:
    tenth = _percent(runs, "auc_loss", KNOWN, KnownDomain(TENTH))
    fiftieth = _percent(runs, "auc_loss", KNOWN, KnownDomain(FIFTIETH))
    cheaper = runs.percent_over("auc_loss", FULL, **{**FULL, "epsilon": CHEAPER})
    return [
        Finding(
            "S10",
            "a ten times smaller sensitive vocabulary costs .025% of AUC loss, a fifty times smaller one .078%",
            f"ten times smaller costs at most {MOST_PERCENT}%, 95% over seeds",
            f"{said('ten times smaller', tenth, 3)}%, {said('fifty times', fiftieth, 3)}%",
            at_most(tenth, MOST_PERCENT),
        ),
        Finding(
            "S10",
            f"fifty times smaller at epsilon {EPSILON} is still better than all values at epsilon {CHEAPER}",
            "AUC loss is lower, 95% over paired seeds",
            f"{said('fifty times smaller', fiftieth, 3)}%, {said(f'epsilon {CHEAPER}', cheaper, 3)}%",
            below(fiftieth, cheaper),
        ),
    ]


def _labels(name: str, sensitive: Sensitive) -> dict[str, object]:
    return {"list": name, "sensitive": repr(sensitive), "epsilon": EPSILON}


def _percent(runs: Runs, figure: str, name: str, sensitive: Sensitive) -> Floats:
    return runs.percent_over(figure, FULL, **_labels(name, sensitive))


def _draw(runs: Runs, lists: dict[str, tuple[Sensitive, ...]], subtitle: str, path: Path) -> None:
    every = float(np.mean(runs.figures("sensitive_rows", **FULL)))
    panels = []
    for figure, title in MEASURES.items():
        lines = []
        for name, encodings in lists.items():
            rows = [mean(runs.figures("sensitive_rows", **_labels(name, each))).value for each in encodings]
            losses = [_percent(runs, figure, name, each) for each in encodings]
            lines.append(line(name, rows, losses, Mechanism.HYBRID))
        cheaper = mean(runs.percent_over(figure, FULL, **{**FULL, "epsilon": CHEAPER})).value
        smallest = min(float(np.min(line.columns[0])) for line in lines)
        lines.append(
            Series(
                f"all values, epsilon {CHEAPER}", [smallest, every], [cheaper] * 2, mechanism=Mechanism.HYBRID
            )
        )
        sizes, percents = zip(*PUBLISHED[figure], strict=True)
        lines.append(
            Series(
                "published",
                [every / times for times in sizes],
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


STUDY = Study(
    NAME,
    "AUC loss and log loss over the size of the sensitive vocabulary",
    PAPER,
    "figure 4",
    ("S10",),
    {Scale.TOY: 0.2, Scale.SMALL: 2.0, Scale.FULL: 130.0},
    SEEDS,
    run,
)
