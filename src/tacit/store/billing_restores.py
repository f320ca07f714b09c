"""What a billing party does with a store that was put back to an older state: refuse it, or take the loss.

A store that is put back to an older state, by `tacit serve restore`, a copied file, a snapshot or a dump, has
forgotten what others have seen: charges of which receipts were given, budgets that were spent, numbers of
epochs and invoices that are out. The witness (`billing_witness`) is written after each commit that others come
to hear of, and before they do. So a store that lacks what the witness has seen was put back, and is refused
when the party starts, until somebody takes the loss (`tacit serve restore --accept`). By the rule only the
party itself loses:

    the ad server   all private keys in the store are deleted, and no number of an epoch up to the last one is
                    used or redeemed again: no token that may have been spent can be. What campaigns were
                    charged, and may be charged, is what the witness has seen, with those that the store has
                    forgotten; without a witness those with a limit may be charged nothing more. Numbers of
                    invoices go on behind the last one. Charges that were lost are on no later invoice; those
                    that may have been on a lost invoice, or held and charged after all, are put on invoices of
                    their own, which nobody sends.
    the proxy       reports that wait are dropped: they may have left, and in two batches they would hide each
                    other less than was promised. Reports of epochs up to the last one are no longer taken, and
                    none of these gets another directory. Batches that were formed are delivered as they were.

    Guarantee:  after a store was put back and taken so, no token is charged twice, no campaign is charged more
                than its budget over both states of the store together, no number is used twice, no report
                leaves in two batches.
    Neighbours: none: this is about money and evidence. What private choices spent is on devices, and what
                statistics spent in the ledger, which has a witness of its own (`tamper_evidence`).
    Assumes:    the witness lies where what puts the store back does not put it back too: on another disk, or
                out of the snapshot. Of several processes each has its own, or all share one; the one that has
                seen most counts. A budget that was changed through the API is witnessed with the next epoch, or
                the next batch that charges its campaign. What campaigns spent of a day's budget is not: on that
                day it may be spent once more.
    Source:     this module; Parno et al. 2011 (Memoir) on why state outside is needed at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from tacit.errors import BillError, BillRolledBack
from tacit.store import billing_accounts as accounts
from tacit.store.billing_tables import (
    BATCHES,
    CAMPAIGNS,
    CHARGES,
    DIRECTORIES,
    EPOCHS,
    FORGOTTEN,
    FORMED,
    MENUS,
    PROXY_RESTORES,
    RESTORES,
    WAITING,
)
from tacit.store.billing_witness import BillingWitness, StoreMark, WitnessedCampaign
from tacit.store.database import PartyDatabase

WITNESSED = 0  # the number of the row that says: this store has a witness


@dataclass(frozen=True)
class AcceptedLoss:
    """What a store that was put back lacks, and what was done about it.

    batches         that were redeemed and are gone (the ad server); the proxy's are not counted
    invoices        that were closed and are gone: what was sent of them stands
    charged_micros  what campaigns were charged by them, which counts on their budgets
    due             invoices of charges that no lost invoice can have had: send them
    void            invoices of charges that may have been on a lost one: do not send them
    dropped         reports that waited at the proxy
    """

    batches: int = 0
    invoices: int = 0
    charged_micros: int = 0
    due: tuple[int, ...] = ()
    void: tuple[int, ...] = ()
    dropped: int = 0


def ads_mark(connection: Connection, charged: Collection[int] | None = None) -> StoreMark:
    """How far an ad server's store has come; of campaigns, all or those that were charged."""
    last = connection.execute(
        select(BATCHES.c.number, BATCHES.c.receipt).order_by(BATCHES.c.number.desc()).limit(1)
    ).first()
    wanted = select(CAMPAIGNS)
    rows = connection.execute(wanted if charged is None else wanted.where(CAMPAIGNS.c.campaign.in_(charged)))
    campaigns = {row.campaign: WitnessedCampaign(row.advertiser, row.charged, row.budget) for row in rows}
    return StoreMark(
        0 if last is None else last.number,
        "" if last is None else hashlib.sha256(last.receipt).hexdigest(),
        accounts.last_epoch(connection),
        accounts.last_invoice(connection),
        campaigns,
    )


def proxy_mark(connection: Connection) -> StoreMark:
    """How far a proxy's store has come. Its batches are forgotten after some days, with their epochs, so that
    their number says nothing: the last one's epoch and id stand for it."""
    last = connection.execute(
        select(FORMED.c.epoch, FORMED.c.batch_id).order_by(FORMED.c.number.desc()).limit(1)
    ).first()
    digest = "" if last is None else f"{last.epoch} {last.batch_id.hex()}"
    known = (connection.execute(select(func.max(table.c.epoch))).scalar() for table in (DIRECTORIES, FORGOTTEN))
    epochs = (-1 if epoch is None else int(epoch) for epoch in known)
    return StoreMark(0, digest, max(*epochs, closed_epoch(connection)))


def closed_epoch(connection: Connection) -> int:
    """The last epoch of a proxy that a loss has closed; -1 where none was."""
    seen = connection.execute(select(func.max(PROXY_RESTORES.c.last_epoch))).scalar()
    return -1 if seen is None else int(seen)


def check_witness(database: PartyDatabase, witness: BillingWitness, *, of_proxy: bool) -> None:
    """BillRolledBack where the store lacks what its witness has seen, or has lost its witness. A store of an
    earlier release gets its witness now."""
    restores = PROXY_RESTORES if of_proxy else RESTORES
    seen = witness.read()
    with database.reading() as connection:
        mark = proxy_mark(connection) if of_proxy else ads_mark(connection)
        has_witness = connection.execute(select(restores.c.number).limit(1)).first() is not None
        lacks = "" if seen is None else _lacks(connection, mark, seen, of_proxy=of_proxy)
    noun, name = database.kind.noun, database.name
    if seen is None and has_witness:
        raise BillRolledBack(
            f"the {noun} at {name} has a witness, and there is none at {witness.path}: it may be an old copy "
            "that lacks charges. Is the witness elsewhere: say so in billing.witness. Is it lost: see `tacit "
            "serve restore --help`"
        )
    if lacks:
        raise BillRolledBack(
            f"the {noun} at {name} was put back to an older state: its witness {witness.path} has seen "
            f"{lacks}; see `tacit serve restore --help`"
        )
    if not has_witness:
        _say_witnessed(database, restores)
    witness.advance(mark)


def _lacks(connection: Connection, mark: StoreMark, seen: StoreMark, *, of_proxy: bool) -> str:
    """What a witness has seen and a store does not have, in words; none where it has all."""
    if mark.batches < seen.batches:
        return f"{seen.batches} batches, and the store has {mark.batches}"
    if seen.digest and not _has_batch(connection, seen, of_proxy=of_proxy):
        return "a batch that the store lacks"
    if mark.epoch < seen.epoch:
        return f"epoch {seen.epoch}, and the store ends with {mark.epoch}"
    if mark.invoice < seen.invoice:
        return f"invoice {seen.invoice}, and the store ends with {mark.invoice}"
    for number, each in seen.campaigns.items():
        own = mark.campaigns.get(number)
        if own is None or own.charged_micros < each.charged_micros:
            return f"more charges of campaign {number} than the store has"
    return ""


def _is_whole(
    connection: Connection, mark: StoreMark, seen: StoreMark | None, witness: BillingWitness, *, of_proxy: bool
) -> bool:
    """Whether nothing is missing that anybody knows of: a store that never had a witness lacks nothing."""
    if seen is not None:
        return not _lacks(connection, mark, seen, of_proxy=of_proxy)
    number = (PROXY_RESTORES if of_proxy else RESTORES).c.number
    return not witness.path.exists() and connection.execute(select(number).limit(1)).first() is None


def _has_batch(connection: Connection, seen: StoreMark, *, of_proxy: bool) -> bool:
    """Whether the last batch that a witness has seen is there, or was forgotten in its time."""
    if of_proxy:
        epoch, batch_id = seen.digest.split(" ")
        formed = select(FORMED.c.number).where(FORMED.c.batch_id == bytes.fromhex(batch_id))
        forgotten = select(FORGOTTEN.c.epoch).where(FORGOTTEN.c.epoch == int(epoch))
        return any(connection.execute(query).first() is not None for query in (formed, forgotten))
    query = select(BATCHES.c.receipt).where(BATCHES.c.number == seen.batches)
    receipt = connection.execute(query).scalar()
    return receipt is not None and hashlib.sha256(receipt).hexdigest() == seen.digest


def accept_older_ads(database: PartyDatabase, witness: BillingWitness, now: int) -> AcceptedLoss | None:
    """Go on from an older state of an ad server's store, by the rule above; None where nothing is missing."""
    seen = _read_or_nothing(witness)
    with database.writing() as connection:
        mark = ads_mark(connection)
        if _is_whole(connection, mark, seen, witness, of_proxy=False):
            return None
        whole = _without_credit(mark) if seen is None else mark.merged(seen)
        connection.execute(update(EPOCHS).values(sealing_key=None))
        connection.execute(update(MENUS).values(token_key=None))
        _set_campaigns(connection, mark, whole)
        sent = seen is None or whole.invoice > mark.invoice
        due = [] if sent else accounts.close_invoices(connection, now)
        after = max(whole.invoice, accounts.last_invoice(connection))
        _add_restore(connection, RESTORES, now, mark, replace(whole, invoice=after))
        connection.execute(update(CHARGES).where(CHARGES.c.held).values(held=False))
        void = accounts.close_invoices(connection, now)
        kept = ads_mark(connection)
    database.empty_log()
    witness.replace(kept)
    return AcceptedLoss(
        whole.batches - mark.batches,
        whole.invoice - mark.invoice,
        _charged(whole) - _charged(mark),
        tuple(each.number for each in due),
        tuple(each.number for each in void),
    )


def _without_credit(mark: StoreMark) -> StoreMark:
    """Nobody knows what was charged since: campaigns with a limit may be charged nothing more, until somebody
    says otherwise."""
    campaigns = {
        number: replace(each, budget_micros=each.charged_micros) if each.budget_micros is not None else each
        for number, each in mark.campaigns.items()
    }
    return replace(mark, campaigns=campaigns)


def _set_campaigns(connection: Connection, mark: StoreMark, whole: StoreMark) -> None:
    for number, each in whole.campaigns.items():
        values = {"charged": each.charged_micros, "budget": each.budget_micros}
        if number in mark.campaigns:
            connection.execute(update(CAMPAIGNS).where(CAMPAIGNS.c.campaign == number).values(**values))
        else:
            named = {"campaign": number, "advertiser": each.advertiser, **values}
            connection.execute(insert(CAMPAIGNS).values(**named))


def accept_older_proxy(database: PartyDatabase, witness: BillingWitness, now: int) -> AcceptedLoss | None:
    """The same of a proxy's store."""
    seen = _read_or_nothing(witness)
    with database.writing() as connection:
        mark = proxy_mark(connection)
        if _is_whole(connection, mark, seen, witness, of_proxy=True):
            return None
        whole = mark if seen is None else mark.merged(seen)
        dropped = connection.execute(delete(WAITING)).rowcount
        _add_restore(connection, PROXY_RESTORES, now, mark, whole)
        kept = proxy_mark(connection)
    database.empty_log()
    witness.replace(kept)
    return AcceptedLoss(dropped=dropped)


def _read_or_nothing(witness: BillingWitness) -> StoreMark | None:
    try:
        return witness.read()
    except BillError:
        return None


def _charged(mark: StoreMark) -> int:
    return sum(each.charged_micros for each in mark.campaigns.values())


def _add_restore(connection: Connection, restores: Table, now: int, mark: StoreMark, whole: StoreMark) -> None:
    last = connection.execute(select(func.max(restores.c.number))).scalar()
    values = {"at": now, "batches": mark.batches, "lost_batches": whole.batches - mark.batches}
    values |= {"last_epoch": whole.epoch, "last_invoice": whole.invoice}
    kept = {name: value for name, value in values.items() if name in restores.c}
    connection.execute(insert(restores).values(number=WITNESSED + 1 if last is None else last + 1, **kept))


def _say_witnessed(database: PartyDatabase, restores: Table) -> None:
    """A row that closes nothing: from now on a store without its witness is refused."""
    nothing = {"at": 0, "batches": 0, "lost_batches": 0, "last_epoch": -1, "last_invoice": 0}
    kept = {name: value for name, value in nothing.items() if name in restores.c}
    with database.writing() as connection:
        if connection.execute(select(restores.c.number).limit(1)).first() is None:
            connection.execute(insert(restores).values(number=WITNESSED, **kept))
