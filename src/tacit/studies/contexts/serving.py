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
from tacit.studies.digests import room_of

SUPPORT = 2  # the paper's: what an estimate needs
PAPER_THRESHOLD, PAPER_ADS = 0.3, 10
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NOTHING = -1  # disclosed: then nothing is sent

Rescore = Callable[[int, Integers, Floats], tuple[Integers, Floats]]
"""A test, the ads sent and their rates in its exact context; back come the ads to pick from and theirs."""


@dataclass(frozen=True)
class Arm:
    """Who discloses what, how many ads are sent for it, and by which estimates.

    ads         how many are sent; a set for fewer ads is the beginning of that for more
    own         what the client knows by itself
    thresholds  click-through rates below which no ad is sent, nor shown
    """

    levels: Levels
    ads: int = PAPER_ADS
    estimator: Estimator = field(default_factory=lambda: BackOff(SUPPORT))
    own: Callable[[Trial], Rescore] | None = None
    disclose: Callable[[Trial, Levels], Integers] = field(default_factory=lambda: AtLevels())
    thresholds: tuple[float, ...] = THRESHOLDS

    @property
    def rooms(self) -> tuple[str, ...]:
        return (*room_of(self.own), *room_of(self.disclose))

    def on(self, trial: Trial) -> Served:
        return serve(trial, self, self.thresholds)


@dataclass(frozen=True)
class AtLevels:
    """Everybody discloses their context at the levels that were asked for."""

    def __call__(self, trial: Trial, levels: Levels) -> Integers:
        return trial.disclosed(levels)


@dataclass(frozen=True, eq=False)
class Served:
    """What each test was shown, (tests, thresholds), and how many bits people disclosed for it on average."""

    shown: Flags
    clicked: Flags | Floats  # or chances of it
    bits: float


def serve(trial: Trial, arm: Arm, thresholds: Sequence[float]) -> Served:
    """Thresholds are click-through rates below which no ad is sent, nor shown; at 0 one is always shown, the
    first that was sent where none has a rate in the test's own context."""
    shown, clicked = (np.zeros((len(trial.tests), len(thresholds)), bool) for _ in range(2))
    wanted = trial.trace.place[trial.tests]
    disclosed = arm.disclose(trial, arm.levels)
    own = None if arm.own is None else arm.own(trial)
    for block in trial.blocks(coarse_for(arm.levels), arm.estimator):
        for group, tests in groups(block, disclosed):
            offers = Offers.of(block, group)
            for at, threshold in enumerate(thresholds):
                ads = offers.sent(arm.ads, threshold)
                for test, context in tests:
                    picked = _picked(block, test, context, ads, threshold, own)
                    if picked is not None:
                        shown[test, at], clicked[test, at] = True, picked == wanted[test]
    return Served(shown, clicked, trial.bits(disclosed))


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


@dataclass(frozen=True, eq=False)
class Offers:
    """The rates of all ads in some contexts, for as many choices among them as there are thresholds."""

    rate: Floats  # (ads, contexts)
    highest: Floats  # (ads,)
    weight: Floats  # (contexts,)

    @classmethod
    def of(cls, block: Block, contexts: Integers) -> Offers:
        rate = np.ascontiguousarray(block.rate[contexts].T)
        return cls(rate, rate.max(axis=1), likelihood(block, contexts))

    def sent(self, ads: int, threshold: float) -> Integers:
        """The best so many ads for these contexts together; rates below the threshold are worth nothing."""
        useful = np.flatnonzero((self.highest >= threshold) & (self.highest > 0))
        if not len(useful):
            return useful
        rate = self.rate[useful]
        picked = lazy_greedy(np.where(rate >= threshold, rate, 0.0), self.weight, min(ads, len(useful)))
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
