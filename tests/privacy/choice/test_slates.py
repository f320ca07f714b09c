"""Private slates: exactly private over every ranking, exactly the law that is sampled, the known figures."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down, log_rounded_up
from tacit.privacy.choice.slate_response import (
    OverlapSlates,
    TopSlates,
    best_overlap,
    best_top_slates,
    overlap_counts,
    slate_sums,
)
from tacit.privacy.choice.slates import PeeledSlates, PrivateSlate, all_slates, expected_sum, unrank_sets
from tests.support.exact_tests import assert_matches_pmf
from tests.support.local_programs import all_rankings, best_mechanism

WHOLE = 2**64

OVERLAPS = [
    (candidates, slots, top, needed)
    for candidates in range(2, 7)
    for slots in range(1, candidates)
    for top in range(1, candidates)
    for needed in range(1, slots + 1)
    if min(overlap_counts(candidates, slots, top)) < needed <= max(overlap_counts(candidates, slots, top))
]
SIZES = [(candidates, slots) for candidates in range(2, 7) for slots in range(1, candidates)]


def worst_ratio(laws: list[tuple[int, ...]] | list[tuple[Fraction, ...]]) -> Fraction:
    return max(Fraction(max(column)) / Fraction(min(column)) for column in zip(*laws, strict=True))


@pytest.mark.parametrize(("candidates", "slots"), SIZES)
def test_overlap_over_every_ranking(candidates: int, slots: int) -> None:
    """Every overlap rule there is, every ranking, in whole numbers."""
    rankings = all_rankings(candidates)
    for _, _, top, needed in (rule for rule in OVERLAPS if rule[:2] == (candidates, slots)):
        law = OverlapSlates.for_epsilon(2, candidates, slots, top=top, needed=needed)
        laws = list({law.weights(scores) for scores in rankings})
        assert {sum(one) for one in laws} == {WHOLE}
        assert worst_ratio(laws) <= exp_rounded_down(Fraction(2))
        assert law.epsilon == log_rounded_up(worst_ratio(laws))


@pytest.mark.parametrize(("candidates", "slots"), SIZES)
def test_top_slates_over_every_ranking(candidates: int, slots: int) -> None:
    """Scores 1, 2, 4, ... make all sums differ; equal scores and random ones are tried too."""
    more = np.random.default_rng(1).normal(size=(20, candidates))
    inputs = [*2.0 ** all_rankings(candidates), *more, np.zeros(candidates)]
    count = comb(candidates, slots)
    for favoured in sorted({1, count // 3, count - 1} - {0}):
        law = TopSlates.for_epsilon(2, candidates, slots, favoured=favoured)
        laws = list({law.weights(scores) for scores in inputs})
        assert {sum(one) for one in laws} == {WHOLE}
        assert worst_ratio(laws) == Fraction(law.high_weight, law.low_weight) <= exp_rounded_down(Fraction(2))
        assert law.epsilon == log_rounded_up(worst_ratio(laws))


@pytest.mark.parametrize(
    ("candidates", "slots"),
    [pytest.param(*size, marks=pytest.mark.slow if size[0] == 6 and size[1] > 2 else ()) for size in SIZES],
)
def test_peeling_over_every_ranking(candidates: int, slots: int) -> None:
    law = PeeledSlates.for_epsilon(2, candidates, slots)
    laws = [law.probabilities(scores) for scores in all_rankings(candidates)]
    assert {sum(one) for one in laws} == {1}
    assert worst_ratio(laws) <= exp_rounded_down(Fraction(2))
    if slots == 1:
        assert law.epsilon == log_rounded_up(worst_ratio(laws))


def test_peeling_claims_exactly_what_the_slots_in_turn_tell() -> None:
    """Four candidates, two slots: all sequences, all rankings."""
    law = PeeledSlates.for_epsilon(2, 4, 2)
    first, second = law.responses

    def chance(ranking: list[int], sequence: tuple[int, int]) -> Fraction:
        one, other = sequence
        left = [candidate for candidate in ranking if candidate != one]
        return (first.truth if ranking[0] == one else first.lie) * (
            second.truth if left[0] == other else second.lie
        )

    sequences = [(i, j) for i in range(4) for j in range(4) if i != j]
    rankings = [[int(i) for i in ranking] for ranking in all_rankings(4)]
    laws = [tuple(chance(ranking, sequence) for sequence in sequences) for ranking in rankings]
    assert law.epsilon == log_rounded_up(worst_ratio(laws))


def test_a_favour_that_depends_on_private_data_is_found_out() -> None:
    """The twin: how many count as best is read off the scores, so the normaliser tells."""

    def careless(scores: np.ndarray[Any, Any]) -> tuple[int, ...]:
        top = 2 if scores[0] == scores.max() else 3
        return OverlapSlates.for_epsilon(1, 5, 2, top=top, needed=2).weights(scores)

    assert worst_ratio([careless(scores) for scores in all_rankings(5)]) > exp_rounded_down(Fraction(1))


# What is sampled


def tallied(law: OverlapSlates | TopSlates, blocks: list[tuple[int, int]], scores: Any) -> tuple[int, ...]:
    """How many words name each slate, read off the sampler: all words of a block must decide alike."""
    found: Counter[tuple[int, ...]] = Counter()
    for low, high in blocks:
        words = np.array([low, (low + high) // 2, high - 1], np.uint64)
        named = {tuple(slate) for slate in law.choose(np.tile(scores, (3, 1)), lambda _, w=words: w).tolist()}  # type: ignore[misc]
        assert len(named) == 1
        found[named.pop()] += high - low
    return tuple(found[tuple(slate)] for slate in all_slates(law.candidates, law.slots).tolist())


def stretches(start: int, count: int, width: int) -> list[tuple[int, int]]:
    return [(start + n * width, start + (n + 1) * width) for n in range(count)]


@pytest.mark.parametrize("rule", [(5, 2, 3, 1), (6, 3, 3, 2), (6, 4, 3, 2), (4, 1, 2, 1), (6, 2, 5, 2)])
def test_overlap_samples_its_law(rule: tuple[int, int, int, int]) -> None:
    candidates, slots, top, needed = rule
    law = OverlapSlates.for_epsilon(1, candidates, slots, top=top, needed=needed)
    blocks: list[tuple[int, int]] = []
    for overlap, count in overlap_counts(candidates, slots, top).items():
        weight = law.high_weight if overlap >= needed else law.low_weight
        blocks += stretches(blocks[-1][1] if blocks else 0, count, weight)
    if law.spare:
        blocks.append((WHOLE - law.spare, WHOLE))
    for seed in range(4):
        scores = np.random.default_rng(seed).integers(0, 4, candidates).astype(float)  # with ties
        assert tallied(law, blocks, scores) == law.weights(scores)


@pytest.mark.parametrize(("candidates", "slots", "favoured"), [(5, 2, 3), (4, 3, 1), (6, 3, 11)])
def test_top_slates_sample_their_law(candidates: int, slots: int, favoured: int) -> None:
    law = TopSlates.for_epsilon(1, candidates, slots, favoured=favoured)
    blocks = stretches(0, favoured, law.high_weight)
    blocks += stretches(blocks[-1][1], comb(candidates, slots) - favoured, law.low_weight)
    if law.spare:
        blocks.append((WHOLE - law.spare, WHOLE))
    for seed in range(4):
        scores = np.random.default_rng(seed).integers(0, 4, candidates).astype(float)
        assert tallied(law, blocks, scores) == law.weights(scores)


def test_peeling_samples_its_law() -> None:
    law = PeeledSlates.for_epsilon(1, 4, 2)
    scores = np.array([[0.3, 0.9, 0.1, 0.9]])
    found: Counter[tuple[int, ...]] = Counter()
    for blocks in product(*(range(response.classes) for response in law.responses)):
        words = [block * response.lie_weight for block, response in zip(blocks, law.responses, strict=True)]
        chances = [
            response.truth if block == response.classes - 1 else response.lie
            for block, response in zip(blocks, law.responses, strict=True)
        ]
        given = iter(words)
        (slate,) = law.choose(scores, lambda _, given=given: np.array([next(given)], np.uint64)).tolist()  # type: ignore[misc]
        found[tuple(slate)] += math.prod(chances)  # type: ignore[assignment]
    assert tuple(found[tuple(slate)] for slate in all_slates(4, 2).tolist()) == law.probabilities(scores[0])


def assert_shown_as_stated(shown: Any, trials: int, inclusion: Any) -> None:
    """One exact binomial test a candidate; false alarms 1e-9 in all."""
    for times, probability in zip(shown.tolist(), inclusion.tolist(), strict=True):
        counts = {True: times, False: trials - times}
        assert_matches_pmf(counts, {True: probability, False: 1 - probability}, alpha=1e-9 / len(shown))


def test_large_batches_follow_the_law_and_a_wrong_law_is_noticed() -> None:
    """Slates that are too many to look at each: how often each candidate is shown."""
    scores, trials = np.random.default_rng(3).normal(size=20), 20_000
    for law in (
        OverlapSlates.for_epsilon(3, 20, 4, top=7, needed=3),
        TopSlates.for_epsilon(3, 20, 2, favoured=9),
        PeeledSlates.for_epsilon(3, 20, 4),
    ):
        chosen = law.choose(np.tile(scores, (trials, 1)), Simulation(2).words)
        assert (np.diff(chosen, axis=1) > 0).all()  # in public order, nobody twice
        shown = np.bincount(chosen.ravel(), minlength=20)
        assert_shown_as_stated(shown, trials, law.inclusion(scores))
        with pytest.raises(AssertionError):
            assert_shown_as_stated(shown, trials, law.inclusion(scores[::-1]))


@pytest.mark.parametrize(("candidates", "slots"), SIZES)
def test_inclusion_is_that_of_the_law(candidates: int, slots: int) -> None:
    laws: list[PrivateSlate] = [
        OverlapSlates.for_epsilon(2, candidates, slots, top=top, needed=needed)
        for a, d, top, needed in OVERLAPS
        if (a, d) == (candidates, slots)
    ]
    laws += [
        TopSlates.for_epsilon(2, candidates, slots, favoured=1),
        PeeledSlates.for_epsilon(2, candidates, slots),
    ]
    scores = np.random.default_rng(candidates).normal(size=(2, candidates))
    member = (all_slates(candidates, slots)[:, :, None] == np.arange(candidates)).any(
        axis=1
    )  # (slates, candidates)
    for law in laws:
        slow = np.array([law.pmf(one) @ member for one in scores])
        np.testing.assert_allclose(law.inclusion(scores), slow, rtol=1e-12)
        assert law.inclusion(scores[0]).sum() == pytest.approx(slots)


def test_numbers_name_every_set_once() -> None:
    for places in range(8):
        for size in range(places + 1):
            sets = unrank_sets(np.arange(comb(places, size), dtype=np.uint64), places, size).tolist()
            assert len({tuple(one) for one in sets}) == comb(places, size)
            assert all(one == sorted(set(one)) and (not one or 0 <= one[0] <= one[-1] < places) for one in sets)
    (last,) = unrank_sets(np.array([comb(60, 30) - 1], np.uint64), 60, 30).tolist()
    assert last == list(range(30, 60))


# What they are worth


def shares_at_fifteen(draws: int) -> dict[str, float]:
    """Uniform scores, 15 candidates, 3 slots, epsilon 5: exact for the two laws that only look at ranks."""
    means = np.arange(15, 0, -1) / 16
    public, greedy = 1.5, float(means[:3].sum())
    top, needed, value = best_overlap(means, 3, 5)
    ranked = means[None, :]
    overlap = OverlapSlates.for_epsilon(5, 15, 3, top=top, needed=needed)
    assert expected_sum(overlap, ranked) == pytest.approx(value)  # ranks decide, so means stand for scores
    peeling = expected_sum(PeeledSlates.for_epsilon(5, 15, 3), ranked)
    scores = np.random.default_rng(1).uniform(size=(draws, 15))
    best = best_top_slates(scores, 3, 5).value
    sampled = float(np.sort(scores, axis=1)[:, -3:].sum(axis=1).mean()), 3 * float(scores.mean())
    return {
        "overlap": (value - public) / (greedy - public),
        "peeling": (peeling - public) / (greedy - public),
        "top slates": (best - sampled[1]) / (sampled[0] - sampled[1]),
    }


def test_shares_of_the_gain() -> None:
    shares = shares_at_fifteen(1500)
    assert shares["overlap"] == pytest.approx(0.650, abs=5e-4)
    assert shares["peeling"] == pytest.approx(0.248, abs=5e-4)
    # Over samples of 1500 draws the share has a standard deviation of .0009; four of them.
    assert shares["top slates"] == pytest.approx(0.689, abs=0.0036)


@pytest.mark.slow
def test_share_of_top_slates_with_many_draws() -> None:
    assert shares_at_fifteen(40_000)["top slates"] == pytest.approx(0.689, abs=0.001)


def test_no_mechanism_over_slates_beats_top_slates_where_candidates_are_alike() -> None:
    values = np.array([1.0, 0.7, 0.65, 0.0])
    scores = values[all_rankings(4).astype(int)]
    for epsilon in (0.5, 2.0):
        anything, _ = best_mechanism(slate_sums(scores, 2), epsilon)
        plan = best_top_slates(scores, 2, epsilon)
        assert plan.value == pytest.approx(anything, abs=1e-8)
        law = TopSlates.for_epsilon(epsilon, 4, 2, favoured=plan.top)
        assert expected_sum(law, scores) == pytest.approx(anything, abs=1e-8)
        assert best_overlap(values, 2, epsilon)[2] <= anything + 1e-9
        assert expected_sum(PeeledSlates.for_epsilon(epsilon, 4, 2), scores) <= anything


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OverlapSlates.for_epsilon(1, 5, 5, top=2, needed=1), "fewer slots"),
        (lambda: OverlapSlates.for_epsilon(1, 5, 0, top=2, needed=1), "slots"),
        (lambda: OverlapSlates.for_epsilon(1, 5, 2, top=5, needed=1), "top < candidates"),
        (lambda: OverlapSlates.for_epsilon(1, 5, 2, top=2, needed=3), "needed between 1 and 2"),
        (lambda: OverlapSlates.for_epsilon(1, 5, 4, top=3, needed=2), "needed between 3 and 3"),
        (lambda: OverlapSlates.for_epsilon(0, 5, 2, top=2, needed=1), "epsilon > 0"),
        (lambda: OverlapSlates.for_epsilon(5, 200, 30, top=40, needed=9), "words can tell apart"),
        (lambda: OverlapSlates(5, 2, 2, 1, 2**63, 2**63), "at most 2"),
        (
            lambda: OverlapSlates.for_epsilon(1, 5, 2, top=2, needed=1).inclusion([1, 2, math.nan, 0, 0]),
            "finite",
        ),
        (
            lambda: OverlapSlates.for_epsilon(1, 5, 2, top=2, needed=1).choose([[1, 2]], Simulation(1).words),
            "shape",
        ),
        (lambda: TopSlates.for_epsilon(1, 5, 2, favoured=10), "fewer favoured"),
        (lambda: TopSlates.for_epsilon(1, 100, 5, favoured=10), "slates to list"),
        (lambda: TopSlates.for_epsilon(60, 5, 2, favoured=3), "words can tell apart"),
        (lambda: PeeledSlates.for_epsilon(1, 3, 3), "fewer slots"),
        (lambda: PeeledSlates.for_epsilon(math.nan, 3, 2), "epsilon"),
        (lambda: best_overlap([[1.0]], 1, 1), "vector"),
        (lambda: best_top_slates([[1.0, 2.0]], 2, 1), "fewer slots"),
    ],
)
def test_bad_input_is_refused_in_one_line(make: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_sums_of_huge_scores_are_ranked_and_do_not_overflow() -> None:
    law = TopSlates.for_epsilon(1, 4, 3, favoured=1)
    scores = np.array([1.0, 1.7, 1.6, 1.5])
    assert law.weights(scores * 1e308) == law.weights(scores)
    assert law.weights(-scores * 1e308) == law.weights(-scores)
