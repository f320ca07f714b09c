"""The ledger's tables, and how older ones become current ones.

The database is a second wall: no line can hold more than its limit, even if the rules above it were wrong.

version 1   lines, reservations, entries
version 2   and renewals: a limit for every window of a series
version 3   reservations say which attempt holds them, what it made, and which entries are about them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from tacit.errors import LedgerCorrupt
from tacit.privacy.ledger.chain import decode_event

VERSION = 3

metadata = MetaData()


def _amount(name: str) -> tuple[Column[int], Column[int]]:
    epsilon, delta = f"{name}_epsilon_nanos", f"{name}_delta_attos"
    return (
        Column(epsilon, BigInteger, CheckConstraint(f"{epsilon} >= 0"), nullable=False),
        Column(delta, BigInteger, CheckConstraint(f"{delta} >= 0"), nullable=False),
    )


version = Table(
    "ledger_version",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)

lines = Table(
    "ledger_lines",
    metadata,
    Column("line", Text, primary_key=True),
    *_amount("limit"),
    *_amount("spent"),
    *_amount("reserved"),
    CheckConstraint("spent_epsilon_nanos + reserved_epsilon_nanos <= limit_epsilon_nanos"),
    CheckConstraint("spent_delta_attos + reserved_delta_attos <= limit_delta_attos"),
)

reservations = Table(
    "ledger_reservations",
    metadata,
    Column("key", Text, primary_key=True),
    Column("line", Text, ForeignKey("ledger_lines.line"), nullable=False),
    *_amount("asked"),
    Column("purpose", Text, nullable=False),
    Column("state", Text, CheckConstraint("state IN ('reserved', 'committed', 'aborted')"), nullable=False),
    Column("attempt", Text),
    Column("release", Text),
    Column("first_entry", BigInteger, nullable=False, server_default="0"),
    Column("last_entry", BigInteger, nullable=False, server_default="0"),
)

entries = Table(
    "ledger_entries",
    metadata,
    Column("sequence", BigInteger, CheckConstraint("sequence >= 1"), primary_key=True, autoincrement=False),
    Column("previous", Text, nullable=False, unique=True),
    Column("contents", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
)

renewals = Table(
    "ledger_renewals",
    metadata,
    Column("series", Text, primary_key=True),
    *_amount("limit"),
)


def create_tables(connection: Connection) -> None:
    """A new, empty ledger."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(insert(version).values(one=1, version=VERSION))


def stored_version(connection: Connection) -> int | None:
    """The version of the ledger that is there; None where there is nothing at all."""
    present = set(inspect(connection).get_table_names())
    if version.name not in present:
        ours = present & set(metadata.tables)
        # A file is ours alone; a PostgreSQL database may well hold other people's tables.
        if ours or (present and connection.dialect.name == "sqlite"):
            raise LedgerCorrupt(f"expected a ledger or an empty database, got tables {sorted(present)[:5]}")
        return None
    found = connection.execute(select(version.c.version)).scalars().all()
    if len(found) != 1 or not isinstance(found[0], int) or found[0] < 1:
        raise LedgerCorrupt(f"expected one ledger version, got {found}")
    if found[0] > VERSION:
        raise LedgerCorrupt(
            f"expected a ledger of version {VERSION} or older, got version {found[0]}: it was written by "
            "a newer tacit, and reading it with this one could miss spending"
        )
    return found[0]


def upgrade_tables(connection: Connection, found: int) -> None:
    """Bring an older ledger to the current version, within the caller's transaction."""
    for step in range(found, VERSION):
        _STEPS[step](connection)
        connection.execute(update(version).values(version=step + 1))


def refuse_other_tables(connection: Connection) -> None:
    """Every table of the current version must be there with the columns that it has."""
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    for table in metadata.sorted_tables:
        expected = {column.name for column in table.columns}
        columns = inspector.get_columns(table.name) if table.name in present else []
        got = {column["name"] for column in columns}
        if got != expected:
            raise LedgerCorrupt(f"expected columns {sorted(expected)} in {table.name}, got {sorted(got)}")


def _add_renewals(connection: Connection) -> None:
    renewals.create(connection)


def _add_attempts(connection: Connection) -> None:
    for column in ("attempt TEXT", "release TEXT", *(f"{at} BIGINT NOT NULL DEFAULT 0" for at in _PLACES)):
        connection.execute(text(f"ALTER TABLE {reservations.name} ADD COLUMN {column}"))
    places: dict[str, tuple[int, int]] = {}
    for sequence, contents in connection.execute(
        select(entries.c.sequence, entries.c.contents).order_by(entries.c.sequence)
    ):
        key = getattr(decode_event(contents), "key", None)
        if key is not None:
            places[key] = (places.get(key, (sequence,))[0], sequence)
    for key, place in places.items():
        connection.execute(
            update(reservations).where(reservations.c.key == key).values(dict(zip(_PLACES, place, strict=True)))
        )


_PLACES = ("first_entry", "last_entry")
_STEPS: Mapping[int, Callable[[Connection], None]] = {1: _add_renewals, 2: _add_attempts}
