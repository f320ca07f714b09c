"""Users and their impressions: how many, when, and which repeat an advertiser or a publisher seen before.

A user has ceil(exp(count_location + count_spread z)) impressions, z ~ N(0, 1). Between one and the next lies a
gap g ~ LogNormal of median `gap_median_hours`; the gaps' sums s are drawn in to s / (1 + s_last / 30 days), so
that busy users are busy more often rather than for months, and a minute is added for each impression before.
Each later impression repeats the advertiser (or the publisher) of a uniformly chosen earlier one of its user
with a fixed chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect

Whole = NDArray[np.int64]
Reals = NDArray[np.float64]

DAY = 86_400.0
LONGEST = 30 * DAY
LEAST_GAP = 60.0


@dataclass(frozen=True)
class Impressions:
    """Rows of some users, each user's together and in time order."""

    user: Whole  # 0, 1, ... within the draw
    since_first: Reals  # seconds
    advertiser_of: Whole  # the row whose advertiser this row shows: itself, or an earlier one of the same user
    publisher_of: Whole


@dataclass(frozen=True)
class UserLaw:
    """How often, how fast and how faithfully users come back; see the module.

    The counts are such that within a month's window, which cuts some users short, the published mean (2.68) and
    share of users with one impression (51.7%) come out.
    """

    count_location: float = -0.028
    count_spread: float = 1.3
    gap_median_hours: float = 3.0
    gap_spread: float = 1.8
    same_advertiser: float = 0.3
    same_publisher: float = 0.6

    def __post_init__(self) -> None:
        expect.positive("count_spread", self.count_spread)
        expect.positive("gap_median_hours", self.gap_median_hours)
        expect.at_least_zero("gap_spread", self.gap_spread)
        expect.probability("same_advertiser", self.same_advertiser, zero=True, one=True)
        expect.probability("same_publisher", self.same_publisher, zero=True, one=True)

    def impressions(self, draw: np.random.Generator, users: int) -> Impressions:
        counts = np.ceil(np.exp(self.count_location + self.count_spread * draw.standard_normal(users)))
        counts = counts.astype(np.int64)
        past = np.cumsum(counts)
        first = past - counts
        user = np.repeat(np.arange(users), counts)
        position = np.arange(past[-1]) - first[user]

        gaps = self.gap_median_hours * 3600 * np.exp(self.gap_spread * draw.standard_normal(len(user)))
        gaps[first] = 0
        sums = np.cumsum(gaps)
        sums -= sums[first][user]
        since_first = sums / (1 + sums[past - 1][user] / LONGEST) + LEAST_GAP * position
        return Impressions(
            user=user,
            since_first=since_first,
            advertiser_of=_repeats(draw, position, self.same_advertiser),
            publisher_of=_repeats(draw, position, self.same_publisher),
        )


def _repeats(draw: np.random.Generator, position: Whole, chance: float) -> Whole:
    """The row that each row copies; whoever copies a copy copies its source."""
    rows = np.arange(len(position))
    back = 1 + (draw.random(len(rows)) * position).astype(np.int64)
    copies = (position > 0) & (draw.random(len(rows)) < chance)
    source = np.where(copies, rows - back, rows)
    while not np.array_equal(further := source[source], source):
        source = further
    return source
