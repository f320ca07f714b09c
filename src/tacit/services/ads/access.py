"""Who asks: the access key of a request, looked up anew for each, so that what is revoked opens nothing more.

    gate = AccessGate(campaigns, clock, AccessLimits())
    access = await gate.admit(request)            # of: Authorization: Bearer tacit_ID_SECRET
    expect_reader(access, "Bean & Leaf")

What an advertiser's key may not see is not there for it: it is told the same of what is another's and of what
does not exist.

Keys of one advertiser ask only so often in a minute, together, and hand in only so much; so does each of the
others but operators', which hand in what they like. An address comes only so often with what is no key that
holds: then it is told to come again, whatever it brings. So is one that asks for menus and packs, which need
no key, more often than it may. Each process counts for itself. Addresses of this very machine are not counted,
and none is behind a reverse proxy, where all requests have the proxy's.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.deliver.campaigns.access import Access, digest_of, key_id_of
from tacit.deliver.campaigns.store import CampaignStore, CampaignVerdict
from tacit.errors import CampaignRefused
from tacit.services.billing_settings import FAILURES_PER_ADDRESS, MENUS_PER_ADDRESS, REQUESTS_PER_KEY
from tacit.services.connection_limits import is_loopback, networks_of
from tacit.services.endpoints import Clock
from tacit.services.problems import TooManyRequests, problem_from_error

MOST_SPELLED = 200  # characters of a header that may be a key
MOST_BUCKETS = 10_000  # addresses or keys that are remembered; the one not heard of for longest is forgotten
KILOBYTES_PER_MINUTE, MOST_KILOBYTES = 4_096, 65_536  # that an advertiser hands in: steadily, and at once


class TokenBuckets:
    """So many per minute of each name, all at once or one by one; 0: as many as one likes.

    A bucket holds a minute's worth, or `most`, and fills evenly. Who may take takes as much as is needed, and
    waits the longer afterwards. `ticks` are seconds of a clock that never goes back.
    """

    def __init__(self, per_minute: int, ticks: Callable[[], float], most: int | None = None) -> None:
        self._rate, self._ticks, self._most = per_minute, ticks, per_minute if most is None else most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what was in it, and when

    def wait_seconds(self, name: str) -> int:
        """Seconds until this one may take again; 0: it may now."""
        held = self._held(name)
        return 0 if not self._rate or held >= 1 else max(1, math.ceil((1 - held) * 60 / self._rate))

    def take(self, name: str, count: int = 1) -> None:
        if self._rate:
            self._buckets[name] = self._held(name) - count, self._ticks()
            self._buckets.move_to_end(name)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)

    def _held(self, name: str) -> float:
        held, at = self._buckets.get(name, (float(self._most), 0.0))
        return min(held + (self._ticks() - at) * self._rate / 60, self._most)


@dataclass(frozen=True)
class AccessLimits:
    """Per minute: requests of one key (of an advertiser's keys together), those of one address whose key does
    not hold, kilobytes that an advertiser hands in, and requests of one address for menus and packs; 0: no
    limit."""

    requests_per_key: int = REQUESTS_PER_KEY
    failures_per_address: int = FAILURES_PER_ADDRESS
    kilobytes: int = KILOBYTES_PER_MINUTE
    menus_per_address: int = MENUS_PER_ADDRESS


class AccessGate:
    """Tells from a request what it may do."""

    def __init__(
        self,
        store: CampaignStore,
        clock: Clock,
        limits: AccessLimits = AccessLimits(),  # noqa: B008 (it never changes)
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._clock = store, clock
        self._asked = TokenBuckets(limits.requests_per_key, ticks)
        self._failed = TokenBuckets(limits.failures_per_address, ticks)
        self._given = TokenBuckets(limits.kilobytes, ticks, MOST_KILOBYTES)

    async def admit(self, request: Request) -> Access:
        """What the request may do by its key; CampaignRefused(UNAUTHENTICATED) where it has none that holds,
        TooManyRequests where it comes too often."""
        address = counted_address(request.client)
        if address and (seconds := self._failed.wait_seconds(address)):
            raise TooManyRequests("too-many-failures", seconds)
        try:
            access = await asyncio.to_thread(self.access_of, bearer_of(request))
        except CampaignRefused:
            if address:
                self._failed.take(address)
            raise
        name = counted_as(access)
        if seconds := self._asked.wait_seconds(name):
            raise TooManyRequests("too-many-requests", seconds)
        self._asked.take(name)
        return access

    def count_body(self, access: Access, size: int) -> None:
        """Count so many bytes that an advertiser hands in; TooManyRequests where it was too much lately."""
        if access.role.of_one:
            if seconds := self._given.wait_seconds(counted_as(access)):
                raise TooManyRequests("too-many-bytes", seconds)
            self._given.take(counted_as(access), 1 + size // 1024)

    def access_of(self, spelled: str) -> Access:
        """What a spelled key may do. A key that is not there takes as long as one that is spelled wrong."""
        key_id = key_id_of(spelled)
        key = None if key_id is None else self._store.key(key_id)
        kept = bytes(32) if key is None else key.digest
        same = hmac.compare_digest(kept, digest_of(spelled))
        if key is None or not same or not key.holds_at(self._clock()):
            raise CampaignRefused(CampaignVerdict.UNAUTHENTICATED)
        return key.access


def counted_as(access: Access) -> str:
    """Whose limits count: an advertiser's, which may make itself as many keys as it likes, or the key's own."""
    return f"of {access.advertiser}" if access.role.of_one else access.key_id


def counted_address(peer: Any) -> str:
    """Whom something counts for: an address, of IPv6 its network; empty for this very machine. `peer` is a host
    and a port, as requests have it, or None."""
    return "" if peer is None or is_loopback(peer[0]) else "".join(networks_of(peer)[-1:])


class AddressBuckets:
    """So many per minute of each address, for endpoints that have no time to lose: whom a host counts for is
    worked out once."""

    def __init__(self, per_minute: int, ticks: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._buckets = per_minute, TokenBuckets(per_minute, ticks)
        self._names: dict[str, str] = {}

    def wait_seconds(self, peer: Any) -> int:
        """Seconds until this one may ask again; 0: it may now."""
        return self._buckets.wait_seconds(name) if (name := self._name_of(peer)) else 0

    def take(self, peer: Any) -> None:
        if name := self._name_of(peer):
            self._buckets.take(name)

    def _name_of(self, peer: Any) -> str:
        if peer is None or not self._per_minute:
            return ""
        found = self._names.get(peer[0])
        if found is None:
            if len(self._names) >= MOST_BUCKETS:
                self._names.clear()
            found = self._names[peer[0]] = counted_address(peer)
        return found


class PacedEndpoint:
    """An ASGI endpoint that an address (of IPv6: one /64) may ask only so often in a minute, together with all
    others of the same buckets."""

    def __init__(self, endpoint: ASGIApp, buckets: AddressBuckets) -> None:
        self._endpoint, self._buckets = endpoint, buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client")
        if seconds := self._buckets.wait_seconds(peer):
            await problem_from_error(TooManyRequests("too-many-requests", seconds))(scope, receive, send)
            return
        self._buckets.take(peer)
        await self._endpoint(scope, receive, send)


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


def listed_advertiser(access: Access, asked: str | None) -> str | None:
    """The advertiser of whom a list is: the key's own, or the one that was asked for; None: all."""
    if not access.role.of_one:
        return asked
    expect_reader(access, access.advertiser if asked is None else asked)
    return access.advertiser


def _refuse(advertiser: str | None) -> None:
    """What is nobody's is known to be there; what is another advertiser's is not."""
    raise CampaignRefused(CampaignVerdict.FORBIDDEN if advertiser is None else CampaignVerdict.UNKNOWN)
