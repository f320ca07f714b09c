"""JSON Schemas of campaigns, creatives, keys and changes, as the API takes and gives them.

They say what a client can check beforehand. The records themselves check everything, these rules too
(`deliver.campaigns`); a test holds that whatever breaks a schema is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.bill.protocol.menus import MOST_MICROS
from tacit.deliver.campaigns import campaign as rules
from tacit.deliver.campaigns import creatives as ads
from tacit.deliver.campaigns.access import ID_BYTES, SECRET_BYTES, AccessRole
from tacit.deliver.campaigns.campaign import MOST_SECOND, MOST_TEXT, BidEvent, CampaignStatus
from tacit.deliver.campaigns.creatives import CreativeKind
from tacit.deliver.campaigns.store import MOST_PER_PAGE
from tacit.services.ads.api import NUMBER, Schema

MOST_PUT = 10_000  # campaigns, and advertisers, of one file
MOST_GRACE_SECONDS = 90 * 86_400


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def text(most: int, least: int = 1) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


def word(choice: type[Any]) -> Schema:
    return {"type": "string", "enum": [str(each) for each in choice]}


def listed(items: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "items": dict(items), "minItems": least, "maxItems": most}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [dict(schema), {"type": "null"}]}


def record(properties: dict[str, Schema], needed: Sequence[str] | None = None) -> Schema:
    """Of these keys and no others; `needed` ones are there, all of them where nothing is said."""
    required = [*properties] if needed is None else [*needed]
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": required,
        "additionalProperties": False,
    }


NAME = text(MOST_TEXT)
SECOND = whole(0, MOST_SECOND)
CONTEXT = record(
    {"levels": listed(whole(0, 255), MOST_TEXT, 1), "values": listed(NAME, MOST_TEXT, 1)},
)
BID = record({"micros": whole(1, MOST_MICROS), "context": or_null(CONTEXT)}, ["micros"])
SCHEDULE = record(
    {
        "starts": or_null(SECOND),
        "ends": or_null(SECOND),
        "hours": {**listed(whole(0, rules.WEEK_HOURS - 1), rules.WEEK_HOURS), "uniqueItems": True},
        "utc_offset_minutes": whole(-rules.MOST_OFFSET_MINUTES, rules.MOST_OFFSET_MINUTES),
    },
    (),
)
CAPS_SAID = (
    "Wishes that each device keeps within its private choice, since nobody else knows what it has shown: once "
    "one is reached the campaign is worth nothing there, and is shown as rarely as the choice's law allows. "
    "Among 4 candidates that is a chance of 17.5 % per impression at epsilon 1, 9.6 % at 2 and 0.7 % at 5. "
    "Where nothing private is read (the public lane, bids without a device's choice) caps do not hold."
)
CAP = record({"impressions": whole(1, 2**16 - 1), "seconds": whole(1, 2**32 - 1)})
AMOUNT = or_null(whole(0, MOST_MICROS))

AMENDABLE: dict[str, Schema] = {
    "title": NAME,
    "event": word(BidEvent),
    "bids": listed(BID, rules.MOST_BIDS, 1),
    "status": word(CampaignStatus),
    "schedule": or_null(SCHEDULE),
    "budget_micros": AMOUNT,
    "daily_micros": AMOUNT,
    "categories": listed(NAME, rules.MOST_CATEGORIES),
    "blocked": listed(CONTEXT, rules.MOST_BLOCKED),
    "caps": {**listed(CAP, rules.MOST_CAPS), "description": CAPS_SAID},
}
"""What may change of a campaign, each under its key: whose it is and its number never do."""

CAMPAIGN = {"number": NUMBER, "advertiser": NAME, **AMENDABLE}
CAMPAIGN_ADDED = record(CAMPAIGN, [each for each in rules.NEEDED if each != "number"])
CAMPAIGN_REPLACED = record(CAMPAIGN, [each for each in CAMPAIGN if each != "number"])
CAMPAIGN_AMENDED: Schema = {**record(AMENDABLE, ()), "minProperties": 1}
CAMPAIGN_KEPT = record(
    {
        "version": whole(1, 2**63 - 1),
        "charged_micros": {"type": "integer", "minimum": 0},
        "campaign": record(CAMPAIGN),
    }
)

ADVERTISER_PUT = record({"contact": text(MOST_TEXT, 0)})
ADVERTISER = record({"name": NAME, "contact": text(MOST_TEXT, 0)})

CAMPAIGN_PUT = record({"campaign": CAMPAIGN_ADDED, "version": or_null(whole(1, 2**63 - 1))}, ["campaign"])
CAMPAIGNS_PUT = record(
    {
        "advertisers": {"type": "array", "items": record(ADVERTISER["properties"], ["name"])},
        "campaigns": {"type": "array", "items": CAMPAIGN_PUT},
    },
    (),
)
NUMBERS: Schema = {"type": "array", "items": dict(NUMBER)}
PUT_OUTCOME = record({"added": NUMBERS, "changed": NUMBERS})

CREATIVE_ADDED = record(
    {
        "kind": word(CreativeKind),
        "title": text(ads.MOST_TITLE),
        "text": text(ads.MOST_WORDS, 0),
        "address": {**text(ads.MOST_ADDRESS), "pattern": "^https://"},
        "content": text((ads.MOST_IMAGE_BYTES + 2) // 3 * 4),
    },
    ads.NEEDED,
)
PIXELS = or_null(whole(1, ads.MOST_SIDE))
CREATIVE = record(
    {
        "number": NUMBER,
        "campaign": NUMBER,
        "media": {"type": "string"},
        "title": text(ads.MOST_TITLE),
        "text": text(ads.MOST_WORDS, 0),
        "address": text(ads.MOST_ADDRESS),
        "size": {"type": "integer", "minimum": 0},
        "width": PIXELS,
        "height": PIXELS,
        "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    }
)

KEY_ID: Schema = {"type": "string", "pattern": f"^[0-9a-f]{{{2 * ID_BYTES}}}$"}
KEY = record(
    {
        "key_id": KEY_ID,
        "role": word(AccessRole),
        "advertiser": or_null(NAME),
        "made": SECOND,
        "ends": or_null(SECOND),
        "revoked": or_null(SECOND),
    }
)
SPELLED: Schema = {
    "type": "string",
    "pattern": f"^tacit_[0-9a-f]{{{2 * ID_BYTES}}}_[0-9a-f]{{{2 * SECRET_BYTES}}}$",
}
KEY_MADE = record({"spelled": SPELLED, "key": KEY})
KEY_ROTATED = record({"spelled": SPELLED, "key": KEY, "old": KEY})
KEY_ASKED = record({"role": word(AccessRole), "advertiser": or_null(NAME), "ends": or_null(SECOND)}, ["role"])
ROTATION = record({"grace_seconds": whole(0, MOST_GRACE_SECONDS), "ends": or_null(SECOND)}, ["grace_seconds"])
WHOAMI = record(
    {"key_id": KEY_ID, "role": word(AccessRole), "advertiser": or_null(NAME), "changes": {"type": "boolean"}}
)
CHANGE = record(
    {
        "number": NUMBER,
        "at": SECOND,
        "key_id": {"type": "string"},
        "subject": {"type": "string"},
        "advertiser": or_null(NAME),
        "before": {"type": ["object", "null"]},
        "after": {"type": ["object", "null"]},
    }
)

PAGE: dict[str, Schema] = {"most": whole(1, MOST_PER_PAGE)}


def list_of(name: str, items: Schema) -> Schema:
    return record({name: {"type": "array", "items": dict(items)}})


def page_of(name: str, items: Schema, after: Schema = NUMBER) -> Schema:
    """One page of a list, and what `after` is to say for the next; null behind the last."""
    return record({name: {"type": "array", "items": dict(items)}, "next": or_null(after)})
