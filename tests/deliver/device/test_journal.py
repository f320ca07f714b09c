"""A device's journal: one contract, in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.bill.protocol.tokens import TOKEN_BYTES, BlindedMessage, token_nonce
from tacit.deliver.device.account import DeviceAccount, DeviceLimits
from tacit.deliver.device.journal import (
    AFTER,
    DeviceJournal,
    ImpressionRecord,
    ImpressionState,
    KeptMenu,
    MemoryJournal,
)
from tacit.errors import BadInput, BillError, BillRefused
from tacit.store.device_journal import SqlDeviceJournal

STATES = tuple(ImpressionState)
LIMITS = DeviceLimits()
Opened = Callable[[], DeviceJournal]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """The same journal once more at every call."""
    if request.param == "memory":
        only = MemoryJournal()
        return lambda: only
    return lambda: SqlDeviceJournal.open(tmp_path / "ads.sqlite")


def secret(name: int) -> bytes:
    return bytes([name]) * 32


def life(
    name: int = 1, *, menu: int = 9, epoch: int = 7, expires: int = 300
) -> dict[ImpressionState, ImpressionRecord]:
    """One impression in each of its states."""
    blinded = BlindedMessage(b"b" * TOKEN_BYTES, b"i" * TOKEN_BYTES)
    new = ImpressionRecord.new(
        secret(name), blinded, menu_id=bytes([menu]) * 32, epoch=epoch, expires=expires, cohort=40
    )
    issued = new.issued(b"t" * TOKEN_BYTES)
    chosen = issued.chosen(2, 1_500_000, -3)
    shown = chosen.shown(b"r" * REPORT_BYTES)
    acked = shown.acked()
    every = (new, issued, chosen, shown, acked, acked.settled(41), shown.closed(BillVerdict.EXPIRED))
    return dict(zip(STATES, every, strict=True))


def walk(journal: DeviceJournal, *states: ImpressionState, name: int = 1) -> None:
    for state in states:
        journal.commit([life(name)[state]])


def paid(turns: int) -> DeviceAccount:
    account = DeviceAccount(LIMITS)
    for _ in range(turns):
        account = account.reserve(1_000_000, now=5)
    return account


# Records.


@pytest.mark.parametrize("state", STATES)
def test_a_record_reads_back_as_it_was(state: ImpressionState) -> None:
    record = life()[state]
    assert ImpressionRecord.from_bytes(record.to_bytes()) == record
    assert record.nonce == token_nonce(secret(1))


@given(st.sampled_from(STATES), st.data())
def test_another_byte_is_another_record_or_none(state: ImpressionState, data: st.DataObject) -> None:
    written = life()[state].to_bytes()
    at = data.draw(st.integers(0, len(written) - 1))
    changed = written[:at] + bytes([written[at] ^ data.draw(st.integers(1, 255))]) + written[at + 1 :]
    for wrong in (changed, written[:at], written + b"\0"):
        try:
            assert ImpressionRecord.from_bytes(wrong) != life()[state]
        except (BillRefused, BadInput):
            continue


def test_a_state_keeps_what_it_needs_and_no_more() -> None:
    every = life()
    lengths = {
        state: {
            name for name in ("secret", "blinded", "inverse", "token", "report") if getattr(every[state], name)
        }
        for state in STATES
    }
    assert lengths == {
        ImpressionState.NEW: {"secret", "blinded", "inverse"},
        ImpressionState.ISSUED: {"secret", "token"},
        ImpressionState.CHOSEN: {"secret", "token"},
        ImpressionState.SHOWN: {"report"},
        ImpressionState.ACKED: set(),
        ImpressionState.SETTLED: set(),
        ImpressionState.CLOSED: set(),
    }
    for state in STATES:
        assert "secret" not in repr(every[state])
        assert "index" not in repr(every[state])


def test_a_record_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="expected 256 bytes of token in ISSUED"):
        replace(life()[ImpressionState.ISSUED], token=b"short")
    with pytest.raises(BadInput, match="expected 0 bytes of secret in SHOWN"):
        replace(life()[ImpressionState.SHOWN], secret=secret(1))
    with pytest.raises(
        BadInput, match="expected a choice from CHOSEN on and not before, got another at ISSUED"
    ):
        replace(life()[ImpressionState.ISSUED], index=1)
    with pytest.raises(BadInput, match="expected a choice"):
        replace(life()[ImpressionState.ACKED], index=None)


# Both journals.


def test_an_impression_goes_through_its_states(opened: Opened) -> None:
    assert opened().impression(life()[ImpressionState.NEW].nonce) is None
    for state in STATES[:-1]:
        opened().commit([life()[state]])
        assert opened().impression(life()[state].nonce) == life()[state]
        assert opened().impressions((state,)) == [life()[state]]
        assert opened().impressions((state,), b"\x09" * 32) == [life()[state]]
        assert opened().impressions((state,), b"\x08" * 32) == []
        assert opened().impressions(set(STATES) - {state}) == []


@pytest.mark.parametrize("state", STATES)
def test_no_step_is_left_out_or_done_twice(opened: Opened, state: ImpressionState) -> None:
    """From every state, to every state: only what `AFTER` says."""
    path = {
        ImpressionState.CLOSED: (*STATES[:4], ImpressionState.CLOSED),
    }.get(state, STATES[: STATES.index(state) + 1])
    walk(opened(), *path)
    for following in STATES:
        if state in AFTER[following]:
            continue
        with pytest.raises(BillError, match="the device's journal has moved on"):
            opened().commit([life()[following]])
        assert opened().impression(life()[state].nonce) == life()[state]
    for following in STATES[1:]:  # and for a token that nobody knows
        with pytest.raises(BillError, match="moved on"):
            opened().commit([life(2)[following]])


def test_records_and_account_are_kept_together_or_not_at_all(opened: Opened) -> None:
    walk(opened(), ImpressionState.NEW, ImpressionState.ISSUED)
    walk(opened(), ImpressionState.NEW, name=2)
    assert opened().account() is None
    both = [life()[ImpressionState.CHOSEN], life(2)[ImpressionState.CHOSEN]]  # the second was never issued
    with pytest.raises(BillError):
        opened().commit(both, paid(1))
    assert opened().account() is None
    assert opened().impression(both[0].nonce) == life()[ImpressionState.ISSUED]
    opened().commit(both[:1], paid(1))
    assert opened().account() == paid(1).to_bytes()
    assert opened().impression(both[0].nonce) == both[0]


def test_an_account_follows_the_one_that_is_kept(opened: Opened) -> None:
    walk(opened(), ImpressionState.NEW, ImpressionState.ISSUED)
    for turns in (0, 2):
        with pytest.raises(BillError, match="moved on"):
            opened().commit([], paid(turns))
    opened().commit([], paid(1))
    opened().commit([], paid(2))
    for turns in (1, 2, 4):
        with pytest.raises(BillError, match="moved on"):
            opened().commit([life()[ImpressionState.CHOSEN]], paid(turns))
    assert opened().account() == paid(2).to_bytes()
    assert opened().impressions((ImpressionState.CHOSEN,)) == []


def test_the_oldest_come_first(opened: Opened) -> None:
    for name in (5, 3, 4):
        walk(opened(), ImpressionState.NEW, name=name)
    walk(opened(), ImpressionState.ISSUED, name=5)
    found = opened().impressions((ImpressionState.NEW, ImpressionState.ISSUED))
    assert [each.secret for each in found] == [secret(5), secret(3), secret(4)]


def test_the_first_head_of_an_epoch_is_the_only_one(opened: Opened) -> None:
    assert opened().head(7) is None
    assert opened().keep_head(7, 300, b"first") == b"first"
    assert opened().keep_head(7, 900, b"second") == b"first"
    assert opened().head(7) == b"first"
    assert opened().keep_head(8, 400, b"next") == b"next"


def test_menus_are_found_by_id_and_by_place(opened: Opened) -> None:
    menus = [KeptMenu(bytes([epoch]) * 32, epoch, b"here", b"menu %d" % epoch) for epoch in (3, 5, 4)]
    for menu in (*menus, menus[0]):
        opened().keep_menu(menu)
    opened().keep_menu(KeptMenu(b"x" * 32, 6, b"there", b"other"))
    assert opened().menu(menus[1].menu_id) == menus[1]
    assert opened().menu(bytes(32)) is None
    assert [opened().last_menu_at(b"here", before) for before in (7, 5, 4, 3)] == [
        menus[1],
        menus[2],
        menus[0],
        None,
    ]
    assert opened().last_menu_at(b"nowhere", 7) is None


def test_what_is_over_is_forgotten_and_what_is_owed_is_not(opened: Opened) -> None:
    for epoch, expires in ((7, 300), (8, 400)):
        opened().keep_head(epoch, expires, b"head %d" % epoch)
        opened().keep_menu(KeptMenu(bytes([epoch]) * 32, epoch, b"here", b"menu"))
    for name, last in enumerate(STATES):
        path = (*STATES[:4], last) if last is ImpressionState.CLOSED else STATES[: STATES.index(last) + 1]
        walk(opened(), *path, name=name)
    later = life(99, epoch=8, expires=400)[ImpressionState.NEW]
    opened().commit([later])
    assert opened().forget(300) == 0, "epoch 7 expires in this second, not before"
    assert opened().forget(301) == 5
    left = opened().impressions(STATES)
    assert [each.state for each in left] == [ImpressionState.SHOWN, ImpressionState.ACKED, ImpressionState.NEW]
    assert (opened().head(7), opened().head(8)) == (b"head 7", b"head 8"), "two records still need the first"
    opened().commit([life(3)[ImpressionState.CLOSED], life(4)[ImpressionState.SETTLED]])
    assert opened().forget(301) == 2
    assert (opened().head(7), opened().head(8)) == (None, b"head 8")
    assert opened().menu(b"\x07" * 32) is None
    assert opened().menu(b"\x08" * 32) is not None
