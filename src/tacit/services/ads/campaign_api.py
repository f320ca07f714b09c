"""Campaigns over HTTP: advertisers, campaigns and creatives, for whoever has an access key.

    GET   /ads/campaigns?advertiser=&after=&most=      POST  /ads/campaigns
    GET   /ads/campaigns/7                             PUT, PATCH, each with If-Match or ?version=
    GET   /ads/campaigns/7/creatives                   POST
    GET   /ads/creatives/12, /ads/creatives/12/content DELETE
    POST  /ads/import                                  all of a file, or nothing
    GET   /ads/advertisers, /ads/advertisers/NAME      PUT; DELETE /ads/advertisers/NAME/contact

Who may what: an operator's key everything; an advertiser's key its own, and there everything but the numbers
of new campaigns, which the server gives out; a viewer's key looks, and changes nothing. An advertiser sets the
budgets of its own campaigns: they are what it is ready to pay, so that it lowers none below what was charged or
may still be charged by menus that are out. What is another's is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from tacit.config import error_prefix
from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.campaign import AdCampaign, expect_keys
from tacit.deliver.campaigns.creatives import HTML_MEDIA, Creative, check_creative
from tacit.deliver.campaigns.files import by_number, read_filed
from tacit.deliver.campaigns.store import Advertiser, CampaignStore, CampaignVerdict, StoredCampaign
from tacit.errors import BadInput, CampaignRefused
from tacit.services.ads import campaign_schemas as schemas
from tacit.services.ads.access import expect_changer, expect_reader, listed_advertiser
from tacit.services.ads.api import (
    NUMBER,
    PER_PAGE,
    ApiCall,
    ApiRoute,
    Schema,
    json_answer,
    page_answer,
)
from tacit.services.ads.key_api import key_operations
from tacit.services.ads.sanitiser import sanitise_html
from tacit.services.background import AppPart

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

MOST_IMPORT_BYTES = 2**23
CONTENT_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
IMAGES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
VERSION: Mapping[str, Schema] = {"version": schemas.whole(1, 2**63 - 1)}
IF_MATCH: Mapping[str, Schema] = {"if-match": {"type": "string", "pattern": r'^("[1-9][0-9]{0,17}"|\*)$'}}
ONE: Mapping[str, Schema] = {"number": NUMBER}


def campaign_part(running: RunningAds) -> AppPart:
    """Campaigns and keys, for those who sell and those who buy."""
    operations = [
        *campaign_operations(running.campaigns, running.keeper.turn),
        *key_operations(running.campaigns, running.entropy),
        *advertiser_operations(running.campaigns),
    ]
    return AppPart(routes=running.api.routes(operations))


# Campaigns


Turn = Callable[[], AbstractContextManager[None]]
"""While no menus are made: a budget that is lowered must not be counted on by menus that come after."""


def campaign_operations(store: CampaignStore, turn: Turn) -> list[ApiRoute]:
    changing = partial(
        ApiRoute, parts=ONE, query=VERSION, headers=IF_MATCH, refusals=(409, 412),
        answers={200: schemas.CAMPAIGN_KEPT},
    )  # fmt: skip
    page = {"advertiser": schemas.NAME, "after": NUMBER, **schemas.PAGE}
    images = tuple(IMAGES)
    return [
        ApiRoute(
            "GET", "/ads/campaigns", "Campaigns by number, a page at a time", partial(list_campaigns, store),
            query=page, answers={200: schemas.page_of("campaigns", schemas.CAMPAIGN_KEPT)},
        ),
        ApiRoute(
            "POST", "/ads/campaigns", "Add a campaign", partial(add_campaign, store),
            body=schemas.CAMPAIGN_ADDED, refusals=(409,),
            answers={200: schemas.CAMPAIGN_KEPT, 201: schemas.CAMPAIGN_KEPT},
        ),
        ApiRoute(
            "GET", "/ads/campaigns/{number}", "One campaign", partial(show_campaign, store), parts=ONE,
            answers={200: schemas.CAMPAIGN_KEPT},
        ),
        changing(
            "PUT", "/ads/campaigns/{number}", "Replace what is said of a campaign: every key is there",
            partial(replace_campaign, store, turn), body=schemas.CAMPAIGN_REPLACED,
        ),
        changing(
            "PATCH", "/ads/campaigns/{number}", "Change some keys of a campaign: status, budgets, bids",
            partial(amend_campaign, store, turn), body=schemas.CAMPAIGN_AMENDED,
        ),
        ApiRoute(
            "POST", "/ads/import", "Add or change advertisers and campaigns, all of them or none",
            partial(import_campaigns, store, turn), body=schemas.CAMPAIGNS_PUT, refusals=(409, 412),
            most_bytes=MOST_IMPORT_BYTES, answers={200: schemas.PUT_OUTCOME},
        ),
        ApiRoute(
            "GET", "/ads/campaigns/{number}/creatives", "The ads of a campaign", partial(list_creatives, store),
            parts=ONE, answers={200: schemas.list_of("creatives", schemas.CREATIVE)},
        ),
        ApiRoute(
            "POST", "/ads/campaigns/{number}/creatives", "Add an ad: it is checked, and HTML is cleaned",
            partial(add_creative, store), parts=ONE, body=schemas.CREATIVE_ADDED, refusals=(409,),
            answers={200: schemas.CREATIVE, 201: schemas.CREATIVE},
        ),
        ApiRoute(
            "GET", "/ads/creatives/{number}", "One ad, without its content", partial(show_creative, store),
            parts=ONE, answers={200: schemas.CREATIVE},
        ),
        ApiRoute(
            "GET", "/ads/creatives/{number}/content", "What is shown of an ad: an image, or cleaned HTML",
            partial(show_content, store), parts=ONE, media=(f"{HTML_MEDIA}; charset=utf-8", *images),
            answers={200: {"type": "string"}, 204: None},
        ),
        ApiRoute(
            "DELETE", "/ads/creatives/{number}", "Remove an ad", partial(remove_creative, store), parts=ONE,
            answers={204: None},
        ),
    ]  # fmt: skip


def list_campaigns(store: CampaignStore, call: ApiCall) -> Response:
    most = call.query.get("most", PER_PAGE)
    advertiser = listed_advertiser(call.access, call.query.get("advertiser"))
    found = store.campaigns(advertiser=advertiser, after=call.query.get("after", -1), most=most + 1)
    return page_answer("campaigns", found, most, lambda last: last.campaign.number)


def _kept(stored: StoredCampaign, status: int = 200, **headers: str) -> Response:
    return json_answer(stored.as_json(), status, {"etag": f'"{stored.version}"', **headers})


def _campaign(store: CampaignStore, call: ApiCall, number: int, *, changes: bool = False) -> StoredCampaign:
    """A campaign that the key may see, or change; whatever else it asks for is not there."""
    stored = store.campaign(number)
    if stored is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN)
    (expect_changer if changes else expect_reader)(call.access, stored.campaign.advertiser)
    return stored


def show_campaign(store: CampaignStore, call: ApiCall) -> Response:
    return _kept(_campaign(store, call, call.path["number"]))


def add_campaign(store: CampaignStore, call: ApiCall) -> Response:
    said = expect_keys("campaign", call.body, (), tuple(schemas.CAMPAIGN))
    numbered = "number" in said
    campaign = AdCampaign.from_json(said if numbered else {"number": 0, **said})
    expect_changer(call.access, campaign.advertiser)
    if numbered and call.access.role is not AccessRole.OPERATOR:
        raise CampaignRefused(
            CampaignVerdict.FORBIDDEN, "number: expected none, since the server gives it out, got one"
        )
    stored, new = store.add_campaign(campaign, call.author, numbered=numbered)
    if not new:
        return _kept(stored)
    return _kept(stored, 201, location=f"/ads/campaigns/{stored.campaign.number}")


def _version(call: ApiCall) -> int | None:
    """The version that was seen: of the header, or of the query; None: whichever is there."""
    header, query = call.headers.get("if-match", "*"), call.query.get("version")
    seen = None if header == "*" else int(header.strip('"'))
    if seen is not None and query not in (None, seen):
        raise BadInput("version: expected that of If-Match, got another")
    return query if seen is None else seen


def _turn_for(
    turn: Turn, call: ApiCall, changes: Iterable[tuple[StoredCampaign, Any]]
) -> AbstractContextManager[None]:
    """A turn, where an advertiser lowers a budget: of campaigns as they are, to what is said."""
    for stored, budget in changes:
        before = stored.campaign.budget_micros
        if call.author.pays and type(budget) is int and (before is None or budget < before):
            return turn()
    return nullcontext()


def replace_campaign(store: CampaignStore, turn: Turn, call: ApiCall) -> Response:
    number = call.path["number"]
    needed = schemas.CAMPAIGN_REPLACED["required"]
    said = expect_keys("campaign", call.body, needed, tuple(schemas.CAMPAIGN))
    if said.get("number", number) != number:
        raise BadInput("campaign.number: expected that of the path, got another")
    version, stored = _version(call), _campaign(store, call, number, changes=True)
    campaign = AdCampaign.from_json({**said, "number": number})
    with _turn_for(turn, call, [(stored, campaign.budget_micros)]):
        return _kept(store.change_campaign(campaign, version, call.author))


def amend_campaign(store: CampaignStore, turn: Turn, call: ApiCall) -> Response:
    said = expect_keys("campaign", call.body, (), tuple(schemas.AMENDABLE))
    if not said:
        raise BadInput("campaign: expected at least one key, got none")
    version, stored = _version(call), _campaign(store, call, call.path["number"], changes=True)
    with _turn_for(turn, call, [(stored, said.get("budget_micros"))]):
        return _kept(store.amend_campaign(call.path["number"], said, version, call.author))


def import_campaigns(store: CampaignStore, turn: Turn, call: ApiCall) -> Response:
    said = expect_keys("import", call.body, (), ("advertisers", "campaigns"))
    advertisers = [Advertiser.from_json(each) for each in _few("advertisers", said)]
    filed = []
    for place, each in enumerate(_few("campaigns", said), start=1):
        with error_prefix(f"campaigns: {place}"):
            entry = expect_keys("entry", each, ("campaign",), ("campaign", "version"))
            campaign = expect_keys("campaign", entry["campaign"], (), tuple(schemas.CAMPAIGN))
            filed.append(read_filed({**campaign, "version": entry.get("version")}))
    numbered, unnumbered = by_number(filed)
    for name in {each.name for each in advertisers} | {each.advertiser for each in unnumbered}:
        expect_changer(call.access, name)
    changes = []
    for read, _ in numbered:
        expect_changer(call.access, read.advertiser)
        if call.access.role.of_one:  # a number of theirs never becomes another's: looking beforehand is enough
            changes.append((_campaign(store, call, read.number, changes=True), read.budget_micros))
    with _turn_for(turn, call, changes):
        put = store.put_all(advertisers, numbered, call.author, unnumbered=unnumbered)
    return json_answer(put.as_json())


def _few(name: str, said: Mapping[str, Any]) -> list[Any]:
    given = said.get(name, [])
    if not isinstance(given, list) or len(given) > schemas.MOST_PUT:
        raise BadInput(f"{name}: expected a list of at most {schemas.MOST_PUT:,}, got another value")
    return given


# Creatives


def list_creatives(store: CampaignStore, call: ApiCall) -> Response:
    stored = _campaign(store, call, call.path["number"])
    found = store.creatives(stored.campaign.number)
    return json_answer({"creatives": [each.as_json() for each in found]})


def add_creative(store: CampaignStore, call: ApiCall) -> Response:
    number = call.path["number"]
    _campaign(store, call, number, changes=True)
    creative, content = check_creative(call.body, number, sanitise_html)
    kept, new = store.add_creative(creative, content, call.author)
    where = {"location": f"/ads/creatives/{kept.number}"}
    return json_answer(kept.as_json(), 201 if new else 200, where if new else None)


def _creative(store: CampaignStore, call: ApiCall, *, changes: bool = False) -> Creative:
    creative = store.creative(call.path["number"])
    if creative is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN)
    _campaign(store, call, creative.campaign, changes=changes)
    return creative


def show_creative(store: CampaignStore, call: ApiCall) -> Response:
    return json_answer(_creative(store, call).as_json())


def show_content(store: CampaignStore, call: ApiCall) -> Response:
    """Its bytes, for looking at: nothing in them runs, and no browser takes them for something else."""
    creative = _creative(store, call)
    content = store.content(creative.number)
    if not content:  # a text, or one that was removed just now
        return Response(status_code=204, headers=CONTENT_HEADERS)
    image = IMAGES.get(creative.media)
    how = f'attachment; filename="creative-{creative.number}.html"'
    if image is not None:
        how = f'inline; filename="creative-{creative.number}.{image}"'
    headers = {**CONTENT_HEADERS, "content-disposition": how}
    return Response(content, headers=headers, media_type=creative.media)


def remove_creative(store: CampaignStore, call: ApiCall) -> Response:
    store.remove_creative(_creative(store, call, changes=True).number, call.author)
    return Response(status_code=204)


# Advertisers


def advertiser_operations(store: CampaignStore) -> list[ApiRoute]:
    one: Mapping[str, Schema] = {"name": schemas.NAME}
    page = {"after": schemas.NAME, **schemas.PAGE}
    return [
        ApiRoute(
            "GET", "/ads/advertisers", "Advertisers by name, a page at a time",
            partial(list_advertisers, store), query=page,
            answers={200: schemas.page_of("advertisers", schemas.ADVERTISER, schemas.NAME)},
        ),
        ApiRoute(
            "GET", "/ads/advertisers/{name:path}", "One advertiser", partial(show_advertiser, store), parts=one,
            answers={200: schemas.ADVERTISER},
        ),
        ApiRoute(
            "PUT", "/ads/advertisers/{name:path}", "Add an advertiser, or change whom to write to",
            partial(put_advertiser, store), parts=one, body=schemas.ADVERTISER_PUT,
            answers={200: schemas.ADVERTISER, 201: schemas.ADVERTISER},
        ),
        ApiRoute(
            "DELETE", "/ads/advertisers/{name:path}/contact",
            "Erase whom to write to, from earlier lines of the trail too", partial(erase_contact, store),
            parts=one, answers={204: None},
        ),
    ]  # fmt: skip


def list_advertisers(store: CampaignStore, call: ApiCall) -> Response:
    most, after = call.query.get("most", PER_PAGE), call.query.get("after", "")
    if call.access.advertiser is None:
        found = store.advertisers(after=after, most=most + 1)
    else:
        mine = store.advertiser(call.access.advertiser)
        found = [] if mine is None or mine.name <= after else [mine]
    return page_answer("advertisers", found, most, lambda last: last.name)


def show_advertiser(store: CampaignStore, call: ApiCall) -> Response:
    expect_reader(call.access, call.path["name"])
    found = store.advertiser(call.path["name"])
    if found is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN)
    return json_answer(found.as_json())


def put_advertiser(store: CampaignStore, call: ApiCall) -> Response:
    said = expect_keys("advertiser", call.body, ("contact",), ("contact",))
    advertiser = Advertiser(call.path["name"], said["contact"])
    expect_changer(call.access, advertiser.name)
    new = store.put_advertiser(advertiser, call.author)
    return json_answer(advertiser.as_json(), 201 if new else 200)


def erase_contact(store: CampaignStore, call: ApiCall) -> Response:
    expect_changer(call.access, call.path["name"])
    store.erase_contact(call.path["name"], call.author)
    return Response(status_code=204)
