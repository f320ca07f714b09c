"""Campaigns as advertisers hand them in: what is said comes back, what is wrong is refused by its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tacit.deliver.campaigns.campaign import (
    MOST_BIDS,
    AdCampaign,
    BidEvent,
    CampaignStatus,
    ContextBid,
    FrequencyCap,
    Schedule,
)
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node
from tests.support.ad_campaigns import BEAN, a_campaign, campaign_record

CONTEXT = {"levels": [1, 1], "values": ["North", "Food"]}
EVERYTHING = campaign_record(
    status="paused",
    schedule={"starts": 10, "ends": 20, "hours": [5, 3], "utc_offset_minutes": -60},
    daily_micros=1_000_000,
    categories=["IAB8-5"],
    blocked=[CONTEXT],
    caps=[{"impressions": 3, "seconds": 86_400}],
)


def test_a_campaign_is_read_as_it_is_spelled_and_spelled_as_it_was_read() -> None:
    campaign = AdCampaign.from_json(EVERYTHING)
    assert (campaign.advertiser, campaign.event, campaign.status) == (
        BEAN, BidEvent.CLICK, CampaignStatus.PAUSED,
    )  # fmt: skip
    assert campaign.bids == (ContextBid(400_000), ContextBid(650_000, Node((1, 1), ("North", "Food"))))
    assert campaign.schedule == Schedule(10, 20, (3, 5), -60)
    assert campaign.caps == (FrequencyCap(3, 86_400),)
    again = AdCampaign.from_json(json.loads(json.dumps(campaign.as_json())))
    assert again == campaign


def test_what_is_left_out_is_nothing() -> None:
    campaign = AdCampaign(1, "A", "t", BidEvent.IMPRESSION, (ContextBid(1),))
    least = {"number": 1, "advertiser": "A", "title": "t", "event": "impression", "bids": [{"micros": 1}]}
    assert AdCampaign.from_json(least) == campaign
    assert AdCampaign.from_json({**least, "schedule": None}) == campaign
    assert (campaign.budget_micros, campaign.status, campaign.caps) == (None, CampaignStatus.ACTIVE, ())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"number": True}, "number to be a whole number"),
        ({"number": 2**63}, "number: expected a campaign in"),
        ({"advertiser": " "}, "advertiser: expected a printable text"),
        ({"advertiser": "a\x00b"}, "advertiser: expected a printable text"),
        ({"title": "x" * 201}, "title: expected a printable text of 1 to 200"),
        ({"event": "view"}, "event to be one of impression, click, conversion"),
        ({"bids": []}, "bids: expected at least one"),
        ({"bids": [{"micros": 0}]}, "micros: expected a bid"),
        ({"bids": [{"micros": 1.5}]}, "micros to be a whole number"),
        ({"bids": [{"micros": 1}, {"micros": 2}]}, "bids: expected one per context, got two"),
        ({"bids": [{"micros": 1}] * (MOST_BIDS + 1)}, "bids: expected at most"),
        ({"bids": {"micros": 1}}, "bids: expected a list"),
        ({"bids": [{"micros": 1, "price": 2}]}, "bids.price: expected one of micros, context"),
        ({"bids": [{"micros": 1, "context": {"levels": [1], "values": []}}]}, "as many levels as values"),
        ({"blocked": [{"levels": [256], "values": ["x"]}]}, "blocked: expected levels from 0 to 255"),
        ({"status": "gone"}, "status to be one of"),
        ({"schedule": {"starts": 5, "ends": 5}}, "schedule.ends: expected a second after 5"),
        ({"schedule": {"hours": [168]}}, "schedule.hours: expected different hours"),
        ({"schedule": {"hours": [1, 1]}}, "schedule.hours: expected different hours"),
        ({"schedule": {"utc_offset_minutes": 841}}, "schedule.utc_offset_minutes"),
        ({"schedule": {"ends": -1}}, "schedule.ends: expected seconds since 1970"),
        ({"budget_micros": -1}, "budget_micros: expected 0..2"),
        ({"daily_micros": 2**53 + 1}, "daily_micros: expected 0..2"),
        ({"caps": [{"impressions": 0, "seconds": 1}]}, "caps.impressions: expected 1..65535"),
        ({"caps": [{"impressions": 1}]}, "caps.seconds: expected it to be there"),
        ({"budget": 5}, r"campaign.budget: .* did you mean 'budget_micros'"),
    ],
)
def test_what_is_wrong_is_refused_by_its_key(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        AdCampaign.from_json(campaign_record(**change))


@pytest.mark.parametrize("record", [None, [], "x", 7, {}])
def test_what_is_no_campaign_is_refused(record: Any) -> None:
    with pytest.raises(BadInput, match=r"^campaign"):
        AdCampaign.from_json(record)


def test_a_bid_holds_below_its_context_at_levels_that_show_it() -> None:
    anywhere, north_food = a_campaign().bids
    assert anywhere.holds_at((2, 2))
    assert north_food.holds_at((1, 1))
    assert north_food.holds_at((0, 1))  # finer
    assert not north_food.holds_at((2, 1))


def test_hours_are_read_by_the_clock_of_the_offset() -> None:
    monday = 4 * 86_400  # 5 January 1970 at midnight in UTC
    schedule = Schedule(hours=(0,), utc_offset_minutes=60)
    assert schedule.runs_at(monday - 3_600)
    assert not schedule.runs_at(monday)
    assert Schedule(starts=5, ends=7).runs_at(6)
    assert not Schedule(starts=5, ends=7).runs_at(7)
