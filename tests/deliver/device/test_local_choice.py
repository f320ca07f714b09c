"""Ads kept on the device: bids by node, expiry, and limits by number and by bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tacit.deliver.device.choice import HistoryRates
from tacit.deliver.device.context import ClickHistory
from tacit.deliver.device.local_choice import AdCache, CachedAd
from tacit.errors import BadInput
from tests.support.device_cases import ALL_LEVELS, here, node, old_quarter


def cached(ad: int, expires: int = 100, size_bytes: int = 20) -> CachedAd:
    return CachedAd(ad, {node("*"): 5}, 0.1, expires, size_bytes=size_bytes)


def numbers(cache: AdCache) -> list[int]:
    return [each.ad for each in cache.ads]


def test_the_most_specific_bid_and_rate_count_and_elsewhere_there_is_none() -> None:
    bids = {node("Old"): 5, node("Cafe"): 9, node("Gym"): 2}
    ad = CachedAd(3, bids, 0.1, 100, {node("Old"): 0.2, node("Bakery"): 0.3})
    places = ("Cafe", "Bakery", "Gym", "Pool")
    assert [ad.micros(here(place)) for place in places] == [9, 5, 2, 0]
    assert [ad.rate_here(here(place)) for place in places] == [0.2, 0.3, 0.1, 0.1]
    cache = AdCache().with_ad(ad, now=0)
    assert cache.usable(here("Gym"), now=99) == [(ad, 2)]
    assert cache.usable(here("Pool"), now=99) == []  # it does not pay there
    assert cache.usable(here("Gym"), now=100) == []  # it has expired


def test_the_oldest_go_where_there_are_too_many() -> None:
    cache = AdCache(most=3)
    for ad in (1, 2, 3, 1, 4):  # 1 came again, so 2 is the oldest
        cache = cache.with_ad(cached(ad), now=0)
    assert numbers(cache) == [3, 1, 4]


def test_or_too_many_bytes_and_the_expired_go_before_the_oldest() -> None:
    cache = AdCache(most_bytes=60)
    for ad, expires in ((1, 100), (2, 10), (3, 100)):
        cache = cache.with_ad(cached(ad, expires), now=0)
    assert cache.size_bytes == 60
    later = cache.with_ad(cached(4), now=50)
    assert numbers(later) == [1, 3, 4]
    assert numbers(cache.with_ad(cached(4), now=5)) == [2, 3, 4]
    assert numbers(later.with_ad(cached(5, size_bytes=41), now=50)) == [5]
    assert numbers(cache) == [1, 2, 3]  # never changed
    with pytest.raises(BadInput, match="expected an ad of at most 60 bytes, the cache's limit, got a larger"):
        cache.with_ad(cached(6, size_bytes=61), now=0)
    assert numbers(cache.with_ad(cached(7, expires=3), now=3)) == [1, 2, 3]


def test_an_ad_is_kept_as_it_was_sent() -> None:
    cache = AdCache().with_sent(old_quarter(), 2, now=0, expires=50, creative_bytes=300)
    (ad,) = cache.ads
    assert (ad.ad, ad.rate, ad.size_bytes) == (2, 0.05, 320)
    assert [ad.micros(here(place)) for place in ("Cafe", "Bakery", "Gym")] == [900_000, 900_000, 0]
    assert [ad.rate_here(here(place)) for place in ("Cafe", "Bakery")] == [0.05, 0.08]
    assert "2" not in repr(cache)
    with pytest.raises(BadInput, match="node Old: expected an ad that was sent, got another"):
        cache.with_sent(old_quarter(), 9, now=0, expires=50)


def test_neither_texts_nor_refusals_say_which_ad_is_kept_or_for_where() -> None:
    """Ad 876543 at the Bakery tells that this person was there."""
    ad = CachedAd(876543, {node("Bakery"): 1}, 0.1, 100, {node("Bakery"): 0.2}, size_bytes=30)
    texts = [repr(ad), str(ad), f"{AdCache(ads=(ad,))!r}"]
    refused: list[Callable[[], object]] = [
        lambda: AdCache(most_bytes=20).with_ad(ad, now=0),
        lambda: AdCache().with_sent(old_quarter(), 876543, now=0, expires=50),
        lambda: replace(ad, ad=876543.0),  # type: ignore[arg-type]
        lambda: replace(ad, bids={node("Bakery"): -1}),
        lambda: replace(ad, bids={node("Bakery"): 0.5}),  # type: ignore[dict-item]
        lambda: replace(ad, rates={node("Bakery"): 1.5}),
    ]
    for refuse in refused:
        with pytest.raises(BadInput) as refusal:
            refuse()
        texts.append(str(refusal.value))
    assert not [text for text in texts if "876543" in text or "Bakery" in text]


def test_a_history_is_not_in_the_text_of_its_rates() -> None:
    rates = HistoryRates(ClickHistory(ALL_LEVELS).with_click(2, here("Bakery")))
    assert rates(old_quarter(), here("Bakery"))[1] > 0.08, "the click counts"
    assert repr(rates) == "HistoryRates()"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bids": {node("Old"): -1}}, r"each bid of a cached ad in 0..2\^53 micros, got -1"),
        ({"bids": {node("Old"): 0.5}}, "each bid of a cached ad to be a whole number"),
        ({"rate": float("nan")}, "each rate of a cached ad to be finite"),
        ({"rates": {node("Cafe"): 1.5}}, r"each rate of a cached ad in \[0, 1\]"),
        ({"ad": -3}, "a cached ad to be a whole number >= 0"),
        ({"size_bytes": 0}, "size_bytes"),
    ],
)
def test_a_bad_ad_is_refused(changes: dict[str, Any], said: str) -> None:
    good: dict[str, Any] = {"ad": 3, "bids": {node("Old"): 1}, "rate": 0.1, "expires": 5}
    CachedAd(**good)
    with pytest.raises(BadInput, match=said):
        CachedAd(**good | changes)


def test_limits_are_whole_numbers() -> None:
    with pytest.raises(BadInput, match="most"):
        AdCache(most=0)
    with pytest.raises(BadInput, match="most_bytes"):
        AdCache(most_bytes=0)
