"""Planned choices of a market that learn their prior as they go: each part by the reports of those before it.

A real server learns from the reports that it has. A simulation has none, so it draws some: of a few auctions
of every part, by the law that was planned for them and from a seeded stream (`Simulation`). Parts end where the
number of auctions has doubled, so that learning costs little however long the market is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import ClassVar

import numpy as np

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.deliver.auction.blocks import AuctionBlock, Offers, take_auctions
from tacit.deliver.auction.choices import PlannedRule
from tacit.deliver.auction.planned_choices import forecast_block, planned_rule
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, ScorePrior
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.display import brief
from tacit.kernels.auctions import EMPTY
from tacit.privacy.choice.top_choice import TopChoice
from tacit.privacy.randomness import WordSource

FIRST_PART = 512
"""Auctions that are planned by the default, before anything is learnt."""

REPORTS_PER_PART = 160
"""Auctions of a part that reports are drawn of, evenly spaced."""


class LearningRule:
    """trunc(k, m), planned by what `learn` was told of earlier auctions; at first by the default prior.

    Guarantee:  each choice is pure LDP with the epsilon that the rule has for its auction: at most the asked,
                whatever was learnt.
    Neighbours: any two vectors of private scores of one auction.
    Assumes:    what `planned_rule` assumes. What it learns by are private choices of earlier auctions, paid for
                when they were made; an auction is never planned by its own report.
    Source:     `planned_rule`; a prior made of earlier reports is post-processing of them.
    """

    measured_only: ClassVar[bool] = False

    def __init__(self, epsilon: expect.Number, words: WordSource) -> None:
        self.asked = float(expect.positive("epsilon", epsilon))
        self.evidence = PriorEvidence()
        self.prior: ScorePrior = DEFAULT_PRIOR
        self._words = words
        self._planned: PlannedRule = planned_rule(DEFAULT_PRIOR, self.asked)

    def __repr__(self) -> str:
        return brief(self, epsilon=self.asked, prior=str(self.prior))

    def epsilon(self, offers: Offers) -> Floats:
        return self._planned.epsilon(offers)

    def pmf(self, offers: Offers, scores: Floats) -> Floats:
        return self._planned.pmf(offers, scores)

    def choose(self, offers: Offers, scores: Floats, words: WordSource) -> Integers:
        return self._planned.choose(offers, scores, words)

    def learn(self, offers: Offers, scores: Floats) -> None:
        """Draw a report of each of these auctions by the plan in force, and plan the next by what they say.

        Auctions that spend nothing say nothing. Those that may show nothing are left out: what nothing is worth
        is certain, which the laws that are compared do not know.
        """
        planned = forecast_block(offers, self.prior, (self.asked,))
        rule = planned.rule(np.full(offers.count, self.asked))
        chosen = rule.choose(offers, scores, self._words)
        reported = []
        for at in np.flatnonzero(planned.kept[:, 0] > 1).tolist():
            here = slice(int(offers.offsets[at]), int(offers.offsets[at + 1]))
            if (offers.rows[here] == EMPTY).any():
                continue
            size, kept, top = here.stop - here.start, int(planned.kept[at, 0]), int(planned.top[at, 0])
            counts = np.zeros(size, np.int64)
            counts[chosen[at]] = 1
            reported.append(ReportedRanks(offers.score[here], _law(self.asked, size, kept, top), counts))
        self.evidence = self.evidence.learn(reported)
        self.prior = self.evidence.prior() if self.evidence.reports else DEFAULT_PRIOR
        self._planned = planned_rule(self.prior, self.asked)


@lru_cache(maxsize=4096)
def _law(epsilon: float, candidates: int, kept: int, top: int) -> TopChoice:
    return TopChoice.for_epsilon(epsilon, candidates, kept, top)


def learning_parts(blocks: Iterable[AuctionBlock]) -> Iterator[AuctionBlock]:
    """The same auctions in parts that end where their number has doubled, and with their blocks."""
    seen, end = 0, FIRST_PART
    for block in blocks:
        start, count = 0, block.public.count
        while start < count:
            part = np.arange(start, min(count, start + end - seen))
            yield block if len(part) == count else take_auctions(block, part)
            start, seen = start + len(part), seen + len(part)
            if seen == end:
                end *= 2


def spaced(count: int, most: int) -> Integers:
    """Up to `most` of `count` places, evenly spaced."""
    return np.arange(count) if count <= most else np.arange(most) * count // most
