"""Figure 6: how much is disclosed, with 10 and with 50 ads; and the client alone, which tells a query only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import compared, coverage_at, measured, precision_at
from tacit.studies.contexts.contest import Found, contest
from tacit.studies.contexts.figures import panels, rises, said, stays, trade_off, within
from tacit.studies.contexts.serving import THRESHOLDS, Arm
from tacit.studies.contexts.setting import PAPER, SEEDS, outcome, sources
from tacit.studies.contexts.trial import EXACT, LAST, QUERY_ALONE
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.train.evaluation.estimates import Measured

NAME = "contexts-disclosure"
LIMITED = (1, 1, 1)
LEVELS = {"(0,0,0)": EXACT, "(1,1,1)": LIMITED, "(4,2,2)": LAST, "client alone": QUERY_ALONE}
LOOKS = dict.fromkeys(LEVELS, Mechanism.DISCLOSURE) | {"client alone": Mechanism.NON_PRIVATE}
FEW, MANY = 10, 50
COVERED, REACH = 0.4, 0.05
PRECISE = 0.75
AT_COVERAGE, AT_PRECISION = f"precision at coverage {COVERED:g}", f"coverage at precision {PRECISE:g}"
STATISTICS = {AT_COVERAGE: precision_at(COVERED), AT_PRECISION: coverage_at(PRECISE)}

M4 = Claim("M4", "figure 6", "disclosing (1,1,1) is about as good as disclosing everything")
M5 = Claim("M5", "figure 6", "sending more ads buys back what a coarser disclosure costs")
M6 = Claim(
    "M6",
    "section 5.3",
    "server and client together cover more than the client alone, at the same precision",
    "coverage .4 against .2 at precision .75; the rule tests the direction",
)

Arms = Mapping[tuple[str, int], Found]


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    several = {(name, ads): Arm(levels, ads) for ads in (FEW, MANY) for name, levels in LEVELS.items()}
    held = contest(asked, NAME, sources(asked), several)
    arms = held.found
    table, rows = [], []
    for (name, ads), arm in arms.items():
        for part, tally in arm.parts().items():
            figures = {metric: measured(tally, statistic) for metric, statistic in STATISTICS.items()}
            for metric, figure in figures.items():
                table.append(tabled.figure(figure, disclosed=name, ads=ads, requests=part, metric=metric))
            in_words = (said(each, otherwise="not reached") for each in figures.values())
            rows.append((name, f"{ads}", part, *in_words))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "levels": {k: list(v) for k, v in LEVELS.items()}},
        table=[*table, *_contrasts(arms)],
        columns=("disclosed", "ads", "requests", *STATISTICS),
        rows=rows,
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


COMPARED = {
    M4: (AT_COVERAGE, ("(1,1,1)", FEW), ("(0,0,0)", FEW)),
    M5: (AT_COVERAGE, ("(4,2,2)", MANY), ("(0,0,0)", FEW)),
    M6: (AT_PRECISION, ("(1,1,1)", FEW), ("client alone", FEW)),
}


def less(claim: Claim) -> str:
    """The contrast that a claim is judged by."""
    metric, *two = COMPARED[claim]
    return f"{metric}, " + " less ".join(f"{name} with {ads} ads" for name, ads in two)


def _contrasts(arms: Arms) -> Iterator[tabled.Row]:
    for claim, (metric, one, other) in COMPARED.items():
        found = compared(arms[one].everything, arms[other].everything, STATISTICS[metric])
        yield tabled.contrast(less(claim), found)


def judge(kept: Kept) -> list[Finding]:
    apart = {claim: tabled.contrast_of(kept, less(claim)) for claim in COMPARED}
    return [
        Finding(
            M4,
            f"with {FEW} ads, {AT_COVERAGE} within {REACH:g} of it, whole interval over people",
            _seen(kept, M4, apart[M4]),
            within(apart[M4], REACH),
        ),
        Finding(
            M5,
            f"{AT_COVERAGE} of (4,2,2) with {MANY} ads is not below that of (0,0,0) with {FEW}: the whole "
            "interval over people is at 0 or above; fails where all of it is below",
            f"{_seen(kept, M5, apart[M5])}; with {FEW} ads {_figure(kept, AT_COVERAGE, '(4,2,2)', FEW)}",
            stays(apart[M5]),
        ),
        Finding(
            M6,
            f"with {FEW} ads, (1,1,1) covers more than the query alone, {AT_PRECISION}, whole interval",
            _seen(kept, M6, apart[M6]),
            rises(apart[M6]),
        ),
    ]


def _seen(kept: Kept, claim: Claim, apart: Measured) -> str:
    metric, *two = COMPARED[claim]
    one, other = (_figure(kept, metric, *arm) for arm in two)
    return f"{said(apart)}: {one} against {other}"


def _figure(kept: Kept, metric: str, disclosed: str, ads: int) -> str:
    found = tabled.figure_of(kept, disclosed=disclosed, ads=ads, requests="all", metric=metric)
    return said(found, otherwise="not reached")


STUDY = Study(
    NAME,
    "Precision over coverage by what is disclosed",
    PAPER,
    "figure 6, section 5.3",
    (M4, M5, M6),
    {Scale.TOY: 0.1, Scale.SMALL: 0.6, Scale.FULL: 60.0},
    SEEDS,
    run,
    judge,
)
