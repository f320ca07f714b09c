"""The shuffling bounds against exact enumeration of whole batches, whatever the other members' inputs are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from tacit.privacy.shuffling import bounds
from tacit.privacy.shuffling.bounds import Blanket
from tacit.privacy.shuffling.mechanism import Rows, check_rows

Floats = NDArray[np.float64]
Bound = Callable[[Rows, float, int, float], float]
SHARES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.999)
"""Where to look, as shares of the mechanism's own epsilon."""


def batch_law(members: list[Floats]) -> Floats:
    """The exact law of the counts of a batch (all choices but the last), one member after the other."""
    choices = len(members[0])
    law = np.zeros((len(members) + 1,) * (choices - 1))
    law[(0,) * (choices - 1)] = 1.0
    for row in members:
        # Counts never reach the last index before the end, so rolling never wraps mass around.
        law = law * row[-1] + sum(row[y] * np.roll(law, 1, axis=y) for y in range(choices - 1))
    return law


def exact_deltas(rows: Rows, cohort: int, epsilons: Floats) -> Floats:
    """The true delta: the worst ordered pair of inputs and the worst inputs of the others."""
    table = np.array([[float(p) for p in row] for row in rows])
    worst = np.zeros(len(epsilons))
    for others in itertools.combinations_with_replacement(range(len(rows)), cohort - 1):
        laws = [batch_law([table[x], *(table[o] for o in others)]) for x in range(len(rows))]
        for first, second in itertools.permutations(laws, 2):
            gaps = first[None] - np.exp(epsilons).reshape(-1, *[1] * first.ndim) * second[None]
            worst = np.maximum(worst, np.maximum(gaps, 0).reshape(len(epsilons), -1).sum(axis=1))
    return worst


def local_epsilon(rows: Rows) -> float:
    return max(math.log(max(column) / min(column)) for column in zip(*rows, strict=True) if max(column))


def response(choices: int, odds: Fraction) -> Rows:
    """k-ary randomized response: one choice is `odds` times as likely as each other."""
    whole = odds + choices - 1
    return tuple(tuple((odds if x == y else 1) / whole for y in range(choices)) for x in range(choices))


def top_of(choices: int, favoured: int, odds: Fraction) -> Rows:
    """Subset selection: each of the private top `favoured` is `odds` times as likely as each other choice."""
    whole = odds * favoured + choices - favoured
    return tuple(
        tuple((odds if y in top else Fraction(1)) / whole for y in range(choices))
        for top in itertools.combinations(range(choices), favoured)
    )


def floor_and_cap(rng: np.random.Generator, choices: int, inputs: int, odds: int) -> Rows:
    """Random floors of unlike sizes; each row pours the rest in its own order, up to `odds` times the floor."""
    while True:
        weights = [int(w) + 1 for w in 1000 * rng.dirichlet(np.full(choices, rng.choice([0.2, 1.0, 5.0])))]
        total = Fraction(int(rng.integers(100, 900)), 1000)
        floors = [total * w / sum(weights) for w in weights]
        if total * odds > 1:
            break
    rows = []
    for _ in range(inputs):
        row, left = list(floors), 1 - total
        for y in rng.permutation(choices):
            poured = min(left, (odds - 1) * floors[y])
            row[y], left = row[y] + poured, left - poured
        rows.append(tuple(row))
    return tuple(rows)


def structured() -> Iterator[tuple[Rows, int]]:
    for odds in (Fraction(3, 2), Fraction(3), Fraction(20)):
        for choices, cohorts in ((2, (1, 2, 5, 8)), (3, (2, 4, 7)), (4, (3, 5)), (5, (3,))):
            yield from ((response(choices, odds), cohort) for cohort in cohorts)
        yield from ((top_of(4, 2, odds), cohort) for cohort in (2, 3))


def random_cases(seed: int, cases: int) -> Iterator[tuple[Rows, int]]:
    rng = np.random.default_rng(seed)
    for _ in range(cases):
        choices = int(rng.integers(3, 6))
        rows = floor_and_cap(rng, choices, inputs=3, odds=int(rng.choice([2, 4, 12, 50])))
        if len(set(rows)) > 1:
            yield rows, int(rng.integers(2, {3: 8, 4: 6, 5: 5}[choices]))


def by_clones(rows: Rows, local: float, cohort: int, epsilon: float) -> float:
    del rows
    return bounds.clone_delta(local, cohort, epsilon)


def by_standard_clones(rows: Rows, local: float, cohort: int, epsilon: float) -> float:
    del rows
    return bounds.clone_delta(local, cohort, epsilon, bounds.standard_clones)


def by_blanket(rows: Rows, local: float, cohort: int, epsilon: float) -> float:
    del local
    blanket = Blanket.of(rows)
    assert blanket is not None
    return blanket.delta(cohort, epsilon)


def among_clones(odds: float, count: int, epsilon: float) -> float:
    """The exact divergence of a binary victim among `count` fair binary clones, term by term."""
    kinds = np.arange(count + 2)
    up = binom.pmf(kinds - 1, count, 0.5) * odds / (odds + 1) + binom.pmf(kinds, count, 0.5) / (odds + 1)
    return float(np.maximum(up - math.exp(epsilon) * up[::-1], 0).sum())


def by_tempting_shortcut(rows: Rows, local: float, cohort: int, epsilon: float) -> float:
    """The twin, wrong on purpose: counts every member under the blanket of k-ary response as a binary clone."""
    choices, odds, bound = len(rows), math.exp(local), 0.0
    rate = min(1.0, choices / (choices - 1 + odds))
    for count in range(cohort):
        bound += float(binom.pmf(count, cohort - 1, rate)) * among_clones(odds, count, epsilon)
    return bound


def falls_short(bound: Bound, cases: Iterator[tuple[Rows, int]]) -> tuple[int, list[str]]:
    """How many (case, epsilon) were looked at, and those where the bound is below the exact delta."""
    looked, short = 0, []
    for rows, cohort in cases:
        local = local_epsilon(rows)
        epsilons = np.array(SHARES) * local
        for epsilon, exact in zip(epsilons, exact_deltas(rows, cohort, epsilons), strict=True):
            looked += 1
            claimed = bound(rows, local, cohort, float(epsilon))
            if claimed < exact * (1 - 1e-12) - 1e-15:  # the enumeration itself is in doubles
                short.append(f"{rows=} {cohort=} {epsilon=} {claimed=} {exact=}")
    return looked, short


@pytest.mark.parametrize("bound", [by_clones, by_standard_clones, by_blanket])
def test_never_below_the_truth(bound: Bound) -> None:
    for cases in (structured(), random_cases(seed=20190612, cases=60)):
        looked, short = falls_short(bound, cases)
        assert looked > 200
        assert short == []


def test_the_same_check_catches_the_tempting_shortcut() -> None:
    """Blanket members who say a third thing do not hide which of two things the victim said."""
    looked, short = falls_short(by_tempting_shortcut, structured())
    assert len(short) > looked // 10


@pytest.mark.slow
@pytest.mark.parametrize("bound", [by_clones, by_blanket])
def test_never_below_the_truth_in_a_long_search(bound: Bound) -> None:
    looked, short = falls_short(bound, random_cases(seed=7, cases=1500))
    assert looked > 10_000
    assert short == []


def rare_choices(share: float, odds: float) -> tuple[Floats, Floats, Floats]:
    """A victim whose two inputs differ in two rare choices only, and others who shun what it likes best.

    The last two choices are common to both of the victim's inputs; the others are at the floor of the one and
    at the cap of the other, as far from the victim as ln(odds)-LDP allows.
    """
    common = 1 - (1 + odds) * share
    liked = (common - (1 - 2 * share) / odds) / (1 - odds**-2)
    return (
        np.array([odds * share, share, liked, common - liked]),
        np.array([share, odds * share, liked, common - liked]),
        np.array([share, share, liked / odds, 1 - 2 * share - liked / odds]),
    )


def identical_others_delta(first: Floats, second: Floats, other: Floats, cohort: int, epsilon: float) -> float:
    """The exact delta over four choices when all others have one input, from the counts of the whole batch.

    (1/n) E(sum_y c_y (R0 - e^epsilon R1)(y) / Rx(y))+ with c multinomial(n, Rx).
    """
    gains = (first - math.exp(epsilon) * second) / other
    total = 0.0
    for rare in range(cohort + 1):
        ones, likes = np.arange(rare + 1), np.arange(cohort - rare + 1)
        sums_of_rare = ones * gains[0] + (rare - ones) * gains[1]
        sums_of_common = likes * gains[2] + (cohort - rare - likes) * gains[3]
        left = binom.pmf(ones, rare, other[0] / (other[0] + other[1]))
        right = binom.pmf(likes, cohort - rare, other[2] / (other[2] + other[3]))
        positive = np.maximum(sums_of_rare[:, None] + sums_of_common[None], 0)
        total += float(binom.pmf(rare, cohort, other[0] + other[1]) * (left @ positive @ right))
    return total / cohort


def test_the_four_choice_formula_is_the_enumeration() -> None:
    first, second, other = rare_choices(0.05, 3.0)
    one, two = batch_law([first, *[other] * 6]), batch_law([second, *[other] * 6])
    for epsilon in (0.0, 0.3, 0.9):
        exact = float(np.maximum(one - math.exp(epsilon) * two, 0).sum())
        assert identical_others_delta(first, second, other, 7, epsilon) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("odds", [1.5, 3.0, 10.0])
@pytest.mark.parametrize("share", [0.001, 0.02, 0.08])
def test_clones_hold_for_pairs_that_differ_far_less_than_epsilon_allows(odds: float, share: float) -> None:
    first, second, other = rare_choices(share, odds)
    for cohort in (5, 60):
        for epsilon in np.array(SHARES) * math.log(odds):
            exact = identical_others_delta(first, second, other, cohort, float(epsilon))
            assert bounds.clone_delta(math.log(odds), cohort, float(epsilon)) >= exact * (1 - 1e-9)


def test_the_obvious_proof_of_the_clone_bound_would_fail() -> None:
    """Why docs/shuffling.md argues by convex order: revealing who is a clone breaks the bound.

    With rare differences there are few clones. Told which reports they are, one learns far more than the bound
    allows; the batch itself does not tell, and stays below.
    """
    odds, share, cohort, epsilon = 3.0, 0.001, 300, 0.5
    told = sum(
        float(binom.pmf(count, cohort - 1, 2 * share)) * (odds + 1) * share * among_clones(odds, count, epsilon)
        for count in range(40)
    )
    bound = bounds.clone_delta(math.log(odds), cohort, epsilon)
    assert told > 100 * bound
    assert identical_others_delta(*rare_choices(share, odds), cohort, epsilon) <= bound


@pytest.mark.parametrize("choices", [2, 3, 5, 15])
def test_the_blanket_is_at_most_the_clone_bound(choices: int) -> None:
    """For every mechanism, by the argument in docs/shuffling.md; up to the blanket's grid."""
    rows = response(choices, Fraction(20))
    for cohort in (1, 10, 300, 20_000):
        for share in SHARES[:-1]:
            epsilon = share * math.log(20)
            by_epsilon = bounds.clone_delta(math.log(20), cohort, epsilon)
            if by_epsilon > 1e-12:
                assert by_blanket(rows, math.log(20), cohort, epsilon) <= by_epsilon * 1.001


def test_the_blanket_is_at_most_the_clone_bound_for_random_mechanisms() -> None:
    for rows, cohort in random_cases(seed=3, cases=40):
        local = local_epsilon(rows)
        for share in SHARES[:-1]:
            epsilon = share * local
            by_epsilon = bounds.clone_delta(local, 20 * cohort, epsilon)
            if by_epsilon > 1e-10:
                assert by_blanket(rows, local, 20 * cohort, epsilon) <= by_epsilon * 1.005 + 1e-13


@pytest.mark.parametrize("bound", [by_clones, by_standard_clones, by_blanket])
def test_a_larger_cohort_never_reveals_more(bound: Bound) -> None:
    rows = top_of(4, 2, Fraction(12))
    check_rows(rows, Fraction(5, 2))
    for epsilon in (0.0, 0.1, 0.5, 1.5):
        deltas = [bound(rows, math.log(12), cohort, epsilon) for cohort in (1, 2, 3, 10, 100, 1000, 30_000)]
        assert all(later <= earlier * (1 + 1e-4) for earlier, later in itertools.pairwise(deltas))
