"""Menus of a large market, made from nothing and again after changes: statistics in, priced menus out.

Every campaign bids in every context, so that each of them competes everywhere; statistics are counts of a
made-up log. What takes part of an epoch's opening beside them, drawing token keys, is given for comparison.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tacit.bill.server.token_keys import TokenKey
from tacit.deliver.campaigns.campaign import AdCampaign, BidEvent, ContextBid
from tacit.deliver.server.competition import MenuRules
from tacit.deliver.server.market import MenuMarket
from tacit.deliver.server.rate_book import CountedRates
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Sequence
from tacit.schema.contexts.listed import ListedNodes, list_nodes
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts
from tacit_lab.bench.measurement import Measurement, processor_model

REBUILD_SECONDS, CHANGE_SECONDS = 10.0, 1.0
OPENS, CLOSES = 0, 600


@dataclass(frozen=True)
class MarketScale:
    """How large a market; tests take a smaller one."""

    regions: int = 40
    topics: int = 25
    cities: int = 4  # of a region, where contexts below are looked at
    campaigns: int = 10_000
    impressions: int = 1_000_000
    rounds: int = 3
    keys: int = 10

    @property
    def contexts(self) -> int:
        return self.regions * self.topics


LARGE = MarketScale()


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, and of the processor."""

    wall: float
    processor: float


def timed(work: Callable[[], object]) -> Spent:
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - processor)


class LargeMarket:
    """A made-up market: campaigns with bids for a click, and a log that rates are counted from."""

    def __init__(self, scale: MarketScale, seed: int, *, cities: int = 1) -> None:
        self._draws = np.random.default_rng(seed)
        places = [f"R{i} > C{i}.{j}" for i in range(scale.regions) for j in range(cities)]
        topics = [f"K{i} > T{i}" for i in range(scale.topics)]
        attributes = [Steps("city", Tree.of_paths(places)), Steps("topic", Tree.of_paths(topics))]
        hierarchy = Sequence(attributes, [(0, 0), (1, 1), (2, 2)])
        self._contexts = ListedNodes(hierarchy, list_nodes(hierarchy, [(1, 1)], scale.contexts))
        self.campaigns = [self._campaign(number) for number in range(scale.campaigns)]
        told = {each.name: self._drawn(each.tree.leaves(), scale.impressions) for each in attributes}
        self._nodes, ads = ContextNodes.of(hierarchy, told), scale.campaigns
        ad = self._draws.integers(ads, size=scale.impressions)
        liked = self._draws.gamma(
            4.0, 0.01, (scale.contexts, ads)
        )  # click rates differ from context to context
        clicked = self._draws.random(scale.impressions) < liked[self._nodes.of_row((1, 1)), ad]
        self._log = ad, clicked
        self._market: MenuMarket | None = None

    def _drawn(self, values: tuple[str, ...], rows: int) -> list[str]:
        return [values[each] for each in self._draws.integers(len(values), size=rows).tolist()]

    def _campaign(self, number: int) -> AdCampaign:
        bid = ContextBid(int(self._draws.integers(100_000, 900_000)))
        return AdCampaign(number, "made up", f"campaign {number}", BidEvent.CLICK, (bid,))

    def statistics(self) -> CountedRates:
        """New counts each time: what is measured of them is measured again."""
        ad, clicked = self._log
        counts = Counts.of_rows(self._nodes, ad, len(self.campaigns), clicked)
        return CountedRates(
            self._nodes, {BidEvent.CLICK: counts}, range(len(self.campaigns)), version="made up"
        )

    def build(self, book: CountedRates) -> None:
        """From nothing: rates, scores, selection and prices of all contexts."""
        rules = MenuRules(epsilon=1, smallest_cohort=20, reserve_micros=100)
        self._market = MenuMarket(self._contexts, rules, book)
        self._market.change(self.campaigns)
        assert len(self._market.menus(1, OPENS, CLOSES, {}, {})) == 2 * len(self._contexts)

    def change(self, campaigns: list[AdCampaign]) -> None:
        assert self._market is not None, "it was built"
        self._market.change(campaigns)
        assert len(self._market.menus(2, OPENS, CLOSES, {}, {})) == 2 * len(self._contexts)

    def changed(self, count: int) -> list[AdCampaign]:
        """So many campaigns with other bids."""
        picked = self._draws.choice(len(self.campaigns), count, replace=False)
        return [self._campaign(number) for number in picked.tolist()]


def rebuilding(scale: MarketScale, seed: int = 1) -> list[Measurement]:
    """All menus, and those that 1% of changed campaigns touch, by the best of some rounds."""
    market = LargeMarket(scale, seed)
    whole = [timed(partial(market.build, market.statistics())) for _ in range(scale.rounds)]
    few = max(1, scale.campaigns // 100)
    changes = [timed(partial(market.change, market.changed(few))) for _ in range(scale.rounds)]
    what = (
        f"{scale.contexts:,} contexts x {scale.campaigns:,} campaigns that all bid in all of them, rates of "
        f"{scale.impressions:,} counted impressions; PricedMenus of both lanes, without token keys; one "
        f"thread, best of {scale.rounds} on {processor_model()}"
    )
    found = []
    for name, spent, bar, words in (
        ("menus_rebuild", whole, REBUILD_SECONDS, "from new statistics"),
        ("menus_change", changes, CHANGE_SECONDS, f"{few:,} campaigns with other bids"),
    ):
        best = min(spent, key=lambda each: each.processor)
        settings = f"{words}: {best.processor:.2f} s of the processor; {what}"
        found.append(
            Measurement(f"{name}_seconds", min(each.wall for each in spent), "s", bar, False, settings)
        )
        found.append(Measurement(f"{name}_processor_seconds", best.processor, "s", bar, False, settings))
    return [*found, *context_figures(scale, seed, min(each.processor for each in whole))]


def context_figures(scale: MarketScale, seed: int, whole: float) -> list[Measurement]:
    """What has no bar: growth, contexts below, token keys."""
    half = LargeMarket(replace(scale, campaigns=scale.campaigns // 2), seed)
    smaller = min(timed(partial(half.build, half.statistics())).processor for _ in range(scale.rounds))
    finer = LargeMarket(scale, seed, cities=scale.cities)
    below = timed(partial(finer.build, finer.statistics())).processor
    key = timed(lambda: [TokenKey.generate() for _ in range(scale.keys)]).processor / scale.keys
    return [
        Measurement(
            "menus_rebuild_growth", whole / smaller if smaller else 0.0, "x", None, False,
            f"the processor's time for {scale.campaigns:,} campaigns over that for half as many",
        ),
        Measurement(
            "menus_rebuild_below_processor_seconds", below, "s", None, False,
            f"the same with {scale.cities} contexts below each, for which ads are selected by greedy choice: "
            f"{scale.cities + 1} times as many rates",
        ),
        Measurement(
            "menus_token_keys_processor_seconds", 2 * scale.contexts * key, "s", None, False,
            f"keys of RSA for both lanes of {scale.contexts:,} contexts at {1000 * key:.0f} ms each: drawn "
            "ahead, between epochs",
        ),
    ]  # fmt: skip
