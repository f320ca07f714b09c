"""What a ledger was checked to be, kept beside its witness: opening it again checks only what came since.

A ledger is checked from the pages up: every hash, every decision and every total. That takes as long as its
history, so what came out is kept: the entry up to which all of it held, and what the entries up to there add up
to (the lines, the renewals, the reservations that are not settled, and how many are). These are a function of
that entry's hash alone. So an old file is as good as a new one, and one of another history fits no entry; where
the file is missing, torn or not what is stored, everything is checked. It stands outside of the database, as
the witness does: an edit of the database alone cannot change it, and whoever rewrites it could rewrite both.

What is left to the use of an entry: those before the kept one are not hashed again when the ledger is opened. A
reservation is held to its own entries whenever it is used, and `tacit ledger verify` looks at all of them.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from tacit import private
from tacit.errors import LedgerCorrupt, TacitError
from tacit.privacy.ledger.amount import Amount
from tacit.privacy.ledger.chain import (
    Head,
    History,
    line_of,
    line_text,
    replay,
    series_of,
    series_text,
)
from tacit.privacy.ledger.rules import Account, Ledger, Renewal, Reservation, State
from tacit.store import rows

EVERY = 500  # entries that may be new before they are checked and the file is written again
VERSION = 1


def whole(connection: Connection, name: str) -> History:
    """Every entry of the ledger called `name`, and that what is stored is what they add up to."""
    history = replay(rows.chain(connection))
    _compare(connection, history, rows.everything(connection), rows.places(connection), 0, name)
    return history


def since(connection: Connection, known: Checked, name: str) -> Checked | None:
    """The same from where `known` ends; None where that does not fit, and all has to be looked at."""
    if rows.hash_at(connection, known.head.sequence) != known.head.hash:
        return None
    try:
        rows.head(connection)
        history = replay(rows.chain(connection, after=known.head.sequence), known.history)
        stored, places = rows.open_or_later(connection, known.head.sequence)
        _compare(connection, history, stored, places, known.settled, name)
    except LedgerCorrupt:
        return None
    return Checked.of(history, known.settled)


def _compare(
    connection: Connection,
    history: History,
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
    if rows.sizes(connection) != expected:
        raise LedgerCorrupt(
            f"expected {expected[0]} entries and {expected[1]} reservations at {name}, got other numbers: "
            "something was removed or inserted"
        )


class Checked:
    """A history as far as it matters later on: without its entries, and without what was settled by then."""

    def __init__(self, history: History, settled: int) -> None:
        self.history, self.settled = history, settled

    @classmethod
    def of(cls, history: History, settled: int = 0) -> Checked:
        """`settled` reservations are not in the history any more."""
        known = history.ledger.reservations
        unsettled = {key: each for key, each in known.items() if each.state is State.RESERVED}
        places = {key: history.entries_by_key[key] for key in unsettled}
        kept = replace(
            history,
            ledger=Ledger(history.ledger.accounts, unsettled, history.ledger.renewals),
            entries_by_key=places,
            entries_by_line={},
        )
        return cls(kept, settled + len(known) - len(unsettled))

    @property
    def head(self) -> Head:
        return self.history.head


class CheckedFile:
    """Where what was checked is kept: a text that checks itself."""

    def __init__(self, witness: Path) -> None:
        self.path = witness.with_name(f"{witness.name}.checked")

    def read(self) -> Checked | None:
        """None for anything but a whole file of this version: then everything is checked."""
        try:
            digest, spelled = self.path.read_bytes().split(b"\n", 1)
            if digest != _digest(spelled):
                return None
            return _read(json.loads(spelled))
        except (OSError, ValueError, KeyError, TypeError, TacitError):
            return None

    def write(self, checked: Checked) -> None:
        """If it cannot be written, the next one who opens the ledger has more to check."""
        spelled = json.dumps(_record(checked), separators=(",", ":")).encode()
        draft = self.path.with_name(f"{self.path.name}.{uuid.uuid4().hex}")
        with suppress(OSError):
            try:
                with private.opened(draft, "wb") as file:
                    file.write(_digest(spelled) + b"\n" + spelled)
                draft.replace(self.path)
            finally:
                draft.unlink(missing_ok=True)


def _digest(spelled: bytes) -> bytes:
    return hashlib.sha256(b"tacit-ledger-checked\n" + spelled).hexdigest().encode()


def _record(checked: Checked) -> dict[str, Any]:
    ledger, head, places = checked.history.ledger, checked.head, checked.history.entries_by_key
    return {
        "version": VERSION,
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


def _read(record: dict[str, Any]) -> Checked:
    if record["version"] != VERSION:
        raise ValueError(f"expected version {VERSION}, got {record['version']!r}")
    accounts = [Account(line_of(line), *(Amount(*each) for each in parts)) for line, *parts in record["lines"]]
    renewals = [Renewal(series_of(series), Amount(*limit)) for series, limit in record["renewals"]]
    unsettled, places = {}, {}
    for key, line, amount, purpose, attempt, release, first, last in record["unsettled"]:
        unsettled[key] = Reservation(
            key, line_of(line), Amount(*amount), purpose, State.RESERVED, attempt, release
        )
        places[key] = (first, last)
    ledger = Ledger({each.line: each for each in accounts}, unsettled, {each.series: each for each in renewals})
    return Checked(History(ledger, Head(*record["head"]), {}, places), record["settled"])


def _parts(amount: Amount) -> tuple[int, int]:
    return amount.epsilon_nanos, amount.delta_attos
