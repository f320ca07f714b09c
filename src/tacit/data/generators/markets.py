"""Generates auctions: per candidate a bid, the server's click estimate and the true click probability.

An auction has n = min(most, ceil(exp(N(ln m, sigma_n^2)))) candidates. Each bids exp(N(mu_b, sigma_b^2)) per
click. With standard normals z, one per candidate or (context) one per auction,

    eta    = logit(base) + sigma_item z_item + sigma_context z_context     what the server can know
    device = sigmoid(eta + sigma_user z_user)                              the true probability of a click
    server = E[device | eta]                                               the best estimate without the person

and where `kept` is given, only the candidates with the best bid * server go on, best first.

The Taobao-like market has the candidate numbers of the public Taobao display log (an auction is the rows of
one user at one time; about four). The search-like market follows the shape of the search auctions that papers
on private choice describe: many ads retrieved, the best fifteen kept, and little that only the device knows.
All other figures are chosen, not measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from scipy.special import expit, logit

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.data.generators.worlds import seeded_generator
from tacit.errors import BadInput

AUCTIONS_PER_BLOCK = 2**14
FARTHEST_LOG_ODDS = 40.0  # beyond it the probability is its limit to 1e-16
GRID_STEP = 2.0**-8  # linear interpolation errs by step²/8 · max|f''| < 2e-7
NORMAL_REACH = 9.0  # the normal weight beyond is below 1e-18
AUCTIONS_AT_ONCE = 2**10  # of which campaigns are drawn: a number for each campaign and auction
MOST_CAMPAIGNS = 10_000
_MARKET, _CAMPAIGN = 21, 22


@dataclass(frozen=True)
class Auctions:
    """Some auctions, ragged: auction i has the candidates offsets[i] to offsets[i + 1] of every other array.

    bid     currency units per click
    eta     log-odds that anyone can know, without the person
    server  E[device | eta]
    device  the true probability of a click
    """

    offsets: Integers
    bid: Floats
    eta: Floats
    server: Floats
    device: Floats

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def first(self, count: int) -> Auctions:
        """The first `count` auctions."""
        end = self.offsets[count]
        cut = (values[:end] for values in (self.bid, self.eta, self.server, self.device))
        return Auctions(self.offsets[: count + 1], *cut)


@dataclass(frozen=True)
class Campaigns:
    """Synthetic campaigns that recur, laid over auctions that have none: ids, nothing else of an auction.

    The n candidates of an auction are n different campaigns, drawn one after the other with weights
    1 / rank^popularity of those that are left; campaign 0 is the most popular. Each campaign has a level of
    bids, a standard normal of its own, and in an auction its level plus half of another normal: who is higher
    there has the higher of the auction's bids. So a campaign is the same everywhere, and dear or cheap.
    """

    count: int = 200
    popularity: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        if expect.whole("campaigns", self.count, at_least=1) > MOST_CAMPAIGNS:
            raise BadInput(f"expected at most {MOST_CAMPAIGNS:,} campaigns, got {self.count:,}")
        expect.at_least_zero("popularity", self.popularity)

    def numbers(self, block: int, offsets: Integers, bid: Floats) -> Integers:
        """(candidates,) the campaign of each candidate of a block of auctions."""
        sizes = np.diff(offsets)
        most = int(sizes.max(initial=0))
        if most > self.count:
            raise BadInput(
                f"expected at least {most} campaigns, as an auction has candidates, got {self.count}"
            )
        draws, heights = (seeded_generator(self.seed, _CAMPAIGN, block, part) for part in range(2))
        level = seeded_generator(self.seed, _CAMPAIGN).standard_normal(self.count)
        weight = -float(self.popularity) * np.log(np.arange(1, self.count + 1))
        drawn, height = [], []
        for start in range(0, len(sizes), AUCTIONS_AT_ONCE):
            few = sizes[start : start + AUCTIONS_AT_ONCE]
            # The first n by weight plus Gumbel noise are drawn without replacement (Yellott 1977).
            keys = weight - np.log(draws.standard_exponential((len(few), self.count)))
            first = np.argsort(-keys, axis=1)[:, :most]
            there = np.arange(most) < few[:, None]
            noise = heights.standard_normal((len(few), self.count))[:, :most]
            drawn.append(first[there])
            height.append((level[first] + noise / 2)[there])
        auction = np.repeat(np.arange(len(sizes)), sizes)
        found = np.empty(len(bid), np.int64)
        by_height = np.lexsort((np.concatenate([*height, []]), auction))
        found[np.lexsort((bid, auction))] = np.concatenate([*drawn, np.zeros(0, np.int64)])[by_height]
        return found


@dataclass(frozen=True)
class Market:
    """A law of auctions; the module's docstring names each figure. Spreads are standard deviations of logs."""

    candidates_median: float
    candidates_spread: float
    most_candidates: int
    bid_log_mean: float
    bid_log_spread: float
    base: float
    item_spread: float
    context_spread: float
    user_spread: float
    kept: int | None = None

    def __post_init__(self) -> None:
        expect.positive("candidates_median", self.candidates_median)
        expect.whole("most_candidates", self.most_candidates, at_least=1)
        expect.exact("bid_log_mean", self.bid_log_mean)
        expect.probability("base", self.base)
        for name in ("candidates_spread", "bid_log_spread", "item_spread", "context_spread", "user_spread"):
            expect.at_least_zero(name, getattr(self, name))
        if self.kept is not None:
            expect.whole("kept", self.kept, at_least=1)

    @classmethod
    def taobao_like(cls) -> Market:
        """Few candidates, dear and uneven items, and much that only the device knows."""
        return cls(
            candidates_median=2.7, candidates_spread=0.8, most_candidates=40,
            bid_log_mean=5.0, bid_log_spread=1.2,
            base=0.04, item_spread=0.5, context_spread=0.3, user_spread=1.0,
        )  # fmt: skip

    @classmethod
    def search_like(cls) -> Market:
        """Forty ads per query, the best fifteen kept, and little that only the device knows."""
        return cls(
            candidates_median=40.0, candidates_spread=0.0, most_candidates=40,
            bid_log_mean=0.0, bid_log_spread=0.8,
            base=0.05, item_spread=0.8, context_spread=0.5, user_spread=0.35, kept=15,
        )  # fmt: skip

    def candidates(self, count: int, draws: np.random.Generator) -> Integers:
        """The number of candidates of each of `count` auctions, before any cut."""
        drawn = np.exp(math.log(self.candidates_median) + self.candidates_spread * draws.standard_normal(count))
        return np.clip(np.ceil(drawn), 1, self.most_candidates).astype(np.int64)

    def auctions(self, count: int, seed: int) -> Iterator[Auctions]:
        """Exactly `count` auctions, a block at a time; a longer draw begins with the same ones."""
        expect.whole("count", count, at_least=0)
        for block, start in enumerate(range(0, count, AUCTIONS_PER_BLOCK)):
            yield self._block(seeded_generator(seed, _MARKET, block)).first(
                min(AUCTIONS_PER_BLOCK, count - start)
            )

    def _block(self, draws: np.random.Generator) -> Auctions:
        sizes = self.candidates(AUCTIONS_PER_BLOCK, draws)
        offsets = offsets_of(sizes)
        total = int(offsets[-1])
        context = np.repeat(self.context_spread * draws.standard_normal(AUCTIONS_PER_BLOCK), sizes)
        bid = np.exp(self.bid_log_mean + self.bid_log_spread * draws.standard_normal(total))
        eta = float(logit(self.base)) + self.item_spread * draws.standard_normal(total) + context
        server = expected_click(eta, self.user_spread)
        device = expit(eta + self.user_spread * draws.standard_normal(total))
        if self.kept is None:
            return Auctions(offsets, bid, eta, server, device)
        best = best_first(offsets, bid * server, self.kept)
        kept = offsets_of(np.minimum(sizes, self.kept))
        return Auctions(kept, bid[best], eta[best], server[best], device[best])


class AskedMarket(Protocol):
    """What is asked of a made-up market: its kind, display or search, its size, and its campaigns."""

    @property
    def kind(self) -> str: ...
    @property
    def auctions(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def campaigns(self) -> int: ...
    @property
    def popularity(self) -> float: ...


def made_up_auctions(
    asked: AskedMarket,
) -> tuple[Iterator[Auctions], Callable[[int, Integers, Floats], Integers]]:
    """The auctions of a made-up market, like display ads or like search ads, and whose their candidates are.

    What `tacit.deliver.run_simulation` asks for where the market of its configuration is made up.
    """
    for name in ("kind", "auctions", "seed", "campaigns", "popularity"):
        expect.having("asked", asked, name, "a market of a simulation's configuration")
    laws = {"display": Market.taobao_like, "search": Market.search_like}
    if asked.kind not in laws:
        raise BadInput(f"expected a market like {' or '.join(laws)}, got {asked.kind!r}")
    campaigns = Campaigns(asked.campaigns, asked.popularity, asked.seed)
    return laws[asked.kind]().auctions(asked.auctions, asked.seed), campaigns.numbers


def offsets_of(sizes: Integers) -> Integers:
    """Where each of the ragged lists begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def best_first(offsets: Integers, score: Floats, kept: int) -> Integers:
    """The places of the best `kept` candidates of each auction, auction by auction, best first."""
    sizes = np.diff(offsets)
    auction = np.repeat(np.arange(len(sizes)), sizes)
    ranked = np.lexsort((-score, auction))
    rank = np.arange(len(score)) - np.repeat(offsets[:-1], sizes)
    return ranked[rank < kept]


def expected_click(eta: Floats, spread: float) -> Floats:
    """E[sigmoid(eta + spread · z)] for a standard normal z, within 1e-6 of the integral."""
    grid, values = _expected_on_grid(float(spread))
    return np.interp(eta, grid, values)


@lru_cache(maxsize=16)
def _expected_on_grid(spread: float) -> tuple[Floats, Floats]:
    if not 0 <= spread <= 10:
        raise BadInput(f"expected spread in [0, 10], got {spread!r}")
    reach = FARTHEST_LOG_ODDS + NORMAL_REACH * spread
    grid = np.arange(-reach, reach + GRID_STEP, GRID_STEP)
    # The trapezoid rule errs by about exp(-2π²/(spread · step)), and by exp(-2π²/step²) for the normal itself.
    step = min(0.5, 0.5 / spread) if spread else 0.5
    z = np.arange(-NORMAL_REACH, NORMAL_REACH + step / 2, step)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    values = np.zeros_like(grid)
    for node, weight in zip(z, weights, strict=True):
        values += weight * expit(grid + spread * node)
    return grid, values
