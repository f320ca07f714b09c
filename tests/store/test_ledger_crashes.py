"""kill -9, again and again: whatever a dead process had released is paid for, and the ledger goes on.

Killing a process leaves the operating system alive, so this tests the order of writes, not the disk: what a
power cut does to unsynced pages is up to SQLite's and PostgreSQL's own tests.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tacit.errors import UnknownReservation
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import ChainHead
from tacit.privacy.ledger.rules import ReservationState
from tacit.store.database import SqliteLedgerFile
from tacit.store.ledger import LedgerStore
from tacit.store.tamper_evidence import RollbackWitness
from tests.support.ledger_places import COST, LINE, Place, begun

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "hypothesis", "psycopg", "tacit.store.ledger"])

Child = Callable[[Place, Path, str], None]


def say(diary: Path, line: str) -> None:
    """One write to the end of the file: it outlives the process."""
    with diary.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def careful(place: Place, diary: Path, name: str) -> None:
    """Reserve, release, commit, for ever."""
    store = place.open()
    say(diary, f"ready {name}")
    for number in range(10**6):
        key = f"{name}/{number}"
        store.reserve(key, LINE, COST, "a test")
        say(diary, f"released {key}")
        store.commit(key)
        say(diary, f"committed {key}")


def hasty(place: Place, diary: Path, name: str) -> None:
    """The twin: lets the release out while it is being reserved, and dies at the wrong moment."""
    store = place.open()
    say(diary, f"ready {name}")
    store.reserve(f"{name}/0", LINE, COST, "a test")
    say(diary, f"released {name}/1")
    os.kill(os.getpid(), signal.SIGKILL)


def run_and_kill(child: Child, place: Place, diary: Path, name: str, lines: int, seconds: float) -> None:
    """Let the child get `lines` lines into its diary, however slow the machine is, and a bit further."""
    process = PROCESSES.Process(target=child, args=(place, diary, name))
    process.start()
    deadline = time.monotonic() + 30
    while not (diary.exists() and diary.read_text().count(name) >= lines):
        assert time.monotonic() < deadline, "the child never got that far"
        time.sleep(0.001)
    time.sleep(seconds)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def assert_all_paid(place: Place, diary: Path) -> None:
    """The ledger opens and checks out, and covers everything that the dead said they had done."""
    ledger = place.open().verify().ledger
    told = [line.split() for line in diary.read_text().splitlines()]
    released = {key for what, key in told if what == "released"}
    committed = {key for what, key in told if what == "committed"}
    states = {key: kept.state for key, kept in ledger.reservations.items()}
    assert {
        key
        for key in released
        if states.get(key) not in (ReservationState.RESERVED, ReservationState.COMMITTED)
    } == set()
    assert {key for key in committed if states.get(key) is not ReservationState.COMMITTED} == set()
    account = ledger.accounts[LINE]
    assert account.used.budget.epsilon >= len(released) * COST.epsilon
    assert account.spent.budget.epsilon >= len(committed) * COST.epsilon


def kill_often(place: Place, diary: Path, kills: int, seed: int) -> None:
    moments = random.Random(seed)
    begun(place).grant(LINE, Budget.of(10**6, "0.1"))
    for number in range(kills):
        lines, seconds = moments.randint(1, 6), moments.uniform(0, 0.015)
        run_and_kill(careful, place, diary, f"child-{number}.", lines, seconds)
        assert_all_paid(place, diary)


def test_killed_at_any_moment(sqlite_place: Place, tmp_path: Path) -> None:
    kill_often(sqlite_place, tmp_path / "diary", kills=30, seed=1)


def test_a_killed_client_of_postgres(postgres_place: Place, tmp_path: Path) -> None:
    kill_often(postgres_place, tmp_path / "diary", kills=6, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_many_more_moments(place: Place, tmp_path: Path, seed: int) -> None:
    kill_often(place, tmp_path / "diary", kills=150, seed=100 + seed)


def test_a_release_before_its_reservation_is_caught(sqlite_place: Place, tmp_path: Path) -> None:
    begun(sqlite_place)
    run_and_kill(hasty, sqlite_place, tmp_path / "diary", "hasty", lines=2, seconds=0)
    with pytest.raises(AssertionError, match="hasty/1"):
        assert_all_paid(sqlite_place, tmp_path / "diary")


# The exact moments that a random kill may miss.


class DiesBeforeCommit(SqliteLedgerFile):
    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with super().transaction() as connection:
            yield connection
            os.kill(os.getpid(), signal.SIGKILL)


class DiesBeforeWitness(RollbackWitness):
    def advance(self, head: ChainHead) -> None:
        if head.sequence > 1:
            os.kill(os.getpid(), signal.SIGKILL)


class DiesBeforeRename(RollbackWitness):
    def _write(self, _head: ChainHead) -> None:
        self.path.with_name(self.path.name + ".new").write_bytes(b"tacit-led")
        os.kill(os.getpid(), signal.SIGKILL)


def reserve_and_die(path: Path, witness: Path, moment: str) -> None:
    database, remembers = SqliteLedgerFile(path), RollbackWitness(witness)
    if moment == "before commit":
        database = DiesBeforeCommit(path)
    else:
        remembers = {"before witness": DiesBeforeWitness, "before rename": DiesBeforeRename}[moment](witness)
    LedgerStore(database, remembers).reserve("model-1", LINE, COST, "a test")


@pytest.mark.parametrize(
    ("moment", "stored"), [("before commit", False), ("before witness", True), ("before rename", True)]
)
def test_killed_at_one_moment(sqlite_place: Place, tmp_path: Path, moment: str, stored: bool) -> None:
    begun(sqlite_place)
    arguments = (tmp_path / "ledger.sqlite", sqlite_place.witness, moment)
    process = PROCESSES.Process(target=reserve_and_die, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    seen = RollbackWitness(sqlite_place.witness).read()
    assert seen is not None
    assert seen.sequence == 1

    # No new open, which would catch up by itself: the resumed reservation must be witnessed before it returns.
    store = LedgerStore(SqliteLedgerFile(tmp_path / "ledger.sqlite"), RollbackWitness(sqlite_place.witness))
    if not stored:
        with pytest.raises(UnknownReservation):
            store.commit("model-1")
    again = store.reserve("model-1", LINE, COST, "a test")
    assert (again.state, again.resumed) == (ReservationState.RESERVED, stored)
    seen = RollbackWitness(sqlite_place.witness).read()
    assert seen is not None
    assert seen.sequence == 2
    store.commit("model-1")
    assert sqlite_place.open().verify().ledger.accounts[LINE].spent.budget == COST


def upgrade_and_die(path: Path, witness: Path) -> None:
    LedgerStore(DiesBeforeCommit(path), RollbackWitness(witness)).verify()


def test_an_upgrade_happens_wholly_or_not_at_all(sqlite_place: Place, tmp_path: Path) -> None:
    sqlite_place.load_version_1()
    process = PROCESSES.Process(target=upgrade_and_die, args=(tmp_path / "ledger.sqlite", sqlite_place.witness))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert sqlite_place.sql("SELECT version FROM ledger_version") == [(1,)]
    assert sqlite_place.sql("SELECT name FROM sqlite_master WHERE name = 'ledger_renewals'") == []
    assert sqlite_place.open().verify().head.sequence == 7
    assert sqlite_place.sql("SELECT version FROM ledger_version") == [(3,)]
