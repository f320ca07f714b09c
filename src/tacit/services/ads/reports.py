"""Reports for advertisers, over HTTP: `GET /ads/reports`, as JSON, CSV, Parquet or a page.

    GET /ads/reports?advertiser=Bean%20%26%20Leaf&from=2027-01-01&until=2027-02-01&by=day&form=csv

Days are UTC, and `until` is the first that is not in it; without them, the last thirty days. An advertiser's
key sees its own. Of what a report is made, and what that promises: `deliver/server/advertiser_report.py`.
"""

from __future__ import annotations

import calendar
import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from tacit.deliver.campaigns.campaign import DAY_SECONDS, BidEvent
from tacit.deliver.campaigns.store import CampaignStore, CampaignVerdict, all_campaigns
from tacit.deliver.campaigns.versions import VersionKind, VersionStore
from tacit.deliver.server.advertiser_report import AdvertiserReport, Grouping, show_day
from tacit.deliver.server.rate_intervals import CountedCell, EventCounts
from tacit.deliver.server.report_files import report_as_csv, report_as_parquet
from tacit.errors import BadInput, CampaignRefused
from tacit.expect import Choice
from tacit.services.ads.access import expect_reader
from tacit.services.ads.api import JSON, TEXT, ApiCall, ApiRoute, Schema, json_answer
from tacit.services.background import AppPart
from tacit.store.database import PartyDatabase
from tacit.store.report_lines import read_report_lines

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

USUAL_DAYS = 30
DAY: Schema = {"type": "string", "minLength": 10, "maxLength": 10}


class ReportForm(Choice):
    """What a report is answered as."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    PAGE = "page"

    @property
    def media(self) -> str:
        return _MEDIA[self]

    @property
    def ending(self) -> str:
        return "html" if self is ReportForm.PAGE else str(self)


_MEDIA = {
    ReportForm.JSON: JSON,
    ReportForm.CSV: "text/csv; charset=utf-8; header=present",
    ReportForm.PARQUET: "application/vnd.apache.parquet",
    ReportForm.PAGE: "text/html; charset=utf-8",
}


def parse_day(name: str, spelled: str) -> int:
    """The first second of a day, spelled 2027-01-31.

    >>> parse_day("from", "1970-01-02")
    86400
    """
    try:
        second = calendar.timegm(time.strptime(spelled, "%Y-%m-%d"))
    except ValueError:
        second = -1
    if second < 0 or show_day(second) != spelled:
        raise BadInput(f"{name}: expected a day such as 2027-01-31, got another text")
    return second


def make_report(
    database: PartyDatabase,
    campaigns: CampaignStore,
    versions: VersionStore,
    advertiser: str,
    begin: int,
    end: int,
) -> AdvertiserReport:
    """An advertiser's report of the epochs that opened from `begin` until before `end`."""
    own = [*all_campaigns(campaigns, advertiser)]
    return AdvertiserReport(
        advertiser,
        begin,
        end,
        tuple(read_report_lines(database, advertiser, begin, end)),
        clicks=last_counts(versions, end),
        conversions=last_counts(versions, end, BidEvent.CONVERSION),
        titles={each.campaign.number: each.campaign.title for each in own},
        daily_micros={each.campaign.number: each.campaign.daily_micros for each in own},
    )


RELEASED = {
    BidEvent.CLICK: VersionKind.STATISTICS,
    BidEvent.CONVERSION: VersionKind.CONVERSION_STATISTICS,
}
"""Where the counts of an event are."""


def last_counts(versions: VersionStore, before: int, event: BidEvent = BidEvent.CLICK) -> EventCounts | None:
    """The clicks, or conversions, that were last released before a second, with their promise."""
    from tacit.deliver.server.released_statistics import ReleasedStatistics
    from tacit.privacy.statement import PrivacyStatement

    known = (each for each in versions.versions(RELEASED[event]) if each.made < before)
    newest = max(known, key=lambda each: each.made, default=None)
    content = None if newest is None else versions.content(newest.number)
    if newest is None or content is None:
        return None
    counted = ReleasedStatistics.from_bytes(content)
    cells = {}
    for place, node in enumerate(counted.nodes):
        for at in range(*counted.offsets[place : place + 2].tolist()):
            cell = CountedCell(float(counted.clicks[at]), float(counted.shown[at]))
            cells[int(counted.campaign[at]), node] = cell
    statement = PrivacyStatement.from_json(newest.body["statement"])
    return EventCounts(event, newest.source, newest.made, statement, counted.noise_sd, cells)


def write_report(report: AdvertiserReport, by: Grouping, form: ReportForm) -> bytes:
    """A report in one of its forms."""
    match form:
        case ReportForm.CSV:
            return report_as_csv(report, by)
        case ReportForm.PARQUET:
            return report_as_parquet(report, by)
        case ReportForm.PAGE:
            from tacit.services.ads.report_page import report_page

            return report_page(report).encode()
    return bytes(json_answer(report.as_json(by)).body)


def report_period(said: Any, now: int) -> tuple[int, int]:
    """First second, and the first after the last, of `from` and `until` as days; without, the last thirty."""
    end = parse_day("until", said["until"]) if said.get("until") else (now // DAY_SECONDS + 1) * DAY_SECONDS
    begin = parse_day("from", said["from"]) if said.get("from") else max(end - USUAL_DAYS * DAY_SECONDS, 0)
    return begin, end


def report_part(running: RunningAds) -> AppPart:
    """Reports over GET, for access keys."""

    def answer(call: ApiCall) -> Response:
        advertiser = call.query.get("advertiser") or call.access.advertiser
        if advertiser is None:
            raise CampaignRefused(
                CampaignVerdict.MALFORMED, "advertiser: expected whose report (--advertiser NAME), got none"
            )
        expect_reader(call.access, advertiser)
        paid_by = {each.advertiser for each in running.store.campaigns()}
        if running.campaigns.advertiser(advertiser) is None and advertiser not in paid_by:
            raise CampaignRefused(CampaignVerdict.UNKNOWN)
        by = Grouping.named("by", call.query.get("by", "campaign"))
        form = ReportForm.named("form", call.query.get("form", "json"))
        begin, end = report_period(call.query, call.now)
        report = make_report(
            running.store.database, running.campaigns, running.versions, advertiser, begin, end
        )
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        if form in (ReportForm.CSV, ReportForm.PARQUET):
            name = f"report-{show_day(begin)}-{show_day(end)}.{form.ending}"
            headers["content-disposition"] = f'attachment; filename="{name}"'
        if form is ReportForm.PAGE:  # it has no script and loads nothing
            headers["content-security-policy"] = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
        return Response(write_report(report, by, form), 200, headers, form.media)

    operation = ApiRoute(
        "GET",
        "/ads/reports",
        "A report of an advertiser's impressions, spend, clicks, conversions and why prices are what they are",
        answer,
        query={
            "advertiser": TEXT,
            "from": DAY,
            "until": DAY,
            "by": {"type": "string", "enum": [str(each) for each in Grouping]},
            "form": {"type": "string", "enum": [str(each) for each in ReportForm]},
        },
        media=tuple(each.media.partition(";")[0] for each in ReportForm),
    )
    return AppPart(routes=list(running.api.routes([operation])))
