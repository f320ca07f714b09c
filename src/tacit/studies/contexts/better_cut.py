"""Which part of a context is worth disclosing: bits against precision, for several levels of the lattice.

A level tells so many bits on average: the entropy of its nodes among the visits that were counted. With a
minimum of users, a node with fewer is disclosed as the rest of the one above it, with the others like it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tacit.deliver.disclosure.remainders import finest_cut_with_rests
from tacit.deliver.disclosure.users import MinimumUsers
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.tree import ANYTHING, Tree
from tacit.studies.contexts.clustered import interval, measured, precision_at
from tacit.studies.contexts.figures import cells, line, panels, rises, said
from tacit.studies.contexts.serving import NOTHING, Arm
from tacit.studies.contexts.setting import OURS, SEEDS, THRESHOLDS, Found, contest, outcome
from tacit.studies.contexts.trace import Integers
from tacit.studies.contexts.trial import LAST, Trial
from tacit.studies.plotting import Mechanism
from tacit.studies.report import Axes
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "contexts-cut"
COARSE_AND_KIND = (4, 2, 1)
KINDS: tuple[Levels, ...] = ((6, 2, 1), (5, 2, 1), COARSE_AND_KIND, (3, 2, 1))
ROOTS: tuple[Levels, ...] = ((6, 2, 2), (5, 2, 2), LAST, (3, 2, 2), (2, 2, 2))
WITH_KIND, WITH_ROOT, MANY_ENOUGH = "kind of place asked for", "its root only", "kind, at least 10 users"
LINES = {WITH_ROOT: ROOTS, WITH_KIND: KINDS, MANY_ENOUGH: (COARSE_AND_KIND,)}
USERS = 10
COVERED = 0.3

Disclosed = tuple[str, Levels]


def with_users(trial: Trial, levels: Levels) -> Integers:
    """(contexts,) what is disclosed under a minimum of users: nodes of these levels, or rests of coarser ones.

    A context that only the rest of everything would hold discloses nothing, and is NOTHING.
    """
    fine, coarse = trial.disclosed(levels), trial.disclosed(LAST)
    named = dict(zip((f"fine {each}" for each in fine), (f"coarse {each}" for each in coarse), strict=True))
    tree = Tree([(ANYTHING, None), *((each, ANYTHING) for each in set(named.values())), *named.items()])
    users = {f"fine {node}": count for node, count in enumerate(trial.users(fine).tolist())}
    users |= {f"coarse {node}": count for node, count in enumerate(trial.users(coarse).tolist())}
    users[ANYTHING] = len(np.unique(trial.trace.user[trial.learnt]))
    safe = MinimumUsers(tree, users, USERS)
    cut = finest_cut_with_rests(tree, safe, safe.size)
    if cut is None:
        return np.full(len(fine), NOTHING)
    number = {block: at for at, block in enumerate(cut.blocks)}
    number |= {block: NOTHING for block in cut.blocks if block.node == ANYTHING}
    of_node = np.array([number[cut.of(f"fine {node}")] for node in range(int(fine.max()) + 1)])
    return of_node[fine]


def bits(trial: Trial, disclosed: Integers) -> float:
    share = np.bincount(trial.rows_of(disclosed) + 1) / trial.learnt.sum()  # NOTHING is one of them
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    told: defaultdict[Disclosed, list[float]] = defaultdict(list)

    def arms_of(trial: Trial) -> dict[Disclosed, Arm]:
        several = {}
        for name, levels in LINES.items():
            disclose = with_users if name == MANY_ENOUGH else Trial.disclosed
            for each in levels:
                several[name, each] = Arm(each, disclose=disclose)
                told[name, each].append(bits(trial, disclose(trial, each)))
        return several

    held = contest(asked, NAME, arms_of)
    arms, bits_of = held.found, {each: float(np.mean(several)) for each, several in told.items()}
    at = precision_at(COVERED)
    table, rows = [], []
    for (name, levels), arm in arms.items():
        for part, tally in arm.parts().items():
            figure = measured(tally, at)
            label = {
                "disclosed": name,
                "levels": str(levels),
                "bits": bits_of[name, levels],
                "requests": part,
            }
            table.append({**label, **cells(figure)})
            in_words = said(figure, otherwise="not reached")
            rows.append((name, str(levels), f"{bits_of[name, levels]:.1f}", part, in_words))
    return outcome(
        NAME,
        asked,
        began=began,
        data=held.words,
        parameters={"thresholds": list(THRESHOLDS), "covered": COVERED, "minimum_users": USERS},
        table=table,
        columns=("disclosed", "levels", "bits", "requests", f"precision at coverage {COVERED:g}"),
        rows=rows,
        findings=[_worth_more(arms, bits_of, name) for name in (WITH_KIND, MANY_ENOUGH)],
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


def _worth_more(arms: Mapping[Disclosed, Found], told: Mapping[Disclosed, float], name: str) -> Finding:
    """Against the roots' line between the two levels that tell fewer and more bits."""
    ours = (name, COARSE_AND_KIND)
    roots = sorted(((WITH_ROOT, each) for each in ROOTS), key=told.__getitem__)
    fewer = max((each for each in roots if told[each] <= told[ours]), key=told.__getitem__, default=roots[0])
    more = min((each for each in roots if told[each] > told[ours]), key=told.__getitem__, default=roots[-1])
    apart = told[more] - told[fewer]
    share = (told[ours] - told[fewer]) / apart if apart else np.nan  # no line between one level and itself
    at = precision_at(COVERED)
    of_ours, of_fewer, of_more = (at(*arms[each].everything.curves) for each in (ours, fewer, more))
    gained = interval(of_ours - (1 - share) * of_fewer - share * of_more)
    return Finding(
        "T10",
        f"bit for bit, a coarse cell and the {name} are worth more than a finer cell and its root",
        f"precision of {COARSE_AND_KIND} at coverage {COVERED:g} is above the line between the two levels "
        "with a root that tell fewer and more bits, whole interval over people",
        f"{said(gained)} at {told[ours]:.1f} bits, between {told[fewer]:.1f} and {told[more]:.1f}",
        rises(gained),
    )


STUDY = Study(
    NAME,
    "What is worth disclosing, bit for bit",
    OURS,
    "beside figure 6",
    ("T10",),
    {Scale.TOY: 0.2, Scale.SMALL: 3.0, Scale.FULL: 90.0},
    SEEDS,
    run,
)
