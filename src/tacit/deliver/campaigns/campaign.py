"""Campaigns as advertisers hand them in: bids on contexts, schedules, budgets, frequency caps.

    campaign = AdCampaign(
        number=7,
        advertiser="Bean & Leaf",
        title="Spring roast",
        event=BidEvent.CLICK,
        bids=(ContextBid(400_000), ContextBid(650_000, Node((1, 1), ("North", "Food")))),
        daily_micros=20_000_000,
    )

Amounts are whole micros. `as_json` and `from_json` are how the API, files and stores spell a campaign; what is
unknown or wrong there is refused in one line that names the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tacit import expect
from tacit.bill.protocol.menus import MOST_MICROS
from tacit.deliver.protocol.packs import FrequencyCap as FrequencyCap
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node, is_coarser

DAY_SECONDS = 86_400
WEEK_HOURS = 168
MOST_BIDS, MOST_BLOCKED, MOST_CATEGORIES, MOST_CAPS = 1_000, 1_000, 32, 4
MOST_TEXT = 200  # characters of a name or title
MOST_SECOND = 2**40  # far beyond any schedule
MOST_OFFSET_MINUTES = 14 * 60
_MONDAY = 4 * DAY_SECONDS  # of the first week of 1970, in seconds; that began on a Thursday


class BidEvent(expect.Choice):
    """What a bid is for. Whatever it is, charges are per impression: bid x the public chance of the event."""

    IMPRESSION = "impression"
    CLICK = "click"
    CONVERSION = "conversion"


class CampaignStatus(expect.Choice):
    """Whether a campaign takes part in menus; what ended never comes back."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(frozen=True)
class ContextBid:
    """Micros for the campaign's event wherever the context lies below `node`; None: anywhere."""

    micros: int
    node: Node | None = None

    def __post_init__(self) -> None:
        if not 1 <= expect.integer("micros", self.micros) <= MOST_MICROS:
            raise BadInput("micros: expected a bid in 1..2^53, got another number")
        if self.node is not None:
            expect.kind("context", self.node, Node)

    def holds_at(self, levels: Sequence[int]) -> bool:
        """Whether it can hold for what is disclosed at these levels; one on something finer never does."""
        return self.node is None or is_coarser(self.node.levels, tuple(levels))


@dataclass(frozen=True)
class Schedule:
    """When a campaign runs: from a second until before another, in some hours of the week.

    hours                0 is Monday from midnight; none: all
    utc_offset_minutes   of the clock that hours are read by
    """

    starts: int | None = None
    ends: int | None = None
    hours: tuple[int, ...] = ()
    utc_offset_minutes: int = 0

    def __post_init__(self) -> None:
        for name in ("starts", "ends"):
            given = getattr(self, name)
            if given is not None:
                expect_second(f"schedule.{name}", given)
        if self.starts is not None and self.ends is not None and self.starts >= self.ends:
            raise BadInput(f"schedule.ends: expected a second after {self.starts}, got {self.ends}")
        hours = [expect.integer("each of schedule.hours", hour) for hour in self.hours]
        if any(not 0 <= hour < WEEK_HOURS for hour in hours) or len(set(hours)) < len(hours):
            raise BadInput(f"schedule.hours: expected different hours of 0..{WEEK_HOURS - 1}, got others")
        object.__setattr__(self, "hours", tuple(sorted(hours)))
        if abs(expect.integer("utc_offset_minutes", self.utc_offset_minutes)) > MOST_OFFSET_MINUTES:
            raise BadInput("schedule.utc_offset_minutes: expected -840..840, got another number")

    def runs_at(self, second: int) -> bool:
        """
        >>> monday_noon = 4 * 86_400 + 12 * 3_600
        >>> Schedule(hours=(12,)).runs_at(monday_noon), Schedule(hours=(12,)).runs_at(monday_noon - 1)
        (True, False)
        """
        if self.starts is not None and second < self.starts:
            return False
        if self.ends is not None and second >= self.ends:
            return False
        local = second + 60 * self.utc_offset_minutes - _MONDAY
        return not self.hours or local // 3_600 % WEEK_HOURS in self.hours

    def running_seconds(self, begin: int, end: int) -> int:
        """In how many seconds of begin..end it runs.

        >>> Schedule(hours=(0, 2), ends=_MONDAY + 7_260).running_seconds(_MONDAY, _MONDAY + DAY_SECONDS)
        3660
        """
        first_hour = begin + (-begin - 60 * self.utc_offset_minutes) % 3_600
        changes = {begin, *range(first_hour, end, 3_600)}
        changes |= {at for at in (self.starts, self.ends) if at is not None and begin < at < end}
        if begin >= end:
            return 0
        return sum(later - at for at, later in pairwise([*sorted(changes), end]) if self.runs_at(at))


ALWAYS = Schedule()


@dataclass(frozen=True)
class AdCampaign:
    """All that an advertiser says of a campaign.

    bids            the most specific above a context holds there; none that reaches it: it does not compete
    categories      what the ad is about, in a taxonomy's codes ("IAB8-5"), for those who exclude some
    blocked         contexts in and below which it is not shown
    budget_micros   what it may be charged in all; None: no limit. `daily_micros`: on one day (UTC)
    caps            kept by the device, which alone knows what it showed
    """

    number: int
    advertiser: str
    title: str
    event: BidEvent
    bids: tuple[ContextBid, ...]
    status: CampaignStatus = CampaignStatus.ACTIVE
    schedule: Schedule = ALWAYS
    budget_micros: int | None = None
    daily_micros: int | None = None
    categories: tuple[str, ...] = ()
    blocked: tuple[Node, ...] = ()
    caps: tuple[FrequencyCap, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= expect.integer("number", self.number) < 2**63:
            raise BadInput("number: expected a campaign in 0..2^63-1, got another number")
        expect_name("advertiser", self.advertiser)
        expect_name("title", self.title)
        object.__setattr__(self, "event", BidEvent.named("event", self.event))
        object.__setattr__(self, "status", CampaignStatus.named("status", self.status))
        _expect_few("bids", self.bids, ContextBid, MOST_BIDS)
        if not self.bids:
            raise BadInput("bids: expected at least one, got none")
        if len({bid.node for bid in self.bids}) < len(self.bids):
            raise BadInput("bids: expected one per context, got two")
        expect.kind("schedule", self.schedule, Schedule)
        for name in ("budget_micros", "daily_micros"):
            given = getattr(self, name)
            if given is not None and not 0 <= expect.integer(name, given) <= MOST_MICROS:
                raise BadInput(f"{name}: expected 0..2^53 or none, got another number")
        _expect_few("categories", self.categories, str, MOST_CATEGORIES)
        for each in self.categories:
            expect_name("categories", each)
        _expect_few("blocked", self.blocked, Node, MOST_BLOCKED)
        _expect_few("caps", self.caps, FrequencyCap, MOST_CAPS)

    def __repr__(self) -> str:
        return brief(self, number=self.number, advertiser=self.advertiser, status=self.status)

    def as_json(self) -> dict[str, Any]:
        """As `from_json` reads it; keys with nothing to say are there too."""
        schedule = self.schedule
        return {
            "number": self.number,
            "advertiser": self.advertiser,
            "title": self.title,
            "event": str(self.event),
            "bids": [{"micros": bid.micros, "context": context_as_json(bid.node)} for bid in self.bids],
            "status": str(self.status),
            "schedule": {
                "starts": schedule.starts,
                "ends": schedule.ends,
                "hours": list(schedule.hours),
                "utc_offset_minutes": schedule.utc_offset_minutes,
            },
            "budget_micros": self.budget_micros,
            "daily_micros": self.daily_micros,
            "categories": list(self.categories),
            "blocked": [context_as_json(node) for node in self.blocked],
            "caps": [{"impressions": cap.impressions, "seconds": cap.seconds} for cap in self.caps],
        }

    @classmethod
    def from_json(cls, record: Any) -> AdCampaign:
        """A campaign of a record; BadInput names what is missing, unknown or wrong."""
        said = expect_keys("campaign", record, NEEDED, ALLOWED)
        schedule = said.get("schedule")
        blocked = _expect_list("blocked", said.get("blocked", []))
        when = expect_keys("schedule", {} if schedule is None else schedule, (), SCHEDULE)
        return cls(
            number=said["number"],
            advertiser=said["advertiser"],
            title=said["title"],
            event=said["event"],
            bids=tuple(_read_bid(each) for each in _expect_list("bids", said["bids"])),
            status=said.get("status", CampaignStatus.ACTIVE),
            schedule=Schedule(
                when.get("starts"),
                when.get("ends"),
                tuple(_expect_list("schedule.hours", when.get("hours", []))),
                when.get("utc_offset_minutes", 0),
            ),
            budget_micros=said.get("budget_micros"),
            daily_micros=said.get("daily_micros"),
            categories=tuple(_expect_list("categories", said.get("categories", []))),
            blocked=tuple(read_context("blocked", each) for each in blocked),
            caps=tuple(_read_cap(each) for each in _expect_list("caps", said.get("caps", []))),
        )


NEEDED = ("number", "advertiser", "title", "event", "bids")
ALLOWED = (
    *NEEDED, "status", "schedule", "budget_micros", "daily_micros", "categories", "blocked", "caps",
)  # fmt: skip
SCHEDULE = ("starts", "ends", "hours", "utc_offset_minutes")


def expect_name(name: str, given: Any) -> str:
    """Some printable text, of a length that pages and invoices can show."""
    if not isinstance(given, str) or not given.strip() or not given.isprintable() or len(given) > MOST_TEXT:
        raise BadInput(f"{name}: expected a printable text of 1 to {MOST_TEXT} characters, got another value")
    return given


def expect_second(name: str, given: Any) -> int:
    if not 0 <= expect.integer(name, given) <= MOST_SECOND:
        raise BadInput(f"{name}: expected seconds since 1970, got another number")
    return int(given)


def read_context(name: str, record: Any) -> Node:
    """{"levels": [1, 1], "values": ["North", "Food"]}."""
    said = expect_keys(name, record, ("levels", "values"), ("levels", "values"))
    levels, values = _expect_list(name, said["levels"]), _expect_list(name, said["values"])
    if not levels or len(levels) != len(values):
        raise BadInput(f"{name}: expected as many levels as values, at least one, got others")
    for level in levels:
        if not 0 <= expect.integer(f"{name}.levels", level) < 256:
            raise BadInput(f"{name}: expected levels from 0 to 255, got another number")
    return Node(tuple(levels), tuple(expect_name(f"{name}.values", value) for value in values))


def context_as_json(node: Node | None) -> dict[str, Any] | None:
    return None if node is None else {"levels": list(node.levels), "values": list(node.values)}


def _read_bid(record: Any) -> ContextBid:
    said = expect_keys("bids", record, ("micros",), ("micros", "context"))
    context = said.get("context")
    return ContextBid(said["micros"], None if context is None else read_context("bids.context", context))


def _read_cap(record: Any) -> FrequencyCap:
    keys = ("impressions", "seconds")
    said = expect_keys("caps", record, keys, keys)
    return FrequencyCap(said["impressions"], said["seconds"])


def expect_keys(name: str, record: Any, needed: Sequence[str], allowed: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise BadInput(f"{name}: expected a table of keys, got another value")
    for key in record:
        if key not in allowed:
            raise BadInput(expect.unknown_key(f"{name}.{key}", str(key), allowed))
    for key in needed:
        if key not in record:
            raise BadInput(f"{name}.{key}: expected it to be there, got nothing")
    return record


def _expect_list(name: str, given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise BadInput(f"{name}: expected a list, got another value")
    return given


def _expect_few(name: str, given: tuple[Any, ...], kind: type, most: int) -> None:
    expect.kind(name, given, tuple)
    if len(given) > most:
        raise BadInput(f"{name}: expected at most {most}, got {len(given)}")
    for each in given:
        expect.kind(f"each of {name}", each, kind)
