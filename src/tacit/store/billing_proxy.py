"""The proxy's part of billing, made to last: a `BillingProxyStore` on SQLite or PostgreSQL.

    store = SqlBillingProxyStore.open("billing_proxy.sqlite")

What a stolen copy reveals: directories and statements, which are public; of reports that wait, their menu, and
the order and second in which they came; of reports that have left, the batch that each was in, and nothing of
their order or time. Neither who sent a report nor what it says: addresses are not kept, and choices are sealed
to the ad server.

Reports move from one table to another when their batch is formed, in the batch's shuffled order, and their
nonces are written then, sorted: no row number or place tells in which order they came. In a SQLite file what is
deleted is overwritten. The log that it writes ahead still shows, up to some megabytes back, in which steps rows
were added; it is emptied by `forget`, and when the store is closed. PostgreSQL has deleted rows in its files
until it has vacuumed and its write-ahead log has moved on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, tuple_, update

from tacit import expect
from tacit.bill.protocol.directory import DirectoryLeaf
from tacit.bill.protocol.encoding import BillVerdict, Reader
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.bill.proxy.store import (
    AddOutcome,
    FormedBatch,
    NewReport,
    StoredBatch,
    StoredMenu,
    WaitingReports,
)
from tacit.display import brief
from tacit.errors import BadInput, BillError, BillRefused
from tacit.store.billing_accounts import next_number
from tacit.store.billing_restores import check_witness, closed_epoch, proxy_mark
from tacit.store.billing_tables import CONTENTS, DIRECTORIES, FORGOTTEN, FORMED, LEFT, LISTED, PROXY, WAITING
from tacit.store.billing_witness import BillingWitness
from tacit.store.database import LOOKED_UP_AT_ONCE, PartyDatabase, StoreKind, append_many, insert_many
from tacit.store.schema_revisions import MIGRATIONS, PartySchema, open_migrated

SCHEMA = PartySchema(
    kind=StoreKind("billing proxy store", 0x7AC1E, BillError, BillError),
    metadata=PROXY,
    version_table="bill_proxy_version",
    strangers=("bill_ads_version", "gather_server_version"),
    page_bytes=4096,  # nonces fall on pages all over their tree, so pages should be small
    head="2",
    folders=(MIGRATIONS / "proxy",),
)

DIGEST_BYTES = 16  # enough to tell a report that is sent again from another of the same token

# Nonces that one transaction of `forget` looks at: others get their turn in between.
FORGET_AT_ONCE = 20_000


class SqlBillingProxyStore:
    """A `BillingProxyStore`. Every method is one transaction, on disk when it returns; any thread may call.

    `forget` is several: one that was cut short is taken up by calling it again.
    """

    def __init__(self, database: PartyDatabase, witness: BillingWitness | None = None) -> None:
        self._database, self._witness = database, witness

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    @property
    def database(self) -> PartyDatabase:
        """For whoever looks figures up."""
        return self._database

    @classmethod
    def open(cls, where: str | Path, *, witness: Path | None = None) -> SqlBillingProxyStore:
        """The store at a path or URL; a new one where there is nothing. With a witness, which whoever releases
        reports must have, one that was put back to an older state is refused (BillRolledBack)."""
        database = open_migrated(where, SCHEMA)
        if witness is None:
            return cls(database)
        kept = BillingWitness(witness)
        check_witness(database, kept, of_proxy=True)
        return cls(database, kept)

    def _bear_witness(self) -> None:
        """After a commit, and before anybody hears of it; again: nothing."""
        if self._witness is not None:
            with self._database.reading() as connection:
                mark = proxy_mark(connection)
            self._witness.advance(mark)

    def close(self) -> None:
        """Let go of the connections. What was acknowledged is on disk with or without this."""
        self._database.close()

    def keep_directory(self, epoch: int, directory: bytes, head: bytes, menus: Sequence[StoredMenu]) -> bytes:
        kept = self._keep_directory(epoch, directory, head, menus)
        self._bear_witness()
        return kept

    def _keep_directory(self, epoch: int, directory: bytes, head: bytes, menus: Sequence[StoredMenu]) -> bytes:
        with self._database.writing() as connection:
            query = select(DIRECTORIES.c.head, DIRECTORIES.c.directory).where(DIRECTORIES.c.epoch == epoch)
            known = connection.execute(query).first()
            if known is not None:
                if known.directory != directory:
                    raise BillRefused(BillVerdict.CONFLICT, f"epoch {epoch} has another directory already")
                return bytes(known.head)
            forgotten = select(FORGOTTEN).where(FORGOTTEN.c.epoch == epoch)
            if epoch <= closed_epoch(connection) or connection.execute(forgotten).first() is not None:
                raise BillRefused(
                    BillVerdict.STALE_EPOCH, f"epoch {epoch} is over, and gets no other directory"
                )
            if _known_menus(connection, [each.leaf.menu_id for each in menus]):
                raise BillRefused(BillVerdict.CONFLICT, f"a menu of epoch {epoch} is another epoch's already")
            times = {"opens": menus[0].opens, "closes": menus[0].closes, "expires": menus[0].expires}
            connection.execute(insert(DIRECTORIES).values(epoch=epoch, head=head, directory=directory, **times))
            rows = [
                (number, each.leaf.menu_id, epoch, each.leaf.to_bytes())
                for number, each in enumerate(menus, next_number(connection, LISTED))
            ]
            append_many(connection, LISTED, rows)
        return head

    def head(self, epoch: int) -> bytes | None:
        with self._database.reading() as connection:
            query = select(DIRECTORIES.c.head).where(DIRECTORIES.c.epoch == epoch)
            found: bytes | None = connection.execute(query).scalar()
            return found

    def current_head(self, now: int) -> bytes | None:
        open_now = (DIRECTORIES.c.opens <= now) & (DIRECTORIES.c.closes > now)
        with self._database.reading() as connection:
            open_now &= DIRECTORIES.c.epoch > closed_epoch(connection)
            query = select(DIRECTORIES.c.head).where(open_now).order_by(DIRECTORIES.c.epoch.desc()).limit(1)
            found: bytes | None = connection.execute(query).scalar()
            return found

    def menu(self, menu_id: bytes) -> StoredMenu | None:
        times = DIRECTORIES.c.epoch, DIRECTORIES.c.opens, DIRECTORIES.c.closes, DIRECTORIES.c.expires
        query = select(LISTED.c.leaf, *times).join(DIRECTORIES, DIRECTORIES.c.epoch == LISTED.c.epoch)
        with self._database.reading() as connection:
            row = connection.execute(query.where(LISTED.c.menu_id == menu_id)).first()
            if row is None or row.epoch <= closed_epoch(connection):
                return None
        return StoredMenu(DirectoryLeaf.parse(Reader(row.leaf)), row.epoch, row.opens, row.closes, row.expires)

    def add_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        if any(len(report.data) != REPORT_BYTES for report in reports):
            raise BadInput(f"expected reports of {REPORT_BYTES} bytes, got others")
        nonces = [report.nonce for report in reports]
        with self._database.writing() as connection:
            menus = _menu_numbers(connection, {report.menu_id for report in reports})
            left = _among(connection, f"SELECT nonce, digest FROM {LEFT.name} WHERE nonce", nonces)
            start = next_number(connection, WAITING)
            rows = [
                (start + place, menus[each.menu_id], each.arrived, each.nonce, each.data)
                for place, each in enumerate(reports)
                if each.nonce not in left
            ]
            if rows and insert_many(connection, WAITING, rows) < len(rows):
                return _outcomes(connection, reports, left, start)
        if not left:
            return [AddOutcome.NEW] * len(reports)
        return [
            _compare(left[each.nonce], _digest(each.data)) if each.nonce in left else AddOutcome.NEW
            for each in reports
        ]

    def waiting(self) -> Sequence[WaitingReports]:
        counted = select(
            WAITING.c.menu, func.count().label("reports"), func.min(WAITING.c.arrived).label("since")
        )
        menus = counted.group_by(WAITING.c.menu).subquery()
        query = select(LISTED.c.menu_id, menus.c.reports, menus.c.since).join(
            LISTED, LISTED.c.number == menus.c.menu
        )
        with self._database.reading() as connection:
            return [WaitingReports(*row) for row in connection.execute(query.order_by(LISTED.c.number))]

    def form_batch(
        self, menu_id: bytes, most: int, form: Callable[[Sequence[bytes]], FormedBatch]
    ) -> bytes | None:
        expect.whole("most", most, at_least=1)
        with self._database.writing() as connection:
            query = select(LISTED.c.number, LISTED.c.epoch).where(LISTED.c.menu_id == menu_id)
            menu = connection.execute(query).first()
            taken = [] if menu is None else _oldest(connection, menu.number, most)
            if menu is None or not taken:
                return None
            reports = [row.data for row in taken]
            formed = form(reports)
            if sorted(formed.order) != list(range(len(reports))):
                raise BadInput("expected an order of all reports of the batch, got another")
            number = next_number(connection, FORMED)
            values = {"batch_id": formed.batch_id, "menu": menu.number, "epoch": menu.epoch}
            connection.execute(insert(FORMED).values(number=number, statement=formed.statement, **values))
            append_many(connection, CONTENTS, [(number, b"".join(reports[place] for place in formed.order))])
            append_many(connection, LEFT, sorted((row.nonce, _digest(row.data), number) for row in taken))
            last = tuple_(taken[-1].arrived, taken[-1].number)
            gone = (WAITING.c.menu == menu.number) & (tuple_(WAITING.c.arrived, WAITING.c.number) <= last)
            connection.execute(delete(WAITING).where(gone))
        self._bear_witness()
        return formed.statement

    def undelivered(self) -> Sequence[bytes]:
        query = select(FORMED.c.batch_id).where(FORMED.c.receipt.is_(None)).order_by(FORMED.c.number)
        with self._database.reading() as connection:
            return connection.execute(query).scalars().all()

    def batch(self, batch_id: bytes) -> StoredBatch | None:
        query = select(FORMED.c.statement, CONTENTS.c.data).join(CONTENTS, CONTENTS.c.batch == FORMED.c.number)
        with self._database.reading() as connection:
            row = connection.execute(query.where(FORMED.c.batch_id == batch_id)).first()
        if row is None:
            return None
        data = bytes(row.data)
        reports = tuple(data[at : at + REPORT_BYTES] for at in range(0, len(data), REPORT_BYTES))
        return StoredBatch(batch_id, row.statement, reports)

    def settle(self, batch_id: bytes, receipt: bytes) -> None:
        with self._database.writing() as connection:
            query = select(FORMED.c.number, FORMED.c.receipt).where(FORMED.c.batch_id == batch_id)
            row = connection.execute(query).first()
            if row is None:
                raise BillRefused(BillVerdict.CONFLICT, "no batch of this id was formed here")
            if row.receipt is not None:
                if row.receipt != receipt:
                    raise BillRefused(BillVerdict.CONFLICT, "this batch has another receipt already")
                return
            connection.execute(update(FORMED).where(FORMED.c.number == row.number).values(receipt=receipt))
            connection.execute(delete(CONTENTS).where(CONTENTS.c.batch == row.number))

    def statement_for(self, nonce: bytes) -> tuple[bool, bytes | None]:
        left = select(FORMED.c.statement).join(LEFT, LEFT.c.batch == FORMED.c.number)
        with self._database.reading() as connection:
            statement = connection.execute(left.where(LEFT.c.nonce == nonce)).scalar()
            if statement is not None:
                return True, statement
            waits = connection.execute(select(WAITING.c.number).where(WAITING.c.nonce == nonce)).first()
            return waits is not None, None

    def settled_for(self, nonce: bytes) -> tuple[bytes, bytes] | None:
        query = select(FORMED.c.statement, FORMED.c.receipt).join(LEFT, LEFT.c.batch == FORMED.c.number)
        with self._database.reading() as connection:
            row = connection.execute(query.where(LEFT.c.nonce == nonce, FORMED.c.receipt.is_not(None))).first()
        return None if row is None else (row.statement, row.receipt)

    def has_report(self, nonce: bytes, data: bytes) -> bool:
        with self._database.reading() as connection:
            left = connection.execute(select(LEFT.c.digest).where(LEFT.c.nonce == nonce)).scalar()
            if left is not None:
                return bool(left == _digest(data))
            return connection.execute(select(WAITING.c.data).where(WAITING.c.nonce == nonce)).scalar() == data

    def settled(self, epoch: int) -> Sequence[tuple[bytes, bytes]]:
        query = select(FORMED.c.statement, FORMED.c.receipt).where(FORMED.c.epoch == epoch)
        done = query.where(FORMED.c.receipt.is_not(None)).order_by(FORMED.c.number)
        with self._database.reading() as connection:
            return [(row.statement, row.receipt) for row in connection.execute(done)]

    def statements(self, epoch: int) -> Sequence[bytes]:
        query = select(FORMED.c.statement).where(FORMED.c.epoch == epoch).order_by(FORMED.c.number)
        with self._database.reading() as connection:
            return connection.execute(query).scalars().all()

    def forget(self, expired_before: int) -> int:
        expect.integer("expired_before", expired_before)
        with self._database.reading() as connection:
            epochs = _settled_epochs(connection, expired_before)
        if not epochs:
            return 0
        last: bytes | None = b""
        while last is not None:
            with self._database.writing() as connection:
                last = _forget_nonces(connection, epochs, last)
        with self._database.writing() as connection:
            # What came in meanwhile, by another clock, keeps its epoch.
            epochs = sorted(set(epochs) & set(_settled_epochs(connection, expired_before)))
            for table in (FORMED, LISTED, DIRECTORIES):
                connection.execute(delete(table).where(table.c.epoch.in_(epochs)))
            append_many(connection, FORGOTTEN, [(epoch,) for epoch in epochs])
        self._database.empty_log()
        return len(epochs)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]


def _compare(known: bytes, came: bytes) -> AddOutcome:
    return AddOutcome.SAME if known == came else AddOutcome.OTHER


def _among(connection: Connection, statement: str, values: Sequence[bytes]) -> dict[bytes, Any]:
    """Second columns by first, of a statement that ends before `IN (...)`, for any number of values."""
    found: dict[bytes, Any] = {}
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    for start in range(0, len(values), LOOKED_UP_AT_ONCE):
        some = tuple(values[start : start + LOOKED_UP_AT_ONCE])
        rows = connection.exec_driver_sql(f"{statement} IN ({', '.join([mark] * len(some))})", some)
        found.update((row[0], row[1]) for row in rows)
    return found


def _known_menus(connection: Connection, menu_ids: Sequence[bytes]) -> dict[bytes, int]:
    return _among(connection, f"SELECT menu_id, number FROM {LISTED.name} WHERE menu_id", menu_ids)


def _menu_numbers(connection: Connection, menu_ids: set[bytes]) -> dict[bytes, int]:
    numbers = _known_menus(connection, sorted(menu_ids))
    if len(numbers) < len(menu_ids):
        raise BillRefused(BillVerdict.UNKNOWN_MENU, "expected reports of menus that are kept here")
    return numbers


def _outcomes(
    connection: Connection, reports: Sequence[NewReport], left: dict[bytes, bytes], start: int
) -> list[AddOutcome]:
    """What became of reports some of which were there already, or stand twice among them."""
    here = select(WAITING.c.number).where(WAITING.c.number.between(start, start + len(reports) - 1))
    new = {number - start for number in connection.execute(here).scalars()}
    rest = [each.nonce for place, each in enumerate(reports) if place not in new and each.nonce not in left]
    waiting = _among(connection, f"SELECT nonce, data FROM {WAITING.name} WHERE nonce", rest)

    def outcome(place: int, report: NewReport) -> AddOutcome:
        if place in new:
            return AddOutcome.NEW
        if report.nonce in left:
            return _compare(left[report.nonce], _digest(report.data))
        return _compare(waiting[report.nonce], report.data)

    return [outcome(place, report) for place, report in enumerate(reports)]


def _oldest(connection: Connection, menu: int, most: int) -> Sequence[Any]:
    """Reports of a menu that wait, in the order in which they came."""
    query = (
        f"SELECT arrived, number, nonce, data FROM {WAITING.name} "
        "WHERE menu = ? ORDER BY arrived, number LIMIT ?"
    )
    marked = query if connection.dialect.name == "sqlite" else query.replace("?", "%s")
    return connection.exec_driver_sql(marked, (menu, most)).all()


def _settled_epochs(connection: Connection, expired_before: int) -> list[int]:
    """Epochs that expired, with no report waiting and no batch undelivered."""
    waits = select(WAITING.c.number).join(LISTED, LISTED.c.number == WAITING.c.menu)
    undelivered = select(FORMED.c.number).where(FORMED.c.receipt.is_(None))
    query = select(DIRECTORIES.c.epoch).where(
        DIRECTORIES.c.expires < expired_before,
        ~waits.where(LISTED.c.epoch == DIRECTORIES.c.epoch).exists(),
        ~undelivered.where(FORMED.c.epoch == DIRECTORIES.c.epoch).exists(),
    )
    return list(connection.execute(query.order_by(DIRECTORIES.c.epoch)).scalars())


def _forget_nonces(connection: Connection, epochs: Sequence[int], after: bytes) -> bytes | None:
    """Delete nonces of these epochs among the next ones after this; the last that was looked at, None at the
    end."""
    later = LEFT.c.nonce > after
    query = select(LEFT.c.nonce).where(later).order_by(LEFT.c.nonce).limit(1).offset(FORGET_AT_ONCE - 1)
    last: bytes | None = connection.execute(query).scalar()
    some = later if last is None else later & (LEFT.c.nonce <= last)
    theirs = select(FORMED.c.number).where(FORMED.c.epoch.in_(epochs))
    connection.execute(delete(LEFT).where(some, LEFT.c.batch.in_(theirs)))
    return last
