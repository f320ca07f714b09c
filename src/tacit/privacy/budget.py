"""A budget is a pair (epsilon, delta), exact, and every rounding of one goes against ourselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import ClassVar

from tacit import expect
from tacit.errors import BadInput

MOST_EPSILON = 10**12


@dataclass(frozen=True)
class Budget:
    """How much may leak: (epsilon, delta), as exact fractions.

    >>> Budget.of(0.1, "1e-6") + Budget.of(0.2, "1e-6")
    Budget(epsilon=Fraction(3, 10), delta=Fraction(1, 500000))
    >>> print(Budget.of(1))
    (ε = 1, δ = 0)
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    NOTHING: ClassVar[Budget]

    def __post_init__(self) -> None:
        # Floats are read as they are written; ints and strings are welcome too.
        epsilon = expect.at_least_zero("epsilon", self.epsilon)
        if epsilon > MOST_EPSILON:
            raise BadInput(f"expected epsilon <= {MOST_EPSILON:,}, got more: that promises nothing")
        object.__setattr__(self, "epsilon", epsilon)
        # From a delta of 1 on nothing is promised, not even by a sum of budgets.
        object.__setattr__(self, "delta", expect.probability("delta", self.delta, zero=True))

    @classmethod
    def of(cls, epsilon: expect.Number, delta: expect.Number = 0) -> Budget:
        """A budget that somebody asks for: its epsilon must be positive."""
        return cls(expect.positive("epsilon", epsilon), expect.exact("delta", delta))

    def __add__(self, other: Budget) -> Budget:
        return Budget(self.epsilon + other.epsilon, self.delta + other.delta)

    def less(self, other: Budget) -> Budget:
        """What is left of this budget after `other`."""
        if not other.fits(self):
            raise BadInput(f"expected at most {self}, got {other}")
        return Budget(self.epsilon - other.epsilon, self.delta - other.delta)

    def fits(self, limit: Budget) -> bool:
        """Whether both parts are within the limit's."""
        return self.epsilon <= limit.epsilon and self.delta <= limit.delta

    def __str__(self) -> str:
        return f"(ε = {_show(self.epsilon)}, δ = {_show(self.delta)})"


Budget.NOTHING = Budget(Fraction(0), Fraction(0))


def _show(number: Fraction) -> str:
    return f"{float(number):.10g}"


_UP = Context(prec=60, rounding=ROUND_CEILING, Emax=MAX_EMAX, Emin=MIN_EMIN)
_DOWN = Context(prec=60, rounding=ROUND_FLOOR, Emax=MAX_EMAX, Emin=MIN_EMIN)


def log_rounded_up(ratio: Fraction) -> float:
    """ln(ratio), never below the truth and within one double of it, for any ratio >= 1."""
    if ratio < 1:
        raise BadInput(f"expected ratio >= 1, got {ratio}")
    if ratio == 1:
        return 0.0
    quotient = _UP.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return rounded_up(Fraction(_UP.next_plus(quotient.ln(_UP))))  # ln rounds to the nearest of 60 digits


def rounded_up(number: Fraction) -> float:
    """The smallest double that is not below `number`."""
    nearest = float(number)
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


def exp_rounded_down(epsilon: Fraction) -> Fraction:
    """A fraction just below e^epsilon, and never below one: caps built on it keep the promise exactly."""
    bounded = min(epsilon, Fraction(700))
    power = _DOWN.divide(Decimal(bounded.numerator), Decimal(bounded.denominator)).exp(_DOWN)
    below = Fraction(_DOWN.next_minus(power))  # exp rounds to the nearest of 60 digits
    return max(Fraction(math.floor(below * 2**128), 2**128), Fraction(1))


def format_rounded_up(epsilon: float, digits: int = 4) -> str:
    """Epsilon for people, with `digits` significant digits, never shown as less than it is.

    A logarithm that was rounded up is a few units above the number that was asked for; it is shown as that
    number.
    """
    if not math.isfinite(epsilon) or epsilon <= 0:
        return f"{epsilon:g}"
    places = digits - 1 - math.floor(math.log10(epsilon))
    unit = Fraction(10) ** -places
    asked = expect.exact("epsilon", epsilon) * (1 - Fraction(1, 10**14))
    shown = math.ceil(asked / unit) * unit
    return f"{float(shown):.{digits}g}"
