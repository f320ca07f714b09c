"""Generates a conversion log for the clean room: clicks for advertisers, some of which keep their labels.

Rows are clicks in time order at a steady `clicks_a_day`. Each has a running `click_id`; a `user`, drawn by a
Zipf law among `users`; an advertiser, drawn by `shares`, the first `advertisers_sharing` of them sharing
their conversions, the others (sensitive) not; twelve categorical fields tied by a copula (five common
factors, tie .6): the ad's `topic` among 32 and f1..f11 of 12 to 4000 values; and the user's last 4 to 16
actions before the click, the most recent first, in three lists of equal length. The fields' law is the same
for every advertiser.

`conversion_model` has the law of the labels and of the actions. `conversion` is positive for 1.5% of rows
(`conversion_rate`). A sensitive advertiser converts `over_prediction` times less often than a sharing one, so
a model trained on those over-predicts for it by that factor. `cart` (6%, in proportion to an advertiser's
conversions) and `engaged` (30%, the same for all) depend on the same signal with slopes and noise of their
own; given their probabilities the three labels are independent, so a conversion without a cart does occur.
Truth: `probability`, `probability_cart` and `probability_engaged`, the noise of the latter two included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Integers
from tacit.data.generators.conversion_model import (
    DAY,
    LONGEST,
    SHORTEST,
    TOPICS,
    ActionSequences,
    AdvertiserEffects,
    AdvertiserShift,
    ConversionClicks,
    ConversionLaw,
    LabelLaw,
    recent_actions,
)
from tacit.data.generators.distributions import Zipf
from tacit.data.generators.fields import Field, FieldModel, Signal
from tacit.data.generators.worlds import ROWS_PER_BATCH, GeneratedRows, first_rows, seeded_generator
from tacit.errors import BadInput

CONVERSIONS, CARTS, ENGAGED = 0.015, 0.06, 0.30  # of rows
SENSITIVE_SHARE = 0.25
FIELD_VALUES = (TOPICS, *(int(values) for values in np.round(np.geomspace(12, 4000, 11))))
FIELD_NAMES = ("topic", *(f"f{number}" for number in range(1, 12)))
COMMON_FACTORS = 5
CALIBRATION_ROWS = 2**16
BLOCKS, CALIBRATION, ACTIONS = 1, 2, 3  # places among the seed's streams


@dataclass(frozen=True)
class ConversionsWorld:
    """Advertisers, users and ads; see the module.

    `shares` gives each advertiser's share of rows, the sharing ones first; empty, the sensitive ones have a
    quarter together. `world` says what sets advertisers apart: "value" or "lowrank".
    """

    seed: int
    advertisers_sharing: int = 8
    advertisers_sensitive: int = 1
    world: str = "value"
    shift_sharing: float = 0.15
    shift_sensitive: float = 0.36
    over_prediction: float = 2.5
    conversion_rate: float = CONVERSIONS
    shares: tuple[float, ...] = ()
    users: int = 100_000
    clicks_a_day: int = 33_000
    name = "conversions"

    def __post_init__(self) -> None:
        expect.whole("seed", self.seed, at_least=0)
        expect.whole("advertisers_sharing", self.advertisers_sharing, at_least=1)
        expect.whole("advertisers_sensitive", self.advertisers_sensitive, at_least=0)
        AdvertiserShift(self.world)
        expect.probability("shift_sharing", self.shift_sharing, zero=True, one=True)
        expect.probability("shift_sensitive", self.shift_sensitive, zero=True, one=True)
        expect.positive("over_prediction", self.over_prediction)
        expect.probability("conversion_rate", self.conversion_rate)
        expect.whole("users", self.users, at_least=1)
        expect.whole("clicks_a_day", self.clicks_a_day, at_least=1)
        if self.shares and len(self.shares) != self.advertisers:
            raise BadInput(
                f"expected a share for each of {self.advertisers} advertisers, got {len(self.shares)}"
            )
        for share in self.shares:
            expect.positive("each of shares", share)

    @property
    def advertisers(self) -> int:
        return self.advertisers_sharing + self.advertisers_sensitive

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {}

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        return first_rows(rows, map(self._block, count()))

    def _block(self, block: int) -> GeneratedRows:
        draw = seeded_generator(self.seed, BLOCKS, block)
        moment = (block + np.sort(draw.random(ROWS_PER_BATCH))) * ROWS_PER_BATCH * DAY / self.clicks_a_day
        second = moment.astype(np.int64)
        user, clicks = self.clicks(draw, second)
        probabilities = self.model.probabilities(clicks, draw)
        columns = {
            "click_id": pa.array(np.arange(ROWS_PER_BATCH) + block * ROWS_PER_BATCH),
            "user": pa.array(user),
            "time": pa.array(second),
            "advertiser": pa.array(clicks.advertiser),
            **{name: pa.array(values) for name, values in zip(FIELD_NAMES, clicks.ranks, strict=True)},
            **_lists(clicks.sequences),
        }
        for label, probability in zip(self.model.labels, probabilities, strict=True):
            columns[label.name] = pa.array((draw.random(ROWS_PER_BATCH) < probability).astype(np.int8))
        names = ("probability", "probability_cart", "probability_engaged")
        truth = dict(zip(names, map(pa.array, probabilities), strict=True))
        return GeneratedRows(pa.RecordBatch.from_pydict(columns), pa.RecordBatch.from_pydict(truth))

    def clicks(self, draw: np.random.Generator, second: Integers) -> tuple[Integers, ConversionClicks]:
        """The users of clicks at these seconds, and what they click on."""
        rows = len(second)
        user = Zipf(self.users, exponent=0.7, shift=20).ranks(draw.random(rows))
        length = draw.integers(SHORTEST, LONGEST, rows, endpoint=True)
        return user, ConversionClicks(
            advertiser=np.searchsorted(np.cumsum(self._shares)[:-1], draw.random(rows), side="right"),
            ranks=self._fields.ranks(draw, rows),
            sequences=recent_actions(self._actions_key, user, second, length),
        )

    @cached_property
    def _actions_key(self) -> int:
        return int(seeded_generator(self.seed, ACTIONS).integers(2**63))

    @cached_property
    def model(self) -> ConversionLaw:
        """The law of the labels, for studies that ask what another advertiser's effects would have said."""
        shifts = (self.shift_sharing,) * self.advertisers_sharing
        shifts += (self.shift_sensitive,) * self.advertisers_sensitive
        counts = (self.advertisers_sharing, self.advertisers_sensitive)
        relative = np.repeat([self.over_prediction, 1.0], counts)
        relative /= self._shares @ relative
        labels = (
            LabelLaw("conversion", tuple(self.conversion_rate * relative)),
            LabelLaw("cart", tuple(CARTS * relative), slope=0.8, noise=0.4),
            LabelLaw("engaged", (ENGAGED,) * self.advertisers, slope=0.4, noise=0.6),
        )
        draw = seeded_generator(self.seed, CALIBRATION)
        _, sample = self.clicks(draw, draw.integers(0, int(30 * DAY), CALIBRATION_ROWS))
        effects = AdvertiserEffects(self.seed, FIELD_VALUES, shifts, AdvertiserShift(self.world))
        return ConversionLaw(effects, labels, sample)

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        if self.shares:
            return np.array(self.shares) / sum(self.shares)
        sensitive = SENSITIVE_SHARE if self.advertisers_sensitive else 0.0
        each = [(1 - sensitive) / self.advertisers_sharing] * self.advertisers_sharing
        return np.array(each + [sensitive / max(1, self.advertisers_sensitive)] * self.advertisers_sensitive)

    @cached_property
    def _fields(self) -> FieldModel:
        fields = [
            Field(name, Zipf(values), index % COMMON_FACTORS)
            for index, (name, values) in enumerate(zip(FIELD_NAMES, FIELD_VALUES, strict=True))
        ]
        # Only for the joint law of the values: the labels have a law that knows advertisers.
        unused = Signal(rate=CONVERSIONS, rare_signal=0, shared=0, linear=0, interaction=0)
        return FieldModel(self.seed, tuple(fields), unused, tie=0.6)


def _lists(past: ActionSequences) -> dict[str, pa.Array]:
    offsets = pa.array(np.concatenate([[0], np.cumsum(past.length)]).astype(np.int32))
    kept = past.counts
    return {
        f"sequence_{name}": pa.ListArray.from_arrays(offsets, pa.array(values[kept].astype(np.int16)))
        for name, values in (("topic", past.topic), ("item", past.item), ("action", past.action))
    }
