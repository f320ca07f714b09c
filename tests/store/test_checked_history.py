"""A long ledger opens fast: only what came since the last check is checked, and nothing gets past that."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from tacit.errors import BudgetExceeded, LedgerCorrupt, LedgerError, LedgerRolledBack
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import START, ChainEntry, line_text, next_chain_entry, replay
from tacit.privacy.ledger.lines import Amount, AmountReserved, LedgerEvent, Line, ReservationCommitted
from tacit.privacy.ledger.rules import Ledger
from tacit.store import ledger, ledger_tables, tamper_evidence
from tacit.store.database import SqliteLedgerFile
from tacit.store.tamper_evidence import CheckedFile, RollbackWitness
from tests.support.ledger_places import COST, FIT, LIMIT, LINE, WEEKS, Place, begun, pay

SPENT = 3  # of the FIT releases that the line pays for


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The entries that are looked at, from here on; what was checked is kept after every few."""
    monkeypatch.setattr(ledger, "EVERY", 2)
    seen: list[int] = []

    def counting(entries: Iterable[ChainEntry], *after: Any) -> Any:
        found = list(entries)
        seen.extend(entry.sequence for entry in found)
        return replay(found, *after)

    monkeypatch.setattr(tamper_evidence, "replay", counting)
    return seen


def long(place: Place) -> None:
    """Entries 1 to 10, checked up to the last: grant, renew, three releases, and one that is not settled."""
    store = begun(place)
    store.renew(WEEKS, LIMIT)
    for number in range(SPENT):
        pay(store, f"model-{number}")
    store.reserve("open", LINE, COST, "a test")
    store.claim("open", "held")
    place.open()


def test_only_what_came_since_is_looked_at(place: Place, replayed: list[int]) -> None:
    long(place)
    del replayed[:]
    place.open()
    assert replayed == []
    pay(place.open(), "late")
    del replayed[:]
    store = place.open()
    assert replayed == [] or min(replayed) >= 9
    del replayed[:]
    assert store.verify().head.sequence == 12
    assert replayed == list(range(1, 13))
    del replayed[:]
    place.open()
    assert replayed == []


def test_who_goes_on_spending_checks_as_it_goes(sqlite_place: Place, replayed: list[int]) -> None:
    store = begun(sqlite_place)
    store.grant(LINE, Budget.of(100, "1e-3"))
    for number in range(10):
        pay(store, f"model-{number}")
    del replayed[:]
    sqlite_place.open()
    assert len(replayed) <= 2
    assert sqlite_place.open().verify().ledger.accounts[LINE].spent.budget.epsilon == 2


def kept(place: Place) -> Path:
    return CheckedFile(place.witness).path


def test_what_cannot_be_put_in_its_place_leaves_no_draft(sqlite_place: Place) -> None:
    begun(sqlite_place)
    kept(sqlite_place).mkdir()
    before = sorted(kept(sqlite_place).parent.iterdir())
    CheckedFile(sqlite_place.witness).write(tamper_evidence.CheckedHistory.of(sqlite_place.open().verify()))
    assert sorted(kept(sqlite_place).parent.iterdir()) == before


def resigned(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A file with another content that checks itself all the same."""
    record = json.loads(path.read_bytes().split(b"\n", 1)[1])
    change(record)
    spelled = json.dumps(record).encode()
    path.write_bytes(tamper_evidence._checked_digest(spelled) + b"\n" + spelled)


def spoiled(path: Path, how: str) -> None:
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "torn":
        path.write_bytes(whole[: len(whole) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "edited":
        path.write_bytes(whole.replace(b'"settled":3', b'"settled":2'))
    elif how == "of another history":
        resigned(path, lambda record: record.update(head=[record["head"][0], "f" * 64]))
    elif how == "of a later one":
        resigned(path, lambda record: record.update(head=[99, record["head"][1]]))
    elif how == "too little spent":
        resigned(path, lambda record: record["lines"][0].__setitem__(2, [0, 0]))
    elif how == "of another version":
        resigned(path, lambda record: record.update(version=7))


WAYS = ["missing", "torn", "empty", "edited", "of another history", "of a later one", "too little spent",
        "of another version"]  # fmt: skip


def test_without_a_good_file_everything_is_looked_at(sqlite_place: Place, replayed: list[int]) -> None:
    long(sqlite_place)
    for how in WAYS:
        spoiled(kept(sqlite_place), how)
        del replayed[:]
        store = sqlite_place.open()
        assert set(replayed) == set(range(1, 11)), how
        del replayed[:]
        sqlite_place.open()
        assert replayed == [], f"{how}: it was written anew"
        assert store.verify().ledger.accounts[LINE].spent.budget.epsilon == SPENT * COST.epsilon


EDITS = [
    "UPDATE ledger_lines SET spent_epsilon_nanos = 0",
    "UPDATE ledger_lines SET reserved_epsilon_nanos = 0",
    "UPDATE ledger_lines SET limit_epsilon_nanos = 9000000000",
    "UPDATE ledger_renewals SET limit_epsilon_nanos = 9000000000",
    "DELETE FROM ledger_renewals",
    "INSERT INTO ledger_renewals VALUES ('nonsense', 1, 1)",
    "DELETE FROM ledger_reservations WHERE key = 'model-1'",
    "DELETE FROM ledger_reservations WHERE key = 'open'",
    "UPDATE ledger_reservations SET state = 'reserved' WHERE key = 'model-1'",
    "UPDATE ledger_reservations SET state = 'aborted' WHERE key = 'open'",
    "UPDATE ledger_reservations SET attempt = NULL WHERE key = 'open'",
    "UPDATE ledger_reservations SET asked_epsilon_nanos = 1 WHERE key = 'open'",
    "DELETE FROM ledger_entries WHERE sequence = 4",
    "DELETE FROM ledger_entries WHERE sequence = 10",
    "UPDATE ledger_entries SET contents = replace(contents, 'claim', 'abort') WHERE sequence = 10",
    "UPDATE ledger_entries SET sequence = 70 WHERE sequence = 4",
    "ALTER TABLE ledger_lines ADD COLUMN more INTEGER",
]


@contextmanager
def put_back(place: Place, path: Path) -> Iterator[None]:
    """Whatever happens to the ledger's files, they are then as they were: cheaper than another ledger."""
    files = {each: each.read_bytes() for each in (path, place.witness, kept(place))}
    try:
        yield
    finally:
        for leftover in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + leftover).unlink(missing_ok=True)
        for each, whole in files.items():
            each.write_bytes(whole)


@pytest.mark.usefixtures("replayed")
def test_an_edit_of_what_was_checked_is_noticed_when_it_is_opened(sqlite_place: Place, tmp_path: Path) -> None:
    long(sqlite_place)
    for edit in EDITS:
        with put_back(sqlite_place, tmp_path / "ledger.sqlite"):
            sqlite_place.sql(edit)
            with pytest.raises((LedgerCorrupt, LedgerRolledBack)):
                pytest.fail(f"opened after {edit}: {sqlite_place.open()}")


@pytest.mark.usefixtures("replayed")
def test_edits_are_noticed_in_postgres_too(postgres_place: Place) -> None:
    long(postgres_place)
    postgres_place.sql(EDITS[0])
    with pytest.raises(LedgerCorrupt):
        postgres_place.open()


LATER = [
    "UPDATE ledger_reservations SET state = 'aborted' WHERE key = 'model-1'",
    "UPDATE ledger_reservations SET purpose = 'another' WHERE key = 'model-1'",
    "UPDATE ledger_reservations SET asked_epsilon_nanos = 1 WHERE key = 'model-1'",
    "UPDATE ledger_reservations SET last_entry = first_entry WHERE key = 'model-1'",
    "UPDATE ledger_entries SET contents = replace(contents, 'model-1', 'model-x') WHERE sequence = 5",
    "UPDATE ledger_entries SET contents = replace(contents, 'commit', 'abort') WHERE sequence = 6",
    "UPDATE ledger_entries SET hash = previous || hash WHERE sequence = 6",
]


@pytest.mark.usefixtures("replayed")
def test_an_edit_of_what_is_settled_is_noticed_where_it_is_used(sqlite_place: Place, tmp_path: Path) -> None:
    """And by whoever verifies; nothing more can be spent by it."""
    long(sqlite_place)
    for edit in LATER:
        with put_back(sqlite_place, tmp_path / "ledger.sqlite"):
            sqlite_place.sql(edit)
            noticed_where_it_is_used(sqlite_place)


def noticed_where_it_is_used(place: Place) -> None:
    store = place.open()
    account = store.account(LINE)
    assert account is not None
    assert account.used.budget.epsilon == (SPENT + 1) * COST.epsilon
    uses: list[Callable[[], object]] = [
        lambda: store.reserve("model-1", LINE, COST, "a test"),
        lambda: store.abort("model-1", certain=True),
        lambda: store.claim("model-1", "one"),
        lambda: store.make("model-1", "one", "digest"),
        lambda: store.reservation("model-1"),
        store.verify,
    ]
    for use in uses:
        with pytest.raises(LedgerCorrupt):
            use()


@pytest.mark.usefixtures("replayed")
def test_a_restored_backup_is_noticed_beside_a_newer_file(place: Place) -> None:
    long(place)
    place.backup()
    pay(place.open(), "late")
    place.open()
    place.restore()
    with pytest.raises(LedgerRolledBack):
        place.open()


def damaged_or_the_same(place: Place, path: Path, *, start: int, bits: int, width: int) -> None:
    """Change bytes; then open, look, and spend all that is left: never more than was granted."""
    with put_back(place, path), suppress(LedgerError):
        changed = bytearray(path.read_bytes())
        for position in range(start, min(start + width, len(changed))):
            changed[position] ^= bits
        path.write_bytes(changed)
        store = place.open()
        account = store.account(LINE)
        assert account is not None
        assert account.used.budget.epsilon == (SPENT + 1) * COST.epsilon
        assert account.limit.budget == LIMIT
        for number in range(FIT - SPENT - 1):
            store.reserve(f"more-{number}", LINE, COST, "a test")
        with pytest.raises(BudgetExceeded):
            store.reserve("too much", LINE, COST, "a test")


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("checked_before", [True, False])
@pytest.mark.parametrize("part", ["table", "index"])
def test_a_line_that_its_index_lacks_is_not_opened_anew(
    sqlite_place: Place, tmp_path: Path, part: str, checked_before: bool
) -> None:
    """A window's line that is not found by its key would begin again, with all of its limit."""
    path = tmp_path / "ledger.sqlite"
    long(sqlite_place)
    store, week = sqlite_place.open(), WEEKS.line(0)
    for number in range(FIT):
        store.reserve(f"week-{number}", week, COST, "a test")
    with pytest.raises(BudgetExceeded):
        store.reserve("too much", week, COST, "a test")
    sqlite_place.open()  # and all of it is checked
    with SqliteLedgerFile(path).transaction() as connection:
        found = connection.exec_driver_sql(
            "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'ledger_lines' AND type = ?", (part,)
        )
        page, size = found.scalar_one(), connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    changed = bytearray(path.read_bytes())
    changed[changed.index(line_text(week).encode(), (page - 1) * size, page * size)] ^= 1
    path.write_bytes(changed)
    if not checked_before:
        kept(sqlite_place).unlink()
    with pytest.raises(LedgerCorrupt):
        sqlite_place.open()


bytes_to_change = given(
    where=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255), width=st.sampled_from([1, 1, 16, 700])
)


@pytest.mark.usefixtures("replayed")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@bytes_to_change
def test_a_damaged_ledger_pays_for_no_more(
    sqlite_place: Place, tmp_path: Path, where: float, bits: int, width: int
) -> None:
    path = tmp_path / "ledger.sqlite"
    if not path.exists():
        long(sqlite_place)
    start = int(where * path.stat().st_size)
    damaged_or_the_same(sqlite_place, path, start=start, bits=bits, width=width)


@pytest.mark.slow
@pytest.mark.usefixtures("replayed")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@bytes_to_change
def test_four_hundred_damaged_ledgers_pay_for_no_more(
    sqlite_place: Place, tmp_path: Path, where: float, bits: int, width: int
) -> None:
    path = tmp_path / "ledger.sqlite"
    if not path.exists():
        long(sqlite_place)
    start = int(where * path.stat().st_size)
    damaged_or_the_same(sqlite_place, path, start=start, bits=bits, width=width)


# How long it takes, at length.


def grown(place: Place, path: Path, entries: int) -> Line:
    """A ledger of `entries` entries, written at once: releases that were paid for on ten lines."""
    lines = [Line(f"scope-{number}", LINE.unit, LINE.relation) for number in range(10)]
    cost = Amount.spending(Budget.of("0.001"))
    events: list[LedgerEvent] = [
        Ledger().grant(line, Amount.limit(Budget.of(10**6))).events[0] for line in lines
    ]
    for number in range((entries - len(events)) // 2):
        key = f"release/{number}"
        events += [AmountReserved(key, lines[number % 10], cost, "a release"), ReservationCommitted(key)]
    head, chain = START, []
    for event in events:
        chain.append(next_chain_entry(head, event))
        head = chain[-1].head
    history, place_of = replay(chain), RollbackWitness(place.witness)
    place.open()
    with SqliteLedgerFile(path).transaction() as connection:
        for account in history.ledger.accounts.values():
            values = {
                **ledger_tables._row("limit", account.limit),
                **ledger_tables._row("spent", account.spent),
            }
            values |= ledger_tables._row("reserved", account.reserved)
            connection.execute(insert(ledger_tables.LINES).values(line=line_text(account.line), **values))
        made = [
            {"key": each.key, "line": line_text(each.line), **ledger_tables._row("asked", each.amount),
             "purpose": each.purpose, "state": str(each.state), "first_entry": first, "last_entry": last}
            for each in history.ledger.reservations.values()
            for first, last in [history.entries_by_key[each.key]]
        ]  # fmt: skip
        connection.execute(insert(ledger_tables.RESERVATIONS), made)
        connection.execute(insert(ledger_tables.ENTRIES), [vars(entry) for entry in chain])
    place_of.advance(head)
    return lines[0]


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


@pytest.mark.slow
def test_opening_a_long_ledger_costs_a_small_part_of_checking_it(sqlite_place: Place, tmp_path: Path) -> None:
    """.03 s at 100,000 entries where a whole check takes ten: held here, on any machine, to a thirtieth."""
    path = tmp_path / "ledger.sqlite"
    line = grown(sqlite_place, path, 100_000)
    first = seconds(sqlite_place.open)
    again = min(seconds(sqlite_place.open) for _ in range(3))
    store = sqlite_place.open()
    spends = seconds(lambda: store.reserve("one more", line, Budget.of(1), "a test"))
    print(f"\n100,000 entries: {first:.2f} s the first time, {again:.3f} s again, {spends:.3f} s to reserve")
    assert again < first / 30
