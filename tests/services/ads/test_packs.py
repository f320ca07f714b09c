"""Packs: the ads of a menu from the ad server and through the proxy, the same for all who ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.bill.protocol.menus import PricedMenu
from tacit.deliver.campaigns.creatives import Creative, check_creative
from tacit.deliver.campaigns.packs import pack_menu
from tacit.deliver.campaigns.store import Advertiser
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.packs import PackShelf
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.packs import MenuPack, read_pack
from tacit.entropy import Simulation
from tacit.errors import BillRefused
from tacit.services.endpoints import LruCache
from tests.support.ad_campaigns import ADDRESS, BEAN, BY, a_campaign, image_record, png, text_record
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import HERE, SERVER_HOST, liking
from tests.support.billing_worlds import a_menu
from tests.support.service_worlds import PROXY_URL, honest

CAPS = [{"impressions": 1, "seconds": 3_600}]


class PackWorld(AdsWorld):
    """A market in which campaign 1 has two ads and a cap."""

    def prepare(self) -> None:
        store = self.running.campaigns
        store.put_advertiser(Advertiser(BEAN), BY)
        store.add_campaign(a_campaign(1, caps=CAPS, categories=["IAB8-5"]), BY)
        for record in (image_record(png(), title="Picture"), text_record()):
            store.add_creative(*check_creative(record, 1, lambda html, _: html), BY)
        self.wait_for_epoch()
        shown = self.device(1).show(HERE, liking, self.now)
        self.menu_id = shown.menu_id

    def pack(self, data: bytes) -> MenuPack:
        return read_pack(data, self.keys.server_signing, self.menu_id)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackWorld]:
    made = PackWorld(tmp_path_factory.mktemp("packs"))
    try:
        made.prepare()
        yield made
    finally:
        made.end()


def test_a_pack_has_all_campaigns_of_its_menu_and_is_the_same_from_both_parties(world: PackWorld) -> None:
    found = world.get(f"/packs/{world.menu_id.hex()}")
    assert found.headers["access-control-allow-origin"] == "*"
    assert found.headers["cache-control"] == "public, max-age=60"
    pack = world.pack(found.content)
    assert [each.number for each in pack.campaigns] == [1, 4, 2]  # in the menu's order
    first = pack.campaign(1)
    assert (first.caps[0].seconds, first.categories) == (3_600, ("IAB8-5",))
    assert [(each.media, each.content) for each in first.creatives] == [
        ("text/plain", None), ("image/png", png()),
    ]  # fmt: skip
    assert first.creatives[0].address == ADDRESS
    assert world.channel().pack(world.menu_id) == found.content
    again = world.get(f"/packs/{world.menu_id.hex()}", headers={"if-none-match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("spelled", ["0" * 64, "zz", "A" * 64, "0" * 62])
def test_a_menu_that_is_not_there_has_no_pack(world: PackWorld, spelled: str) -> None:
    assert world.get(f"/packs/{spelled}").status_code == 404
    assert world.client.get(f"{PROXY_URL}/billing/packs/{spelled}").status_code == 404


def test_a_device_shows_an_ad_of_the_pack_that_it_fetched_through_the_proxy(world: PackWorld) -> None:
    channel = world.channel()
    shelf = PackShelf(channel.pack, world.keys)
    settings = DeviceSettings(world.hierarchy, DisclosureLevel((1, 1)), consent=True)
    device = AdDevice(
        settings, world.keys, MemoryJournal(), channel, Simulation(4), packs=shelf, simulated=True
    )
    drawn: list[Any] = []
    shown = device.show(HERE, liking, world.now, lambda ad: drawn.append(shelf.pack(ad.menu_id)))
    assert [each.campaign(shown.campaign or 0) in each.campaigns for each in drawn] == [True]


def test_an_ad_that_is_taken_back_is_gone_a_minute_later_everywhere(world: PackWorld) -> None:
    store, path = world.running.campaigns, f"/packs/{world.menu_id.hex()}"
    before = world.get(path)
    ad, content = check_creative(text_record(title="Taken back"), 1, lambda html, _: html)
    number = store.add_creative(ad, content, BY)[0].number
    world.now += 1
    with_it = world.get(path)
    assert with_it.headers["etag"] != before.headers["etag"]
    store.remove_creative(number, BY)
    world.now += 60
    assert world.get(path).content == before.content
    assert world.channel().pack(world.menu_id) == before.content


def test_the_proxy_asks_once_a_minute_and_hands_on_only_what_was_signed(world: PackWorld) -> None:
    asked: list[str] = []

    def counting(request: httpx.Request, send: Any) -> Any:
        if request.url.host == SERVER_HOST:
            asked.append(request.url.path)
        return send(request)

    world.now += 120
    world.network.meddle = counting
    for _ in range(3):
        world.channel().pack(world.menu_id)
    assert len([each for each in asked if each.startswith("/packs/")]) == 1

    def changing(request: httpx.Request, send: Any) -> Any:
        found = send(request)
        if request.url.path.startswith("/packs/"):
            return httpx.Response(200, content=found.content.replace(b"3600", b"3601"))
        return found

    world.now += 61
    world.network.meddle = changing
    kept = world.channel().pack(world.menu_id)
    world.pack(kept)  # what it had before, and was signed
    world.network.meddle = honest


def test_packs_are_gone_with_their_epoch(tmp_path: Path) -> None:
    made = PackWorld(tmp_path)
    try:
        made.prepare()
        assert made.get(f"/packs/{made.menu_id.hex()}").status_code == 200
        made.now += 10_000
        assert made.get(f"/packs/{made.menu_id.hex()}").status_code == 404
    finally:
        made.end()


# How ads find room.


def ads_of(menu: PricedMenu, sizes: dict[int, list[int]], **room: int) -> dict[int, list[tuple[int, bool]]]:
    """By campaign: sizes of its ads that are in the pack, and whether their content is."""
    creatives: dict[int, list[Creative]] = {}
    number = 0
    for campaign, several in sizes.items():
        for size in several:
            number += 1
            media = "image/png" if size else "text/plain"
            made = Creative(number, campaign, media, "t", "", ADDRESS, size, None, None, b"")
            creatives.setdefault(campaign, []).append(made)
    by_number = {each.number: each for several in creatives.values() for each in several}
    pack = pack_menu(menu, {}, creatives, lambda at: b"x" * by_number[at].size, **room)
    return {
        each.number: [(by_number[ad.number].size, ad.content is not None) for ad in each.creatives]
        for each in pack.campaigns
    }


def test_every_campaign_has_its_smallest_ad_before_any_has_two() -> None:
    menu = a_menu(campaigns=(1, 2), prices=(5, 4))
    assert ads_of(menu, {1: [50, 0, 20, 10], 2: [60]}, campaign_bytes=100, pack_bytes=100) == {
        1: [(0, False), (10, True), (20, True)], 2: [(60, True)],
    }  # fmt: skip
    # The first's second ad would take the second's only one's room; the third ad is over the campaign's own.
    assert ads_of(menu, {1: [40, 30, 35], 2: [60]}, campaign_bytes=70, pack_bytes=100) == {
        1: [(30, True)], 2: [(60, True)],
    }  # fmt: skip
    # What has no room is there without its content.
    assert ads_of(menu, {1: [90], 2: [60]}, campaign_bytes=100, pack_bytes=100) == {
        1: [(90, True)], 2: [(60, False)],
    }  # fmt: skip


def test_a_cache_lets_go_by_weight() -> None:
    cache: LruCache[int, bytes] = LruCache(10, len)
    cache.put(1, b"x" * 4)
    cache.put(2, b"x" * 4)
    cache.get(1)
    cache.put(3, b"x" * 4)
    assert [cache.get(each) is not None for each in (1, 2, 3)] == [True, False, True]
    cache.put(3, b"x" * 5)
    assert len(cache) == 2
    cache.put(4, b"x" * 11)  # too heavy for it
    assert len(cache) == 0


def test_a_pack_is_refused_by_a_device_that_knows_another_server(world: PackWorld) -> None:
    other = replace(world.keys, server_signing=world.keys.proxy_signing)
    with pytest.raises(BillRefused):
        PackShelf(world.channel().pack, other).pack(world.menu_id)
