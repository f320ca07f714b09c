"""Copies of stores while they are used, and putting one back in its place.

A SQLite file is copied by SQLite's own backup, a PostgreSQL database by `pg_dump`: either is the store at one
moment. A copy has what the store has, private keys of epochs included: keep it as you keep keys.

Putting a copy back is for nobody who serves: what is in its place is gone, but for a privacy ledger in the same
PostgreSQL database, which is left as it is: what was spent stays spent. Whether a store of billing may be
served afterwards its witness decides (`billing_witness`), and of a ledger its own (`tamper_evidence`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

from sqlalchemy import NullPool, inspect, make_url

from tacit import expect, files
from tacit.errors import BadInput
from tacit.store.database import (
    LEDGER,
    locate,
    make_private_file,
    postgres_engine,
    postgres_is_torn,
    translate_errors,
)
from tacit.store.ledger_tables import METADATA, VERSIONS

SUFFIXES = {True: ".sqlite", False: ".dump"}
PROGRAMS = Path("/usr/lib/postgresql")
_OF_LEDGER = re.compile(rf"\b({'|'.join(METADATA.tables)})")  # tables, and what is called after them


def backup_name(name: str, place: str) -> str:
    """The file that a store is copied to: SQLite's own, or a dump of PostgreSQL's."""
    return name + SUFFIXES[isinstance(locate(place, LEDGER), Path)]


def back_up_store(place: str, target: Path) -> bool:
    """Copy a store to a new file for its owner alone; no where there is none."""
    found = locate(place, LEDGER)
    if isinstance(found, Path):
        if not found.exists():
            return False
        make_private_file(target)
        source = sqlite3.connect(f"file:{found}?mode=ro", uri=True)
        copy = sqlite3.connect(target)
        try:
            source.backup(copy)
        except sqlite3.Error as problem:
            raise BadInput(f"{found}: expected a store that can be copied, got: {problem}") from None
        finally:
            copy.close()
            source.close()
        files.sync_to_disk(target)
        return True
    make_private_file(target)
    _run_postgres("pg_dump", found, ["--format=custom", f"--file={target}"])
    return True


def put_back_store(place: str, source: Path) -> tuple[str, ...]:
    """Put a copy in a store's place, whole or not at all; what was left there as it was, if anything."""
    found = locate(place, LEDGER)
    if isinstance(found, Path):
        draft = files.draft_path(found)
        make_private_file(draft)
        shutil.copyfile(source, draft)
        files.sync_to_disk(draft)
        # What was written ahead belongs to the file that goes: it must not be read into the other one.
        for suffix in ("-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                found.with_name(found.name + suffix).unlink()
        draft.replace(found)
        files.sync_to_disk(found.parent)
        return ()
    words = ["--clean", "--if-exists", "--single-transaction", "--no-owner"]
    if not has_ledger(place):
        _run_postgres("pg_restore", found, [*words, str(source)])
        return ()
    listed = _run_program("pg_restore", ["--list", str(source)], {})
    with tempfile.NamedTemporaryFile("w", suffix=".list") as kept:
        kept.writelines(f"{line}\n" for line in listed.splitlines() if not _OF_LEDGER.search(line))
        kept.flush()
        _run_postgres("pg_restore", found, [*words, f"--use-list={kept.name}", str(source)])
    return ("ledger",)


def has_ledger(place: str) -> bool:
    """Whether a ledger is at this place, by its tables, or as a file."""
    found = locate(place, LEDGER)
    if isinstance(found, Path):
        return found.exists()
    engine = postgres_engine(found, poolclass=NullPool)
    with (
        translate_errors(expect.without_passwords(found), LEDGER, postgres_is_torn),
        engine.connect() as connection,
    ):
        return inspect(connection).has_table(VERSIONS.name)


def _run_postgres(program: str, url: str, words: list[str]) -> None:
    """Run one of PostgreSQL's programs on a database; the password is told by the environment, where no list of
    processes shows it."""
    given = make_url(url)
    plain = given.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    _run_program(program, ["--dbname", plain, *words], {"PGPASSWORD": given.password or ""})


def _run_program(program: str, words: list[str], told: dict[str, str]) -> str:
    """What it says."""
    installed = sorted(PROGRAMS.glob(f"*/bin/{program}"), key=_release, reverse=True)
    path = str(installed[0]) if installed else shutil.which(program)
    if path is None:
        raise BadInput(
            f"expected {program} of PostgreSQL, got none: install postgresql-client, or use your own"
        )
    around = {"PATH": os.defpath, "HOME": str(Path.home()), **told}
    ran = subprocess.run([path, *words], capture_output=True, text=True, env=around, check=False)
    if ran.returncode:
        said = (ran.stderr.strip().splitlines() or ["no words"])[0]
        raise BadInput(f"expected {program} to end well, got code {ran.returncode}: {said}")
    return ran.stdout


def _release(program: Path) -> int:
    release = program.parent.parent.name
    return int(release) if release.isdecimal() else 0
