"""Rates shrunk toward the more general context, against those of the lowest context with two visits."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tacit.deliver.estimates.shrinkage import Shrinkage
from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import compared, measured, precision_at
from tacit.studies.contexts.contest import Found, contest
from tacit.studies.contexts.disclosure import LIMITED
from tacit.studies.contexts.figures import panels, rises, said, trade_off
from tacit.studies.contexts.serving import THRESHOLDS, Arm
from tacit.studies.contexts.setting import OURS, SEEDS, outcome, sources
from tacit.studies.contexts.trial import LAST
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.train.evaluation.estimates import Measured

NAME = "contexts-shrinkage"
LEVELS = {"(1,1,1)": LIMITED, "(4,2,2)": LAST}
COVERED = 0.4
STRENGTH = 4.0
BACK_OFF, SHRUNK = "back-off", "shrinkage"
LOOKS = {BACK_OFF: Mechanism.DISCLOSURE, SHRUNK: Mechanism.OURS}

T9 = Claim(
    "T9",
    "back-off as in section 4.4",
    "rates shrunk toward the more general context are more precise than backing off to it",
)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    several = {(name, BACK_OFF): Arm(levels) for name, levels in LEVELS.items()}
    several |= {(name, SHRUNK): Arm(levels, estimator=Shrinkage(STRENGTH)) for name, levels in LEVELS.items()}
    held = contest(asked, NAME, sources(asked), several)
    arms = held.found
    at = precision_at(COVERED)
    table, rows = [], []
    for (name, estimates), arm_found in arms.items():
        for part, tally in arm_found.parts().items():
            figure = measured(tally, at)
            table.append(tabled.figure(figure, disclosed=name, estimates=estimates, requests=part))
            rows.append((name, estimates, part, said(figure, otherwise="not reached")))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "strength": STRENGTH, "covered": COVERED},
        table=[*table, *(tabled.contrast(less(name), _gained(arms, name)) for name in LEVELS)],
        columns=("disclosed", "estimates", "requests", f"precision at coverage {COVERED:g}"),
        rows=rows,
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


def less(name: str) -> str:
    return f"precision at coverage {COVERED:g}, {SHRUNK} less {BACK_OFF}, {name}"


def _gained(arms: Mapping[tuple[str, str], Found], name: str) -> Measured:
    return compared(arms[name, SHRUNK].everything, arms[name, BACK_OFF].everything, precision_at(COVERED))


def judge(kept: Kept) -> list[Finding]:
    return [_better(kept, name) for name in LEVELS]


def _better(kept: Kept, name: str) -> Finding:
    gained = tabled.contrast_of(kept, less(name))
    before, after = (
        said(tabled.figure_of(kept, disclosed=name, estimates=each, requests="all"), otherwise="not reached")
        for each in (BACK_OFF, SHRUNK)
    )
    return Finding(
        T9,
        f"precision at coverage {COVERED:g} rises, whole interval over people",
        f"{said(gained)}: from {before} to {after}",
        rises(gained),
        where=name,
    )


STUDY = Study(
    NAME,
    "Shrinkage against back-off",
    OURS,
    "beside figure 6",
    (T9,),
    {Scale.TOY: 0.1, Scale.SMALL: 0.5, Scale.FULL: 60.0},
    SEEDS,
    run,
    judge,
)
