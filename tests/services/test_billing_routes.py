"""Billing over HTTP: impressions are charged once, at their price; bad input is refused in words, uncharged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tacit.bill.protocol.batches import BatchStatement, CohortStatement, Receipt
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import LONGEST_REQUEST, Offer, OfferRequest
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport
from tacit.bill.server.token_keys import TokenKey
from tacit.deliver.device.journal import ImpressionRecord, ImpressionState
from tacit.errors import BillRefused
from tacit.schema.contexts.hierarchy import Node
from tacit.services.http_clients import LinkFailed
from tacit.services.signatures import SIGNATURE, Party
from tests.support.billing_services import (
    EPOCH_SECONDS,
    HERE,
    PROXY_HOST,
    REPORT_SECONDS,
    SERVER_HOST,
    THERE,
    BillingWorld,
    a_billing_world,
    liking,
)
from tests.support.billing_worlds import a_token
from tests.support.service_worlds import OPERATOR, PAIR, PROXY_URL, SERVER_URL, honest

ANSWER_KEY = b"a" * 32


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BillingWorld]:
    with a_billing_world(tmp_path) as made:
        made.wait_for_epoch()
        yield made


def reason(work: Callable[[], object]) -> BillVerdict:
    with pytest.raises(BillRefused) as caught:
        work()
    return BillVerdict(caught.value.reason)


def report_of(world: BillingWorld, number: int = 1) -> bytes:
    """What a device would report: it was shown, and is not sent."""
    device = world.device(number)
    device.show(HERE, liking, world.now)
    return device.waiting_reports()[0].report


def put(world: BillingWorld, body: bytes, nonce: str | None = None) -> httpx.Response:
    spelled = body[33:65].hex() if nonce is None else nonce
    return world.client.put(f"{PROXY_URL}/billing/reports/{spelled}", content=body)


def test_impressions_are_charged_once_and_settled_by_signed_sizes(world: BillingWorld) -> None:
    devices = [world.device(number) for number in range(6)]
    shown = [
        device.show(HERE if place % 2 else THERE, liking, world.now) for place, device in enumerate(devices)
    ]
    for device in devices:
        assert device.send_reports(world.now).acked == 1
        assert device.settle(world.now).waiting == 1
    world.bill(6)
    charged = {(line.menu_id, line.index): (line.price_micros, line.impressions) for line in world.ads.totals()}
    for ad in shown:
        alike = sum((each.menu_id, each.index) == (ad.menu_id, ad.index) for each in shown)
        assert charged[ad.menu_id, ad.index] == (ad.price_micros, alike)
    for device in devices:
        assert device.settle(world.now).by_size == 1
    epoch = shown[0].epoch
    statements = [CohortStatement.from_bytes(each) for each in world.channel().statements(epoch)]
    assert sorted(each.reports for each in statements) == [3, 3]
    for each in statements:
        each.check(world.keys.proxy_signing)
    assert world.channel().statements(epoch + 1) == []
    invoices = world.operator().close_invoices()
    assert sum(each["total_micros"] for each in invoices) == sum(ad.price_micros for ad in shown)
    assert world.operator().close_invoices() == []


def test_the_same_report_again_is_answered_and_charged_once(world: BillingWorld) -> None:
    reports = [report_of(world, number) for number in range(3)]
    for _ in range(2):
        assert {put(world, report).status_code for report in reports} == {201}
    world.bill(3)
    assert {put(world, report).status_code for report in reports} == {201}
    world.now += EPOCH_SECONDS + REPORT_SECONDS
    # Too late for new ones; whose answer got lost learns that it was in time.
    assert {put(world, report).status_code for report in reports} == {201}
    world.start_proxy()
    world.start_server()
    world.wait_for_epoch()
    assert world.impressions() == 3


def test_a_request_is_handed_on_as_it_came_and_nothing_else(world: BillingWorld) -> None:
    """The ad server gets the sealed bytes, signed by the proxy: no header, no address of the device."""
    seen: list[httpx.Request] = []

    def watching(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        if request.url.host == SERVER_HOST:
            seen.append(request)
        return send(request)

    world.network.meddle = watching
    sealed = OfferRequest(
        EpochHead.from_bytes(world.channel().head()).epoch, Lane.PERSONAL, Node((1, 1), ("North", "Food")), (),
        ANSWER_KEY,
    ).sealed_to(world.keys.server_sealing)  # fmt: skip
    marked = {"user-agent": "somebody", "x-forwarded-for": "203.0.113.9", "cookie": "mark", "via": "mark"}
    answer = world.client.post(f"{PROXY_URL}/billing/offers", content=sealed, headers=marked)
    assert answer.status_code == 200
    assert Offer.decrypted(answer.content, ANSWER_KEY).listed is not None
    [handed] = seen
    assert sealed in handed.read()
    said = str(sorted(handed.headers.items()))
    assert not [mark for mark in marked.values() if mark in said]
    tacit = {"tacit-time", "tacit-nonce", "tacit-digest", "tacit-signature"}
    usual = {"host", "accept", "accept-encoding", "connection", "user-agent", "content-length"}
    assert set(handed.headers) <= tacit | usual


def test_what_a_device_asks_for_is_refused_so_that_only_it_knows_why(world: BillingWorld) -> None:
    epoch = EpochHead.from_bytes(world.channel().head()).epoch
    known, unknown = Node((1, 1), ("North", "Food")), Node((1, 1), ("West", "Food"))
    answers = {}
    for name, asked in {
        "known": (epoch, known), "unknown": (epoch, unknown), "stale": (epoch - 1, known),
        "early": (epoch + 1, known),
    }.items():  # fmt: skip
        sealed = OfferRequest(asked[0], Lane.PERSONAL, asked[1], (), ANSWER_KEY).sealed_to(
            world.keys.server_sealing
        )
        answers[name] = world.client.post(f"{PROXY_URL}/billing/offers", content=sealed)
    assert {answer.status_code for answer in answers.values()} == {200}
    told = {name: answer.content for name, answer in answers.items() if name != "known"}
    reasons = {name: reason(partial(Offer.decrypted, body, ANSWER_KEY)) for name, body in told.items()}
    assert reasons == {
        "unknown": BillVerdict.UNKNOWN_CONTEXT, "stale": BillVerdict.STALE_EPOCH,
        "early": BillVerdict.STALE_EPOCH,
    }  # fmt: skip


def test_a_request_that_is_not_sealed_to_the_ad_server_is_refused(world: BillingWorld) -> None:
    request = OfferRequest(1, Lane.PERSONAL, Node((0,), ("x",)), (), ANSWER_KEY)
    for sealed in (request.sealed_to(world.keys.server_sealing)[:-1], b"", b"x" * 300):
        assert reason(partial(world.channel().offer, sealed)) in (
            BillVerdict.UNOPENABLE, BillVerdict.MALFORMED,
        )  # fmt: skip
    answer = world.client.post(f"{PROXY_URL}/billing/offers", content=bytes(LONGEST_REQUEST + 1))
    assert (answer.status_code, answer.json()["type"]) == (413, "tacit:bill-oversized")


@pytest.mark.parametrize("length", [0, 1, REPORT_BYTES - 1, REPORT_BYTES + 1, 10 * REPORT_BYTES])
def test_a_report_of_another_length_is_refused(world: BillingWorld, length: int) -> None:
    report = (report_of(world) * 10)[:length]
    answer = put(world, report, "00" * 32)
    assert answer.status_code == (413 if length > REPORT_BYTES else 400)
    assert answer.headers["content-type"] == "application/problem+json"
    assert world.reports.waiting() == []


def test_reports_that_are_none_are_refused_by_name_and_never_stored(world: BillingWorld) -> None:
    good = report_of(world)
    report = ImpressionReport.from_bytes(good)
    other_menu = world.device(2)
    elsewhere = other_menu.show(THERE, liking, world.now).menu_id
    bad = {
        "another version": (b"\x02" + good[1:], 400, "bill-malformed"),
        "an unknown menu": (good[:1] + b"m" * 32 + good[33:], 404, "bill-unknown-menu"),
        "a token of another menu": (good[:1] + elsewhere + good[33:], 403, "bill-forged"),
        "a changed token": (good[:65] + bytes([good[65] ^ 1]) + good[66:], 403, "bill-forged"),
        "a made-up token": (_made_up(report.menu_id, world), 403, "bill-forged"),
    }  # fmt: skip
    for name, (body, status, kind) in bad.items():
        answer = put(world, body)
        assert (answer.status_code, answer.json()["type"]) == (status, f"tacit:{kind}"), name
    for nonce in ("00" * 32, good[33:65].hex().upper(), "zz" * 32, "00" * 31):
        assert put(world, good, nonce).json()["type"] == "tacit:bill-malformed"
    assert world.reports.waiting() == []
    assert put(world, good).status_code == 201
    changed = good[:-1] + bytes([good[-1] ^ 1])  # another seal under a token that is spent
    assert put(world, changed).json()["type"] == "tacit:bill-conflict"
    assert [each.count for each in world.reports.waiting()] == [1]


def _made_up(menu_id: bytes, world: BillingWorld) -> bytes:
    """A report whose token somebody signed with a key of their own."""
    secret, key = b"k" * 32, EpochHead.from_bytes(world.channel().head()).sealing_key
    return ImpressionReport.make(
        menu_id, secret, a_token(menu_id, secret, TokenKey.generate()), 1, key
    ).to_bytes()


def chosen(world: BillingWorld, number: int) -> ImpressionRecord:
    """A token that was paid for, with what it takes to report anything."""
    device = world.device(number)
    device.choose(HERE, liking, world.now)
    [record] = device.journal.impressions((ImpressionState.CHOSEN,))
    return record


def test_reports_that_open_to_something_else_are_rejected_in_the_receipt_and_uncharged(
    world: BillingWorld,
) -> None:
    """The proxy cannot see it: sealed to another key, or another index than was committed to."""
    head = EpochHead.from_bytes(world.channel().head())
    good = [report_of(world, number) for number in range(2)]
    mine, other = chosen(world, 7), chosen(world, 8)
    foreign = ImpressionReport.make(mine.menu_id, mine.secret, mine.token, 1, world.keys.server_sealing)
    beyond = ImpressionReport.make(other.menu_id, other.secret, other.token, 99, head.sealing_key)
    for report in (*good, foreign.to_bytes(), beyond.to_bytes()):
        assert put(world, report).status_code == 201
    world.bill(2)
    world.wait_until(lambda: not world.reports.undelivered())
    assert world.impressions() == 2


def test_reports_are_taken_from_the_opening_of_an_epoch_until_it_expires(world: BillingWorld) -> None:
    report = report_of(world)
    opens = EpochHead.from_bytes(world.channel().head()).opens
    world.proxy_now = opens - 1
    assert put(world, report).json()["type"] == "tacit:bill-stale-epoch"
    world.proxy_now = opens + EPOCH_SECONDS + REPORT_SECONDS
    assert put(world, report).json()["type"] == "tacit:bill-expired"
    assert world.reports.waiting() == []
    world.proxy_now = opens + EPOCH_SECONDS + REPORT_SECONDS - 1
    assert put(world, report).status_code == 201
    world.proxy_now = None


def test_undersized_cohorts_are_released_when_their_epoch_expires(world: BillingWorld) -> None:
    device = world.device(1)
    price = device.show(HERE, liking, world.now).price_micros
    device.send_reports(world.now)
    world.now += EPOCH_SECONDS + REPORT_SECONDS
    world.bill(1)
    assert world.charged_micros() == price
    settled = device.settle(world.now)
    assert (settled.by_size, settled.in_full) == (0, 1), "a cohort of one hides nothing"


def test_statements_are_there_once_a_batch_is_formed(world: BillingWorld) -> None:
    reports = [report_of(world, number) for number in range(3)]
    nonces = [report[33:65] for report in reports]
    assert reason(lambda: world.channel().statement(nonces[0])) is BillVerdict.UNKNOWN_MENU
    for report in reports:
        put(world, report)
    assert world.channel().statement(nonces[0]) is None
    world.bill(3)
    statement = world.channel().statement(nonces[0])
    assert statement is not None
    assert CohortStatement.from_bytes(statement).reports == 3
    assert reason(lambda: world.channel().statements(2**32)) is BillVerdict.MALFORMED
    epoch = CohortStatement.from_bytes(statement).epoch
    batches, receipts = (
        world.client.get(f"{PROXY_URL}/billing/epochs/{epoch}/{kind}").content
        for kind in ("batches", "receipts")
    )
    assert BatchStatement.from_bytes(batches).reports == 3
    assert Receipt.from_bytes(receipts[4:]).charged == 3
    for path in ("epochs/-1/batches", "epochs/1e3/receipts", "epochs/x/cohorts", "reports/abc"):
        answer = world.client.get(f"{PROXY_URL}/billing/{path}")
        assert (answer.status_code, answer.json()["type"]) == (400, "tacit:bill-malformed")


def test_who_lacks_the_secret_is_refused_everywhere(world: BillingWorld) -> None:
    report = report_of(world)
    for url, method, path in [
        (SERVER_URL, "POST", "offers"), (SERVER_URL, "POST", "batches"), (SERVER_URL, "GET", "status"),
        (SERVER_URL, "POST", "rotate"), (SERVER_URL, "POST", "campaigns"), (SERVER_URL, "POST", "invoices"),
        (PROXY_URL, "POST", "directories"),
    ]:  # fmt: skip
        answer = world.client.request(method, f"{url}/billing/{path}", content=report)
        assert (answer.status_code, answer.json()["type"]) == (401, "tacit:unauthenticated"), path
        assert SIGNATURE not in answer.headers
    with pytest.raises(LinkFailed, match="compare the secrets"):
        world.operator(bytes(32)).rotate()
    # The operator's secret is not the proxy's, nor the other way round.
    with pytest.raises(LinkFailed, match="compare the secrets"):
        world.calls(Party.PROXY, Party.SERVER, OPERATOR).post("/billing/batches", report)
    with pytest.raises(LinkFailed, match="compare the secrets"):
        world.operator(PAIR).status()
    assert world.ads.last_epoch() == EpochHead.from_bytes(world.channel().head()).epoch


def test_a_batch_or_directory_of_somebody_else_is_refused_though_the_link_is_signed(
    world: BillingWorld,
) -> None:
    """Whoever stole the pair's secret still lacks the parties' signing keys."""
    for report in [report_of(world, number) for number in range(3)]:
        put(world, report)
    batches: list[bytes] = []

    def keeping(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        if request.url.path == "/billing/batches":
            batches.append(request.read())
        return send(request)

    world.network.meddle = keeping
    world.bill(3)
    world.network.meddle = honest
    [batch] = set(batches)
    forged = bytearray(batch)
    forged[1] ^= 1  # another batch id under the same signature
    calls = world.calls(Party.PROXY, Party.SERVER)
    assert reason(lambda: calls.post("/billing/batches", bytes(forged))) is BillVerdict.UNAUTHENTICATED
    assert reason(lambda: calls.post("/billing/batches", batch[:-1])) is BillVerdict.MALFORMED
    assert reason(lambda: calls.post("/billing/batches", b"")) is BillVerdict.MALFORMED
    assert calls.post("/billing/batches", batch), "the same again gets its receipt"
    stored = world.ads.epoch(EpochHead.from_bytes(world.channel().head()).epoch)
    assert stored is not None
    directory = bytearray(stored.directory)
    directory[30] ^= 1
    to_proxy = world.calls(Party.SERVER, Party.PROXY)
    refusal = reason(lambda: to_proxy.post("/billing/directories", bytes(directory)))
    assert refusal in (BillVerdict.UNAUTHENTICATED, BillVerdict.MALFORMED)
    assert world.impressions() == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "expected {"),
        (b"[]", "expected {"),
        (b'{"campaign": 1}', "expected {"),
        (b'{"campaign": 1, "budget_micros": -1}', "budget_micros"),
        (b'{"campaign": 1, "budget_micros": 1.5}', "budget_micros"),
        (b'{"campaign": 1, "budget_micros": 9007199254740993}', r"expected budget_micros <= 2\^53"),
        (b'{"campaign": "1", "budget_micros": 5}', "campaign"),
        (b'{"campaign": 9, "budget_micros": 5}', "expected a campaign of the market, got 9"),
        (b'{"campaign": 1, "budget_micros": 5, "advertiser": "me"}', "nothing else"),
    ],
)
def test_a_budget_that_is_none_is_refused_in_words(world: BillingWorld, body: bytes, words: str) -> None:
    before = world.ads.campaigns()
    with pytest.raises(BillRefused, match=words) as caught:
        world.calls(Party.OPERATOR, Party.SERVER, OPERATOR).post("/billing/campaigns", body)
    assert caught.value.reason is BillVerdict.MALFORMED
    assert world.ads.campaigns() == before


def test_where_the_ad_server_is_away_devices_are_told_to_come_again(world: BillingWorld) -> None:
    device = world.device(1)
    device.prefetch(HERE, world.now)
    world.stop(SERVER_HOST)
    with pytest.raises(LinkFailed):
        world.device(2).show(HERE, liking, world.now)
    answer = world.client.post(f"{PROXY_URL}/billing/offers", content=b"x" * 300)
    assert (answer.status_code, answer.json()["type"]) == (502, "tacit:other-unreachable")
    device.show(HERE, liking, world.now)  # a token that was fetched before is good
    assert device.send_reports(world.now).acked == 1
    world.start_server()
    world.wait_for_epoch()
    world.show(2, first=20)
    world.bill(3)


def test_where_the_proxy_is_away_reports_wait_at_the_device(world: BillingWorld) -> None:
    device = world.device(1)
    device.show(HERE, liking, world.now)
    world.stop(PROXY_HOST)
    assert device.send_reports(world.now).waiting == 1
    world.start_proxy()
    assert device.send_reports(world.now).acked == 1


def test_offers_per_address_are_limited_by_the_minute(tmp_path: Path) -> None:
    with a_billing_world(tmp_path, offers_per_address=3) as world:
        world.wait_for_epoch()
        answers = [world.client.post(f"{PROXY_URL}/billing/offers", content=b"x" * 300) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [422, 422, 422, 429, 429]
        assert answers[3].json()["type"] == "tacit:too-many-offers"
        assert answers[3].headers["retry-after"] == str(60 - world.now % 60)
        with pytest.raises(LinkFailed):
            world.device(1).show(HERE, liking, world.now)
        world.now += 60
        world.device(1).show(HERE, liking, world.now)


def test_without_consent_and_without_budget_the_public_lane_is_charged(world: BillingWorld) -> None:
    device = world.device(1, consent=False)
    ad = device.show(HERE, liking, world.now)
    assert (ad.lane, ad.epsilon_micros, ad.campaign) == (Lane.PUBLIC, 0, 1)
    device.send_reports(world.now)
    world.bill(1)
    assert world.charged_micros() == ad.price_micros == 9_800
