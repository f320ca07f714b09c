"""Which part of a context is worth disclosing: bits against precision, for several levels of the lattice.

A level tells so many bits on average: the entropy of its nodes among the visits that were counted. With a
minimum of users, a node with fewer is disclosed as the rest of the one above it, with the others like it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.deliver.disclosure.remainders import finest_cut_with_rests
from tacit.deliver.disclosure.users import MinimumUsers
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.tree import ANYTHING, Tree
from tacit.studies.contexts import tabled
from tacit.studies.contexts.clustered import interval, measured, precision_at
from tacit.studies.contexts.contest import Found, contest
from tacit.studies.contexts.figures import line, panels, rises, said
from tacit.studies.contexts.serving import NOTHING, THRESHOLDS, Arm
from tacit.studies.contexts.setting import OURS, SEEDS, outcome, sources
from tacit.studies.contexts.trace import Integers
from tacit.studies.contexts.trial import LAST, Trial
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.train.evaluation.estimates import Measured

NAME = "contexts-cut"
COARSE_AND_KIND = (4, 2, 1)
KINDS: tuple[Levels, ...] = ((6, 2, 1), (5, 2, 1), COARSE_AND_KIND, (3, 2, 1))
ROOTS: tuple[Levels, ...] = ((6, 2, 2), (5, 2, 2), LAST, (3, 2, 2), (2, 2, 2))
WITH_KIND, WITH_ROOT, MANY_ENOUGH = "kind of place asked for", "its root only", "kind, at least 10 users"
LINES = {WITH_ROOT: ROOTS, WITH_KIND: KINDS, MANY_ENOUGH: (COARSE_AND_KIND,)}
USERS = 10
COVERED = 0.3

OFFERED = (WITH_KIND, MANY_ENOUGH)

T10 = Claim(
    "T10",
    "figure 6, finer cell and root",
    "bit for bit, a coarse cell and the kind of place are worth more than a finer cell and the kind's root",
)

Disclosed = tuple[str, Levels]


@dataclass(frozen=True)
class WithUsers:
    """People disclose a node that many are in, or else the rest of a coarser one, with the others like it."""

    users: int

    def __call__(self, trial: Trial, levels: Levels) -> Integers:
        return with_users(trial, levels, self.users)


def with_users(trial: Trial, levels: Levels, fewest: int) -> Integers:
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
    cut = finest_cut_with_rests(tree, safe, safe.size)
    if cut is None:
        return np.full(len(fine), NOTHING)
    number = {block: at for at, block in enumerate(cut.blocks)}
    number |= {block: NOTHING for block in cut.blocks if block.node == ANYTHING}
    of_node = np.array([number[cut.of(f"fine {node}")] for node in range(int(fine.max()) + 1)])
    return of_node[fine]


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    several = {
        (name, each): Arm(each, disclose=WithUsers(USERS)) if name == MANY_ENOUGH else Arm(each)
        for name, levels in LINES.items()
        for each in levels
    }
    held = contest(asked, NAME, sources(asked), several)
    arms, bits_of = held.found, held.bits
    at = precision_at(COVERED)
    table, rows = [], []
    for (name, levels), arm in arms.items():
        for part, tally in arm.parts().items():
            figure = measured(tally, at)
            table.append(
                tabled.figure(
                    figure, disclosed=name, levels=str(levels), bits=bits_of[name, levels], requests=part
                )
            )
            in_words = said(figure, otherwise="not reached")
            rows.append((name, str(levels), f"{bits_of[name, levels]:.1f}", part, in_words))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "covered": COVERED, "minimum_users": USERS},
        table=[*table, *(tabled.contrast(above(name), _gained(arms, bits_of, name)) for name in OFFERED)],
        columns=("disclosed", "levels", "bits", "requests", f"precision at coverage {COVERED:g}"),
        rows=rows,
        panels=panels(
            (
                (
                    title,
                    [
                        line(
                            name,
                            [bits_of[name, each] for each in levels],
                            [measured(getattr(arms[name, each], part), at) for each in levels],
                            Mechanism.DISCLOSURE if name == WITH_ROOT else Mechanism.OURS,
                        )
                        for name, levels in LINES.items()
                    ],
                )
                for part, title in (("everything", "All requests"), ("discovery", "First visits"))
            ),
            needed=f"a log of which some threshold covers less than {COVERED:g} and another covers more",
        ),
        axes=Axes("bits disclosed", f"precision at coverage {COVERED:g}", share_y=True),
    )


def above(name: str) -> str:
    return f"precision at coverage {COVERED:g}, {name} less the line of {WITH_ROOT}"


def around(told: Mapping[Disclosed, float], name: str) -> tuple[Disclosed, Disclosed]:
    """The two levels with a root that tell fewer and more bits than ours."""
    ours = told[name, COARSE_AND_KIND]
    roots = sorted((each for each in told if each[0] == WITH_ROOT), key=told.__getitem__)
    fewer = max((each for each in roots if told[each] <= ours), key=told.__getitem__, default=roots[0])
    more = min((each for each in roots if told[each] > ours), key=told.__getitem__, default=roots[-1])
    return fewer, more


def _gained(arms: Mapping[Disclosed, Found], told: Mapping[Disclosed, float], name: str) -> Measured:
    """Against the roots' line between the two levels that tell fewer and more bits."""
    ours, (fewer, more) = (name, COARSE_AND_KIND), around(told, name)
    apart = told[more] - told[fewer]
    share = (told[ours] - told[fewer]) / apart if apart else np.nan  # no line between one level and itself
    at = precision_at(COVERED)
    of_ours, of_fewer, of_more = (at(*arms[each].everything.curves) for each in (ours, fewer, more))
    return interval(of_ours - (1 - share) * of_fewer - share * of_more)


def judge(kept: Kept) -> list[Finding]:
    written = {(name, str(each)): (name, each) for name, levels in LINES.items() for each in levels}
    told = {
        written[str(row["disclosed"]), str(row["levels"])]: float(row["bits"] or 0)
        for row in kept.rows
        if row["kind"] == tabled.FIGURE
    }
    return [_worth_more(kept, told, name) for name in OFFERED]


def _worth_more(kept: Kept, told: Mapping[Disclosed, float], name: str) -> Finding:
    gained, (fewer, more) = tabled.contrast_of(kept, above(name)), around(told, name)
    return Finding(
        T10,
        f"precision of {COARSE_AND_KIND} at coverage {COVERED:g} is above the line between the two levels "
        "with a root that tell fewer and more bits, whole interval over people",
        f"{said(gained)} at {told[name, COARSE_AND_KIND]:.1f} bits, between {told[fewer]:.1f} and "
        f"{told[more]:.1f}",
        rises(gained),
        where=name,
    )


STUDY = Study(
    NAME,
    "What is worth disclosing, bit for bit",
    OURS,
    "beside figure 6",
    (T10,),
    {Scale.TOY: 0.2, Scale.SMALL: 0.9, Scale.FULL: 90.0},
    SEEDS,
    run,
    judge,
)
