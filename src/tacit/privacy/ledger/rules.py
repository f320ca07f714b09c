"""The rules of the privacy ledger: who may spend what, decided purely. `tacit.store.ledger` makes it last.

Each decision looks at a `Ledger` (all of it, or only the rows that matter) and returns a `Change`, or raises
before anything changed. What happened is written down as events; `chain` replays them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tacit.errors import BadInput, BudgetExceeded, LedgerConflict, UnknownLine, UnknownReservation
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.amount import NOTHING, Amount
from tacit.privacy.ledger.guarantee import Guarantee, convert
from tacit.privacy.ledger.lines import Line, Series, named


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


class State(StrEnum):
    """A reservation counts against its line until it is aborted."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True)
class Reservation:
    """One release, under the key that names it. `resumed`: the key was there before this call."""

    key: str
    line: Line
    amount: Amount
    purpose: str
    state: State = State.RESERVED
    resumed: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        named("key", self.key)
        named("purpose", self.purpose)


@dataclass(frozen=True)
class Renewal:
    """Every window of the series gets its own line with this limit, opened by its first spending."""

    series: Series
    limit: Amount

    def __post_init__(self) -> None:
        if self.series.unit.window is None:
            raise BadInput(f"expected a unit with a window to renew, got {self.series.unit}")


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
    key: str


@dataclass(frozen=True)
class Aborted:
    key: str


@dataclass(frozen=True)
class Accepted:
    """Somebody took this history as true although its witness was missing or knew more; `lost` says which."""

    lost: str


Event = Granted | Renewed | Reserved | Committed | Aborted | Accepted


@dataclass(frozen=True)
class Change:
    """What a decision writes down (`events`, none if it was made before) and the records as they then are."""

    events: tuple[Event, ...] = ()
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
                names one release, drawn once; only releases that never left are aborted; the releases of one
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
            return Change((Granted(line, limit),), account=Account(line, limit))
        if account.limit == limit:
            return Change(account=account)
        if not account.used.fits(limit):
            raise LedgerConflict(
                f"expected a limit of at least what line {line} has used, {account.used}, got {limit}"
            )
        return Change((Granted(line, limit),), account=replace(account, limit=limit))

    def renew(self, series: Series, limit: Amount) -> Change:
        """Give every window of the series that is not open yet this limit."""
        renewal = Renewal(series, limit)
        known = self.renewals.get(series) == renewal
        return Change(() if known else (Renewed(series, limit),), renewal=renewal)

    def reserve(self, key: str, line: Line, amount: Amount, purpose: str) -> Change:
        """Set an amount aside before a release; the same key again gives the same reservation back."""
        asked = Reservation(key, line, amount, purpose)
        earlier = self.reservations.get(key)
        if earlier is not None:
            if replace(earlier, state=State.RESERVED) != asked:
                raise LedgerConflict(
                    f"key {key!r} was used before for {earlier.amount} on line {earlier.line}, purpose "
                    f"{earlier.purpose!r}; it came back for {amount} on line {line}, purpose {purpose!r}"
                )
            if earlier.state is State.ABORTED:
                # Handing it back would look like permission to release what nobody pays for.
                raise LedgerConflict(f"key {key!r} was aborted; a new attempt needs a new key")
            return Change(reservation=replace(earlier, resumed=True))
        account, opening = self._open(line)
        return Change(
            (*opening, Reserved(key, line, amount, purpose)),
            account=account.reserve(amount),
            reservation=asked,
        )

    def commit(self, key: str) -> Change:
        """The release left: what was reserved is now spent, for good."""
        return self._settle(key, State.COMMITTED)

    def abort(self, key: str) -> Change:
        """The release never left and never will: what was reserved is free again."""
        return self._settle(key, State.ABORTED)

    def after(self, change: Change) -> Ledger:
        account, reservation, renewal = change.account, change.reservation, change.renewal
        return Ledger(
            {**self.accounts, account.line: account} if account else self.accounts,
            {**self.reservations, reservation.key: reservation} if reservation else self.reservations,
            {**self.renewals, renewal.series: renewal} if renewal else self.renewals,
        )

    def _open(self, line: Line) -> tuple[Account, tuple[Event, ...]]:
        account = self.accounts.get(line)
        if account is not None:
            return account, ()
        renewal = self.renewals.get(line.series)
        if renewal is None:
            raise UnknownLine(f"no budget was granted on line {line}; grant one first")
        return Account(line, renewal.limit), (Granted(line, renewal.limit),)

    def _settle(self, key: str, state: State) -> Change:
        reservation = self.reservations.get(key)
        if reservation is None:
            raise UnknownReservation(f"nothing is reserved under key {key!r}")
        if reservation.state is state:
            return Change(reservation=replace(reservation, resumed=True))
        if reservation.state is not State.RESERVED:
            raise UnknownReservation(f"expected key {key!r} to be reserved, got {reservation.state}")
        account = self.accounts[reservation.line]
        event: Event
        if state is State.COMMITTED:
            account, event = account.commit(reservation.amount), Committed(key)
        else:
            account, event = account.abort(reservation.amount), Aborted(key)
        return Change((event,), account=account, reservation=replace(reservation, state=state))


def cost_on(line: Line, cost: Guarantee | Budget) -> Amount:
    """What a release costs on a line. A bare budget must already speak of the line's unit and relation."""
    if isinstance(cost, Guarantee):
        return Amount.spending(convert(cost, line.unit, line.relation).budget)
    if not isinstance(cost, Budget):
        raise BadInput(f"expected a Guarantee or a Budget, got {cost!r}")
    return Amount.spending(cost)
