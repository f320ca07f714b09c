"""A simulated market run from its configuration: figures of all arms, what was learnt on the way, charges.

    found = run_simulation(load_simulation("market.toml"), made_up_auctions)
    write_charges(found.shown(), Path("charges.parquet"), found.auction_type)

Auctions stream, once for the figures and once for charges. Arms with `prior = "learnt"` are planned by what the
reports of earlier parts say (`learning_choices`), each time from the beginning and by the same seed: charges
are drawn by the plans that the figures are about, and no auction is planned by itself or by a later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tacit import expect
from tacit.config import error_prefix
from tacit.deliver.auction.blocks import AuctionBlock, make_offers, take_auctions
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.config import GeneratedMarket, SimulationConfig, build_arms
from tacit.deliver.auction.learning_choices import REPORTS_PER_PART, LearningRule, learning_parts, spaced
from tacit.deliver.auction.logs import AuctionLog, GeneratedAuctions, NumberCampaigns, generated_blocks
from tacit.deliver.auction.market import (
    Arm,
    MarketResults,
    expected_metrics,
    measure,
    private_scores,
    show_block,
)
from tacit.deliver.auction.metrics import METRICS
from tacit.deliver.auction.planned_choices import forecast_block
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.priors import DEFAULT_PRIOR, ScorePrior
from tacit.display import brief_repr
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.progress import Progress, no_progress
from tacit.schema.impressions import Impressions

HINDSIGHT = tuple(Spread(sigma) for sigma in (0.1, 0.3, 0.6, 1.0, 1.8))
"""Priors among which the best one is looked for afterwards; the default is one of them."""

JUDGED = 1_000
"""About how many auctions, evenly spaced, are planned by each of them too."""

WELFARE = METRICS.index("welfare")

MakeAuctions = Callable[[GeneratedMarket], tuple[Iterable[GeneratedAuctions], NumberCampaigns]]
"""Made-up auctions, and whose their candidates are: `tacit.data.made_up_auctions`."""


@dataclass(frozen=True, eq=False)
class PlannedShares:
    """Of the welfare that greedy choices add to non-personalised ones, what a planned arm keeps.

    All figures are of the same auctions, `judged` of them; a share of nothing is None.

    assumed, learnt   the prior before any report, and after all; learnt is None where the prior is fixed
    kept              by the arm as it ran, each part by what was known before it
    kept_assumed      by the default prior
    kept_hindsight    by the best of a few fixed spreads, which nobody knows beforehand: `hindsight`
    """

    arm: str
    assumed: ScorePrior
    learnt: ScorePrior | None
    reports: int
    judged: int
    kept: float | None
    kept_assumed: float | None
    kept_hindsight: float | None
    hindsight: Spread

    __repr__ = brief_repr


@dataclass(frozen=True, eq=False)
class SimulatedMarket:
    """All that came of a simulation; `shown` draws its choices, one for each auction, for the bill."""

    config: SimulationConfig
    results: MarketResults
    planned: tuple[PlannedShares, ...]
    notes: tuple[str, ...]
    _make: MakeAuctions | None = field(repr=False)

    __repr__ = brief_repr

    @property
    def auction_type(self) -> pa.DataType:
        """Of the ids that impressions name their auctions by."""
        market = self.config.market
        return market.auction_type() if isinstance(market, AuctionLog) else pa.int64()

    def shown(self, progress: Progress = no_progress) -> Iterator[Impressions]:
        """What the arm of [charges] shows, block by block; from its seed, or from the system's entropy.

        A learning arm begins anew, so that every block is drawn by the plan that it was measured by.
        """
        asked = self.config.charges
        if asked is None:
            raise BadInput("expected a configuration with [charges], got none")
        words = Entropy().words if asked.seed is None else Simulation(f"simulated choices {asked.seed}").words
        arm = build_arms(self.config)[asked.chooser]
        stream = Auctions(self.config, self._make)
        for block in _learning(stream.blocks("charges of", progress), {asked.chooser: arm}):
            yield show_block(block, arm, words)


def run_simulation(
    config: SimulationConfig, make_auctions: MakeAuctions | None = None, *, progress: Progress = no_progress
) -> SimulatedMarket:
    """Every arm of a configuration on all of its auctions. A market that is made up needs `make_auctions`.

    A simulation reads private columns and promises nothing: its figures are for whoever may see the log.
    """
    expect.kind("config", config, SimulationConfig)
    stream, arms, seen = Auctions(config, make_auctions), build_arms(config), RepeatedAuctions()
    judging = PlannedJudge(config, arms, stream)
    blocks = _learning(seen.watch(stream.blocks("", progress)), arms, judging)
    results = measure(blocks, arms)
    if results.auctions < 2:
        raise BadInput(f"expected at least two auctions for intervals, got {results.auctions}")
    return SimulatedMarket(config, results, judging.shares(), _notes(config, results, seen), make_auctions)


class Auctions:
    """All auctions of a configuration, the same ones each time: those of the log, or made up."""

    def __init__(self, config: SimulationConfig, make: MakeAuctions | None) -> None:
        self._market, self._make = config.market, make
        if isinstance(self._market, GeneratedMarket):
            if make is None:
                raise BadInput(
                    "expected make_auctions for a generated market, such as made_up_auctions, got none"
                )
            self.total, self.unit = self._market.auctions, "auctions"
            with error_prefix("market"):
                make(self._market)  # refused now, if at all
        else:
            self.total, self.unit = self._market.count_rows(), "rows"

    def blocks(self, label: str, progress: Progress) -> Iterator[AuctionBlock]:
        """One after another, with word of how far they are once each is dealt with."""
        seen, words = 0, f"{label} {self.total:,} {self.unit}".strip()
        for block in self._stream():
            yield block
            seen += self.size_of(block)
            progress(words, seen, self.total)

    def size_of(self, block: AuctionBlock) -> int:
        return block.public.count if self.unit == "auctions" else len(block.public.bid_micros)

    def _stream(self) -> Iterator[AuctionBlock]:
        if isinstance(self._market, AuctionLog):
            return self._market.blocks()
        assert self._make is not None  # refused before
        return generated_blocks(*self._make(self._market))


def _learning(
    blocks: Iterable[AuctionBlock], arms: Mapping[str, Arm], judging: PlannedJudge | None = None
) -> Iterator[AuctionBlock]:
    """The same auctions; once a part is dealt with, and judged, the arms that learn draw reports of it."""
    learners = [arm for arm in arms.values() if isinstance(arm.choice, LearningRule)]
    for block in learning_parts(blocks) if learners else blocks:
        yield block
        if judging is not None:
            judging.add(block)
        few = take_auctions(block, spaced(block.public.count, REPORTS_PER_PART)) if learners else block
        for arm in learners:
            assert isinstance(arm.choice, LearningRule)
            offers = make_offers(few.public, arm.rules)
            arm.choice.learn(offers, private_scores(few, offers))


class PlannedJudge:
    """Adds up, over some auctions, what planned arms keep as they run, by the default and by fixed spreads."""

    def __init__(self, config: SimulationConfig, arms: Mapping[str, Arm], stream: Auctions) -> None:
        self._planned = {each.name: arms[each.name] for each in config.choosers if each.mechanism == "trunc"}
        self._epsilon = {each.name: each.epsilon for each in config.choosers}
        self._ends = {name: arms[name] for name in (NON_PERSONALISED, GREEDY)}
        self._stream, self._next, self._every = stream, 0, 0
        self._judged = 0
        self._sums: dict[tuple[str, Spread | None], float] = {}

    def add(self, block: AuctionBlock) -> None:
        if not self._planned:
            return
        if not self._every:  # a log says how many rows it has: how many auctions, its first part tells
            expected = self._stream.total * block.public.count / self._stream.size_of(block)
            self._every = max(1, int(expected // JUDGED))
        places = np.arange(self._next, block.public.count, self._every)
        self._next = self._next + len(places) * self._every - block.public.count
        if not len(places):
            return
        few = take_auctions(block, places)
        self._judged += len(places)
        for name, arm in {**self._ends, **self._planned}.items():
            self._count(name, None, few, arm)
        by_rules: dict[Any, list[str]] = {}
        for name, arm in self._planned.items():
            by_rules.setdefault(arm.rules, []).append(name)
        for rules, names in by_rules.items():
            offers, ladder = (
                make_offers(few.public, rules),
                tuple(sorted({self._epsilon[name] for name in names})),
            )
            for prior in HINDSIGHT:
                planned = forecast_block(offers, prior, ladder)  # for all epsilons at once
                for name in names:
                    rule = planned.rule(np.full(offers.count, self._epsilon[name]))
                    self._count(name, prior, few, Arm(rule, rules))

    def _count(self, name: str, prior: Spread | None, block: AuctionBlock, arm: Arm) -> None:
        found = float(expected_metrics(block, arm)[:, WELFARE].sum())
        self._sums[name, prior] = self._sums.get((name, prior), 0.0) + found

    def shares(self) -> tuple[PlannedShares, ...]:
        if not self._judged:
            return ()
        base = self._sums[NON_PERSONALISED, None]
        gain = self._sums[GREEDY, None] - base

        def share(name: str, prior: Spread | None) -> float | None:
            return (self._sums[name, prior] - base) / gain if gain > 0 else None

        found = []
        for name, arm in self._planned.items():
            best = max(HINDSIGHT, key=lambda prior, name=name: self._sums[name, prior])  # type: ignore[misc]
            rule = arm.choice
            learnt = rule.prior if isinstance(rule, LearningRule) else None
            reports = round(rule.evidence.reports) if isinstance(rule, LearningRule) else 0
            found.append(
                PlannedShares(
                    name,
                    DEFAULT_PRIOR,
                    learnt,
                    reports,
                    self._judged,
                    share(name, None),
                    share(name, DEFAULT_PRIOR),
                    share(name, best),
                    best,
                )
            )
        return tuple(found)


REMEMBERED = 2**18
"""Auction ids that are kept in mind, the latest ones: an id further back than this is not recognised."""


class RepeatedAuctions:
    """Counts auctions whose id was seen shortly before: their rows do not lie together."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.auctions = self.returned = 0
        self._remembered = remembered
        self._latest: deque[set[Any]] = deque()

    def watch(self, blocks: Iterable[AuctionBlock]) -> Iterator[AuctionBlock]:
        """The same blocks."""
        for block in blocks:
            if block.public.names.ids is not None:
                self._note(block.public.names.ids.tolist())
            yield block

    def _note(self, ids: Sequence[Any]) -> None:
        different = set(ids)
        again: set[Any] = set()
        for earlier in self._latest:
            again |= different & earlier
        self.auctions += len(ids)
        self.returned += len(ids) - len(different) + len(again)
        self._latest.append(different)
        while len(self._latest) > 1 and sum(map(len, self._latest)) > self._remembered:
            self._latest.popleft()


def _notes(config: SimulationConfig, results: MarketResults, seen: RepeatedAuctions) -> tuple[str, ...]:
    """What a reader should know though it was no reason to refuse, one line each."""
    found = []
    if seen.returned and isinstance(config.market, AuctionLog):
        column = config.market.names.auction
        found.append(
            f"{seen.returned:,} of {seen.auctions:,} auctions have an id that came before: rows of an "
            f"auction must lie together, or each stretch counts as one; sort the log by {column}"
        )
    reserve = config.rules.reserve_micros
    if reserve and not any(results.mean(arm, "welfare") for arm in (NON_PERSONALISED, GREEDY)):
        found.append(f"nothing was shown: no public score reached auction.reserve_micros = {reserve:,}")
    if not config.choosers:
        found.append("no [[choice]] was asked for: these are the two ends alone")
    return tuple(found)
