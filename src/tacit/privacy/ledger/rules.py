"""The rules of the privacy ledger: what may be spent, decided purely. `tacit.store.ledger` makes it durable.

Each decision looks at a `Ledger` (all of it, or only the rows that matter) and returns a `Change`, or
raises before anything changed. What happened is written down as events; `chain` replays them.

A reservation leads to at most one release. A process that works on it is an attempt: it claims the
reservation with a token of its own, and says once, before anything leaves, what it has made. The ledger
keeps digests of tokens: reading it lets nobody present one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tacit.errors import (
    BadInput,
    BudgetExceeded,
    LedgerConflict,
    ReservationTaken,
    UnknownLine,
    UnknownReservation,
)
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee, convert
from tacit.privacy.ledger.lines import (
    NOTHING,
    Amount,
    AmountReserved,
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
    check_ledger_name,
)


@dataclass(frozen=True)
class Account:
    """The totals of one line. No account over its limit can be made."""

    line: Line
    limit: Amount
    spent: Amount = NOTHING
    reserved: Amount = NOTHING

    def __post_init__(self) -> None:
        if not self.used.fits(self.limit):
            raise BadInput(f"expected at most {self.limit} on line {self.line}, got {self.used}")

    def __repr__(self) -> str:
        reserved = f", {self.reserved} reserved" if self.reserved != NOTHING else ""
        return f"Account({self.line}: {self.spent} spent{reserved} of {self.limit})"

    @property
    def used(self) -> Amount:
        return self.spent + self.reserved

    @property
    def remaining(self) -> Amount:
        return self.limit.less(self.used)

    def reserve(self, amount: Amount) -> Account:
        if not (self.used + amount).fits(self.limit):
            raise BudgetExceeded(
                str(self.line),
                asked=amount.budget,
                spent=self.spent.budget,
                reserved=self.reserved.budget,
                limit=self.limit.budget,
            )
        return replace(self, reserved=self.reserved + amount)

    def commit(self, amount: Amount) -> Account:
        return replace(self, reserved=self.reserved.less(amount), spent=self.spent + amount)

    def abort(self, amount: Amount) -> Account:
        return replace(self, reserved=self.reserved.less(amount))


class ReservationState(StrEnum):
    """A reservation counts against its line until it is aborted."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    ABORTED = "aborted"


BY_HAND = "settled by hand"


@dataclass(frozen=True)
class Reservation:
    """One release, under the key that names it. `resumed`: the key was there before this call.

    `attempt` is the digest of the token that holds it, and `release` what that attempt has made: both None for
    a reservation that nobody has claimed. Where nobody held it and somebody settled it by hand, `release` says
    so (`BY_HAND`).
    """

    key: str
    line: Line
    amount: Amount
    purpose: str
    state: ReservationState = ReservationState.RESERVED
    attempt: str | None = None
    release: str | None = None
    resumed: bool = field(default=False, compare=False)

    @property
    def predates_attempts(self) -> bool:
        """Whether it was spent as in ledgers that knew no attempts: nobody said who made what, nor by hand."""
        return self.state is ReservationState.COMMITTED and self.attempt is None and self.release is None

    def __post_init__(self) -> None:
        check_ledger_name("key", self.key)
        check_ledger_name("purpose", self.purpose)
        for what in ("attempt", "release"):
            if getattr(self, what) is not None:
                check_ledger_name(what, getattr(self, what))


@dataclass(frozen=True)
class Renewal:
    """Every window of the series gets its own line with this limit, opened by its first spending."""

    series: Series
    limit: Amount

    def __post_init__(self) -> None:
        if self.series.unit.window is None:
            raise BadInput(f"expected a unit with a window to renew, got {self.series.unit}")


@dataclass(frozen=True)
class Change:
    """What a decision writes down (`events`, none if it was made before) and the records as they then are."""

    events: tuple[LedgerEvent, ...] = ()
    account: Account | None = None
    reservation: Reservation | None = None
    renewal: Renewal | None = None


@dataclass(frozen=True)
class Ledger:
    """Accounts by line, reservations by key, renewals by series.

    Guarantee:  all releases that were reserved and not aborted on one line are together (epsilon, delta)-DP,
                epsilon <= limit.epsilon and delta <= limit.delta; reserving what does not fit is refused.
    Neighbours: the line's relation, for one of the line's units in the line's window.
    Assumes:    each release meets the (epsilon, delta) it was reserved with, given all earlier ones; one key
                names one release, drawn once (who claims a reservation, and lets nothing out before `make` has
                returned, is held to that); only releases that never left are aborted; the releases of one
                dataset are all on lines of one scope.
    Source:     basic composition: Dwork, Roth, The Algorithmic Foundations of DP (2014), Theorem B.1; that the
                amounts may be chosen as one goes: Rogers, Roth, Ullman, Vadhan 2016 (arXiv 1605.08294).
    """

    accounts: Mapping[Line, Account] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    renewals: Mapping[Series, Renewal] = field(default_factory=dict)

    def grant(self, line: Line, limit: Amount) -> Change:
        """Open a line, or give it another limit; what was spent stays spent."""
        account = self.accounts.get(line)
        if account is None:
            return Change((LineGranted(line, limit),), account=Account(line, limit))
        if account.limit == limit:
            return Change(account=account)
        if not account.used.fits(limit):
            raise LedgerConflict(
                f"expected a limit of at least what line {line} has used, {account.used}, got {limit}"
            )
        return Change((LineGranted(line, limit),), account=replace(account, limit=limit))

    def renew(self, series: Series, limit: Amount) -> Change:
        """Give every window of the series that is not open yet this limit."""
        renewal = Renewal(series, limit)
        known = self.renewals.get(series) == renewal
        return Change(() if known else (SeriesRenewed(series, limit),), renewal=renewal)

    def reserve(self, key: str, line: Line, amount: Amount, purpose: str) -> Change:
        """Set an amount aside before a release; the same key again gives the same reservation back."""
        asked = Reservation(key, line, amount, purpose)
        earlier = self.reservations.get(key)
        if earlier is not None:
            if replace(earlier, state=ReservationState.RESERVED, attempt=None, release=None) != asked:
                raise LedgerConflict(
                    f"key {key!r} was used before for {earlier.amount} on line {earlier.line}, purpose "
                    f"{earlier.purpose!r}; it came back for {amount} on line {line}, purpose {purpose!r}"
                )
            if earlier.state is ReservationState.ABORTED:
                # Handing it back would look like permission to release what nobody pays for.
                raise LedgerConflict(f"key {key!r} was aborted; a new attempt needs a new key")
            return Change(reservation=replace(earlier, resumed=True))
        account, opening = self._open(line)
        return Change(
            (*opening, AmountReserved(key, line, amount, purpose)),
            account=account.reserve(amount),
            reservation=asked,
        )

    def claim(self, key: str, attempt: str, *, after: Collection[str] = ()) -> Change:
        """Take a reservation up, or take it on from one of the attempts `after`: compare and swap.

        All of them are tokens that only their holder knows. It is refused while another attempt holds the
        reservation, and for ever once a release was made.
        """
        return self.claim_by_digest(key, attempt_digest(attempt), {attempt_digest(each) for each in after})

    def claim_by_digest(self, key: str, attempt: str, after: Collection[str | None]) -> Change:
        """`claim` by the digests that the ledger keeps."""
        reservation = self._find_unsettled(key)
        held = reservation.attempt
        if reservation.release is not None:
            raise _made_before(key)
        if held == attempt:
            return Change(reservation=replace(reservation, resumed=True))
        if held is not None and held not in after:
            raise _held_by_another(key)
        return Change(
            (ReservationClaimed(key, attempt, held),), reservation=replace(reservation, attempt=attempt)
        )

    def make(self, key: str, attempt: str, release: str) -> Change:
        """Say what the attempt has made, by its digest, before anybody else sees it. This happens once.

        The same attempt may say the same again, also after it was committed. A reservation that nobody holds
        is claimed by it.
        """
        return self.make_by_digest(key, attempt_digest(attempt), release)

    def make_by_digest(self, key: str, attempt: str, release: str) -> Change:
        """`make` by the digest that the ledger keeps."""
        check_ledger_name("release", release)
        reservation = self._find_reservation(key)
        if reservation.state is not ReservationState.ABORTED and (reservation.attempt, reservation.release) == (
            attempt,
            release,
        ):
            return Change(reservation=replace(reservation, resumed=True))
        self._find_unsettled(key)
        if reservation.release is not None:
            raise _made_before(key)
        if reservation.attempt not in (None, attempt):
            raise _held_by_another(key)
        return Change(
            (ReleaseMade(key, attempt, release),),
            reservation=replace(reservation, attempt=attempt, release=release),
        )

    def hand_over(self, key: str) -> Change:
        """The attempt that holds the reservation is lost for good: one other may claim it, once.

        The lost one, should it live, can do so too; the first one goes on alone.
        """
        reservation = self._find_unsettled(key)
        if reservation.release is not None:
            raise _made_before(key)
        if reservation.attempt is None:
            return Change(reservation=replace(reservation, resumed=True))
        return Change((ReservationHandedOver(key),), reservation=replace(reservation, attempt=None))

    def commit(self, key: str, attempt: str | None = None, *, certain: bool = False) -> Change:
        """The release left: what was reserved is now spent, for good.

        Where the reservation was claimed, only its attempt says so, and only of what it has made; `certain` is
        for somebody who settles what a run left behind, which is written down where no attempt holds it.
        """
        reservation = self._find_reservation(key)
        if not certain:
            _refuse_other_attempt(reservation, attempt)
            if reservation.attempt is not None and reservation.release is None:
                raise LedgerConflict(f"expected what was made under key {key!r} to be said first, got a commit")
        return self.record_commit(key, by_hand=certain and reservation.attempt is None)

    def record_commit(self, key: str, *, by_hand: bool) -> Change:
        """`commit` as the ledger keeps it."""
        if by_hand and self._find_reservation(key).attempt is not None:
            raise LedgerConflict(f"expected nobody to hold key {key!r} where it is settled by hand, got one")
        return self._settle(key, ReservationState.COMMITTED, by_hand=by_hand)

    def abort(self, key: str, attempt: str | None = None, *, certain: bool = False) -> Change:
        """The release never left and never will: what was reserved is free again.

        Of what was made nobody can say so, however certain: its attempt may let it out at any time.
        """
        reservation = self._find_reservation(key)
        if not certain and reservation.state is not ReservationState.ABORTED:
            _refuse_other_attempt(reservation, attempt)
            if reservation.release is not None:
                raise _made_before(key)
        if reservation.state is ReservationState.RESERVED and reservation.release is not None:
            raise LedgerConflict(
                f"expected a release that was not made, to say that it never left, got {key!r}, which was: "
                "settle it as left"
            )
        return self.record_abort(key)

    def record_abort(self, key: str) -> Change:
        """`abort` as the ledger keeps it: older ones were believed of what was made, too."""
        return self._settle(key, ReservationState.ABORTED)

    def apply(self, change: Change) -> Ledger:
        account, reservation, renewal = change.account, change.reservation, change.renewal
        return Ledger(
            {**self.accounts, account.line: account} if account else self.accounts,
            {**self.reservations, reservation.key: reservation} if reservation else self.reservations,
            {**self.renewals, renewal.series: renewal} if renewal else self.renewals,
        )

    def merge(self, other: Ledger) -> Ledger:
        """What either holds, where both are parts of one ledger."""
        return Ledger(
            {**self.accounts, **other.accounts},
            {**self.reservations, **other.reservations},
            {**self.renewals, **other.renewals},
        )

    def _open(self, line: Line) -> tuple[Account, tuple[LedgerEvent, ...]]:
        account = self.accounts.get(line)
        if account is not None:
            return account, ()
        renewal = self.renewals.get(line.series)
        if renewal is None:
            raise UnknownLine(f"no budget was granted on line {line}; grant one first")
        return Account(line, renewal.limit), (LineGranted(line, renewal.limit),)

    def _find_reservation(self, key: str) -> Reservation:
        reservation = self.reservations.get(key)
        if reservation is None:
            raise UnknownReservation(f"nothing is reserved under key {key!r}")
        return reservation

    def _find_unsettled(self, key: str) -> Reservation:
        reservation = self._find_reservation(key)
        if reservation.state is ReservationState.COMMITTED:
            raise _made_before(key)
        if reservation.state is ReservationState.ABORTED:
            raise UnknownReservation(f"expected key {key!r} to be reserved, got {reservation.state}")
        return reservation

    def _settle(self, key: str, state: ReservationState, *, by_hand: bool = False) -> Change:
        reservation = self._find_reservation(key)
        if reservation.state is state:
            return Change(reservation=replace(reservation, resumed=True))
        if reservation.state is not ReservationState.RESERVED:
            raise UnknownReservation(f"expected key {key!r} to be reserved, got {reservation.state}")
        account = self.accounts[reservation.line]
        event: LedgerEvent
        if state is ReservationState.COMMITTED:
            account, event = account.commit(reservation.amount), ReservationCommitted(key, by_hand)
        else:
            account, event = account.abort(reservation.amount), ReservationAborted(key)
        release = BY_HAND if by_hand else reservation.release
        return Change((event,), account=account, reservation=replace(reservation, state=state, release=release))


def attempt_digest(attempt: str) -> str:
    """How the ledger calls an attempt: nobody who reads it there can present the token."""
    return hashlib.sha256(f"attempt\n{check_ledger_name('attempt', attempt)}".encode()).hexdigest()


def _refuse_other_attempt(reservation: Reservation, attempt: str | None) -> None:
    mine = None if attempt is None else attempt_digest(attempt)
    if reservation.attempt != mine:
        raise _held_by_another(reservation.key)


def _held_by_another(key: str) -> ReservationTaken:
    return ReservationTaken(
        f"another process took up what is reserved as {key}, and at most one may go on; if that one is lost "
        "for good, see `tacit ledger hand-over --help`"
    )


def _made_before(key: str) -> ReservationTaken:
    return ReservationTaken(
        f"another process took up what is reserved as {key} and has made its release: one more would be "
        "another release, under a key of its own"
    )


def cost_on(line: Line, cost: Guarantee | Budget) -> Amount:
    """What a release costs on a line. A bare budget must already speak of the line's unit and relation."""
    if isinstance(cost, Guarantee):
        return Amount.spending(convert(cost, line.unit, line.relation).budget)
    if not isinstance(cost, Budget):
        raise BadInput(f"expected a Guarantee or a Budget, got {cost!r}")
    return Amount.spending(cost)
