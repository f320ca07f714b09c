"""Reads and writes the ledger's records as rows of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, func, insert, select, update

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
from tacit.store import ledger_schema

Record = TypeVar("Record")


def stored_ledger(connection: Connection) -> Ledger:
    """The totals as they are stored."""
    accounts = _records(connection, select(ledger_schema.lines), _account)
    reservations = _records(connection, select(ledger_schema.reservations), _reservation)
    renewals = _records(connection, select(ledger_schema.renewals), _renewal)
    return Ledger(
        {account.line: account for account in accounts},
        {reservation.key: reservation for reservation in reservations},
        {renewal.series: renewal for renewal in renewals},
    )


def ledger_around(connection: Connection, *, key: str | None = None, line: Line | None = None) -> Ledger:
    """Only what matters for a decision about this key or line. A reservation must be what its entries say."""
    query = select(ledger_schema.reservations).where(ledger_schema.reservations.c.key == key)
    found = _records(connection, query, lambda row: (_reservation(row), _place(row)))
    for each, place in found:
        _check_entries(connection, each, *place)
    reservations = [reservation for reservation, _ in found]
    touched = {reservation.line for reservation in reservations} | ({line} if line else set())
    texts = [line_text(each) for each in touched]
    series = [series_text(each.series) for each in touched]
    accounts = _records(
        connection, select(ledger_schema.lines).where(ledger_schema.lines.c.line.in_(texts)), _account
    )
    renewals = _records(
        connection, select(ledger_schema.renewals).where(ledger_schema.renewals.c.series.in_(series)), _renewal
    )
    return Ledger(
        {account.line: account for account in accounts},
        {reservation.key: reservation for reservation in reservations},
        {renewal.series: renewal for renewal in renewals},
    )


def stored_series(connection: Connection) -> set[Series]:
    """Each that has a line, or a limit for every window."""
    lines = connection.execute(select(ledger_schema.lines.c.line)).scalars()
    renewals = connection.execute(select(ledger_schema.renewals.c.series)).scalars()
    return {parse_line(each).series for each in lines} | set(map(parse_series, renewals))


def entry_places(connection: Connection) -> dict[str, tuple[int, int]]:
    """For each reservation the entry that made it, and the last one about it."""
    table = ledger_schema.reservations
    found = connection.execute(select(table.c.key, table.c.first_entry, table.c.last_entry))
    return {key: (first, last) for key, first, last in found}


def unsettled_or_later(connection: Connection, after: int) -> tuple[Ledger, dict[str, tuple[int, int]]]:
    """The totals as they are stored; of the reservations, those not settled or with an entry after this one."""
    table = ledger_schema.reservations
    query = select(table).where(
        (table.c.state == str(ReservationState.RESERVED)) | (table.c.last_entry > after)
    )
    found = _records(
        connection, query, lambda row: (_reservation(row), (row["first_entry"], row["last_entry"]))
    )
    accounts = _records(connection, select(ledger_schema.lines), _account)
    renewals = _records(connection, select(ledger_schema.renewals), _renewal)
    ledger = Ledger(
        {account.line: account for account in accounts},
        {reservation.key: reservation for reservation, _ in found},
        {renewal.series: renewal for renewal in renewals},
    )
    return ledger, {reservation.key: place for reservation, place in found}


def stored_sizes(connection: Connection) -> tuple[int, int]:
    """How many entries there are, and how many reservations."""
    counts = (
        select(func.count()).select_from(table) for table in (ledger_schema.entries, ledger_schema.reservations)
    )
    entries, reservations = (connection.execute(count).scalar_one() for count in counts)
    return entries, reservations


def stored_entries(connection: Connection, after: int = 0) -> Iterator[ChainEntry]:
    table = ledger_schema.entries
    for row in connection.execute(select(table).where(table.c.sequence > after).order_by(table.c.sequence)):
        yield ChainEntry(*row)


def stored_head(connection: Connection) -> ChainHead:
    """The last entry, which must be whole before another one may follow it."""
    last_two = select(ledger_schema.entries).order_by(ledger_schema.entries.c.sequence.desc()).limit(2)
    found = [ChainEntry(*row) for row in connection.execute(last_two)]
    if not found:
        return START
    before = found[1].head if len(found) == 2 else START
    if not follows(before, found[0]):
        raise LedgerCorrupt(f"entry {found[0].sequence}, the last one, does not follow entry {before.sequence}")
    return found[0].head


def entry_hash(connection: Connection, sequence: int) -> str | None:
    return connection.execute(
        select(ledger_schema.entries.c.hash).where(ledger_schema.entries.c.sequence == sequence)
    ).scalar()


def append_entry(connection: Connection, entry: ChainEntry) -> None:
    connection.execute(
        insert(ledger_schema.entries).values(
            sequence=entry.sequence, previous=entry.previous, contents=entry.contents, hash=entry.hash
        )
    )


def save_change(connection: Connection, change: Change, last: int) -> None:
    """Store the records that a decision left behind; `last` is the entry that says so."""
    if change.account is not None:
        account = change.account
        totals = {**_row("limit", account.limit), **_row("spent", account.spent)}
        totals |= _row("reserved", account.reserved)
        _upsert(connection, ledger_schema.lines, {"line": line_text(account.line)}, totals)
    if change.reservation is not None:
        reservation = change.reservation
        values = {"line": line_text(reservation.line), **_row("asked", reservation.amount)}
        values |= {"purpose": reservation.purpose, "state": str(reservation.state), "last_entry": last}
        values |= {"attempt": reservation.attempt, "release": reservation.release}
        if isinstance(change.events[-1], AmountReserved):
            values["first_entry"] = last
        _upsert(connection, ledger_schema.reservations, {"key": reservation.key}, values)
    if change.renewal is not None:
        named = {"series": series_text(change.renewal.series)}
        _upsert(connection, ledger_schema.renewals, named, _row("limit", change.renewal.limit))


def _check_entries(connection: Connection, reservation: Reservation, first: int, last: int) -> None:
    """Hold a reservation to the entry that made it and the last about it: each whole and in its place."""
    at = {first, first + 1, last, last + 1}
    found = connection.execute(select(ledger_schema.entries).where(ledger_schema.entries.c.sequence.in_(at)))
    entries = {row.sequence: ChainEntry(*row) for row in found}
    for sequence in (first, last):
        entry, following = entries.get(sequence), entries.get(sequence + 1)
        linked = following is None or (entry is not None and following.previous == entry.hash)
        if entry is None or not is_intact(entry) or not linked:
            raise LedgerCorrupt(
                f"entry {sequence} is not whole or not followed by the next: something was edited"
            )
    made, latest = decode_event(entries[first].contents), decode_event(entries[last].contents)
    if made != _reserved(reservation) or not _is_left_by(latest, reservation):
        raise LedgerCorrupt(
            f"the reservation {reservation.key!r} is not what its entries say: something was edited"
        )


def _reserved(reservation: Reservation) -> AmountReserved:
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
