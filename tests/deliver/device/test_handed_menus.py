"""Menus that came by another way than the proxy, as with a bid: checked like any other, and never used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tacit.bill.protocol.directory import NO_SIGNATURE, Directory, DirectoryLeaf, EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import SigningKey
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import NO_MENU, ListedMenu, OfferRequest
from tacit.bill.server.party import EpochTimes
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import ImpressionState
from tacit.deliver.device.menu_book import listed_to_bytes
from tacit.errors import BillRefused
from tests.support.billing_worlds import EPOCH, PROXY_KEY, REQUESTS, TIMES, a_directory, numbered_key
from tests.support.device_cases import node
from tests.support.device_worlds import KEYS, NEW, OLD, AdTown, TownChannel, no_rates, town_menus


@pytest.fixture
def town(tmp_path: Path) -> AdTown:
    return AdTown.open(tmp_path)


def listed_at(town: AdTown, name: str = "Old", lane: Lane = Lane.PERSONAL, epoch: int = EPOCH) -> ListedMenu:
    opened = town.world.server.load_epoch(epoch)
    found = (each.listed for each in opened.by_id.values())
    return next(each for each in found if (each.menu.node, each.menu.lane) == (node(name), lane))


def head_of(town: AdTown, epoch: int = EPOCH) -> EpochHead:
    return town.world.server.load_epoch(epoch).head


def refused(device: AdDevice, head: bytes, listed: bytes, town: AdTown, verdict: BillVerdict) -> str:
    """It is refused, and nothing of it stays; what is said."""
    before = set(device._book._menus)
    with pytest.raises(BillRefused) as caught:
        device.check_menu(head, listed, OLD, town.now)
    assert caught.value.reason is verdict, caught.value
    assert set(device._book._menus) == before
    assert "\n" not in str(caught.value)
    assert "Cafe" not in str(caught.value), "where the person is"
    return str(caught.value)


@dataclass
class Watched(TownChannel):
    """What the ad server reads of requests; it may withhold the personal menu from whoever does not know it."""

    withholds: bool = False
    asked: list[tuple[int, Lane, bytes, int]] = field(default_factory=list)

    def offer(self, sealed: bytes) -> bytes:
        said = OfferRequest.opened_by(REQUESTS, sealed)
        self.asked.append((said.epoch, said.lane, said.known, len(said.blinded)))
        if self.withholds and (said.lane, said.known) == (Lane.PERSONAL, NO_MENU):
            raise BillRefused(BillVerdict.UNKNOWN_CONTEXT)
        return super().offer(sealed)


@pytest.mark.parametrize("withholds", [False, True])
@pytest.mark.parametrize("consent", [False, True])
@pytest.mark.parametrize("lane", [Lane.PERSONAL, Lane.PUBLIC])
def test_whoever_was_handed_a_menu_asks_like_everybody(
    town: AdTown, withholds: bool, consent: bool, lane: Lane
) -> None:
    """An ad server that hands a menu to one person alone would know them by its id in their requests."""
    seen, shown = [], []
    handed = head_of(town).to_bytes(), listed_to_bytes(listed_at(town, lane=lane))
    for is_handed, is_late in ((False, False), (True, False), (False, True), (True, True)):
        channel = Watched(town.world, withholds=withholds)
        device = town.device(channel=channel, consent=consent)
        if is_late:
            device.show(OLD, no_rates if withholds or not consent else town.rates, town.now)
        if is_handed:
            before = list(channel.asked)
            assert device.check_menu(*handed, OLD, town.now) == listed_at(town, lane=lane).menu.menu_id
            assert channel.asked == before
        shown.append(device.show(OLD, no_rates if withholds or not consent else town.rates, town.now).lane)
        seen.append((channel.calls["head"], channel.asked))
    assert seen[:2] == [seen[0]] * 2
    assert seen[2:] == [seen[2]] * 2
    assert set(shown) == {Lane.PERSONAL if consent and not withholds else Lane.PUBLIC}
    assert seen[0][1][0][2] == NO_MENU


def test_the_ads_of_a_bid_are_of_the_menu_that_everybody_gets_and_charged_once(town: AdTown) -> None:
    channel = TownChannel(town.world)
    device, listed = town.device(channel=channel), listed_at(town)
    for _ in range(2):  # again: nothing changes
        found = device.check_menu(head_of(town).to_bytes(), listed_to_bytes(listed), OLD, town.now)
        assert found == listed.menu.menu_id
    assert channel.calls == {"head": 1}  # which epoch is open, once
    ad = device.show(OLD, town.rates, town.now)
    assert (ad.menu_id, ad.lane) == (found, Lane.PERSONAL)
    for _ in range(2):
        device.send_reports(town.now)
        town.bill()
    record = device.journal.impression(ad.nonce)
    assert record is not None
    assert record.index is not None
    assert town.charges() == {(ad.menu_id, record.index, listed.menu.price_micros(record.index)): 1}


def own_directory(listed: ListedMenu) -> ListedMenu:
    key = numbered_key(3).public
    leaf = DirectoryLeaf.of(listed.menu, key)
    alone = Directory.make([leaf], epoch=EPOCH, opens=1, closes=2, expires=3, sealing_key=KEYS.server_sealing)
    return ListedMenu(listed.menu, key, 0, alone.proof(0))


def dearer(listed: ListedMenu) -> ListedMenu:
    first, *others = listed.menu.entries
    changed = replace(first, price_micros=first.price_micros + 1)
    return replace(listed, menu=replace(listed.menu, entries=(changed, *others)))


@pytest.mark.parametrize(
    "change",
    [
        dearer,
        own_directory,
        lambda listed: replace(listed, menu=replace(listed.menu, epsilon_micros=1_999_999)),
        lambda listed: replace(listed, menu=replace(listed.menu, smallest_cohort=7)),
        lambda listed: replace(listed, menu=replace(listed.menu, epoch=EPOCH + 1)),
        lambda listed: replace(listed, path=()),
        lambda listed: replace(listed, path=listed.path[::-1]),
        lambda listed: replace(listed, place=listed.place ^ 1),
    ],
)
def test_a_menu_that_others_do_not_have(town: AdTown, change: Callable[[ListedMenu], ListedMenu]) -> None:
    device = town.device()
    listed = listed_to_bytes(change(listed_at(town)))
    refused(device, head_of(town).to_bytes(), listed, town, BillVerdict.NOT_LISTED)
    assert device.journal.impressions(tuple(ImpressionState)) == []
    assert device.show(OLD, town.rates, town.now).menu_id == listed_at(town).menu.menu_id


def test_the_menu_of_another_context(town: AdTown) -> None:
    said = refused(
        town.device(), head_of(town).to_bytes(), listed_to_bytes(listed_at(town, "New")), town,
        BillVerdict.NOT_LISTED,
    )  # fmt: skip
    assert "expected a menu of context" in said
    device = town.device()
    device.check_menu(head_of(town).to_bytes(), listed_to_bytes(listed_at(town, "New")), NEW, town.now)


@pytest.mark.parametrize(
    "change",
    [
        lambda head: replace(head, by_proxy=NO_SIGNATURE),
        lambda head: replace(head, by_server=NO_SIGNATURE),
        lambda head: head.countersigned(SigningKey(b"f" * 32)),
        lambda head: replace(head, closes=head.closes + 1),
        lambda head: replace(head, root=bytes(32)),
    ],
)
def test_a_head_that_both_did_not_sign(town: AdTown, change: Callable[[EpochHead], EpochHead]) -> None:
    channel = TownChannel(town.world)
    listed = listed_to_bytes(listed_at(town))
    head = change(head_of(town)).to_bytes()
    refused(town.device(channel=channel), head, listed, town, BillVerdict.UNAUTHENTICATED)
    assert not channel.calls  # nobody was bothered with it


def test_a_second_directory_of_the_epoch(town: AdTown) -> None:
    """Signed by both all the same: only somebody who shows devices different ones has it."""
    menus = town_menus(epsilon="1.5")
    keys = [numbered_key(place) for place in range(len(menus))]
    directory = a_directory(menus, keys)
    head = directory.head.countersigned(PROXY_KEY)
    place = next(at for at, leaf in enumerate(directory.leaves) if leaf.menu_id == menus[0].menu_id)
    listed = ListedMenu(menus[0], directory.leaves[place].token_key, place, directory.proof(place))
    for device in (town.device(), town.device()):
        refused(device, head.to_bytes(), listed_to_bytes(listed), town, BillVerdict.CONFLICT)
        device.prefetch(OLD, town.now)  # and once it knows the epoch


def test_no_head_that_was_handed_on_moves_a_device_to_another_epoch(town: AdTown) -> None:
    """Both signed them, and a device that went to whichever it is handed could be told apart by it."""
    channel = TownChannel(town.world)
    early = town.device(channel=channel)
    early.prefetch(OLD, town.now)  # it knows the first one only
    old = head_of(town).to_bytes(), listed_to_bytes(listed_at(town))
    town.world.open_epoch(*town_menus(EPOCH + 1), times=EpochTimes(TIMES.opens, TIMES.closes, TIMES.expires))
    new = head_of(town, EPOCH + 1).to_bytes(), listed_to_bytes(listed_at(town, epoch=EPOCH + 1))
    refused(early, *new, town, BillVerdict.STALE_EPOCH)
    assert early.check_menu(*old, OLD, town.now) == listed_at(town).menu.menu_id
    assert channel.calls["head"] == 1
    late = town.device()
    refused(late, *old, town, BillVerdict.STALE_EPOCH)
    assert late.check_menu(*new, OLD, town.now) == late.show(OLD, town.rates, town.now).menu_id


@pytest.mark.parametrize(
    ("head", "listed"), [(b"", None), (b"x" * 400, None), (None, b""), (None, b"\x01" * 99)]
)
def test_what_is_no_menu_at_all(town: AdTown, head: bytes | None, listed: bytes | None) -> None:
    sent = head_of(town).to_bytes() if head is None else head
    menu = listed_to_bytes(listed_at(town)) if listed is None else listed
    with pytest.raises(BillRefused):
        town.device().check_menu(sent, menu, OLD, town.now)


def test_an_epoch_that_is_over(town: AdTown) -> None:
    channel, now = TownChannel(town.world), TIMES.closes + 10_000
    with pytest.raises(BillRefused) as caught:
        town.device(channel=channel).check_menu(
            head_of(town).to_bytes(), listed_to_bytes(listed_at(town)), OLD, now
        )
    assert caught.value.reason is BillVerdict.STALE_EPOCH
