"""A private PostgreSQL that ends with the tests, and that may be killed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from tests.support.ledger_places import administer

START_SECONDS, END_SECONDS = 30, 60
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
# What was committed is with the system when a process is killed; only a power cut would need fsync.
OPTIONS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "autovacuum=off", "shared_buffers=16MB")


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's programs, where they are installed."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if config := shutil.which("pg_config"):
        asked = subprocess.run([config, "--bindir"], check=True, capture_output=True, text=True)
        candidates.append(Path(asked.stdout.strip()))
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


class LocalPostgres:
    """Reachable through a socket in its own folder only."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder, self._owner = programs, folder, _owner()
        self._server: subprocess.Popen[bytes] | None = None
        if self._owner:  # PostgreSQL refuses to run as root
            os.chown(folder, self._owner["user"], self._owner["group"])
        subprocess.run(
            [programs / "initdb", "-D", self._data, "-U", "tacit", "--auth=trust", "--no-sync",
             "--encoding=UTF8"],
            check=True, capture_output=True, cwd=folder, env=ENVIRONMENT, **self._owner,
        )  # fmt: skip

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://tacit@/{database}?host={self._folder}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = [word for option in OPTIONS for word in ("-c", option)]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self._folder, *options],
                stdout=log, stderr=log, cwd=self._folder, env=ENVIRONMENT, **self._owner,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                administer(self.url(), "SELECT 1")
                return
            except OperationalError:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    said = (self._folder / "log").read_text()
                    raise AssertionError(f"PostgreSQL did not start:\n{said}") from None
                time.sleep(0.05)

    def end(self) -> None:
        """At once: nothing of it is kept, so nothing needs to be written."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(timeout=END_SECONDS)
            self._server = None

    def kill(self) -> None:
        """All its processes, as a power cut would."""
        assert self._server is not None, "it runs"
        processes = _children(self._server.pid)
        self._server.kill()
        self._server.wait(timeout=END_SECONDS)
        self._server = None
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        while any(_is_alive(process) for process in processes):
            assert time.monotonic() < deadline, "a process of PostgreSQL lives on"
            time.sleep(0.01)


@contextmanager
def local_postgres(programs: Path) -> Iterator[LocalPostgres]:
    """One that runs, until it is left."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-pg-"))  # sockets need a short path
    try:
        server = LocalPostgres(programs, folder)
        try:
            server.start()
            yield server
        finally:
            server.end()
    finally:
        shutil.rmtree(folder)


def _owner() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _children(parent: int) -> list[int]:
    numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [number for number in numbers if _stat(number)[1:2] == [str(parent)]]


def _is_alive(process: int) -> bool:
    return _stat(process)[:1] not in ([], ["Z"])


def _stat(process: int) -> list[str]:
    """State, parent and more of a process; nothing where it is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
