"""Golden vectors of billing, for two languages: every message is written, read and refused as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tacit.bill.protocol.batches import Batch, BatchStatement, CohortStatement, Receipt
from tacit.bill.protocol.directory import Directory, DirectoryLeaf, EpochHead, check_listed, leaf_hash
from tacit.bill.protocol.encoding import BillVerdict, Reader
from tacit.bill.protocol.keys import OpeningKey
from tacit.bill.protocol.menus import Lane, PricedMenu, context_bytes
from tacit.bill.protocol.offers import Offer, OfferRequest
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.protocol.tokens import TokenPublicKey, finalize, token_message, token_nonce
from tacit.entropy import Entropy
from tacit.errors import BillRefused
from tests.support import billing_messages as made
from tests.support.billing_spelling import (
    menu_fields,
    node_of,
    path_by_definition,
    root_by_definition,
    spelled_head,
    spelled_leaf,
    spelled_menu,
)
from tests.support.repository import VECTORS
from tests.vectors.make_billing_v1 import records

BILLING_V1: dict[str, Any] = json.loads((VECTORS / "billing_v1.json").read_text())
SERVER, PROXY = (bytes.fromhex(BILLING_V1["signing_keys"][name]["public"]) for name in ("ad_server", "proxy"))
REQUESTS, SEALS = (
    OpeningKey(bytes.fromhex(BILLING_V1[name]["private"])) for name in ("request_key", "epoch_key")
)


def names(kind: str) -> list[str]:
    return sorted(BILLING_V1[kind])


def held_to(verdict: str, read: Any, *arguments: Any) -> None:
    """The reader refuses, by this verdict and no other way."""
    with pytest.raises(BillRefused) as refusal:
        read(*arguments)
    assert BillVerdict(refusal.value.reason).name == verdict


def test_all_vectors_come_out_as_they_are() -> None:
    assert json.loads(json.dumps(records(made.token_keys()))) == BILLING_V1


@pytest.mark.parametrize("name", names("menus"))
def test_menus(name: str) -> None:
    said = BILLING_V1["menus"][name]
    menu = PricedMenu.from_bytes(bytes.fromhex(said["bytes"]))
    assert menu.menu_id.hex() == said["menu_id"]
    assert {**menu_fields(menu), "bytes": said["bytes"], "menu_id": said["menu_id"]} == said
    assert spelled_menu(said).hex() == said["bytes"]


@pytest.mark.parametrize("name", names("bad_menus"))
def test_bad_menus(name: str) -> None:
    said = BILLING_V1["bad_menus"][name]
    held_to(said["verdict"], PricedMenu.from_bytes, bytes.fromhex(said["bytes"]))


def test_the_directory_by_the_definition_of_its_tree() -> None:
    said = BILLING_V1["directory"]
    found = Directory.from_bytes(bytes.fromhex(said["bytes"]))
    leaves = [bytes.fromhex(each["bytes"]) for each in said["leaves"]]
    for place, (each, leaf) in enumerate(zip(said["leaves"], found.leaves, strict=True)):
        assert leaf.node == node_of(each["context"])
        assert leaf.to_bytes() == leaves[place]
        lane = int(each["lane"] == "personal")
        facts = bytes.fromhex(each["menu_id"]), bytes.fromhex(each["token_key"]), each["smallest_cohort"]
        assert spelled_leaf(context_bytes(leaf.node), lane, *facts) == leaves[place]
        assert leaf_hash(leaf).hex() == each["hash"]
        assert [beside.hex() for beside in path_by_definition(place, leaves)] == each["path"]
        check_listed(leaf, place, [bytes.fromhex(beside) for beside in each["path"]], found.head)
    assert root_by_definition(leaves) == found.head.root == bytes.fromhex(said["tree"][-1][0])


def test_the_head_carries_both_signatures() -> None:
    said = BILLING_V1["directory"]["head"]
    head = EpochHead.from_bytes(bytes.fromhex(said["bytes"]))
    head.check(SERVER, PROXY)
    times = said["epoch"], said["opens"], said["closes"], said["expires"]
    keys = bytes.fromhex(said["root"]), bytes.fromhex(said["sealing_key"])
    assert spelled_head(*times, said["menus"], *keys).hex() == said["body"] == head.body.hex()
    assert said["sealing_key"] == SEALS.public.hex()


@pytest.mark.parametrize("name", names("bad_directories"))
def test_bad_directories(name: str) -> None:
    said = BILLING_V1["bad_directories"][name]
    held_to(said["verdict"], Directory.from_bytes, bytes.fromhex(said["bytes"]))


@pytest.mark.parametrize("name", names("bad_heads"))
def test_bad_heads(name: str) -> None:
    said = BILLING_V1["bad_heads"][name]
    held_to(
        said["verdict"],
        lambda data: EpochHead.from_bytes(data).check(SERVER, PROXY),
        bytes.fromhex(said["bytes"]),
    )


@pytest.mark.parametrize("name", names("bad_proofs"))
def test_bad_proofs(name: str) -> None:
    said = BILLING_V1["bad_proofs"][name]
    leaf = DirectoryLeaf.parse(Reader(bytes.fromhex(said["leaf"])))
    head = EpochHead.from_bytes(bytes.fromhex(BILLING_V1["directory"]["head"]["bytes"]))
    held_to(
        said["verdict"], check_listed, leaf, said["place"], [bytes.fromhex(each) for each in said["path"]], head
    )


@pytest.mark.parametrize("said", BILLING_V1["requests"])
def test_requests_open(said: dict[str, Any]) -> None:
    asked = OfferRequest.opened_by(REQUESTS, bytes.fromhex(said["sealed"]))
    assert asked == OfferRequest(
        said["epoch"], Lane(said["lane"]), node_of(said["context"]),
        tuple(bytes.fromhex(each) for each in said["blinded"]),
        bytes.fromhex(said["answer_key"]), bytes.fromhex(said["known_menu"]),
    )  # fmt: skip
    opened = REQUESTS.open(asked.sealed_to(REQUESTS.public), bytes.fromhex(said["seal_info"]))
    assert opened.hex() == said["plain"]


@pytest.mark.parametrize("name", names("bad_requests"))
def test_bad_requests(name: str) -> None:
    said = BILLING_V1["bad_requests"][name]
    held_to(said["verdict"], OfferRequest.opened_by, REQUESTS, bytes.fromhex(said["bytes"]))


@pytest.mark.parametrize("said", BILLING_V1["offers"])
def test_offers_open(said: dict[str, Any]) -> None:
    data, key = bytes.fromhex(said["encrypted"]), bytes.fromhex(said["answer_key"])
    if "refused" in said:
        held_to(said["refused"], Offer.decrypted, data, key)
        return
    offer = Offer.decrypted(data, key)
    assert [each.hex() for each in offer.signatures] == said["signatures"]
    assert (offer.listed is None) == (said["menu"] is None)
    if offer.listed is not None:
        assert offer.listed.menu.menu_id.hex() == BILLING_V1["menus"][said["menu"]]["menu_id"]
        assert offer.listed.token_key.modulus.hex() == said["token_key"]
        assert (offer.listed.place, [each.hex() for each in offer.listed.path]) == (said["place"], said["path"])


@pytest.mark.parametrize("name", names("bad_offers"))
def test_bad_offers(name: str) -> None:
    said = BILLING_V1["bad_offers"][name]
    held_to(said["verdict"], Offer.decrypted, bytes.fromhex(said["bytes"]), made.ANSWER_KEY)


@pytest.mark.parametrize("said", BILLING_V1["tokens"])
def test_tokens(said: dict[str, Any]) -> None:
    key, secret = made.key_of(said["menu"]), bytes.fromhex(said["secret"])
    menu_id = bytes.fromhex(BILLING_V1["menus"][said["menu"]]["menu_id"])
    message = token_message(token_nonce(secret), menu_id)
    assert (token_nonce(secret).hex(), message.hex()) == (said["nonce"], said["message"])
    encoded, blinded = made.blinded_by(key, message, bytes.fromhex(said["salt"]), int(said["factor"], 16))
    assert (f"{encoded:0512x}", blinded.blinded.hex()) == (said["encoded"], said["blinded"])
    signature = key.sign_blinded(blinded.blinded, Entropy())
    assert signature.hex() == said["blind_signature"]
    assert finalize(key.public, message, signature, blinded.inverse).hex() == said["token"]


@pytest.mark.parametrize("name", names("bad_tokens"))
def test_bad_tokens(name: str) -> None:
    said = BILLING_V1["bad_tokens"][name]
    key = made.key_of("personal").public
    assert not key.verify(bytes.fromhex(said["message"]), bytes.fromhex(said["bytes"]))
    # As a blind signature with nothing to take off it is refused too.
    one = (1).to_bytes(256, "big")
    if name != "bad_plus_modulus":  # taken off modulo the modulus, this is the token itself
        held_to(
            said["verdict"], finalize, key, bytes.fromhex(said["message"]), bytes.fromhex(said["bytes"]), one
        )


@pytest.mark.parametrize("name", names("bad_blinded"))
def test_bad_blinded_messages_are_not_signed(name: str) -> None:
    said = BILLING_V1["bad_blinded"][name]
    held_to(said["verdict"], made.key_of("personal").sign_blinded, bytes.fromhex(said["bytes"]), Entropy())


def judged(data: bytes) -> None:
    """A report of the menu "personal", as its ad server judges it."""
    report = ImpressionReport.from_bytes(data)
    menu = made.menus_of_every_kind()["personal"]
    if report.menu_id != menu.menu_id:
        raise BillRefused(BillVerdict.UNKNOWN_MENU)
    if not report.has_token_of(TokenPublicKey(made.key_of("personal").public.modulus)):
        raise BillRefused(BillVerdict.FORGED)
    if menu.price_micros(report.open(SEALS).index) is None:
        raise BillRefused(BillVerdict.NO_SUCH_ENTRY)


@pytest.mark.parametrize("said", BILLING_V1["reports"])
def test_reports_open(said: dict[str, Any]) -> None:
    data = bytes.fromhex(said["bytes"])
    report = ImpressionReport.from_bytes(data)
    assert report.to_bytes() == data
    opening = report.open(SEALS)
    assert (opening.secret.hex(), opening.index) == (said["secret"], said["index"])
    assert report.commitment.hex() == said["commitment"]
    assert SEALS.open(report.sealed, bytes.fromhex(said["seal_info"])).hex() == said["sealed_plain"]
    if said["menu"] == "personal":
        judged(data)


@pytest.mark.parametrize("name", names("bad_reports"))
def test_bad_reports(name: str) -> None:
    said = BILLING_V1["bad_reports"][name]
    held_to(said["verdict"], judged, bytes.fromhex(said["bytes"]))


def test_the_batch_and_its_statement() -> None:
    said = BILLING_V1["batch"]
    batch = Batch.from_bytes(bytes.fromhex(said["bytes"]))
    batch.statement.check(PROXY)
    assert batch.statement.to_bytes().hex() == said["statement"]
    assert (batch.statement.reports, batch.statement.digest.hex()) == (said["reports"], said["digest"])
    assert batch.to_bytes().hex() == said["bytes"]


@pytest.mark.parametrize("name", names("bad_statements"))
def test_bad_statements(name: str) -> None:
    said = BILLING_V1["bad_statements"][name]
    held_to(
        said["verdict"], lambda data: BatchStatement.from_bytes(data).check(PROXY), bytes.fromhex(said["bytes"])
    )


@pytest.mark.parametrize("name", names("bad_batches"))
def test_bad_batches(name: str) -> None:
    said = BILLING_V1["bad_batches"][name]
    held_to(said["verdict"], Batch.from_bytes, bytes.fromhex(said["bytes"]))


def test_the_cohort() -> None:
    said = BILLING_V1["cohort"]
    cohort = CohortStatement.from_bytes(bytes.fromhex(said["bytes"]))
    cohort.check(PROXY)
    assert (cohort.reports, cohort.epoch, cohort.menu_id.hex()) == (1, said["epoch"], said["menu_id"])
    assert bytes.fromhex(said["signs"]) == b"tacit/cohort/1\0" + cohort.body
    assert cohort.to_bytes().hex() == said["bytes"]


@pytest.mark.parametrize("name", names("bad_cohorts"))
def test_bad_cohorts(name: str) -> None:
    said = BILLING_V1["bad_cohorts"][name]
    held_to(
        said["verdict"],
        lambda data: CohortStatement.from_bytes(data).check(PROXY),
        bytes.fromhex(said["bytes"]),
    )


def test_the_receipt() -> None:
    said = BILLING_V1["receipt"]
    receipt = Receipt.from_bytes(bytes.fromhex(said["bytes"]))
    receipt.check(SERVER)
    assert [BillVerdict(each).name for each in receipt.verdicts] == said["verdicts"]
    assert (receipt.charged, receipt.duplicate, receipt.rejected) == (1, 1, 1)
    assert receipt.to_bytes().hex() == said["bytes"]


@pytest.mark.parametrize("name", names("bad_receipts"))
def test_bad_receipts(name: str) -> None:
    said = BILLING_V1["bad_receipts"][name]
    held_to(said["verdict"], lambda data: Receipt.from_bytes(data).check(SERVER), bytes.fromhex(said["bytes"]))
