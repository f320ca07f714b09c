"""Ledger lines, the amounts that add up on them, and the events that can happen to them.

A line is (scope, unit, relation, window): spending adds up within a line, and lines never mix. An amount is
a budget in whole parts, so that sums are exact and the same in every database: costs are rounded up, limits
down. There is a record for each kind of event: `rules` decides whether it may happen, `chain` stores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.units import Relation, Unit

EPSILON_PARTS = 10**9
DELTA_PARTS = 10**18

# Sums stay far below 2^63, the largest whole number that both databases keep exactly.
LARGEST_EPSILON = 10**9


@dataclass(frozen=True)
class Amount:
    """Epsilon in parts of 1e-9 and delta in parts of 1e-18."""

    epsilon_nanos: int = 0
    delta_attos: int = 0

    def __post_init__(self) -> None:
        expect.whole("epsilon_nanos", self.epsilon_nanos, at_least=0)
        expect.whole("delta_attos", self.delta_attos, at_least=0)

    @classmethod
    def spending(cls, budget: Budget) -> Amount:
        """What a release costs, rounded up: the ledger never counts less than was spent."""
        if budget.epsilon == 0 and budget.delta == 0:
            raise BadInput(f"expected a release that costs something, got {budget}")
        return cls(ceil(budget.epsilon * EPSILON_PARTS), ceil(budget.delta * DELTA_PARTS))

    @classmethod
    def limit(cls, budget: Budget) -> Amount:
        """What a line may spend, rounded down: the ledger never allows more than was granted."""
        amount = cls(floor(budget.epsilon * EPSILON_PARTS), floor(budget.delta * DELTA_PARTS))
        if not 1 <= amount.epsilon_nanos <= LARGEST_EPSILON * EPSILON_PARTS:
            raise BadInput(
                f"expected the limit's epsilon between 1e-9 and {LARGEST_EPSILON:.0e}, "
                f"got {float(budget.epsilon):.6g}"
            )
        return amount

    @property
    def budget(self) -> Budget:
        return Budget(Fraction(self.epsilon_nanos, EPSILON_PARTS), Fraction(self.delta_attos, DELTA_PARTS))

    def as_json(self) -> dict[str, float]:
        """Epsilon and delta as numbers. The chain keeps them exactly, in whole parts."""
        return {"epsilon": float(self.budget.epsilon), "delta": float(self.budget.delta)}

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.epsilon_nanos + other.epsilon_nanos, self.delta_attos + other.delta_attos)

    def less(self, other: Amount) -> Amount:
        """What is left after `other`; refused below zero."""
        if not other.fits(self):
            raise BadInput(f"expected at most {self}, got {other}")
        return Amount(self.epsilon_nanos - other.epsilon_nanos, self.delta_attos - other.delta_attos)

    def fits(self, limit: Amount) -> bool:
        """Whether both parts are within the limit's."""
        return self.epsilon_nanos <= limit.epsilon_nanos and self.delta_attos <= limit.delta_attos

    def __str__(self) -> str:
        return str(self.budget)


NOTHING = Amount()

LONGEST_NAME = 200


@dataclass(frozen=True)
class Series:
    """The lines of one scope, unit and relation, over all windows."""

    scope: str
    unit: Unit
    relation: Relation

    def __post_init__(self) -> None:
        check_ledger_name("scope", self.scope)
        if not isinstance(self.unit, Unit):
            raise BadInput(f"expected unit to be a Unit, got {self.unit!r}")
        object.__setattr__(self, "relation", Relation(self.relation))

    def line(self, window: int | None) -> Line:
        return Line(self.scope, self.unit, self.relation, window)

    def __str__(self) -> str:
        return f"{self.scope} ({self.unit}, {self.relation})"


@dataclass(frozen=True)
class Line:
    """A line of the ledger: a scope, unit and relation (and one window) on which spending adds up.

    A unit with a window needs the index of one; a unit without has all time.

    >>> from tacit.privacy import UnitKind, Window
    >>> print(Line("clicks", Unit(UnitKind.USER, Window.days(7)), Relation.REPLACE_ONE, 12))
    clicks (user per 7 days, replace-one), window 12
    """

    scope: str
    unit: Unit
    relation: Relation
    window: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", self.series.relation)
        if self.window is not None:
            object.__setattr__(self, "window", expect.integer("window", self.window))
        if (self.unit.window is None) != (self.window is None):
            expected = "None" if self.unit.window is None else "the index of a window"
            raise BadInput(f"expected {expected} as window of a line for {self.unit}, got {self.window!r}")

    @property
    def series(self) -> Series:
        return Series(self.scope, self.unit, self.relation)

    def __str__(self) -> str:
        return f"{self.series}, {'all time' if self.window is None else f'window {self.window}'}"


def check_ledger_name(what: str, name: str) -> str:
    """Refuse names that no database or terminal would show as they are."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise BadInput(f"expected {what} to be 1 to {LONGEST_NAME} printable characters, got {name!r}")
    return name


@dataclass(frozen=True)
class LineGranted:
    line: Line
    limit: Amount


@dataclass(frozen=True)
class SeriesRenewed:
    series: Series
    limit: Amount


@dataclass(frozen=True)
class AmountReserved:
    key: str
    line: Line
    amount: Amount
    purpose: str


@dataclass(frozen=True)
class ReservationCommitted:
    """The release left. `by_hand`: somebody said so of a reservation that no attempt held."""

    key: str
    by_hand: bool = False


@dataclass(frozen=True)
class ReservationAborted:
    key: str


@dataclass(frozen=True)
class ReservationClaimed:
    """An attempt took the reservation up: the first one, or the one that follows `after`."""

    key: str
    attempt: str
    after: str | None


@dataclass(frozen=True)
class ReleaseMade:
    """This attempt has made the release, and nobody makes another one."""

    key: str
    attempt: str
    release: str


@dataclass(frozen=True)
class ReservationHandedOver:
    """Somebody said that the attempt which held the reservation is lost: the next one may claim it."""

    key: str


@dataclass(frozen=True)
class HistoryAccepted:
    """Somebody took this history as true although its witness was missing or knew more; `lost` says which."""

    lost: str


LedgerEvent = (
    LineGranted
    | SeriesRenewed
    | AmountReserved
    | ReservationClaimed
    | ReleaseMade
    | ReservationHandedOver
    | ReservationCommitted
    | ReservationAborted
    | HistoryAccepted
)
