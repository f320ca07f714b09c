"""Ads, people and earlier behaviour of the generated Taobao log, as published tables and click-model inputs.

An ad's item effect has mean 0 and variance 1 over impressions; its category, its brand and the ad itself
carry fixed shares of that. A category has a unit vector q, a segment of people a vector p. Segments come in
mirrored pairs of equal size (p and -p) and are whitened, so that over segments <p, q> has mean 0, variance 1
and no skew for every category, and is close to normal.

Behaviour before the first day shows what each person likes. Everybody comes across LOOKS ads, drawn as
candidates are, and looks closer with probability sigmoid(SHARPNESS * (liking - PICKY)), where liking is z of
`TaobaoWorld` without the row's own part, in standard deviations. Only those views are logged: most of them
are of categories that the person likes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.special import expit, ndtri

from tacit.arrays import Floats, Integers
from tacit.data.generators.worlds import seeded_generator
from tacit.kernels.fingerprints import whole_fingerprints

SEGMENTS = 97  # cms_segid 0..96
TASTES = 4  # the dimension of p and q
CATEGORY_SHARE, BRAND_SHARE, AD_SHARE = 0.4, 0.2, 0.4  # of the item effect's variance
HIGHEST_PRICE = 99_999_999.0
_ADS, _PEOPLE = 31, 32


@dataclass(frozen=True)
class TaobaoAds:
    """Every ad, by its adgroup_id - 1."""

    table: pa.Table
    cdf: Floats  # of being drawn as a candidate
    item_effect: Floats
    category: Integers  # cate_id - 1
    taste: Floats  # (ads, TASTES), unit vectors: those of the ads' categories
    price_meant: Floats  # the price before outliers are written over a few


@dataclass(frozen=True)
class TaobaoPeople:
    """Every person, by their user number - 1."""

    table: pa.Table
    cdf: Floats  # of making a request
    taste: Floats  # (people, TASTES): those of their segments


def draw_ads(
    ads: int, *, seed: int, log_price_mean: float, log_price_spread: float, missing_brands: float,
    price_outliers: float, skew: float,
) -> TaobaoAds:  # fmt: skip
    """Draw `ads` ads: their published table, and what the click model needs of them."""
    draws = seeded_generator(seed, _ADS)
    categories, brands = max(1, ads // 40), max(1, ads // 8)
    category = draw_zipf(categories, 0.8, ads, draws)
    brand = draw_zipf(brands, 0.8, ads, draws)
    branded = draws.random(ads) >= missing_brands
    weights = np.exp(skew * draws.standard_normal(ads))
    weights /= weights.sum()
    effect = (
        CATEGORY_SHARE**0.5 * draws.standard_normal(categories)[category]
        + BRAND_SHARE**0.5 * np.where(branded, draws.standard_normal(brands)[brand], draws.standard_normal(ads))
        + AD_SHARE**0.5 * draws.standard_normal(ads)
    )
    taste = draws.standard_normal((categories, TASTES))
    taste /= np.linalg.norm(taste, axis=1, keepdims=True)
    log_price = log_price_mean + log_price_spread * draws.standard_normal(ads)
    price_meant = np.maximum(np.round(np.exp(log_price), 2), 0.01)
    price = price_meant.copy()
    wrong = draws.random(ads) < price_outliers
    price[wrong] = np.round(HIGHEST_PRICE ** draws.uniform(0.7, 1.0, int(wrong.sum())))
    price[np.argmax(draws.random(ads))] = HIGHEST_PRICE
    campaign = draws.integers(1, max(1, ads // 2) + 1, size=ads)
    table = pa.table(
        {
            "adgroup_id": np.arange(1, ads + 1),
            "cate_id": category + 1,
            "campaign_id": campaign,
            "customer": campaign * 5 // 8 + 1,  # a customer has a campaign or two
            "brand": pa.array(brand + 1, mask=~branded),
            "price": price,
        }
    )
    effect = standardise(effect, weights)
    return TaobaoAds(table, np.cumsum(weights), effect, category, taste[category], price_meant)


def draw_people(people: int, *, seed: int, without_profile: float, skew: float) -> TaobaoPeople:
    """Draw `people` people: the published table of profiles, and what the click model needs of them."""
    draws = seeded_generator(seed, _PEOPLE)
    sizes, tastes = _segments(draws)
    segment = draw_by_weight(np.cumsum(sizes), people, draws)
    group = segment % 13  # 0: age unknown; 1 to 6 women and 7 to 12 men by age
    gender = np.where(group == 0, draws.integers(1, 3, size=people), np.where(group <= 6, 2, 1))
    shopping = draws.choice([1, 2, 3], size=people, p=[0.04, 0.06, 0.9])
    pvalue = draws.choice([1, 2, 3], size=people, p=[0.3, 0.6, 0.1])
    city_level = draws.choice([1, 2, 3, 4], size=people, p=[0.1, 0.45, 0.25, 0.2])
    profile = {
        "userid": np.arange(1, people + 1),
        "cms_segid": segment,
        "cms_group_id": group,
        "final_gender_code": gender,
        "age_level": np.where(group == 0, 0, (group - 1) % 6 + 1),
        "pvalue_level": pa.array(pvalue, mask=draws.random(people) < 0.54),
        "shopping_level": shopping,
        "occupation": (draws.random(people) < 0.06).astype(np.int64),
        # The space is published.
        "new_user_class_level ": pa.array(city_level, mask=draws.random(people) < 0.32),
    }
    table = pa.table(profile).filter(pa.array(draws.random(people) >= without_profile))
    return TaobaoPeople(table, np.cumsum(np.exp(skew * draws.standard_normal(people))), tastes[segment])


def _segments(draws: np.random.Generator) -> tuple[Floats, Floats]:
    """How large each segment is, and its taste: whitened, in mirrored pairs, the first one without any."""
    pairs = SEGMENTS // 2
    half = np.exp(0.5 * draws.standard_normal(pairs))
    sizes = np.concatenate([[half.mean()], half, half])
    sizes /= sizes.sum()
    raw = draws.standard_normal((pairs, TASTES))
    tastes = np.concatenate([np.zeros((1, TASTES)), raw, -raw])
    covariance = tastes.T @ (sizes[:, None] * tastes)
    return sizes, tastes @ np.linalg.inv(np.linalg.cholesky(covariance)).T


def draw_by_weight(cdf: Floats, count: int, draws: np.random.Generator) -> Integers:
    """`count` indexes drawn by weights, which are given as their running sum."""
    return np.asarray(np.searchsorted(cdf, draws.random(count) * cdf[-1]), dtype=np.int64)


def standardise(values: Floats, weights: Floats) -> Floats:
    """Shifted and scaled to mean 0 and variance 1 under the weights, which sum to 1."""
    centred = values - weights @ values
    return np.asarray(centred / np.sqrt(weights @ centred**2))


def draw_zipf(count: int, exponent: float, size: int, draws: np.random.Generator) -> Integers:
    cdf = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    return draw_by_weight(cdf, size, draws)


LOOKS = 120
SHARPNESS, PICKY = 4.0, 1.0
PEOPLE_AT_ONCE = 2**14
FIRST_IMPRESSION_SECOND = 1_494_000_000  # of the impressions
BEHAVIOUR_DAYS = 14  # before it
TAGS, TAG_SHARES = ("pv", "cart", "fav", "buy"), (0.95, 0.02, 0.02, 0.01)
_BEHAVIOUR = 36

Liking = Callable[[Integers, Integers], Floats]  # of people and ads


def personal_taste(seed: int, person: Integers, category: Integers) -> Floats:
    """A standard normal for each person and category, always the same one and never kept."""
    bits = whole_fingerprints((person << 32) | category, seed)
    return np.asarray(ndtri(((bits >> np.uint64(11)) + 0.5) * 2.0**-53))


def draw_behaviour(ads: TaobaoAds, people: int, liking: Liking, *, seed: int) -> pa.Table:
    """The published `behavior_log`: user, time_stamp, btag, cate, brand."""
    parts = [
        _behaviour_of(ads, first, min(people, first + PEOPLE_AT_ONCE), liking, seed)
        for first in range(0, people, PEOPLE_AT_ONCE)
    ]
    return pa.concat_tables(parts).combine_chunks()


def _behaviour_of(ads: TaobaoAds, first: int, past: int, liking: Liking, seed: int) -> pa.Table:
    draws = seeded_generator(seed, _BEHAVIOUR, first)
    person = np.repeat(np.arange(first, past), LOOKS)
    # Whether somebody looks closer depends on the category alone, so the ad is drawn only for those who do.
    by_category = np.argsort(ads.category, kind="stable")
    reach = np.cumsum(np.diff(ads.cdf, prepend=0.0)[by_category])  # the ads' cdf, category by category
    last = np.flatnonzero(np.diff(ads.category[by_category], append=-1))  # each category's last ad
    drawn = draw_by_weight(reach[last], len(person), draws)
    closer = draws.random(len(person)) < expit(SHARPNESS * (liking(person, by_category[last][drawn]) - PICKY))
    person, drawn = person[closer], drawn[closer]
    low, high = np.concatenate([[0.0], reach[last[:-1]]])[drawn], reach[last][drawn]
    at = np.searchsorted(reach, low + (high - low) * draws.random(len(drawn)), side="right")
    ad = by_category[np.minimum(at, last[drawn])]
    second = FIRST_IMPRESSION_SECOND - draws.integers(1, BEHAVIOUR_DAYS * 86_400, size=len(person))
    tag = draw_by_weight(np.cumsum(TAG_SHARES), len(person), draws)
    found = ads.table.select(["cate_id", "brand"]).take(pa.array(ad))
    return pa.table(
        {
            "user": person + 1,
            "time_stamp": second,
            "btag": pa.array(TAGS).take(pa.array(tag)),
            "cate": found["cate_id"],
            "brand": found["brand"],
        }
    )
