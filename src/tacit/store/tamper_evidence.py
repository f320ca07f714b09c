"""The two small files beside a database that show whether it was put back to an older state or edited.

The witness remembers how far a chain of entries had come, a ledger's or a room's. It is written after every
commit and before the caller hears of it. So whatever was released is behind the witness, and a database that
lacks the witnessed entry was put back to an older state.

The checked history makes opening a long ledger fast: only what came since is checked. A ledger is checked
from the pages up: every hash, every decision and every total. That takes as long as its history, so what came
out is kept: the entry up to which all of it held, and what the entries up to there add up to (the lines, the
renewals, the reservations that are not settled, and how many are). These are a function of that entry's hash
alone. So an old file is as good as a new one, and one of another history fits no entry; where the file is
missing, torn or not what is stored, everything is checked. It stands outside of the database, as the witness
does: an edit of the database alone cannot change it, and who rewrites it could rewrite both.

What is left to the use of an entry: those before the kept one are not hashed again when the ledger is opened.
A reservation is held to its own entries whenever it is used, and `tacit ledger verify` looks at all of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from tacit import files
from tacit.errors import LedgerCorrupt, LedgerError, LedgerRolledBack, TacitError
from tacit.privacy.ledger.chain import (
    ChainHead,
    LedgerHistory,
    line_text,
    parse_line,
    parse_series,
    replay,
    series_text,
)
from tacit.privacy.ledger.lines import Amount
from tacit.privacy.ledger.rules import Account, Ledger, Renewal, Reservation, ReservationState
from tacit.store import ledger_tables
from tacit.store.database import make_private_file


@dataclass(frozen=True)
class WitnessSubject:
    """Whose chain a witness watches, and how its troubles are called."""

    noun: str
    trouble: type[TacitError]
    corrupt: type[TacitError]
    rolled_back: type[TacitError]
    remedy: str


LEDGER_SUBJECT = WitnessSubject(
    "ledger", LedgerError, LedgerCorrupt, LedgerRolledBack, "see `tacit ledger accept --help`"
)


class RollbackWitness:
    """The highest entry that was ever seen, in one line of text that checks itself."""

    def __init__(self, path: Path, watched: WitnessSubject = LEDGER_SUBJECT) -> None:
        self.path, self._watched = path.resolve(), watched

    def read(self) -> ChainHead | None:
        """What the witness remembers; None if there is no file."""
        try:
            return self._parse(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as problem:
            trouble = f"the witness {self.path} could not be read: {problem.strerror}"
            raise self._watched.trouble(trouble) from problem

    def advance(self, head: ChainHead) -> None:
        """Remember `head` unless something later is remembered already."""
        if self.read() == head:
            return
        with self._hold_lock():
            known = self.read()
            if known is not None and known.sequence > head.sequence:
                return
            if known is not None and known.sequence == head.sequence and known != head:
                raise self._watched.rolled_back(
                    f"entry {head.sequence} is not the one that the witness {self.path} has seen: "
                    f"the {self._watched.noun} was put back and went on from there"
                )
            self._write(head)

    def replace(self, head: ChainHead) -> None:
        """Remember `head`, whatever was known before: only for somebody who accepts the loss."""
        with self._hold_lock():
            self._write(head)

    def _write(self, head: ChainHead) -> None:
        draft = self.path.with_name(self.path.name + ".new")
        with files.open_private(draft, "wb") as file:
            os.fchmod(file.fileno(), self._mode())
            file.write(self._spell(head))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        files.sync_to_disk(self.path.parent)  # or a power cut may bring the old name back

    def _mode(self) -> int:
        """A new witness is its owner's alone; one that somebody let others read stays so."""
        try:
            return stat.S_IMODE(self.path.stat().st_mode)
        except FileNotFoundError:
            return files.PRIVATE_MODE

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        # The witness itself is replaced by renaming, so the lock needs a file that stays.
        try:
            place = self.path.with_name(self.path.name + ".lock")
            make_private_file(place)  # one that is there keeps its mode, as the witness does
            with place.open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as problem:
            raise self._watched.trouble(
                f"the witness {self.path} could not be written ({problem.strerror}); what was just reserved "
                "stays reserved, and nothing may be released on it"
            ) from problem

    def _spell(self, head: ChainHead) -> bytes:
        line = f"tacit-{self._watched.noun.replace(' ', '-')}-witness-1 {head.sequence} {head.hash}"
        return f"{line} {hashlib.sha256(line.encode()).hexdigest()}\n".encode()

    def _parse(self, stored: bytes) -> ChainHead:
        parts = stored.decode("ascii", "replace").split(" ")
        if len(parts) == 4 and parts[1].isdecimal() and len(parts[1]) < 20:
            head = ChainHead(int(parts[1]), parts[2])
            if self._spell(head) == stored:
                return head
        raise self._watched.corrupt(
            f"the witness {self.path} is torn or edited, so nobody can tell whether the {self._watched.noun} "
            f"is complete; {self._watched.remedy}"
        )


EVERY = 500  # entries that may be new before they are checked and the file is written again
CHECKED_VERSION = 1


def check_whole_ledger(connection: Connection, name: str) -> LedgerHistory:
    """Every entry of the ledger called `name`, and that what is stored is what they add up to."""
    history = replay(ledger_tables.stored_entries(connection))
    _compare(
        connection,
        history,
        ledger_tables.stored_ledger(connection),
        ledger_tables.entry_places(connection),
        0,
        name,
    )
    return history


def check_ledger_since(connection: Connection, known: CheckedHistory, name: str) -> CheckedHistory | None:
    """The same from where `known` ends; None where that does not fit, and all has to be looked at."""
    if ledger_tables.entry_hash(connection, known.head.sequence) != known.head.hash:
        return None
    try:
        ledger_tables.stored_head(connection)
        history = replay(ledger_tables.stored_entries(connection, after=known.head.sequence), known.history)
        stored, places = ledger_tables.unsettled_or_later(connection, known.head.sequence)
        _compare(connection, history, stored, places, known.settled, name)
    except LedgerCorrupt:
        return None
    return CheckedHistory.of(history, known.settled)


def _compare(
    connection: Connection,
    history: LedgerHistory,
    stored: Ledger,
    places: dict[str, tuple[int, int]],
    settled: int,
    name: str,
) -> None:
    for part in ("accounts", "reservations", "renewals"):
        if getattr(stored, part) != getattr(history.ledger, part):
            raise LedgerCorrupt(
                f"the {part} stored at {name} are not what its entries add up to: something was edited"
            )
    if places != history.entries_by_key:
        raise LedgerCorrupt(
            f"the reservations stored at {name} do not point to their entries: something was edited"
        )
    expected = (history.head.sequence, settled + len(history.ledger.reservations))
    if ledger_tables.stored_sizes(connection) != expected:
        raise LedgerCorrupt(
            f"expected {expected[0]} entries and {expected[1]} reservations at {name}, got other numbers: "
            "something was removed or inserted"
        )


class CheckedHistory:
    """A history as far as it matters later on: without its entries, and without what was settled by then."""

    def __init__(self, history: LedgerHistory, settled: int) -> None:
        self.history, self.settled = history, settled

    @classmethod
    def of(cls, history: LedgerHistory, settled: int = 0) -> CheckedHistory:
        """`settled` reservations are not in the history any more."""
        known = history.ledger.reservations
        unsettled = {key: each for key, each in known.items() if each.state is ReservationState.RESERVED}
        places = {key: history.entries_by_key[key] for key in unsettled}
        kept = replace(
            history,
            ledger=Ledger(history.ledger.accounts, unsettled, history.ledger.renewals),
            entries_by_key=places,
            entries_by_line={},
        )
        return cls(kept, settled + len(known) - len(unsettled))

    @property
    def head(self) -> ChainHead:
        return self.history.head


class CheckedFile:
    """Where what was checked is kept: a text that checks itself."""

    def __init__(self, witness: Path) -> None:
        self.path = witness.with_name(f"{witness.name}.checked")

    def read(self) -> CheckedHistory | None:
        """None for anything but a whole file of this version: then everything is checked."""
        try:
            digest, spelled = self.path.read_bytes().split(b"\n", 1)
            if digest != _checked_digest(spelled):
                return None
            return _read_record(json.loads(spelled))
        except (OSError, ValueError, KeyError, TypeError, TacitError):
            return None

    def write(self, checked: CheckedHistory) -> None:
        """If it cannot be written, the next one who opens the ledger has more to check."""
        spelled = json.dumps(_checked_record(checked), separators=(",", ":")).encode()
        content = _checked_digest(spelled) + b"\n" + spelled
        with suppress(OSError):
            files.write_atomically(self.path, content, mode=files.PRIVATE_MODE, durable=False)


def _checked_digest(spelled: bytes) -> bytes:
    return hashlib.sha256(b"tacit-ledger-checked\n" + spelled).hexdigest().encode()


def _checked_record(checked: CheckedHistory) -> dict[str, Any]:
    ledger, head, places = checked.history.ledger, checked.head, checked.history.entries_by_key
    return {
        "version": CHECKED_VERSION,
        "head": [head.sequence, head.hash],
        "settled": checked.settled,
        "lines": [
            [line_text(each.line), *map(_parts, (each.limit, each.spent, each.reserved))]
            for each in ledger.accounts.values()
        ],
        "renewals": [[series_text(each.series), _parts(each.limit)] for each in ledger.renewals.values()],
        "unsettled": [
            [each.key, line_text(each.line), _parts(each.amount), each.purpose, each.attempt, each.release,
             *places[each.key]]
            for each in ledger.reservations.values()
        ],
    }  # fmt: skip


def _read_record(record: dict[str, Any]) -> CheckedHistory:
    if record["version"] != CHECKED_VERSION:
        raise ValueError(f"expected version {CHECKED_VERSION}, got {record['version']!r}")
    accounts = [
        Account(parse_line(line), *(Amount(*each) for each in parts)) for line, *parts in record["lines"]
    ]
    renewals = [Renewal(parse_series(series), Amount(*limit)) for series, limit in record["renewals"]]
    unsettled, places = {}, {}
    for key, line, amount, purpose, attempt, release, first, last in record["unsettled"]:
        unsettled[key] = Reservation(
            key, parse_line(line), Amount(*amount), purpose, ReservationState.RESERVED, attempt, release
        )
        places[key] = (first, last)
    ledger = Ledger({each.line: each for each in accounts}, unsettled, {each.series: each for each in renewals})
    return CheckedHistory(LedgerHistory(ledger, ChainHead(*record["head"]), {}, places), record["settled"])


def _parts(amount: Amount) -> tuple[int, int]:
    return amount.epsilon_nanos, amount.delta_attos
