"""Scenarios: the same for everyone, with the means kept and no spread overstated."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tacit.deliver.protocol.factor_laws import SCENARIOS, ObservedRatios, Spread, factors
from tacit.deliver.protocol.forecasts import scenarios
from tacit.errors import BadInput
from tacit.privacy.releases import LocalChoice
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind

STATEMENT = PrivacyStatement.of(
    [LocalChoice(Fraction(1))], unit=Unit(UnitKind.IMPRESSION), relation=Relation.REPLACE_ONE
)


@pytest.mark.parametrize(
    "prior", [Spread(0.0), Spread(), Spread(1.0), ObservedRatios((0.2, 0.5, 3.0, 1.0), STATEMENT)]
)
def test_every_candidate_keeps_its_mean(prior: Spread | ObservedRatios) -> None:
    drawn = factors(prior, 7)
    assert drawn.shape == (SCENARIOS, 7)
    np.testing.assert_allclose(drawn.mean(axis=0), 1.0, rtol=1e-12)
    assert (drawn >= 0).all()


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 2.0])
def test_the_spread_is_a_little_below_the_law_and_never_above(sigma: float) -> None:
    deviation = np.sqrt(np.expm1(sigma**2))  # of the lognormal with mean one
    found = factors(Spread(sigma), 3).std(axis=0)
    assert (found <= deviation).all()
    # What is lost is the spread within strata, which is that of the last one: 1.2% at sigma 1, 28% at 2.
    assert (found > (0.98 if sigma <= 1 else 0.7) * deviation).all()


def test_strata_of_ratios_are_those_of_the_sorted_values() -> None:
    values = np.random.default_rng(1).lognormal(size=3 * SCENARIOS)
    found = np.sort(factors(ObservedRatios(tuple(values), "made up for a test"), 1)[:, 0])
    expected = np.sort(values).reshape(SCENARIOS, 3).mean(axis=1) / values.mean()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_scenarios_come_in_mirrored_pairs_and_columns_are_nearly_independent() -> None:
    order = np.argsort(np.argsort(factors(Spread(0.5), 12), axis=0), axis=0)  # strata
    half = SCENARIOS // 2
    assert (order[:half] + order[half:] == SCENARIOS - 1).all()
    correlation = np.corrcoef(order.T) - np.eye(12)
    # 66 rank correlations of 512 independent pairs: deviation 1/sqrt(512) = 0.044, so 6 deviations.
    assert np.abs(correlation).max() < 0.27


def test_one_request_has_one_set_of_scenarios_and_more_candidates_change_none_of_the_first() -> None:
    four = scenarios([3, 2, 1, 0], Spread(0.4))
    assert np.array_equal(four, scenarios([3.0, 2.0, 1.0, 0.0], Spread(0.4)))
    assert np.array_equal(four[:, :2], scenarios([3, 2], Spread(0.4)))
    # Across versions of NumPy and machines: the order is drawn by AES, not by a generator that may change.
    assert np.argsort(np.argsort(four[:, 0]))[:4].tolist() == [732, 35, 218, 382]


def test_candidates_may_have_spreads_of_their_own() -> None:
    drawn = factors(Spread((0.0, 1.0)), 2)
    assert drawn[:, 0].std() < 1e-12
    assert drawn[:, 1].std() > 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Spread(-0.1), "sigma"),
        (lambda: Spread(float("nan")), "sigma"),
        (lambda: Spread(11), "sigma <= 10"),
        (lambda: factors(Spread((0.1, 0.2)), 3), "3 candidates"),
        (lambda: ObservedRatios((1.0, 2.0), ""), "statement"),
        (lambda: ObservedRatios((1.0, 2.0), None), "statement"),  # type: ignore[arg-type]
        (lambda: ObservedRatios((), STATEMENT), "ratios"),
        (lambda: ObservedRatios((0.0, 0.0), STATEMENT), "ratios"),
        (lambda: ObservedRatios((1.0, -1.0), STATEMENT), "ratios"),
        (lambda: ObservedRatios((1.0, float("inf")), STATEMENT), "ratios"),
        (lambda: scenarios([], Spread()), "public scores"),
        (lambda: scenarios([1.0, 2.0], Spread()), "largest down"),
        (lambda: scenarios([1.0, float("nan")], Spread()), "largest down"),
        (lambda: scenarios([1.0, -1.0], Spread()), ">= 0"),
        (lambda: scenarios([[1.0], [1.0, 2.0]], Spread()), "one request"),
    ],
)
def test_bad_input_is_refused_in_one_line(make: object, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        make()  # type: ignore[operator]
    assert "\n" not in str(refused.value)
