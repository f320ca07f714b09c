"""The ad server's part of billing, made to last: an `AdStore` on SQLite or PostgreSQL.

    store = SqlAdStore.open("ads.sqlite")

What a stolen copy reveals: menus and prices, which are public; what each advertiser was charged for; the
reports of every batch with what they say (menu, entry, the token's secret), in the shuffled order in which they
came, none of which leads to a device; and, until `forget_keys` deletes them, the private keys of epochs, with
which tokens can be made and reports of those epochs opened. Keep it, and its backups, as you keep keys. Deleted
keys are overwritten in a SQLite file; PostgreSQL has them in its files until it has vacuumed and its
write-ahead log has moved on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from sqlalchemy import Connection, delete, func, insert, select, update

from tacit import expect
from tacit.bill.protocol.directory import Directory
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import NOTHING, PricedMenu
from tacit.bill.server.store import (
    Campaign,
    EpochLimits,
    Invoice,
    InvoiceLine,
    KeptMenu,
    RedeemedBatch,
    SignReceipt,
    StoredCharge,
    StoredEpoch,
    StoredRedemption,
    StoreRestore,
)
from tacit.display import brief
from tacit.errors import BillError, BillRefused
from tacit.store import billing_accounts as accounts
from tacit.store import token_limits
from tacit.store.billing_restores import WITNESSED, ads_mark, check_witness
from tacit.store.billing_tables import BATCHES, CHARGES, ENTRIES, EPOCHS, MENUS, RESTORES
from tacit.store.billing_witness import BillingWitness
from tacit.store.database import PartyDatabase, StoreKind, append_many, insert_many
from tacit.store.market_tables import AD_SERVER, COMMAND_NONCES
from tacit.store.ownership import TurnLock
from tacit.store.schema_revisions import MIGRATIONS, PartySchema, open_migrated

SCHEMA = PartySchema(
    kind=StoreKind("ads store", 0x7AC1D, BillError, BillError),
    metadata=AD_SERVER,
    version_table="bill_ads_version",
    strangers=("bill_proxy_version", "gather_proxy_version"),
    page_bytes=4096,  # nonces fall on pages all over their tree, so pages should be small
    head="4",
    folders=(MIGRATIONS / "ads",),
)

BATCHES_AT_ONCE = 4  # of a stream: their reports may be megabytes each


class SqlAdStore:
    """An `AdStore`. Every method is one transaction, on disk when it returns; any thread may call.

    The stream of batches reads one short transaction after the other: batches are added, and never change.
    """

    def __init__(self, database: PartyDatabase, witness: BillingWitness | None = None) -> None:
        expect.kind("database", database, PartyDatabase)
        self._database, self._turn, self._witness = database, TurnLock(database), witness

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    @property
    def database(self) -> PartyDatabase:
        """For the other stores of an ad server, which share its transactions."""
        return self._database

    @classmethod
    def open(cls, where: str | Path, *, witness: Path | None = None) -> SqlAdStore:
        """The store at a path or URL; a new one where there is nothing. With a witness, which whoever charges
        must have, one that was put back to an older state is refused (BillRolledBack)."""
        database = open_migrated(where, SCHEMA)
        if witness is None:
            return cls(database)
        kept = BillingWitness(witness)
        check_witness(database, kept, of_proxy=False)
        return cls(database, kept)

    def _bear_witness(self, charged: Collection[int] | None = None) -> None:
        """After a commit, and before anybody hears of it; of all campaigns, or of those that it charged."""
        if self._witness is not None:
            with self._database.reading() as connection:
                mark = ads_mark(connection, charged)
            self._witness.advance(mark)

    def close(self) -> None:
        """Let go of the connections. What was acknowledged is on disk with or without this."""
        self._turn.close()
        self._database.close()

    def opening_turn(self) -> AbstractContextManager[None]:
        return self._turn.take()

    def keep_epoch(self, epoch: int, stored: StoredEpoch, limits: EpochLimits | None = None) -> None:
        self._keep_epoch(epoch, stored, limits)
        self._bear_witness()

    def _keep_epoch(self, epoch: int, stored: StoredEpoch, limits: EpochLimits | None) -> None:
        head = Directory.from_bytes(stored.directory).head
        if head.epoch != epoch:
            raise BillRefused(BillVerdict.CONFLICT, f"expected the directory of epoch {epoch}, got another's")
        with self._database.writing() as connection:
            known = connection.execute(select(EPOCHS.c.directory).where(EPOCHS.c.epoch == epoch)).scalar()
            if known is not None:
                if known != stored.directory:
                    raise BillRefused(
                        BillVerdict.CONFLICT, f"epoch {epoch} is there already, with another directory"
                    )
                return
            values = {"expires": head.expires, "sealing_key": stored.sealing_key or None, "head": stored.head}
            connection.execute(insert(EPOCHS).values(epoch=epoch, directory=stored.directory, **values))
            numbers = _add_menus(connection, epoch, stored.menus)
            if limits is not None:
                token_limits.add_limits(connection, numbers, epoch, limits)

    def publish_epoch(self, epoch: int, head: bytes) -> None:
        with self._database.writing() as connection:
            row = connection.execute(select(EPOCHS.c.head).where(EPOCHS.c.epoch == epoch)).first()
            if row is None:
                raise BillRefused(BillVerdict.STALE_EPOCH, f"epoch {epoch} is not kept here")
            if row.head is None:
                connection.execute(update(EPOCHS).where(EPOCHS.c.epoch == epoch).values(head=head))
            elif row.head != head:
                raise BillRefused(
                    BillVerdict.CONFLICT, f"epoch {epoch} is published already, with another head"
                )

    def epochs(self, expire_after: int) -> Sequence[int]:
        query = select(EPOCHS.c.epoch).where(EPOCHS.c.expires > expire_after).order_by(EPOCHS.c.epoch)
        with self._database.reading() as connection:
            return connection.execute(query).scalars().all()

    def published_epochs(self, expire_after: int) -> Sequence[int]:
        whole = EPOCHS.c.head.is_not(None) & EPOCHS.c.sealing_key.is_not(None)
        query = select(EPOCHS.c.epoch).where(EPOCHS.c.expires > expire_after, whole)
        with self._database.reading() as connection:
            return connection.execute(query.order_by(EPOCHS.c.epoch)).scalars().all()

    def last_epoch(self) -> int | None:
        with self._database.reading() as connection:
            found = accounts.last_epoch(connection)
        return None if found < 0 else found

    def epoch(self, epoch: int) -> StoredEpoch | None:
        menus = select(MENUS.c.body, MENUS.c.token_key).where(MENUS.c.epoch == epoch).order_by(MENUS.c.number)
        with self._database.reading() as connection:
            row = connection.execute(select(EPOCHS).where(EPOCHS.c.epoch == epoch)).first()
            if row is None:
                return None
            kept = connection.execute(menus).all()
        read = tuple(KeptMenu(PricedMenu.from_bytes(each.body), each.token_key or b"") for each in kept)
        return StoredEpoch(row.directory, row.head, read, row.sealing_key or b"")

    def menu(self, menu_id: bytes) -> PricedMenu | None:
        with self._database.reading() as connection:
            body = connection.execute(select(MENUS.c.body).where(MENUS.c.menu_id == menu_id)).scalar()
        return None if body is None else PricedMenu.from_bytes(body)

    def redeem(self, batch: RedeemedBatch, sign: SignReceipt) -> bytes:
        receipt = self._redeem(batch, sign)
        charged = {each.campaign for each in batch.reports if each.campaign is not None}
        # Of a batch that is known, too, of which all is said: who redeemed it may have died before this.
        self._bear_witness(charged if batch.reports else None)
        return receipt

    def _redeem(self, batch: RedeemedBatch, sign: SignReceipt) -> bytes:
        with self._database.writing() as connection:
            query = select(BATCHES.c.statement, BATCHES.c.receipt).where(BATCHES.c.batch_id == batch.batch_id)
            known = connection.execute(query).first()
            if known is not None:
                if known.statement != batch.statement:
                    raise BillRefused(
                        BillVerdict.CONFLICT, "a batch of this id was redeemed with another statement"
                    )
                return bytes(known.receipt)
            number = accounts.next_number(connection, BATCHES)
            receipt = sign(_charge(connection, number, batch))
            row = (number, batch.batch_id, batch.menu_id, batch.statement, receipt, batch.data)
            append_many(connection, BATCHES, [row])
        return receipt

    def receipt(self, batch_id: bytes) -> bytes | None:
        with self._database.reading() as connection:
            query = select(BATCHES.c.receipt).where(BATCHES.c.batch_id == batch_id)
            found: bytes | None = connection.execute(query).scalar()
            return found

    def batches(self) -> Iterator[StoredRedemption]:
        last, query = -1, select(BATCHES).order_by(BATCHES.c.number).limit(BATCHES_AT_ONCE)
        while True:
            with self._database.reading() as connection:
                page = connection.execute(query.where(BATCHES.c.number > last)).all()
            for row in page:
                yield StoredRedemption(row.batch_id, row.menu_id, row.statement, row.data, row.receipt)
            if len(page) < BATCHES_AT_ONCE:
                return
            last = page[-1].number

    def charges_of(self, batch_id: bytes) -> Sequence[StoredCharge]:
        this = select(BATCHES.c.number).where(BATCHES.c.batch_id == batch_id).scalar_subquery()
        entry = (ENTRIES.c.menu == CHARGES.c.menu) & (ENTRIES.c.idx == CHARGES.c.idx)
        columns = (
            CHARGES.c.place, CHARGES.c.nonce, CHARGES.c.idx, CHARGES.c.price, ENTRIES.c.campaign,
            CHARGES.c.secret, CHARGES.c.held, CHARGES.c.invoice,
        )  # fmt: skip
        query = select(*columns).join(ENTRIES, entry).where(CHARGES.c.batch == this).order_by(CHARGES.c.place)
        with self._database.reading() as connection:
            return [StoredCharge(*row) for row in connection.execute(query)]

    def restores(self) -> Sequence[StoreRestore]:
        columns = (each for each in RESTORES.c if each.name != "number")
        query = select(*columns).where(RESTORES.c.number > WITNESSED).order_by(RESTORES.c.number)
        with self._database.reading() as connection:
            return [StoreRestore(*row) for row in connection.execute(query)]

    def put_campaigns(self, campaigns: Sequence[Campaign]) -> None:
        with self._database.writing() as connection:
            accounts.put_campaigns(connection, campaigns)
        self._bear_witness()

    def campaigns(self) -> Sequence[Campaign]:
        with self._database.reading() as connection:
            return accounts.read_campaigns(connection)

    def held_micros(self) -> dict[int, int]:
        with self._database.reading() as connection:
            return accounts.sum_held(connection)

    def close_invoices(self, now: int) -> Sequence[Invoice]:
        with self._database.writing() as connection:
            closed = accounts.close_invoices(connection, now)
        self._bear_witness()
        return closed

    def invoices(self) -> Sequence[Invoice]:
        with self._database.reading() as connection:
            return accounts.read_invoices(connection)

    def invoice(self, number: int) -> Invoice | None:
        """One of them, without reading the others."""
        with self._database.reading() as connection:
            return next(iter(accounts.read_invoices(connection, number, number)), None)

    def totals(self) -> Sequence[InvoiceLine]:
        """Adds up every charge there is: for checks, not for every request."""
        with self._database.reading() as connection:
            return accounts.add_up(connection)

    def reported(self, epoch: int) -> dict[bytes, dict[int, int]]:
        """Reads every charge of the epoch: once an epoch, not with every request."""
        counted = (
            select(MENUS.c.menu_id, CHARGES.c.idx, func.count())
            .join(BATCHES, BATCHES.c.menu_id == MENUS.c.menu_id)
            .join(CHARGES, CHARGES.c.batch == BATCHES.c.number)  # which are found by batch, not by menu
            .where(MENUS.c.epoch == epoch)
            .group_by(MENUS.c.menu_id, CHARGES.c.idx)
        )
        found: dict[bytes, dict[int, int]] = {}
        with self._database.reading() as connection:
            for menu_id, index, count in connection.execute(counted):
                found.setdefault(bytes(menu_id), {})[index] = count
        return found

    def admit_command(self, nonce: str, *, until: int, now: int) -> bool:
        """Remember a command's nonce until that second; no where it is known already, to whichever process."""
        with self._database.writing() as connection:
            connection.execute(delete(COMMAND_NONCES).where(COMMAND_NONCES.c.until < now))
            return insert_many(connection, COMMAND_NONCES, [(nonce, until)]) == 1

    def forget_keys(self, expired_before: int) -> int:
        over = (EPOCHS.c.expires < expired_before) & EPOCHS.c.sealing_key.is_not(None)
        with self._database.writing() as connection:
            epochs = connection.execute(select(EPOCHS.c.epoch).where(over)).scalars().all()
            for epoch in epochs:
                connection.execute(update(EPOCHS).where(EPOCHS.c.epoch == epoch).values(sealing_key=None))
                connection.execute(update(MENUS).where(MENUS.c.epoch == epoch).values(token_key=None))
        if epochs:
            self._database.empty_log()
        return len(epochs)


def _add_menus(connection: Connection, epoch: int, kept: Sequence[KeptMenu]) -> dict[bytes, int]:
    """Their numbers here, by id."""
    campaigns = {entry.campaign for each in kept for entry in each.menu.entries}
    accounts.add_unknown_campaigns(connection, sorted(campaigns))
    first = accounts.next_number(connection, MENUS)
    numbered = list(enumerate(kept, first))
    append_many(
        connection,
        MENUS,
        [
            (number, each.menu.menu_id, epoch, each.token_key or None, each.menu.data)
            for number, each in numbered
        ],
    )
    entries: list[tuple[int, int, int, int | None]] = []
    for number, each in numbered:
        entries.append((number, NOTHING, 0, None))
        entries += [
            (number, index, entry.price_micros, entry.campaign)
            for index, entry in enumerate(each.menu.entries, 1)
        ]
    append_many(connection, ENTRIES, entries)
    return {each.menu.menu_id: number for number, each in numbered}


def _charge(connection: Connection, batch_number: int, batch: RedeemedBatch) -> bytes:
    """Spend the tokens of a batch and charge what its campaigns can pay; the verdicts of its reports."""
    verdicts = bytearray(report.verdict for report in batch.reports)
    if BillVerdict.ACCEPTED not in verdicts:
        return bytes(verdicts)
    menu = connection.execute(select(MENUS.c.number).where(MENUS.c.menu_id == batch.menu_id)).scalar()
    if menu is None:
        raise BillRefused(BillVerdict.UNKNOWN_MENU, "expected a batch of a menu that is kept here")
    rows = [
        (place, report.index, report.price_micros, report.nonce, report.secret)
        for place, report in enumerate(batch.reports)
        if report.verdict is BillVerdict.ACCEPTED
    ]
    if _spend(connection, menu, batch_number, rows) < len(rows):
        mine = select(CHARGES.c.place).where(CHARGES.c.batch == batch_number)
        spent = set(connection.execute(mine).scalars())
        for place in (row[0] for row in rows if row[0] not in spent):
            verdicts[place] = BillVerdict.DUPLICATE
        rows = [row for row in rows if row[0] in spent]
    charges = [row[:3] for row in rows]
    for place in accounts.charge_campaigns(connection, menu, batch_number, charges):
        verdicts[place] = BillVerdict.OVER_BUDGET
    return bytes(verdicts)


def _spend(
    connection: Connection, menu: int, batch: int, rows: Sequence[tuple[int, int, int, bytes, bytes]]
) -> int:
    """Insert charges of one batch, but none whose token was spent, if by an earlier one of them; how many went
    in. As `insert_many` does, which would send menu and batch with every row."""
    columns = "(place, idx, price, nonce, secret, menu, batch, held)"
    if connection.dialect.name == "sqlite":
        fixed = f"{menu:d}, {batch:d}, FALSE"
        statement = (
            f"INSERT INTO {CHARGES.name} {columns} VALUES (?, ?, ?, ?, ?, {fixed}) ON CONFLICT DO NOTHING"
        )
        return connection.exec_driver_sql(statement, list(rows)).rowcount
    statement = (
        f"INSERT INTO {CHARGES.name} {columns} SELECT *, %s, %s, FALSE FROM "
        "unnest(%b::integer[], %b::smallint[], %b::bigint[], %b::bytea[], %b::bytea[]) ON CONFLICT DO NOTHING"
    )
    arrays = (list(column) for column in zip(*rows, strict=True))
    return connection.exec_driver_sql(statement, (menu, batch, *arrays)).rowcount
