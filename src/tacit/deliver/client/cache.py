"""Ads kept on the device, of places visited before, say: for showing where nothing is reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tacit import expect
from tacit.deliver.client.here import Here
from tacit.deliver.sent import BYTES_AN_AD, Sent
from tacit.errors import BadInput
from tacit.kernels.auctions import MOST_MICROS
from tacit.schema.contexts.hierarchy import Node


@dataclass(frozen=True, repr=False)
class CachedAd:
    """One ad, what its advertiser bids where, and what the server knew of its rate.

    That this ad is kept, and for which nodes, tells where the device was: neither is in its text or a refusal.

    bids     micros a click by node: a bid holds below its node too, the most specific one counts, 0 elsewhere
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

    def micros(self, here: Here) -> int:
        """What a click pays here; 0 where there is no bid."""
        found = here.finest(self.bids)
        return 0 if found is None else self.bids[found]

    def rate_here(self, here: Here) -> float:
        found = here.finest(self.rates)
        return self.rate if found is None else self.rates[found]


@dataclass(frozen=True)
class Cache:
    """At most so many ads, and bytes, the last that came; each ad once. It never changes: see `with_ad`.

    Which ads are here tells where the device was and what was shown there, so none of them is reported unless
    the server has just sent it: see `private`. They are not in the text of a cache.
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

    def with_ad(self, ad: CachedAd, now: int) -> Cache:
        """The cache with this ad as its newest: expired ads go first, then the oldest until all fits."""
        room = math.inf if self.most_bytes is None else self.most_bytes
        if ad.size_bytes > room:
            raise BadInput(f"expected an ad of at most {room} bytes, the cache's limit, got a larger one")
        others = (each for each in self.ads if each.ad != ad.ad)
        kept = [each for each in (*others, ad) if each.expires > now]
        while len(kept) > self.most or sum(each.size_bytes for each in kept) > (
            self.most_bytes or float("inf")
        ):
            kept.pop(0)
        return replace(self, ads=tuple(kept))

    def with_sent(self, sent: Sent, ad: int, now: int, expires: int, creative_bytes: int = 0) -> Cache:
        """The cache with an ad as it was sent: its bid is known below the node it was sent for, only."""
        place = sent.place.get(ad)
        if place is None:
            raise BadInput(f"node {sent.node}: expected an ad that was sent, got another")
        rates = {node: table[ad] for node, table in sent.finer.items() if ad in table}
        bids, rate = {sent.node: int(sent.micros[place])}, float(sent.rates[place])
        size = BYTES_AN_AD + expect.whole("creative_bytes", creative_bytes, at_least=0)
        return self.with_ad(CachedAd(ad, bids, rate, expires, rates, size), now)

    def usable(self, here: Here, now: int) -> list[tuple[CachedAd, int]]:
        """Those that have not expired and pay for a click here, with what they pay; the newest first."""
        fresh = ((each, each.micros(here)) for each in reversed(self.ads) if each.expires > now)
        return [(each, micros) for each, micros in fresh if micros]
