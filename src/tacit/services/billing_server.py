"""The ad server's routes: offers and batches from the proxy; status, rotation, budgets, invoices for operators.

    POST /billing/offers       a device's sealed request -> an answer that only it reads (signed by the proxy)
    POST /billing/batches      shuffled reports -> a receipt (signed by the proxy)
    GET  /billing/status       epochs, campaigns, what was charged (signed by the operator)
    POST /billing/rotate       an epoch with new keys and menus, from now on (signed by the operator)
    POST /billing/campaigns    {"campaign": 7, "budget_micros": 1000000}, or null: no limit (by the operator)
    POST /billing/invoices     close one per advertiser, with every charge that is on none (by the operator)

Tokens are signed by threads of their own, which do nothing else: RSA runs without Python's lock, so that they
use as many processors as they are many, and a flood of requests holds up no batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit import expect
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import malformed_if_refused, refuse_malformed
from tacit.bill.protocol.menus import MOST_MICROS
from tacit.bill.protocol.offers import LONGEST_REQUEST, pack_messages, unpack_messages
from tacit.bill.server.party import AdServer
from tacit.bill.server.store import AdStore, Campaign, Invoice
from tacit.deliver.campaigns.store import OPERATOR, Author, CampaignStore
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json
from tacit.services.background import AppPart, BackgroundTask, HealthCheck
from tacit.services.endpoints import Clock, signed_endpoint
from tacit.services.epochs import EpochKeeper
from tacit.services.http_clients import LinkFailed
from tacit.services.problems import OtherPartyUnreachable
from tacit.services.signatures import RequestGate

OCTETS = "application/octet-stream"


class SigningWorkers:
    """Threads that sign tokens, as a background task: they end with the service."""

    def __init__(self, server: AdServer, count: int) -> None:
        self._server, self._count, self._pool = server, count, ThreadPoolExecutor(count, "tokens")
        self._ended = asyncio.Event()

    async def answer(self, requests: list[bytes], now: int) -> list[bytes]:
        """Answers in the order of the requests, of which every worker gets a share."""
        loop, share = asyncio.get_running_loop(), -(-len(requests) // self._count) or 1
        shares = [requests[at : at + share] for at in range(0, len(requests), share)]
        done = (loop.run_in_executor(self._pool, self._server.offers, each, now) for each in shares)
        return [answer for answers in await asyncio.gather(*done) for answer in answers]

    async def run(self) -> None:
        await self._ended.wait()

    def end(self) -> None:
        self._pool.shutdown(wait=False)
        self._server.end()
        self._ended.set()


def ad_server_part(
    server: AdServer,
    store: AdStore,
    keeper: EpochKeeper,
    proxy_gate: RequestGate,
    operator_gate: RequestGate,
    *,
    signing_workers: int,
    clock: Clock,
    watched: Mapping[str, HealthCheck],
    note_receipt: Callable[[bytes], None] = lambda _receipt: None,
    campaigns: CampaignStore | None = None,
) -> AppPart:
    """What the ad server adds to the server's app; receipts are told to whoever counts them. Budgets of what
    stands in `campaigns` are changed there, so that its trail has them."""
    workers = SigningWorkers(server, signing_workers)
    one_at_a_time = asyncio.Lock()  # a batch that is sent again finds its receipt, and not its twin at work

    def route(
        path: str, method: str, gate: RequestGate, decide: Callable[[Request, bytes], Awaitable[Response]]
    ) -> Route:
        return Route(f"/billing/{path}", signed_endpoint(gate, clock, decide), methods=[method])

    async def offer(_request: Request, body: bytes) -> Response:
        requests = unpack_messages(body, longest=LONGEST_REQUEST)
        return Response(pack_messages(await workers.answer(requests, clock())), media_type=OCTETS)

    async def redeem(_request: Request, body: bytes) -> Response:
        async with one_at_a_time:
            receipt = await asyncio.to_thread(server.redeem, body)
        note_receipt(receipt)
        return Response(receipt, media_type=OCTETS)

    def works() -> list[BackgroundTask]:
        return [workers, keeper.following()]

    return AppPart(
        routes=[
            route("offers", "POST", proxy_gate, offer),
            route("batches", "POST", proxy_gate, redeem),
            route("status", "GET", operator_gate, partial(_status, store, keeper)),
            route("rotate", "POST", operator_gate, partial(_rotate, keeper)),
            route("campaigns", "POST", operator_gate, partial(_budget, store, campaigns, clock)),
            route("invoices", "POST", operator_gate, partial(_close, store, clock)),
        ],
        works=works,
        owned_works=lambda: [keeper.opening()],
        checks={
            "billing_store": lambda: store.receipt(bytes(16)) is None,
            "epoch": keeper.is_well,
            **watched,
        },
        needed={"epoch": keeper.is_offering},
    )


async def _status(store: AdStore, keeper: EpochKeeper, _request: Request, _body: bytes) -> Response:
    return JSONResponse(await asyncio.to_thread(_status_record, store, keeper))


def _status_record(store: AdStore, keeper: EpochKeeper) -> dict[str, Any]:
    held, totals = store.held_micros(), store.totals()
    return {
        "epochs": [_epoch_record(head) for head in keeper.heads()],
        "campaigns": [_campaign_record(each, held) for each in store.campaigns()],
        "impressions": sum(line.impressions for line in totals),
        "charged_micros": sum(line.total_micros for line in totals),
        "invoices": len(store.invoices()),
    }


def _epoch_record(head: EpochHead) -> dict[str, int]:
    return {name: getattr(head, name) for name in ("epoch", "opens", "closes", "expires", "menus")}


def _campaign_record(campaign: Campaign, held: dict[int, int]) -> dict[str, Any]:
    return {
        "campaign": campaign.campaign,
        "advertiser": campaign.advertiser,
        "budget_micros": campaign.budget_micros,
        "charged_micros": campaign.charged_micros,
        "held_micros": held.get(campaign.campaign, 0),
    }


async def _rotate(keeper: EpochKeeper, _request: Request, _body: bytes) -> Response:
    try:
        with malformed_if_refused():  # of a market that cannot be read
            head = await asyncio.to_thread(keeper.rotate)
    except OSError as problem:
        said = str(problem) if isinstance(problem, LinkFailed) else type(problem).__name__
        raise OtherPartyUnreachable(f"the proxy does not countersign it ({said}): ask again") from None
    return JSONResponse(_epoch_record(head), 201)


async def _budget(
    store: AdStore, campaigns: CampaignStore | None, clock: Clock, _request: Request, body: bytes
) -> Response:
    number, budget = _read_budget(body)

    def put() -> dict[str, Any]:
        # One write: a second could undo what an advertiser changes between the two, and no trail would tell.
        if campaigns is None or not campaigns.set_budget(number, budget, Author(OPERATOR, clock())):
            _put_budget(store, number, budget)
        after = {each.campaign: each for each in store.campaigns()}[number]
        return _campaign_record(after, store.held_micros())

    return JSONResponse(await asyncio.to_thread(put))


def _read_budget(body: bytes) -> tuple[int, int | None]:
    try:
        record = parse_json(body)
        number, budget = record["campaign"], record["budget_micros"]
        if len(record) != 2:
            refuse_malformed("expected campaign and budget_micros, and nothing else")
    except RECORD_FAULTS:
        refuse_malformed('expected {"campaign": NUMBER, "budget_micros": MICROS or null}')
    with malformed_if_refused():
        expect.whole("campaign", number, at_least=0)
        if budget is not None and expect.whole("budget_micros", budget, at_least=0) > MOST_MICROS:
            refuse_malformed("expected budget_micros <= 2^53")
    return number, budget


def _put_budget(store: AdStore, number: int, budget: int | None) -> None:
    before = {each.campaign: each for each in store.campaigns()}.get(number)
    if before is None:
        refuse_malformed(f"expected a campaign of the market, got {number}")
    store.put_campaigns([Campaign(number, before.advertiser, budget)])


async def _close(store: AdStore, clock: Clock, _request: Request, _body: bytes) -> Response:
    invoices = await asyncio.to_thread(store.close_invoices, clock())
    return JSONResponse([invoice_record(each) for each in invoices], 201)


def invoice_record(invoice: Invoice) -> dict[str, Any]:
    """An invoice for machines: what is owed, by whom, and for what."""
    return {
        "number": invoice.number,
        "advertiser": invoice.advertiser,
        "closed_at": invoice.closed_at,
        "impressions": invoice.impressions,
        "total_micros": invoice.total_micros,
        "lines": [
            {
                "campaign": line.campaign,
                "menu": line.menu_id.hex(),
                "index": line.index,
                "price_micros": line.price_micros,
                "impressions": line.impressions,
                "total_micros": line.total_micros,
            }
            for line in invoice.lines
        ],
    }
