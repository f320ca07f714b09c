"""The ledger's history as a chain: each entry carries the hash of the one before; a replay gives the totals.

An entry's contents are canonical JSON (sorted keys, no spaces, amounts in whole parts). Its hash is SHA-256
over sequence, previous hash and contents, one per line. Nobody holds a key: the chain shows edits and lost
entries to anybody who remembers a later hash; it does not stop a person who rewrites all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit.errors import LedgerCorrupt, TacitError
from tacit.expect import RECORD_FAULTS
from tacit.privacy.ledger.lines import (
    Amount,
    AmountReserved,
    HistoryAccepted,
    LedgerEvent,
    Line,
    LineGranted,
    ReleaseMade,
    ReservationAborted,
    ReservationClaimed,
    ReservationCommitted,
    ReservationHandedOver,
    Series,
    SeriesRenewed,
)
from tacit.privacy.ledger.rules import Account, Change, Ledger, Renewal, Reservation
from tacit.privacy.units import Relation, Unit, UnitKind, Window

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class ChainHead:
    """The last entry of a history: how long it is, and what it hashes to."""

    sequence: int
    hash: str


START = ChainHead(0, "0" * 64)


@dataclass(frozen=True)
class ChainEntry:
    """One event in its place."""

    sequence: int
    previous: str
    contents: str
    hash: str

    @property
    def head(self) -> ChainHead:
        return ChainHead(self.sequence, self.hash)


@dataclass(frozen=True)
class LedgerHistory:
    """What a chain of entries amounts to. `entries_by_key` has the entry that made a reservation and the last
    one about it."""

    ledger: Ledger
    head: ChainHead
    entries_by_line: dict[Line, int]
    entries_by_key: dict[str, tuple[int, int]]

    def as_json(self) -> dict[str, Any]:
        """Every line with its totals, limits of windows to come, and what is reserved and not settled."""
        ledger = self.ledger
        return {
            "lines": [
                {
                    **place_record(line.series, line.window),
                    "limit": account.limit.as_json(),
                    "spent": account.spent.as_json(),
                    "reserved": account.reserved.as_json(),
                    "remaining": account.remaining.as_json(),
                    "entries": self.entries_by_line[line],
                }
                for line, account in sorted(ledger.accounts.items(), key=lambda item: _order(item[0]))
            ],
            "renewals": [
                {**place_record(series, "each"), "limit": renewal.limit.as_json()}
                for series, renewal in sorted(ledger.renewals.items(), key=lambda item: str(item[0]))
            ],
            "unsettled": [
                {
                    "key": reservation.key,
                    "purpose": reservation.purpose,
                    **place_record(reservation.line.series, reservation.line.window),
                    "reserved": reservation.amount.as_json(),
                    "stage": _stage(reservation),
                }
                for reservation in ledger.reservations.values()
                if reservation.state == "reserved"
            ],
            "entries": self.head.sequence,
            "hash": self.head.hash,
        }


def place_record(series: Series, window: int | str | None) -> dict[str, Any]:
    """Where an amount is counted: scope, unit, relation and window, which may be "each"."""
    names = {"scope": series.scope, "unit": str(series.unit), "relation": str(series.relation)}
    return {**names, "window": window}


def _stage(reservation: Reservation) -> str:
    """How far the run that works on it has come."""
    if reservation.release is not None:
        return "made"
    return "reserved" if reservation.attempt is None else "claimed"


def _order(line: Line) -> tuple[str, str, str, int]:
    return line.scope, str(line.unit), line.relation, line.window or 0


def next_chain_entry(head: ChainHead, event: LedgerEvent) -> ChainEntry:
    """The entry that follows `head`."""
    sequence, contents = head.sequence + 1, encode_event(event)
    return ChainEntry(sequence, head.hash, contents, _hash(sequence, head.hash, contents))


def follows(head: ChainHead, entry: ChainEntry) -> bool:
    """Whether the entry is whole and stands right after `head`."""
    return is_intact(entry) and (entry.sequence, entry.previous) == (head.sequence + 1, head.hash)


def is_intact(entry: ChainEntry) -> bool:
    """Whether the entry hashes to what it says."""
    return entry.hash == _hash(entry.sequence, entry.previous, entry.contents)


BEGINNING = LedgerHistory(Ledger(), START, {}, {})


def replay(entries: Iterable[ChainEntry], after: LedgerHistory = BEGINNING) -> LedgerHistory:
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
        event = decode_event(entry.contents)
        try:
            change = _decide_again(ledger, event)
        except TacitError as refusal:
            raise LedgerCorrupt(f"entry {entry.sequence} could not have happened: {refusal}") from None
        if change.events != (() if isinstance(event, HistoryAccepted) else (event,)):
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
    return LedgerHistory(ledger, head, counts, places)


def _decide_again(ledger: Ledger, event: LedgerEvent) -> Change:
    match event:
        case LineGranted(line, limit):
            return ledger.grant(line, limit)
        case SeriesRenewed(series, limit):
            return ledger.renew(series, limit)
        case AmountReserved(key, line, amount, purpose):
            return ledger.reserve(key, line, amount, purpose)
        case ReservationClaimed(key, attempt, after):
            return ledger.claim_by_digest(key, attempt, () if after is None else (after,))
        case ReleaseMade(key, attempt, release):
            return ledger.make_by_digest(key, attempt, release)
        case ReservationHandedOver(key):
            return ledger.hand_over(key)
        case ReservationCommitted(key, by_hand):
            return ledger.record_commit(key, by_hand=by_hand)
        case ReservationAborted(key):
            return ledger.record_abort(key)
        case HistoryAccepted():
            return Change()


def _hash(sequence: int, previous: str, contents: str) -> str:
    # JSON escapes line breaks, so the three parts cannot run into each other.
    return hashlib.sha256(f"{sequence}\n{previous}\n{contents}".encode()).hexdigest()


def encode_event(event: LedgerEvent) -> str:
    """The event as canonical JSON."""
    match event:
        case LineGranted(line, limit):
            return _json({"kind": "grant", "line": _line_record(line), "limit": _amount_record(limit)})
        case SeriesRenewed(series, limit):
            return _json({"kind": "renew", "series": _series_record(series), "limit": _amount_record(limit)})
        case AmountReserved(key, line, amount, purpose):
            record = {"key": key, "line": _line_record(line), "amount": _amount_record(amount)}
            return _json({"kind": "reserve", "purpose": purpose, **record})
        case ReservationClaimed(key, attempt, after):
            return _json({"kind": "claim", "key": key, "attempt": attempt, "after": after})
        case ReleaseMade(key, attempt, release):
            return _json({"kind": "make", "key": key, "attempt": attempt, "release": release})
        case ReservationHandedOver(key):
            return _json({"kind": "hand-over", "key": key})
        case ReservationCommitted(key, by_hand):  # entries from before hands were told apart have no word of it
            return _json({"kind": "commit", "key": key, **({"by_hand": True} if by_hand else {})})
        case ReservationAborted(key):
            return _json({"kind": "abort", "key": key})
        case HistoryAccepted(lost):
            return _json({"kind": "accept", "lost": lost})


def decode_event(contents: str) -> LedgerEvent:
    """The event that was encoded; anything else is LedgerCorrupt."""
    event = _parse_stored(contents, lambda record: _EVENTS[record["kind"]](record), "the contents of an entry")
    if encode_event(event) != contents:
        raise LedgerCorrupt("expected the contents of an entry in their one spelling, got another")
    return event


def line_text(line: Line) -> str:
    """The one spelling of a line, for storing it under."""
    return _json(_line_record(line))


def parse_line(spelled: str) -> Line:
    """The line that is spelled like this."""
    return _parse_stored(spelled, _line, "a line")


def series_text(series: Series) -> str:
    """The one spelling of a series."""
    return _json(_series_record(series))


def parse_series(spelled: str) -> Series:
    """The series that is spelled like this."""
    return _parse_stored(spelled, _series, "a series")


def _parse_stored(spelled: str, make: Callable[[Any], Parsed], what: str) -> Parsed:
    """What a stored text spells; whatever else it is, the ledger is corrupt."""
    try:
        return make(json.loads(spelled))
    except RECORD_FAULTS:
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


_EVENTS: dict[str, Callable[[dict[str, Any]], LedgerEvent]] = {
    "grant": lambda r: LineGranted(_line(r["line"]), _amount(r["limit"])),
    "renew": lambda r: SeriesRenewed(_series(r["series"]), _amount(r["limit"])),
    "reserve": lambda r: AmountReserved(r["key"], _line(r["line"]), _amount(r["amount"]), r["purpose"]),
    "claim": lambda r: ReservationClaimed(r["key"], r["attempt"], r["after"]),
    "make": lambda r: ReleaseMade(r["key"], r["attempt"], r["release"]),
    "hand-over": lambda r: ReservationHandedOver(r["key"]),
    "commit": lambda r: ReservationCommitted(r["key"], r.get("by_hand", False)),
    "abort": lambda r: ReservationAborted(r["key"]),
    "accept": lambda r: HistoryAccepted(r["lost"]),
}
