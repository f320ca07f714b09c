"""The proxy's routes of billing: what devices that show ads ask for and hand in; the ad server's directories.

    GET  /billing/head                       the head of the epoch that is open, signed by both parties
    POST /billing/offers                     a sealed request, handed on to the ad server, and its answer
    PUT  /billing/reports/{nonce}            one impression, 434 bytes; on disk once it is answered (201)
    GET  /billing/reports/{nonce}            among how many it left, signed; 204 until that is known
    GET  /billing/packs/{menu}               all ads of a menu, as the ad server signed them
    GET  /billing/epochs/{epoch}/cohorts     how many reports of each batch were accepted, signed: for devices
    GET  /billing/epochs/{epoch}/batches     statements of all batches of an epoch, one after the other: for
    GET  /billing/epochs/{epoch}/receipts    auditors, as are the receipts that the ad server signed for them
    POST /billing/directories                an epoch to countersign (signed by the ad server) -> its head

What devices call may be called by pages of any origin: all but what is for auditors and for the ad server.

A request is handed on as it came: no address, no header, nothing of the connection; those that arrive together
in one message, which costs the ad server less. Reports that arrive together are checked and stored together. As
in gathering, an address is written down nowhere; it is in memory for a minute where offers per address are
limited, and, of a demonstration's last messages, where it shows what the proxy saw (`page.seen`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.bill.protocol.encoding import BillVerdict, refuse_malformed
from tacit.bill.protocol.offers import LONGEST_REQUEST, MOST_RELAYED
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport
from tacit.bill.protocol.tokens import NONCE_BYTES
from tacit.bill.proxy.party import BillingProxy
from tacit.bill.proxy.store import BillingProxyStore
from tacit.deliver.protocol.packs import check_pack
from tacit.errors import BillRefused, Refused
from tacit.services.any_origin import page_routes
from tacit.services.background import AppPart, BackgroundTask, HealthCheck
from tacit.services.billing_server import OCTETS
from tacit.services.connection_limits import networks_of
from tacit.services.endpoints import (
    Clock,
    LruCache,
    QuotaUse,
    UploadQuota,
    menu_id_of,
    read_body,
    signed_endpoint,
    stream_in_pieces,
)
from tacit.services.http_clients import LinkFailed
from tacit.services.problems import OtherPartyUnreachable, ServiceBusy, TooManyOffers
from tacit.services.proxy_intake import Batcher
from tacit.services.settings import ServicePace
from tacit.services.signatures import RequestGate

RELAY_SECONDS = 0.002  # for which a request waits for others to be handed on with it
MOST_WAITING = 4 * MOST_RELAYED
PACK_SECONDS = 60  # for which a pack is handed on
MOST_PACK_BYTES = 64 * 2**20  # of packs that are kept
MOST_PACKS_ASKED = 64  # at once
MOST_ADDRESSES = 1_000_000
WINDOW_SECONDS = 60
BEGINNING_SECONDS = 60  # in which an epoch may still be missing


class OfferLink(Protocol):
    """The way to the ad server for devices' requests; OSError where it does not answer."""

    def offers(self, requests: Sequence[bytes]) -> list[bytes]:
        """The answers in the same order; empty where a request cannot be opened."""

    def pack(self, menu_id: bytes) -> bytes:
        """All ads of a menu, signed; BillRefused where there is none."""


class AddressLimit:
    """How many offers an address (of IPv6: one /64) may ask for in a minute; 0: as many as it likes."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most, self._clock = most, clock
        self._window, self._counts = -1, dict[str, int]()

    def count(self, peer: object) -> None:
        """One more; TooManyOffers where that is one too many."""
        if not self._most:
            return
        window, left = divmod(self._clock(), WINDOW_SECONDS)
        if window != self._window or len(self._counts) > MOST_ADDRESSES:
            self._window, self._counts = window, {}
        address = "".join(networks_of(peer)[-1:])
        self._counts[address] = self._counts.get(address, 0) + 1
        if self._counts[address] > self._most:
            raise TooManyOffers(WINDOW_SECONDS - left)


class OfferRelay:
    """Hands sealed requests on: while some are at the ad server, the next ones gather."""

    def __init__(self, link: OfferLink) -> None:
        self.batcher: Batcher[bytes, bytes] = Batcher(
            link.offers, wait_seconds=RELAY_SECONDS, most=MOST_RELAYED
        )
        self._under_way = 0
        self.pack = link.pack

    async def offer(self, sealed: bytes) -> bytes:
        if self._under_way >= MOST_WAITING:
            raise ServiceBusy
        self._under_way += 1
        try:
            answer = await self.batcher.submit(sealed)
        except OSError as problem:
            raise _unreachable(problem) from None
        finally:
            self._under_way -= 1
        if not answer:
            raise BillRefused(BillVerdict.UNOPENABLE)
        return answer


class PackRelay:
    """Packs of menus, asked for once a minute for all devices together, and checked: what the ad server did not
    sign goes no further."""

    def __init__(self, fetch: Callable[[bytes], bytes], proxy: BillingProxy, clock: Clock) -> None:
        self._fetch, self._proxy, self._clock = fetch, proxy, clock
        self._kept: LruCache[bytes, tuple[int, bytes]] = LruCache(MOST_PACK_BYTES, lambda each: len(each[1]))
        self._asked: dict[bytes, asyncio.Task[bytes]] = {}

    async def pack(self, menu_id: bytes) -> bytes:
        """A menu's pack; BillRefused for a menu that was never countersigned here."""
        found = self._kept.get(menu_id)
        if found is not None and 0 <= self._clock() - found[0] < PACK_SECONDS:
            return found[1]
        if menu_id not in self._asked:
            if len(self._asked) >= MOST_PACKS_ASKED:
                raise ServiceBusy
            self._asked[menu_id] = asyncio.create_task(asyncio.to_thread(self._ask, menu_id))
            self._asked[menu_id].add_done_callback(lambda _: self._asked.pop(menu_id))
        try:
            return await asyncio.shield(self._asked[menu_id])
        except OSError as problem:
            if found is not None:
                return found[1]  # it was theirs a while ago
            raise _unreachable(problem) from None

    def _ask(self, menu_id: bytes) -> bytes:
        if not self._proxy.lists(menu_id):
            raise BillRefused(BillVerdict.UNKNOWN_MENU)
        now, pack = self._clock(), self._fetch(menu_id)
        try:
            check_pack(pack, self._proxy.server_public)
        except BillRefused:
            raise LinkFailed("expected a pack that it signed, got another") from None
        return self._kept.put(menu_id, (now, pack))[1]


class ProxyOnlooker(Protocol):
    """Told of what devices ask and hand in, and from which address: of all that the proxy learns, for a
    demonstration. It must not wait."""

    def head(self, address: str, answer: bytes) -> None: ...

    def request(self, address: str, sealed: bytes, answer: bytes) -> None: ...

    def report(self, address: str, report: bytes, verdict: BillVerdict) -> None: ...

    def pack(self, address: str, menu_id: bytes, answer: bytes) -> None: ...

    def statement(self, address: str, nonce: bytes, answer: bytes) -> None: ...

    def sizes(self, address: str, epoch: int, answer: bytes) -> None: ...


class ReportIntake:
    """Reports as they come: checked, stored in groups, answered; and the head that devices ask for."""

    def __init__(
        self,
        proxy: BillingProxy,
        store: BillingProxyStore,
        *,
        clock: Clock,
        pace: ServicePace,
        onlooker: ProxyOnlooker | None = None,
    ) -> None:
        self.proxy, self.quota, self.onlooker = proxy, UploadQuota(pace.held_bytes_most), onlooker
        self._store, self._clock, self._began = store, clock, clock()
        self._head: tuple[int, bytes] | None = None  # the second at which it was looked up
        self.batcher: Batcher[bytes, BillVerdict] = Batcher(
            self._take, wait_seconds=pace.commit_wait_ms / 1000, most=pace.commit_most
        )

    def _take(self, reports: Sequence[bytes]) -> Sequence[BillVerdict]:
        verdicts = self.proxy.take(reports, self._clock())
        for place, verdict in enumerate(verdicts):
            # One that came in time once before: a device whose answer got lost is told of its report.
            if verdict is BillVerdict.EXPIRED and self._is_known(reports[place]):
                verdicts[place] = BillVerdict.ACCEPTED
        return verdicts

    def _is_known(self, report: bytes) -> bool:
        return self._store.has_report(ImpressionReport.from_bytes(report).nonce, report)

    def countersign(self, directory: bytes) -> bytes:
        head = self.proxy.countersign(directory, self._clock())
        self._head = None
        return head

    def head(self) -> bytes:
        """Looked up at most once per second."""
        now, known = self._clock(), self._head
        if known is None or known[0] != now:
            known = self._head = now, self.proxy.head(now).to_bytes()
        return known[1]

    def cohorts(self, epoch: int) -> bytes:
        return b"".join(each.to_bytes() for each in self.proxy.cohorts(epoch))

    def statements(self, epoch: int) -> bytes:
        return b"".join(each.to_bytes() for each in self.proxy.statements(epoch))

    def receipts(self, epoch: int) -> bytes:
        """Each behind its length, in 4 bytes."""
        return b"".join(len(each).to_bytes(4, "big") + each for each in self.proxy.receipts(epoch))

    def is_open(self) -> bool:
        """Whether an epoch is open: no directory is without menus."""
        return self._store.current_head(self._clock()) is not None

    def is_well(self) -> bool:
        """Whether an epoch is open, or we have only just begun."""
        return self.is_open() or 0 <= self._clock() - self._began < BEGINNING_SECONDS


def billing_proxy_part(
    intake: ReportIntake,
    store: BillingProxyStore,
    relay: OfferRelay,
    gate: RequestGate,
    limit: AddressLimit,
    drivers: Callable[[], Sequence[BackgroundTask]],
    *,
    clock: Clock,
    watched: Mapping[str, HealthCheck],
) -> AppPart:
    """What billing adds to the proxy's app; `drivers` deliver batches and forget what is old,
    in one process at a time."""

    async def countersign(_request: Request, body: bytes) -> Response:
        return Response(await asyncio.to_thread(intake.countersign, body), 201, media_type=OCTETS)

    packs = PackRelay(relay.pack, intake.proxy, clock)

    def works() -> list[BackgroundTask]:
        return [intake.batcher, relay.batcher]

    return AppPart(
        routes=[
            *page_routes("/billing/head", GET=partial(_head, intake)),
            *page_routes("/billing/offers", POST=partial(_offer, intake, relay, limit)),
            *page_routes("/billing/packs/{menu}", GET=partial(_pack, intake, packs)),
            *page_routes(
                "/billing/reports/{nonce}", PUT=partial(_put, intake), GET=partial(_statement, intake)
            ),
            *page_routes("/billing/epochs/{epoch}/cohorts", GET=partial(_cohorts, intake)),
            *(
                Route(f"/billing/epochs/{{epoch}}/{name}", partial(_of_epoch, read), methods=["GET"])
                for name, read in (("batches", intake.statements), ("receipts", intake.receipts))
            ),
            Route("/billing/directories", signed_endpoint(gate, clock, countersign), methods=["POST"]),
        ],
        works=works,
        owned_works=drivers,
        checks={
            "billing_store": lambda: not store.statement_for(bytes(NONCE_BYTES))[0],
            "epoch": intake.is_well,
            **watched,
        },
        needed={"epoch": intake.is_open},
    )


async def _head(intake: ReportIntake, request: Request) -> Response:
    found = await asyncio.to_thread(intake.head)
    if intake.onlooker is not None:
        intake.onlooker.head(_address(request), found)
    return Response(found, media_type=OCTETS)


async def _offer(intake: ReportIntake, relay: OfferRelay, limit: AddressLimit, request: Request) -> Response:
    limit.count(request.client)
    with intake.quota.reserve() as held:
        sealed = await _read_bounded(request, LONGEST_REQUEST, held)
        answer = await relay.offer(sealed)
        if intake.onlooker is not None:
            intake.onlooker.request(_address(request), sealed, answer)
        return Response(answer, media_type=OCTETS)


async def _pack(intake: ReportIntake, packs: PackRelay, request: Request) -> Response:
    menu_id = menu_id_of(request.path_params["menu"])
    found = await packs.pack(menu_id)
    if intake.onlooker is not None:
        intake.onlooker.pack(_address(request), menu_id, found)
    kept = {"cache-control": f"public, max-age={PACK_SECONDS}"}
    return stream_in_pieces(Response(found, headers=kept, media_type="application/json"))


async def _put(intake: ReportIntake, request: Request) -> Response:
    nonce = _nonce(request)
    with intake.quota.reserve() as held:
        body = await _read_bounded(request, REPORT_BYTES, held)
        if ImpressionReport.from_bytes(body).nonce != nonce:  # what is no report never waits
            refuse_malformed("expected the report that its path names")
        verdict = await intake.batcher.submit(body)
    if intake.onlooker is not None:
        intake.onlooker.report(_address(request), body, verdict)
    if verdict is not BillVerdict.ACCEPTED:
        raise BillRefused(verdict)
    return Response(status_code=201)


async def _statement(intake: ReportIntake, request: Request) -> Response:
    nonce = _nonce(request)
    found = await asyncio.to_thread(intake.proxy.statement_for, nonce)
    answer = b"" if found is None else found.to_bytes()
    if intake.onlooker is not None:
        intake.onlooker.statement(_address(request), nonce, answer)
    return Response(answer, media_type=OCTETS) if answer else Response(status_code=204)


async def _cohorts(intake: ReportIntake, request: Request) -> Response:
    epoch = _epoch(request)
    found = await asyncio.to_thread(intake.cohorts, epoch)
    if intake.onlooker is not None:
        intake.onlooker.sizes(_address(request), epoch, found)
    return stream_in_pieces(Response(found, media_type=OCTETS))


async def _of_epoch(read: Callable[[int], bytes], request: Request) -> Response:
    found = await asyncio.to_thread(read, _epoch(request))
    return stream_in_pieces(Response(found, media_type=OCTETS))


def _epoch(request: Request) -> int:
    spelled = request.path_params["epoch"]
    if not (spelled.isascii() and spelled.isdecimal() and len(spelled) <= 10 and int(spelled) < 2**32):
        refuse_malformed("expected the number of an epoch in the path")
    return int(spelled)


def _address(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _unreachable(problem: OSError) -> OtherPartyUnreachable:
    said = str(problem) if isinstance(problem, LinkFailed) else type(problem).__name__
    return OtherPartyUnreachable(f"the ad server does not answer ({said}): ask again")


async def _read_bounded(request: Request, most: int, held: QuotaUse) -> bytes:
    try:
        return await read_body(request, most, held)
    except Refused:
        raise BillRefused(BillVerdict.OVERSIZED) from None


def _nonce(request: Request) -> bytes:
    spelled = request.path_params["nonce"]
    try:
        found = bytes.fromhex(spelled)
    except ValueError:
        found = b""
    if len(found) != NONCE_BYTES or found.hex() != spelled:
        refuse_malformed(f"expected a nonce of {2 * NONCE_BYTES} hexadecimal digits in the path")
    return found
