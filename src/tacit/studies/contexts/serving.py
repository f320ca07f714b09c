"""What each test is shown: the server sends ads for what was disclosed, the client picks by its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tacit.deliver.estimates.backing_off import BackOff
from tacit.deliver.estimates.estimate import Estimator
from tacit.kernels.greedy import lazy_greedy
from tacit.schema.contexts.hierarchy import Levels
from tacit.studies.contexts.trace import Flags, Integers
from tacit.studies.contexts.trial import Block, Floats, Trial, coarse_for

SUPPORT = 2  # the paper's: what an estimate needs
PAPER_THRESHOLD, PAPER_ADS = 0.3, 10
NOTHING = -1  # disclosed: then nothing is sent

Rescore = Callable[[int, Integers, Floats], tuple[Integers, Floats]]
"""A test, the ads sent and their rates in its exact context; back come the ads to pick from and theirs."""


@dataclass(frozen=True)
class Arm:
    """Who discloses what, how many ads are sent for it, and by which estimates.

    ads         how many are sent; a set for fewer ads is the beginning of that for more
    own         what the client knows by itself
    """

    levels: Levels
    ads: int = PAPER_ADS
    estimator: Estimator = field(default_factory=lambda: BackOff(SUPPORT))
    own: Rescore | None = None
    disclose: Callable[[Trial, Levels], Integers] = Trial.disclosed


@dataclass(frozen=True, eq=False)
class Served:
    """(tests, thresholds)"""

    shown: Flags
    clicked: Flags


def serve(trial: Trial, arm: Arm, thresholds: Sequence[float]) -> Served:
    """Thresholds are click-through rates below which no ad is sent, nor shown; at 0 one is always shown, the
    first that was sent where none has a rate in the test's own context."""
    shown, clicked = (np.zeros((len(trial.tests), len(thresholds)), bool) for _ in range(2))
    wanted = trial.trace.place[trial.tests]
    disclosed = arm.disclose(trial, arm.levels)
    for block in trial.blocks(coarse_for(arm.levels), arm.estimator):
        for group, tests in groups(block, disclosed):
            for at, threshold in enumerate(thresholds):
                ads = sent(block, group, arm.ads, threshold)
                for test, context in tests:
                    picked = _picked(block, test, context, ads, threshold, arm.own)
                    if picked is not None:
                        shown[test, at], clicked[test, at] = True, picked == wanted[test]
    return Served(shown, clicked)


def groups(block: Block, disclosed: Integers) -> Iterator[tuple[Integers, list[tuple[int, int]]]]:
    """For each disclosed node with tests: the contexts that the server thinks of, and (test, context) pairs."""
    said = disclosed[block.context]
    order = np.argsort(said, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(said[order])) + 1)
    tests: dict[int, list[tuple[int, int]]] = {}
    for test, at in zip(block.tests.tolist(), block.at.tolist(), strict=True):
        tests.setdefault(int(said[at]), []).append((test, at))
    for contexts in members:
        node = int(said[contexts[0]])
        here = tests.get(node)
        if here and node != NOTHING:
            # Where nobody was seen, the contexts are all as likely, and their estimates those of an ancestor.
            likely = contexts[block.weight[contexts] > 0]
            yield (likely if len(likely) else contexts), here


def likelihood(block: Block, contexts: Integers) -> Floats:
    """(contexts,) how likely the server takes each of these to be."""
    weight = block.weight[contexts]
    if not weight.any():
        weight = np.ones(len(contexts))
    likely: Floats = weight / weight.sum()
    return likely


def sent(block: Block, contexts: Integers, ads: int, threshold: float) -> Integers:
    rates = block.rate[contexts]
    values = np.ascontiguousarray(np.where(rates >= threshold, rates, 0.0).T)  # (ads, contexts)
    weight = likelihood(block, contexts)
    useful = np.flatnonzero(values.any(axis=1))
    if not len(useful):
        return useful
    picked = lazy_greedy(np.ascontiguousarray(values[useful]), weight, min(ads, len(useful)))
    return useful[picked.ads]


def _picked(
    block: Block, test: int, context: int, sent: Integers, threshold: float, own: Rescore | None
) -> int | None:
    ads, rates = block.ad[sent], block.rate[context, sent]
    if own is not None:
        ads, rates = own(test, ads, rates)
    if not len(ads):
        return None
    best = int(np.argmax(rates))
    return int(ads[best]) if rates[best] >= threshold else None
