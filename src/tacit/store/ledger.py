"""The privacy ledger, made to last: through crashes, rivals for the last of a budget, and restored backups.

    ledger = LedgerStore.open("tacit-ledger.sqlite")
    ledger.grant(line, Budget.of(4, "1e-6"))
    with ledger.once(Request("clicks/model-7", line, guarantee, "train the click model")):
        ...                                              # make the release
    ...                                                  # and only then let it out

Whoever goes on after a crash does the same in steps: reserve, claim, make, commit.

The rules are in `tacit.privacy.ledger.rules`; this file decides nothing about budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from tacit import expect
from tacit.entropy import draw_token
from tacit.errors import BadInput, LedgerConflict, LedgerCorrupt, LedgerError, LedgerRolledBack
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.book import Attempt, LedgerBook
from tacit.privacy.ledger.chain import ChainHead, LedgerHistory, next_chain_entry
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Amount, HistoryAccepted, Line, Series, check_ledger_name
from tacit.privacy.ledger.requests import Decision, Request
from tacit.privacy.ledger.rules import Account, Change, Ledger, Renewal, Reservation
from tacit.store import ledger_tables
from tacit.store.database import LedgerDatabase, SqliteLedgerFile, ledger_database
from tacit.store.tamper_evidence import (
    EVERY,
    CheckedFile,
    CheckedHistory,
    RollbackWitness,
    check_ledger_since,
    check_whole_ledger,
)

__all__ = ["Attempt", "LedgerStore", "Request", "open_ledger"]

Record = TypeVar("Record")


class LedgerStore(LedgerBook):
    """A durable ledger. Each method holds the ledger alone and returns after all is on disk and witnessed."""

    def __init__(self, database: LedgerDatabase, witness: RollbackWitness) -> None:
        expect.kind("witness", witness, RollbackWitness)
        self._database, self._witness, self._kept = database, witness, CheckedFile(witness.path)
        self._made_here: set[str] = set()
        self._kept_at: int | None = None  # the entry up to which all was checked when it was last kept

    @classmethod
    def open(cls, where: str | Path, *, witness: str | Path | None = None) -> LedgerStore:
        """Open a ledger by path or URL; a new one begins where there is none and no witness remembers one."""
        store = _store_at(cls, where, witness)
        store._begin(make=True)
        return store

    @classmethod
    def open_existing(cls, where: str | Path, *, witness: str | Path | None = None) -> LedgerStore:
        """Open a ledger that must be there already."""
        store = _store_at(cls, where, witness)
        store._begin(make=False)
        return store

    @classmethod
    def accept(cls, where: str | Path, *, witness: str | Path | None = None) -> ChainHead:
        """Take the stored history as true although its witness is missing, torn or knows more.

        This forgets what was spent after that history ends, if anything was. The chain keeps a note of it.
        """
        store = _store_at(cls, where, witness)
        store._refuse_missing()
        with store._database.transaction() as connection:
            store._current_tables(connection, make=False)
            head = store._whole(connection).head
            try:
                known = store._witness.read()
                lost = "no witness" if known is None else f"witnessed entry {known.sequence} {known.hash}"
                complete = known is not None and ledger_tables.has_entry(connection, known)
            except LedgerCorrupt:
                lost, complete = "unreadable witness", False
            if not complete:
                entry = next_chain_entry(head, HistoryAccepted(lost))
                ledger_tables.append_entry(connection, entry)
                head = entry.head
        store._witness.replace(head)
        return head

    def __repr__(self) -> str:
        return f"LedgerStore({self._database.name!r})"

    def overview(self) -> Ledger:
        """All lines with their totals, and what their windows are granted; reservations are left out."""
        with self._reading() as connection:
            return ledger_tables.stored_lines(connection)

    def _grant(self, line: Line, limit: Budget) -> Account:
        amount = Amount.limit(limit)
        change = self._decide(lambda ledger: ledger.grant(line, amount), line=line)
        return _expect_record(change.account)

    def renew(self, series: Series, limit: Budget) -> Renewal:
        """Give each window of the series a line of its own with this limit, opened when it first spends."""
        amount = Amount.limit(limit)
        some_line = series.line(None if series.unit.window is None else 0)
        change = self._decide(lambda ledger: ledger.renew(series, amount), line=some_line)
        return _expect_record(change.renewal)

    def reserve(self, key: str, line: Line, cost: Guarantee | Budget, purpose: str) -> Reservation:
        """Set aside what one release will cost. Release nothing before this has returned.

        The same key again gives the same reservation back, marked `resumed`: look at its state. If it is
        committed, the release was made; read what was stored of it, and do not draw it again.
        """
        return self.reserve_all([Request(key, line, cost, purpose)])[0]

    @contextmanager
    def once(self, *requests: Request) -> Iterator[Attempt]:
        """Make one release, and never again: reserved before the block, made and spent once it has ended.

        Let nothing out before the end, or before `Attempt.name_release`. Where these keys are known already the
        block is not entered (ReservationTaken). A block that raises leaves the reservation as it is; settle it
        with `tacit ledger settle`.
        """
        attempt = Attempt(self, [request.key for request in requests], draw_token())
        reserving = [request.decision(new=True) for request in requests]
        self._decide_all([*reserving, *map(attempt.claiming, attempt.keys)])
        yield attempt
        attempt.commit()

    def claim(self, key: str, attempt: str, *, after: Collection[str] = ()) -> Reservation:
        """Take a reservation up, so that nobody else makes its release; ReservationTaken if somebody does.

        `attempt` is a token that nobody can guess and no other attempt uses (`entropy.draw_token()`). Whoever
        goes on from something that was kept, such as a checkpoint, takes a new one, and presents under `after`
        those that were kept with it. Doing it twice is fine.
        """
        return self.claim_all([key], attempt, after=after)[0]

    def make(self, key: str, attempt: str, release: str) -> Reservation:
        """Say what this attempt has made, before it leaves: the digest of the one release. Only once.

        The same attempt may say the same again. Anybody else, and any other release, is refused.
        """
        return self.make_all([key], attempt, release)[0]

    def commit(self, key: str, attempt: str | None = None, *, certain: bool = False) -> Reservation:
        """The release left. Doing it twice is fine.

        What was claimed is committed by its attempt, once it has said what it made; `certain` says that
        somebody has looked.
        """
        return self.commit_all([key], attempt, certain=certain)[0]

    def abort(self, key: str, attempt: str | None = None, *, certain: bool = False) -> Reservation:
        """The release never left and never will. Doing it twice is fine.

        Only who made the reservation knows that, or the attempt that holds it and has made nothing: a resumed
        one may have been released by the run that made it. `certain` says that somebody has looked.
        """
        return self.abort_all([key], attempt, certain=certain)[0]

    def hand_over(self, keys: Sequence[str]) -> list[Reservation]:
        """Let one other attempt claim what a lost one holds; refused once a release was made.

        Whoever held it and still runs is refused from here on, unless it is the first to claim it again.
        """
        return self._decide_each(keys, lambda key, ledger: ledger.hand_over(key))

    def verify(self) -> LedgerHistory:
        """Recompute the chain and all totals from the entries; raises LedgerCorrupt or LedgerRolledBack."""
        self._refuse_missing()
        with self._database.transaction() as connection:
            self._current_tables(connection, make=False)
            history = self._whole(connection)
            self._refuse_rollback(connection, history.head)
        self._witness.advance(history.head)
        self._kept_at = 0
        self._keep(CheckedHistory.of(history))
        return history

    def reserve_all(self, requests: Sequence[Request]) -> list[Reservation]:
        """Reserve on several lines, all or none: a release that reads several windows pays each of them."""
        changes = self._decide_all([request.decision() for request in requests])
        reservations = [_expect_record(change.reservation) for change in changes]
        self._made_here |= {reservation.key for reservation in reservations if not reservation.resumed}
        return reservations

    def claim_all(self, keys: Sequence[str], attempt: str, *, after: Collection[str] = ()) -> list[Reservation]:
        """Claim all reservations of one release, or none."""
        return self._decide_each(keys, lambda key, ledger: ledger.claim(key, attempt, after=after))

    def make_all(self, keys: Sequence[str], attempt: str, release: str) -> list[Reservation]:
        """Say what was made, for all reservations of one release or none."""
        return self._decide_each(keys, lambda key, ledger: ledger.make(key, attempt, release))

    def commit_all(
        self, keys: Sequence[str], attempt: str | None = None, *, certain: bool = False
    ) -> list[Reservation]:
        """Commit several reservations, all or none."""
        return self._decide_each(keys, lambda key, ledger: ledger.commit(key, attempt, certain=certain))

    def abort_all(
        self, keys: Sequence[str], attempt: str | None = None, *, certain: bool = False
    ) -> list[Reservation]:
        """Abort several reservations, all or none."""
        for key in keys:
            if attempt is None and key not in self._made_here and not certain:
                raise LedgerConflict(
                    f"the reservation {key!r} was not made here, and whoever made it may have let the release "
                    "out; abort it with certain=True (`tacit ledger settle KEY --never-left`) if you know it "
                    "did not"
                )
        return self._decide_each(keys, lambda key, ledger: ledger.abort(key, attempt, certain=certain))

    def reservation(self, key: str) -> Reservation | None:
        """What is reserved or settled under this key, if anything."""
        with self._reading() as connection:
            found = ledger_tables.ledger_around(connection, key=check_ledger_name("key", key))
            return found.reservations.get(key)

    def account(self, line: Line) -> Account | None:
        """The line's limit and totals; None where nothing was granted and no window has opened."""
        with self._reading() as connection:
            return ledger_tables.ledger_around(connection, key=None, line=line).accounts.get(line)

    def series(self) -> set[Series]:
        """Each that a line was opened of, or whose windows are granted a limit when they first spend."""
        with self._reading() as connection:
            return ledger_tables.stored_series(connection)

    def around(self, requests: Sequence[Request]) -> Ledger:
        """All that decides about these keys and lines: enough to see what reserving them would do."""
        found = Ledger()
        with self._reading() as connection:
            for request in requests:
                found = found.merge(ledger_tables.ledger_around(connection, key=request.key, line=request.line))
        return found

    def _decide_each(self, keys: Sequence[str], decide: Callable[[str, Ledger], Change]) -> list[Reservation]:
        decisions = [Decision(partial(decide, check_ledger_name("key", key)), key) for key in keys]
        return [_expect_record(change.reservation) for change in self._decide_all(decisions)]

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._refuse_missing()
        with self._database.transaction() as connection:
            self._refuse_rollback(connection, ledger_tables.stored_head(connection))
            yield connection

    def _decide(
        self, decide: Callable[[Ledger], Change], *, key: str | None = None, line: Line | None = None
    ) -> Change:
        return self._decide_all([Decision(decide, key, line)])[0]

    def _decide_all(self, decisions: Sequence[Decision]) -> list[Change]:
        """Decide one after the other in one transaction: if one is refused, none has happened."""
        self._refuse_missing()
        changes = []
        with self._database.transaction() as connection:
            head = ledger_tables.stored_head(connection)
            self._refuse_rollback(connection, head)
            for decision in decisions:
                around = ledger_tables.ledger_around(connection, key=decision.key, line=decision.line)
                change = decision.decide(around)
                for event in change.events:
                    entry = next_chain_entry(head, event)
                    ledger_tables.append_entry(connection, entry)
                    head = entry.head
                if change.events:
                    ledger_tables.save_change(connection, change, head.sequence)
                changes.append(change)
        # Even if nothing was new: an earlier attempt may have died between its commit and its witness.
        self._witness.advance(head)
        if self._kept_at is not None and head.sequence - self._kept_at >= EVERY:
            self._check_on()
        return changes

    def _begin(self, *, make: bool) -> None:
        if not make:
            self._refuse_missing()
        elif not self._database.exists():
            self._refuse_lost()
        with self._database.transaction() as connection:
            checked = self._check_history(connection, make=make)
            self._refuse_rollback(connection, checked.head)
        self._witness.advance(checked.head)
        self._keep(checked)

    def _check_on(self) -> None:
        """What came since the last check: so that whoever opens a long ledger next finds little to do."""
        with self._database.transaction() as connection:
            checked = self._check_history(connection, make=False)
            self._refuse_rollback(connection, checked.head)
        self._keep(checked)

    def _keep(self, checked: CheckedHistory) -> None:
        """Only what held, and was found behind the witness."""
        if checked.head.sequence - (self._kept_at or 0) >= EVERY:
            self._kept.write(checked)
            self._kept_at = checked.head.sequence

    def _check_history(self, connection: Connection, *, make: bool) -> CheckedHistory:
        """All that is stored, or all that was not checked before; older versions are brought up to date."""
        current = self._current_tables(connection, make=make)
        known = self._kept.read() if current else None
        if known is not None:  # lines are looked up by their keys: one that is not found would begin anew
            self._database.check_pages(connection, ledger_tables.LINES.name)
        found = None if known is None else check_ledger_since(connection, known, self._database.name)
        if known is None or found is None:
            self._kept_at = 0
            return CheckedHistory.of(self._whole(connection))
        self._kept_at = known.head.sequence
        return found

    def _whole(self, connection: Connection) -> LedgerHistory:
        """Everything that is stored, checked from the pages up."""
        self._database.check_pages(connection)
        return check_whole_ledger(connection, self._database.name)

    def _current_tables(self, connection: Connection, *, make: bool) -> bool:
        """Whether they were of the current version already; if not, they are now."""
        found = ledger_tables.stored_version(connection)
        if found is None:
            self._refuse_lost()
            if not make:
                raise LedgerError(f"there is no ledger at {self._database.name}: the database is empty")
            ledger_tables.create_tables(connection)
        else:
            ledger_tables.upgrade_tables(connection, found)
        ledger_tables.refuse_other_tables(connection)
        return found == ledger_tables.VERSION

    def _refuse_missing(self) -> None:
        if not self._database.exists():
            self._refuse_lost()
            raise LedgerError(
                f"there is no ledger at {self._database.name}; `tacit ledger grant` begins one, "
                "and --ledger names another place"
            )

    def _refuse_lost(self) -> None:
        known = self._witness.read()
        if known is not None and known.sequence > 0:
            raise LedgerRolledBack(
                f"there is nothing at {self._database.name}, but the witness {self._witness.path} has seen "
                f"{known.sequence} entries: the ledger was lost. Restore the latest copy; beginning anew would "
                "forget what was spent"
            )

    def _refuse_rollback(self, connection: Connection, head: ChainHead) -> None:
        known = self._witness.read()
        if known is None:
            if head.sequence > 0:
                raise LedgerRolledBack(
                    f"the ledger at {self._database.name} has {head.sequence} entries but no witness at "
                    f"{self._witness.path}, so it may be an old copy that lacks spending. "
                    "Is the witness elsewhere: say witness=... (--witness). Is it lost: see "
                    "`tacit ledger accept --help`"
                )
        elif not ledger_tables.has_entry(connection, known):
            raise LedgerRolledBack(
                f"the ledger at {self._database.name} ends at entry {head.sequence} and lacks entry "
                f"{known.sequence} as its witness saw it: it was put back to an older state, and spending is "
                "missing. Restore the latest copy, or see `tacit ledger accept --help`"
            )


def open_ledger(where: str | Path, *, witness: str | Path | None = None) -> LedgerStore:
    """The privacy ledger in this file, or at this `postgresql+psycopg://` URL; a new one where there is none.

    What it has seen is remembered in a small file beside it, or at `witness`, so that nobody puts back an
    older copy unnoticed.
    """
    return LedgerStore.open(where, witness=witness)


def _store_at(kind: type[LedgerStore], where: str | Path, witness: str | Path | None) -> LedgerStore:
    database = ledger_database(where if isinstance(where, str) else expect.path("where", where))
    if witness is None:
        if not isinstance(database, SqliteLedgerFile):
            raise BadInput(
                "expected witness=..., the path of a PostgreSQL ledger's witness (--witness), got none"
            )
        witness = f"{database.path}.witness"
    return kind(database, RollbackWitness(expect.path("witness", witness)))


def _expect_record(record: Record | None) -> Record:
    assert record is not None, "a decision returns the record that it is about"
    return record
