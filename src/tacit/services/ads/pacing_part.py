"""What pacing comes to, for whoever asks: `GET /ads/pacing`, and figures for /metrics.

An advertiser's key sees its own campaigns. Amounts are whole micros; what is about budgets is null without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from tacit.services.ads.api import NUMBER, ApiCall, ApiRoute, Schema, json_answer
from tacit.services.ads.pacer import Pacer
from tacit.services.background import AppPart, Look, Reading
from tacit.services.endpoints import Clock

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

PATH = "/ads/pacing"
FIGURE_SECONDS = 30
MICROS: Schema = {"type": "integer", "minimum": 0}
MAYBE_MICROS: Schema = {"type": ["integer", "null"], "minimum": 0}
CAMPAIGN: Schema = {
    "type": "object",
    "required": ["campaign", "advertiser", "budget_micros", "charged_micros", "held_micros", "out_micros"],
    "properties": {
        "campaign": NUMBER,
        "advertiser": {"type": "string"},
        "budget_micros": MAYBE_MICROS,
        "charged_micros": MICROS,
        "held_micros": {**MICROS, "description": "shown, and not charged, since its money had run out"},
        "out_micros": {**MICROS, "description": "tokens that may still be reported, each at its price"},
        "bound_micros": {
            **MAYBE_MICROS,
            "description": "by how much it can be over its budget, whatever comes",
        },
        "bound_share": {"type": ["number", "null"], "description": "of its budget"},
        "allowed_micros": {**MAYBE_MICROS, "description": "share x budget: what the bound is kept below"},
        "within": {"type": ["boolean", "null"], "description": "false where a budget was lowered meanwhile"},
        "daily_micros": MAYBE_MICROS,
        "day_spent_micros": {**MICROS, "description": "charged or held, of epochs that opened today (UTC)"},
        "day_out_micros": MICROS,
        "day_target_micros": {**MAYBE_MICROS, "description": "of a daily budget that is spread, by now"},
        "contexts": {"type": "integer", "minimum": 0, "description": "in which it is offered now"},
    },
}
PACING: Schema = {
    "type": "object",
    "required": ["on", "share", "now", "epoch", "menus", "ran_out", "campaigns"],
    "properties": {
        "on": {"type": "boolean"},
        "share": {"type": "number", "description": "of its budget, by which a campaign may be over at worst"},
        "now": {"type": "integer"},
        "epoch": {"type": ["integer", "null"], "description": "that is offered now"},
        "menus": {"type": "integer", "description": "of that epoch, that have tokens"},
        "ran_out": {"type": "integer", "description": "of these, those of which no more tokens are signed"},
        "campaigns": {"type": "array", "items": CAMPAIGN},
    },
}


def pacing_part(running: RunningAds) -> AppPart:
    """How far every campaign is, and how far over its budget it can go."""
    pacer = running.pacer

    def answer(call: ApiCall) -> Response:
        return json_answer(pacing_record(pacer, call.now, call.access.may_read))

    route = ApiRoute("GET", PATH, "Budgets, what is out of them, and bounds", answer, answers={200: PACING})
    looks = [look_at_pacing(pacer, running.clock)] if pacer.settings.on else []
    return AppPart(routes=running.api.routes([route]), looks=looks)


def pacing_record(pacer: Pacer, now: int, may_read: Any = lambda _advertiser: True) -> dict[str, Any]:
    """The report for machines, of advertisers that may be read."""
    report, settings = pacer.report(now), pacer.settings
    return {
        "on": settings.on,
        "share": float(settings.share),
        "now": report.now,
        "epoch": report.epoch,
        "menus": report.menus,
        "ran_out": report.ran_out,
        "campaigns": [
            each.as_json(settings.share)
            for each in report.campaigns
            if may_read(each.campaign.advertiser)
        ],
    }  # fmt: skip


def look_at_pacing(pacer: Pacer, clock: Clock) -> Look:
    """Figures of all campaigns; looked up twice a minute, since they go over every menu that is out."""
    seen: tuple[int, list[Reading]] | None = None

    def look() -> list[Reading]:
        nonlocal seen
        now = clock()
        if seen is None or not 0 <= now - seen[0] < FIGURE_SECONDS:
            seen = now, _readings(pacer, now)
        return seen[1]

    return look


def _readings(pacer: Pacer, now: int) -> list[Reading]:
    found = pacer.report(now)
    over = sum(each.is_over(pacer.settings.share) for each in found.campaigns)
    return [
        Reading(
            "tacit_pacing_largest_bound_share",
            "The largest share of its budget by which a campaign can be over it, whatever devices report.",
            found.largest_share,
        ),
        Reading("tacit_pacing_over_share", "Campaigns that can be over by more than the stated share.", over),
        Reading("tacit_pacing_menus_ran_out", "Menus offered now that sign no more tokens.", found.ran_out),
        Reading(
            "tacit_pacing_campaigns_left_out",
            "Campaigns that the last plan of this process left out of some context for money.",
            found.left_out,
        ),
        Reading(
            "tacit_pacing_out_micros",
            "What all tokens that may still be reported can cost campaigns with a budget at worst.",
            sum(each.money.out_micros for each in found.campaigns if each.money.budget_micros is not None),
        ),
    ]
