"""Budgets are exact, and every rounding goes against ourselves."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.privacy.budget import Budget, exp_rounded_down, format_rounded_up, log_rounded_up, rounded_up

mpmath.mp.dps = 60


def test_floats_mean_what_they_say() -> None:
    total = Budget.NOTHING
    for _ in range(10):
        total = total + Budget.of(0.1, "1e-7")
    assert total == Budget.of(1, "1e-6")


@pytest.mark.parametrize(
    "epsilon", [0, -1, -0.0, math.nan, math.inf, -math.inf, "nan", "one", None, True, b"1"]
)
def test_bad_epsilon_is_refused_by_name(epsilon: object) -> None:
    with pytest.raises(BadInput, match=r"expected epsilon .*got"):
        Budget.of(epsilon)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [-1e-9, 1, 1.5, math.nan, math.inf])
def test_bad_delta_is_refused_by_name(delta: float) -> None:
    with pytest.raises(BadInput, match=r"expected delta .*got"):
        Budget.of(1, delta)
    with pytest.raises(BadInput, match=r"expected delta .*got"):
        Budget(Fraction(1), delta)  # type: ignore[arg-type]


def test_budgets_that_promise_nothing_together_are_not_added_up() -> None:
    half = Budget.of(1, "0.5")
    with pytest.raises(BadInput, match=r"expected delta in \[0, 1\), got Fraction\(1, 1\)"):
        _ = half + half


def test_less_never_goes_below_nothing() -> None:
    assert Budget.of(2, "1e-6").less(Budget.of(2)) == Budget(Fraction(0), Fraction(1, 10**6))
    with pytest.raises(BadInput, match="expected at most"):
        Budget.of(1).less(Budget.of(2))


@given(st.integers(1, 2**80), st.integers(1, 2**80))
def test_log_is_never_below_the_truth_and_close(numerator: int, denominator: int) -> None:
    ratio = max(Fraction(numerator, denominator), Fraction(denominator, numerator))
    truth = mpmath.log(ratio.numerator) - mpmath.log(ratio.denominator)
    found = log_rounded_up(ratio)
    assert truth <= found <= truth + 1e-13


@given(st.floats(1e-6, 600))
def test_exp_is_never_above_the_truth_and_close(epsilon: float) -> None:
    truth = mpmath.exp(mpmath.mpf(epsilon))
    found = exp_rounded_down(Fraction(epsilon))
    value = mpmath.mpf(found.numerator) / found.denominator
    assert truth * (1 - 1e-12) <= value <= truth


@given(st.fractions(0, 1000))
def test_rounded_up_is_the_next_double(number: Fraction) -> None:
    found = rounded_up(number)
    assert Fraction(found) >= number
    assert found == 0 or Fraction(math.nextafter(found, 0)) < number


@given(st.floats(1e-6, 1e4))
def test_people_never_read_less_than_the_truth(epsilon: float) -> None:
    assert float(format_rounded_up(epsilon)) >= epsilon * (1 - 1e-9)
    assert float(format_rounded_up(epsilon)) <= epsilon * 1.0011
