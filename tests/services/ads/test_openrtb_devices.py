"""From an exchange's request to a charge: a device checks a bid's menu, chooses and reports."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.campaigns.campaign import AdCampaign
from tacit.deliver.campaigns.store import MACHINE, Author
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.menu_book import listed_from_bytes
from tacit.errors import BillRefused
from tests.support.ad_campaigns import campaign_record
from tests.support.billing_services import COHORT, HERE, THERE, liking
from tests.support.consent_strings import tc_string
from tests.support.openrtb_samples import ADVERTISERS, CATEGORIES, VENDOR, ExchangeWorld, with_imp

AGREED = tc_string(vendors=[VENDOR], purposes=range(1, 11))
ASKED = {
    **with_imp(ext={"tacit": {"version": 1}}),
    "bcat": [], "badv": [], "regs": {"gdpr": 1}, "user": {"consent": AGREED},
}  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ExchangeWorld]:
    made = ExchangeWorld(tmp_path)
    try:
        yield made
    finally:
        made.end()


def told(world: ExchangeWorld) -> dict[str, Any]:
    """What a bid says to the device's client."""
    (bid,) = world.bids(ASKED)
    found: dict[str, Any] = bid["ext"]["tacit"]
    return found


def check(device: AdDevice, said: dict[str, Any], world: ExchangeWorld, context: Any = HERE) -> bytes:
    head, listed = base64.b64decode(said["head"]), base64.b64decode(said["listed"])
    return device.check_menu(head, listed, context, world.now)


def test_a_bid_is_chosen_from_reported_through_the_proxy_and_charged_once(world: ExchangeWorld) -> None:
    said, prices, shown, devices = told(world), [], [], []
    menu = listed_from_bytes(base64.b64decode(said["listed"])).menu
    for number in range(COHORT):  # as many as the proxy waits for
        device = world.device(number)
        assert check(device, said, world).hex() == said["menu"]
        ad = device.show(HERE, liking, world.now)
        assert ad.menu_id.hex() == said["menu"]
        record = device.journal.impression(ad.nonce)
        assert record is not None
        assert record.index is not None
        # Its markup came with the bid: nothing is fetched after the choice.
        (own,) = [each for each in said["ads"] if each["index"] == record.index]
        assert own["campaign"] == ad.campaign
        prices.append(menu.price_micros(record.index))
        shown.append(ad.campaign)
        devices.append(device)
        for _ in range(2):
            device.send_reports(world.now)
    world.bill(COHORT)
    assert world.charged_micros() == sum(price or 0 for price in prices) > 0
    charged = {line.campaign: line.impressions for line in world.ads.totals()}
    assert charged == {each: shown.count(each) for each in set(shown)}
    for device in devices:
        device.recover(world.now)  # as after a restart
    world.bill(COHORT)


def test_a_bid_changes_nothing_of_what_is_asked(world: ExchangeWorld) -> None:
    said, asked = told(world), []
    for is_handed in (True, False):
        device = world.device(7)
        before = len(world.network.asked)
        if is_handed:
            check(device, said, world)
        device.show(HERE, liking, world.now)
        asked.append(world.network.asked[before:])
    assert asked[0] == asked[1]
    assert asked[0].count("POST proxy.test/billing/offers") == 2  # for the menu, and then for tokens


def test_a_device_elsewhere_refuses_it_and_goes_on_by_itself(world: ExchangeWorld) -> None:
    """The exchange thinks that it is somewhere else than it is."""
    device, said = world.device(9), told(world)
    with pytest.raises(BillRefused) as refused:
        check(device, said, world, THERE)
    assert refused.value.reason is BillVerdict.NOT_LISTED
    assert device.show(THERE, liking, world.now).menu_id.hex() != said["menu"]


def test_a_bid_of_an_epoch_that_was_replaced_is_refused(world: ExchangeWorld) -> None:
    said = told(world)
    world.now += 1
    world.operator().rotate()
    with pytest.raises(BillRefused) as refused:
        check(world.device(10), said, world)
    assert refused.value.reason is BillVerdict.STALE_EPOCH
    world.wait_until(lambda: told(world)["epoch"] > said["epoch"])
    check(world.device(10), told(world), world)


def test_caps_and_categories_go_along(world: ExchangeWorld) -> None:
    store = world.running.campaigns
    kept = store.campaign(4)
    assert kept is not None
    record = campaign_record(
        4, ADVERTISERS[4], categories=["IAB8-6"], caps=[{"impressions": 2, "seconds": 3600}], budget_micros=None
    )
    store.change_campaign(AdCampaign.from_json(record), kept.version, Author(MACHINE, world.now))

    def entries() -> dict[int, Any]:
        return {each["campaign"]: (each["caps"], each["categories"]) for each in told(world)["ads"]}

    def moved() -> bool:
        world.now += 1  # what was changed counts within some two seconds
        return bool(entries()[4] != ([], []))

    world.wait_until(moved)
    assert entries() == {
        1: ([], CATEGORIES[1]),
        2: ([], CATEGORIES[2]),
        4: ([{"impressions": 2, "seconds": 3600}], ["IAB8-6"]),
    }
