"""Who may read the files: a new one is its owner's alone, and nobody's mode is changed behind their back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import GatherError, LedgerError
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tests.support.gather_store_children import prepared
from tests.support.ledger_places import LIMIT, LINE, begun, pay
from tests.support.ledger_places import Place as LedgerPlace


@pytest.fixture(autouse=True)
def _generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


both = pytest.mark.parametrize("kind", [SqlProxyStore, SqlServerStore], ids=["proxy", "server"])


@both
def test_a_new_store_is_its_owners_alone(tmp_path: Path, kind: Any) -> None:
    store = prepared(kind.open(tmp_path / "store.sqlite"))
    assert len(modes(tmp_path)) == 3, "also what SQLite writes ahead"
    assert set(modes(tmp_path).values()) == {0o600}
    store.close()


@both
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_store_that_others_may_use_is_refused_as_it_is(tmp_path: Path, kind: Any, mode: int) -> None:
    path = tmp_path / "store.sqlite"
    kind.open(path).close()
    path.chmod(mode)
    before = path.read_bytes()
    with pytest.raises(
        GatherError, match=rf"for its owner alone, got mode {mode:o}; chmod 600 {path}$"
    ) as said:
        kind.open(path)
    assert "\n" not in str(said.value)
    assert (modes(tmp_path), path.read_bytes()) == ({"store.sqlite": mode}, before)
    path.chmod(0o600)
    kind.open(path).close()


def test_what_was_written_ahead_counts_too(tmp_path: Path) -> None:
    path, ahead = tmp_path / "store.sqlite", tmp_path / "store.sqlite-wal"
    store = prepared(SqlProxyStore.open(path))
    ahead.chmod(0o644)
    with pytest.raises(GatherError, match=f"chmod 600 {ahead}$"):
        SqlProxyStore.open(path)
    store.close()


def test_an_empty_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.touch(0o644)
    with pytest.raises(GatherError, match="chmod 600"):
        SqlServerStore.open(path)
    assert path.stat().st_size == 0


def test_a_new_ledger_and_its_witness_are_their_owners_alone(tmp_path: Path) -> None:
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    ledger.grant(LINE, LIMIT)
    pay(ledger, "a release")
    assert set(modes(tmp_path)) >= {"ledger.sqlite", "ledger.sqlite.witness"}
    assert set(modes(tmp_path).values()) == {0o600}


def test_a_ledger_that_others_may_read_goes_on_as_it_is(sqlite_place: LedgerPlace, tmp_path: Path) -> None:
    begun(sqlite_place)
    for path in tmp_path.iterdir():
        path.chmod(0o664)
    pay(sqlite_place.open(), "a release")
    assert set(modes(tmp_path).values()) == {0o664}


def test_looking_for_a_ledger_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger at"):
        LedgerStore.open_existing(tmp_path / "ledger.sqlite")
    assert list(tmp_path.iterdir()) == []
