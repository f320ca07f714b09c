"""Which promises may be read as which others, and what that costs; checked exactly."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput, NoFiniteGuarantee, RelationMismatch
from tacit.privacy.budget import Budget, log_rounded_up
from tacit.privacy.ledger.guarantee import Guarantee, convert, group_budget
from tacit.privacy.units import Relation, Unit, UnitKind, Window

IMPRESSION, USER = Unit(UnitKind.IMPRESSION), Unit(UnitKind.USER)
DAY, WEEK = Window.days(1), Window.days(7)


def labels_only(unit: Unit = USER, budget: Budget | None = None) -> Guarantee:
    return Guarantee(budget or Budget.of(1, "1e-6"), unit, Relation.REPLACE_LABEL, sensitive_features=False)


def test_a_guarantee_reads_as_itself() -> None:
    assert convert(labels_only(), USER, Relation.REPLACE_LABEL) == labels_only()


def test_labels_alone_read_as_everything_private_where_nothing_else_was_used() -> None:
    wider = convert(labels_only(), USER, Relation.REPLACE_ONE)
    assert (wider.relation, wider.budget) == (Relation.REPLACE_ONE, labels_only().budget)


@pytest.mark.parametrize(
    ("given_", "unit", "relation", "group_size"),
    [
        # sensitive features were used
        (Guarantee(Budget.of(1), USER, Relation.REPLACE_LABEL, True), USER, Relation.REPLACE_ONE, None),
        # downward, or sideways
        (Guarantee(Budget.of(1), USER, Relation.REPLACE_ONE, False), USER, Relation.REPLACE_LABEL, None),
        (Guarantee(Budget.of(1), USER, Relation.ADD_REMOVE, False), USER, Relation.REPLACE_ONE, None),
        (Guarantee(Budget.of(1), USER, Relation.REPLACE_ONE, False), USER, Relation.ZERO_OUT, None),
        (labels_only(USER), IMPRESSION, Relation.REPLACE_LABEL, 3),
        (labels_only(Unit(UnitKind.USER_PUBLISHER)), USER, Relation.REPLACE_LABEL, 3),
        (labels_only(Unit(UnitKind.DEVICE)), USER, Relation.REPLACE_LABEL, 2),
        (labels_only(USER), Unit(UnitKind.DEVICE), Relation.REPLACE_LABEL, None),
        # per window is not for all time, nor one ad-tech all of them
        (labels_only(Unit(UnitKind.USER, WEEK)), USER, Relation.REPLACE_LABEL, None),
        (labels_only(Unit(UnitKind.IMPRESSION, WEEK)), USER, Relation.REPLACE_LABEL, 3),
        (labels_only(Unit(UnitKind.IMPRESSION, ad_tech="x")), USER, Relation.REPLACE_LABEL, 3),
        (labels_only(Unit(UnitKind.USER, WEEK)), Unit(UnitKind.USER, DAY), Relation.REPLACE_LABEL, None),
        # no bound on the group
        (labels_only(IMPRESSION), USER, Relation.REPLACE_LABEL, None),
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_both_names(
    given_: Guarantee, unit: Unit, relation: Relation, group_size: int | None
) -> None:
    with pytest.raises(RelationMismatch) as refusal:
        convert(given_, unit, relation, group_size=group_size)
    assert f"{unit}, {relation}" in str(refusal.value)
    assert f"{given_.unit}, {given_.relation}" in str(refusal.value)


@pytest.mark.parametrize("kind", [kind for kind in UnitKind if kind is not UnitKind.IMPRESSION])
def test_an_impression_widens_with_both_steps_at_once(kind: UnitKind) -> None:
    wider = convert(
        labels_only(Unit(UnitKind.IMPRESSION, WEEK), Budget.of("0.5")),
        Unit(kind, WEEK),
        Relation.REPLACE_ONE,
        group_size=4,
    )
    assert wider == Guarantee(Budget.of(2), Unit(kind, WEEK), Relation.REPLACE_ONE, False)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, float("nan"), "3"])
def test_a_group_size_must_be_a_whole_number(size: object) -> None:
    with pytest.raises(BadInput, match="group_size"):
        convert(labels_only(IMPRESSION), USER, Relation.REPLACE_LABEL, group_size=size)  # type: ignore[arg-type]


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(BadInput, match="no group_size"):
        convert(labels_only(), USER, Relation.REPLACE_LABEL, group_size=2)
    with pytest.raises(BadInput, match="one of add-remove"):
        convert(labels_only(), USER, "replace-all")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="delta"):
        Guarantee(Budget(Fraction(1), Fraction(1)), USER, Relation.ADD_REMOVE, False)
    with pytest.raises(BadInput, match="sensitive_features"):
        Guarantee(Budget.of(1), USER, Relation.ADD_REMOVE, None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="Unit"):
        Guarantee(Budget.of(1), "user", Relation.ADD_REMOVE, False)  # type: ignore[arg-type]


def exp_bound(epsilon: Fraction, rounding: str, digits: int = 120) -> Fraction:
    context = Context(prec=digits, rounding=rounding)
    exact = context.exp(context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator)))
    return Fraction(context.next_plus(exact) if rounding == ROUND_CEILING else context.next_minus(exact))


def chain_of_coins(epsilon: Fraction, delta: Fraction, size: int) -> list[Fraction]:
    """A mechanism that uses up its whole promise: with i changed records it answers 1 with probability p_i,
    p_0 = 0 and p_(i+1) = e^epsilon p_i + delta (e^epsilon rounded down, to keep the promise)."""
    ratio = exp_bound(epsilon, ROUND_FLOOR)
    chances = [Fraction(0)]
    for _ in range(size):
        chances.append(ratio * chances[-1] + delta)
    return chances


def keeps(chances: list[Fraction], budget: Budget, steps: int) -> bool:
    """Whether any two datasets `steps` changes apart are (epsilon, delta)-indistinguishable, both ways."""
    ratio = exp_bound(budget.epsilon, ROUND_CEILING)
    pairs = [(chances[i], chances[i + steps]) for i in range(len(chances) - steps)]
    return all(
        p <= ratio * q + budget.delta and (1 - p) <= ratio * (1 - q) + budget.delta
        for a, b in pairs
        for p, q in ((a, b), (b, a))
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "size"),
    [("0.5", "1e-3", 5), ("1", "1e-9", 12), ("1e-9", "1e-6", 7), ("2", "1e-12", 10), ("1e-70", "1e-4", 9)],
)
def test_group_privacy_is_enough_and_no_more(epsilon: str, delta: str, size: int) -> None:
    single = Budget.of(epsilon, delta)
    coins = chain_of_coins(single.epsilon, single.delta, size)
    assert keeps(coins, single, steps=1)
    group = group_budget(single, size)
    assert keeps(coins, group, steps=size)
    # The twins: one part in a billion less, or a group of one less, and the promise is broken.
    assert not keeps(coins, Budget(group.epsilon, group.delta * (1 - Fraction(1, 10**9))), steps=size)
    assert not keeps(coins, group_budget(single, size - 1), steps=size)


def test_group_privacy_of_flipped_labels_is_exact() -> None:
    """k labels, each told truthfully with probability 3/4: ratio 3 for one of them, 3^k for all together."""
    truth, size = Fraction(3, 4), 3
    worst = max(
        _probability(told, (1,) * size, truth) / _probability(told, (0,) * size, truth)
        for told in product((0, 1), repeat=size)
    )
    single = Budget.of(log_rounded_up(Fraction(3)))
    claimed = group_budget(single, size).epsilon
    assert exp_bound(claimed, ROUND_FLOOR) >= worst == 27
    assert exp_bound(group_budget(single, size - 1).epsilon, ROUND_CEILING) < worst


def _probability(told: tuple[int, ...], labels: tuple[int, ...], truth: Fraction) -> Fraction:
    chance = Fraction(1)
    for answer, label in zip(told, labels, strict=True):
        chance *= truth if answer == label else 1 - truth
    return chance


@given(
    epsilon=st.fractions(min_value=Fraction(1, 10**12), max_value=3),
    delta=st.fractions(min_value=0, max_value=Fraction(1, 1000)),
    size=st.integers(1, 40),
)
def test_grouped_delta_is_never_below_the_sum_and_hardly_above(
    epsilon: Fraction, delta: Fraction, size: int
) -> None:
    single = Budget(epsilon, delta)
    least = delta * sum(exp_bound(i * epsilon, ROUND_FLOOR) for i in range(size))
    try:
        grouped = group_budget(single, size)
    except NoFiniteGuarantee:
        assert least > 1 - Fraction(1, 10**30)
        return
    assert grouped.epsilon == size * epsilon
    assert least <= grouped.delta <= least * (1 + Fraction(1, 10**30))


def test_the_ends() -> None:
    assert group_budget(Budget.of(1, "1e-6"), 1) == Budget.of(1, "1e-6")
    assert group_budget(Budget(Fraction(0), Fraction(1, 10)), 3) == Budget(Fraction(0), Fraction(3, 10))
    assert group_budget(Budget.of(7), 10**6) == Budget.of(7 * 10**6)
    for hopeless in (Budget.of(1, "1e-6"), Budget.of(10**9, "1e-18"), Budget(Fraction(0), Fraction(1, 10))):
        with pytest.raises(NoFiniteGuarantee, match="group"):
            group_budget(hopeless, 100)
