"""A made-up Criteo Sponsored Search log: clicks on product ads, and whether a sale followed.

The rows follow `fields.FieldModel` over the twenty fields of `criteo_search_fields`: hour and weekday (of
`click_timestamp`), `nb_clicks_1week`, the product, the partner, and the sensitive device, audience and user.
A sale is drawn with the model's probability; what it brings and when is `criteo_search_sales`. Columns are
those of the published file. Missing is "-1" or -1; rows are in no order of time, as in the published file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tacit.data.generators import criteo_search_fields as published
from tacit.data.generators.criteo_search_fields import POSITION
from tacit.data.generators.criteo_search_sales import sales
from tacit.data.generators.fields import FieldModel, Ranks, Signal
from tacit.data.generators.generated import ROWS_PER_BATCH, Generated, first_rows, generator
from tacit.data.generators.histogram import Histogram
from tacit.data.generators.tokens import mixed, upper_hex32

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
    """A world of products, partners and users, sold at 10.8% of clicks; the dials are those of `fields.Signal`.

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

    def batches(self, rows: int) -> Iterator[Generated]:
        return first_rows(rows, map(self._block, count()))

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {}

    @cached_property
    def model(self) -> FieldModel:
        """The law behind the rows, for studies."""
        return FieldModel(
            self.seed,
            published.fields(audiences=self.audiences, users=self.users, small=self.few_values),
            Signal(self.rate, self.rare_signal, self.shared, self.linear, self.interaction, self.cross),
            tie=self.tie,
            crossed=published.CROSSED,
            absences=() if self.few_values else published.ABSENCES,
        )

    def _block(self, index: int) -> Generated:
        draw = generator(self.seed, ROWS, index)
        ranks = self.model.ranks(draw, ROWS_PER_BATCH)
        probability = self.model.probabilities(ranks)
        sold = draw.random(ROWS_PER_BATCH) < probability
        outcome = sales(sold, ranks[POSITION["product_id"]], draw)
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
        return Generated(batch, truth)

    def _clicks(self, ranks: Ranks, draw: np.random.Generator) -> NDArray[np.int64]:
        index = POSITION["nb_clicks_1week"]
        numbers = published.CLICKS.numbers(ranks[index], draw.random(ROWS_PER_BATCH))
        return np.where(ranks[index] == self.model.fields[index].missing, -1, numbers)

    def _names(self, ranks: Ranks) -> dict[str, pa.Array]:
        names = {}
        for name in (*published.PUBLIC, *published.SENSITIVE):
            index = POSITION[name]
            missing = ranks[index] == self.model.fields[index].missing
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
    first_two, next_two, last_two, length = (mixed(ranks, TITLE_SALT + part) for part in range(4))
    beside_two = TOKENS_BESIDE_TWO.ranks(length / 2**32)
    halves = [half for pair in (first_two, next_two, last_two) for half in (pair >> 16, pair & 0xFFFF)]
    # Every title has two words at least, and must: pyarrow's join drops a row whose words are all null.
    words = [
        upper_hex32(half.astype(np.int64), TITLE_SALT, beside_two < place - 1)
        for place, half in enumerate(halves)
    ]
    return pc.binary_join_element_wise(*words, " ", null_handling="skip")
