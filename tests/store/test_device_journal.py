"""The device's journal on disk: its owner's alone, there after a kill, and overwritten where it forgets."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.deliver.device.account import DeviceAccount, DeviceLimits
from tacit.deliver.device.journal import ImpressionState, KeptMenu, Showing
from tacit.errors import BadInput, BillError
from tacit.store.device_journal import SqlDeviceJournal
from tacit.store.gather_device import SqlDeviceStore
from tests.deliver.device.test_journal import STATES, life, paid, secret, walk


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    SqlDeviceJournal.open(tmp_path / "ads.sqlite")
    assert stat.S_IMODE((tmp_path / "ads.sqlite").stat().st_mode) == 0o600
    (tmp_path / "ads.sqlite").chmod(0o644)
    with pytest.raises(BillError, match="expected a file for its owner alone, got mode 644"):
        SqlDeviceJournal.open(tmp_path / "ads.sqlite")


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected the path of a device journal, got the URL of a server"):
        SqlDeviceJournal.open("postgresql://localhost/ads")
    SqlDeviceStore.open(tmp_path / "rounds.sqlite")
    with pytest.raises(
        BillError, match=r"expected a device journal or nothing at .*, got tables gather_device"
    ):
        SqlDeviceJournal.open(tmp_path / "rounds.sqlite")
    with pytest.raises(BillError, match="could not be used"):
        SqlDeviceJournal.open(tmp_path / "no" / "folder" / "ads.sqlite")
    (tmp_path / "torn.sqlite").write_bytes(b"nothing of the kind" * 100)
    (tmp_path / "torn.sqlite").chmod(0o600)
    with pytest.raises(BillError, match="is torn or not a device journal at all"):
        SqlDeviceJournal.open(tmp_path / "torn.sqlite")


def test_a_file_that_was_removed_is_not_begun_anew(tmp_path: Path) -> None:
    journal = SqlDeviceJournal.open(tmp_path / "ads.sqlite")
    (tmp_path / "ads.sqlite").unlink()
    with pytest.raises(BillError, match="it was removed"):
        journal.commit([life()[ImpressionState.NEW]])
    assert not (tmp_path / "ads.sqlite").exists()


def test_what_is_not_needed_any_more_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "ads.sqlite"
    journal = SqlDeviceJournal.open(path)
    for name in range(65, 75):
        walk(journal, ImpressionState.NEW, name=name)
        assert secret(name) in path.read_bytes()
        assert b"i" * 64 in path.read_bytes()
    for name in range(65, 75):
        walk(journal, *STATES[1:6], name=name)
        assert secret(name) not in path.read_bytes()
    assert b"i" * 64 not in path.read_bytes()
    assert b"r" * 64 not in path.read_bytes()
    nonce = life(70)[ImpressionState.NEW].nonce
    assert nonce in path.read_bytes()
    assert journal.forget(10**6) == 10
    assert nonce not in path.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ads.sqlite"]


def test_what_a_person_has_erased_is_overwritten_but_for_the_account(tmp_path: Path) -> None:
    path = tmp_path / "ads.sqlite"
    journal = SqlDeviceJournal.open(path)
    journal.keep_head(1, 100, b"head" * 20)
    journal.keep_menu(KeptMenu(b"m" * 32, 1, b"a place", b"a menu" * 50))
    walk(journal, *STATES[:2], name=65)
    journal.commit([life(65)[ImpressionState.CHOSEN]], paid(1), Showing(7, 10, 10**9))
    account = journal.account()
    told = [secret(65), life(65)[ImpressionState.NEW].nonce, b"a menu" * 50]
    assert all(each in path.read_bytes() for each in told)
    assert journal.erase() == 1
    assert not any(each in path.read_bytes() for each in told)
    assert (journal.account(), journal.head(1)) == (account, b"head" * 20)
    assert journal.impressions(tuple(ImpressionState)) == []
    assert journal.showings(0) == []
    assert journal.erase() == 0


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from tests.deliver.device.test_journal import life, walk, STATES, paid
from tacit.store.device_journal import SqlDeviceJournal
from tacit.deliver.device.journal import ImpressionState, KeptMenu, Showing
journal = SqlDeviceJournal.open(sys.argv[1])
walk(journal, *STATES[:2])
journal.commit([life()[ImpressionState.CHOSEN]], paid(1))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_kept_is_there_after_a_kill(tmp_path: Path) -> None:
    script = KILLED.format(root=str(Path(__file__).parents[2]))
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "ads.sqlite")], check=False, timeout=60
    )
    assert ended.returncode == -9
    journal = SqlDeviceJournal.open(tmp_path / "ads.sqlite")
    assert journal.impressions(STATES) == [life()[ImpressionState.CHOSEN]]
    kept = journal.account()
    assert kept is not None
    assert DeviceAccount.from_bytes(kept, DeviceLimits()).local_micros == 1_000_000


def test_a_fork_is_refused(tmp_path: Path) -> None:
    journal = SqlDeviceJournal.open(tmp_path / "ads.sqlite")
    child = os.fork()
    if child == 0:
        try:
            journal.account()
        except BillError as refusal:
            os._exit(7 if "opened in another process" in str(refusal) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_two_processes_cannot_both_spend(tmp_path: Path) -> None:
    one, other = (SqlDeviceJournal.open(tmp_path / "ads.sqlite") for _ in range(2))
    walk(one, *STATES[:2])
    walk(one, *STATES[:2], name=2)
    account = DeviceAccount(DeviceLimits()).reserve(2_000_000, 0)
    one.commit([life()[ImpressionState.CHOSEN]], account)
    with pytest.raises(BillError, match="another process uses it"):
        other.commit([life(2)[ImpressionState.CHOSEN]], account)
    assert [each.nonce for each in other.impressions((ImpressionState.CHOSEN,))] == [
        life()[ImpressionState.NEW].nonce
    ]
