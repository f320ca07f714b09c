"""Partition selection is exactly (epsilon, delta)-DP, and no rule keeps more."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.mechanisms.partition_selection import PartitionSelection
from tacit.privacy.mechanisms.randomized_response import WHOLE
from tacit.privacy.units import Relation
from tests.support.exact_tests import assert_matches_pmf

rules = st.builds(PartitionSelection, st.floats(0.05, 5), st.floats(1e-9, 0.3))


def keeps_promise(kept: list[Fraction], odds: Fraction, delta: Fraction) -> bool:
    """Both outcomes, both directions, every pair of neighbouring counts."""
    return all(
        one <= odds * other + delta and (1 - one) <= odds * (1 - other) + delta
        for low, high in pairwise(kept)
        for one, other in ((low, high), (high, low))
    )


@settings(max_examples=10, deadline=None)
@given(rules)
def test_exactly_private_and_as_generous_as_it_can_be(rule: PartitionSelection) -> None:
    kept = [rule.probability(n) for n in range(len(rule.thresholds) + 2)]
    odds = exp_rounded_down(rule.epsilon)
    assert kept[0] == 0
    assert kept[-1] == 1
    assert keeps_promise(kept, odds, rule.delta)
    # The twin: one step of the rule a shade more generous is caught, wherever it is.
    for n in range(1, min(40, len(rule.thresholds) - 1)):
        bolder = [*kept[:n], kept[n] + Fraction(2, WHOLE), *kept[n + 1 :]]
        assert not keeps_promise(bolder, odds, rule.delta)


def follows(drawn_from: PartitionSelection, claimed: PartitionSelection, units: int) -> None:
    """Draw by one rule, and hold the outcome to the probabilities of another."""
    words = np.random.default_rng(5)
    chosen = drawn_from.select([units] * 50_000, lambda n: words.integers(0, 2**64, n, dtype=np.uint64))
    chance = claimed.probability(units)
    law = {True: chance, False: 1 - chance}
    assert_matches_pmf(Counter(chosen.tolist()), {k: p for k, p in law.items() if p})


def test_selection_follows_its_probabilities_and_a_bolder_twin_does_not() -> None:
    rule, bolder = (PartitionSelection(Fraction(1), Fraction(1, d)) for d in (1000, 800))
    for units in (0, 3, 6, 40):
        follows(rule, rule, units)
    with pytest.raises(AssertionError, match="p_value"):
        follows(bolder, rule, 6)


def test_replacing_touches_twice_as_many_values() -> None:
    rule = PartitionSelection(Fraction(1), Fraction(1, 10**6))
    assert rule.release(values_per_unit=3, relation=Relation.ADD_REMOVE).partitions == 3
    assert rule.release(values_per_unit=3, relation=Relation.REPLACE_ONE).partitions == 6
    assert rule.release(values_per_unit=3, relation="replace-label").partitions == 6  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (1, 0), (1, 1), (math.nan, 0.1), (1, 1e-30)])
def test_bad_rules_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(BadInput, match=r"expected (epsilon|delta)"):
        PartitionSelection(epsilon, delta)  # type: ignore[arg-type]


def test_bad_counts_are_refused() -> None:
    with pytest.raises(BadInput, match="expected a list of whole counts"):
        PartitionSelection(Fraction(1), Fraction(1, 10)).select([-1], lambda n: np.zeros(n, np.uint64))
