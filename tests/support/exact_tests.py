"""Exact statistical checks with a stated chance of crying wolf, shared by the tests."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import TypeVar

from scipy.stats import binomtest

Outcome = TypeVar("Outcome", bound=Hashable)

ALPHA = 1e-9
"""False alarms per assertion; at most a thousand assertions make one in a million suite runs."""


def assert_matches_pmf(
    counts: Mapping[Outcome, int],
    pmf: Mapping[Outcome, Fraction] | Mapping[Outcome, float],
    alpha: float = ALPHA,
) -> None:
    """One exact binomial test per outcome, Bonferroni-corrected: wrong with probability at most alpha."""
    trials = sum(counts.values())
    assert counts.keys() <= pmf.keys(), f"impossible outcomes {counts.keys() - pmf.keys()}"
    for outcome, probability in pmf.items():  # over the pmf, so that an empty bin counts against us
        p_value = binomtest(counts.get(outcome, 0), trials, float(probability)).pvalue
        assert p_value >= alpha / len(pmf), f"{outcome=} {p_value=:.1e} {trials=}"
