"""Generates impressions in the form of the Criteo Attribution dataset (Diemert et al., AdKDD 2017).

Rows are impressions in time order, with the 22 published columns and one more: `publisher`, which the
published file does not have, so that the privacy unit user x publisher can be studied. Numbers of users,
campaigns and categories are synthetic: uid counts users, the others are ranks, 0 being the most frequent.

Time. Users' first impressions arrive at a steady rate, chosen so that `span_rows` rows fill the published
30.9 days; a longer log runs on for longer. So the rows of a log do not depend on how many of them are
requested. Users and their impressions follow `attribution_journeys`; all times then pass through a daily
rhythm, three times as fast at its peak as at its low. Rows that are drawn before their time wait in a pool
that grows with `span_rows` alone.

Features. The campaign, the nine categories and a cost bucket are eleven fields of a `FieldModel`; a repeated
advertiser brings the fields of its group with it (campaign, cat1, cat8), so that every row has the law of the
model, whatever its user saw before. The publisher is Zipf and carries no signal. Clicks are independent of
everything.

Labels. A click's label (attributed, and the last of its clicks: click_pos = click_nb - 1) is positive with
the model's probability; `attribution_journeys` has the rules for conversions, positions and times. All of
them are within one user and campaign, time_since_last_click too. Rows without a conversion have -1 in
conversion_timestamp, conversion_id, click_pos and click_nb; cpo is a constant of the campaign. Truth:
`probability` of the label, null for rows that are not clicks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.optimize import brentq

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.data.generators.attribution_journeys import (
    DAY,
    MISSING,
    AttributionClicks,
    JourneyEnds,
    UserImpressions,
    UserLaw,
)
from tacit.data.generators.distributions import Zipf
from tacit.data.generators.fields import Field, FieldModel, Ranks, Signal
from tacit.data.generators.worlds import GeneratedRows, seeded_generator

# The published figures that are held by construction.
SPAN_DAYS = 30.9
CLICKS_OF_ROWS = 0.3612
CONVERSIONS_OF_CLICKS = 806_196 / 5_947_563
CREDITED_OF_CLICKS = 0.0745
POSITIVE_OF_CLICKS = 0.0674
# Exponent and shift solve for the top 20 campaigns taking 30% of clicks and a Gini coefficient of .66.
CAMPAIGNS = Zipf(675, exponent=1.4115, shift=23.63)
CATEGORIES = (9, 70, 1829, 21, 51, 30, 57196, 11, 30)

COST_BUCKETS = 20
COST_LEAST, COST_DECADES = 1e-5, 2.5  # bucket b starts at 1e-5 * 10^(2.5 b / 20)
RHYTHM = 0.5

# The common factor that each field leans on; what leans on the advertiser's is repeated together with it.
ADVERTISER = 0
FIELDS = (
    Field("campaign", CAMPAIGNS, ADVERTISER),
    *(
        Field(f"cat{number}", Zipf(values), group)
        for number, values, group in zip(range(1, 10), CATEGORIES, (0, 1, 2, 3, 4, 1, 2, 0, 3), strict=True)
    ),
    Field("cost", Zipf(COST_BUCKETS), 4),
)

USERS_PER_BLOCK = 24_000
CALIBRATION_USERS = 2**16
CONVERSIONS_PER_BLOCK = 2**24  # more than a block can have: what its ids are counted by
BLOCKS, CALIBRATION, CAMPAIGN_COSTS = 1, 2, 3  # places among the seed's streams

COLUMNS = (
    "timestamp", "uid", "campaign", "conversion", "conversion_timestamp", "conversion_id", "attribution",
    "click", "click_pos", "click_nb", "cost", "cpo", "time_since_last_click", "cat1", "cat2", "cat3", "cat4",
    "cat5", "cat6", "cat7", "cat8", "cat9", "publisher",
)  # fmt: skip
REAL_COLUMNS = ("cost", "cpo")
# One record per row, so that waiting rows are moved in one piece.
ROW = np.dtype(
    [("moment", np.float64), ("probability", np.float64)]
    + [(name, np.float64 if name in REAL_COLUMNS else np.int64) for name in COLUMNS]
)

Rows = NDArray[np.void]


@dataclass(frozen=True)
class AttributionWorld:
    """Synthetic users, campaigns and publishers; see the module.

    `rare_signal` moves the signal to fields of many values. `span_rows` is how many rows fill 30.9 days: set it
    to the size of the log that you want to look like the published one.
    """

    seed: int
    rare_signal: float = 0.0
    span_rows: int = 1_000_000
    publishers: Zipf = field(default=Zipf(2000))
    user_law: UserLaw = field(default=UserLaw())
    name = "criteo-attribution"

    def __post_init__(self) -> None:
        expect.whole("seed", self.seed, at_least=0)
        expect.whole("span_rows", self.span_rows, at_least=1)

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {}

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        left = expect.whole("rows", rows, at_least=0)
        waiting: dict[int, list[Rows]] = {}
        block = 0
        while left:
            for due, some in self._by_block_due(block):
                waiting.setdefault(due, []).append(some)
            ready = np.concatenate(waiting.pop(block))
            ready = ready[np.argsort(ready["moment"], kind="stable")][:left]
            left -= len(ready)
            block += 1
            yield _as_arrow(ready)

    def _by_block_due(self, block: int) -> Iterator[tuple[int, Rows]]:
        """The rows of the users who arrive in a block's time, split by the block in whose time they fall."""
        rows = self._rows(block)
        due = np.maximum(rows["moment"] // self._block_seconds, block).astype(np.int64)
        order = np.argsort(due, kind="stable")
        blocks, starts = np.unique(due[order], return_index=True)
        for number, some in zip(blocks, np.split(rows[order], starts[1:]), strict=True):
            yield int(number), some.copy()  # a copy, so that a few waiting rows do not keep their whole block

    def _rows(self, block: int) -> Rows:
        draw = seeded_generator(self.seed, BLOCKS, block)
        arrival = self._block_seconds * (block + np.sort(draw.random(USERS_PER_BLOCK)))
        seen = self.user_law.impressions(draw, USERS_PER_BLOCK)
        ranks = self._ranks(draw, seen)
        rows = np.empty(len(seen.user), dtype=ROW)
        rows["moment"] = arrival[seen.user] + seen.since_first
        rows["timestamp"] = _clock(rows["moment"])
        rows["uid"] = seen.user + block * USERS_PER_BLOCK
        rows["publisher"] = self.publishers.ranks(draw.random(len(rows)))[seen.publisher_of]
        for known, values in zip(FIELDS, ranks, strict=True):
            rows[known.name] = values
        rows["cost"] = _cost(ranks[-1], draw)
        rows["cpo"] = self._cost_per_order[rows["campaign"]]
        clicks = AttributionClicks.draw(
            draw, CLICKS_OF_ROWS, rows["timestamp"], seen.user * CAMPAIGNS.values + ranks[0]
        )
        rows["click"] = clicks.click
        rows["time_since_last_click"] = clicks.since_last
        probability = self.model.probabilities([values[clicks.rows] for values in ranks])
        journeys = self._ends.journeys(clicks, probability)

        for name in ("conversion_timestamp", "conversion_id", "click_pos", "click_nb"):
            rows[name] = MISSING
        rows["conversion"] = rows["attribution"] = 0
        rows["probability"] = np.nan
        rows["probability"][clicks.rows] = probability
        rows["attribution"][clicks.rows] = journeys.credited
        led = journeys.journey != MISSING
        converted = clicks.rows[led]
        rows["conversion"][converted] = 1
        rows["conversion_id"][converted] = journeys.journey[led] + block * CONVERSIONS_PER_BLOCK
        rows["conversion_timestamp"][converted] = journeys.conversion_second[led]
        rows["click_pos"][converted] = journeys.position[led]
        rows["click_nb"][converted] = journeys.clicks[led]
        return rows

    def _ranks(self, draw: np.random.Generator, seen: UserImpressions) -> Ranks:
        fresh = self.model.ranks(draw, len(seen.user))
        return [
            values[seen.advertiser_of] if known.group == ADVERTISER else values
            for known, values in zip(FIELDS, fresh, strict=True)
        ]

    @cached_property
    def model(self) -> FieldModel:
        """The law of the features and of a click's label."""
        signal = Signal(
            rate=POSITIVE_OF_CLICKS, rare_signal=self.rare_signal, shared=0.5, linear=1.0, interaction=0.5
        )
        return FieldModel(self.seed, FIELDS, signal, tie=0.5)

    @cached_property
    def _cost_per_order(self) -> Floats:
        """The cost per order of each campaign.

        The published costs are transformed, so that only their order of size can be matched.
        """
        spread = seeded_generator(self.seed, CAMPAIGN_COSTS).standard_normal(CAMPAIGNS.values)
        costs: Floats = 0.25 * np.exp(0.6 * spread)
        return costs

    @cached_property
    def _block_seconds(self) -> float:
        """How long it takes for a block's users to arrive."""
        return USERS_PER_BLOCK * self._calibration[0] * SPAN_DAYS * DAY / self.span_rows

    @cached_property
    def _ends(self) -> JourneyEnds:
        return self._calibration[1]

    @cached_property
    def _calibration(self) -> tuple[float, JourneyEnds]:
        """A user's rows within the span, in the mean, and the ends of journeys for the published shares."""
        draw = seeded_generator(self.seed, CALIBRATION)
        seen = self.user_law.impressions(draw, CALIBRATION_USERS)
        ranks = self._ranks(draw, seen)
        second = seen.since_first.astype(np.int64)
        clicks = AttributionClicks.draw(draw, CLICKS_OF_ROWS, second, seen.user * CAMPAIGNS.values + ranks[0])
        probability = self.model.probabilities([values[clicks.rows] for values in ranks])
        sampled = (CREDITED_OF_CLICKS - POSITIVE_OF_CLICKS) / float(np.mean(probability * (1 - probability)))

        def excess(unattributed: float) -> float:
            ends = JourneyEnds(sampled, unattributed)
            journeys = ends.journeys(clicks, probability)
            earlier = (journeys.journey != MISSING) & ~journeys.ends
            return float(np.mean(ends.probability(probability)) + np.mean(earlier)) - CONVERSIONS_OF_CLICKS

        # Users who come back to one campaign all the time may have too many earlier clicks already.
        unattributed = 0.0 if excess(0.0) > 0 else float(brentq(excess, 0, 10, xtol=1e-4))
        # The share of users' arrivals, uniform over the span, from which this row still falls within it.
        within = np.maximum(0, 1 - seen.since_first / (SPAN_DAYS * DAY))
        return float(within.sum()) / CALIBRATION_USERS, JourneyEnds(sampled, unattributed)


def _clock(moment: Floats) -> Integers:
    """Seconds on the wall: the steady moments of the model, crowded into the busy half of each day."""
    seconds = moment + RHYTHM * DAY / (2 * np.pi) * np.sin(2 * np.pi * moment / DAY)
    return np.floor(seconds).astype(np.int64)


def _cost(bucket: Integers, draw: np.random.Generator) -> Floats:
    cost: Floats = COST_LEAST * 10 ** (COST_DECADES * (bucket + draw.random(len(bucket))) / COST_BUCKETS)
    return cost


def _as_arrow(rows: Rows) -> GeneratedRows:
    columns = {name: pa.array(np.ascontiguousarray(rows[name])) for name in COLUMNS}
    probability = pa.array(np.ascontiguousarray(rows["probability"]), mask=rows["click"] == 0)
    return GeneratedRows(
        pa.RecordBatch.from_pydict(columns), pa.RecordBatch.from_pydict({"probability": probability})
    )
