"""A promise with its unit and neighbours, and the few ways in which it may be read as a wider one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation, Overflow
from fractions import Fraction

from tacit import expect
from tacit.errors import BadInput, NoFiniteGuarantee, RelationMismatch
from tacit.privacy.budget import Budget
from tacit.privacy.units import Relation, Unit, UnitKind

_UP = Context(prec=60, rounding=ROUND_CEILING, traps=[Overflow, InvalidOperation])
_DOWN = Context(prec=60, rounding=ROUND_FLOOR, traps=[Overflow, InvalidOperation])


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-DP for one unit under one relation.

    `sensitive_features` says whether the release read any sensitive feature. It has no default, because
    forgetting it would let a promise about labels pass for one about everything private.
    """

    budget: Budget
    unit: Unit
    relation: Relation
    sensitive_features: bool

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise BadInput(f"expected unit to be a Unit, got {self.unit!r}")
        if not isinstance(self.sensitive_features, bool):
            raise BadInput(f"expected sensitive_features to be True or False, got {self.sensitive_features!r}")
        object.__setattr__(self, "relation", Relation(self.relation))

    def __str__(self) -> str:
        return f"{self.budget} for {self.unit}, {self.relation}"


def convert(
    guarantee: Guarantee, unit: Unit, relation: Relation, *, group_size: int | None = None
) -> Guarantee:
    """Read a guarantee for a wider unit or a wider relation; anything that is not proven here is refused.

    Guarantee:  replace-label into replace-one: the same (epsilon, delta), where no sensitive feature was used.
                impression into device, user, user-publisher or user-advertiser, k = group_size:
                epsilon' = k epsilon, delta' = delta (e^{k epsilon} - 1) / (e^epsilon - 1), the sum of
                delta e^{i epsilon} over i = 0..k-1, rounded up. A device is not read as its user: nobody knows
                how many a person has. Windows and ad-techs stay: what holds per window says nothing about all
                time, since a unit lives in many windows.
    Neighbours: those of `relation`, for one `unit`.
    Assumes:    k is public and holds for every unit (and window, if the unit has one): a cap that was enforced,
                never a maximum read off private data. Replace-one changes sensitive features and labels only.
    Source:     group privacy: Vadhan, The Complexity of Differential Privacy (2017), Lemma 2.2, with its sum
                kept in closed form. The relations: a release that never reads the sensitive features has the
                same law on two datasets that differ in them alone.
    """
    expect.kind("guarantee", guarantee, Guarantee)
    expect.kind("unit", unit, Unit)
    relation = Relation(relation)
    widened = replace(guarantee, budget=_for_unit(guarantee, unit, relation, group_size), unit=unit)
    if guarantee.relation == relation:
        return widened
    if guarantee.relation is not Relation.REPLACE_LABEL or relation is not Relation.REPLACE_ONE:
        raise _mismatch(guarantee, unit, relation, "only replace-label reads as replace-one")
    if guarantee.sensitive_features:
        raise _mismatch(guarantee, unit, relation, "it used sensitive features, which replace-one protects too")
    return replace(widened, relation=relation)


def group_budget(budget: Budget, size: int) -> Budget:
    """What a promise for one record says about `size` records together; the formula stands in `convert`."""
    expect.whole("group_size", size, at_least=1)
    if size == 1:
        return budget
    epsilon = size * budget.epsilon
    if budget.delta == 0:
        return Budget(epsilon)
    delta = size * budget.delta if budget.epsilon == 0 else _group_delta(budget, size)
    if delta >= 1:
        raise NoFiniteGuarantee(
            f"expected delta < 1 for a group of {size}, got more: {budget} per record is too weak to be grouped"
        )
    return Budget(epsilon, delta)


def _group_delta(budget: Budget, size: int) -> Fraction:
    """delta (e^{k epsilon} - 1) / (e^epsilon - 1), never below the truth; 1 where it is at least 1."""
    try:
        # Two upper bounds on the sum: the closed form, and k times its largest term for an epsilon so small
        # that e^epsilon - 1 is lost at 60 digits.
        terms = _UP.multiply(Decimal(size), _exp_up((size - 1) * budget.epsilon))
        step = _DOWN.subtract(_exp_down(budget.epsilon), Decimal(1))
        if step > 0:
            closed = _UP.divide(_UP.subtract(_exp_up(size * budget.epsilon), Decimal(1)), step)
            terms = min(terms, closed)
        delta = _UP.multiply(terms, _decimal(budget.delta, _UP))
    except Overflow:
        return Fraction(1)
    return Fraction(min(delta, Decimal(1)))


def _decimal(number: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


# Decimal rounds exp correctly to nearest whatever its context says, so one step outwards bounds it.
def _exp_up(exponent: Fraction) -> Decimal:
    return _UP.next_plus(_UP.exp(_decimal(exponent, _UP)))


def _exp_down(exponent: Fraction) -> Decimal:
    return _DOWN.next_minus(_DOWN.exp(_decimal(exponent, _DOWN)))


def _for_unit(guarantee: Guarantee, unit: Unit, relation: Relation, group_size: int | None) -> Budget:
    if guarantee.unit == unit:
        if group_size is not None:
            raise BadInput(f"expected no group_size for the same unit {unit}, got {group_size!r}")
        return guarantee.budget
    if guarantee.unit.kind is not UnitKind.IMPRESSION or unit.kind is UnitKind.IMPRESSION:
        raise _mismatch(guarantee, unit, relation, "only an impression widens into another unit")
    if (guarantee.unit.window, guarantee.unit.ad_tech) != (unit.window, unit.ad_tech):
        raise _mismatch(guarantee, unit, relation, "windows and ad-techs must be the same on both sides")
    if group_size is None:
        raise _mismatch(guarantee, unit, relation, "group_size, a public bound, is missing")
    return group_budget(guarantee.budget, group_size)


def _mismatch(guarantee: Guarantee, unit: Unit, relation: Relation, reason: str) -> RelationMismatch:
    return RelationMismatch(
        f"expected a guarantee for {unit}, {relation}, "
        f"got one for {guarantee.unit}, {guarantee.relation}: {reason}"
    )
