"""Restored backups, torn files and old versions: a ledger that lost something says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.errors import BadInput, LedgerCorrupt, LedgerError, LedgerRolledBack
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.rules import ReservationState
from tacit.store.ledger import LedgerStore
from tacit.store.tamper_evidence import RollbackWitness
from tests.support.ledger_places import COST, LIMIT, LINE, WEEKS, Place, begun, pay


def spent(place: Place) -> Budget:
    return place.open().verify().ledger.accounts[LINE].spent.budget


# Backups that come back, and witnesses that go.


def test_a_restored_backup_is_noticed(place: Place) -> None:
    store = begun(place)
    pay(store, "model-1")
    place.backup()
    pay(store, "model-2")
    place.restore()
    uses: list[Callable[[], object]] = [place.open, store.verify, lambda: pay(store, "model-3")]
    for use in uses:
        with pytest.raises(LedgerRolledBack, match="older state"):
            use()
    with pytest.raises(LedgerRolledBack):
        store.reserve("model-1", LINE, COST, "a test")  # not even what was paid before


def test_a_backup_that_went_on_from_there_is_noticed(place: Place) -> None:
    store = begun(place)
    place.backup()
    pay(store, "model-1")
    seen = place.witness.read_bytes()
    place.restore()
    place.witness.unlink()
    LedgerStore.accept(place.where, witness=place.witness)
    pay(store, "model-2")  # the other history is now the longer one
    place.witness.write_bytes(seen)
    with pytest.raises(LedgerRolledBack):
        place.open()


def test_who_restores_both_is_not_noticed(place: Place) -> None:
    """The twin, and the limit that the documentation states: the witness is all that remembers."""
    store = begun(place)
    place.backup()
    seen = place.witness.read_bytes()
    pay(store, "model-1")
    place.restore()
    place.witness.write_bytes(seen)
    assert spent(place) == Budget.NOTHING


def test_a_missing_witness_must_be_accepted(place: Place) -> None:
    store = begun(place)
    pay(store, "model-1")
    place.witness.unlink()
    for use in (place.open, lambda: pay(store, "model-2")):
        with pytest.raises(LedgerRolledBack, match="tacit ledger accept"):
            use()
    head = LedgerStore.accept(place.where, witness=place.witness)
    assert (head.sequence, spent(place)) == (4, COST)
    assert place.sql("SELECT contents FROM ledger_entries WHERE sequence = 4") == [
        ('{"kind":"accept","lost":"no witness"}',)
    ]
    assert LedgerStore.accept(place.where, witness=place.witness) == head  # nothing left to accept


@pytest.mark.parametrize(
    "spoil",
    [
        lambda old: old[:40],
        lambda old: old[:0],
        lambda old: old.replace(b" 3 ", b" 2 "),
        lambda old: old + old,
        lambda old: b"\xff" * len(old),
    ],
)
def test_a_torn_witness_is_noticed(sqlite_place: Place, spoil: Callable[[bytes], bytes]) -> None:
    store = begun(sqlite_place)
    pay(store, "model-1")
    sqlite_place.witness.write_bytes(spoil(sqlite_place.witness.read_bytes()))
    uses: list[Callable[[], object]] = [sqlite_place.open, store.verify, lambda: pay(store, "model-2")]
    for use in uses:
        with pytest.raises(LedgerCorrupt, match="witness"):
            use()
    LedgerStore.accept(sqlite_place.where, witness=sqlite_place.witness)
    assert spent(sqlite_place) == COST


def test_a_witness_only_goes_forward(sqlite_place: Place) -> None:
    store = begun(sqlite_place)
    early = RollbackWitness(sqlite_place.witness).read()
    pay(store, "model-1")
    late = RollbackWitness(sqlite_place.witness).read()
    assert early is not None
    assert late is not None
    assert (early.sequence, late.sequence) == (1, 3)
    RollbackWitness(sqlite_place.witness).advance(early)
    assert RollbackWitness(sqlite_place.witness).read() == late
    with pytest.raises(LedgerRolledBack, match="entry 3 is not the one"):
        RollbackWitness(sqlite_place.witness).advance(replace(late, hash="f" * 64))
    assert RollbackWitness(sqlite_place.witness).read() == late


def test_a_witness_that_cannot_be_read_stops_everything(sqlite_place: Place) -> None:
    store = begun(sqlite_place)
    sqlite_place.witness.unlink()
    sqlite_place.witness.mkdir()
    for use in (sqlite_place.open, store.verify, lambda: pay(store, "model-1")):
        with pytest.raises(LedgerError, match="could not be read"):
            use()


def test_a_witness_that_cannot_be_written_stops_the_release(sqlite_place: Place) -> None:
    store = begun(sqlite_place)
    lock = sqlite_place.witness.with_name(sqlite_place.witness.name + ".lock")
    lock.unlink()
    lock.mkdir()
    with pytest.raises(LedgerError, match="nothing may be released"):
        store.reserve("model-1", LINE, COST, "a test")
    lock.rmdir()
    assert sqlite_place.open().verify().ledger.reservations["model-1"].state is ReservationState.RESERVED


# Torn and strange files.


def test_a_lost_ledger_does_not_begin_anew(sqlite_place: Place, tmp_path: Path) -> None:
    store = begun(sqlite_place)
    path = tmp_path / "ledger.sqlite"
    path.unlink()
    for use in (sqlite_place.open, store.verify, lambda: pay(store, "k")):
        with pytest.raises(LedgerRolledBack, match="lost"):
            use()
        assert not path.exists()
    path.touch()
    with pytest.raises(LedgerRolledBack, match="lost"):
        sqlite_place.open()


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_noticed(sqlite_place: Place, tmp_path: Path, kept: float) -> None:
    pay(begun(sqlite_place), "model-1")
    path = tmp_path / "ledger.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(LedgerCorrupt):
        sqlite_place.open()
    assert path.stat().st_size == int(len(whole) * kept)  # and nothing was made anew


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    where=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255), width=st.sampled_from([1, 1, 16, 700])
)
def test_a_damaged_file_is_noticed_or_harmless(
    sqlite_place: Place, tmp_path: Path, where: float, bits: int, width: int
) -> None:
    path = tmp_path / "ledger.sqlite"
    if not path.exists():
        pay(begun(sqlite_place), "model-1")
    whole = path.read_bytes()
    before = sqlite_place.open().verify()
    damaged = bytearray(whole)
    start = int(where * len(whole))
    for position in range(start, min(start + width, len(whole))):
        damaged[position] ^= bits
    path.write_bytes(damaged)
    try:
        assert sqlite_place.open().verify() == before
    except LedgerError:
        pass
    finally:
        for leftover in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + leftover).unlink(missing_ok=True)
        path.write_bytes(whole)


def test_something_else_is_not_a_ledger(sqlite_place: Place, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_text("a shopping list, long enough to be a header: " + "milk " * 500)
    with pytest.raises(LedgerCorrupt, match="not a ledger"):
        sqlite_place.open()
    path.unlink()
    sqlite_place.sql("CREATE TABLE shopping (item TEXT)")
    with pytest.raises(LedgerCorrupt, match="shopping"):
        sqlite_place.open()


def test_a_ledger_that_must_be_there(place: Place, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        LedgerStore.open_existing(place.where, witness=place.witness)
    assert not (tmp_path / "ledger.sqlite").exists()
    with pytest.raises(LedgerError, match="there is no ledger"):
        LedgerStore.accept(place.where, witness=place.witness)
    begun(place)
    assert LedgerStore.open_existing(place.where, witness=place.witness).verify().head.sequence == 1


@pytest.mark.parametrize("where", ["", "mysql://root@localhost/x", "sqlite://", "sqlite:///:memory:", "://"])
def test_only_known_places(where: str) -> None:
    with pytest.raises(BadInput):
        LedgerStore.open(where)


def test_a_server_needs_a_witness_by_name_and_keeps_its_password(tmp_path: Path) -> None:
    nowhere = f"postgresql://tacit:hunter2@/x?host={tmp_path}"
    with pytest.raises(BadInput, match="--witness"):
        LedgerStore.open(nowhere)
    with pytest.raises(LedgerError, match="could not be used") as refusal:
        LedgerStore.open(nowhere, witness=tmp_path / "w")
    assert "hunter2" not in str(refusal.value)


# Versions.


def test_a_version_1_ledger_is_brought_up_to_date_and_loses_nothing(place: Place) -> None:
    place.load_version_1()
    old = place.sql("SELECT * FROM ledger_entries ORDER BY sequence")
    store = place.open()
    assert place.sql("SELECT version FROM ledger_version") == [(3,)]
    assert place.sql("SELECT * FROM ledger_entries ORDER BY sequence") == old
    ledger = store.verify().ledger
    assert {key: str(kept.state) for key, kept in ledger.reservations.items()} == {
        "clicks/model-1": "committed",
        "clicks/model-2": "reserved",
        "conversions/labels-12": "aborted",
    }
    half = Budget.of("0.5", "1e-8")
    assert (ledger.accounts[LINE].spent.budget, ledger.accounts[LINE].reserved.budget) == (half, half)
    assert store.reserve("clicks/model-2", LINE, half, "train it again").resumed
    store.commit("clicks/model-2")
    store.renew(WEEKS, LIMIT)
    store.reserve("new", WEEKS.line(3), COST, "a test")
    assert place.open().verify().head.sequence == 11


def test_an_edited_version_1_ledger_is_refused_and_left_as_it_is(place: Place) -> None:
    place.load_version_1()
    place.sql("UPDATE ledger_lines SET spent_epsilon_nanos = 0")
    with pytest.raises(LedgerCorrupt):
        place.open()
    assert place.sql("SELECT version FROM ledger_version") == [(1,)]


@pytest.mark.parametrize("version", [0, -1, 4, 99])
def test_a_version_from_the_future_is_refused(place: Place, version: int) -> None:
    begun(place)
    place.sql(f"UPDATE ledger_version SET version = {version}")
    with pytest.raises(LedgerCorrupt, match="version"):
        place.open()
    assert place.sql("SELECT version FROM ledger_version") == [(version,)]
