"""Generates a Criteo Sponsored Search log: clicks on product ads, and whether a sale followed.

The rows follow `fields.FieldModel` over twenty fields: hour and weekday (of `click_timestamp`),
`nb_clicks_1week`, the product, the partner, and the sensitive device, audience and user. A sale is drawn with
the model's probability. Columns are those of the published file. Missing is "-1" or -1; rows have no time
order, as in the published file.

Fields. Published: about 313 partners. Measured on a public sample, 2,822 rows of one partner: the law of
`nb_clicks_1week`, the shares of devices, the daily wave, and where values are missing. One partner cannot
show how large the whole file's vocabularies are: those are assumptions. So are the rates at which the 5th to
7th category are missing: the sample has hardly a 5th and no deeper one, which cannot hold for every partner.

Sales. Measured on the same sample, 100 sales: prices of sold products p50 66.9 and p90 99 euros, amounts p50
63.6 and p90 91.8, delays p25 280 s, p50 877 s, p75 4.5 days, p90 11.4 days, never above 30 days, unknown for
1% of sales. A click without a sale has price 0, so the price column reveals the label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import cos, tau

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.arrays import Floats, Integers
from tacit.data.generators.distributions import Histogram, LogNormalCounts, Zipf
from tacit.data.generators.fields import (
    Absence,
    Field,
    FieldLaw,
    FieldModel,
    Ranks,
    Signal,
    mix_ranks,
    upper_hex32,
)
from tacit.data.generators.worlds import ROWS_PER_BATCH, GeneratedRows, first_rows, seeded_generator

CLICKS = LogNormalCounts(3.11, 2.50, 1.60)
HOURS = Histogram(tuple(1 + 0.7 * cos(tau * (hour - 6) / 24) for hour in range(24)))
WEEKDAYS = Histogram((1.0,) * 7)
DEVICES = Histogram((0.692, 0.273, 0.033, 0.002))

SENSITIVE = ("device_type", "audience_id", "user_id")

# Group of each field, its number of values in a real-looking log, and in the small one (10 to 16,000).
PUBLIC: dict[str, tuple[int, int, int]] = {
    "product_age_group": (1, 10, 10),
    "product_gender": (1, 6, 18),
    "product_brand": (2, 50_000, 9_000),
    "product_category1": (2, 25, 31),
    "product_category2": (2, 200, 55),
    "product_category3": (3, 1_200, 170),
    "product_category4": (3, 2_500, 530),
    "product_category5": (3, 2_000, 930),
    "product_category6": (3, 500, 1_640),
    "product_category7": (3, 50, 2_890),
    "product_country": (0, 20, 97),
    "product_id": (2, 2_000_000, 16_000),
    "product_title": (2, 1_000_000, 5_090),
    "partner_id": (0, 313, 313),
}

NAMES = ("nb_clicks_1week", "hour", "weekday", *PUBLIC, *SENSITIVE)
POSITION = {name: index for index, name in enumerate(NAMES)}

# What matters in combination only: a model without the sensitive fields cannot see it.
CROSSED = tuple((POSITION["partner_id"], POSITION[name]) for name in ("device_type", "audience_id"))

USER_LAW = (0.7, 50.0)  # exponent and shift: nobody clicks much more than others do


def search_fields(*, audiences: int, users: int, small: bool) -> tuple[Field, ...]:
    """The twenty fields. Groups are our own choice; every sensitive field shares one with public fields."""
    laws: dict[str, tuple[FieldLaw, int]] = {
        "nb_clicks_1week": (CLICKS, 0),
        "hour": (HOURS, 4),
        "weekday": (WEEKDAYS, 4),
        **{name: (Zipf(less if small else real), group) for name, (group, real, less) in PUBLIC.items()},
        "device_type": (DEVICES, 4),
        "audience_id": (Zipf(audiences), 1),
        "user_id": (Zipf(users) if small else Zipf(users, *USER_LAW), 0),
    }
    return tuple(Field(name, *laws[name]) for name in NAMES)


def _absence(lean: float, **rates: float) -> Absence:
    return Absence(tuple((POSITION[name], rate) for name, rate in rates.items()), lean)


# A quarter of the clicks say nothing about a product, and those mostly do know the audience. A field that two
# absences name is missing where either says so: .434 of age groups, .700 and .741 of 3rd and 4th categories
# in all.
ABSENCES = (
    _absence(
        0.85,
        product_id=0.246, product_country=0.246, nb_clicks_1week=0.255, product_gender=0.255,
        product_brand=0.255, product_title=0.255, product_age_group=0.255,
        **{f"product_category{depth}": 0.255 for depth in range(1, 8)},
    ),
    _absence(-0.85, audience_id=0.683),
    _absence(0.0, product_age_group=0.240),
    _absence(
        0.0, product_category3=0.597, product_category4=0.652, product_category5=0.90, product_category6=0.97,
        product_category7=0.99,
    ),
)  # fmt: skip


MEDIAN_PRICE, SPREAD_BELOW, SPREAD_ABOVE = 66.9, 1.0, 0.31
OF_THE_PRODUCT = 0.9  # correlation of a price's normal with its product's; the rest differs from click to click
WITHOUT_TAX = 0.845
MORE_IN_THE_BASKET, BASKET_SPREAD = 0.25, 0.45
AT_ONCE, AT_ONCE_MEDIAN_S, AT_ONCE_SPREAD = 0.55, 303.0, 0.75
LATER_MEAN_S, LATEST_S = 650_000.0, 30 * 86_400
UNKNOWN_DELAY = 0.01
NO_SALE = -1


@dataclass(frozen=True)
class Sales:
    """The three columns that only a sale fills."""

    amount_euro: Floats
    delay_s: Integers
    price_euro: Floats


def draw_sales(sold: NDArray[np.bool_], products: Integers, draw: np.random.Generator) -> Sales:
    """Draw the sale columns of every row, emptied where nothing was sold."""
    rows = len(sold)
    of_product = ndtri((mix_ranks(products, salt=0) + 0.5) / 2**32)
    normal = OF_THE_PRODUCT * of_product + np.sqrt(1 - OF_THE_PRODUCT**2) * draw.standard_normal(rows)
    price = np.round(MEDIAN_PRICE * np.exp(np.where(normal < 0, SPREAD_BELOW, SPREAD_ABOVE) * normal), 2)
    more = draw.random(rows) < MORE_IN_THE_BASKET
    basket = np.where(more, np.exp(BASKET_SPREAD * np.abs(draw.standard_normal(rows))), 1.0)
    return Sales(
        amount_euro=np.where(sold, price * WITHOUT_TAX * basket, NO_SALE),
        delay_s=np.where(sold, _delays(draw, rows), NO_SALE),
        price_euro=np.where(sold, np.maximum(price, 0.01), 0.0),
    )


def _delays(draw: np.random.Generator, rows: int) -> Integers:
    """Delays to the sale: in the same visit (log-normal), or later (exponential, truncated at 30 days)."""
    at_once = AT_ONCE_MEDIAN_S * np.exp(AT_ONCE_SPREAD * draw.standard_normal(rows))
    known_share = -np.expm1(-LATEST_S / LATER_MEAN_S)
    later = -LATER_MEAN_S * np.log1p(-draw.random(rows) * known_share)
    delays = np.where(draw.random(rows) < AT_ONCE, np.minimum(at_once, LATEST_S), later).astype(np.int64)
    unknown = draw.random(rows) < UNKNOWN_DELAY
    return np.where(unknown, NO_SALE, delays)


ROWS = 1_201  # the place of the rows among a seed's streams
FIRST_MONDAY_S = 1_596_412_800  # 2020-08-03 00:00 UTC
WEEKS = 13

COLUMNS = (
    "Sale", "SalesAmountInEuro", "time_delay_for_conversion", "click_timestamp", "nb_clicks_1week",
    "product_price", "product_age_group", "device_type", "audience_id", "product_gender", "product_brand",
    *(f"product_category{depth}" for depth in range(1, 8)),
    "product_country", "product_id", "product_title", "partner_id", "user_id",
)  # fmt: skip

TOKENS_BESIDE_TWO = Histogram((0.715, 0.18, 0.08, 0.017, 0.008))  # words in a title: two, three, ... six
TITLE_SALT = 99


@dataclass(frozen=True)
class SearchWorld:
    """A world of products, partners and users, sold at 10.8% of clicks; parameters as in `fields.Signal`.

    The defaults look like a real log, where most users click once or twice: a model learns little of one user.
    """

    seed: int
    rare_signal: float = 0.3
    shared: float = 0.5
    linear: float = 1.5
    interaction: float = 0.3
    cross: float = 0.9
    rate: float = 0.108
    tie: float = 0.6
    users: int = 5_000_000
    audiences: int = 5_000
    few_values: bool = False

    @classmethod
    def small(cls, seed: int, rare_signal: float = 0.3) -> SearchWorld:
        """For studies: at most 16,000 products, 8,000 users, 50 audiences, and nothing missing."""
        return cls(seed, rare_signal, users=8_000, audiences=50, few_values=True)

    @property
    def name(self) -> str:
        return "search-small" if self.few_values else "criteo-search"

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        return first_rows(rows, map(self._block, count()))

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {}

    @cached_property
    def model(self) -> FieldModel:
        """The law behind the rows, for studies."""
        return FieldModel(
            self.seed,
            search_fields(audiences=self.audiences, users=self.users, small=self.few_values),
            Signal(self.rate, self.rare_signal, self.shared, self.linear, self.interaction, self.cross),
            tie=self.tie,
            crossed=CROSSED,
            absences=() if self.few_values else ABSENCES,
        )

    def _block(self, index: int) -> GeneratedRows:
        draw = seeded_generator(self.seed, ROWS, index)
        ranks = self.model.ranks(draw, ROWS_PER_BATCH)
        probability = self.model.probabilities(ranks)
        sold = draw.random(ROWS_PER_BATCH) < probability
        outcome = draw_sales(sold, ranks[POSITION["product_id"]], draw)
        columns = {
            "Sale": sold.astype(np.int8),
            "SalesAmountInEuro": outcome.amount_euro,
            "time_delay_for_conversion": outcome.delay_s,
            "click_timestamp": _timestamps(ranks, draw),
            "nb_clicks_1week": self._clicks(ranks, draw),
            "product_price": outcome.price_euro,
            **self._names(ranks),
        }
        batch = pa.RecordBatch.from_pydict({name: columns[name] for name in COLUMNS})
        truth = pa.RecordBatch.from_pydict({"probability": probability})
        return GeneratedRows(batch, truth)

    def _clicks(self, ranks: Ranks, draw: np.random.Generator) -> NDArray[np.int64]:
        index = POSITION["nb_clicks_1week"]
        numbers = CLICKS.numbers(ranks[index], draw.random(ROWS_PER_BATCH))
        return np.where(ranks[index] == self.model.fields[index].missing_rank, -1, numbers)

    def _names(self, ranks: Ranks) -> dict[str, pa.Array]:
        names = {}
        for name in (*PUBLIC, *SENSITIVE):
            index = POSITION[name]
            missing = ranks[index] == self.model.fields[index].missing_rank
            named = _titles(ranks[index]) if name == "product_title" else upper_hex32(ranks[index], index)
            names[name] = pc.if_else(pa.array(missing), "-1", named)
        return names


def _timestamps(ranks: Ranks, draw: np.random.Generator) -> NDArray[np.int64]:
    weeks = draw.integers(WEEKS, size=ROWS_PER_BATCH)
    hours = 24 * (7 * weeks + ranks[POSITION["weekday"]]) + ranks[POSITION["hour"]]
    seconds: NDArray[np.int64] = FIRST_MONDAY_S + 3_600 * hours + draw.integers(3_600, size=ROWS_PER_BATCH)
    return seconds


def _titles(ranks: NDArray[np.int64]) -> pa.StringArray:
    """Two to six words of 65,536; the first two alone already tell titles apart."""
    first_two, next_two, last_two, length = (mix_ranks(ranks, TITLE_SALT + part) for part in range(4))
    beside_two = TOKENS_BESIDE_TWO.ranks(length / 2**32)
    halves = [half for pair in (first_two, next_two, last_two) for half in (pair >> 16, pair & 0xFFFF)]
    # Every title has two words at least, and must: pyarrow's join drops a row whose words are all null.
    words = [
        upper_hex32(half.astype(np.int64), TITLE_SALT, beside_two < place - 1)
        for place, half in enumerate(halves)
    ]
    return pc.binary_join_element_wise(*words, " ", null_handling="skip")
