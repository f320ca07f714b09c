"""Users, impressions and conversion journeys of the generated Criteo Attribution log.

Users. A user has ceil(exp(count_location + count_spread z)) impressions, z ~ N(0, 1). Between one and the
next lies a gap g ~ LogNormal of median `gap_median_hours`; the gaps' sums s are compressed to s / (1 + s_last
/ 30 days), so that busy users are busy more often rather than for months, and a minute is added per earlier
impression. Each later impression repeats the advertiser (or the publisher) of a uniformly chosen earlier one
of its user with a fixed probability.

Journeys. The clicks of one user on one campaign are taken in time order. Each one may end a journey, that is,
be followed by a conversion before the user's next click on the campaign:

    credited       with probability p, the true probability of the label;
    cut short      else with probability `sampled` p: it is credited too, but the journey's last click came
                   later and is missing from the log, because the log is a sample;
    not credited   else with probability `unattributed` p: the conversion is attributed elsewhere.

The conversion comes a delay after the click that ends the journey; where that is later than the next click on
the campaign, it comes uniformly between the two. The earlier clicks since the last end, if the conversion is
within 30 days of them, belong to the journey: they share its id and time, and are not credited. Positions
count a journey's clicks from 0; their number includes the missing last click of a journey cut short. So a
click is positive (credited, and the last of its journey's clicks) with probability exactly p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats, Integers

DAY = 86_400.0
LONGEST = 30 * DAY
LEAST_GAP = 60.0


@dataclass(frozen=True)
class UserImpressions:
    """The impressions of some users, each user's together and in time order."""

    user: Integers  # 0, 1, ... within the draw
    since_first: Floats  # seconds
    advertiser_of: (
        Integers  # the row whose advertiser this row shows: itself, or an earlier one of the same user
    )
    publisher_of: Integers


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

    def impressions(self, draw: np.random.Generator, users: int) -> UserImpressions:
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
        return UserImpressions(
            user=user,
            since_first=since_first,
            advertiser_of=_repeats(draw, position, self.same_advertiser),
            publisher_of=_repeats(draw, position, self.same_publisher),
        )


def _repeats(draw: np.random.Generator, position: Integers, chance: float) -> Integers:
    """The row that each row copies; a copy of a copy copies the first source."""
    rows = np.arange(len(position))
    back = 1 + (draw.random(len(rows)) * position).astype(np.int64)
    copies = (position > 0) & (draw.random(len(rows)) < chance)
    source = np.where(copies, rows - back, rows)
    while not np.array_equal(further := source[source], source):
        source = further
    return source


MISSING = -1
WINDOW = 30 * 86_400  # seconds within which a click counts for a conversion

# Delays from the last click to the conversion: hours at these levels, joined by lines. The median and above are
# a little longer than the published 89.9, 287 and 504 hours over all rows with a conversion, because the next
# click cuts some of them; below the median they are our choice.
DELAY_LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
DELAY_HOURS = (0.0, 1.0, 18.0, 102.5, 307.0, 521.0, 719.0)


@dataclass(frozen=True)
class AttributionClicks:
    """The clicks among some impressions, sorted by group (one user and campaign) and then time."""

    click: NDArray[np.bool_]  # of each impression
    since_last: Integers  # of each impression: seconds since the last click in its group, or MISSING
    rows: Integers  # where each click stands among the impressions
    group: Integers
    second: Integers
    uniform: Floats  # (3, clicks): the chances that decide what follows

    @classmethod
    def draw(
        cls, draw: np.random.Generator, share: float, second: Integers, group: Integers
    ) -> AttributionClicks:
        """Each impression is a click with the same chance; a group's impressions come in time order."""
        click = draw.random(len(second)) < share
        order = np.argsort(group, kind="stable")
        since_last = np.empty_like(second)
        since_last[order] = _since_last_click(group[order], second[order], click[order])
        rows = order[click[order]]
        return cls(click, since_last, rows, group[rows], second[rows], draw.random((3, len(rows))))


@dataclass(frozen=True)
class Journeys:
    """For each click the journey that it belongs to, numbered from 0; MISSING where it led to no conversion."""

    journey: Integers
    conversion_second: Integers
    position: Integers
    clicks: Integers
    ends: NDArray[np.bool_]
    credited: NDArray[np.bool_]


@dataclass(frozen=True)
class JourneyEnds:
    """How often clicks that are not positive end a journey, as multiples of the probability of the label."""

    sampled: float
    unattributed: float

    def probability(self, positive: Floats) -> Floats:
        """The probability that a click ends a journey, given the probability that it is positive."""
        ends: Floats = positive + (1 - positive) * np.minimum(1, (self.sampled + self.unattributed) * positive)
        return ends

    def journeys(self, clicks: AttributionClicks, probability: Floats) -> Journeys:
        """The journeys of these clicks, given the probability that each is positive."""
        group, second = clicks.group, clicks.second
        chance, hurry, place = clicks.uniform
        count = len(group)
        where = np.arange(count)
        label = chance < probability
        # The same uniform, past the label: it is uniform on [0, 1) again for clicks that are not positive.
        rest = (chance - probability) / (1 - probability)
        short = ~label & (rest < self.sampled * probability)
        end = label | short | (~label & (rest < (self.sampled + self.unattributed) * probability))

        when = second + _delays(second, group, hurry, place)
        ends_at = np.minimum.accumulate(np.where(end, where, count)[::-1])[::-1]
        known = np.minimum(ends_at, count - 1)
        member = (ends_at < count) & (group[known] == group) & (when[known] - second <= WINDOW)

        rows = np.flatnonzero(member)  # a journey's members follow one another, up to its end
        opens = np.flatnonzero(np.diff(ends_at[rows], prepend=-1))
        number = np.repeat(np.arange(len(opens)), sizes := np.diff(opens, append=len(rows)))
        return Journeys(
            journey=_fill_column(count, rows, number),
            conversion_second=_fill_column(count, rows, when[ends_at[rows]]),
            position=_fill_column(count, rows, np.arange(len(rows)) - opens[number]),
            clicks=_fill_column(count, rows, sizes[number] + short[ends_at[rows]]),
            ends=end,
            credited=label | short,
        )


def _since_last_click(group: Integers, second: Integers, click: NDArray[np.bool_]) -> Integers:
    where = np.arange(len(group))
    last = np.maximum.accumulate(np.where(click, where, -1))
    before = np.concatenate([[-1], last[:-1]])
    known = np.maximum(before, 0)
    since: Integers = np.where((before >= 0) & (group[known] == group), second - second[known], MISSING)
    return since


def _delays(second: Integers, group: Integers, hurry: Floats, place: Floats) -> Integers:
    delay = np.maximum(1, np.interp(hurry, DELAY_LEVELS, DELAY_HOURS) * 3600).astype(np.int64)
    gap = np.full(len(group), np.iinfo(np.int64).max)
    gap[:-1] = np.where(group[1:] == group[:-1], second[1:] - second[:-1], gap[:-1])
    within = 1 + (place * np.minimum(gap - 1, 2 * WINDOW)).astype(np.int64)
    return np.where(delay < gap, delay, within)


def _fill_column(count: int, rows: Integers, values: Integers) -> Integers:
    filled = np.full(count, MISSING, dtype=np.int64)
    filled[rows] = values
    return filled
