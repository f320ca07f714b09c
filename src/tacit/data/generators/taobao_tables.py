"""The ads and the people behind the made-up Taobao log: their public tables, and what the click model reads.

An ad's item effect has mean 0 and variance 1 over impressions; its category, its brand and the ad itself carry
fixed shares of that. A category has a unit vector q, a segment of people a vector p. Segments come in mirrored
pairs of equal size (p and -p) and are whitened, so that over segments ⟨p, q⟩ has mean 0, variance 1 and no skew
for every category, and is close to normal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tacit.data.generators.generated import generator

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SEGMENTS = 97  # cms_segid 0..96
TASTES = 4  # the dimension of p and q
CATEGORY_SHARE, BRAND_SHARE, AD_SHARE = 0.4, 0.2, 0.4  # of the item effect's variance
HIGHEST_PRICE = 99_999_999.0
_ADS, _PEOPLE = 31, 32


@dataclass(frozen=True)
class Ads:
    """Every ad, by its adgroup_id - 1."""

    table: pa.Table
    cdf: Floats  # of being drawn as a candidate
    item_effect: Floats
    category: Integers  # cate_id - 1
    taste: Floats  # (ads, TASTES), unit vectors: those of the ads' categories
    price_meant: Floats  # the price before outliers are written over a few


@dataclass(frozen=True)
class People:
    """Every person, by their user number - 1."""

    table: pa.Table
    cdf: Floats  # of making a request
    taste: Floats  # (people, TASTES): those of their segments


def draw_ads(
    ads: int, *, seed: int, log_price_mean: float, log_price_spread: float, missing_brands: float,
    price_outliers: float, skew: float,
) -> Ads:  # fmt: skip
    draws = generator(seed, _ADS)
    categories, brands = max(1, ads // 40), max(1, ads // 8)
    category = zipf(categories, 0.8, ads, draws)
    brand = zipf(brands, 0.8, ads, draws)
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
    effect = standardised(effect, weights)
    return Ads(table, np.cumsum(weights), effect, category, taste[category], price_meant)


def draw_people(people: int, *, seed: int, without_profile: float, skew: float) -> People:
    draws = generator(seed, _PEOPLE)
    sizes, tastes = _segments(draws)
    segment = pick(np.cumsum(sizes), people, draws)
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
        "new_user_class_level ": pa.array(
            city_level, mask=draws.random(people) < 0.32
        ),  # the space is published
    }
    table = pa.table(profile).filter(pa.array(draws.random(people) >= without_profile))
    return People(table, np.cumsum(np.exp(skew * draws.standard_normal(people))), tastes[segment])


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


def pick(cdf: Floats, count: int, draws: np.random.Generator) -> Integers:
    """So many places, by weights given as their running sum."""
    return np.asarray(np.searchsorted(cdf, draws.random(count) * cdf[-1]), dtype=np.int64)


def standardised(values: Floats, weights: Floats) -> Floats:
    """Shifted and scaled to mean 0 and variance 1 under the weights, which sum to 1."""
    centred = values - weights @ values
    return np.asarray(centred / np.sqrt(weights @ centred**2))


def zipf(count: int, exponent: float, size: int, draws: np.random.Generator) -> Integers:
    cdf = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    return pick(cdf, size, draws)
