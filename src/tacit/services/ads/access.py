"""Who asks: the access key of a request, looked up anew for each, so that what is revoked opens nothing more.

    gate = access_gate(ads)                       # of a `RunningAds`
    access = await gate.admit(request)            # of: Authorization: Bearer tacit_ID_SECRET
    expect_reader(access, "Bean & Leaf")

What an advertiser's key may not see is not there for it: it is told the same of what is another's and of what
does not exist.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING

from starlette.requests import Request

from tacit.deliver.campaigns.access import Access, digest_of, key_id_of
from tacit.deliver.campaigns.store import CampaignStore, CampaignVerdict
from tacit.errors import CampaignRefused
from tacit.services.endpoints import Clock
from tacit.store.campaigns import SqlCampaignStore

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

MOST_SPELLED = 200  # characters of a header that may be a key


class AccessGate:
    """Tells from a request what it may do."""

    def __init__(self, store: CampaignStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def admit(self, request: Request) -> Access:
        """What the request may do by its key; CampaignRefused(UNAUTHENTICATED) where it has none that holds."""
        return await asyncio.to_thread(self.access_of, bearer_of(request))

    def access_of(self, spelled: str) -> Access:
        """What a spelled key may do. A key that is not there takes as long as one that is spelled wrong."""
        key_id = key_id_of(spelled)
        key = None if key_id is None else self._store.key(key_id)
        kept = bytes(32) if key is None else key.digest
        same = hmac.compare_digest(kept, digest_of(spelled))
        if key is None or not same or not key.holds_at(self._clock()):
            raise CampaignRefused(CampaignVerdict.UNAUTHENTICATED)
        return key.access


def access_gate(ads: RunningAds) -> AccessGate:
    return AccessGate(SqlCampaignStore(ads.store.database), ads.clock)


def bearer_of(request: Request) -> str:
    """The key in a request's one header `Authorization: Bearer`; empty where there is none."""
    headers = request.headers.getlist("authorization")
    scheme, _, spelled = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    usable = scheme.lower() == "bearer" and len(spelled) <= MOST_SPELLED
    return spelled.strip() if usable else ""


def expect_reader(access: Access, advertiser: str | None) -> None:
    """Refuse whoever may not see this advertiser's; None: what is no advertiser's."""
    if not access.may_read(advertiser):
        _refuse(advertiser)


def expect_changer(access: Access, advertiser: str | None) -> None:
    expect_reader(access, advertiser)
    if not access.may_change(advertiser):
        raise CampaignRefused(CampaignVerdict.FORBIDDEN)


def _refuse(advertiser: str | None) -> None:
    """What is nobody's is known to be there; what is another advertiser's is not."""
    raise CampaignRefused(CampaignVerdict.FORBIDDEN if advertiser is None else CampaignVerdict.UNKNOWN)
