"""Every message of billing: one spelling each, read to the last byte, and a refusal for all the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.protocol.batches import Batch, BatchStatement, Receipt
from tacit.bill.protocol.directory import Directory, EpochHead
from tacit.bill.protocol.encoding import BillVerdict, Reader, Writer
from tacit.bill.protocol.keys import SigningKey, check_signature
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.protocol.offers import Offer, OfferRequest
from tacit.bill.protocol.reports import ImpressionReport
from tacit.errors import BadInput, BillRefused
from tests.support import billing_messages as made
from tests.support.billing_refusals import STRANGER

MESSAGES = made.messages_of_every_kind()
LABELS = [b"tacit/epoch/1", b"tacit/epoch/1/countersigned", b"tacit/batch/1", b"tacit/receipt/1", b"", b"tacit"]


def authentic(message: Any) -> None:
    """Held to whoever must have signed it."""
    if isinstance(message, EpochHead):
        message.check(made.SERVER.public, made.PROXY.public)
    elif isinstance(message, Directory):
        message.head.check(made.SERVER.public, made.PROXY.public)
    elif isinstance(message, BatchStatement):
        message.check(made.PROXY.public)
    elif isinstance(message, Batch):
        message.statement.check(made.PROXY.public)
    elif isinstance(message, Receipt):
        message.check(made.SERVER.public)
    elif isinstance(message, ImpressionReport):
        if not message.has_token_of(made.key_of("personal").public):
            raise BillRefused(BillVerdict.FORGED)
        message.open(made.SEALS)
    elif isinstance(message, PricedMenu) and message.menu_id not in KNOWN:
        raise BillRefused(BillVerdict.NOT_LISTED)


KNOWN = {menu.menu_id for menu in made.menus_of_every_kind().values()}


def read(kind: type, data: bytes) -> bool:
    """Whether bytes were read, into what is written as the same bytes; else they were refused as malformed."""
    try:
        found = kind.from_bytes(data)  # type: ignore[attr-defined]
    except BillRefused as refused:
        if refused.reason is not BillVerdict.MALFORMED:
            raise
        return False
    assert found.to_bytes() == data
    return True


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_read_back_and_are_authentic(name: str) -> None:
    message = MESSAGES[name]
    found = type(message).from_bytes(message.to_bytes())
    assert found == message
    assert found.to_bytes() == message.to_bytes()
    assert len(repr(message)) < 200
    authentic(found)


@pytest.mark.parametrize("name", MESSAGES)
def test_every_truncation_and_every_extension_is_refused(name: str) -> None:
    kind, data = type(MESSAGES[name]), MESSAGES[name].to_bytes()
    ends = {*range(min(len(data), 500)), *range(0, len(data), 97), *range(max(0, len(data) - 300), len(data))}
    for end in ends:
        assert not read(kind, data[:end])
    for more in (b"\0", b"\x01", bytes(32), data):
        assert not read(kind, data + more)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_changed_bit_is_refused_by_reading_or_by_checking(name: str) -> None:
    """What is still a message is written as it was read, and nobody takes it for authentic."""
    kind, data = type(MESSAGES[name]), MESSAGES[name].to_bytes()
    stride = max(1, len(data) * 8 // 400)
    for bit in range(0, len(data) * 8, stride):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        if read(kind, bytes(changed)):
            with pytest.raises(BillRefused):
                authentic(kind.from_bytes(bytes(changed)))


@given(data=st.data())
def test_random_bytes_are_refused_or_read_as_they_are(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MESSAGES)))
    kind, good = type(MESSAGES[name]), MESSAGES[name].to_bytes()
    begins = data.draw(st.integers(0, min(len(good), 120)))
    read(kind, good[:begins] + data.draw(st.binary(max_size=200)))


@given(data=st.data())
def test_splices_are_refused_or_read_as_they_are(data: st.DataObject) -> None:
    """A stretch that is cut, doubled, or overwritten by bytes of another message."""
    name, other = (data.draw(st.sampled_from(sorted(MESSAGES))) for _ in range(2))
    kind, good, bytes_of = type(MESSAGES[name]), MESSAGES[name].to_bytes(), MESSAGES[other].to_bytes()
    start, end = sorted(data.draw(st.integers(0, len(good))) for _ in range(2))
    low, high = sorted(data.draw(st.integers(0, min(len(bytes_of), 1000))) for _ in range(2))
    spliced = good[:start] + bytes_of[low:high] + good[end:]
    if read(kind, spliced) and spliced != good:
        with pytest.raises(BillRefused):
            authentic(kind.from_bytes(spliced))


@pytest.mark.parametrize("name", MESSAGES)
def test_other_kinds_are_refused(name: str) -> None:
    """No message passes for one of another kind."""
    data = MESSAGES[name].to_bytes()
    for other in {type(each) for each in MESSAGES.values()} - {type(MESSAGES[name])}:
        assert not read(other, data)


READERS: dict[str, Callable[[Any], Any]] = {
    **{type(each).__name__: type(each).from_bytes for each in MESSAGES.values()},
    "Offer": lambda data: Offer.decrypted(data, made.ANSWER_KEY),
    "OfferRequest": lambda data: OfferRequest.opened_by(made.REQUESTS, data),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_bytes_is_refused(name: str) -> None:
    for other in (bytearray(500), memoryview(bytes(500)), "text", None, 7, [1]):
        with pytest.raises((BillRefused, BadInput)):
            READERS[name](other)


@pytest.mark.parametrize("label", LABELS)
def test_a_signature_passes_under_its_own_label_alone(label: bytes) -> None:
    key = SigningKey.derive(b"a secret" * 4)
    signature = key.sign(label, b"body")
    check_signature(key.public, label, b"body", signature)
    for other in {*LABELS} - {label}:
        with pytest.raises(BillRefused) as refusal:
            check_signature(key.public, other, b"body", signature)
        assert refusal.value.reason is BillVerdict.UNAUTHENTICATED
    for wrong in (b"", b"bod", b"body\0"):
        with pytest.raises(BillRefused):
            check_signature(key.public, label, wrong, signature)
    for public in (STRANGER.public, b"", bytes(32), b"\xff" * 32):
        with pytest.raises(BillRefused):
            check_signature(public, label, b"body", signature)
    for other_signature in (b"", bytes(64), signature[:-1], signature + b"\0"):
        with pytest.raises(BillRefused):
            check_signature(key.public, label, b"body", other_signature)


def test_keys_show_their_public_half_alone() -> None:
    for key in (made.SERVER, made.REQUESTS):
        assert key.public.hex()[:40] in repr(key)
    assert made.REQUESTS.to_bytes().hex() not in repr(made.REQUESTS)
    one, two = SigningKey.derive(b"1" * 32), SigningKey.derive(b"2" * 32)
    assert len({one.public, two.public, SigningKey(b"1" * 32).public}) == 3
    for short in (b"", b"1" * 31, "1" * 32):
        with pytest.raises(BadInput, match="a secret to be 32 bytes"):
            SigningKey.derive(short)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "value"),
    [("B", 256), ("B", -1), ("H", 2**16), ("I", 2**32), ("Q", 2**64), ("q", 2**63), ("I", 1.5), ("d", 10**400)],
)
def test_numbers_beyond_their_field_are_refused(layout: str, value: float) -> None:
    with pytest.raises(BadInput, match="fits its field"):
        Writer().number(layout, value)


def test_texts_that_utf8_cannot_spell_are_refused() -> None:
    with pytest.raises(BadInput, match="UTF-8"):
        Writer().text("\ud800")
    with pytest.raises(BadInput, match="fits its field"):
        Writer().text("x" * 65_536)
    with pytest.raises(BillRefused):
        Reader(b"\x00\x01\xff").text()


def test_a_reader_gives_what_is_there_and_no_more() -> None:
    reader = Reader(b"\x00\x02abcd")
    assert reader.blob() == b"ab"
    assert reader.rest() == b"cd"
    assert reader.rest() == b""
    reader.end()
    for ask in (lambda: reader.raw(1), lambda: reader.number("B"), reader.double, reader.blob):
        with pytest.raises(BillRefused):
            ask()
    with pytest.raises(BillRefused):
        Reader(b"\xff\xff\xff\xff").blob("I")  # as long as the bytes say, which are not there
