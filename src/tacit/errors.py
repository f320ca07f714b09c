"""Every exception that tacit raises on purpose.

TacitError
├── BadInput                 a value that cannot be meant: says the name, what was expected and what came
│   └── TooManyBadRows       a file with more bad rows than were allowed; nothing was written
├── UnknownRelease           an accountant met a release that it has no proof for
├── RelationMismatch         releases, lines or guarantees that speak of different neighbours or units
├── NoFiniteGuarantee        the release promises nothing at this delta
├── EntropyMisuse            a random stream was about to be copied, stored or used twice
├── SelfCheckFailed          a private run found its own noise or clipping wrong, and stopped
├── GatherError              gathering statistics cannot go on
│   ├── Refused              what a party was sent is not accepted; carries reason
│   ├── NotYet               there is no answer so far; ask again later
│   ├── TooFew               a round ended with fewer reports than agreed; carries count, smallest
│   └── Unproven             the server accepted what is not proven; the round is stopped for good
├── EvidenceError            what reports say of the prior cannot be kept or read: busy, torn, another version
├── BillError                billing between parties cannot go on
│   ├── BillRefused          what a party was sent is not accepted; carries reason, detail
│   └── BillRolledBack       a party's store is older than what its witness has seen
├── CampaignRefused          what an ad server was asked about campaigns is not done; carries reason, detail
├── RoomError                the clean room, or a party to it, cannot go on
│   ├── RoomRefused          a party was sent what it does not accept; carries reason, detail
│   └── AuditBroken          an audit log does not hold: edited, cut, or not the one a receipt was given for
└── LedgerError
    ├── UnknownLine          no budget was ever granted on this line
    ├── BudgetExceeded       the line cannot pay; carries line, asked, spent, reserved, remaining
    ├── UnknownReservation   commit or abort of something that is not reserved
    ├── LedgerConflict       the same key asked for something else before
    │   └── ReservationTaken another attempt holds the reservation, or has made its release
    ├── LedgerCorrupt        the stored ledger does not check out: torn, edited, or of an unknown version
    └── LedgerRolledBack     the stored ledger is older than what its witness has seen
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.privacy.budget import Budget


class TacitError(Exception):
    """The root: `except TacitError` catches what tacit refuses, and no bug."""


class BadInput(TacitError, ValueError):
    """A value outside its range or of the wrong kind."""


class TooManyBadRows(BadInput):
    """More rows of a file than allowed could not be read."""


class UnknownRelease(TacitError, TypeError):
    """No proof covers this release under this relation, so there is no number to give."""


class RelationMismatch(TacitError, ValueError):
    """Guarantees over different neighbours or units were about to be added up."""


class NoFiniteGuarantee(TacitError, ArithmeticError):
    """No finite epsilon holds at the delta that was asked for."""


class EntropyMisuse(TacitError, RuntimeError):
    """A cryptographic stream must never be copied: two copies would give out the same noise."""


class SelfCheckFailed(TacitError, RuntimeError):
    """A private run is not doing what its guarantee assumes. It stops; nothing of it may leave."""


class GatherError(TacitError):
    """Anything that keeps a round of gathering from going on."""


class _WithReason(TacitError):
    """Carries a reason of a closed list, whose words begin the message."""

    reason: Any  # a MessageVerdict, BillVerdict..., of packages from where nothing may be imported here

    def __init__(self, reason: Any, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(reason, detail)  # so that a worker process can send it home

    def __str__(self) -> str:
        said = str(getattr(self.reason, "words", self.reason))
        return f"{said}: {self.detail}" if self.detail else said


class Refused(_WithReason, GatherError):
    """A party was sent what it does not accept. Nothing changed."""


class NotYet(GatherError):
    """The round is still open, or reports are still on their way."""


class TooFew(GatherError):
    """Fewer reports were aggregated than a release needs. Final: this round releases nothing."""

    def __init__(self, count: int, smallest: int) -> None:
        self.count, self.smallest = count, smallest
        super().__init__(count, smallest)

    def __str__(self) -> str:
        return f"expected at least {self.smallest} aggregated reports, got {self.count}; nothing is released"


class Unproven(GatherError):
    """The server accepted a report whose proof fails. Final: this round releases nothing."""


class EvidenceError(TacitError):
    """The store of what reports say about the prior cannot be used."""


class BillError(TacitError):
    """Anything that keeps devices, proxy and ad server from reporting or charging impressions."""


class BillRefused(_WithReason, BillError):
    """A party was sent what it does not accept. Nothing was charged, and nothing that was stored changed."""


class BillRolledBack(BillError):
    """A store was put back to an older state: somebody has to take the loss before it is served."""


class CampaignRefused(_WithReason):
    """An ad server was asked something about campaigns that it does not do. Nothing changed."""


class RoomError(TacitError):
    """Anything that keeps a clean room, or a party to it, from going on."""


class RoomRefused(_WithReason, RoomError):
    """A party was sent what it does not accept. Nothing changed, and no label has had an effect on it."""


class AuditBroken(RoomError):
    """An audit log is not what its hashes, its signatures or a kept receipt say."""


class LedgerError(TacitError):
    """Anything the ledger refuses."""


class UnknownLine(LedgerError, KeyError):
    """The line has no budget; grant one first."""

    def __str__(self) -> str:  # KeyError would print the repr of its argument
        return str(self.args[0])


class BudgetExceeded(LedgerError):
    """The line cannot pay for what was asked. A refusal costs nothing."""

    def __init__(self, line: str, *, asked: Budget, spent: Budget, reserved: Budget, limit: Budget) -> None:
        self.line, self.asked, self.spent, self.reserved, self.limit = line, asked, spent, reserved, limit
        self.remaining = limit.less(spent).less(reserved)
        super().__init__(
            f"budget exceeded on line {line}: asked {asked}, spent {spent}, reserved {reserved}, "
            f"remaining {self.remaining} of {limit}; nothing was spent"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """So that a worker process can send it home."""
        amounts = {"asked": self.asked, "spent": self.spent, "reserved": self.reserved, "limit": self.limit}
        return partial(type(self), self.line, **amounts), ()


class UnknownReservation(LedgerError, KeyError):
    """Nothing is reserved under this key."""

    def __str__(self) -> str:
        return str(self.args[0])


class LedgerConflict(LedgerError):
    """A key that was used before came back with another amount or line."""


class ReservationTaken(LedgerConflict):
    """A reservation leads to one release, and another attempt is making it or has made it."""


class LedgerCorrupt(LedgerError):
    """The stored ledger fails its own checks."""


class LedgerRolledBack(LedgerError):
    """The stored ledger lost entries that its witness has seen."""
