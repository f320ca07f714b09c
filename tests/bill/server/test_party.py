"""The ad server as a party: epochs that open once and survive restarts, offers, and late batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tacit.bill.protocol.directory import Directory, EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import Offer, OfferRequest
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tests.support.billing_scenes import reason_of
from tests.support.billing_worlds import (
    DURING,
    EXPIRED,
    PROXY_KEY,
    REQUESTS,
    SERVER_KEY,
    TIMES,
    World,
    a_menu,
)

ANSWER_KEY = b"a" * 32


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """On SQLite alone: what stores do is tested elsewhere."""
    ads = SqlAdStore.open(tmp_path / "ads.sqlite")
    proxied = SqlBillingProxyStore.open(tmp_path / "proxy.sqlite")
    yield World(ads, proxied)
    ads.close()
    proxied.close()


class Unanswered:
    """A proxy that countersigns, and whose answer is lost."""

    def __init__(self, world: World, *, signs: bool) -> None:
        self._world, self._signs = world, signs

    def countersign(self, directory: bytes) -> bytes:
        if self._signs:
            self._world.countersign(directory)
        raise ConnectionError("lost")


def test_an_epoch_is_opened_once(world: World) -> None:
    menus = a_menu("one"), a_menu("two")
    head = world.open_epoch(*menus)
    head.check(SERVER_KEY.public, PROXY_KEY.public)
    assert world.open_epoch(*menus[::-1]) == head
    assert reason_of(lambda: world.open_epoch(menus[0])) is BillVerdict.CONFLICT
    assert reason_of(lambda: world.open_epoch(menus[0], a_menu("three"))) is BillVerdict.CONFLICT


def test_menus_of_several_epochs_or_none_are_refused(world: World) -> None:
    for menus in ([], [a_menu("one"), a_menu("two", epoch=8)]):
        with pytest.raises(BadInput, match="the menus of one epoch"):
            world.server.open_epoch(menus, TIMES, world)
    with pytest.raises(BadInput, match="each context and lane once"):
        world.open_epoch(a_menu("one"), a_menu("one", prices=(1, 2)))
    assert world.ads.last_epoch() is None


@pytest.mark.parametrize("signs", [True, False])
def test_an_epoch_goes_on_where_it_was_cut_off(world: World, signs: bool) -> None:
    """The same keys and root, whether the proxy had countersigned or not."""
    with pytest.raises(OSError, match="lost"):
        world.server.open_epoch([a_menu()], TIMES, Unanswered(world, signs=signs))
    stored = world.ads.epoch(7)
    assert stored is not None
    assert stored.head is None
    head = world.open_epoch(a_menu())
    assert head.root == Directory.from_bytes(stored.directory).head.root
    world.report(1)
    world.bill()
    assert [line.impressions for line in world.ads.totals()] == [1]


def test_epochs_are_let_go_and_loaded_again(world: World) -> None:
    world.open_epoch(a_menu())
    world.server.unload_epochs(EXPIRED)
    assert world.server.load_epoch(7) is world.server.load_epoch(7)
    world.server.unload_epochs(EXPIRED + 1)
    assert "epochs=[]" in repr(world.server)
    assert world.server.load_epoch(7).head.epoch == 7
    assert reason_of(lambda: world.server.load_epoch(9)) is BillVerdict.STALE_EPOCH


def test_a_batch_that_comes_after_the_keys_are_gone_stays_at_the_proxy(world: World) -> None:
    """Devices were told that their reports are taken: no receipt says for good that they are worth nothing."""
    world.open_epoch(a_menu())
    world.report(1)
    world.proxy.form_batches(world.now, world.source)
    assert world.ads.forget_keys(EXPIRED + 1) == 1
    world.server.unload_epochs(EXPIRED + 1)
    assert reason_of(lambda: world.proxy.deliver_batches(world)) is BillVerdict.EXPIRED
    assert len(world.proxied.undelivered()) == 1
    assert not world.ads.totals()
    request = OfferRequest(7, Lane.PERSONAL, a_menu().node, (), ANSWER_KEY)
    answer = world.server.offer(request.sealed_to(REQUESTS.public), DURING)
    assert reason_of(lambda: Offer.decrypted(answer, ANSWER_KEY)) is BillVerdict.STALE_EPOCH


def test_requests_are_answered_the_same_by_themselves_and_together_in_their_order(world: World) -> None:
    world.open_epoch(a_menu())
    modulus = world.server.load_epoch(7).by_id[a_menu().menu_id].listed.token_key.number
    blinded = tuple((Entropy().uniform_below(modulus)).to_bytes(256, "big") for _ in range(6))
    request = OfferRequest(7, Lane.PERSONAL, a_menu().node, blinded, ANSWER_KEY, a_menu().menu_id)
    sealed = request.sealed_to(REQUESTS.public)
    alone = Offer.decrypted(world.server.offer(sealed, DURING), ANSWER_KEY)
    several = world.server.offers([sealed, bytes(400), sealed], DURING)
    assert several[1] == b"", "what cannot be opened has nobody to answer"
    assert [Offer.decrypted(several[at], ANSWER_KEY) for at in (0, 2)] == [alone, alone]
    assert alone.listed is None
    assert [pow(int.from_bytes(each, "big"), 65_537, modulus) for each in alone.signatures] == [
        int.from_bytes(each, "big") for each in blinded
    ]
    unknown = replace(request, known=bytes(32)).sealed_to(REQUESTS.public)
    listed = Offer.decrypted(world.server.offer(unknown, DURING), ANSWER_KEY).listed
    assert listed is not None
    assert listed.menu == a_menu()


def test_a_proxy_that_countersigns_another_directory_is_not_believed(world: World) -> None:
    class Swapping:
        def countersign(self, directory: bytes) -> bytes:
            head = Directory.from_bytes(directory).head
            moved = replace(head, closes=head.closes - 1).signed_by_server(SERVER_KEY)
            return moved.countersigned(PROXY_KEY).to_bytes()

    class Unsigned:
        def countersign(self, directory: bytes) -> bytes:
            return Directory.from_bytes(directory).head.to_bytes()

    assert reason_of(lambda: world.server.open_epoch([a_menu()], TIMES, Swapping())) is BillVerdict.CONFLICT
    unsigned = partial(world.server.open_epoch, [a_menu()], TIMES, Unsigned())
    assert reason_of(unsigned) is BillVerdict.UNAUTHENTICATED
    stored = world.ads.epoch(7)
    assert stored is not None
    assert stored.head is None
    assert EpochHead.from_bytes(world.open_epoch(a_menu()).to_bytes()).epoch == 7
