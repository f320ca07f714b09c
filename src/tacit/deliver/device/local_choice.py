"""The choice that is never reported: the exact best of the menu and of ads cached on the device.

Cached ads are of places visited before, say. Which ads are cached tells where the device was, so they are
shown only where nothing about the request is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tacit import expect
from tacit.deliver.device.choice import HistoryRates
from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.protocol.menu import NOTHING, Menu, check_floor
from tacit.errors import BadInput
from tacit.kernels.auctions import MOST_MICROS
from tacit.schema.contexts.hierarchy import Node

BYTES_AN_AD = 8 + 8 + 4  # its number, its bid and a rate


@dataclass(frozen=True, repr=False)
class CachedAd:
    """One ad, what its advertiser bids where, and what the server knew of its rate.

    That this ad is kept, and for which nodes, tells where the device was: neither is in its text or a refusal.

    bids     micros per click by node: a bid holds below its node too, the most specific one counts, 0 elsewhere
    rate     the server's rate where none of `rates` is above the device
    rates    rates by node, read like bids
    expires  the second from which it is not shown any more
    """

    ad: int
    bids: Mapping[Node, int]
    rate: float
    expires: int
    rates: Mapping[Node, float] = field(default_factory=dict)
    size_bytes: int = BYTES_AN_AD

    def __post_init__(self) -> None:
        if isinstance(self.ad, bool) or not hasattr(self.ad, "__index__") or self.ad < 0:
            raise BadInput("expected a cached ad to be a whole number >= 0, got another")
        expect.integer("expires", self.expires)
        expect.whole("size_bytes", self.size_bytes, at_least=1)
        for micros in self.bids.values():
            if expect.integer("each bid of a cached ad", micros) not in range(MOST_MICROS + 1):
                raise BadInput(f"expected each bid of a cached ad in 0..2^53 micros, got {micros}")
        for rate in (self.rate, *self.rates.values()):
            expect.probability("each rate of a cached ad", rate, zero=True, one=True)

    def micros(self, context: DeviceContext) -> int:
        """What a click pays here; 0 where there is no bid."""
        found = context.finest(self.bids)
        return 0 if found is None else self.bids[found]

    def rate_here(self, context: DeviceContext) -> float:
        found = context.finest(self.rates)
        return self.rate if found is None else self.rates[found]


@dataclass(frozen=True)
class AdCache:
    """The last ads that came, each once: at most `most` of them and `most_bytes` bytes.

    It never changes: `with_ad` gives another.

    Which ads are here tells where the device was and what was shown there, so none of them is reported unless
    the server has just sent it: see `choice`. They are not in the text of a cache.
    """

    most: int = 100
    most_bytes: int | None = None
    ads: tuple[CachedAd, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        expect.whole("most", self.most, at_least=1)
        if self.most_bytes is not None:
            expect.whole("most_bytes", self.most_bytes, at_least=1)

    def __len__(self) -> int:
        return len(self.ads)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.ads)

    def with_ad(self, ad: CachedAd, now: int) -> AdCache:
        """The cache with this ad as its newest: expired ads go first, then the oldest until all fits."""
        room = math.inf if self.most_bytes is None else self.most_bytes
        if ad.size_bytes > room:
            raise BadInput(f"expected an ad of at most {room} bytes, the cache's limit, got a larger one")
        others = (each for each in self.ads if each.ad != ad.ad)
        kept = [each for each in (*others, ad) if each.expires > now]
        while len(kept) > self.most or sum(each.size_bytes for each in kept) > room:
            kept.pop(0)
        return replace(self, ads=tuple(kept))

    def with_sent(self, menu: Menu, ad: int, now: int, expires: int, creative_bytes: int = 0) -> AdCache:
        """The cache with an ad of a menu: its bid is known below the menu's node, only."""
        place = menu.place.get(ad)
        if place is None or ad == NOTHING:
            raise BadInput(f"node {menu.node}: expected an ad that was sent, got another")
        rates = {node: table[ad] for node, table in menu.finer.items() if ad in table}
        bids, rate = {menu.node: int(menu.bid_micros[place])}, float(menu.rates[place])
        size = BYTES_AN_AD + expect.whole("creative_bytes", creative_bytes, at_least=0)
        return self.with_ad(CachedAd(ad, bids, rate, expires, rates, size), now)

    def usable(self, context: DeviceContext, now: int) -> list[tuple[CachedAd, int]]:
        """Those that have not expired and pay for a click here, with what they pay; the newest first."""
        fresh = ((each, each.micros(context)) for each in reversed(self.ads) if each.expires > now)
        return [(each, micros) for each, micros in fresh if micros]


@dataclass(frozen=True)
class UnreportedChoice:
    """What was shown, None for nothing, and whether only the cache had it. It has nothing for a report."""

    ad: int | None = field(repr=False)
    cached: bool = field(repr=False)


def choose_locally(
    menu: Menu | None,
    context: DeviceContext,
    history: ClickHistory,
    *,
    cache: AdCache | None = None,
    now: int | None = None,
    ctr_floor: float = 0.0,
) -> UnreportedChoice:
    """The ad with the largest micros x rate, or nothing where no rate reaches the floor.

    Not private by itself: which ad it is tells context and history. It tells nobody as long as nothing of this
    request is reported, neither the ad nor a click nor that something was shown, and whether a request is
    reported is settled by public data beforehand: reporting only when the cache had nothing better would
    tell that. Ties go to an ad of the menu, by its public rank, then to the newest in the cache.
    """
    if menu is None and cache is None:
        raise BadInput("expected ads that were sent, or a cache, got neither")
    if cache is not None and now is None:
        raise BadInput("expected now, in seconds, beside a cache, got None")
    expect.at_least_zero("ctr_floor", ctr_floor)
    floor = check_floor(ctr_floor)
    found, score = UnreportedChoice(None, cached=False), -np.inf
    if menu is not None:
        rates = HistoryRates(history)(menu, context)
        scores = menu.bid_micros * rates
        unpaid = (rates < floor) | (menu.bid_micros == 0) if floor else np.zeros(len(menu), np.bool_)
        scores[unpaid | (np.array(menu.ads) == NOTHING)] = -np.inf
        best = int(np.argmax(scores))  # among equals the best public rank
        score = float(scores[best])
        if score >= 0:
            found = UnreportedChoice(menu.ads[best], cached=False)
    if cache is not None and now is not None:
        usable = cache.usable(context, now)
        kept = [each for each in usable if menu is None or each[0].ad not in menu.place]
        better = _best_cached(kept, context, history, floor, score)
        found = found if better is None else UnreportedChoice(better, cached=True)
    return found


def _best_cached(
    kept: list[tuple[CachedAd, int]],
    context: DeviceContext,
    history: ClickHistory,
    ctr_floor: float,
    above: float,
) -> int | None:
    """The best of these, with their micros, that reaches the floor and scores more than `above`."""
    if not kept:
        return None
    ads = [each.ad for each, _ in kept]
    rates = history.rates(ads, context, np.array([each.rate_here(context) for each, _ in kept]))
    scores = np.where(rates >= ctr_floor, rates * [micros for _, micros in kept], -np.inf)
    at = int(np.argmax(scores))
    return ads[at] if scores[at] > above else None
