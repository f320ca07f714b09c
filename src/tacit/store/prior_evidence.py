"""What reports say about the prior, made to last: an `EvidenceStore` on SQLite or PostgreSQL.

    store = SqlEvidenceStore.open("evidence.sqlite")
    store.learn("reports of 2024-06-03", reported)
    menu = replace(menu, prior=store.publish(epoch=19877).prior)

Batches are learnt one after the other: a writer holds the store alone from reading the evidence to storing what
became of it, so that of two writers none loses what the other learnt, and a batch's name is stored in the same
transaction as what it said.

What a stolen copy reveals: names of batches, sums of log-likelihoods, and priors that are public. Reports are
not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    update,
)

from tacit import expect
from tacit.deliver.protocol.priors import prior_as_json, read_prior
from tacit.deliver.server.evidence_store import LearntBatch, PublishedPrior
from tacit.deliver.server.prior_evidence import ALL, HORIZON, PriorEvidence, ReportedRanks, check_reports, weigh
from tacit.deliver.server.prior_evidence import VERSION as LAWS_VERSION
from tacit.display import brief
from tacit.errors import BadInput, EvidenceError
from tacit.privacy.ledger.lines import check_ledger_name
from tacit.store.database import PartyDatabase, StoreKind

KIND = StoreKind("evidence store", 0x7AC1C, EvidenceError, EvidenceError)
VERSION = 1
PAGE_BYTES = 4096
MOST_EPOCH = 2**53

_METADATA = MetaData()
_VERSION = Table("evidence_version", _METADATA,
                 Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
                 Column("version", Integer, nullable=False),
                 Column("laws", Integer, nullable=False))  # fmt: skip
_STATE = Table("evidence_state", _METADATA,
               Column("one", Integer, CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
               Column("record", Text, nullable=False))  # fmt: skip
_BATCHES = Table("evidence_batches", _METADATA,
                 Column("name", Text, primary_key=True),
                 Column("reports", BigInteger, nullable=False),
                 Column("digest", Text, nullable=False))  # fmt: skip
_PUBLISHED = Table("evidence_published", _METADATA,
                   Column("group_name", Text, primary_key=True),
                   Column("epoch", BigInteger, primary_key=True, autoincrement=False),
                   Column("record", Text, nullable=False),
                   Column("version", Integer, nullable=False),
                   Column("reports", Float, nullable=False),
                   Column("batches", BigInteger, nullable=False))  # fmt: skip


class SqlEvidenceStore:
    """An `EvidenceStore`. Every method is one transaction, on disk when it returns; any thread may call."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    @classmethod
    def open(cls, where: str | Path, *, horizon: int | None = None) -> SqlEvidenceStore:
        """The store at a path or URL; a new one where there is nothing, with this horizon (`PriorEvidence`)."""
        expect.kind("where", where, str, Path)
        if horizon is not None:
            expect.whole("horizon", horizon, at_least=1)
        database = PartyDatabase(where, KIND, PAGE_BYTES)
        _refuse_others(database)
        database.make_ready()
        with database.writing() as connection:
            if inspect(connection).has_table(_VERSION.name):
                _refuse_unknown(connection, database.name)
            else:
                _METADATA.create_all(connection, checkfirst=False)
                connection.execute(insert(_VERSION).values(one=1, version=VERSION, laws=LAWS_VERSION))
                begun = PriorEvidence(horizon=HORIZON if horizon is None else horizon)
                connection.execute(insert(_STATE).values(one=1, record=json.dumps(begun.as_json())))
            kept = _evidence(connection).horizon
        if horizon not in (None, kept):
            raise BadInput(f"expected the horizon of the evidence at {database.name}, {kept}, got {horizon}")
        return cls(database)

    def learn(self, batch: str, reported: ReportedRanks | Iterable[ReportedRanks]) -> LearntBatch:
        name, several = check_ledger_name("batch", batch), check_reports(reported)
        digest = hashlib.sha256("".join(each.digest for each in several).encode()).hexdigest()
        with self._database.reading() as connection:
            if _is_known(connection, name, digest):
                return LearntBatch(_evidence(connection), added=False)
        weighed = weigh(several)  # some milliseconds for each menu, in which others need not wait
        with self._database.writing() as connection:
            evidence = _evidence(connection)
            if _is_known(connection, name, digest):
                return LearntBatch(evidence, added=False)
            reports = sum(each.reports for each in weighed)
            connection.execute(insert(_BATCHES).values(name=name, reports=reports, digest=digest))
            evidence = evidence.add(weighed)
            connection.execute(update(_STATE).values(record=json.dumps(evidence.as_json())))
        return LearntBatch(evidence, added=True)

    def has_learnt(self, batch: str) -> bool:
        with self._database.reading() as connection:
            known = select(_BATCHES.c.name).where(_BATCHES.c.name == check_ledger_name("batch", batch))
            return connection.execute(known).first() is not None

    def evidence(self) -> PriorEvidence:
        with self._database.reading() as connection:
            return _evidence(connection)

    def publish(self, epoch: int, group: str = ALL) -> PublishedPrior:
        at = _check_epoch(epoch)
        expect.kind("group", group, str)
        with self._database.writing() as connection:
            last = _last_published(connection, group, MOST_EPOCH)
            if last is not None and last.epoch >= at:
                known = _last_published(connection, group, at)
                if known is None or known.epoch != at:
                    raise BadInput(
                        f"expected an epoch after {last.epoch}, for which a prior was published, got {at}"
                    )
                return known
            prior = _evidence(connection).prior(group)
            batches = int(connection.execute(select(func.count()).select_from(_BATCHES)).scalar_one())
            found = PublishedPrior(prior, group, at, LAWS_VERSION, prior.reports, batches)
            row: dict[str, Any] = {"version": found.version, "reports": found.reports, "batches": batches}
            record = json.dumps(prior_as_json(prior))
            connection.execute(insert(_PUBLISHED).values(group_name=group, epoch=at, record=record, **row))
        return found

    def in_force(self, epoch: int, group: str = ALL) -> PublishedPrior | None:
        at = _check_epoch(epoch)
        expect.kind("group", group, str)
        with self._database.reading() as connection:
            return _last_published(connection, group, at)


def _check_epoch(epoch: int) -> int:
    if expect.whole("epoch", epoch, at_least=0) > MOST_EPOCH:
        raise BadInput(f"expected an epoch <= {MOST_EPOCH}, got a larger one")
    return epoch


def _is_known(connection: Connection, batch: str, digest: str) -> bool:
    """Whether these reports were learnt under this name; others under the same name are refused."""
    known = connection.execute(select(_BATCHES.c.digest).where(_BATCHES.c.name == batch)).first()
    if known is not None and known.digest != digest:
        raise BadInput(f"batch {batch}: expected the reports that were learnt under this name, got others")
    return known is not None


def _evidence(connection: Connection) -> PriorEvidence:
    record = connection.execute(select(_STATE.c.record)).scalar_one()
    return PriorEvidence.of_json(_parsed(record))


def _last_published(connection: Connection, group: str, epoch: int) -> PublishedPrior | None:
    these = (_PUBLISHED.c.group_name == group) & (_PUBLISHED.c.epoch <= epoch)
    row = connection.execute(
        select(_PUBLISHED).where(these).order_by(_PUBLISHED.c.epoch.desc()).limit(1)
    ).first()
    if row is None:
        return None
    prior = read_prior(_parsed(row.record))
    return PublishedPrior(prior, group, row.epoch, row.version, row.reports, row.batches)


def _parsed(record: str) -> Any:
    try:
        return json.loads(record)
    except ValueError:
        raise EvidenceError("expected an evidence store with records as JSON, got other text") from None


def _refuse_others(database: PartyDatabase) -> None:
    present = database.table_names()
    ours = present & set(_METADATA.tables)
    # A file is one store's alone; a PostgreSQL database may well hold other people's tables.
    if _VERSION.name not in present and (ours or (present and database.path)):
        found = ", ".join(sorted(present)[:5])
        raise EvidenceError(f"expected an evidence store or nothing at {database.name}, got tables {found}")


def _refuse_unknown(connection: Connection, name: str) -> None:
    found = [tuple(row) for row in connection.execute(select(_VERSION.c.version, _VERSION.c.laws))]
    if found != [(VERSION, LAWS_VERSION)]:
        got = " and ".join(f"version {version} of laws {laws}" for version, laws in found) or "none"
        raise EvidenceError(
            f"expected an evidence store of version {VERSION} of laws {LAWS_VERSION} at {name}, got {got}"
        )
