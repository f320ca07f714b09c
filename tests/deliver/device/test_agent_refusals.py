"""What a device refuses: heads, menus, proofs and tokens that are not what everybody has, and wrong clocks.

Each refusal is one line that somebody can act on; nothing is shown, spent or charged by it, and afterwards the
same device goes on with honest parties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tacit.bill.protocol.directory import NO_SIGNATURE, Directory, DirectoryLeaf, EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import ListedMenu, Offer, OfferRequest
from tacit.bill.server.party import EpochTimes
from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import DeviceJournal, ImpressionState, MemoryJournal
from tacit.deliver.device.settings import CutDisclosure, DeviceSettings
from tacit.deliver.protocol.cuts import context_tree, root_cut
from tacit.entropy import Entropy
from tacit.errors import BillRefused
from tacit.schema.contexts.nodes import ContextNodes
from tacit.store.device_journal import SqlDeviceJournal
from tests.support.billing_worlds import (
    EPOCH,
    PROXY_KEY,
    REQUESTS,
    SERVER_KEY,
    TIMES,
    a_directory,
    numbered_key,
)
from tests.support.device_cases import PLACES, TOWN, node
from tests.support.device_worlds import (
    KEYS,
    LIMITS,
    NEW,
    OLD,
    SETTINGS,
    AdTown,
    TownChannel,
    no_rates,
    town_menus,
)

FOREIGN = SigningKey(b"f" * 32)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> AdTown:
    """One town for all: refusals leave nothing behind."""
    return AdTown.open(tmp_path_factory.mktemp("town"))


def expect_refusal(device: AdDevice, town: AdTown, verdict: BillVerdict, now: int | None = None) -> str:
    """The device refuses, and has neither shown nor spent anything; what it says, in one line."""
    before = device.journal.account()
    charges = town.charges()
    with pytest.raises(BillRefused) as refused:
        device.show(OLD, no_rates, town.now if now is None else now)
    assert refused.value.reason is verdict, refused.value
    drawn = set(ImpressionState) - {ImpressionState.NEW, ImpressionState.ISSUED}
    assert device.journal.impressions(drawn) == []
    assert device.journal.account() == before
    town.world.bill()
    assert town.charges() == charges
    said = str(refused.value)
    assert "\n" not in said
    assert "Cafe" not in said, "where the person is"
    return said


def expect_honest_after(device: AdDevice, town: AdTown) -> None:
    """The same journal goes on with honest parties."""
    again = town.device(device.settings, device.journal)
    assert again.show(OLD, town.rates, town.now).lane is Lane.PERSONAL


# Heads.


@dataclass
class OtherHead(TownChannel):
    """Another head than the proxy's own."""

    change: Callable[[EpochHead], EpochHead] = field(default=lambda head: head)

    def head(self) -> bytes:
        return self.change(EpochHead.from_bytes(super().head())).to_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda head: replace(head, by_proxy=NO_SIGNATURE),
        lambda head: replace(head, by_server=NO_SIGNATURE),
        lambda head: replace(head, by_server=NO_SIGNATURE, by_proxy=NO_SIGNATURE),
        lambda head: replace(head, by_proxy=head.by_server),
        lambda head: head.signed_by_server(FOREIGN).countersigned(PROXY_KEY),
        lambda head: head.countersigned(FOREIGN),
        lambda head: head.countersigned(SERVER_KEY),
        lambda head: replace(head, sealing_key=OpeningKey(b"x" * 32).public),
        lambda head: replace(head, root=bytes(32)),
        lambda head: replace(head, menus=head.menus + 1),
        lambda head: replace(head, closes=head.closes + 1),
        lambda head: replace(head, epoch=head.epoch + 1),
    ],
)
def test_a_head_that_both_did_not_sign(town: AdTown, change: Callable[[EpochHead], EpochHead]) -> None:
    device = town.device(channel=OtherHead(town.world, change=change))
    said = expect_refusal(device, town, BillVerdict.UNAUTHENTICATED)
    assert "signed by the ad server and the proxy that this app knows: compare their public keys" in said
    expect_honest_after(device, town)


def test_a_device_with_other_keys_takes_nothing(town: AdTown) -> None:
    for name in ("server_signing", "proxy_signing"):
        keys = replace(KEYS, **{name: FOREIGN.public})
        device = AdDevice(SETTINGS, keys, MemoryJournal(), town.channel, Entropy())
        expect_refusal(device, town, BillVerdict.UNAUTHENTICATED)
    keys = replace(KEYS, server_sealing=OpeningKey(b"x" * 32).public)
    device = AdDevice(SETTINGS, keys, MemoryJournal(), town.channel, Entropy())
    expect_refusal(device, town, BillVerdict.UNOPENABLE)


def second_head() -> EpochHead:
    """Of the same epoch, signed by both all the same, with a menu of somebody's own."""
    menus = town_menus(epsilon="1.5")
    keys = [numbered_key(place) for place in range(len(menus))]
    return a_directory(menus, keys).head.countersigned(PROXY_KEY)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_root_for_an_epoch(town: AdTown, tmp_path: Path, kind: str, *, restarted: bool) -> None:
    journal: DeviceJournal = (
        MemoryJournal() if kind == "memory" else SqlDeviceJournal.open(tmp_path / "ads.sqlite")
    )
    channel = OtherHead(town.world)
    device = town.device(journal=journal, channel=channel)
    device.prefetch(OLD, town.now)
    channel.change = lambda _: second_head()
    if restarted:
        device = town.device(journal=journal, channel=channel)
        said = expect_refusal(device, town, BillVerdict.CONFLICT)
    else:
        device._book.drop_head(EPOCH)  # as if the ad server had called it stale
        said = expect_refusal(device, town, BillVerdict.CONFLICT)
    assert f"epoch {EPOCH} has a second directory" in said
    expect_honest_after(device, town)


# Clocks.


@pytest.mark.parametrize(
    "now", [TIMES.opens - 301, TIMES.closes + 300, TIMES.opens - 86_400, 0, TIMES.closes + 86_400]
)
def test_a_clock_that_is_too_far_off(town: AdTown, now: int) -> None:
    device = town.device()
    said = expect_refusal(device, town, BillVerdict.STALE_EPOCH, now)
    assert f"expected this device's clock between {TIMES.opens} and {TIMES.closes}" in said
    assert said.endswith(f"got {now}: set the clock, or ask the proxy's operator for the current epoch")
    expect_honest_after(device, town)


@pytest.mark.parametrize("now", [TIMES.opens - 300, TIMES.closes + 299])
def test_a_clock_that_is_a_little_off_will_do(town: AdTown, now: int) -> None:
    assert town.device().show(OLD, town.rates, now).epoch == EPOCH


def test_a_head_of_an_epoch_that_is_over_is_not_used(town: AdTown) -> None:
    device = town.device()
    head = EpochHead.from_bytes(town.channel.head())
    device.show(OLD, town.rates, town.now)
    late = OtherHead(town.world, change=lambda _: head)
    again = town.device(journal=MemoryJournal(), channel=late)
    expect_refusal(again, town, BillVerdict.STALE_EPOCH, TIMES.closes + 10_000)


def test_no_epoch_is_open(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path)
    town.world.now = TIMES.expires + 1
    with pytest.raises(BillRefused, match="no epoch is open: the ad server has sent no directory"):
        town.device().show(OLD, no_rates, TIMES.expires + 1)


# Menus.


@dataclass
class OtherOffer(TownChannel):
    """Another answer than the ad server's own, made with its keys."""

    change: Callable[[Offer, OfferRequest], Offer] = field(default=lambda offer, _: offer)
    only_with_menu: bool = True

    def offer(self, sealed: bytes) -> bytes:
        request = OfferRequest.opened_by(REQUESTS, sealed)
        offer = Offer.decrypted(super().offer(sealed), request.answer_key)
        if self.only_with_menu and offer.listed is None:
            return offer.encrypted(request.answer_key, Entropy())
        return self.change(offer, request).encrypted(request.answer_key, Entropy())


def other_menu(**changed: object) -> Callable[[ListedMenu, AdTown], ListedMenu]:
    return lambda listed, _: replace(listed, menu=replace(listed.menu, **changed))  # type: ignore[arg-type]


def dearer(listed: ListedMenu, _: AdTown) -> ListedMenu:
    first, *others = listed.menu.entries
    changed = replace(first, price_micros=first.price_micros + 1)
    return replace(listed, menu=replace(listed.menu, entries=(changed, *others)))


def real_menu_of(name: str, lane: Lane) -> Callable[[ListedMenu, AdTown], ListedMenu]:
    def swap(_: ListedMenu, town: AdTown) -> ListedMenu:
        opened = town.world.server.load_epoch(EPOCH)
        return next(
            each.listed for each in opened.by_id.values()
            if (each.listed.menu.node, each.listed.menu.lane) == (node(name), lane)
        )  # fmt: skip

    return swap


def own_directory(listed: ListedMenu, _: AdTown) -> ListedMenu:
    """In a directory that this device alone is shown: its root is not the countersigned one."""
    key = numbered_key(3).public
    leaf = DirectoryLeaf.of(listed.menu, key)
    alone = Directory.make([leaf], epoch=EPOCH, opens=1, closes=2, expires=3, sealing_key=KEYS.server_sealing)
    return ListedMenu(listed.menu, key, 0, alone.proof(0))


ATTACKS: dict[str, Callable[[ListedMenu, AdTown], ListedMenu]] = {
    "a dearer entry": dearer,
    "a smaller cohort": other_menu(smallest_cohort=7),
    "more epsilon": other_menu(epsilon_micros=1_999_999),
    "another prior": other_menu(prior='{"prior": "spread", "sigma": 0.1}'),
    "another epoch": other_menu(epoch=EPOCH + 1),
    "another context, as it is": real_menu_of("New", Lane.PERSONAL),
    "another lane, as it is": real_menu_of("Old", Lane.PUBLIC),
    "another context's menu under this name": lambda listed, town: replace(
        real_menu_of("New", Lane.PERSONAL)(listed, town),
        menu=replace(real_menu_of("New", Lane.PERSONAL)(listed, town).menu, node=node("Old")),
    ),
    "a key of its own": lambda listed, _: replace(
        listed, token_key=next(
            key for key in (numbered_key(at).public for at in range(4)) if key != listed.token_key
        )
    ),
    "a proof cut short": lambda listed, _: replace(listed, path=listed.path[:-1]),
    "no proof": lambda listed, _: replace(listed, path=()),
    "a longer proof": lambda listed, _: replace(listed, path=(*listed.path, bytes(32))),
    "a proof in another order": lambda listed, _: replace(listed, path=listed.path[::-1]),
    "another place": lambda listed, _: replace(listed, place=listed.place ^ 1),
    "a place beyond the tree": lambda listed, _: replace(listed, place=4),
    "a directory of its own": own_directory,
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_menu_that_others_do_not_have(town: AdTown, attack: str) -> None:
    def change(offer: Offer, _: OfferRequest) -> Offer:
        assert offer.listed is not None
        return replace(offer, listed=ATTACKS[attack](offer.listed, town))

    device = town.device(channel=OtherOffer(town.world, change=change))
    expect_refusal(device, town, BillVerdict.NOT_LISTED)
    assert device.journal.impressions(tuple(ImpressionState)) == [], "no token was asked for"
    expect_honest_after(device, town)


def test_a_menu_that_nobody_can_plan_by(tmp_path: Path) -> None:
    """Listed and signed, and still no way to choose: a word that this device does not know."""
    menus = [replace(each, mechanism="magic") if each.lane is Lane.PERSONAL else each for each in town_menus()]
    town = AdTown.open(tmp_path, menus)
    said = expect_refusal(town.device(), town, BillVerdict.MALFORMED)
    assert "expected mechanism to be one of trunc, top, rr, floors, got 'magic'" in said
    assert town.device(consent=False).show(OLD, no_rates, town.now).lane is Lane.PUBLIC


def test_a_context_that_nobody_offers(town: AdTown) -> None:
    tree = context_tree(ContextNodes.of(TOWN, {"place": list(PLACES)}))
    settings = DeviceSettings(TOWN, CutDisclosure(root_cut(tree)), consent=True, limits=LIMITS)
    said = expect_refusal(town.device(settings), town, BillVerdict.UNKNOWN_CONTEXT)
    assert said == "no menu is offered for this context"


def test_an_answer_without_a_menu(town: AdTown) -> None:
    device = town.device(channel=OtherOffer(town.world, change=lambda offer, _: replace(offer, listed=None)))
    assert "expected a menu in the answer" in expect_refusal(device, town, BillVerdict.MALFORMED)


# Tokens.


def flipped(signature: bytes) -> bytes:
    return signature[:-1] + bytes([signature[-1] ^ 1])


TOKEN_ATTACKS: dict[str, tuple[Callable[[Offer, OfferRequest], Offer], BillVerdict]] = {
    "a signature that is none": (
        lambda offer, _: replace(offer, signatures=tuple(map(flipped, offer.signatures))), BillVerdict.FORGED
    ),
    "one that is none": (
        lambda offer, _: replace(offer, signatures=(offer.signatures[0], flipped(offer.signatures[1]))),
        BillVerdict.FORGED,
    ),
    "in another order": (
        lambda offer, _: replace(offer, signatures=offer.signatures[::-1]), BillVerdict.FORGED
    ),
    "by another key": (
        lambda offer, request: replace(
            offer, signatures=tuple(numbered_key(5).sign_blinded(bytes(1) + each[1:], Entropy())
                                    for each in request.blinded)
        ),
        BillVerdict.FORGED,
    ),
    "one too few": (lambda offer, _: replace(offer, signatures=offer.signatures[:-1]), BillVerdict.MALFORMED),
    "one too many": (lambda offer, _: replace(offer, signatures=offer.signatures * 2), BillVerdict.MALFORMED),
    "none": (lambda offer, _: replace(offer, signatures=()), BillVerdict.MALFORMED),
}  # fmt: skip


@pytest.mark.parametrize("attack", TOKEN_ATTACKS)
def test_tokens_that_are_none(town: AdTown, attack: str) -> None:
    change, verdict = TOKEN_ATTACKS[attack]
    asked: list[tuple[bytes, ...]] = []

    def tamper(offer: Offer, request: OfferRequest) -> Offer:
        if not request.blinded:
            return offer
        asked.append(request.blinded)
        return change(offer, request)

    device = town.device(channel=OtherOffer(town.world, change=tamper, only_with_menu=False))
    for _ in range(2):
        expect_refusal(device, town, verdict)
    assert len(set(asked)) == 1, "what was blinded is sent again as it was"
    assert [each.state for each in device.journal.impressions(tuple(ImpressionState))] == [
        ImpressionState.NEW
    ] * 2
    expect_honest_after(device, town)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: flipped(answer),
        lambda answer: answer[:-1],
        lambda answer: answer[:0],
        lambda answer: answer + b"\0",
    ],
)
def test_an_answer_that_was_touched_on_the_way(town: AdTown, change: Callable[[bytes], bytes]) -> None:
    class Touched(TownChannel):
        def offer(self, sealed: bytes) -> bytes:
            return change(super().offer(sealed))

    device = town.device(channel=Touched(town.world))
    expect_refusal(device, town, BillVerdict.UNOPENABLE)
    expect_honest_after(device, town)


def test_the_answer_to_another_request(town: AdTown) -> None:
    """A proxy that mixes up answers learns nothing, and no device takes another's."""
    answers: list[bytes] = []

    class Late(TownChannel):
        def offer(self, sealed: bytes) -> bytes:
            answers.append(super().offer(sealed))
            return answers[0]

    device = town.device(channel=Late(town.world))
    expect_refusal(device, town, BillVerdict.UNOPENABLE)
    expect_honest_after(device, town)


def test_a_menu_of_the_next_epoch_is_not_chosen_from_in_this_one(tmp_path: Path) -> None:
    town = AdTown.open(tmp_path)
    town.world.open_epoch(*town_menus(EPOCH + 1), times=EpochTimes(20_000, 40_000, 50_000))
    device = town.device()
    assert device.show(NEW, town.rates, town.now).epoch == EPOCH
    # And with a token of this epoch, nothing is reported for the next one.
    (record,) = device.waiting_reports()
    assert record.expires == TIMES.expires
