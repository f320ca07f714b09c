"""The choice that is never reported: the best ad by all that the device knows, cached ones included."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.deliver.client.cache import Cache, CachedAd
from tacit.deliver.client.here import Here
from tacit.deliver.client.history import History
from tacit.deliver.client.scores import Offered, checked_floor, own_rates
from tacit.deliver.sent import Sent
from tacit.errors import BadInput


@dataclass(frozen=True)
class Unreported:
    """What was shown, None for nothing, and whether only the cache had it. It has nothing for a report."""

    ad: int | None = field(repr=False)
    cached: bool = field(repr=False)


def best(
    sent: Sent | None,
    here: Here,
    history: History,
    *,
    cache: Cache | None = None,
    now: int | None = None,
    ctr_floor: float = 0.0,
) -> Unreported:
    """The ad with the largest micros x rate, or nothing where no rate reaches the floor.

    Not private by itself: which ad it is tells context and history. It tells nobody as long as nothing of this
    request is reported, neither the ad nor a click nor that something was shown, and whether a request is
    reported is settled by public data beforehand: reporting only when the cache had nothing better would
    tell that. Ties go to an ad that was sent, by its public rank, then to the newest in the cache.
    """
    if sent is None and cache is None:
        raise BadInput("expected ads that were sent, or a cache, got neither")
    if cache is not None and now is None:
        raise BadInput("expected now, in seconds, beside a cache, got None")
    floor = checked_floor(ctr_floor)
    found, score = Unreported(None, cached=False), -np.inf
    if sent is not None:
        rates = own_rates(sent, here, history)
        scores = sent.micros * rates
        if floor:
            scores[(rates < floor) | (sent.micros == 0)] = -np.inf
        score = float(scores.max())
        if score >= 0:
            found = Unreported(sent.ads[_first_of(np.flatnonzero(scores == score), sent, floor)], cached=False)
    if cache is not None and now is not None:
        usable = cache.usable(here, now)
        kept = [each for each in usable if sent is None or each[0].ad not in sent.place]
        better = _best_cached(kept, here, history, floor, score)
        found = found if better is None else Unreported(better, cached=True)
    return found


def _first_of(equals: NDArray[np.int64], sent: Sent, ctr_floor: float) -> int:
    """Of places with the same private score, the one with the best public rank."""
    if len(equals) == 1:
        return int(equals[0])
    ranked = Offered.of(sent, ctr_floor).places
    return int(ranked[np.isin(ranked, equals)][0])


def _best_cached(
    kept: list[tuple[CachedAd, int]], here: Here, history: History, ctr_floor: float, above: float
) -> int | None:
    """The best of these, with their micros, that reaches the floor and scores more than `above`."""
    if not kept:
        return None
    ads = [each.ad for each, _ in kept]
    rates = history.rates(ads, here, np.array([each.rate_here(here) for each, _ in kept]))
    scores = np.where(rates >= ctr_floor, rates * [micros for _, micros in kept], -np.inf)
    at = int(np.argmax(scores))
    return ads[at] if scores[at] > above else None
