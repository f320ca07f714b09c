"""Figure 6: how much is disclosed, with 10 and with 50 ads; and the client alone, which tells a query only."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tacit.studies.contexts.clustered import Tally, compared, coverage_at, measured, precision_at
from tacit.studies.contexts.figures import cells, panels, rises, said, trade_off, within
from tacit.studies.contexts.serving import Arm
from tacit.studies.contexts.setting import (
    PAPER,
    SEEDS,
    THRESHOLDS,
    Found,
    contest,
    outcome,
)
from tacit.studies.contexts.trial import EXACT, LAST, QUERY_ALONE
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "contexts-disclosure"
LIMITED = (1, 1, 1)
LEVELS = {"(0,0,0)": EXACT, "(1,1,1)": LIMITED, "(4,2,2)": LAST, "client alone": QUERY_ALONE}
LOOKS = dict.fromkeys(LEVELS, Mechanism.DISCLOSURE) | {"client alone": Mechanism.NON_PRIVATE}
FEW, MANY = 10, 50
COVERED, REACH = 0.4, 0.05
PRECISE = 0.75

Arms = Mapping[tuple[str, int], Found]


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    several = {(name, ads): Arm(levels, ads) for ads in (FEW, MANY) for name, levels in LEVELS.items()}
    held = contest(asked, NAME, lambda _: several)
    arms = held.found
    statistics = {
        f"precision at coverage {COVERED:g}": precision_at(COVERED),
        f"coverage at precision {PRECISE:g}": coverage_at(PRECISE),
    }
    table, rows = [], []
    for (name, ads), arm in arms.items():
        for part, tally in arm.parts().items():
            figures = {metric: measured(tally, statistic) for metric, statistic in statistics.items()}
            for metric, figure in figures.items():
                label = {"disclosed": name, "ads": ads, "requests": part, "metric": metric}
                table.append({**label, **cells(figure)})
            in_words = (said(each, otherwise="not reached") for each in figures.values())
            rows.append((name, f"{ads}", part, *in_words))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "levels": {k: list(v) for k, v in LEVELS.items()}},
        table=table,
        columns=("disclosed", "ads", "requests", *statistics),
        rows=rows,
        findings=[_as_good(arms), _bought_back(arms), _against_client(arms)],
        panels=panels(
            (
                f"{ads} ads, {title}",
                [trade_off(name, getattr(arms[name, ads], part), LOOKS[name]) for name in LEVELS],
            )
            for part, title in (("everything", "all requests"), ("discovery", "first visits"))
            for ads in (FEW, MANY)
        ),
        axes=Axes("coverage", "precision", share_y=True),
    )


def _tally(arms: Arms, name: str, ads: int) -> Tally:
    return arms[name, ads].everything


def _as_good(arms: Arms) -> Finding:
    at = precision_at(COVERED)
    one, other = (_tally(arms, name, FEW) for name in ("(1,1,1)", "(0,0,0)"))
    return Finding(
        "M4",
        "disclosing (1,1,1) is about as good as disclosing all",
        f"with {FEW} ads, precision at coverage {COVERED:g} within {REACH:g} of it, whole interval over people",
        f"{said(measured(one, at))} against {said(measured(other, at))}",
        within(compared(one, other, at), REACH),
    )


def _bought_back(arms: Arms) -> Finding:
    found = compared(_tally(arms, "(4,2,2)", MANY), _tally(arms, "(4,2,2)", FEW), precision_at(COVERED))
    return Finding(
        "M5",
        "more ads buy back what less disclosure costs",
        f"at (4,2,2) precision at coverage {COVERED:g} rises from {FEW} to {MANY} ads, whole interval",
        said(found),
        rises(found),
    )


def _against_client(arms: Arms) -> Finding:
    both, alone = _tally(arms, "(1,1,1)", FEW), _tally(arms, "client alone", FEW)
    at = coverage_at(PRECISE)
    return Finding(
        "M6",
        "server and client together cover twice as much as the client alone at precision .75 (.4 against .2)",
        f"with {FEW} ads, (1,1,1) covers more than the query alone at precision {PRECISE:g}, whole interval",
        f"{said(measured(both, at))} against {said(measured(alone, at))}",
        rises(compared(both, alone, at)),
    )


STUDY = Study(
    NAME,
    "Precision over coverage by what is disclosed",
    PAPER,
    "figure 6, section 5.3",
    ("M4", "M5", "M6"),
    {Scale.TOY: 0.1, Scale.SMALL: 2.0, Scale.FULL: 60.0},
    SEEDS,
    run,
)
