"""Versions of statistics and models, made to last: a `VersionStore` on SQLite or PostgreSQL, beside campaigns.

    versions = SqlVersionStore(ad_store.database)

One of a kind is in use at most, which an index of the database holds too. What is added and what is put in use
has its line in the trail of changes, in the same transaction: `statistics in use` has who rolled what out, or
back, and when. A source's line there also tells that it was added before, when its version is long deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from tacit.deliver.campaigns.store import Author, CampaignVerdict
from tacit.deliver.campaigns.versions import (
    MOST_BYTES,
    MOST_VERSIONS,
    NewVersion,
    StoredVersion,
    VersionKind,
)
from tacit.display import brief
from tacit.errors import CampaignRefused
from tacit.store import billing_accounts as accounts
from tacit.store.campaign_rows import note, spell
from tacit.store.database import PartyDatabase
from tacit.store.market_tables import CHANGES, VERSIONS

_SAID = (VERSIONS.c.number, VERSIONS.c.kind, VERSIONS.c.made, VERSIONS.c.in_use, VERSIONS.c.body)


class SqlVersionStore:
    """A `VersionStore`. Every method is one transaction, on disk when it returns; any thread may call."""

    def __init__(
        self, database: PartyDatabase, *, most_versions: int = MOST_VERSIONS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._database, self._most_versions, self._most_bytes = database, most_versions, most_bytes

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    def add(
        self, version: NewVersion, author: Author, *, use: bool = False
    ) -> tuple[StoredVersion | None, bool]:
        subject = f"{version.kind} {version.source}"
        with self._database.writing() as connection:
            line = connection.execute(
                select(CHANGES.c.after)
                .where(CHANGES.c.subject == subject)
                .order_by(CHANGES.c.number.desc())
                .limit(1)
            ).first()
            if line is not None and line.after is not None:
                return _find(connection, json.loads(line.after)["number"]), False
            if line is not None and version.kind.is_once:
                return None, False
            number = accounts.next_number(connection, VERSIONS)
            kept = {
                "source": version.source,
                "digest": version.digest,
                "size": len(version.content),
                "body": dict(version.body),
            }
            row = {"number": number, "kind": str(version.kind), "made": author.at, "in_use": False}
            connection.execute(insert(VERSIONS).values(**row, body=spell(kept), content=version.content))
            told = {"number": number, "digest": version.digest, "size": len(version.content)}
            note(connection, author, subject, None, None, told)
            if use:
                _put_in_use(connection, number, version.kind, author)
            self._make_room(connection, version.kind, number, author)
            return _find(connection, number), True

    def versions(self, kind: VersionKind) -> Sequence[StoredVersion]:
        query = select(*_SAID).where(VERSIONS.c.kind == str(kind)).order_by(VERSIONS.c.number.desc())
        with self._database.reading() as connection:
            return [_read(row) for row in connection.execute(query)]

    def version(self, number: int) -> StoredVersion | None:
        with self._database.reading() as connection:
            return _find(connection, number)

    def content(self, number: int) -> bytes | None:
        query = select(VERSIONS.c.body, VERSIONS.c.content).where(VERSIONS.c.number == number)
        with self._database.reading() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        content = bytes(row.content)
        if hashlib.sha256(content).hexdigest() != json.loads(row.body)["digest"]:
            raise self._database.kind.corrupt(
                f"version {number} in {self._database.name} is not what was added: its digest differs"
            )
        return content

    def in_use(self, kind: VersionKind) -> StoredVersion | None:
        with self._database.reading() as connection:
            return _find_in_use(connection, kind)

    def use(self, number: int, author: Author) -> StoredVersion:
        with self._database.writing() as connection:
            found = _find(connection, number)
            if found is None:
                raise CampaignRefused(CampaignVerdict.UNKNOWN, f"version {number}")
            if found.kind is VersionKind.ROUND:
                raise CampaignRefused(
                    CampaignVerdict.CONFLICT,
                    f"version {number}: expected statistics or a model to put in use, got a round",
                )
            if not found.in_use:
                _put_in_use(connection, number, found.kind, author)
            after = _find(connection, number)
        assert after is not None, "it was found"
        return after

    def _make_room(self, connection: Connection, kind: VersionKind, newest: int, author: Author) -> None:
        """Delete the oldest that are neither in use nor the one that was just added."""
        while True:
            count, size = connection.execute(
                select(func.count(), func.sum(func.length(VERSIONS.c.content))).where(
                    VERSIONS.c.kind == str(kind)
                )
            ).one()
            if count <= self._most_versions and int(size) <= self._most_bytes:
                return
            free = (VERSIONS.c.kind == str(kind)) & ~VERSIONS.c.in_use & (VERSIONS.c.number != newest)
            oldest = connection.execute(select(func.min(VERSIONS.c.number)).where(free)).scalar()
            if oldest is None:
                return
            gone = _find(connection, oldest)
            assert gone is not None, "it was listed"
            connection.execute(delete(VERSIONS).where(VERSIONS.c.number == oldest))
            told = {"number": oldest, "digest": gone.digest, "size": gone.size}
            note(connection, author, f"{kind} {gone.source}", None, told, None)


def _put_in_use(connection: Connection, number: int, kind: VersionKind, author: Author) -> None:
    before = _find_in_use(connection, kind)
    if before is not None:
        connection.execute(update(VERSIONS).where(VERSIONS.c.number == before.number).values(in_use=False))
    connection.execute(update(VERSIONS).where(VERSIONS.c.number == number).values(in_use=True))
    was = None if before is None else {"number": before.number}
    note(connection, author, f"{kind} in use", None, was, {"number": number})


def _find(connection: Connection, number: int) -> StoredVersion | None:
    row = connection.execute(select(*_SAID).where(VERSIONS.c.number == number)).first()
    return None if row is None else _read(row)


def _find_in_use(connection: Connection, kind: VersionKind) -> StoredVersion | None:
    query = select(*_SAID).where((VERSIONS.c.kind == str(kind)) & VERSIONS.c.in_use)
    row = connection.execute(query).first()
    return None if row is None else _read(row)


def _read(row: Any) -> StoredVersion:
    kept = json.loads(row.body)
    return StoredVersion(
        row.number, VersionKind(row.kind), row.made, bool(row.in_use), kept["source"], kept["digest"],
        kept["size"], kept["body"],
    )  # fmt: skip
