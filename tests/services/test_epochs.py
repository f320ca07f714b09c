"""Epochs are opened in time, one after the other; whatever fails is said once, and nothing is drawn twice."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.server.party import EpochTimes
from tacit.errors import BadInput, BillRefused
from tacit.services.epochs import covered_until, next_times
from tacit.services.http_clients import LinkFailed
from tests.support.billing_services import (
    EPOCH_SECONDS,
    HERE,
    MARKET,
    PROXY_HOST,
    REPORT_SECONDS,
    SERVER_HOST,
    START,
    BillingWorld,
    a_billing_world,
    liking,
)
from tests.support.service_worlds import honest

DAY = 86_400
FIRST = START // EPOCH_SECONDS


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BillingWorld]:
    with a_billing_world(tmp_path) as made:
        made.wait_for_epoch()
        yield made


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tacit.services")


def a_head(epoch: int, opens: int, closes: int) -> EpochHead:
    return EpochHead(epoch, opens, closes, closes, 1, bytes(32), bytes(32))


def current(world: BillingWorld) -> EpochHead:
    """What the proxy tells devices."""
    return EpochHead.from_bytes(world.channel().head())


def test_covered_until_follows_epochs_without_a_gap() -> None:
    heads = [a_head(1, 0, 10), a_head(2, 10, 20), a_head(3, 25, 30)]
    assert [covered_until(heads, now) for now in (0, 9, 10, 19, 20, 25, 30)] == [20, 20, 20, 20, 20, 30, 30]
    assert covered_until([], 5) == 5
    assert covered_until([a_head(1, 0, 10), a_head(2, 3, 30)], 5) == 30


@pytest.mark.parametrize("seconds", [1, 2, 19, 20])
def test_an_epoch_follows_when_half_of_one_is_left_and_lasts_at_least_half(seconds: int) -> None:
    for now, covered in itertools.product(range(100, 141), range(2 * seconds)):
        found = next_times(now + covered, now, seconds, 7)
        assert (found is None) == (covered > seconds // 2)
        if found is not None:
            assert found.closes % seconds == 0
            assert found.expires == found.closes + 7
            assert found.opens == (now + covered if covered else now - now % seconds)
            assert seconds / 2 <= found.closes - found.opens < 1.5 * seconds
            assert found.closes > now


def test_the_current_epoch_and_the_next_are_open_in_time(world: BillingWorld) -> None:
    head = current(world)
    assert (head.epoch, head.opens, head.closes) == (FIRST, START, START + EPOCH_SECONDS)
    assert head.expires == head.closes + REPORT_SECONDS
    assert [each.epoch for each in world.keeper.heads()] == [FIRST]
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: [each.epoch for each in world.keeper.heads()] == [FIRST, FIRST + 1])
    assert current(world).epoch == FIRST
    world.now = START + EPOCH_SECONDS
    assert current(world).epoch == FIRST + 1
    menus = world.server.load_epoch(FIRST).by_id.keys() & world.server.load_epoch(FIRST + 1).by_id.keys()
    assert not menus


def test_a_restart_goes_on_with_what_was_open(world: BillingWorld) -> None:
    before = current(world).to_bytes()
    device = world.device(1)
    shown = device.show(HERE, liking, world.now)
    world.start_server()
    world.start_proxy()
    world.wait_until(world.keeper.heads)
    assert [head.to_bytes() for head in world.keeper.heads()] == [before]
    assert current(world).to_bytes() == before
    assert world.ads.last_epoch() == FIRST
    assert device.send_reports(world.now).acked == 1
    again = world.device(2).show(HERE, liking, world.now)
    assert again.menu_id == shown.menu_id


def test_after_a_pause_of_epochs_the_number_is_the_grids_again(world: BillingWorld) -> None:
    world.stop(SERVER_HOST)
    world.now += 10 * EPOCH_SECONDS
    with pytest.raises(BillRefused) as caught:
        world.channel().head()
    assert caught.value.reason is BillVerdict.STALE_EPOCH
    world.start_server()
    world.wait_for_epoch()
    assert current(world).epoch == FIRST + 10


def test_while_the_proxy_is_away_the_same_epoch_is_sent_again(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even the answer that got lost makes another: there is one root per epoch."""
    sent: list[bytes] = []

    def losing(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        if request.url.path != "/billing/directories":
            return send(request)
        sent.append(request.read())
        if len(sent) % 2:
            send(request)  # it arrives, and the answer does not
        raise httpx.ReadError("lost", request=request)

    world.network.meddle = losing
    caplog.clear()
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: len(sent) >= 3)
    assert len(set(sent)) == 1
    assert [head.epoch for head in world.keeper.heads()] == [FIRST]
    world.network.meddle = honest
    world.wait_until(lambda: [head.epoch for head in world.keeper.heads()] == [FIRST, FIRST + 1])
    told = [record.getMessage() for record in caplog.records]
    assert told.count("the proxy did not countersign an epoch, will ask again: ReadError") == 1
    world.wait_until(lambda: "epochs are opened again" in [record.getMessage() for record in caplog.records])


def test_an_epoch_that_closed_before_anybody_countersigned_it_is_left(world: BillingWorld) -> None:
    world.stop(PROXY_HOST)
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: world.ads.last_epoch() == FIRST + 1)
    world.now = START + 2 * EPOCH_SECONDS + 5
    world.start_server()
    world.start_proxy()
    world.wait_for_epoch()
    assert current(world).epoch == FIRST + 2
    stored = world.ads.epoch(FIRST + 1)
    assert stored is not None
    assert stored.head is None


def test_where_the_proxy_knows_another_directory_the_next_number_is_taken(
    world: BillingWorld, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The ad server lost its store: what devices reported for the old epoch is still refused in words."""
    from tacit.store.billing_ads import SqlAdStore

    old = current(world)
    world.show(3)
    world.stop(SERVER_HOST)
    lost, world.ads = world.ads, SqlAdStore.open(tmp_path / "new.sqlite")
    lost.close()
    world.start_server()
    world.wait_until(lambda: [head.epoch for head in world.keeper.heads()] == [FIRST + 1])
    words = f"no epoch can be opened, will try again: BillRefused: .*epoch {FIRST} has another directory"
    assert any(re.search(words, record.getMessage()) for record in caplog.records)
    head = current(world)
    assert (head.epoch, head.opens) == (old.epoch + 1, START)
    world.now += 5
    world.wait_until(
        lambda: any(
            "a batch cannot be delivered, will try again: BillRefused" in record.getMessage()
            for record in caplog.records
        )
    )
    assert world.impressions() == 0
    assert len(world.reports.undelivered()) == 1
    world.show(3, first=10)
    world.bill(3, left=1)


def test_rotation_takes_the_place_of_all_that_was_open_or_drawn_ahead(world: BillingWorld) -> None:
    device = world.device(1)
    shown = device.show(HERE, liking, world.now)
    world.now = START + EPOCH_SECONDS // 2 + 1
    world.wait_until(lambda: len(world.keeper.heads()) == 2)
    ahead = world.keeper.heads()[1]
    opened = world.operator().rotate()
    head = current(world)
    assert opened["epoch"] == head.epoch == FIRST + 2
    assert (head.opens, head.closes) == (world.now, ahead.closes)
    fresh = world.device(2).show(HERE, liking, world.now)
    assert fresh.epoch == head.epoch
    assert fresh.menu_id != shown.menu_id
    assert device.send_reports(world.now).acked == 1  # what was shown before is still charged
    # The one that was drawn ahead never takes over, nor is it offered.
    world.now = ahead.opens + 70
    assert current(world).epoch == head.epoch
    request = world.device(3)
    assert request.show(HERE, liking, world.now).epoch == head.epoch
    world.now = ahead.closes - 10
    world.wait_until(lambda: world.keeper.heads()[-1].epoch == FIRST + 3)
    assert world.keeper.heads()[-1].opens == ahead.closes


def test_after_a_rotation_old_menus_are_no_longer_offered(world: BillingWorld) -> None:
    """For a minute they are, by which clocks may differ."""
    late = world.device(1, prefetch=1)
    assert late.show(HERE, liking, world.now).epoch == FIRST
    world.operator().rotate()
    world.now += 61
    world.start_server()  # it needs no memory of it
    world.wait_for_epoch()
    ad = late.show(HERE, liking, world.now)  # asks for the old one, is refused, and moves on
    assert ad.epoch == FIRST + 1


def test_a_rotation_says_why_it_cannot(world: BillingWorld) -> None:
    world.market.write_text(MARKET.replace("rate = 0.031", "rate = 31"))
    with pytest.raises(BadInput, match=r"^\S+market\.toml: .*menu 1\.ads 1\.rate"):
        world.operator().rotate()
    world.market.write_text(MARKET)
    world.stop(PROXY_HOST)
    with pytest.raises(LinkFailed, match="the proxy does not countersign it"):
        world.operator().rotate()
    assert [head.epoch for head in world.keeper.heads()] == [FIRST]
    world.start_proxy()
    world.wait_until(lambda: world.keeper.heads()[-1].epoch == FIRST + 1)  # it is asked again by itself


def test_what_is_changed_in_the_market_counts_from_the_next_epoch(world: BillingWorld) -> None:
    before = world.device(1).show(HERE, liking, world.now)
    world.market.write_text(
        MARKET.replace("bid_micros = 350_000, rate = 0.028", "bid_micros = 350_000, rate = 0.02")
    )
    assert world.device(2).show(HERE, liking, world.now).menu_id == before.menu_id
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: len(world.keeper.heads()) == 2)
    world.now = START + EPOCH_SECONDS
    menu = world.ads.menu(world.device(3).show(HERE, liking, world.now).menu_id)
    assert menu is not None
    assert [entry.price_micros for entry in menu.entries] == [7_000, 5_400, 100]


def test_a_market_that_became_wrong_goes_on_as_it_was(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.market.write_text("nonsense")
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: len(world.keeper.heads()) == 2)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 1
    assert told[0].startswith("the market as it was goes on: BadInput: ")
    world.now = START + EPOCH_SECONDS
    assert world.device(1).show(HERE, liking, world.now).epoch == FIRST + 1


def test_a_market_in_which_somebody_else_pays_is_not_taken(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    changed = MARKET.replace("Bean & Leaf", "Somebody Else").replace("rate = 0.028", "rate = 0.02")
    world.market.write_text(changed)
    with pytest.raises(BadInput, match="expected campaign 1 to be paid by 'Bean & Leaf', as it always was"):
        world.operator().rotate()
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: len(world.keeper.heads()) == 2)
    assert sum("the market as it was goes on" in record.getMessage() for record in caplog.records) == 1
    world.now = START + EPOCH_SECONDS
    menu = world.ads.menu(world.device(1).show(HERE, liking, world.now).menu_id)
    assert menu is not None
    assert menu.entries[0].price_micros == 9_800, "as it was"


def test_a_campaign_without_money_is_left_out_of_the_next_epoch(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """In this one its menus stay: what it cannot pay is held, and charged when its budget is raised."""
    world.operator().set_budget(1, 5_000)
    prices = world.show(6)
    world.bill(6 - prices.count(9_800))
    status = {each["campaign"]: each for each in world.operator().status()["campaigns"]}
    assert prices.count(9_800), "else this test shows nothing"
    assert status[1]["charged_micros"] == 0
    assert status[1]["held_micros"] == 9_800 * prices.count(9_800)
    world.now = START + EPOCH_SECONDS // 2
    world.wait_until(lambda: len(world.keeper.heads()) == 2)
    told = [record.getMessage() for record in caplog.records]
    assert told.count("campaign 1 cannot pay for an impression: it is left out of the next epochs") == 1
    world.now = START + EPOCH_SECONDS
    menu = world.ads.menu(world.device(50, consent=False).show(HERE, liking, world.now).menu_id)
    assert menu is not None
    assert (menu.lane, menu.entries[0].campaign) == (Lane.PUBLIC, 4)
    after = world.operator().set_budget(1, 1_000_000)
    assert (after["charged_micros"], after["held_micros"]) == (9_800 * prices.count(9_800), 0)
    assert world.charged_micros() == sum(prices)
    world.now = START + EPOCH_SECONDS + EPOCH_SECONDS // 2
    world.wait_until(lambda: len(world.keeper.heads()) == 3)
    world.now = START + 2 * EPOCH_SECONDS
    menu = world.ads.menu(world.device(51, consent=False).show(HERE, liking, world.now).menu_id)
    assert menu is not None
    assert menu.entries[0].campaign == 1


def test_where_nobody_can_pay_no_epoch_is_opened_until_somebody_can(
    world: BillingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for campaign in (1, 2, 3, 4):
        world.operator().set_budget(campaign, 0)
    world.now = START + EPOCH_SECONDS + 1
    words = "no epoch can be opened, will try again: BadInput: expected a campaign with an ad"
    world.wait_until(lambda: any(words in record.getMessage() for record in caplog.records))
    with pytest.raises(BillRefused) as caught:
        world.device(1).show(HERE, liking, world.now)
    assert caught.value.reason is BillVerdict.STALE_EPOCH
    with pytest.raises(
        BadInput, match=r"^expected a campaign with an ad, .* money for an impression, got none"
    ):
        world.operator().rotate()
    world.operator().set_budget(3, None)
    world.wait_for_epoch()
    assert sum(words in record.getMessage() for record in caplog.records) == 1


def test_a_budget_that_the_operator_set_stays_after_a_restart(world: BillingWorld) -> None:
    world.operator().set_budget(1, 77)
    world.start_server()
    assert {each.campaign: each.budget_micros for each in world.ads.campaigns()}[1] == 77
    world.stop(SERVER_HOST)
    world.market.write_text(MARKET.replace("Bean & Leaf", "Somebody Else"))
    with pytest.raises(Exception, match="expected campaign 1 to be paid by 'Bean & Leaf', as it always was"):
        world.start_server()
    world.market.write_text(MARKET)


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_an_ad_server_whose_clock_is_a_day_off_publishes_and_deletes_nothing(
    world: BillingWorld, jump: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.show(3)
    world.server_now = world.now + jump
    words = "expected the clocks of server and proxy to agree"
    world.wait_until(lambda: any(words in record.getMessage() for record in caplog.records))
    assert current(world).epoch == FIRST
    with pytest.raises(LinkFailed):
        world.device(9).show(HERE, liking, world.now)  # no offer is made by a clock that is wrong
    stored = world.ads.epoch(FIRST)
    assert stored is not None
    assert all(kept.token_key for kept in stored.menus)
    world.server_now = None
    world.wait_until(lambda: any("epochs are opened again" in each.getMessage() for each in caplog.records))
    assert world.device(9).show(HERE, liking, world.now).epoch == FIRST
    world.bill(3)
    # Days later all is as it would have been: numbers only ever rise.
    world.now = START + EPOCH_SECONDS
    world.wait_for_epoch()
    assert current(world).epoch > FIRST


def test_keys_are_deleted_some_days_after_their_epoch(tmp_path: Path) -> None:
    with a_billing_world(tmp_path, keep_days=2) as world:
        world.wait_for_epoch()
        expires = current(world).expires
        world.now = expires + 2 * DAY - EPOCH_SECONDS
        world.wait_for_epoch()
        stored = world.ads.epoch(FIRST)
        assert stored is not None
        assert all(kept.token_key for kept in stored.menus)
        world.now = expires + 2 * DAY + 3_600
        world.wait_until(lambda: not (world.ads.epoch(FIRST) or stored).sealing_key)
        after = world.ads.epoch(FIRST)
        assert after is not None
        assert not [kept for kept in after.menus if kept.token_key]


def test_an_epoch_without_a_gap_has_these_times() -> None:
    assert next_times(1_200, 1_000, 600, 60) == EpochTimes(1_200, 1_800, 1_860)
