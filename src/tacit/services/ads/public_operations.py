"""What OpenAPI clients read of operations that need no access key: menus, packs, and OpenRTB's.

Menus and packs are for whoever asks. Bids are for exchanges, which show a key of their own; notices for whoever
has one that this server signed. Requests for bids are described by the fields that are read: whatever else an
exchange sends is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.services.ads.openrtb_messages import MOST_IDENTIFIER, MOST_IMPS, MOST_SIZES
from tacit.services.problems import MEDIA as PROBLEM_MEDIA

Operation = Mapping[str, Any]
"""An OpenAPI operation."""

JSON = "application/json"
NAME: Mapping[str, Any] = {"type": "string", "minLength": 1, "maxLength": MOST_IDENTIFIER}
MENU_ID: Mapping[str, Any] = {"type": "string", "minLength": 64, "maxLength": 64, "pattern": "^[0-9a-f]{64}$"}
WHOLE, TEXT, TEXTS = (
    {"type": ["integer", "null"]},
    {"type": ["string", "null"]},
    {"type": ["array", "null"], "items": {"type": "string"}},
)


def _fields(required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object" if required else ["object", "null"],
        "required": [*required],
        "properties": properties,
    }


IMP = _fields(
    ("id",),
    id=NAME,
    banner=_fields(
        w=WHOLE, h=WHOLE, mimes=TEXTS, format={
            "type": ["array", "null"], "maxItems": MOST_SIZES,
            "items": {"type": "object", "properties": {"w": WHOLE, "h": WHOLE}},
        },
    ),
    bidfloor={"type": ["number", "null"], "minimum": 0},
    bidfloorcur=TEXT,
    pmp=_fields(private_auction=WHOLE),
)  # fmt: skip
PLACE = _fields(domain=TEXT, bundle=TEXT, cat=TEXTS, sectioncat=TEXTS, pagecat=TEXTS, cattax=WHOLE)
BID_REQUEST = _fields(
    ("id", "imp"),
    id=NAME,
    imp={"type": "array", "minItems": 1, "maxItems": MOST_IMPS, "items": IMP},
    site=PLACE,
    app=PLACE,
    device=_fields(geo=_fields(country=TEXT, region=TEXT, metro=TEXT, city=TEXT)),
    test=WHOLE,
    tmax=WHOLE,
    cur=TEXTS, wseat=TEXTS, bseat=TEXTS, bcat=TEXTS, acat=TEXTS, badv=TEXTS,
    cattax=WHOLE,
)  # fmt: skip
BID_RESPONSE: Mapping[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "cur": {"type": "string"},
        "nbr": {"type": "integer", "description": "why there is no bid"},
        "seatbid": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["bid"],
                "properties": {
                    "seat": {"type": "string"},
                    "bid": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["id", "impid", "price"],
                            "properties": {"price": {"type": "number", "exclusiveMinimum": 0}},
                        },
                    },
                },
            },
        },
    },
}


def _problem(words: str) -> dict[str, Any]:
    return {"description": words, "content": {PROBLEM_MEDIA: {"schema": {"type": "object"}}}}


def _answer(words: str, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"description": words}
    return found if schema is None else {**found, "content": {JSON: {"schema": dict(schema)}}}


def _operation(does: str, name: str, answers: Mapping[int, dict[str, Any]], **more: Any) -> Operation:
    responses = {str(status): answer for status, answer in answers.items()}
    return {"operationId": name, "summary": does, "security": [], "responses": responses} | more


def _parameter(name: str, place: str, schema: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": dict(schema), **more}


MENUS = _operation(
    "The menu that everybody is shown in a context",
    "get_menus",
    {
        200: _answer("what is offered until the epoch closes", {"type": "object", "required": ["menu"]}),
        304: _answer("as the ETag says, it has not changed"),
        400: _problem("no context, or not in its spelling"),
        404: _problem("no menu is offered for this context"),
        409: _problem("no epoch is open now"),
        429: _problem("too often from one address"),
    },
    parameters=[
        _parameter(
            "context", "query", {"type": "array", "minItems": 1, "items": {"type": "string", "maxLength": 100}},
            description="one per attribute, in their order: LEVEL:VALUE", explode=True,
        )
    ],
)  # fmt: skip
PACKS = _operation(
    "The ads of a menu, signed",
    "get_packs_menu",
    {
        200: _answer("all campaigns of the menu", {"type": "object", "required": ["pack", "signature"]}),
        304: _answer("as the ETag says, it has not changed"),
        400: _problem("no id of a menu"),
        404: _problem("no such menu is offered"),
        429: _problem("too often from one address"),
    },
    parameters=[_parameter("menu_id", "path", MENU_ID)],
)


BID = _operation(
    "A bid of OpenRTB 2.6",
    "post_openrtb_bid",
    {
        200: _answer("a bid; or, for exchanges that want reasons, why there is none", BID_RESPONSE),
        204: _answer("no bid"),
        400: _answer("no bid request"),
        401: _answer("no key of an exchange"),
        413: _answer("too long"),
        429: _answer("too often"),
    },
    security=[{"exchange": []}],
    requestBody={"required": True, "content": {JSON: {"schema": BID_REQUEST}}},
)

NOTICE = {
    method: _operation(
        "A notice of OpenRTB: the impression is to be paid for",
        f"{method}_openrtb_notice",
        {204: _answer("taken, now or before"), 404: _answer("not ours"), 410: _answer("too late")},
        parameters=[_parameter("token", "path", {"type": "string", "minLength": 1, "maxLength": 500})],
    )
    for method in ("get", "post")
}
