"""Requests, offers and reports: only their reader opens them, and their lengths tell nothing."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.bill.protocol.batches import MOST_REPORTS, Batch, BatchStatement, Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import (
    LONGEST_REQUEST,
    MOST_TOKENS,
    Offer,
    OfferRequest,
    encrypted_refusal,
)
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport, Opening, choice_commitment
from tacit.bill.protocol.tokens import token_nonce
from tacit.entropy import Entropy
from tacit.errors import BadInput, BillRefused
from tacit.schema.contexts.hierarchy import Node
from tacit.sealing import open_seal, seal
from tests.support import billing_messages as made
from tests.support.hpke_by_hand import sealed_by_hand

SECRET = bytes(range(200, 232))
CONTEXTS = [made.FOOD, made.LONGEST, Node((0,), ("",)), Node((0,) * 50, ("",) * 50)]


def a_request(node: Node = made.FOOD, tokens: int = 1, lane: Lane = Lane.PERSONAL) -> OfferRequest:
    return OfferRequest(made.EPOCH, lane, node, (bytes(256),) * tokens, made.ANSWER_KEY)


@given(st.binary(max_size=200), st.binary(max_size=80), st.binary(min_size=32, max_size=32))
@settings(max_examples=25)
def test_seals_are_those_of_rfc_9180(plain: bytes, info: bytes, ephemeral: bytes) -> None:
    """A second implementation's seals open, and with its key and bytes there is one seal."""
    sealed = sealed_by_hand(plain, made.SEALS.public, info, ephemeral)
    assert made.SEALS.open(sealed, info) == plain
    assert len(sealed) == len(seal(plain, made.SEALS.public, info))
    assert made.SEALS.open(seal(plain, made.SEALS.public, info), info) == plain
    assert open_seal(sealed, made.REQUESTS._private, info) is None


@pytest.mark.parametrize("tokens", range(MOST_TOKENS + 1))
def test_a_request_for_so_many_tokens_has_one_length(tokens: int) -> None:
    lengths = {
        len(replace(a_request(node, tokens, lane), known=known).sealed_to(made.REQUESTS.public))
        for node in CONTEXTS
        for lane in Lane
        for known in (bytes(32), b"k" * 32)
    }
    assert len(lengths) == 1
    assert max(lengths) <= LONGEST_REQUEST


@given(st.integers(0, 2**32 - 1), st.sampled_from(Lane), st.sampled_from(CONTEXTS), st.integers(0, MOST_TOKENS))
@settings(max_examples=25)
def test_requests_are_read_back(epoch: int, lane: Lane, node: Node, tokens: int) -> None:
    request = replace(a_request(node, tokens, lane), epoch=epoch)
    assert OfferRequest.opened_by(made.REQUESTS, request.sealed_to(made.REQUESTS.public)) == request


def test_requests_of_other_values_are_refused_and_show_no_context() -> None:
    with pytest.raises(BadInput, match="at most 16 tokens"):
        a_request(tokens=MOST_TOKENS + 1)
    with pytest.raises(BadInput, match="at most 160 bytes"):
        a_request(Node((0,), ("x" * 157,))).sealed_to(made.REQUESTS.public)
    for wrong in ({"epoch": 2**32}, {"epoch": -1}, {"answer_key": b""}, {"known": b""}, {"blinded": (b"",)}):
        with pytest.raises(BadInput, match="expected"):
            replace(a_request(), **wrong)
    assert "Food" not in repr(a_request())
    assert made.ANSWER_KEY.hex() not in repr(a_request())


@pytest.mark.parametrize("tokens", [0, 1, 2, MOST_TOKENS])
def test_a_refusal_is_as_long_as_an_offer_without_a_menu(tokens: int) -> None:
    offered = Offer((bytes(256),) * tokens).encrypted(made.ANSWER_KEY, Entropy())
    for verdict in BillVerdict:
        if verdict:
            refused = encrypted_refusal(verdict, a_request(tokens=tokens), Entropy())
            assert len(refused) == len(offered)
            with pytest.raises(BillRefused) as refusal:
                Offer.decrypted(refused, made.ANSWER_KEY)
            assert refusal.value.reason is verdict


@given(st.integers(0, MOST_TOKENS), st.sampled_from([None, "personal", "finer", "limits", "public"]))
@settings(max_examples=25)
def test_offers_are_padded_and_read_back(tokens: int, name: str | None) -> None:
    listed = None if name is None else made.listed(name, made.directory())
    offer = Offer(tuple(bytes([at]) * 256 for at in range(tokens)), listed)
    sent = offer.encrypted(made.ANSWER_KEY, Entropy())
    assert len(sent) % 256 == 0
    assert Offer.decrypted(sent, made.ANSWER_KEY) == offer
    assert sent != offer.encrypted(made.ANSWER_KEY, Entropy())


def test_a_changed_offer_does_not_open() -> None:
    sent = Offer((bytes(256),)).encrypted(made.ANSWER_KEY, Entropy())
    for at in range(0, len(sent), 7):
        changed = bytearray(sent)
        changed[at] ^= 0x10
        with pytest.raises(BillRefused) as refusal:
            Offer.decrypted(bytes(changed), made.ANSWER_KEY)
        assert refusal.value.reason is BillVerdict.UNOPENABLE
    for key in (bytes(32), bytes(5), b""):
        with pytest.raises(BillRefused):
            Offer.decrypted(sent, key)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 255))
@settings(max_examples=25)
def test_reports_have_434_bytes_whatever_they_say(secret: bytes, index: int) -> None:
    secret = hashlib.sha256(secret).digest()  # unlike the zeros around it
    report = ImpressionReport.make(bytes(32), secret, bytes(256), index, made.SEALS.public)
    data = report.to_bytes()
    assert len(data) == REPORT_BYTES == 434
    found = ImpressionReport.from_bytes(data)
    assert found == report
    assert found.open(made.SEALS) == Opening(secret, index)
    # What the proxy reads: neither the secret nor the index is among it.
    assert secret not in data
    assert data[:353] == b"\x01" + bytes(32) + token_nonce(secret) + bytes(256) + choice_commitment(
        secret, index
    )


def test_reports_of_other_values_are_refused_and_show_no_choice() -> None:
    for index in (-1, 256):
        with pytest.raises(BadInput, match=r"0\.\.255"):
            ImpressionReport.make(bytes(32), SECRET, bytes(256), index, made.SEALS.public)
    for secret, token in ((bytes(31), bytes(256)), (SECRET, bytes(255))):
        with pytest.raises(BadInput, match="expected"):
            ImpressionReport.make(bytes(32), secret, token, 1, made.SEALS.public)
    for key in (b"", bytes(32), bytes(31)):
        with pytest.raises(BadInput, match="expected a public key"):
            ImpressionReport.make(bytes(32), SECRET, bytes(256), 1, key)
    report = made.report_of("personal", SECRET, 3)
    opened = report.open(made.SEALS)
    for shown in (repr(report), repr(opened), str(opened)):
        assert SECRET.hex() not in shown
        assert "index=3" not in shown


def test_a_commitment_holds_secret_and_index_and_hides_both() -> None:
    by_hand = hashlib.sha256(b"tacit/choice/1" + SECRET + b"\x07").digest()
    assert choice_commitment(SECRET, 7) == by_hand
    others = {choice_commitment(SECRET, index) for index in range(256)}
    assert len(others) == 256
    assert token_nonce(SECRET) not in others


def test_an_opening_fits_one_report() -> None:
    report = made.report_of("personal", SECRET, 2)
    report.check_opening(Opening(SECRET, 2))
    for wrong in (Opening(SECRET, 1), Opening(SECRET, 0), Opening(bytes(32), 2)):
        with pytest.raises(BillRefused) as refusal:
            report.check_opening(wrong)
        assert refusal.value.reason is BillVerdict.WRONG_OPENING
    with pytest.raises(BillRefused) as refusal:
        report.open(OpeningKey(bytes(32)))
    assert refusal.value.reason is BillVerdict.UNOPENABLE


def test_receipts_tell_no_price_and_no_empty_budget() -> None:
    """As long as their verdicts, whatever was charged; what is held is charged as far as the proxy knows."""
    held = bytes([BillVerdict.ACCEPTED, BillVerdict.OVER_BUDGET, BillVerdict.NO_SUCH_ENTRY])
    paid = bytes([BillVerdict.ACCEPTED, BillVerdict.ACCEPTED, BillVerdict.NO_SUCH_ENTRY])
    signed = Receipt.sign(made.SERVER, bytes(16), held)
    assert signed == Receipt.sign(made.SERVER, bytes(16), paid)
    signed.check(made.SERVER.public)
    assert (signed.received, signed.charged, signed.duplicate, signed.rejected) == (3, 2, 0, 1)
    with pytest.raises(BadInput, match="a verdict for each report"):
        Receipt(bytes(16), held)
    for verdicts in (b"", b"\xff", bytes(MOST_REPORTS + 1)):
        with pytest.raises(BadInput):
            Receipt(bytes(16), verdicts)


@given(st.lists(st.sampled_from(sorted(set(BillVerdict) - {BillVerdict.OVER_BUDGET})), min_size=1, max_size=60))
def test_receipts_add_up(verdicts: list[BillVerdict]) -> None:
    receipt = Receipt.sign(made.SERVER, bytes(16), bytes(verdicts))
    assert receipt.received == receipt.charged + receipt.duplicate + receipt.rejected == len(verdicts)
    assert Receipt.from_bytes(receipt.to_bytes()) == receipt


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
@settings(max_examples=25)
def test_batches_are_read_back(epoch: int, count: int) -> None:
    reports = tuple(bytes([1, at]) + bytes(REPORT_BYTES - 2) for at in range(count))
    batch = Batch(BatchStatement.sign(made.PROXY, bytes(16), bytes(32), epoch, reports), reports)
    assert Batch.from_bytes(batch.to_bytes()) == batch
    for other in (reports[1:], (*reports, reports[0]), reports[::-1] if count > 1 else ()):
        with pytest.raises(BadInput, match="the reports that the statement is of"):
            Batch(batch.statement, other)


def test_statements_of_other_values_are_refused() -> None:
    good = made.batch().statement
    for wrong in (
        {"batch_id": b""}, {"menu_id": b""}, {"digest": b""}, {"signature": b""}, {"reports": 0},
        {"reports": MOST_REPORTS + 1}, {"reports": True}, {"epoch": -1}, {"epoch": 2**32},
    ):  # fmt: skip
        with pytest.raises(BadInput, match="expected"):
            replace(good, **wrong)
    assert len(good.to_bytes()) == 153
