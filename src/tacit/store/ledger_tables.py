"""Tables of the ledger, their versions, and its records as rows of them.

The database is a second wall: no line can hold more than its limit, even if the rules above it were wrong.

version 1   lines, reservations, entries
version 2   and renewals: a limit for every window of a series
version 3   reservations say which attempt holds them, what it made, and which entries are about them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Integer,
    MetaData,
    RowMapping,
    Select,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from tacit.errors import LedgerCorrupt
from tacit.privacy.ledger.chain import (
    START,
    ChainEntry,
    ChainHead,
    decode_event,
    follows,
    is_intact,
    line_text,
    parse_line,
    parse_series,
    series_text,
)
from tacit.privacy.ledger.lines import (
    Amount,
    AmountReserved,
    LedgerEvent,
    Line,
    ReleaseMade,
    ReservationAborted,
    ReservationClaimed,
    ReservationCommitted,
    ReservationHandedOver,
    Series,
)
from tacit.privacy.ledger.rules import Account, Change, Ledger, Renewal, Reservation, ReservationState

VERSION = 3

METADATA = MetaData()


def _amount_columns(name: str) -> tuple[Column[int], Column[int]]:
    epsilon, delta = f"{name}_epsilon_nanos", f"{name}_delta_attos"
    return (
        Column(epsilon, BigInteger, CheckConstraint(f"{epsilon} >= 0"), nullable=False),
        Column(delta, BigInteger, CheckConstraint(f"{delta} >= 0"), nullable=False),
    )


VERSIONS = Table(
    "ledger_version",
    METADATA,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)

LINES = Table(
    "ledger_lines",
    METADATA,
    Column("line", Text, primary_key=True),
    *_amount_columns("limit"),
    *_amount_columns("spent"),
    *_amount_columns("reserved"),
    CheckConstraint("spent_epsilon_nanos + reserved_epsilon_nanos <= limit_epsilon_nanos"),
    CheckConstraint("spent_delta_attos + reserved_delta_attos <= limit_delta_attos"),
)

RESERVATIONS = Table(
    "ledger_reservations",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("line", Text, ForeignKey("ledger_lines.line"), nullable=False),
    *_amount_columns("asked"),
    Column("purpose", Text, nullable=False),
    Column("state", Text, CheckConstraint("state IN ('reserved', 'committed', 'aborted')"), nullable=False),
    Column("attempt", Text),
    Column("release", Text),
    Column("first_entry", BigInteger, nullable=False, server_default="0"),
    Column("last_entry", BigInteger, nullable=False, server_default="0"),
)

ENTRIES = Table(
    "ledger_entries",
    METADATA,
    Column("sequence", BigInteger, CheckConstraint("sequence >= 1"), primary_key=True, autoincrement=False),
    Column("previous", Text, nullable=False, unique=True),
    Column("contents", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
)

RENEWALS = Table(
    "ledger_renewals",
    METADATA,
    Column("series", Text, primary_key=True),
    *_amount_columns("limit"),
)


def create_tables(connection: Connection) -> None:
    """A new, empty ledger."""
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(insert(VERSIONS).values(one=1, version=VERSION))


def stored_version(connection: Connection) -> int | None:
    """The version of the ledger that is there; None where there is nothing at all."""
    present = set(inspect(connection).get_table_names())
    if VERSIONS.name not in present:
        ours = present & set(METADATA.tables)
        # A file is ours alone; a PostgreSQL database may well hold other people's tables.
        if ours or (present and connection.dialect.name == "sqlite"):
            raise LedgerCorrupt(f"expected a ledger or an empty database, got tables {sorted(present)[:5]}")
        return None
    found = connection.execute(select(VERSIONS.c.version)).scalars().all()
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
        connection.execute(update(VERSIONS).values(version=step + 1))


def refuse_other_tables(connection: Connection) -> None:
    """Every table of the current version must be there with the columns that it has."""
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    for table in METADATA.sorted_tables:
        expected = {column.name for column in table.columns}
        columns = inspector.get_columns(table.name) if table.name in present else []
        got = {column["name"] for column in columns}
        if got != expected:
            raise LedgerCorrupt(f"expected columns {sorted(expected)} in {table.name}, got {sorted(got)}")


def _add_renewals(connection: Connection) -> None:
    RENEWALS.create(connection)


def _add_attempts(connection: Connection) -> None:
    for column in ("attempt TEXT", "release TEXT", *(f"{at} BIGINT NOT NULL DEFAULT 0" for at in _PLACES)):
        connection.execute(text(f"ALTER TABLE {RESERVATIONS.name} ADD COLUMN {column}"))
    places: dict[str, tuple[int, int]] = {}
    for sequence, contents in connection.execute(
        select(ENTRIES.c.sequence, ENTRIES.c.contents).order_by(ENTRIES.c.sequence)
    ):
        key = getattr(decode_event(contents), "key", None)
        if key is not None:
            places[key] = (places.get(key, (sequence,))[0], sequence)
    for key, place in places.items():
        connection.execute(
            update(RESERVATIONS).where(RESERVATIONS.c.key == key).values(dict(zip(_PLACES, place, strict=True)))
        )


_PLACES = ("first_entry", "last_entry")
_STEPS: Mapping[int, Callable[[Connection], None]] = {1: _add_renewals, 2: _add_attempts}


Record = TypeVar("Record")


def stored_ledger(connection: Connection) -> Ledger:
    """The totals as they are stored."""
    return stored_lines(connection, _records(connection, select(RESERVATIONS), _reservation))


def stored_lines(connection: Connection, beside: Sequence[Reservation] = ()) -> Ledger:
    """All lines and renewals as they are stored, and of the reservations these."""
    accounts = _records(connection, select(LINES), _account)
    return _ledger(accounts, beside, _records(connection, select(RENEWALS), _renewal))


def ledger_around(connection: Connection, *, key: str | None = None, line: Line | None = None) -> Ledger:
    """Only what matters for a decision about this key or line. A reservation must be what its entries say."""
    query = select(RESERVATIONS).where(RESERVATIONS.c.key == key)
    found = _records(connection, query, lambda row: (_reservation(row), _place(row)))
    for each, place in found:
        _check_entries(connection, each, *place)
    reservations = [reservation for reservation, _ in found]
    touched = {reservation.line for reservation in reservations} | ({line} if line else set())
    texts = [line_text(each) for each in touched]
    series = [series_text(each.series) for each in touched]
    accounts = _records(connection, select(LINES).where(LINES.c.line.in_(texts)), _account)
    renewals = _records(connection, select(RENEWALS).where(RENEWALS.c.series.in_(series)), _renewal)
    return _ledger(accounts, reservations, renewals)


def _ledger(accounts: list[Account], reservations: Sequence[Reservation], renewals: list[Renewal]) -> Ledger:
    return Ledger(
        {account.line: account for account in accounts},
        {reservation.key: reservation for reservation in reservations},
        {renewal.series: renewal for renewal in renewals},
    )


def stored_series(connection: Connection) -> set[Series]:
    """Each that has a line, or a limit for every window."""
    lines = connection.execute(select(LINES.c.line)).scalars()
    renewals = connection.execute(select(RENEWALS.c.series)).scalars()
    return {parse_line(each).series for each in lines} | set(map(parse_series, renewals))


def entry_places(connection: Connection) -> dict[str, tuple[int, int]]:
    """For each reservation the entry that made it, and the last one about it."""
    table = RESERVATIONS
    found = connection.execute(select(table.c.key, table.c.first_entry, table.c.last_entry))
    return {key: (first, last) for key, first, last in found}


def unsettled_or_later(connection: Connection, after: int) -> tuple[Ledger, dict[str, tuple[int, int]]]:
    """The totals as they are stored; of the reservations, those not settled or with an entry after this one."""
    table = RESERVATIONS
    query = select(table).where(
        (table.c.state == str(ReservationState.RESERVED)) | (table.c.last_entry > after)
    )
    found = _records(
        connection, query, lambda row: (_reservation(row), (row["first_entry"], row["last_entry"]))
    )
    ledger = stored_lines(connection, [reservation for reservation, _ in found])
    return ledger, {reservation.key: place for reservation, place in found}


def stored_sizes(connection: Connection) -> tuple[int, int]:
    """How many entries there are, and how many reservations."""
    counts = (select(func.count()).select_from(table) for table in (ENTRIES, RESERVATIONS))
    entries, reservations = (connection.execute(count).scalar_one() for count in counts)
    return entries, reservations


def stored_entries(connection: Connection, after: int = 0) -> Iterator[ChainEntry]:
    table = ENTRIES
    for row in connection.execute(select(table).where(table.c.sequence > after).order_by(table.c.sequence)):
        yield ChainEntry(*row)


def stored_head(connection: Connection) -> ChainHead:
    """The last entry, which must be whole before another one may follow it."""
    last_two = select(ENTRIES).order_by(ENTRIES.c.sequence.desc()).limit(2)
    found = [ChainEntry(*row) for row in connection.execute(last_two)]
    if not found:
        return START
    before = found[1].head if len(found) == 2 else START
    if not follows(before, found[0]):
        raise LedgerCorrupt(f"entry {found[0].sequence}, the last one, does not follow entry {before.sequence}")
    return found[0].head


def entry_hash(connection: Connection, sequence: int) -> str | None:
    return connection.execute(select(ENTRIES.c.hash).where(ENTRIES.c.sequence == sequence)).scalar()


def has_entry(connection: Connection, known: ChainHead) -> bool:
    """Whether the chain has this entry; every chain has its start."""
    return known.sequence == 0 or entry_hash(connection, known.sequence) == known.hash


def append_entry(connection: Connection, entry: ChainEntry) -> None:
    connection.execute(
        insert(ENTRIES).values(
            sequence=entry.sequence, previous=entry.previous, contents=entry.contents, hash=entry.hash
        )
    )


def save_change(connection: Connection, change: Change, last: int) -> None:
    """Store the records that a decision left behind; `last` is the entry that says so."""
    if change.account is not None:
        account = change.account
        totals = {**_row("limit", account.limit), **_row("spent", account.spent)}
        totals |= _row("reserved", account.reserved)
        _upsert(connection, LINES, {"line": line_text(account.line)}, totals)
    if change.reservation is not None:
        reservation = change.reservation
        values = {"line": line_text(reservation.line), **_row("asked", reservation.amount)}
        values |= {"purpose": reservation.purpose, "state": str(reservation.state), "last_entry": last}
        values |= {"attempt": reservation.attempt, "release": reservation.release}
        if isinstance(change.events[-1], AmountReserved):
            values["first_entry"] = last
        _upsert(connection, RESERVATIONS, {"key": reservation.key}, values)
    if change.renewal is not None:
        named = {"series": series_text(change.renewal.series)}
        _upsert(connection, RENEWALS, named, _row("limit", change.renewal.limit))


def _check_entries(connection: Connection, reservation: Reservation, first: int, last: int) -> None:
    """Hold a reservation to the entry that made it and the last about it: each whole and in its place."""
    at = {first, first + 1, last, last + 1}
    found = connection.execute(select(ENTRIES).where(ENTRIES.c.sequence.in_(at)))
    entries = {row.sequence: ChainEntry(*row) for row in found}
    for sequence in (first, last):
        entry, following = entries.get(sequence), entries.get(sequence + 1)
        linked = following is None or (entry is not None and following.previous == entry.hash)
        if entry is None or not is_intact(entry) or not linked:
            raise LedgerCorrupt(
                f"entry {sequence} is not whole or not followed by the next: something was edited"
            )
    made, latest = decode_event(entries[first].contents), decode_event(entries[last].contents)
    if made != _reserved_event(reservation) or not _is_left_by(latest, reservation):
        raise LedgerCorrupt(
            f"the reservation {reservation.key!r} is not what its entries say: something was edited"
        )


def _reserved_event(reservation: Reservation) -> AmountReserved:
    return AmountReserved(reservation.key, reservation.line, reservation.amount, reservation.purpose)


def _is_left_by(event: LedgerEvent, reservation: Reservation) -> bool:
    """Whether this event, the last one about a reservation, leaves it as it is."""
    key, state = reservation.key, reservation.state
    holds = (state, reservation.attempt, reservation.release)
    match event:
        case AmountReserved() | ReservationHandedOver():
            return event.key == key and holds == (ReservationState.RESERVED, None, None)
        case ReservationClaimed():
            return event.key == key and holds == (ReservationState.RESERVED, event.attempt, None)
        case ReleaseMade():
            return event.key == key and holds == (ReservationState.RESERVED, event.attempt, event.release)
        case ReservationCommitted():
            by_hand = reservation.attempt is None and reservation.release is not None
            return event.key == key and state is ReservationState.COMMITTED and event.by_hand == by_hand
        case ReservationAborted():
            return event.key == key and state is ReservationState.ABORTED
    return False


def _upsert(connection: Connection, table: Table, named: dict[str, str], values: dict[str, Any]) -> None:
    ((column, name),) = named.items()
    changed = connection.execute(update(table).where(table.c[column] == name).values(**values))
    if changed.rowcount == 0:
        connection.execute(insert(table).values(**named, **values))


def _records(connection: Connection, query: Select[Any], read: Callable[[RowMapping], Record]) -> list[Record]:
    try:
        return [read(row) for row in connection.execute(query).mappings()]
    except (ValueError, KeyError, TypeError) as problem:
        raise LedgerCorrupt(f"expected the ledger's own records, got something else: {problem}") from None


def _account(row: RowMapping) -> Account:
    return Account(
        parse_line(row["line"]), _amount("limit", row), _amount("spent", row), _amount("reserved", row)
    )


def _reservation(row: RowMapping) -> Reservation:
    asked, held = (row["key"], parse_line(row["line"]), _amount("asked", row)), (row["attempt"], row["release"])
    return Reservation(*asked, row["purpose"], ReservationState(row["state"]), *held)


def _place(row: RowMapping) -> tuple[int, int]:
    return row["first_entry"], row["last_entry"]


def _renewal(row: RowMapping) -> Renewal:
    return Renewal(parse_series(row["series"]), _amount("limit", row))


def _amount(name: str, row: RowMapping) -> Amount:
    return Amount(row[f"{name}_epsilon_nanos"], row[f"{name}_delta_attos"])


def _row(name: str, amount: Amount) -> dict[str, int]:
    return {f"{name}_epsilon_nanos": amount.epsilon_nanos, f"{name}_delta_attos": amount.delta_attos}
