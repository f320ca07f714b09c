"""What can happen to a ledger, a record for each kind: `rules` decide whether it may, `chain` keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.privacy.ledger.amount import Amount
from tacit.privacy.ledger.lines import Line, Series


@dataclass(frozen=True)
class Granted:
    line: Line
    limit: Amount


@dataclass(frozen=True)
class Renewed:
    series: Series
    limit: Amount


@dataclass(frozen=True)
class Reserved:
    key: str
    line: Line
    amount: Amount
    purpose: str


@dataclass(frozen=True)
class Committed:
    """The release left. `by_hand`: somebody said so of a reservation that no attempt held."""

    key: str
    by_hand: bool = False


@dataclass(frozen=True)
class Aborted:
    key: str


@dataclass(frozen=True)
class Claimed:
    """An attempt took the reservation up: the first one, or the one that follows `after`."""

    key: str
    attempt: str
    after: str | None


@dataclass(frozen=True)
class Made:
    """This attempt has made the release, and nobody makes another one."""

    key: str
    attempt: str
    release: str


@dataclass(frozen=True)
class HandedOver:
    """Somebody said that the attempt which held the reservation is lost: the next one may claim it."""

    key: str


@dataclass(frozen=True)
class Accepted:
    """Somebody took this history as true although its witness was missing or knew more; `lost` says which."""

    lost: str


Event = Granted | Renewed | Reserved | Claimed | Made | HandedOver | Committed | Aborted | Accepted
