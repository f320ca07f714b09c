"""What an advertiser is told of its campaigns: impressions and spend, exactly, and rates from noisy counts.

    report = AdvertiserReport("Bean & Leaf", begin, end, lines, clicks=counts)
    for row in report.rows(Grouping.CAMPAIGN):
        row.impressions, row.spend_micros, row.ctr

A line is all charges of one entry of one menu: a campaign in a context, epoch and lane at one price, for one
reason. It belongs to the day on which its epoch opened (UTC), however late it was reported, and to the invoice
that was closed next.

    Guarantee:  impressions and spend are exact counts of what devices reported. Each report is one choice that
                is epsilon-LDP with its menu's epsilon, paid for by the device: counting them spends nothing
                more. Clicks, conversions and their rates are what rounds released, under those rounds' own
                statements; the report adds nothing that is not in them.
    Neighbours: for impressions and spend, any two private states of a device at one choice; for rates, those of
                the round's statement.
    Assumes:    what `PrivateChoice` and the rounds assume. Several choices of one device add up, within the
                limits that its person set.
    Source:     post-processing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit import expect
from tacit.bill.protocol.menus import Lane
from tacit.deliver.campaigns.campaign import DAY_SECONDS, context_as_json
from tacit.deliver.server.rate_intervals import SUPPRESSION, CountedCell, EventCounts
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node

MICRO = 1_000_000
MOST_SECONDS = 400 * DAY_SECONDS
CHOICE, RELATION = "choice on a device", "replace-one"


class Grouping(expect.Choice):
    """What a row of a report is: a campaign, a context, a day, or a line of charges."""

    CAMPAIGN = "campaign"
    CONTEXT = "context"
    DAY = "day"
    LINE = "line"


@dataclass(frozen=True)
class ChargeLine:
    """Charges of one entry of one menu that share a fate.

    opens           when the menu's epoch opened, in Unix seconds
    epsilon_micros  what one choice from that menu spent of a device's privacy; 0 in the public lane
    reason          why the price is what it is, in public terms
    invoice         the invoice that they are on; None: on none yet
    held            whether they wait until their campaign has money: not charged, and not spend
    """

    campaign: int
    epoch: int
    opens: int
    node: Node
    lane: Lane
    epsilon_micros: int
    price_micros: int
    impressions: int
    reason: str
    invoice: int | None = None
    held: bool = False

    @property
    def micros(self) -> int:
        return self.price_micros * self.impressions

    @property
    def day(self) -> str:
        return show_day(self.opens)


def show_day(second: int) -> str:
    """
    >>> show_day(86_400)
    '1970-01-02'
    """
    return time.strftime("%Y-%m-%d", time.gmtime(second))


@dataclass(frozen=True)
class Promise:
    """What stands beside a figure: for whom, how much, against which change."""

    unit: str
    epsilon: float
    delta: float
    relation: str
    source: str

    def as_json(self) -> dict[str, Any]:
        return {
            "unit": self.unit, "epsilon": self.epsilon, "delta": self.delta, "relation": self.relation,
            "source": self.source,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"({self.epsilon:g}, {self.delta:g})-DP per {self.unit}, {self.relation} ({self.source})"


@dataclass(frozen=True)
class EventFigures:
    """Hits and their rate with intervals, of noisy counts; or why there are none."""

    promise: Promise | None
    cell: CountedCell | None = None
    noise_sd: float = 0.0
    withheld: str = ""

    @classmethod
    def of(cls, counts: EventCounts | None, campaigns: Iterable[int], node: Node | None = None) -> EventFigures:
        if counts is None:
            return cls(None, withheld="not counted")
        promise = promise_of(counts)
        cell = counts.cell(campaigns, node)
        if cell is None:
            return cls(promise, withheld="not counted")
        if cell.is_suppressed(counts.noise_sd):
            return cls(promise, withheld="too few")
        return cls(promise, cell, counts.noise_sd)

    @property
    def rate(self) -> float | None:
        return None if self.cell is None else self.cell.rate()

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.cell is None else self.cell.interval(self.noise_sd)

    def as_json(self) -> dict[str, Any]:
        statement = None if self.promise is None else self.promise.as_json()
        if self.cell is None:
            return {"withheld": self.withheld, "statement": statement}
        low, high = self.cell.hits_interval(self.noise_sd)
        rate_low, rate_high = self.interval or (0.0, 1.0)
        return {
            "hits": {"value": round(self.cell.hits), "low": low, "high": high, "statement": statement},
            "counted_impressions": {"value": round(self.cell.shown), "statement": statement},
            "rate": {"value": self.rate, "low": rate_low, "high": rate_high, "statement": statement},
        }


def promise_of(counts: EventCounts) -> Promise:
    said = counts.statement
    return Promise(str(said.unit), said.epsilon, said.delta, str(said.relation), counts.source)


@dataclass(frozen=True)
class ReportRow:
    """One row: what it is of, and its figures."""

    label: str
    lines: tuple[ChargeLine, ...] = field(repr=False)
    clicks: EventFigures
    conversions: EventFigures
    campaign: int | None = None
    node: Node | None = None
    day: str | None = None

    @property
    def charged(self) -> tuple[ChargeLine, ...]:
        return tuple(line for line in self.lines if not line.held)

    @property
    def impressions(self) -> int:
        return sum(line.impressions for line in self.charged)

    @property
    def spend_micros(self) -> int:
        return sum(line.micros for line in self.charged)

    @property
    def held_micros(self) -> int:
        return sum(line.micros for line in self.lines if line.held)

    @property
    def invoiced_micros(self) -> int:
        return sum(line.micros for line in self.charged if line.invoice is not None)

    @property
    def promise(self) -> Promise:
        """Of impressions and spend: the largest epsilon of a choice that is counted here."""
        return _promise_of(self.lines)

    def reasons(self) -> list[tuple[str, int, int]]:
        """Why prices were what they were: reason, impressions and spend, the most spend first."""
        found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for line in self.charged:
            found[line.reason][0] += line.impressions
            found[line.reason][1] += line.micros
        each = [(reason, shown, micros) for reason, (shown, micros) in found.items()]
        return sorted(each, key=lambda one: (-one[2], -one[1], one[0]))

    def as_json(self) -> dict[str, Any]:
        statement = self.promise.as_json()
        return {
            "label": self.label,
            "campaign": self.campaign,
            "context": context_as_json(self.node),
            "day": self.day,
            "impressions": {"value": self.impressions, "statement": statement},
            "spend_micros": {"value": self.spend_micros, "statement": statement},
            "held_micros": {"value": self.held_micros, "statement": statement},
            "invoiced_micros": {"value": self.invoiced_micros, "statement": statement},
            "reasons": [
                {"reason": reason, "impressions": shown, "spend_micros": micros, "statement": statement}
                for reason, shown, micros in self.reasons()
            ],
            "clicks": self.clicks.as_json(),
            "conversions": self.conversions.as_json(),
        }


def _promise_of(lines: Sequence[ChargeLine]) -> Promise:
    epsilon = max((line.epsilon_micros for line in lines), default=0)
    return Promise(CHOICE, epsilon / MICRO, 0.0, RELATION, "charges")


@dataclass(frozen=True)
class AdvertiserReport:
    """An advertiser's charges of the epochs that opened from `begin` until before `end`.

    clicks, conversions  the last that was released of each before the end; None: nothing was
    titles               what campaigns are called, also those without a charge
    daily_micros         what each may cost on one day; None: no limit
    """

    advertiser: str
    begin: int
    end: int
    lines: tuple[ChargeLine, ...] = field(repr=False)
    clicks: EventCounts | None = None
    conversions: EventCounts | None = None
    titles: dict[int, str] = field(default_factory=dict, repr=False)
    daily_micros: dict[int, int | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end <= self.begin + MOST_SECONDS:
            raise BadInput("until: expected a day after the first, at most 400 days later, got another")

    def __repr__(self) -> str:
        return brief(self, advertiser=self.advertiser, lines=len(self.lines))

    @property
    def campaigns(self) -> list[int]:
        return sorted({line.campaign for line in self.lines} | set(self.titles))

    @property
    def whole(self) -> ReportRow:
        """All of it as one row."""
        campaigns = self.campaigns
        clicks, conversions = (EventFigures.of(each, campaigns) for each in (self.clicks, self.conversions))
        return ReportRow("all", self.lines, clicks, conversions)

    def invoices(self) -> list[tuple[int | None, int, int]]:
        """On which invoices the spend is: number (None: on none yet), impressions, micros."""
        found: defaultdict[int | None, list[int]] = defaultdict(lambda: [0, 0])
        for line in self.lines:
            if not line.held:
                found[line.invoice][0] += line.impressions
                found[line.invoice][1] += line.micros
        return [
            (number, *found[number])  # type: ignore[misc]  # two of them
            for number in sorted(found, key=lambda each: (each is None, each or 0))
        ]

    def rows(self, by: Grouping) -> list[ReportRow]:
        """Rows of one grouping: campaigns by number, days in order, contexts and lines by what they cost."""
        by = Grouping.named("by", by)
        if by is Grouping.LINE:
            ordered = sorted(
                self.lines, key=lambda line: (line.opens, line.campaign, str(line.node), line.reason)
            )
            none = EventFigures(None, withheld="not counted by line")
            return [
                ReportRow(str(at), (line,), none, none, line.campaign, line.node, line.day)
                for at, line in enumerate(ordered, 1)
            ]
        groups: defaultdict[Any, list[ChargeLine]] = defaultdict(list)
        for line in self.lines:
            key = {Grouping.CAMPAIGN: line.campaign, Grouping.CONTEXT: line.node, Grouping.DAY: line.day}[by]
            groups[key].append(line)
        if by is Grouping.CAMPAIGN:
            return [self._campaign_row(number, groups.get(number, [])) for number in self.campaigns]
        if by is Grouping.DAY:
            none = EventFigures(None, withheld="not counted by day")
            return [ReportRow(day, tuple(groups[day]), none, none, day=day) for day in sorted(groups)]
        rows = [self._context_row(node, lines) for node, lines in groups.items()]
        return sorted(rows, key=lambda row: (-row.spend_micros, row.label))

    def _campaign_row(self, number: int, lines: Sequence[ChargeLine]) -> ReportRow:
        title = self.titles.get(number)
        label = f"campaign {number}" if title is None else f"{number} {title}"
        clicks, conversions = (EventFigures.of(each, [number]) for each in (self.clicks, self.conversions))
        return ReportRow(label, tuple(lines), clicks, conversions, campaign=number)

    def _context_row(self, node: Node, lines: Sequence[ChargeLine]) -> ReportRow:
        """Never finer than what menus are for."""
        campaigns = {line.campaign for line in lines}
        clicks, conversions = (
            EventFigures.of(each, campaigns, node) for each in (self.clicks, self.conversions)
        )
        return ReportRow(str(node), tuple(lines), clicks, conversions, node=node)

    def as_json(self, by: Grouping) -> dict[str, Any]:
        """For machines: every figure with its statement."""
        statement = _promise_of(self.lines).as_json()
        return {
            "advertiser": self.advertiser,
            "from": show_day(self.begin),
            "until": show_day(self.end),
            "by": str(by),
            "total": self.whole.as_json(),
            "rows": [row.as_json() for row in self.rows(by)],
            "invoices": [
                {"invoice": number, "impressions": shown, "spend_micros": micros, "statement": statement}
                for number, shown, micros in self.invoices()
            ],
            "statistics": [
                {"event": str(each.event), "source": each.source, "made": each.made,
                 "statement": each.statement.as_json()}
                for each in (self.clicks, self.conversions) if each is not None
            ],
            "suppression": SUPPRESSION,
        }  # fmt: skip
