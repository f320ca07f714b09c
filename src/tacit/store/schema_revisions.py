"""Databases of billing, brought to the newest revision of their tables when they are opened.

Each party has a folder of revisions (`migrations`), which alembic runs in their order, and a table of its own
that says which was the last. A new database goes through all of them, an older one through those that it
lacks, in one transaction: it is at the newest revision afterwards, or as it was. A database that is up to date
is opened without alembic.

A release goes on beside the next one: with the revision, the database keeps the list of those whose releases
still work on its tables (each revision says it: `compatible_from`). A database of a newer revision is served as
it is by a release on that list, and refused by any other. An upgrade that would break releases is refused while
other processes have the PostgreSQL database open.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, MetaData, inspect, make_url, text
from sqlalchemy.pool import NullPool

from tacit import expect
from tacit.errors import BadInput
from tacit.store.database import (
    PartyDatabase,
    StoreKind,
    locate,
    sqlite_engine,
    sqlite_is_torn,
    translate_errors,
)

MIGRATIONS = Path(__file__).parent / "migrations"

# Revisions speak to alembic's `op`, of which a process has one.
_ONE_AT_A_TIME = threading.Lock()

# What is deleted is overwritten: keys, and reports with the order in which they came.
WRITING = ("foreign_keys = ON", "secure_delete = ON")


@dataclass(frozen=True)
class PartySchema:
    """One party's tables and their revisions.

    strangers  tables of parties whose knowledge must never lie beside this one's
    head       the newest revision
    folders    where the revisions are
    """

    kind: StoreKind
    metadata: MetaData
    version_table: str
    strangers: tuple[str, ...]
    page_bytes: int
    head: str
    folders: tuple[Path, ...]


def open_migrated(where: str | Path, schema: PartySchema) -> PartyDatabase:
    """The party's database at a path or URL, made if nothing is there; refused, untouched, if not ours."""
    expect.kind("where", where, str, Path)
    database = PartyDatabase(_named(where, schema), schema.kind, schema.page_bytes, writing=WRITING)
    database.name = expect.without_passwords(str(where))
    _refuse_others(database, schema)
    database.make_ready()
    with database.reading() as connection:
        up_to_date = _works_here(connection, database.name, schema)
    if not up_to_date:
        with _ONE_AT_A_TIME, _migrating(database) as connection:
            _upgrade(connection, database.name, schema)
    return database


def is_served(database: PartyDatabase, schema: PartySchema) -> bool:
    """Whether this release works on the tables as they are: a newer one may have upgraded them meanwhile."""
    with database.reading() as connection:
        return _works_here(connection, database.name, schema)


def _named(where: str | Path, schema: PartySchema) -> str | Path:
    """A URL with this process's name in it, by which `_refuse_to_break` knows its own sessions."""
    if not isinstance(place := locate(where, schema.kind), str):
        return where
    called = f"{_application(schema)} {socket.gethostname()[:24]} {os.getpid()}"
    return make_url(place).update_query_dict({"application_name": called}).render_as_string(hide_password=False)


def _application(schema: PartySchema) -> str:
    return f"tacit {schema.kind.noun}"


def _works_here(connection: Connection, name: str, schema: PartySchema) -> bool:
    found = _revision(connection, name, schema)
    if found == schema.head:
        return True
    if not inspect(connection).has_table(table := _compatible_table(schema)):
        return False
    compatible = set(connection.execute(text(f"SELECT revision FROM {table}")).scalars())
    return {found, schema.head} <= compatible  # or the list is of another revision


def _compatible_table(schema: PartySchema) -> str:
    return f"{schema.version_table}_compatible"


def _refuse_others(database: PartyDatabase, schema: PartySchema) -> None:
    present, noun = database.table_names(), schema.kind.noun
    beside = sorted(present & set(schema.strangers))
    if beside:
        raise schema.kind.trouble(
            f"expected a database without {beside[0]} at {database.name}: what both parties know must not lie "
            "in one place, where one thief finds it"
        )
    ours = present & set(schema.metadata.tables)
    # A file is one party's alone; a PostgreSQL database may well hold other people's tables.
    if schema.version_table not in present and (ours or (present and database.path)):
        found = ", ".join(sorted(present)[:5])
        raise schema.kind.trouble(f"expected {noun} tables or nothing at {database.name}, got tables {found}")


def _revision(connection: Connection, name: str, schema: PartySchema) -> str | None:
    """The revision of what is there; None where nothing is."""
    if not inspect(connection).has_table(schema.version_table):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {schema.version_table}")).scalars().all()
    if len(found) != 1:
        got = ", ".join(sorted(found)) or "none"
        raise schema.kind.corrupt(f"expected one revision of the {schema.kind.noun} at {name}, got {got}")
    return str(found[0])


@contextmanager
def _migrating(database: PartyDatabase) -> Iterator[Connection]:
    """One transaction that changes tables. SQLite must not look at foreign keys while a table is rebuilt, which
    it does under another name; they are looked at before it ends."""
    if database.path is None:
        with database.writing() as connection:
            yield connection
        return
    engine = sqlite_engine(database.path, ("synchronous = FULL",), begin="BEGIN IMMEDIATE", poolclass=NullPool)
    with translate_errors(database.name, database.kind, sqlite_is_torn), engine.begin() as connection:
        yield connection
        if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
            raise database.kind.corrupt(
                f"the {database.kind.noun} at {database.name} has rows without what they refer to"
            )


def _upgrade(connection: Connection, name: str, schema: PartySchema) -> None:
    try:
        from alembic.operations import Operations
        from alembic.runtime.migration import MigrationContext, MigrationStep
        from alembic.script import ScriptDirectory
    except ModuleNotFoundError:
        raise BadInput(
            f"expected alembic to make or upgrade the {schema.kind.noun}, got none: pip install 'tacit[serve]'"
        ) from None
    scripts = ScriptDirectory(str(MIGRATIONS), version_locations=[str(each) for each in schema.folders])
    current = _revision(connection, name, schema)  # again: another process may have been faster
    known = {script.revision for script in scripts.walk_revisions()}
    if current is not None and current not in known:
        raise schema.kind.trouble(
            f"expected revision {schema.head} or older of the {schema.kind.noun} at {name}, or one that this "
            f"release works with, got {current}: it was made by another release of tacit"
        )
    chain = list(scripts.iterate_revisions(schema.head, "base"))[::-1]
    compatible = compatible_revisions(
        [(each.revision, getattr(each.module, "compatible_from", each.revision)) for each in chain]
    )
    if current is not None and current not in compatible:
        _refuse_to_break(connection, name, schema)
    pending = list(scripts.iterate_revisions(schema.head, current or "base"))[::-1]
    steps = [MigrationStep.upgrade_from_script(scripts.revision_map, script) for script in pending]
    options = {
        "version_table": schema.version_table,
        "target_metadata": schema.metadata,  # for its way of naming constraints
        "fn": lambda _heads, _context: steps,
    }
    context = MigrationContext.configure(connection, opts=options)
    with Operations.context(context):
        context.run_migrations()
    table = _compatible_table(schema)
    connection.execute(text(f"CREATE TABLE IF NOT EXISTS {table} (revision VARCHAR(32) PRIMARY KEY)"))
    connection.execute(text(f"DELETE FROM {table}"))
    connection.execute(
        text(f"INSERT INTO {table} VALUES (:revision)"), [{"revision": each} for each in compatible]
    )


def compatible_revisions(chain: Sequence[tuple[str, str]]) -> list[str]:
    """Revisions whose releases work on the tables that the last one leaves, of all of them in their order, each
    with its `compatible_from`: every later one has to let them.

    >>> compatible_revisions([("1", "1"), ("2", "1"), ("3", "2"), ("4", "1")])
    ['2', '3', '4']
    """
    names = [name for name, _ in chain]
    oldest = max(names.index(compatible_from) for _, compatible_from in chain)
    return names[oldest:]


def _refuse_to_break(connection: Connection, name: str, schema: PartySchema) -> None:
    """A SQLite file is served by one process, which is this one."""
    if connection.dialect.name == "sqlite":
        return
    others = (
        "SELECT count(DISTINCT application_name) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name LIKE :ours AND application_name <> current_setting('application_name')"
    )
    count = connection.execute(text(others), {"ours": f"{_application(schema)} %"}).scalar()
    if count:
        raise schema.kind.trouble(
            f"expected nobody else at the {schema.kind.noun} at {name}, since revision {schema.head} breaks "
            f"older releases, got {count} other processes: stop them first"
        )
