"""An audit log: whatever is edited, removed, moved or cut is noticed by whoever keeps a receipt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from room_terms import KEYS
from tacit.cleanroom.wire import signing
from tacit.cleanroom.wire.agreement import Role
from tacit.cleanroom.wire.answers import Receipt
from tacit.cleanroom.wire.audit_log import Entry, _hash, append, check_receipt, receipt, verify
from tacit.errors import AuditBroken, BadInput
from tacit.privacy.ledger.chain import START, Head

KEY = KEYS[Role.ROOM]
PUBLIC = signing.public_key(KEY)


def log(length: int) -> list[Entry]:
    entries: list[Entry] = []
    for number in range(length):
        head = entries[-1].head if entries else START
        entries.append(append(head, {"kind": "step", "at": 1_000 + number, "rows": 512, "request": "ab" * 4}))
    return entries


LOG = log(4)
RECEIPTS = [receipt(entry.head, KEY) for entry in LOG]


def test_a_log_holds_and_tells_its_head() -> None:
    assert verify(LOG) == LOG[-1].head
    assert verify([]) == START
    assert verify(LOG, heads=[START, *RECEIPTS]) == LOG[-1].head
    assert LOG[2].event == {"kind": "step", "at": 1_002, "rows": 512, "request": "ab" * 4}
    assert [Entry.from_json(entry.as_json()) for entry in LOG] == LOG


def test_a_log_is_verified_piece_by_piece() -> None:
    middle = verify(LOG[:2])
    assert verify(LOG[2:], after=middle, heads=RECEIPTS[1:]) == LOG[-1].head
    with pytest.raises(AuditBroken, match="entry 3"):
        verify(LOG[3:], after=middle)
    with pytest.raises(BadInput, match="receipts from entry 2"):
        verify(LOG[2:], after=middle, heads=RECEIPTS)


def fields_of(entry: Entry) -> dict[str, str]:
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
            verify(edited)
    assert edits > 600


@pytest.mark.parametrize("at", range(4))
def test_another_sequence_is_noticed(at: int) -> None:
    for other in (0, -1, at, at + 2):
        with pytest.raises(AuditBroken, match=f"entry {at + 1} "):
            verify([*LOG[:at], replace(LOG[at], sequence=other), *LOG[at + 1 :]])


@pytest.mark.parametrize("at", range(3))
def test_removals_and_swaps_are_noticed(at: int) -> None:
    with pytest.raises(AuditBroken, match=f"entry {at + 1} "):
        verify([*LOG[:at], *LOG[at + 1 :]])
    with pytest.raises(AuditBroken, match=f"entry {at + 1} "):
        verify([*LOG[:at], LOG[at + 1], LOG[at], *LOG[at + 2 :]])
    with pytest.raises(AuditBroken, match=f"entry {at + 2} "):
        verify([*LOG[: at + 1], LOG[at], *LOG[at + 1 :]])


@pytest.mark.parametrize("kept", range(4))
def test_a_cut_end_is_noticed_by_who_keeps_a_receipt(kept: int) -> None:
    for length in range(4):
        if length > kept:
            verify(LOG[:length], heads=[RECEIPTS[kept]])
            continue
        with pytest.raises(AuditBroken, match=f"ends at entry {length}, .* receipt of entry {kept + 1}"):
            verify(LOG[:length], heads=[RECEIPTS[kept]])


def rewritten(at: int) -> list[Entry]:
    """All entries anew from one on, every hash right: what a room could do that edits its own log."""
    entries = LOG[:at]
    for entry in LOG[at:]:
        head = entries[-1].head if entries else START
        entries.append(append(head, {**entry.event, "rows": 511}))
    return entries


@pytest.mark.parametrize("at", range(4))
def test_a_rewritten_log_holds_by_itself_and_not_against_a_receipt(at: int) -> None:
    forged = rewritten(at)
    verify(forged)
    for place, kept in enumerate(RECEIPTS):
        if place < at:
            verify(forged, heads=[kept])
            continue
        with pytest.raises(AuditBroken, match=f"entry {place + 1} is not the one of a kept receipt"):
            verify(forged, heads=[kept])


def test_a_receipt_is_signed_by_the_room() -> None:
    kept = RECEIPTS[1]
    check_receipt(kept, PUBLIC)
    flipped = bytes([kept.signature[0] ^ 1]) + kept.signature[1:]
    for other in (
        Receipt(kept.sequence + 1, kept.hash, kept.signature),
        Receipt(kept.sequence, RECEIPTS[2].hash, kept.signature),
        Receipt(kept.sequence, kept.hash, flipped),
    ):
        with pytest.raises(AuditBroken, match="not signed"):
            check_receipt(other, PUBLIC)
    with pytest.raises(AuditBroken, match="not signed"):
        check_receipt(kept, signing.public_key(KEYS[Role.PLATFORM]))


@given(text=st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_contents_that_are_no_event_do_not_hold_however_well_hashed(text: str) -> None:
    made = Entry(1, START.hash, text, _hash(1, START.hash, text))
    with pytest.raises(AuditBroken, match="entry 1"):
        verify([made])
    with pytest.raises(AuditBroken, match="entry 1"):
        made.event  # noqa: B018


def test_events_say_their_kind_and_stay_small() -> None:
    with pytest.raises(BadInput, match="kind"):
        append(START, {"rows": 3})
    with pytest.raises(BadInput, match="at most"):
        append(START, {"kind": "step", "more": "x" * 2**16})


@pytest.mark.parametrize(
    "record",
    [None, [], {}, {**LOG[0].as_json(), "more": 1}, {**LOG[0].as_json(), "sequence": "1"},
     {**LOG[0].as_json(), "hash": 3}, {**LOG[0].as_json(), "sequence": True}],
    ids=range(7),
)  # fmt: skip
def test_other_records_are_no_entries(record: object) -> None:
    with pytest.raises(AuditBroken):
        Entry.from_json(record)


def test_the_chain_starts_where_everybody_knows() -> None:
    elsewhere = append(Head(0, "1" * 64), {"kind": "step"})
    with pytest.raises(AuditBroken, match="entry 1 "):
        verify([elsewhere])
