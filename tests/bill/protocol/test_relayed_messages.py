"""Requests of several devices in one message of the proxy: in their order, bounded, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import MOST_RELAYED, Offer, OfferRequest, pack_messages, unpack_messages
from tacit.entropy import Entropy
from tacit.errors import BillRefused
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tests.support.billing_worlds import EPOCH, REQUESTS, World, a_node
from tests.support.ledger_places import Place


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_what_was_joined_comes_apart_the_same(messages: list[bytes]) -> None:
    assert unpack_messages(pack_messages(messages), longest=300) == messages


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (pack_messages([b"x" * 301]), BillVerdict.OVERSIZED),
        (pack_messages([b""] * (MOST_RELAYED + 1)), BillVerdict.MALFORMED),
        (pack_messages([b"ab"])[:-1], BillVerdict.MALFORMED),
        (pack_messages([b"ab"]) + b"c", BillVerdict.MALFORMED),
        (b"", BillVerdict.MALFORMED),
    ],
    ids=["too long", "too many", "cut", "longer", "empty"],
)
def test_what_is_no_such_message_is_refused(data: bytes, verdict: BillVerdict) -> None:
    with pytest.raises(BillRefused) as refused:
        unpack_messages(data, longest=300)
    assert refused.value.reason == verdict


def test_a_request_that_cannot_be_opened_holds_up_no_other(sqlite_place: Place) -> None:
    """Each device reads its own answer; who nobody can answer gets none."""
    folder = sqlite_place.witness.parent
    world = World(SqlAdStore.open(folder / "a.sqlite"), SqlBillingProxyStore.open(folder / "p.sqlite"))
    world.open_epoch()
    entropy = Entropy()
    keys = [entropy.bytes(32) for _ in range(3)]
    nodes = [a_node("Lisbon"), a_node("nowhere"), a_node("Lisbon")]
    sealed = [
        OfferRequest(EPOCH, Lane.PERSONAL, node, (), key).sealed_to(REQUESTS.public)
        for node, key in zip(nodes, keys, strict=True)
    ]
    sealed.insert(1, bytes(len(sealed[0])))
    answers = world.server.offers(sealed, world.now)
    assert answers[1] == b""
    assert Offer.decrypted(answers[0], keys[0]).listed is not None
    assert Offer.decrypted(answers[3], keys[2]).listed is not None
    with pytest.raises(BillRefused) as refused:
        Offer.decrypted(answers[2], keys[1])
    assert refused.value.reason == BillVerdict.UNKNOWN_CONTEXT
    with pytest.raises(BillRefused):
        Offer.decrypted(answers[0], keys[2])
