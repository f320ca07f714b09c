"""Generates a log in the form of the Taobao display-ad log: candidates, clicks, ads and people.

An auction is the rows of one user at one time; its size has the law of `Market.taobao_like`, and its ads are
distinct. With z_item of the ad, z_context of the placement and the hour, p and q the tastes of the person's
segment and of the ad's category (see `taobao_tables`), and standard normals g per person and category and
zeta per row,

    eta    = b + sigma_item z_item + sigma_context z_context
    z      = sqrt(learnable) <p, q> + sqrt(1 - learnable) (sqrt(personal) g + sqrt(1 - personal) zeta)
    device = sigmoid(eta + sigma_user z)
    server = E[device | eta]  for z ~ N(0, 1)
    clk    ~ Bernoulli(device)
    bid    = bid_per_price * price,      ln price ~ N(5, 1.2^2)

so `learnable` is the share of what only the device knows that a model of segments and categories can learn,
and `personal` the share of the rest that the person's earlier behaviour reveals. A world solves b once, on a
fixed draw of its own, so that the share of clicks is `click_rate`. A few published prices are outliers; bids
are made from the prices before that.

Rows are in time order within a block, not over the log: every block covers all eight days. A log may end
within an auction. Two auctions of one user may fall on the same second (a few in a million) and then read as
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
import pyarrow as pa
from scipy.optimize import brentq
from scipy.special import expit

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.data.generators.markets import Market, expected_click
from tacit.data.generators.taobao_tables import (
    TaobaoAds,
    TaobaoPeople,
    draw_ads,
    draw_behaviour,
    draw_by_weight,
    draw_people,
    personal_taste,
    standardise,
)
from tacit.data.generators.worlds import ROWS_PER_BATCH, GeneratedRows, first_rows, seeded_generator
from tacit.data.logs.taobao import BID_SHARE
from tacit.errors import BadInput

FIRST_SECOND = 1_494_000_000  # 2017-05-06, 0h in UTC+8
DAYS, HOURS_PER_DAY, SECONDS_PER_HOUR = 8, 24, 3600
PLACEMENTS = ("430548_1007", "430539_1007")
PLACEMENT_SHARES = (0.6, 0.4)
AUCTIONS_PER_BLOCK = ROWS_PER_BATCH // 4
CALIBRATION_ROWS = 2**18
# An auction's ads are made distinct by drawing again: that ends soon where no few ads take nearly all draws.
FEWEST_ADS, MOST_AD_SKEW = 1000, 3
_CONTEXTS, _BASE, _ROWS = 33, 34, 35


@dataclass(frozen=True)
class TaobaoWorld:
    """The ads, the people and the click model; the module's docstring names the figures."""

    seed: int
    ads: int = 40_000
    people: int = 60_000
    click_rate: float = 0.0514
    learnable: float = 0.5
    personal: float = 0.6
    bid_per_price: float = BID_SHARE
    missing_brands: float = 0.29
    price_outliers: float = 1e-4
    without_profile: float = 0.07
    ad_skew: float = 1.5  # standard deviation of the log of how often an ad, or a person, is drawn
    person_skew: float = 1.0

    def __post_init__(self) -> None:
        expect.whole("seed", self.seed, at_least=0)
        expect.whole("ads", self.ads, at_least=FEWEST_ADS)
        expect.whole("people", self.people, at_least=1)
        expect.probability("click_rate", self.click_rate)
        expect.positive("bid_per_price", self.bid_per_price)
        for name in ("learnable", "personal", "missing_brands", "price_outliers", "without_profile"):
            expect.probability(name, getattr(self, name), zero=True, one=True)
        if expect.at_least_zero("ad_skew", self.ad_skew) > MOST_AD_SKEW:
            raise BadInput(f"expected ad_skew <= {MOST_AD_SKEW}, got {self.ad_skew!r}")
        expect.at_least_zero("person_skew", self.person_skew)

    @property
    def name(self) -> str:
        return "taobao"

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {
            "ad_feature": self._ads.table,
            "user_profile": self._people.table,
            "behavior_log": self._behaviour,
        }

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        return first_rows(rows, (self._block(seeded_generator(self.seed, _ROWS, block)) for block in count()))

    @cached_property
    def _ads(self) -> TaobaoAds:
        market = Market.taobao_like()
        return draw_ads(
            self.ads, seed=self.seed,
            log_price_mean=market.bid_log_mean, log_price_spread=market.bid_log_spread,
            missing_brands=self.missing_brands, price_outliers=self.price_outliers, skew=self.ad_skew,
        )  # fmt: skip

    @cached_property
    def _people(self) -> TaobaoPeople:
        return draw_people(
            self.people, seed=self.seed, without_profile=self.without_profile, skew=self.person_skew
        )

    @cached_property
    def _behaviour(self) -> pa.Table:
        spread = (1 - self._unknown**2) ** 0.5 or 1.0  # where nothing can be learned, nobody is picky
        return draw_behaviour(self._ads, self.people, lambda *of: self._liking(*of) / spread, seed=self.seed)

    @cached_property
    def _context_effect(self) -> Floats:
        """(placements, hours): an effect of each added up, with mean 0 and variance 1 over impressions."""
        draws = seeded_generator(self.seed, _CONTEXTS)
        shares = np.outer(PLACEMENT_SHARES, hourly_shares())
        effect = draws.standard_normal((len(PLACEMENTS), 1)) + draws.standard_normal(HOURS_PER_DAY)
        return standardise(effect.ravel(), shares.ravel()).reshape(shares.shape)

    @cached_property
    def _base(self) -> float:
        """The b that gives `click_rate`, on a fixed draw of single rows."""
        draws = seeded_generator(self.seed, _BASE)
        person = draw_by_weight(self._people.cdf, CALIBRATION_ROWS, draws)
        ad = draw_by_weight(self._ads.cdf, CALIBRATION_ROWS, draws)
        placement, hour = self._contexts(CALIBRATION_ROWS, draws)
        market = Market.taobao_like()
        known = self._public(ad, placement, hour) + market.user_spread * self._liking(person, ad)
        unknown_spread = market.user_spread * self._unknown

        def excess(base: float) -> float:
            return float(expected_click(base + known, unknown_spread).mean()) - self.click_rate

        return float(brentq(excess, -40.0, 40.0, xtol=1e-9))

    def _public(self, ad: Integers, placement: Integers, hour: Integers) -> Floats:
        market = Market.taobao_like()
        item = market.item_spread * self._ads.item_effect[ad]
        return np.asarray(item + market.context_spread * self._context_effect[placement, hour])

    @property
    def _unknown(self) -> float:
        """The standard deviation of what nothing tells of, in z."""
        return float(((1 - self.learnable) * (1 - self.personal)) ** 0.5)

    def _liking(self, person: Integers, ad: Integers) -> Floats:
        """z without what nothing tells of."""
        of_segment = np.einsum("ij,ij->i", self._people.taste[person], self._ads.taste[ad])
        own = personal_taste(self.seed, person, self._ads.category[ad])
        return np.asarray(
            self.learnable**0.5 * of_segment + ((1 - self.learnable) * self.personal) ** 0.5 * own
        )

    def _contexts(self, count: int, draws: np.random.Generator) -> tuple[Integers, Integers]:
        return draw_by_weight(np.cumsum(PLACEMENT_SHARES), count, draws), draw_by_weight(
            np.cumsum(hourly_shares()), count, draws
        )

    def _block(self, draws: np.random.Generator) -> GeneratedRows:
        market = Market.taobao_like()
        sizes = market.candidates(AUCTIONS_PER_BLOCK, draws)
        placement, hour = self._contexts(AUCTIONS_PER_BLOCK, draws)
        day = draws.integers(DAYS, size=AUCTIONS_PER_BLOCK)
        second = SECONDS_PER_HOUR * (HOURS_PER_DAY * day + hour)
        second += draws.integers(SECONDS_PER_HOUR, size=AUCTIONS_PER_BLOCK)
        requester = draw_by_weight(self._people.cdf, AUCTIONS_PER_BLOCK, draws)
        order = np.lexsort((requester, second))
        sizes, placement, hour, second, requester = (
            values[order] for values in (sizes, placement, hour, second, requester)
        )
        person, row_placement, row_hour = (np.repeat(values, sizes) for values in (requester, placement, hour))
        ad = self._distinct_ads(sizes, draws)

        eta = self._base + self._public(ad, row_placement, row_hour)
        z = self._liking(person, ad) + self._unknown * draws.standard_normal(len(ad))
        device = expit(eta + market.user_spread * z)
        clicked = draws.random(len(ad)) < device
        batch = {
            "user": person + 1,
            "time_stamp": FIRST_SECOND + np.repeat(second, sizes),
            "adgroup_id": ad + 1,
            "pid": pa.array(PLACEMENTS).take(pa.array(row_placement)),
            "nonclk": (~clicked).astype(np.int8),
            "clk": clicked.astype(np.int8),
        }
        truth = {
            "device": device,
            "server": expected_click(eta, market.user_spread),
            "bid": self.bid_per_price * self._ads.price_meant[ad],
        }
        return GeneratedRows(pa.RecordBatch.from_pydict(batch), pa.RecordBatch.from_pydict(truth))

    def _distinct_ads(self, sizes: Integers, draws: np.random.Generator) -> Integers:
        """Ads for each auction, one after the other; an ad that comes twice is drawn again."""
        auction = np.repeat(np.arange(len(sizes)), sizes)
        ad = draw_by_weight(self._ads.cdf, len(auction), draws)
        while True:
            key = auction * self.ads + ad
            order = np.argsort(key, kind="stable")
            again = order[1:][key[order[1:]] == key[order[:-1]]]
            if not len(again):
                return ad
            ad[again] = draw_by_weight(self._ads.cdf, len(again), draws)


def hourly_shares() -> Floats:
    """The share of requests in each hour of the day: few at night, most in the evening."""
    hour = np.arange(HOURS_PER_DAY) + 0.5
    weight = 0.15 + 0.9 * np.exp(-((hour - 13) ** 2) / 32) + 1.2 * np.exp(-((hour - 21) ** 2) / 8)
    return np.asarray(weight / weight.sum())
