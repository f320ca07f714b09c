"""An audit log: whatever is edited, removed, moved or cut is noticed by whoever keeps a receipt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.cleanroom.protocol import signatures
from tacit.cleanroom.protocol.answers import AuditReceipt
from tacit.cleanroom.protocol.audit_log import (
    AuditEntry,
    _hash,
    check_receipt,
    next_entry,
    sign_receipt,
    verify_log,
)
from tacit.cleanroom.protocol.modes import Signer
from tacit.errors import AuditBroken, BadInput
from tacit.privacy.ledger.chain import START, ChainHead
from tests.support.room_terms import KEYS

KEY = KEYS[Signer.ROOM]
PUBLIC = signatures.public_key(KEY)


def log(length: int) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for number in range(length):
        head = entries[-1].head if entries else START
        entries.append(
            next_entry(head, {"kind": "step", "at": 1_000 + number, "rows": 512, "request": "ab" * 4})
        )
    return entries


LOG = log(4)
RECEIPTS = [sign_receipt(entry.head, KEY) for entry in LOG]


def test_a_log_holds_and_tells_its_head() -> None:
    assert verify_log(LOG) == LOG[-1].head
    assert verify_log([]) == START
    assert verify_log(LOG, heads=[START, *RECEIPTS]) == LOG[-1].head
    assert LOG[2].event == {"kind": "step", "at": 1_002, "rows": 512, "request": "ab" * 4}
    assert [AuditEntry.from_json(entry.as_json()) for entry in LOG] == LOG


def test_a_log_is_verified_piece_by_piece() -> None:
    middle = verify_log(LOG[:2])
    assert verify_log(LOG[2:], after=middle, heads=RECEIPTS[1:]) == LOG[-1].head
    with pytest.raises(AuditBroken, match="entry 3"):
        verify_log(LOG[3:], after=middle)
    with pytest.raises(BadInput, match="receipts from entry 2"):
        verify_log(LOG[2:], after=middle, heads=RECEIPTS)


def fields_of(entry: AuditEntry) -> dict[str, str]:
    return {"previous": entry.previous, "contents": entry.contents, "hash": entry.hash}


SPOTS = [(at, key, spot) for at, entry in enumerate(LOG) for key, text in fields_of(entry).items()
         for spot in range(len(text))]  # fmt: skip


@pytest.mark.parametrize("other", ["0", "1", " ", "~"])
def test_every_edit_of_one_character_is_noticed_at_its_entry(other: str) -> None:
    edits = 0
    for at, key, spot in SPOTS:
        text = fields_of(LOG[at])[key]
        if text[spot] == other:
            continue
        edits += 1
        changed: dict[str, Any] = {key: text[:spot] + other + text[spot + 1 :]}
        edited = [*LOG[:at], replace(LOG[at], **changed), *LOG[at + 1 :]]
        with pytest.raises(AuditBroken, match=f"entry {at + 1} "):
            verify_log(edited)
    assert edits > 600


@pytest.mark.parametrize("at", range(4))
def test_another_sequence_is_noticed(at: int) -> None:
    for other in (0, -1, at, at + 2):
        with pytest.raises(AuditBroken, match=f"entry {at + 1} "):
            verify_log([*LOG[:at], replace(LOG[at], sequence=other), *LOG[at + 1 :]])


@pytest.mark.parametrize("at", range(3))
def test_removals_and_swaps_are_noticed(at: int) -> None:
    with pytest.raises(AuditBroken, match=f"entry {at + 1} "):
        verify_log([*LOG[:at], *LOG[at + 1 :]])
    with pytest.raises(AuditBroken, match=f"entry {at + 1} "):
        verify_log([*LOG[:at], LOG[at + 1], LOG[at], *LOG[at + 2 :]])
    with pytest.raises(AuditBroken, match=f"entry {at + 2} "):
        verify_log([*LOG[: at + 1], LOG[at], *LOG[at + 1 :]])


@pytest.mark.parametrize("kept", range(4))
def test_a_cut_end_is_noticed_by_who_keeps_a_receipt(kept: int) -> None:
    for length in range(4):
        if length > kept:
            verify_log(LOG[:length], heads=[RECEIPTS[kept]])
            continue
        with pytest.raises(AuditBroken, match=f"ends at entry {length}, .* receipt of entry {kept + 1}"):
            verify_log(LOG[:length], heads=[RECEIPTS[kept]])


def rewritten(at: int) -> list[AuditEntry]:
    """All entries anew from one on, every hash right: what a room could do that edits its own log."""
    entries = LOG[:at]
    for entry in LOG[at:]:
        head = entries[-1].head if entries else START
        entries.append(next_entry(head, {**entry.event, "rows": 511}))
    return entries


@pytest.mark.parametrize("at", range(4))
def test_a_rewritten_log_holds_by_itself_and_not_against_a_receipt(at: int) -> None:
    forged = rewritten(at)
    verify_log(forged)
    for place, kept in enumerate(RECEIPTS):
        if place < at:
            verify_log(forged, heads=[kept])
            continue
        with pytest.raises(AuditBroken, match=f"entry {place + 1} is not the one of a kept receipt"):
            verify_log(forged, heads=[kept])


def test_a_receipt_is_signed_by_the_room() -> None:
    kept = RECEIPTS[1]
    check_receipt(kept, PUBLIC)
    flipped = bytes([kept.signature[0] ^ 1]) + kept.signature[1:]
    for other in (
        AuditReceipt(kept.sequence + 1, kept.hash, kept.signature),
        AuditReceipt(kept.sequence, RECEIPTS[2].hash, kept.signature),
        AuditReceipt(kept.sequence, kept.hash, flipped),
    ):
        with pytest.raises(AuditBroken, match="not signed"):
            check_receipt(other, PUBLIC)
    with pytest.raises(AuditBroken, match="not signed"):
        check_receipt(kept, signatures.public_key(KEYS[Signer.PLATFORM]))


@given(text=st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_contents_that_are_no_event_do_not_hold_however_well_hashed(text: str) -> None:
    made = AuditEntry(1, START.hash, text, _hash(1, START.hash, text))
    with pytest.raises(AuditBroken, match="entry 1"):
        verify_log([made])
    with pytest.raises(AuditBroken, match="entry 1"):
        made.event  # noqa: B018


def test_events_say_their_kind_and_stay_small() -> None:
    with pytest.raises(BadInput, match="kind"):
        next_entry(START, {"rows": 3})
    with pytest.raises(BadInput, match="at most"):
        next_entry(START, {"kind": "step", "more": "x" * 2**16})


@pytest.mark.parametrize(
    "record",
    [None, [], {}, {**LOG[0].as_json(), "more": 1}, {**LOG[0].as_json(), "sequence": "1"},
     {**LOG[0].as_json(), "hash": 3}, {**LOG[0].as_json(), "sequence": True}],
    ids=range(7),
)  # fmt: skip
def test_other_records_are_no_entries(record: object) -> None:
    with pytest.raises(AuditBroken):
        AuditEntry.from_json(record)


def test_the_chain_starts_where_everybody_knows() -> None:
    elsewhere = next_entry(ChainHead(0, "1" * 64), {"kind": "step"})
    with pytest.raises(AuditBroken, match="entry 1 "):
        verify_log([elsewhere])
