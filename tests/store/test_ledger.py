"""One contract for every database: what was promised is kept, and what was touched is noticed."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine, event
from sqlalchemy.exc import IntegrityError

from tacit.errors import (
    BadInput,
    BudgetExceeded,
    LedgerConflict,
    LedgerCorrupt,
    RelationMismatch,
    UnknownLine,
    UnknownReservation,
)
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.rules import ReservationState
from tacit.privacy.units import Relation
from tacit.store.database import SqliteLedgerFile, ledger_database
from tacit.store.ledger import LedgerStore, Request
from tacit.store.tamper_evidence import RollbackWitness
from tests.support.ledger_places import COST, FIT, LIMIT, LINE, WEEKS, Place, begun, pay

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "hypothesis", "psycopg", "tacit.store.ledger"])


def test_a_release_from_grant_to_commit(place: Place) -> None:
    store = begun(place)
    first = store.reserve("model-1", LINE, COST, "train the click model")
    assert (first.state, first.resumed) == (ReservationState.RESERVED, False)
    again = place.open().reserve("model-1", LINE, COST, "train the click model")
    assert (again, again.resumed) == (first, True)
    assert store.commit("model-1").state is ReservationState.COMMITTED
    assert store.commit("model-1").state is ReservationState.COMMITTED
    assert store.reserve("model-1", LINE, COST, "train the click model").state is ReservationState.COMMITTED
    history = place.open().verify()
    assert history.ledger.accounts[LINE].spent.budget == COST
    assert (history.head.sequence, history.entries_by_line[LINE]) == (3, 3)


def test_a_refusal_costs_nothing(place: Place) -> None:
    store = begun(place)
    pay(store, "model-1")
    before = store.verify()
    labels = Guarantee(COST, LINE.unit, Relation.REPLACE_LABEL, sensitive_features=True)
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (BudgetExceeded, lambda: store.reserve("big", LINE, LIMIT, "a test")),
        (LedgerConflict, lambda: store.reserve("model-1", LINE, LIMIT, "a test")),
        (LedgerConflict, lambda: store.reserve("model-1", LINE, COST, "another test")),
        (LedgerConflict, lambda: store.grant(LINE, Budget.of("0.1"))),
        (UnknownLine, lambda: store.reserve("k", WEEKS.line(1), COST, "a test")),
        (UnknownReservation, lambda: store.commit("never")),
        (UnknownReservation, lambda: store.abort("never", certain=True)),
        (UnknownReservation, lambda: store.abort("model-1", certain=True)),
        (LedgerConflict, lambda: store.abort("never")),
        (RelationMismatch, lambda: store.reserve("k", LINE, labels, "a test")),
        (BadInput, lambda: store.reserve("", LINE, COST, "a test")),
        (BadInput, lambda: store.reserve("k", LINE, COST, "")),
        (BadInput, lambda: store.reserve("k", LINE, Budget.NOTHING, "a test")),
        (BadInput, lambda: store.commit(7)),  # type: ignore[arg-type]
        (BadInput, lambda: store.renew(LINE.series, LIMIT)),
    ]
    for expected, call in refused:
        with pytest.raises(expected):
            call()
    assert store.verify() == before


def test_an_abort_frees_what_was_reserved(place: Place) -> None:
    store = begun(place)
    store.reserve("whole", LINE, LIMIT, "a test")
    with pytest.raises(BudgetExceeded):
        store.reserve("more", LINE, COST, "a test")
    assert store.abort("whole") == store.abort("whole")
    pay(store, "more")
    with pytest.raises(UnknownReservation, match="aborted"):
        store.commit("whole")


def test_who_resumed_a_reservation_may_not_abort_it(place: Place) -> None:
    """Two runs under one key: the first lets its release out, the second gives up on its own attempt."""
    first, second = begun(place), place.open()
    first.reserve("model-1", LINE, COST, "train")
    assert second.reserve("model-1", LINE, COST, "train").resumed
    with pytest.raises(LedgerConflict, match="was not made here"):
        second.abort("model-1")
    assert first.commit("model-1").state is ReservationState.COMMITTED


def test_every_window_gets_its_own_limit(place: Place) -> None:
    store = place.open()
    store.renew(WEEKS, LIMIT)
    for window in (-1, 0, 2900):
        for release in range(FIT):
            store.reserve(f"{window}/{release}", WEEKS.line(window), COST, "a test")
        with pytest.raises(BudgetExceeded, match=f"window {window}"):
            store.reserve(f"{window}/more", WEEKS.line(window), COST, "a test")
    with pytest.raises(BudgetExceeded):
        store.reserve("too much", WEEKS.line(7), Budget.of(2), "a test")
    assert set(store.verify().ledger.accounts) == {WEEKS.line(window) for window in (-1, 0, 2900)}
    store.renew(WEEKS, Budget.of("0.1"))
    with pytest.raises(BudgetExceeded):
        store.reserve("later", WEEKS.line(7), COST, "a test")


def test_several_windows_are_paid_all_or_none(place: Place) -> None:
    store = begun(place)
    store.renew(WEEKS, LIMIT)
    store.reserve("full", WEEKS.line(12), LIMIT, "all of it")
    before = store.verify()

    def requests(*weeks: int) -> list[Request]:
        return [Request(f"model/{week}", WEEKS.line(week), COST, "train") for week in weeks]

    with pytest.raises(BudgetExceeded):
        store.reserve_all(requests(10, 11, 12))
    assert store.verify() == before
    assert store.account(WEEKS.line(10)) is None
    assert [made.state for made in store.reserve_all(requests(10, 11))] == [ReservationState.RESERVED] * 2
    with pytest.raises(UnknownReservation):
        store.commit_all(["model/10", "model/12"])
    found = store.reservation("model/10")
    assert found is not None
    assert found.state is ReservationState.RESERVED
    store.commit_all(["model/10", "model/11"])
    account = store.account(WEEKS.line(11))
    assert account is not None
    assert account.spent.budget == COST
    assert store.reservation("never") is None
    store.verify()


def test_a_raised_limit_is_written_down(place: Place) -> None:
    store = begun(place)
    store.grant(LINE, LIMIT)
    assert store.verify().head.sequence == 1
    store.grant(LINE, Budget.of(2))
    store.reserve("k", LINE, Budget.of(2), "a test")
    assert [row[0] for row in place.sql("SELECT contents FROM ledger_entries")][1].startswith('{"kind":"grant"')


# Rivals for the last of a budget.


def rival(name: int, store: Callable[[], LedgerStore], start: Barrier, results: Queue[str]) -> None:
    try:
        mine = store()
        start.wait()
        for attempt in range(2):
            try:
                mine.reserve(f"{name}/{attempt}", LINE, COST, "a test")
                results.put("paid")
            except BudgetExceeded:
                results.put("refused")
    except Exception as problem:
        results.put(f"{type(problem).__name__}: {problem}")


def compete(store: Callable[[], LedgerStore], rivals: int) -> list[str]:
    results: Queue[str] = PROCESSES.Queue()
    start = PROCESSES.Barrier(rivals)
    workers = [PROCESSES.Process(target=rival, args=(name, store, start, results)) for name in range(rivals)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    outcomes = []
    while not results.empty():
        outcomes.append(results.get())
    results.close()
    return outcomes


def assert_exactly_what_fits(outcomes: list[str], rivals: int) -> None:
    assert sorted(outcomes) == ["paid"] * FIT + ["refused"] * (2 * rivals - FIT)


def test_eight_processes_get_exactly_what_fits(place: Place) -> None:
    store = begun(place)
    assert_exactly_what_fits(compete(place.open, rivals=8), rivals=8)
    account = store.verify().ledger.accounts[LINE]
    assert account.reserved.budget.epsilon == account.limit.budget.epsilon


class UnlockedSqlite(SqliteLedgerFile):
    """The twin: every statement for itself, and a moment between looking and writing."""

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        engine = create_engine(f"sqlite:///{self.path}", poolclass=NullPool, isolation_level="AUTOCOMMIT")

        def dawdle(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if statement.startswith("INSERT INTO ledger_entries"):
                time.sleep(0.3)

        event.listen(engine, "before_cursor_execute", dawdle)
        with engine.connect() as connection:
            yield connection


class Unlocked:
    """Opens the twin; a class, so that it can be sent to another process."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __call__(self) -> LedgerStore:
        path = ledger_database(self.place.where)
        assert isinstance(path, SqliteLedgerFile)
        return LedgerStore(UnlockedSqlite(path.path), RollbackWitness(self.place.witness))


def test_without_the_lock_the_competition_is_lost(sqlite_place: Place) -> None:
    begun(sqlite_place)
    outcomes = compete(Unlocked(sqlite_place), rivals=4)
    with pytest.raises(AssertionError):
        assert_exactly_what_fits(outcomes, rivals=4)


# Walls and edits.


@pytest.mark.parametrize("column", ["spent_epsilon_nanos", "reserved_epsilon_nanos", "spent_delta_attos"])
def test_the_database_itself_refuses_more_than_the_limit(place: Place, column: str) -> None:
    begun(place)
    limit = column.replace("spent", "limit").replace("reserved", "limit")
    place.sql(f"UPDATE ledger_lines SET {column} = {limit}")  # the most that fits
    with pytest.raises(IntegrityError):
        place.sql(f"UPDATE ledger_lines SET {column} = {limit} + 1")


EDITS = [
    "UPDATE ledger_lines SET spent_epsilon_nanos = 0",
    "UPDATE ledger_lines SET limit_epsilon_nanos = 9000000000",
    "UPDATE ledger_reservations SET state = 'aborted'",
    "UPDATE ledger_reservations SET purpose = 'another'",
    "DELETE FROM ledger_reservations",
    "DELETE FROM ledger_renewals",
    "DELETE FROM ledger_version",
    "DELETE FROM ledger_entries WHERE sequence = 2",
    "UPDATE ledger_entries SET contents = replace(contents, '1000000000', '9000000000')",
    "UPDATE ledger_entries SET sequence = 7 WHERE sequence = 4",
    "DROP TABLE ledger_renewals",
    "ALTER TABLE ledger_lines ADD COLUMN more INTEGER",
    "INSERT INTO ledger_renewals VALUES ('nonsense', 1, 1)",
]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_row_is_noticed(place: Place, edit: str) -> None:
    store = begun(place)
    store.renew(WEEKS, LIMIT)
    pay(store, "model-1")
    place.sql(edit)
    for use in (store.verify, place.open):
        with pytest.raises(LedgerCorrupt):
            use()


def test_an_edit_that_changes_nothing_is_no_alarm(place: Place) -> None:
    store = begun(place)
    place.sql("UPDATE ledger_lines SET spent_epsilon_nanos = spent_epsilon_nanos")
    assert store.verify().head.sequence == 1


def test_the_last_entry_is_checked_before_another_follows(place: Place) -> None:
    store = begun(place)
    place.sql("UPDATE ledger_entries SET contents = replace(contents, '1000000000', '9000000000')")
    with pytest.raises(LedgerCorrupt, match="entry 1"):
        pay(store, "model-1")


@pytest.mark.parametrize("where", [None, 3, object()], ids=["None", "3", "object"])
def test_a_ledger_is_opened_by_a_path_or_a_url(
    where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="expected where to be a path, got"):
        LedgerStore.open(where)
    assert not list(tmp_path.iterdir())
