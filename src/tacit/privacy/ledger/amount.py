"""What a ledger adds up: a budget in whole parts, so that sums are exact and the same in every database."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.budget import Budget

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
        expect.probability("the limit's delta", budget.delta, zero=True)
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
