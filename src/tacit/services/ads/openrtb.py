"""The OpenRTB 2.6 edge: exchanges ask for bids, and are answered with what everybody is shown in that context.

    POST /openrtb/bid          with Authorization: Bearer KEY
    POST /openrtb/bid/KEY      for exchanges that cannot send headers of their own

KEY is the exchange's secret of the table [openrtb], in hexadecimal digits. A request becomes a context of the
market's hierarchy (`openrtb_settings`), and the bid is the entry of the public lane's menu there, at its price
(`openrtb_bidder`): nothing of a person is used, kept or logged.

A bid in time or none: what cannot be answered within `tmax` is answered with no bid at once. An exchange that
asks more often than it may is told to come again (429), and so is an address that came too often with keys
that do not hold, whatever it brings then. Each process counts for itself.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import Counter
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.server.notices import NoticeDesk, NoticeKey
from tacit.errors import BillRefused, TacitError
from tacit.services.ads.access import AddressBuckets, TokenBuckets
from tacit.services.ads.notices import PATH as NOTICE_PATH
from tacit.services.ads.notices import (
    SPENT_SECONDS,
    NoticeIntake,
    NoticeReporter,
    SpentMenus,
    look_at_notices,
)
from tacit.services.ads.openrtb_ads import AdShelf
from tacit.services.ads.openrtb_bidder import Bidder, LoadFirst
from tacit.services.ads.openrtb_messages import (
    MOST_BYTES,
    VERSION,
    BidRequest,
    MalformedRequest,
    NoBid,
    parse_request,
)
from tacit.services.ads.openrtb_settings import Exchange, OpenRtbSettings, key_digest
from tacit.services.ads.public_operations import BID, NOTICE
from tacit.services.background import AppPart, LookTask
from tacit.services.billing_clients import HttpAdChannel
from tacit.services.http_clients import open_client
from tacit.services.log import error_line
from tacit.services.problems import LOG
from tacit.store.notices import SqlNoticeStore

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

PATH = "/openrtb/bid"
MOST_KEY = 200  # characters that may be a key
MOST_TMAX = 60_000  # milliseconds
THROTTLED = "throttled"
LEAST_PACKED = 1_400  # bytes: less fits a packet as it is
JSON = (b"content-type", b"application/json")
SPOKEN = (b"x-openrtb-version", VERSION.encode())

_encode = msgspec.json.encode


class BidEndpoint:
    """Answers requests for bids: an ASGI endpoint, since most of its time would be the framework's."""

    def __init__(
        self,
        settings: OpenRtbSettings,
        bidder: Bidder,
        *,
        timer: Callable[[], float] = time.monotonic,
        failures_per_address: int = 0,
    ) -> None:
        """An address may come so often in a minute with a key that does not hold; 0: as often as it likes."""
        self._bidder, self._timer, self._network = bidder, timer, settings.network_ms / 1000
        self._failed = AddressBuckets(failures_per_address, timer)
        self._asked = {
            each.name: TokenBuckets(60 * each.requests_per_second, timer, each.requests_per_second)
            for each in settings.exchanges
            if each.requests_per_second
        }
        self._exchanges = {each.digest: each for each in settings.exchanges}
        self.answered = Counter(
            "tacit_openrtb_requests", "Requests of exchanges for bids, by what they were answered.",
            ["exchange", "outcome"], registry=None,
        )  # fmt: skip
        self._children = {
            (each.name, outcome): self.answered.labels(each.name, outcome)
            for each in settings.exchanges
            for outcome in ("bid", THROTTLED, *(reason.name.lower() for reason in NoBid))
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._timer()
        if seconds := self._failed.wait_seconds(scope.get("client")):
            await _send_empty(send, 429, (b"connection", b"close"), _come_again(seconds))
            return
        headers = _read_headers(scope)
        exchange = self._exchanges.get(key_digest(_key_of(scope, headers)))
        if exchange is None:
            self._failed.take(scope.get("client"))
            await _send_empty(send, 401, (b"connection", b"close"), (b"www-authenticate", b"Bearer"))
            return
        body = await _read_body(headers, receive)
        if body is None:
            await _send_empty(send, 413, (b"connection", b"close"))
            return
        if buckets := self._asked.get(exchange.name):
            if seconds := buckets.wait_seconds(exchange.name):
                self._children[exchange.name, THROTTLED].inc()
                await _send_empty(send, 429, _come_again(seconds))
                return
            buckets.take(exchange.name)
        media = headers.get(b"content-type", JSON[1]).partition(b";")[0].strip().lower()
        version = headers.get(b"x-openrtb-version", b"2")
        try:
            if media != JSON[1] or version.partition(b".")[0].strip() != b"2":
                raise MalformedRequest
            request = parse_request(body, headers.get(b"content-encoding", b"").strip().lower())
        except MalformedRequest:
            self._children[exchange.name, "invalid_request"].inc()
            await _send_empty(send, 400)
            return
        if not exchange.clients:
            for imp in request.imp:
                imp.ext = None
        answer = await self._within(request, began)
        outcome = "bid" if isinstance(answer, bytes) else answer.name.lower()
        self._children[exchange.name, outcome].inc()
        await _send_answer(send, request, answer, exchange, b"gzip" in headers.get(b"accept-encoding", b""))

    async def _within(self, request: BidRequest, began: float) -> bytes | NoBid:
        """The answer, if it is made in time. Most are made at once, of what is in memory."""
        left, asked = None, self._timer()
        if request.tmax is not None:
            left = min(request.tmax, MOST_TMAX) / 1000 - self._network - (asked - began)
            if left <= 0:
                return NoBid.INSUFFICIENT_TIME
        try:
            answer = await self._loaded(request, left)
        except TimeoutError:
            return NoBid.INSUFFICIENT_TIME
        except BillRefused:  # no epoch is open
            return NoBid.NO_MENU
        except TacitError as problem:  # of a store
            LOG.error("%s", error_line(problem))
            return NoBid.TECHNICAL_ERROR
        is_late = left is not None and self._timer() - asked > left
        return NoBid.INSUFFICIENT_TIME if is_late else answer

    async def _loaded(self, request: BidRequest, left: float | None) -> bytes | NoBid:
        try:
            return self._bidder.respond(request)
        except LoadFirst as first:
            missing = first
        async with asyncio.timeout(left):
            while True:
                await missing.load()
                try:
                    return self._bidder.respond(request)
                except LoadFirst as another:
                    missing = another


def _read_headers(scope: Scope) -> dict[bytes, bytes]:
    """Of several with one name the last; two keys are none."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found[name] = b"" if name == b"authorization" and name in found else value
    return found


def _key_of(scope: Scope, headers: dict[bytes, bytes]) -> str:
    key: str = scope["path_params"].get("key", "")
    if not key:
        scheme, _, spelled = headers.get(b"authorization", b"").partition(b" ")
        key = spelled.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
    return key if len(key) <= MOST_KEY else ""


async def _read_body(headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
    """The body; None as soon as it is known to be too long."""
    claimed = headers.get(b"content-length", b"")
    if claimed and not (claimed.isdigit() and len(claimed) < 10 and int(claimed) <= MOST_BYTES):
        return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":  # nobody is there any more
            return b""
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _come_again(seconds: int) -> tuple[bytes, bytes]:
    return b"retry-after", str(seconds).encode()


async def _send_empty(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    described = [SPOKEN, *headers] if status == 204 else [SPOKEN, (b"content-length", b"0"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": b""})


async def _send_answer(
    send: Send, request: BidRequest, answer: bytes | NoBid, exchange: Exchange, packs: bool
) -> None:
    if isinstance(answer, NoBid):
        if not exchange.reasons:
            await _send_empty(send, 204)
            return
        answer = _encode({"id": request.id, "nbr": int(answer)})
    headers = [JSON, SPOKEN]
    if packs and len(answer) >= LEAST_PACKED:
        answer = gzip.compress(answer, 1, mtime=0)
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", str(len(answer)).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def _offered(running: RunningAds) -> list[EpochHead]:
    """The epoch whose menus are bid on, if there is one."""
    now = running.clock()
    return [head for head in running.keeper.heads() if head.opens <= now < head.closes][-1:]


def openrtb_part(running: RunningAds) -> AppPart:
    """Bids and notices, where the settings have a table [openrtb]."""
    settings = running.settings.openrtb
    if settings is None:
        return AppPart()
    running.api.describe("POST", PATH, BID)
    for method, operation in NOTICE.items():
        running.api.describe(method, f"{NOTICE_PATH}/{{token}}", operation)
    key, store = NoticeKey.derive(running.settings.secrets["sealing"]), SqlNoticeStore(running.store.database)
    shelf = AdShelf(running.campaigns, running.clock, settings.contexts.cattax)
    desk, pace = NoticeDesk(running.server, store), running.settings.pace
    spent = SpentMenus(desk, running.store.database, lambda: _offered(running))
    bidder = Bidder(
        settings, running.board, shelf, key,
        clock=running.clock, draw=running.entropy.bytes, is_spent=spent.__contains__,
    )  # fmt: skip
    endpoint = BidEndpoint(settings, bidder, failures_per_address=running.limits.failures_per_address)
    intake = NoticeIntake(desk, key, running.clock, wait_ms=pace.commit_wait_ms, most=pace.commit_most)
    send = running.send_report
    if send is None:
        other = running.settings.other
        client = open_client(other.trust, pace.timeout_seconds)
        send = HttpAdChannel(client, other.url, entropy=running.entropy, attempts=1).report
    return AppPart(
        routes=[
            Route(PATH, endpoint, methods=["POST"]),
            Route(f"{PATH}/{{key}}", endpoint, methods=["POST"]),
            *intake.routes(),
        ],
        works=lambda: [intake.batcher, LookTask(spent.look, SPENT_SECONDS)],
        owned_works=lambda: [
            NoticeReporter(
                store,
                send,
                clock=running.clock,
                every_seconds=pace.look_every_ms / 1000,
                note_lost=intake.lost.inc,
            )
        ],
        looks=[look_at_notices(store)],
        meters=[endpoint.answered, intake.taken, intake.lost],
    )
