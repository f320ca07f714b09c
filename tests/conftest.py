"""Fixtures: a place for a ledger in a SQLite file, or in a private PostgreSQL that ends with the tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.ledger_places import Place, administer
from tests.support.local_postgres import local_postgres, postgres_programs

# Workers are as many as cores: threads of torch and BLAS inside them only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Stores are made durable by waiting for the disk, some thousand times: files in memory take the same calls and
# wait for nothing. A folder that you chose yourself (TMPDIR) stays your choice.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2**32:
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None  # asked again

# Started in the background, a shell leaves SIGINT ignored, and every process that a test starts inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start some hundred processes: each would compile all of tacit anew where no bytecode is kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# In review the same examples every time, so that red means changed; `make check-slow` draws fresh ones.
settings.register_profile("review", derandomize=True, deadline=None)
settings.register_profile("fresh", deadline=None, max_examples=200, print_blob=True)
settings.load_profile("review")


def pytest_collection_finish() -> None:
    """What is imported and collected stays to the end: the collector need not walk over it time and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # and seldom over the rest: a twentieth of all the suite's time went there


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty place, in each kind of database in turn."""
    name = "sqlite_place" if request.param == "sqlite" else "postgres_place"
    found = request.getfixturevalue(name)
    assert isinstance(found, Place)
    return found


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    path = tmp_path / "ledger.sqlite"
    return Place(f"sqlite:///{path}", path.with_name("ledger.sqlite.witness"))


@pytest.fixture
def postgres_place(postgres_server: str, tmp_path: Path) -> Place:
    # One database, emptied for each test: making and removing a new one costs seconds of disk.
    administer(postgres_server, "DROP SCHEMA public CASCADE")
    administer(postgres_server, "CREATE SCHEMA public")
    return Place(postgres_server, tmp_path / "postgres.witness")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A private PostgreSQL, reachable through a socket in its own folder only; yields its URL."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed here: no initdb under /usr/lib/postgresql or beside pg_config")
    with local_postgres(programs) as server:
        administer(server.url(), "CREATE DATABASE ledger")
        yield server.url("ledger")
