"""The ledger's history as a chain: each entry carries the hash of the one before; a replay gives the totals.

An entry's contents are canonical JSON (sorted keys, no spaces, amounts in whole parts). Its hash is SHA-256
over sequence, previous hash and contents, one per line. Nobody holds a key: the chain shows edits and lost
entries to whoever remembers a later hash; it does not stop a person who rewrites all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit.errors import LedgerCorrupt, TacitError
from tacit.privacy.ledger.amount import Amount
from tacit.privacy.ledger.events import (
    Aborted,
    Accepted,
    Claimed,
    Committed,
    Event,
    Granted,
    HandedOver,
    Made,
    Renewed,
    Reserved,
)
from tacit.privacy.ledger.lines import Line, Series
from tacit.privacy.ledger.rules import Account, Change, Ledger, Renewal, Reservation
from tacit.privacy.relations import Relation
from tacit.privacy.units import Unit, UnitKind, Window
from tacit.records import FAULTS

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Head:
    """The last entry of a history: how long it is, and what it hashes to."""

    sequence: int
    hash: str


START = Head(0, "0" * 64)


@dataclass(frozen=True)
class Entry:
    """One event in its place."""

    sequence: int
    previous: str
    contents: str
    hash: str

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.hash)


@dataclass(frozen=True)
class History:
    """What a chain of entries amounts to. `entries_by_key` has the entry that made a reservation and the last
    one about it."""

    ledger: Ledger
    head: Head
    entries_by_line: dict[Line, int]
    entries_by_key: dict[str, tuple[int, int]]


def append(head: Head, event: Event) -> Entry:
    """The entry that follows `head`."""
    sequence, contents = head.sequence + 1, encode(event)
    return Entry(sequence, head.hash, contents, _hash(sequence, head.hash, contents))


def follows(head: Head, entry: Entry) -> bool:
    """Whether the entry is whole and stands right after `head`."""
    return is_whole(entry) and (entry.sequence, entry.previous) == (head.sequence + 1, head.hash)


def is_whole(entry: Entry) -> bool:
    """Whether the entry hashes to what it says."""
    return entry.hash == _hash(entry.sequence, entry.previous, entry.contents)


BEGINNING = History(Ledger(), START, {}, {})


def replay(entries: Iterable[Entry], after: History = BEGINNING) -> History:
    """Check every link and decide every event again; raises LedgerCorrupt at the first that does not hold."""
    accounts: dict[Line, Account] = dict(after.ledger.accounts)
    reservations: dict[str, Reservation] = dict(after.ledger.reservations)
    renewals: dict[Series, Renewal] = dict(after.ledger.renewals)
    ledger = Ledger(accounts, reservations, renewals)
    counts, places, head = dict(after.entries_by_line), dict(after.entries_by_key), after.head
    for entry in entries:
        if not follows(head, entry):
            raise LedgerCorrupt(
                f"entry {entry.sequence} does not follow entry {head.sequence}: "
                "something was edited, removed or inserted"
            )
        head = entry.head
        event = decode(entry.contents)
        try:
            change = _decided_again(ledger, event)
        except TacitError as refusal:
            raise LedgerCorrupt(f"entry {entry.sequence} could not have happened: {refusal}") from None
        if change.events != (() if isinstance(event, Accepted) else (event,)):
            raise LedgerCorrupt(f"entry {entry.sequence} could not have happened: nothing was left to decide")
        if change.account:
            accounts[change.account.line] = change.account
            counts[change.account.line] = counts.get(change.account.line, 0) + 1
        if change.reservation:
            key = change.reservation.key
            reservations[key] = change.reservation
            places[key] = (places.get(key, (entry.sequence,))[0], entry.sequence)
        if change.renewal:
            renewals[change.renewal.series] = change.renewal
    return History(ledger, head, counts, places)


def _decided_again(ledger: Ledger, event: Event) -> Change:
    match event:
        case Granted(line, limit):
            return ledger.grant(line, limit)
        case Renewed(series, limit):
            return ledger.renew(series, limit)
        case Reserved(key, line, amount, purpose):
            return ledger.reserve(key, line, amount, purpose)
        case Claimed(key, attempt, after):
            return ledger.claimed(key, attempt, () if after is None else (after,))
        case Made(key, attempt, release):
            return ledger.made(key, attempt, release)
        case HandedOver(key):
            return ledger.hand_over(key)
        case Committed(key, by_hand):
            return ledger.committed(key, by_hand=by_hand)
        case Aborted(key):
            return ledger.aborted(key)
        case Accepted():
            return Change()


def _hash(sequence: int, previous: str, contents: str) -> str:
    # JSON escapes line breaks, so the three parts cannot run into each other.
    return hashlib.sha256(f"{sequence}\n{previous}\n{contents}".encode()).hexdigest()


def encode(event: Event) -> str:
    """The event as canonical JSON."""
    match event:
        case Granted(line, limit):
            return _json({"kind": "grant", "line": _line_record(line), "limit": _amount_record(limit)})
        case Renewed(series, limit):
            return _json({"kind": "renew", "series": _series_record(series), "limit": _amount_record(limit)})
        case Reserved(key, line, amount, purpose):
            record = {"key": key, "line": _line_record(line), "amount": _amount_record(amount)}
            return _json({"kind": "reserve", "purpose": purpose, **record})
        case Claimed(key, attempt, after):
            return _json({"kind": "claim", "key": key, "attempt": attempt, "after": after})
        case Made(key, attempt, release):
            return _json({"kind": "make", "key": key, "attempt": attempt, "release": release})
        case HandedOver(key):
            return _json({"kind": "hand-over", "key": key})
        case Committed(key, by_hand):  # entries from before hands were told apart have no word of it
            return _json({"kind": "commit", "key": key, **({"by_hand": True} if by_hand else {})})
        case Aborted(key):
            return _json({"kind": "abort", "key": key})
        case Accepted(lost):
            return _json({"kind": "accept", "lost": lost})


def decode(contents: str) -> Event:
    """The event that was encoded; anything else is LedgerCorrupt."""
    event = _taken(contents, lambda record: _EVENTS[record["kind"]](record), "the contents of an entry")
    if encode(event) != contents:
        raise LedgerCorrupt("expected the contents of an entry in their one spelling, got another")
    return event


def line_text(line: Line) -> str:
    """The one spelling of a line, for storing it under."""
    return _json(_line_record(line))


def line_of(spelled: str) -> Line:
    """The line that is spelled like this."""
    return _taken(spelled, _line, "a line")


def series_text(series: Series) -> str:
    """The one spelling of a series."""
    return _json(_series_record(series))


def series_of(spelled: str) -> Series:
    """The series that is spelled like this."""
    return _taken(spelled, _series, "a series")


def _taken(spelled: str, make: Callable[[Any], Parsed], what: str) -> Parsed:
    """What a stored text spells; whatever else it is, the ledger is corrupt."""
    try:
        return make(json.loads(spelled))
    except FAULTS:
        raise LedgerCorrupt(f"expected {what} in the ledger, got something else") from None


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _series_record(series: Series) -> dict[str, Any]:
    window = series.unit.window
    unit = {
        "kind": str(series.unit.kind),
        "window": None if window is None else {"seconds": window.seconds, "origin": window.origin},
        "ad_tech": series.unit.ad_tech,
    }
    return {"scope": series.scope, "unit": unit, "relation": str(series.relation)}


def _line_record(line: Line) -> dict[str, Any]:
    return {**_series_record(line.series), "window": line.window}


def _amount_record(amount: Amount) -> dict[str, int]:
    return {"epsilon_nanos": amount.epsilon_nanos, "delta_attos": amount.delta_attos}


def _series(record: dict[str, Any]) -> Series:
    unit, window = record["unit"], record["unit"]["window"]
    return Series(
        record["scope"],
        Unit(UnitKind(unit["kind"]), None if window is None else Window(**window), unit["ad_tech"]),
        Relation(record["relation"]),
    )


def _line(record: dict[str, Any]) -> Line:
    return _series(record).line(record["window"])


def _amount(record: dict[str, Any]) -> Amount:
    return Amount(record["epsilon_nanos"], record["delta_attos"])


_EVENTS: dict[str, Callable[[dict[str, Any]], Event]] = {
    "grant": lambda r: Granted(_line(r["line"]), _amount(r["limit"])),
    "renew": lambda r: Renewed(_series(r["series"]), _amount(r["limit"])),
    "reserve": lambda r: Reserved(r["key"], _line(r["line"]), _amount(r["amount"]), r["purpose"]),
    "claim": lambda r: Claimed(r["key"], r["attempt"], r["after"]),
    "make": lambda r: Made(r["key"], r["attempt"], r["release"]),
    "hand-over": lambda r: HandedOver(r["key"]),
    "commit": lambda r: Committed(r["key"], r.get("by_hand", False)),
    "abort": lambda r: Aborted(r["key"]),
    "accept": lambda r: Accepted(r["lost"]),
}
