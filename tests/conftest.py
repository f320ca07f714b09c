"""Fixtures: a place for a ledger in a SQLite file, or in a private PostgreSQL that ends with the tests."""

from __future__ import annotations

import gc
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from sqlalchemy.exc import OperationalError

from tests.support.ledger_places import Place, administer

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
    programs = _postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed here: no initdb under /usr/lib/postgresql or beside pg_config")
    folder = Path(tempfile.mkdtemp(prefix="tacit-pg-"))  # sockets need a short path
    owner = _owner()  # PostgreSQL refuses to run as root
    if owner:
        os.chown(folder, owner["user"], owner["group"])
    data = folder / "data"
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    try:
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "tacit", "--auth=trust", "--no-sync", "--encoding=UTF8"],
            check=True, capture_output=True, cwd=folder, env=environment, **owner,
        )  # fmt: skip
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off",
                 "-c", "full_page_writes=off", "-c", "autovacuum=off", "-c", "shared_buffers=16MB"],
                stdout=log, stderr=log, cwd=folder, env=environment, **owner,
            )  # fmt: skip
        try:
            url = f"postgresql+psycopg://tacit@/postgres?host={folder}"
            _wait_until_ready(url, server, folder / "log")
            administer(url, "CREATE DATABASE ledger")
            yield url.replace("/postgres?", "/ledger?")
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nothing of it is kept, so nothing needs to be written
            server.wait(timeout=60)
    finally:
        shutil.rmtree(folder)


def _postgres_programs() -> Path | None:
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if config := shutil.which("pg_config"):
        asked = subprocess.run([config, "--bindir"], check=True, capture_output=True, text=True)
        candidates.append(Path(asked.stdout.strip()))
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def _owner() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            administer(url, "SELECT 1")
            return
        except OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL did not start:\n{log.read_text()}") from None
            time.sleep(0.05)
