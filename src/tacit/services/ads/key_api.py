"""Access keys and the trail of changes over HTTP.

    GET   /ads/whoami
    GET   /ads/keys?advertiser=            POST  /ads/keys
    POST  /ads/keys/ID/rotate              DELETE /ads/keys/ID
    GET   /ads/changes?advertiser=&subject=&after=&most=

A key is told once, in the answer that it is made by. An operator's key makes keys of every role, an
advertiser's key those of its own advertiser. A key that ends makes none that hold longer. Viewers look.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.responses import Response

from tacit.deliver.campaigns.access import AccessKey, AccessRole, make_key
from tacit.deliver.campaigns.campaign import expect_keys, expect_second
from tacit.deliver.campaigns.store import CampaignStore, CampaignVerdict
from tacit.entropy import Entropy
from tacit.errors import BadInput, CampaignRefused
from tacit.services.ads import campaign_schemas as schemas
from tacit.services.ads.access import expect_changer, listed_advertiser
from tacit.services.ads.api import NUMBER, PER_PAGE, ApiCall, ApiRoute, Schema, json_answer, page_answer

ONE: Mapping[str, Schema] = {"key_id": schemas.KEY_ID}


def key_operations(store: CampaignStore, entropy: Entropy) -> list[ApiRoute]:
    who, page = {"advertiser": schemas.NAME}, {"after": NUMBER, **schemas.PAGE}
    return [
        ApiRoute("GET", "/ads/whoami", "What this key may do", show_caller, answers={200: schemas.WHOAMI}),
        ApiRoute(
            "GET", "/ads/keys", "Access keys, but not what they are spelled", partial(list_keys, store),
            query=who, answers={200: schemas.list_of("keys", schemas.KEY)},
        ),
        ApiRoute(
            "POST", "/ads/keys", "Make an access key: it is spelled once",
            partial(make_access_key, store, entropy), body=schemas.KEY_ASKED, refusals=(409,),
            answers={201: schemas.KEY_MADE},
        ),
        ApiRoute(
            "POST", "/ads/keys/{key_id}/rotate", "A new key in the place of one, which holds for a while yet",
            partial(rotate_key, store, entropy), parts=ONE, body=schemas.ROTATION, refusals=(409,),
            answers={201: schemas.KEY_ROTATED},
        ),
        ApiRoute(
            "DELETE", "/ads/keys/{key_id}", "Revoke a key: it opens nothing more", partial(revoke_key, store),
            parts=ONE, answers={200: schemas.KEY},
        ),
        ApiRoute(
            "GET", "/ads/changes", "Who changed what and when, the oldest first", partial(list_changes, store),
            query={**who, "subject": schemas.NAME, **page},
            answers={200: schemas.page_of("changes", schemas.CHANGE)},
        ),
    ]  # fmt: skip


def show_caller(call: ApiCall) -> Response:
    access = call.access
    said = {"key_id": access.key_id, "role": str(access.role), "advertiser": access.advertiser}
    return json_answer({**said, "changes": access.role.changes})


def list_keys(store: CampaignStore, call: ApiCall) -> Response:
    return json_answer(
        {
            "keys": [
                each.as_json()
                for each in store.keys(listed_advertiser(call.access, call.query.get("advertiser")))
            ]
        }
    )


def _end(store: CampaignStore, call: ApiCall, ends: int | None) -> int | None:
    """When a new key ends: as was asked, and never behind the end of the key that makes it."""
    mine = store.key(call.access.key_id)
    latest = None if mine is None else mine.ends
    if ends is not None and expect_second("ends", ends) <= call.now:
        raise BadInput(f"ends: expected a second after now, {call.now}, got {ends}")
    if latest is not None and ends is not None and ends > latest:
        raise CampaignRefused(
            CampaignVerdict.FORBIDDEN, f"ends: expected {latest} at the latest, when the key that asks ends"
        )
    return latest if ends is None else ends


def make_access_key(store: CampaignStore, entropy: Entropy, call: ApiCall) -> Response:
    said = expect_keys("key", call.body, ("role",), ("role", "advertiser", "ends"))
    role, advertiser = AccessRole.named("role", said["role"]), said.get("advertiser")
    # As it would be kept: what is wrong is said before anything is asked of the store.
    AccessKey("", role, advertiser, call.now)
    expect_changer(call.access, advertiser)
    spelled, key = make_key(
        role, advertiser, entropy.bytes, now=call.now, ends=_end(store, call, said.get("ends"))
    )
    store.add_key(key, call.author)
    return json_answer({"spelled": spelled, "key": key.as_json()}, 201)


def _key(store: CampaignStore, call: ApiCall) -> AccessKey:
    """A key that may be changed by the one that asks."""
    key = store.key(call.path["key_id"])
    if key is None or not call.access.may_read(key.advertiser):
        raise CampaignRefused(CampaignVerdict.UNKNOWN)
    expect_changer(call.access, key.advertiser)
    return key


def rotate_key(store: CampaignStore, entropy: Entropy, call: ApiCall) -> Response:
    said = expect_keys("rotation", call.body, ("grace_seconds",), ("grace_seconds", "ends"))
    grace = said["grace_seconds"]
    if type(grace) is not int or not 0 <= grace <= schemas.MOST_GRACE_SECONDS:
        raise BadInput(f"grace_seconds: expected 0 to {schemas.MOST_GRACE_SECONDS}, got another value")
    old = _key(store, call)
    spelled, key = make_key(
        old.role, old.advertiser, entropy.bytes, now=call.now, ends=_end(store, call, said.get("ends"))
    )
    ended = store.rotate_key(old.key_id, key, call.now + grace, call.author)
    return json_answer({"spelled": spelled, "key": key.as_json(), "old": ended.as_json()}, 201)


def revoke_key(store: CampaignStore, call: ApiCall) -> Response:
    return json_answer(store.revoke_key(_key(store, call).key_id, call.author).as_json())


def list_changes(store: CampaignStore, call: ApiCall) -> Response:
    most = call.query.get("most", PER_PAGE)
    found = store.changes(
        advertiser=listed_advertiser(call.access, call.query.get("advertiser")),
        subject=call.query.get("subject"),
        after=call.query.get("after", 0),
        most=most + 1,
    )
    return page_answer("changes", found, most, lambda last: last.number)
