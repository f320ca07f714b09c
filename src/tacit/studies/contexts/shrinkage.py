"""Rates shrunk toward the more general context, against those of the lowest context with two visits."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tacit.deliver.estimates.shrinkage import Shrinkage
from tacit.studies.contexts.clustered import compared, measured, precision_at
from tacit.studies.contexts.disclosure import LIMITED
from tacit.studies.contexts.figures import cells, panels, rises, said, trade_off
from tacit.studies.contexts.serving import Arm
from tacit.studies.contexts.setting import OURS, SEEDS, THRESHOLDS, Found, contest, outcome
from tacit.studies.contexts.trial import LAST
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "contexts-shrinkage"
LEVELS = {"(1,1,1)": LIMITED, "(4,2,2)": LAST}
COVERED = 0.4
STRENGTH = 4.0
BACK_OFF, SHRUNK = "back-off", "shrinkage"
LOOKS = {BACK_OFF: Mechanism.DISCLOSURE, SHRUNK: Mechanism.OURS}


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    several = {(name, BACK_OFF): Arm(levels) for name, levels in LEVELS.items()}
    several |= {(name, SHRUNK): Arm(levels, estimator=Shrinkage(STRENGTH)) for name, levels in LEVELS.items()}
    held = contest(asked, NAME, lambda _: several)
    arms = held.found
    at = precision_at(COVERED)
    table, rows = [], []
    for (name, estimates), arm_found in arms.items():
        for part, tally in arm_found.parts().items():
            figure = measured(tally, at)
            table.append({"disclosed": name, "estimates": estimates, "requests": part, **cells(figure)})
            rows.append((name, estimates, part, said(figure, otherwise="not reached")))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "strength": STRENGTH, "covered": COVERED},
        table=table,
        columns=("disclosed", "estimates", "requests", f"precision at coverage {COVERED:g}"),
        rows=rows,
        findings=[_better(arms, name) for name in LEVELS],
        panels=panels(
            (
                f"{name}, {title}",
                [trade_off(each, getattr(arms[name, each], part), LOOKS[each]) for each in LOOKS],
            )
            for part, title in (("everything", "all requests"), ("discovery", "first visits"))
            for name in LEVELS
        ),
        axes=Axes("coverage", "precision", share_y=True),
    )


def _better(arms: Mapping[tuple[str, str], Found], name: str) -> Finding:
    gained = compared(arms[name, SHRUNK].everything, arms[name, BACK_OFF].everything, precision_at(COVERED))
    return Finding(
        "T9",
        f"shrinkage toward the more general context is more precise than backing off to it, at {name}",
        f"precision at coverage {COVERED:g} rises, whole interval over people",
        said(gained),
        rises(gained),
    )


STUDY = Study(
    NAME,
    "Shrinkage against back-off",
    OURS,
    "beside figure 6",
    ("T9",),
    {Scale.TOY: 0.1, Scale.SMALL: 2.0, Scale.FULL: 60.0},
    SEEDS,
    run,
)
