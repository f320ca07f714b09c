"""Billing notices: each bid is charged once, at its menu's price, whatever comes again or dies between."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.notices import BidNotice, KeptNotice, NoticeDesk, NoticeKey
from tacit.bill.server.store import GrantedTokens
from tacit.bill.server.token_counter import ReservedTokens
from tacit.deliver.server.pacing import PacingSettings
from tacit.errors import BillError, BillRefused
from tacit.services.ads.notices import NoticeReporter
from tacit.services.ads.openrtb_messages import NoBid
from tacit.store.notices import SqlNoticeStore
from tests.support.billing_services import HERE
from tests.support.openrtb_samples import WEB, ExchangeWorld, sample

NOTICE = BidNotice(7, b"m" * 32, 1, 1_800_000_000, b"n" * 16)
KEY = NoticeKey.derive(b"s" * 32)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ExchangeWorld]:
    made = ExchangeWorld(tmp_path)
    try:
        yield made
    finally:
        made.end()


def addresses(world: ExchangeWorld, count: int) -> list[str]:
    return [world.bids(WEB)[0]["burl"] for _ in range(count)]


def test_a_key_knows_its_own_notices_and_no_others() -> None:
    spelled = KEY.sign(NOTICE)
    assert KEY.open(spelled) == NOTICE
    whole = base64.urlsafe_b64decode(spelled + "=" * (-len(spelled) % 4))
    changed = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    forged = [base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in changed]
    forged += [
        "",
        "x",
        spelled[:-1],
        spelled + "A",
        spelled + "=",
        spelled[:-1] + "é",
        NoticeKey(b"x").sign(NOTICE),
    ]
    for each in forged:
        with pytest.raises(BillRefused) as caught:
            KEY.open(each)
        assert caught.value.reason is BillVerdict.FORGED


def test_notices_are_charged_once_each_at_the_menus_price(world: ExchangeWorld) -> None:
    told = addresses(world, 5)
    for address in told[:4]:
        assert world.notify(address, more="?price=0.000001&cur=EUR") == 204  # whatever macros say
    for address in told[:3]:
        assert world.notify(address, "POST") == 204  # and again
    assert world.client.head(told[4].replace("127.0.0.1:8472", "server.test")).status_code == 204
    waiting = SqlNoticeStore(world.ads.database)
    world.wait_until(lambda: waiting.count_waiting() == 0)
    world.bill(4)
    assert world.charged_micros() == 4 * 9_800
    assert world.notify(told[0]) == 204
    (invoice,) = world.ads.close_invoices(world.now)
    assert (invoice.advertiser, invoice.total_micros) == ("Bean & Leaf", 4 * 9_800)


def test_a_notice_that_was_forgotten_is_not_charged_again(world: ExchangeWorld) -> None:
    """By a clock that was days ahead, and is set right."""
    (told,) = addresses(world, 1)
    store = SqlNoticeStore(world.ads.database)
    assert world.notify(told) == 204
    world.wait_until(lambda: store.count_waiting() == 0)
    assert store.forget(world.now + 2 * 86_400) == 1
    assert world.notify(told) == 204
    world.wait_until(lambda: store.count_waiting() == 0)
    world.bill(1)
    assert store.forget(world.now + 2 * 86_400) == 1
    assert world.notify(told) == 204, "also once it was charged"
    world.wait_until(lambda: store.count_waiting() == 0)
    world.bill(1)
    assert world.charged_micros() == 9_800


def test_late_forged_and_test_notices_charge_nobody(world: ExchangeWorld) -> None:
    (late,) = addresses(world, 1)
    (bid,) = world.bids(sample(test=1))
    assert world.notify(bid["burl"]) == 204
    assert world.notify(late[:-1] + ("A" if late[-1] != "A" else "B")) == 404
    assert world.notify("http://127.0.0.1:8472/openrtb/notice/x") == 404
    world.now += 3_600
    assert world.notify(late) == 410
    assert world.notify(bid["burl"]) == 410
    assert not SqlNoticeStore(world.ads.database).known({KEY.open(KEY.sign(NOTICE)).nonce})
    assert world.impressions() == 0


class Died(OSError):
    """The process ended here."""


class DyingStore(SqlNoticeStore):
    """Dies before or after it wrote, as often as it is told to."""

    before = after = 0

    def add(self, notices: Sequence[KeptNotice]) -> None:
        if self.before:
            self.before -= 1
            raise Died
        super().add(notices)
        if self.after:
            self.after -= 1
            raise Died

    def mark_delivered(self, nonces: Sequence[bytes]) -> None:  # noqa: ARG002
        raise BillError("the process ended here")


def test_whatever_dies_between_writes_a_bid_is_charged_once(world: ExchangeWorld) -> None:
    key = NoticeKey.derive(world.running.settings.secrets["sealing"])
    notices = [key.open(address.rpartition("/")[2]) for address in addresses(world, 3)]
    dying = DyingStore(world.ads.database)
    desk = NoticeDesk(world.server, dying)
    for place, point in enumerate(("before", "after")):
        setattr(dying, point, 1)
        with pytest.raises(Died):
            desk.take(notices, world.now)
        assert len(dying.known({each.nonce for each in notices})) == (0 if place == 0 else 3)
    assert desk.take(notices, world.now) == [BillVerdict.DUPLICATE] * 3
    sent = {each.report for each in dying.waiting(10)}

    def lose_answer(report: bytes) -> None:
        world.send_report(report)
        raise Died

    # The proxy has them, and the answer is lost; then what it answered is not written down; then all is well.
    NoticeReporter(dying, lose_answer, clock=lambda: world.now, every_seconds=1).look()
    NoticeReporter(dying, world.send_report, clock=lambda: world.now, every_seconds=1).look()
    assert {each.report for each in dying.waiting(10)} <= sent
    world.start_server()  # what waited goes on
    world.wait_until(lambda: SqlNoticeStore(world.ads.database).count_waiting() == 0)
    world.bill(3)
    assert world.charged_micros() == 3 * 9_800


def test_a_proxy_that_is_away_gets_them_later(world: ExchangeWorld) -> None:
    told = addresses(world, 3)
    world.stop("proxy.test")
    for address in told:
        assert world.notify(address) == 204
    assert SqlNoticeStore(world.ads.database).count_waiting() == 3
    world.start_proxy()
    world.start_server()
    world.wait_until(lambda: SqlNoticeStore(world.ads.database).count_waiting() == 0)
    world.bill(3)


def test_a_report_that_the_proxy_refuses_for_good_is_counted(world: ExchangeWorld) -> None:
    (told,) = addresses(world, 1)
    world.stop("proxy.test")
    assert world.notify(told) == 204
    world.stop("server.test")
    store, lost = SqlNoticeStore(world.ads.database), list[int]()

    def refuse(_report: bytes) -> None:
        raise BillRefused(BillVerdict.EXPIRED)

    def busy(_report: bytes) -> None:
        raise BillError("come again")

    for send, left, counted in ((busy, 1, []), (refuse, 0, [1]), (refuse, 0, [1])):
        NoticeReporter(store, send, clock=lambda: world.now, every_seconds=1, note_lost=lost.append).look()
        assert (store.count_waiting(), lost) == (left, counted)


class FewTokens:
    """Two tokens of a menu may be signed, and no more."""

    def reserve_tokens(self, wanted: Mapping[bytes, int]) -> Mapping[bytes, GrantedTokens]:
        return dict.fromkeys(wanted, GrantedTokens(2, 0))


def test_no_more_are_taken_of_a_menu_than_it_has_tokens_for(world: ExchangeWorld) -> None:
    told = addresses(world, 4)
    world.server._tokens = ReservedTokens(FewTokens())
    assert [world.notify(each) for each in told] == [204, 204, 404, 404]
    assert world.no_bid(WEB) == NoBid.LIMIT_REACHED
    world.server._tokens = None


def test_a_menu_whose_tokens_devices_have_taken_is_not_bid_on(tmp_path: Path) -> None:
    """Before any notice of it was refused: nobody would be charged for what is won."""
    world = ExchangeWorld(tmp_path, pacing=PacingSettings(first_tokens=16, room=1))
    try:
        assert world.bids(WEB)
        for number in range(2):
            device = world.device(number, consent=False, prefetch=8)
            device.prefetch(HERE, world.now)
        world.wait_until(lambda: "nbr" in world.bid(WEB).json())
        assert world.no_bid(WEB) == NoBid.LIMIT_REACHED
    finally:
        world.end()
