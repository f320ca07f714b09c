"""Theorem 3.5: the greedy choice of ads against the best of all sets, where all of them can be tried.

Rates are those of a few ads in a few contexts, drawn in three ways: alike, each ad good in some contexts
only, and all or nothing, where greedy choices go wrong most.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np

from tacit.arrays import Floats
from tacit.data.generators.worlds import seeded_generator
from tacit.kernels.greedy import lazy_greedy
from tacit_lab.studies.contexts.setting import PAPER
from tacit_lab.studies.plotting import Bars, bar_figure
from tacit_lab.studies.report import seeds_of, write_outcome
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

NAME = "contexts-greedy"
INSTANCES = {StudyScale.TOY: 8, StudyScale.SMALL: 200, StudyScale.FULL: 2_000}  # of each kind
ADS, CONTEXTS, SENT = 12, 20, 4
GUARANTEE = 1 - (1 - 1 / SENT) ** SENT  # at least 1 - 1/e
BINS = (0.96, 0.97, 0.98, 0.99)  # then what is below the optimum, and what reaches it
OPTIMAL = 1 - 1e-12
SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 1, StudyScale.FULL: 1}
_STREAM = 62

M12 = Claim("M12", "theorem 3.5", "the greedy choice of ads reaches at least 1 - 1/e of the optimum", ".632")

Draw = Callable[[np.random.Generator], Floats]


def _alike(draws: np.random.Generator) -> Floats:
    return draws.random((ADS, CONTEXTS))


def _specialised_values(draws: np.random.Generator) -> Floats:
    """Most ads are worth little outside a few contexts."""
    good = draws.random((ADS, CONTEXTS)) < 0.2
    return np.where(good, draws.random((ADS, CONTEXTS)), 0.02 * draws.random((ADS, CONTEXTS)))


def _covering_values(draws: np.random.Generator) -> Floats:
    """All or nothing: the maximum coverage problem that makes this one hard."""
    return (draws.random((ADS, CONTEXTS)) < 0.3).astype(np.float64)


KINDS: dict[str, Draw] = {
    "alike": _alike,
    "specialised": _specialised_values,
    "all or nothing": _covering_values,
}


def run(asked: StudyRequest) -> StudyOutcome:
    asked.refuse_data("every set of ads has to be tried")
    began = time.monotonic()
    shares: dict[str, list[float]] = {}
    for at, (kind, draw) in enumerate(KINDS.items()):
        asked.progress(f"{NAME}: {kind}", at, len(KINDS))
        shares[kind] = [
            _share(draw(draws), draws.dirichlet(np.ones(CONTEXTS)))
            for draws in (seeded_generator(seed, _STREAM, at) for seed in seeds_of(asked))
            for _ in range(INSTANCES[asked.scale])
        ]
    worst = {kind: min(each) for kind, each in shares.items()}
    return write_outcome(
        NAME,
        asked,
        unit="instance",
        relation=f"{SENT} of {ADS} ads for {CONTEXTS} contexts",
        began=began,
        data=f"{INSTANCES[asked.scale] * asked.seeds:,} instances of each kind",
        parameters={"ads": ADS, "contexts": CONTEXTS, "sent": SENT},
        table=[
            {"rates": kind, "instance": at, "share_of_optimum": share}
            for kind, each in shares.items()
            for at, share in enumerate(each)
        ],
        columns=("instances", "worst share of the optimum", "mean", "optimal"),
        rows=[
            (kind, f"{worst[kind]:.3f}", f"{np.mean(each):.4f}", f"{np.mean(np.array(each) > OPTIMAL):.0%}")
            for kind, each in shares.items()
        ],
        draw=lambda path, subtitle: bar_figure(
            [histogram(kind, each) for kind, each in shares.items()],
            subtitle=subtitle,
            x_label="greedy revenue over the optimum, at most",
            y_label="instances",
            path=path,
        ),
    )


def _share(values: Floats, weight: Floats) -> float:
    greedy = lazy_greedy(values, weight, SENT).gains.sum()
    sets = np.array(list(itertools.combinations(range(ADS), SENT)))
    best = (values[sets].max(axis=1) @ weight).max()
    return float(greedy / best)


def histogram(kind: str, shares: list[float]) -> Bars:
    heights = np.bincount(np.searchsorted([*BINS, OPTIMAL], shares), minlength=len(BINS) + 2)
    labels = [*(f"{edge:g}" for edge in BINS), "<1", "1"]
    return Bars(kind.capitalize(), labels, heights.tolist())


def judge(kept: ResultFiles) -> list[Finding]:
    worst: dict[str, float] = {}
    for row in kept.rows:
        kind, share = str(row["rates"]), float(row["share_of_optimum"] or 0)
        worst[kind] = min(share, worst.get(kind, share))
    return [
        Finding(
            M12,
            f"on every instance at least {GUARANTEE:.3f} of the best of all sets",
            "worst " + (", ".join(f"{share:.3f} ({kind})" for kind, share in worst.items()) or "of none"),
            every(share >= GUARANTEE - 1e-12 for share in worst.values()),
            why="a theorem: only a bug could fail it",
        )
    ]


STUDY = Study(
    NAME,
    "Greedy candidate sets against the best of all sets",
    PAPER,
    "theorem 3.5",
    (M12,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 1.0},
    SEEDS,
    run,
    judge,
)
