"""The rows of a known mechanism, checked, and what a pair of private inputs shows through them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput

Rows = tuple[tuple[Fraction, ...], ...]
"""One exact pmf over the menu per class of private input."""

MOST_PAIRS = 50_000
MOST_LAWS = 2_000


def check_rows(rows: Rows, epsilon: Fraction) -> None:
    """Refuse rows that are not exact pmfs over one menu, or whose ratios exceed e^epsilon."""
    if not rows or not rows[0]:
        raise BadInput("expected at least one row with at least one probability, got none")
    for row in rows:
        if len(row) != len(rows[0]):
            raise BadInput(f"expected rows over one menu of {len(rows[0])}, got one of {len(row)}")
        for entry in row:
            if isinstance(entry, bool) or not isinstance(entry, int | Fraction) or entry < 0:
                raise BadInput(f"expected exact probabilities >= 0 (Fraction), got {entry!r}")
        if sum(row) != 1:
            raise BadInput(f"expected each row to sum to exactly 1, got {float(sum(row))!r}")
    largest = _exp_rounded_down(epsilon)
    for lowest, highest in zip(row_floors(rows), map(max, zip(*rows, strict=True)), strict=True):
        if lowest == 0 < highest:
            raise BadInput(
                "expected every choice to be possible under every input or under none, got one that is not"
            )
        if highest > lowest * largest:
            raise BadInput(
                f"expected probability ratios <= e^epsilon with epsilon={float(epsilon):.6g}, "
                f"got a ratio of {float(highest / lowest):.6g}"
            )


def _exp_rounded_down(epsilon: Fraction) -> Fraction:
    """e^epsilon to fifty digits, never above the truth: a ratio at the very edge must not slip through."""
    with localcontext(prec=60):
        power = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).min(1000).exp()
    return Fraction(power) * (1 - Fraction(1, 10**50))


def row_floors(rows: Rows) -> tuple[Fraction, ...]:
    """The smallest probability of each choice, whatever the private input."""
    return tuple(Fraction(min(column)) for column in zip(*rows, strict=True))


@dataclass(frozen=True)
class PairLaws:
    """What the pairs of inputs show, each different law once.

    `first[i, y]` and `second[i, y]` are the two inputs' probabilities of choice y as multiples of its floor
    `mass[i, y]`; `rest` is 1 - sum of floors. Doubles, each right to a relative 2^-50.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    mass: NDArray[np.float64]
    rest: float


def pair_laws(rows: Rows) -> PairLaws | None:
    """The laws of all ordered pairs of rows, or None where there are too many to look at."""
    distinct = sorted(set(rows))
    if len(distinct) * (len(distinct) - 1) > MOST_PAIRS:
        return None
    floor = row_floors(rows)
    columns = [y for y, lowest in enumerate(floor) if lowest > 0]
    multiple_of, ids = _number_values([[row[y] / floor[y] for y in columns] for row in distinct])
    mass_of, mass_ids = _number_values([[floor[y] for y in columns]])
    one, other = np.nonzero(~np.eye(len(distinct), dtype=bool))
    # Two pairs whose choices are the same but for their names show the same: keep one of them.
    codes = (ids[one] * len(multiple_of) + ids[other]) * len(mass_of) + mass_ids
    laws = np.unique(np.sort(codes, axis=1), axis=0)
    if len(laws) > MOST_LAWS:
        return None
    pairs, masses = np.divmod(laws, len(mass_of))
    first, second = np.divmod(pairs, len(multiple_of))
    return PairLaws(multiple_of[first], multiple_of[second], mass_of[masses], rest=float(1 - sum(floor)))


def _number_values(table: list[list[Fraction]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The distinct values of a table, as doubles, and the table with each value's number in its place."""
    values = sorted({value for row in table for value in row})
    number = {value: place for place, value in enumerate(values)}
    return np.array([float(value) for value in values]), np.array(
        [[number[value] for value in row] for row in table]
    )
