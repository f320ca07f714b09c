"""A device's central epsilon: never below the truth, nor below the accountant, and quick."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.privacy import accounting
from tacit.privacy.audit.case import exact_epsilon
from tacit.privacy.budget import rounded_up
from tacit.privacy.releases import Composed, LocalChoice, Release, ShuffledChoice
from tacit.privacy.shuffling import central_epsilon
from tacit.privacy.shuffling.central import Choice, _rounded_cohort, _rounded_epsilon

Claim = Callable[[Sequence[Choice], float], float]


def release(choice: Choice) -> Release:
    micros, cohort = choice
    epsilon = Fraction(micros, 10**6)
    return LocalChoice(epsilon) if cohort is None else ShuffledChoice(epsilon, cohort)


def one_more(law: list[Fraction], says_one: Fraction) -> list[Fraction]:
    """The law of how many of the reports say 1, with another one among them."""
    more, same = [Fraction(0), *law], [*law, Fraction(0)]
    return [a * says_one + b * (1 - says_one) for a, b in zip(more, same, strict=True)]


def batch_rows(truth: Fraction, cohort: int, of_one_device: int = 1) -> list[list[Fraction]]:
    """The law of a batch by randomized response, when the others have a 0 and one device either 0 or 1."""
    others = [Fraction(1)]
    for _ in range(cohort - of_one_device):
        others = one_more(others, 1 - truth)
    rows = []
    for says_one in (1 - truth, truth):
        row = others
        for _ in range(of_one_device):
            row = one_more(row, says_one)
        rows.append(row)
    return rows


def true_epsilon(micros: int, cohorts: Sequence[int], delta: Fraction) -> float:
    """Of enumerated batches together, with a mechanism that has hardly more than this epsilon."""
    odds = Fraction(math.exp(micros / 10**6) * (1 - 1e-12))
    pairs = [batch_rows(odds / (1 + odds), cohort) for cohort in cohorts]
    together = [
        [
            math.prod(outcome, start=Fraction(1))
            for outcome in itertools.product(*(pair[side] for pair in pairs))
        ]
        for side in (0, 1)
    ]
    return exact_epsilon(together, delta)


CASES = [
    (1_000_000, (2, 2), "0.02"),
    (500_000, (3, 3), "0.02"),
    (1_000_000, (3, 3), "1e-3"),
    (3_000_000, (2, 3), "0.01"),
    (300_000, (12, 16), "0.01"),
    (1_000_000, (30, 30), "0.01"),
    (300_000, (8, 8, 8), "0.005"),
]


def short(claim: Claim) -> int:
    """For how many of the enumerated cases the claim is below the truth."""
    return sum(
        claim([(micros, cohort) for cohort in cohorts], float(delta))
        < true_epsilon(micros, cohorts, Fraction(delta)) * (1 - 1e-9)
        for micros, cohorts, delta in CASES
    )


def test_never_below_enumerated_batches() -> None:
    assert short(central_epsilon) == 0


@pytest.mark.parametrize(
    "weaker",
    [
        lambda choices, delta: central_epsilon([(e // 2, n) for e, n in choices], delta),
        lambda choices, delta: central_epsilon([(e, 4 * n) for e, n in choices], delta),
        lambda choices, delta: central_epsilon(choices[:1], delta),
        lambda choices, delta: central_epsilon(choices, 20 * delta),
    ],
)
def test_the_same_check_catches_weaker_claims(weaker: Claim) -> None:
    assert short(weaker) > 0


MANY: list[list[Choice]] = [
    [(3_000_000, 736)],
    [(3_000_000, 1_000)] * 10,
    [(3_000_000, 5_000)] * 100,
    [*[(1_000_000, 96)] * 30, *[(2_000_000, 4_096)] * 30],
    [*[(5_000_000, 10_240)] * 10, *[(3_000_000, None)] * 2],
    [(500_000, None)] * 40,
]


@pytest.mark.parametrize("choices", MANY)
def test_a_little_above_the_accountant(choices: list[Choice]) -> None:
    precise = accounting.epsilon(Composed(tuple(map(release, choices))), delta=1e-6)
    assert precise <= central_epsilon(choices, 1e-6) <= precise * (1.25 if len(choices) == 1 else 1.12)


@pytest.mark.slow
def test_a_cohort_of_twice_the_size_would_be_below_the_accountant() -> None:
    for choices in MANY[:4]:
        precise = accounting.epsilon(Composed(tuple(map(release, choices))), delta=1e-6)
        assert central_epsilon([(e, n and 2 * n) for e, n in choices], 1e-6) < precise


cohorts = st.none() | st.integers(1, 3_000)
some = st.lists(st.tuples(st.integers(1, 40).map(lambda tenths: tenths * 100_000), cohorts), max_size=12)


@given(choices=some, one=st.tuples(st.sampled_from([100_000, 2_000_000]), cohorts))
def test_never_falls_with_another_choice_nor_passes_the_sum(choices: list[Choice], one: Choice) -> None:
    before, after = central_epsilon(choices, 1e-6), central_epsilon([*choices, one], 1e-6)
    assert before <= after
    assert Fraction(after) <= Fraction(sum(e for e, _ in [*choices, one]), 10**6) * (1 + Fraction(1, 2**52))
    assert central_epsilon([one, *reversed(choices)], 1e-6) == pytest.approx(after, rel=1e-12)


@given(choices=some, micros=st.integers(1, 4_000_000), cohort=st.integers(1, 3_000))
def test_never_falls_with_more_epsilon_smaller_cohorts_or_less_delta(
    choices: list[Choice], micros: int, cohort: int
) -> None:
    def with_one(epsilon: int, size: int | None, delta: float = 1e-6) -> float:
        return central_epsilon([*choices, (epsilon, size)], delta)

    here = with_one(micros, cohort)
    slack = 1e-12 * here
    assert here <= with_one(micros, max(1, cohort - cohort // 7)) + slack
    assert here <= with_one(micros, None) + slack
    assert here <= with_one(micros + 1, cohort) + slack
    assert here <= with_one(micros, cohort, 1e-8) + slack


@pytest.mark.slow
def test_monotone_from_entry_to_entry_of_the_table() -> None:
    sizes = sorted({_rounded_cohort(n) for n in range(2, 500)})
    for micros in (500_000, 3_000_000):
        found = [central_epsilon([(micros, n)] * 20, 1e-6) for n in sizes]
        assert found == sorted(found, reverse=True)
    epsilons = sorted({_rounded_epsilon(e) for e in range(900_000, 1_100_000, 500)})
    found = [central_epsilon([(e, 512)] * 20, 1e-6) for e in epsilons]
    assert found == sorted(found)


def test_sizes_are_read_down_and_epsilons_up() -> None:
    assert [_rounded_cohort(n) for n in (1, 31, 32, 33, 34, 999, 2**30)] == [1, 31, 32, 32, 34, 992, 2**20]
    epsilons = {1: 1, 999: 999, 1001: 1010, 3_000_000: 3_000_000, 3_000_001: 3_010_000}
    assert {e: _rounded_epsilon(e) for e in epsilons} == epsilons
    # What rounding makes of a choice is never worse than to count it at its local epsilon.
    assert central_epsilon([(3_000_001, 2)], 1e-6) <= central_epsilon([(3_000_001, None)], 1e-6)


def test_choices_of_one_batch_count_with_their_share_of_it() -> None:
    """Two choices of one device in a batch of 60 tell as much as two batches of 30 at the most, not of 60."""
    truth, delta = Fraction(math.exp(0.3) / (1 + math.exp(0.3))), Fraction(1, 100)
    rows = batch_rows(truth, 60, of_one_device=2)
    exact = exact_epsilon(rows, delta)
    assert exact > accounting.epsilon(Composed((ShuffledChoice(Fraction("0.3"), 60),), 2), delta=delta)
    assert exact <= central_epsilon([(300_000, 30)] * 2, delta)


def test_nothing_costs_nothing_and_no_delta_adds_up() -> None:
    assert central_epsilon([], 1e-6) == 0
    assert central_epsilon([(0, 5), (0, None)], 1e-6) == 0
    assert central_epsilon([(100_000, 5_000)] * 3, 0) == rounded_up(Fraction(3, 10))
    assert central_epsilon([(100_000, None)] * 3, 1e-6) == rounded_up(Fraction(3, 10))
    assert central_epsilon([(1_000_000, 100_000)], 0.5) == 0


@pytest.mark.parametrize(
    ("choices", "delta"),
    [
        ([(-1, 5)], 1e-6),
        ([(1, 0)], 1e-6),
        ([(0.5, 5)], 1e-6),
        ([(1, "5")], 1e-6),
        ([(1,)], 1e-6),
        ([[1, 2]], 1e-6),
        ([5], 1e-6),
        (5, 1e-6),
        ([(1, 5)], 1),
        ([(1, 5)], -1e-6),
        ([(1, 5)], math.nan),
    ],
)
def test_refuses_what_is_no_choice_or_delta(choices: list[Choice], delta: float) -> None:
    with pytest.raises(BadInput, match="expected"):
        central_epsilon(choices, delta)


def test_a_thousand_choices_take_less_than_a_millisecond_once_the_table_is_warm() -> None:
    choices: list[Choice] = [(3_000_000 + i % 2, 800 + i) for i in range(1_000)]
    central_epsilon(choices, 1e-6)

    def took() -> float:
        start = time.process_time()
        central_epsilon(choices, 1e-6)
        return time.process_time() - start

    assert min(took() for _ in range(50)) < 1e-3
