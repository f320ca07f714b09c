"""Figure 6: how much is disclosed, with 10 and 50 ads; and which part of a context is worth disclosing.

Two studies. The first has levels of disclosure, and the client alone, which tells a query only. The second
has bits against precision, for several levels of the lattice: a level tells its entropy on average, that of
its nodes among the visits that were counted. With a minimum of users, a node with fewer is disclosed as the
rest of the one above it, with the others like it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tacit.arrays import Integers
from tacit.deliver.protocol.cuts import finest_cut_with_remainders
from tacit.deliver.protocol.minimum_users import MinimumUsers
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.tree import ANYTHING, Tree
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    bootstrap_interval,
    compare,
    coverage_at,
    interval_line,
    make_panels,
    measure,
    precision_at,
    rises,
    say,
    stays,
    trade_off_line,
    within,
)
from tacit_lab.studies.contexts.contest import NOTHING, THRESHOLDS, ArmTallies, ServingArm, run_contest
from tacit_lab.studies.contexts.setting import OF_VISITS, OURS, PAPER, SEEDS, trial_sources, write_outcome
from tacit_lab.studies.contexts.trial import EXACT, LAST, QUERY_ALONE, VisitsTrial
from tacit_lab.studies.plotting import Mechanism
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

DISCLOSURE_NAME = "contexts-disclosure"
LIMITED = (1, 1, 1)
LEVELS = {"(0,0,0)": EXACT, "(1,1,1)": LIMITED, "(4,2,2)": LAST, "client alone": QUERY_ALONE}
LOOKS = dict.fromkeys(LEVELS, Mechanism.DISCLOSURE) | {"client alone": Mechanism.NON_PRIVATE}
FEW, MANY = 10, 50
DISCLOSURE_COVERED, REACH = 0.4, 0.05
PRECISE = 0.75
AT_COVERAGE, AT_PRECISION = (
    f"precision at coverage {DISCLOSURE_COVERED:g}",
    f"coverage at precision {PRECISE:g}",
)
STATISTICS = {AT_COVERAGE: precision_at(DISCLOSURE_COVERED), AT_PRECISION: coverage_at(PRECISE)}

M4 = Claim("M4", "figure 6", "disclosing (1,1,1) is about as good as disclosing everything")
M5 = Claim("M5", "figure 6", "sending more ads buys back what a coarser disclosure costs")
M6 = Claim(
    "M6",
    "section 5.3",
    "server and client together cover more than the client alone, at the same precision",
    "coverage .4 against .2 at precision .75; the rule tests the direction",
)

Arms = Mapping[tuple[str, int], ArmTallies]


def run_disclosure(asked: StudyRequest) -> StudyOutcome:
    """Figure 6: how much is disclosed, with 10 and with 50 ads; and the client alone, which tells a query
    only."""
    began = time.monotonic()
    several = {(name, ads): ServingArm(levels, ads) for ads in (FEW, MANY) for name, levels in LEVELS.items()}
    held = run_contest(asked, DISCLOSURE_NAME, trial_sources(asked), several)
    arms = held.found
    table, rows = [], []
    for (name, ads), arm in arms.items():
        for part, tally in arm.parts().items():
            figures = {metric: measure(tally, statistic) for metric, statistic in STATISTICS.items()}
            for metric, figure in figures.items():
                table.append(
                    bootstrap.figure_row(figure, disclosed=name, ads=ads, requests=part, metric=metric)
                )
            in_words = (say(each, otherwise="not reached") for each in figures.values())
            rows.append((name, f"{ads}", part, *in_words))
    return write_outcome(
        DISCLOSURE_NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "levels": {k: list(v) for k, v in LEVELS.items()}},
        table=[*table, *_contrasts(arms)],
        columns=("disclosed", "ads", "requests", *STATISTICS),
        rows=rows,
        panels=make_panels(
            (
                f"{ads} ads, {title}",
                [trade_off_line(name, getattr(arms[name, ads], part), LOOKS[name]) for name in LEVELS],
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


def disclosure_contrast(claim: Claim) -> str:
    """The contrast that a claim is judged by."""
    metric, *two = COMPARED[claim]
    return f"{metric}, " + " less ".join(f"{name} with {ads} ads" for name, ads in two)


def _contrasts(arms: Arms) -> Iterator[bootstrap.Row]:
    for claim, (metric, one, other) in COMPARED.items():
        found = compare(arms[one].everything, arms[other].everything, STATISTICS[metric])
        yield bootstrap.contrast_row(disclosure_contrast(claim), found)


def judge_disclosure(kept: ResultFiles) -> list[Finding]:
    apart = {claim: bootstrap.read_contrast(kept, disclosure_contrast(claim)) for claim in COMPARED}
    return [
        Finding(
            M4,
            f"with {FEW} ads, {AT_COVERAGE} within {REACH:g} of it, whole interval over people",
            _contrast_words(kept, M4, apart[M4]),
            within(apart[M4], REACH),
        ),
        Finding(
            M5,
            f"{AT_COVERAGE} of (4,2,2) with {MANY} ads is not below that of (0,0,0) with {FEW}: the whole "
            "interval over people is at 0 or above; fails where all of it is below",
            f"{_contrast_words(kept, M5, apart[M5])}; with {FEW} ads "
            f"{_figure(kept, AT_COVERAGE, '(4,2,2)', FEW)}",
            stays(apart[M5]),
        ),
        Finding(
            M6,
            f"with {FEW} ads, (1,1,1) covers more than the query alone, {AT_PRECISION}, whole interval",
            _contrast_words(kept, M6, apart[M6]),
            rises(apart[M6]),
        ),
    ]


def _contrast_words(kept: ResultFiles, claim: Claim, apart: MeasuredValue) -> str:
    metric, *two = COMPARED[claim]
    one, other = (_figure(kept, metric, *arm) for arm in two)
    return f"{say(apart)}: {one} against {other}"


def _figure(kept: ResultFiles, metric: str, disclosed: str, ads: int) -> str:
    found = bootstrap.read_figure(kept, disclosed=disclosed, ads=ads, requests="all", metric=metric)
    return say(found, otherwise="not reached")


DISCLOSURE_STUDY = Study(
    DISCLOSURE_NAME,
    "Precision over coverage by what is disclosed",
    PAPER,
    "figure 6, section 5.3",
    (M4, M5, M6),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.6, StudyScale.FULL: 60.0},
    SEEDS,
    run_disclosure,
    judge_disclosure,
    OF_VISITS,
)


CUT_NAME = "contexts-cut"
COARSE_AND_KIND = (4, 2, 1)
KINDS: tuple[Levels, ...] = ((6, 2, 1), (5, 2, 1), COARSE_AND_KIND, (3, 2, 1))
ROOTS: tuple[Levels, ...] = ((6, 2, 2), (5, 2, 2), LAST, (3, 2, 2), (2, 2, 2))
WITH_KIND, WITH_ROOT, MANY_ENOUGH = "kind of place asked for", "its root only", "kind, at least 10 users"
LINES = {WITH_ROOT: ROOTS, WITH_KIND: KINDS, MANY_ENOUGH: (COARSE_AND_KIND,)}
USERS = 10
CUT_COVERED = 0.3

OFFERED = (WITH_KIND, MANY_ENOUGH)

T10 = Claim(
    "T10",
    "figure 6, finer cell and root",
    "bit for bit, a coarse cell and the kind of place are worth more than a finer cell and the kind's root",
)

Disclosed = tuple[str, Levels]


@dataclass(frozen=True)
class AtLeastUsers:
    """People disclose a node that many are in, or else the rest of a coarser one, with the others like it."""

    users: int

    def __call__(self, trial: VisitsTrial, levels: Levels) -> Integers:
        return disclose_with_users(trial, levels, self.users)


def disclose_with_users(trial: VisitsTrial, levels: Levels, fewest: int) -> Integers:
    """(contexts,) what is disclosed under a minimum of users: nodes of these levels, or rests of coarser ones.

    A context that only the rest of everything would hold discloses nothing, and is NOTHING.
    """
    fine, coarse = trial.disclosed(levels), trial.disclosed(LAST)
    named = dict(zip((f"fine {each}" for each in fine), (f"coarse {each}" for each in coarse), strict=True))
    tree = Tree(
        [(ANYTHING, None), *((each, ANYTHING) for each in dict.fromkeys(named.values())), *named.items()]
    )
    users = {f"fine {node}": count for node, count in enumerate(trial.users(fine).tolist())}
    users |= {f"coarse {node}": count for node, count in enumerate(trial.users(coarse).tolist())}
    users[ANYTHING] = len(np.unique(trial.trace.user[trial.learnt]))
    safe = MinimumUsers(tree, users, fewest)
    cut = finest_cut_with_remainders(tree, safe, safe.size)
    if cut is None:
        return np.full(len(fine), NOTHING)
    number = {block: at for at, block in enumerate(cut.blocks)}
    number |= {block: NOTHING for block in cut.blocks if block.node == ANYTHING}
    of_node = np.array([number[cut.of(f"fine {node}")] for node in range(int(fine.max()) + 1)])
    return of_node[fine]


def run_cut(asked: StudyRequest) -> StudyOutcome:
    """Which part of a context is worth disclosing: bits against precision, for several levels of the
    lattice."""
    began = time.monotonic()
    several = {
        (name, each): ServingArm(each, disclose=AtLeastUsers(USERS))
        if name == MANY_ENOUGH
        else ServingArm(each)
        for name, levels in LINES.items()
        for each in levels
    }
    held = run_contest(asked, CUT_NAME, trial_sources(asked), several)
    arms, bits_of = held.found, held.bits
    at = precision_at(CUT_COVERED)
    table, rows = [], []
    for (name, levels), arm in arms.items():
        for part, tally in arm.parts().items():
            figure = measure(tally, at)
            table.append(
                bootstrap.figure_row(
                    figure, disclosed=name, levels=str(levels), bits=bits_of[name, levels], requests=part
                )
            )
            in_words = say(figure, otherwise="not reached")
            rows.append((name, str(levels), f"{bits_of[name, levels]:.1f}", part, in_words))
    return write_outcome(
        CUT_NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "covered": CUT_COVERED, "minimum_users": USERS},
        table=[
            *table,
            *(
                bootstrap.contrast_row(cut_contrast(name), _measure_gain(arms, bits_of, name))
                for name in OFFERED
            ),
        ],
        columns=("disclosed", "levels", "bits", "requests", f"precision at coverage {CUT_COVERED:g}"),
        rows=rows,
        panels=make_panels(
            (
                (
                    title,
                    [
                        interval_line(
                            name,
                            [bits_of[name, each] for each in levels],
                            [measure(getattr(arms[name, each], part), at) for each in levels],
                            Mechanism.DISCLOSURE if name == WITH_ROOT else Mechanism.OURS,
                        )
                        for name, levels in LINES.items()
                    ],
                )
                for part, title in (("everything", "All requests"), ("discovery", "First visits"))
            ),
            needed=f"a log of which some threshold covers less than {CUT_COVERED:g} and another covers more",
        ),
        axes=Axes("bits disclosed", f"precision at coverage {CUT_COVERED:g}", share_y=True),
    )


def cut_contrast(name: str) -> str:
    return f"precision at coverage {CUT_COVERED:g}, {name} less the line of {WITH_ROOT}"


def levels_around(told: Mapping[Disclosed, float], name: str) -> tuple[Disclosed, Disclosed]:
    """The two levels with a root that tell fewer and more bits than ours."""
    ours = told[name, COARSE_AND_KIND]
    roots = sorted((each for each in told if each[0] == WITH_ROOT), key=told.__getitem__)
    fewer = max((each for each in roots if told[each] <= ours), key=told.__getitem__, default=roots[0])
    more = min((each for each in roots if told[each] > ours), key=told.__getitem__, default=roots[-1])
    return fewer, more


def _measure_gain(
    arms: Mapping[Disclosed, ArmTallies], told: Mapping[Disclosed, float], name: str
) -> MeasuredValue:
    """Against the roots' line between the two levels that tell fewer and more bits."""
    ours, (fewer, more) = (name, COARSE_AND_KIND), levels_around(told, name)
    apart = told[more] - told[fewer]
    share = (told[ours] - told[fewer]) / apart if apart else np.nan  # no line between one level and itself
    at = precision_at(CUT_COVERED)
    of_ours, of_fewer, of_more = (at(*arms[each].everything.curves) for each in (ours, fewer, more))
    return bootstrap_interval(of_ours - (1 - share) * of_fewer - share * of_more)


def judge_cut(kept: ResultFiles) -> list[Finding]:
    written = {(name, str(each)): (name, each) for name, levels in LINES.items() for each in levels}
    told = {
        written[str(row["disclosed"]), str(row["levels"])]: float(row["bits"] or 0)
        for row in kept.rows
        if row["kind"] == bootstrap.FIGURE
    }
    return [_worth_more(kept, told, name) for name in OFFERED]


def _worth_more(kept: ResultFiles, told: Mapping[Disclosed, float], name: str) -> Finding:
    gained, (fewer, more) = bootstrap.read_contrast(kept, cut_contrast(name)), levels_around(told, name)
    return Finding(
        T10,
        f"precision of {COARSE_AND_KIND} at coverage {CUT_COVERED:g} is above the line between the two levels "
        "with a root that tell fewer and more bits, whole interval over people",
        f"{say(gained)} at {told[name, COARSE_AND_KIND]:.1f} bits, between {told[fewer]:.1f} and "
        f"{told[more]:.1f}",
        rises(gained),
        where=name,
    )


CUT_STUDY = Study(
    CUT_NAME,
    "What is worth disclosing, bit for bit",
    OURS,
    "beside figure 6",
    (T10,),
    {StudyScale.TOY: 0.2, StudyScale.SMALL: 0.9, StudyScale.FULL: 90.0},
    SEEDS,
    run_cut,
    judge_cut,
    OF_VISITS,
)
