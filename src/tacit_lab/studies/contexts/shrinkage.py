"""Rates shrunk toward the more general context, against those of the lowest context with two visits."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tacit.deliver.server.shrinkage import Shrinkage
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    compare,
    make_panels,
    measure,
    precision_at,
    rises,
    say,
    trade_off_line,
)
from tacit_lab.studies.contexts.contest import THRESHOLDS, ArmTallies, ServingArm, run_contest
from tacit_lab.studies.contexts.disclosure import LIMITED
from tacit_lab.studies.contexts.setting import OF_VISITS, OURS, SEEDS, trial_sources, write_outcome
from tacit_lab.studies.contexts.trial import LAST
from tacit_lab.studies.plotting import Mechanism
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

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


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    several = {(name, BACK_OFF): ServingArm(levels) for name, levels in LEVELS.items()}
    several |= {
        (name, SHRUNK): ServingArm(levels, estimator=Shrinkage(STRENGTH)) for name, levels in LEVELS.items()
    }
    held = run_contest(asked, NAME, trial_sources(asked), several)
    arms = held.found
    at = precision_at(COVERED)
    table, rows = [], []
    for (name, estimates), arm_found in arms.items():
        for part, tally in arm_found.parts().items():
            figure = measure(tally, at)
            table.append(bootstrap.figure_row(figure, disclosed=name, estimates=estimates, requests=part))
            rows.append((name, estimates, part, say(figure, otherwise="not reached")))
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "strength": STRENGTH, "covered": COVERED},
        table=[
            *table,
            *(bootstrap.contrast_row(estimate_contrast(name), _measure_gain(arms, name)) for name in LEVELS),
        ],
        columns=("disclosed", "estimates", "requests", f"precision at coverage {COVERED:g}"),
        rows=rows,
        panels=make_panels(
            (
                f"{name}, {title}",
                [trade_off_line(each, getattr(arms[name, each], part), LOOKS[each]) for each in LOOKS],
            )
            for part, title in (("everything", "all requests"), ("discovery", "first visits"))
            for name in LEVELS
        ),
        axes=Axes("coverage", "precision", share_y=True),
    )


def estimate_contrast(name: str) -> str:
    return f"precision at coverage {COVERED:g}, {SHRUNK} less {BACK_OFF}, {name}"


def _measure_gain(arms: Mapping[tuple[str, str], ArmTallies], name: str) -> MeasuredValue:
    return compare(arms[name, SHRUNK].everything, arms[name, BACK_OFF].everything, precision_at(COVERED))


def judge(kept: ResultFiles) -> list[Finding]:
    return [_better(kept, name) for name in LEVELS]


def _better(kept: ResultFiles, name: str) -> Finding:
    gained = bootstrap.read_contrast(kept, estimate_contrast(name))
    before, after = (
        say(
            bootstrap.read_figure(kept, disclosed=name, estimates=each, requests="all"), otherwise="not reached"
        )
        for each in (BACK_OFF, SHRUNK)
    )
    return Finding(
        T9,
        f"precision at coverage {COVERED:g} rises, whole interval over people",
        f"{say(gained)}: from {before} to {after}",
        rises(gained),
        where=name,
    )


STUDY = Study(
    NAME,
    "Shrinkage against back-off",
    OURS,
    "beside figure 6",
    (T9,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.5, StudyScale.FULL: 60.0},
    SEEDS,
    run,
    judge,
    OF_VISITS,
)
