"""How many impressions are really hidden: reports counted all together, or only with those that share their
menu.

A menu, with its candidates and prices, belongs to a context and an epoch, and only reports of one menu hide
each other. Contexts are made up: their traffic follows a Zipf law, popular and rare ones mixed in a tree of
them. A context is generalised by a cut of the tree that is made from the counts of the day before, so that
today's counts are others. The unit is the impression: several of one person in a cohort add up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.data.generators.distributions import Zipf
from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.protocol.cuts import CutBlock, finest_cut_with_remainders
from tacit.privacy.shuffling import cohort_needed
from tacit.schema.contexts.tree import ANYTHING, Tree
from tacit_lab.studies.choice.lifts import LiftRow, write_outcome
from tacit_lab.studies.choice.markets import OURS
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

T25 = Claim(
    "T25",
    "appendix B, with every impression counted",
    "only reports of one menu hide each other: generalised contexts and longer epochs make them enough",
)

NAME = "choice-cohorts"
DELTA, TARGET = 1e-6, 1
LOCALS = (3, 5)
LEVELS = {StudyScale.TOY: 2, StudyScale.SMALL: 4, StudyScale.FULL: 4}  # of the tree; each node has BRANCHES
BRANCHES = 10
A_DAY = {
    StudyScale.TOY: (100_000, 1_000_000),
    StudyScale.SMALL: (30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000),
}
A_DAY[StudyScale.FULL] = A_DAY[StudyScale.SMALL]
TEN_MINUTES, HOUR, DAY = "10 minutes", "an hour", "a day"
EPOCHS = {TEN_MINUTES: 144, HOUR: 24, DAY: 1}  # a day
MOST_DRAWN = 12  # epochs of a day are alike
ALL, OWN, UP, FURTHER, CUT = (
    "every report, as claimed",
    "own context",
    "one level up",
    "two levels up",
    "cut by traffic",
)
WAYS = {
    ALL: Mechanism.NON_PRIVATE,
    OWN: Mechanism.DISCLOSURE,
    UP: Mechanism.DISCLOSURE,
    FURTHER: Mechanism.DISCLOSURE,
    CUT: Mechanism.OURS,
}
SPARE = 4  # standard deviations of a count that a cohort must have been larger than it has to be
JUDGED, AT = 5, 1_000_000
FEW, NEARLY_ALL = 0.5, 0.99
_STREAM = 34
Counts = NDArray[np.int64]  # (epochs, leaves)


@dataclass(frozen=True, eq=False)
class ContextTraffic:
    """A tree of contexts and the share of all traffic that each of its leaves has."""

    tree: Tree
    leaves: tuple[str, ...]
    shares: Floats

    @classmethod
    def draw(cls, levels: int, draws: np.random.Generator) -> ContextTraffic:
        above = {
            f"{level}.{at}": f"{level - 1}.{at // BRANCHES}" if level > 1 else ANYTHING
            for level in range(1, levels + 1)
            for at in range(BRANCHES**level)
        }
        tree = Tree.of({**above})
        count = BRANCHES**levels
        shares = Zipf(count).probability(np.arange(count))
        return cls(tree, tuple(f"{levels}.{at}" for at in range(count)), draws.permutation(shares))


@dataclass(frozen=True)
class HiddenShare:
    """The share of impressions in a cohort that is large enough, and how many menus there are an epoch."""

    share: float
    menus: int


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("its contexts are made up")
    began = time.monotonic()
    table: list[LiftRow] = []
    for seed in range(1, asked.seeds + 1):
        asked.progress(f"{NAME}: seed {seed}", seed - 1, asked.seeds)
        draws = seeded_generator(seed, _STREAM, 0)
        contexts = ContextTraffic.draw(LEVELS[asked.scale], draws)
        for impressions in A_DAY[asked.scale]:
            for epoch in EPOCHS:
                yesterday, today = (_counts(contexts, impressions, epoch, draws) for _ in range(2))
                for local in LOCALS:
                    labels = {"seed": seed, "local_epsilon": local, "impressions_a_day": impressions}
                    for way in WAYS:
                        found = hidden_share(contexts, way, yesterday, today, _needed_cohort(local))
                        figures = {"menus": found.menus, "share_hidden": found.share}
                        table.append({**labels, "epoch": epoch, "counted": way, **figures})
    count, days = BRANCHES ** LEVELS[asked.scale], A_DAY[asked.scale]
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=f"{count:,} contexts by a Zipf law",
        parameters={
            "contexts": count,
            "target_epsilon": TARGET,
            "delta": DELTA,
            "cohort_needed": {str(local): _needed_cohort(local) for local in LOCALS},
        },
        table=table,
        columns=(
            "local epsilon",
            "epoch",
            "cohorts by",
            f"menus at {AT:,} a day",
            *(f"% hidden at {day:,}" for day in days[1::2]),
        ),
        rows=[_cells(table, local, epoch, way, days) for local in LOCALS for epoch in EPOCHS for way in WAYS],
        panels=[_panel(table, local, epoch, days) for local in LOCALS for epoch in EPOCHS],
        axes=Axes(
            "million impressions a day",
            f"% of impressions with a central epsilon of at most {TARGET}",
            (0.1, 1, 10, 100),
            share_y=True,
        ),
        relation="private scores of one member of the cohort replaced",
    )


def hidden_share(
    contexts: ContextTraffic, way: str, yesterday: Counts, today: Counts, needed: int
) -> HiddenShare:
    """By one way to count cohorts, over the epochs of a day."""
    leaves = np.arange(len(contexts.leaves))
    if way == CUT:
        groups = cut_by_traffic(contexts, yesterday.mean(axis=0), needed)
    else:  # leaves of one parent are neighbours
        groups = 0 * leaves if way == ALL else leaves // BRANCHES ** (OWN, UP, FURTHER).index(way)
    menus = int(groups.max()) + 1
    cohorts = np.stack([np.bincount(groups, epoch, menus) for epoch in today])
    return HiddenShare(float(cohorts[cohorts >= needed].sum() / max(today.sum(), 1)), menus)


def cut_by_traffic(contexts: ContextTraffic, traffic: Floats, needed: int) -> NDArray[np.int64]:
    """The block of each leaf in the finest cut whose blocks all had cohorts large enough, with some to spare.

    Where not even all contexts together had, they stay together.
    """
    below = dict.fromkeys(contexts.tree.nodes, 0.0)
    below.update(zip(contexts.leaves, traffic.tolist(), strict=True))
    for node in reversed(contexts.tree.nodes):  # children before parents
        above = contexts.tree.parent(node)
        if above is not None:
            below[above] += below[node]
    enough = needed + SPARE * math.sqrt(needed)

    def safe(block: CutBlock) -> bool:
        return below[block.node] - sum(below[child] for child in block.without) >= enough

    cut = finest_cut_with_remainders(contexts.tree, safe, below.__getitem__)
    if cut is None:
        return np.zeros(len(contexts.leaves), np.int64)
    number = {block: at for at, block in enumerate(cut.blocks)}
    return np.array([number[cut.of(leaf)] for leaf in contexts.leaves])


@cache
def _needed_cohort(local: int) -> int:
    return cohort_needed(TARGET, DELTA, local_epsilon=local)


def _counts(contexts: ContextTraffic, impressions: int, epoch: str, draws: np.random.Generator) -> Counts:
    each = impressions / EPOCHS[epoch]
    return draws.poisson(each * contexts.shares, (min(EPOCHS[epoch], MOST_DRAWN), len(contexts.leaves)))


def _of(
    table: Sequence[Mapping[str, Any]], figure: str, local: int, impressions: int, epoch: str, way: str
) -> list[float]:
    """Seed by seed."""
    asked = {"local_epsilon": local, "impressions_a_day": impressions, "epoch": epoch, "counted": way}
    return [row[figure] for row in table if all(row[name] == value for name, value in asked.items())]


def _cells(table: Sequence[LiftRow], local: int, epoch: str, way: str, days: Sequence[int]) -> tuple[str, ...]:
    menus = np.mean(_of(table, "menus", local, AT, epoch, way))
    shares = [100 * np.mean(_of(table, "share_hidden", local, day, epoch, way)) for day in days[1::2]]
    return f"{local}", epoch, way, f"{menus:,.0f}", *(f"{share:.1f}" for share in shares)


def _panel(table: Sequence[LiftRow], local: int, epoch: str, days: Sequence[int]) -> Panel:
    """What counting every report claims, as diamonds: a cut by traffic often makes it true."""
    lines = []
    for way, look in WAYS.items():
        by_day = [_of(table, "share_hidden", local, day, epoch, way) for day in days]
        ys, lows, highs = ([100 * float(pick(each)) for each in by_day] for pick in (np.mean, np.min, np.max))
        xs = [day / 1_000_000 for day in days]
        lines.append(Series(way, xs, ys, lows, highs, mechanism=look, published=way == ALL))
    return Panel(f"Local epsilon {local}, {epoch}", lines)


def judge(kept: ResultFiles) -> list[Finding]:
    def figures_of(figure: str, epoch: str, way: str) -> list[float]:
        return _of(kept.rows, figure, JUDGED, AT, epoch, way)

    claimed, real = (figures_of("share_hidden", TEN_MINUTES, way) for way in (ALL, OWN))
    ours, menus = (figures_of(figure, DAY, CUT) for figure in ("share_hidden", "menus"))
    return [
        Finding(
            T25,
            f"{AT:,} impressions a day, local epsilon {JUDGED}, every seed: with all reports of 10 minutes "
            f"counted all have a central epsilon of at most {TARGET}, by menus fewer than {FEW:.0%} do, and "
            f"with contexts generalised and epochs of a day at least {NEARLY_ALL:.0%} do",
            f"claimed for {_range(claimed)}, true for {_range(real)}; generalised and by the day for "
            f"{_range(ours)}, with {min(menus):g} menus at least",
            min(claimed) == 1 and max(real) < FEW and min(ours) >= NEARLY_ALL,
            why="synthetic: contexts and their traffic are made up",
        )
    ]


def _range(shares: Sequence[float]) -> str:
    least, most = (f"{100 * share:.1f}" for share in (min(shares), max(shares)))
    return f"{least}%" if least == most else f"{least} to {most}%"


STUDY = Study(
    NAME,
    "Impressions that are really hidden, by how cohorts are counted",
    OURS,
    "beyond appendix B",
    (T25,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.2, StudyScale.FULL: 1.0},
    {StudyScale.TOY: 1, StudyScale.SMALL: 3, StudyScale.FULL: 10},
    run,
    judge,
)
