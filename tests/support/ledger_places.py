"""Where the tests keep their ledgers, and the one line that most of them spend on."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import NullPool, create_engine, make_url, text

from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import ChainHead
from tacit.privacy.ledger.lines import Line, Series
from tacit.privacy.units import Relation, Unit, UnitKind, Window
from tacit.store.ledger import LedgerStore
from tacit.store.tamper_evidence import RollbackWitness
from tests.support.repository import VECTORS

LINE = Line("clicks", Unit(UnitKind.USER), Relation.REPLACE_ONE)
WEEKS = Series("clicks", Unit(UnitKind.USER, Window.days(7)), Relation.REPLACE_ONE)
VERSION_1 = (VECTORS / "ledger_v1.sql").read_text()
LIMIT, COST, FIT = Budget.of(1, "1e-6"), Budget.of("0.2", "1e-8"), 5


@dataclass(frozen=True)
class Place:
    """Where one test keeps its ledger, with the ways past the ledger that an intruder would have."""

    where: str
    witness: Path

    def open(self) -> LedgerStore:
        return LedgerStore.open(self.where, witness=self.witness)

    def sql(self, statement: str, **values: Any) -> list[Any]:
        """Run one statement directly, past the ledger."""
        engine = create_engine(self.where, poolclass=NullPool)
        with engine.begin() as connection:
            result = connection.execute(text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def load_version_1(self) -> None:
        """The golden ledger of version 1, with a witness that has seen all of it."""
        for statement in VERSION_1.split(";\n"):
            if statement.strip():
                self.sql(statement.replace(":", r"\:"))  # a colon is no parameter here
        ((sequence, last),) = self.sql(
            "SELECT sequence, hash FROM ledger_entries ORDER BY sequence DESC LIMIT 1"
        )
        RollbackWitness(self.witness).advance(ChainHead(sequence, last))

    def backup(self) -> None:
        if self.where.startswith("sqlite"):
            shutil.copyfile(self._file, f"{self._file}.backup")
        else:
            self._recreate(f"{self._database}_backup", self._database)

    def restore(self) -> None:
        if self.where.startswith("sqlite"):
            shutil.copyfile(f"{self._file}.backup", self._file)
        else:
            self._recreate(self._database, f"{self._database}_backup")

    @property
    def _file(self) -> str:
        return self._database

    @property
    def _database(self) -> str:
        database = make_url(self.where).database
        assert database is not None
        return database

    def _recreate(self, name: str, template: str) -> None:
        server = make_url(self.where).set(database="postgres")
        administer(server.render_as_string(), f'DROP DATABASE IF EXISTS "{name}"')
        administer(server.render_as_string(), f'CREATE DATABASE "{name}" TEMPLATE "{template}"')


def administer(url: str, statement: str) -> None:
    """Run a statement that allows no transaction."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))


def begun(place: Place) -> LedgerStore:
    """A ledger with one line that pays for `FIT` releases."""
    store = place.open()
    store.grant(LINE, LIMIT)
    return store


def pay(store: LedgerStore, key: str) -> None:
    store.reserve(key, LINE, COST, "a test")
    store.commit(key)
