"""What the people of the made-up Taobao log did before the first day, which tells what each of them likes.

Everybody comes across LOOKS ads, drawn as candidates are, and looks closer with probability sigmoid(SHARPNESS ·
(liking - PICKY)), where liking is what `TaobaoWorld` calls z without the row's own part, in standard
deviations. Only those are logged: most of them are of categories that the person likes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from scipy.special import expit, ndtri

from tacit.data.generators.generated import generator
from tacit.data.generators.taobao_tables import Ads, Floats, Integers, pick
from tacit.kernels import whole_fingerprints

LOOKS = 120
SHARPNESS, PICKY = 4.0, 1.0
PEOPLE_AT_ONCE = 2**14
FIRST_SECOND = 1_494_000_000  # of the impressions
DAYS = 14  # before it
TAGS, TAG_SHARES = ("pv", "cart", "fav", "buy"), (0.95, 0.02, 0.02, 0.01)
_BEHAVIOUR = 36

Liking = Callable[[Integers, Integers], Floats]  # of people and ads


def own_taste(seed: int, person: Integers, category: Integers) -> Floats:
    """A standard normal for each person and category, always the same one and never kept."""
    bits = whole_fingerprints((person << 32) | category, seed)
    return np.asarray(ndtri(((bits >> np.uint64(11)) + 0.5) * 2.0**-53))


def behaviour(ads: Ads, people: int, liking: Liking, *, seed: int) -> pa.Table:
    """The published `behavior_log`: user, time_stamp, btag, cate, brand."""
    parts = [
        _some(ads, first, min(people, first + PEOPLE_AT_ONCE), liking, seed)
        for first in range(0, people, PEOPLE_AT_ONCE)
    ]
    return pa.concat_tables(parts).combine_chunks()


def _some(ads: Ads, first: int, past: int, liking: Liking, seed: int) -> pa.Table:
    draws = generator(seed, _BEHAVIOUR, first)
    person = np.repeat(np.arange(first, past), LOOKS)
    # Whether somebody looks closer hangs on the category alone, so the ad is drawn only for those who do.
    by_category = np.argsort(ads.category, kind="stable")
    reach = np.cumsum(np.diff(ads.cdf, prepend=0.0)[by_category])  # the ads' cdf, category by category
    last = np.flatnonzero(np.diff(ads.category[by_category], append=-1))  # each category's last ad
    drawn = pick(reach[last], len(person), draws)
    closer = draws.random(len(person)) < expit(SHARPNESS * (liking(person, by_category[last][drawn]) - PICKY))
    person, drawn = person[closer], drawn[closer]
    low, high = np.concatenate([[0.0], reach[last[:-1]]])[drawn], reach[last][drawn]
    at = np.searchsorted(reach, low + (high - low) * draws.random(len(drawn)), side="right")
    ad = by_category[np.minimum(at, last[drawn])]
    second = FIRST_SECOND - draws.integers(1, DAYS * 86_400, size=len(person))
    tag = pick(np.cumsum(TAG_SHARES), len(person), draws)
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
