"""Every mechanism of `privacy/`, each beside a twin that is too weak for the same claim."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from math import comb, prod

import numpy as np

from tacit.privacy.audit.bounds import Row
from tacit.privacy.audit.case import Case, Draws, Hits, claim, empirical, exact
from tacit.privacy.mechanisms.memoised import SECRET_BYTES, FlipKey, flip_labels
from tacit.privacy.mechanisms.partition_selection import PartitionSelection
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.noise.discrete_gaussian import DiscreteGaussian
from tacit.privacy.noise.discrete_laplace import DiscreteLaplace
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.noise.symmetric import SymmetricLaw
from tacit.privacy.randomness import Source
from tacit.privacy.relations import Relation
from tacit.privacy.releases import (
    Composed,
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    GaussianStatistic,
    ShuffledChoice,
    SkellamCounts,
    SplitLabels,
    SubsampledGaussian,
)

PARTIES = 20
LOOSE_DELTA = 1e-3  # large on purpose: an event as rare as a real delta would need billions of draws


def cases() -> list[Case]:
    """All cases. Claims come from the accountant, never from here, so that it is audited too."""
    return [*_flips(), *_selection(), *_counts(), *_shares(), *_gaussians(), *_shuffled()]


def _flips() -> list[Case]:
    binary, five = RandomizedResponse.for_epsilon(1), RandomizedResponse.for_epsilon(2, classes=5)
    third = RandomizedResponse.for_epsilon(Fraction(1, 3))
    return [
        exact(
            "randomized response, 2 classes",
            Relation.REPLACE_LABEL,
            claim(binary.release, Relation.REPLACE_LABEL, 0),
            rows=lambda: _answer_rows(binary),
            twin_rows=lambda: _answer_rows(RandomizedResponse.for_epsilon("1.0001")),
        ),
        exact(
            "randomized response, 5 classes",
            Relation.REPLACE_LABEL,
            claim(five.release, Relation.REPLACE_LABEL, 0),
            rows=lambda: _answer_rows(five),
            twin_rows=lambda: _answer_rows(RandomizedResponse.for_epsilon("2.0001", classes=5)),
        ),
        exact(
            "a user's labels, cap 3, epsilon/K each",
            Relation.REPLACE_LABEL,
            claim(Composed((third.release,), 3), Relation.REPLACE_LABEL, 0),
            rows=lambda: _vector_rows(third, 3),
            twin_rows=lambda: _vector_rows(third, 4),  # one label too many was kept
        ),
        exact(
            "a user's labels, cap 3, epsilon/K_i each",
            Relation.REPLACE_LABEL,
            claim(SplitLabels(Fraction(1), 3), Relation.REPLACE_LABEL, 0),
            rows=lambda: _vector_rows(RandomizedResponse.for_epsilon(Fraction(1, 2)), 2),
            twin_rows=lambda: _vector_rows(RandomizedResponse.for_epsilon(Fraction(1, 2)), 3),  # miscounted
        ),
        empirical(
            "memoised flips, read twice",
            Relation.REPLACE_LABEL,
            claim(binary.release, Relation.REPLACE_LABEL, 0),
            draws=_two_reads(second_version=0),
            twin_draws=_two_reads(second_version=1),  # a fresh flip that nobody paid for
        ),
    ]


def _answer_rows(response: RandomizedResponse) -> list[Row]:
    return [response.pmf(answer) for answer in range(response.classes)]


def _vector_rows(response: RandomizedResponse, labels: int) -> list[Row]:
    """The law of a whole vector of flips, for every vector of labels."""
    vectors = list(product(range(response.classes), repeat=labels))
    laws = _answer_rows(response)

    def chance(truth: tuple[int, ...], seen: tuple[int, ...]) -> Fraction:
        return prod((laws[t][r] for t, r in zip(truth, seen, strict=True)), start=Fraction(1))

    return [[chance(truth, seen) for seen in vectors] for truth in vectors]


def _two_reads(*, second_version: int) -> Draws:
    """One label per trial, read under two keys; the event: both reads say 1."""
    response = RandomizedResponse.for_epsilon(1)

    def draws(neighbour: bool, trials: int, source: Source) -> Hits:
        secret, records = source.bytes(SECRET_BYTES), np.arange(trials)
        labels = np.full(trials, 0 if neighbour else 1)
        keys = (FlipKey("audit", 0), FlipKey("audit", 0, second_version))
        first, second = (flip_labels(labels, records, key, response, secret) for key in keys)
        hits: Hits = (first == 1) & (second == 1)
        return hits

    return draws


def _selection() -> list[Case]:
    rule, bolder = (PartitionSelection(Fraction(1), Fraction(1, d)) for d in (1000, 500))
    return [
        exact(
            f"partition selection, {units} against {units + 1} users",
            Relation.ADD_REMOVE,
            float(rule.epsilon),
            delta=rule.delta,
            rows=partial(_keep_rows, rule, units),
            twin_rows=partial(_keep_rows, bolder, units),
        )
        for units in (0, 4)
    ]


def _keep_rows(rule: PartitionSelection, units: int) -> list[Row]:
    kept = [rule.probability(count) for count in (units, units + 1)]
    return [(chance, 1 - chance) for chance in kept]


def _counts() -> list[Case]:
    variance = Fraction(4)
    release = DiscreteGaussianCounts((2,), Relation.ADD_REMOVE, variance)
    return [
        empirical(
            "discrete Laplace on a count",
            Relation.ADD_REMOVE,
            claim(DiscreteLaplaceCounts((1,), Relation.ADD_REMOVE, Fraction(1)), Relation.ADD_REMOVE, 0),
            draws=_shifted([DiscreteLaplace(Fraction(1))], change=1, at_least=1),
            twin_draws=_shifted([DiscreteLaplace(Fraction(85, 100))], change=1, at_least=1),
        ),
        empirical(
            "discrete Gaussian on a count",
            Relation.ADD_REMOVE,
            claim(release, Relation.ADD_REMOVE, LOOSE_DELTA),
            delta=LOOSE_DELTA,
            draws=_shifted([DiscreteGaussian(variance)], change=2, at_least=4),
            twin_draws=_shifted([DiscreteGaussian(variance / 3)], change=2, at_least=4),
        ),
    ]


def _shares() -> list[Case]:
    skellam, polya = SkellamShares(Fraction(4), PARTIES), PolyaShares(Fraction(1), PARTIES)
    release = SkellamCounts((2,), Relation.ZERO_OUT, skellam.variance)
    few = PARTIES // 3  # the twin: only a third of the parties adds noise, and nobody covers for the rest
    return [
        empirical(
            f"Skellam shares of {PARTIES} parties",
            Relation.ZERO_OUT,
            claim(release, Relation.ZERO_OUT, LOOSE_DELTA),
            delta=LOOSE_DELTA,
            draws=_shifted([skellam.share] * PARTIES, change=2, at_least=4),
            twin_draws=_shifted([skellam.share] * few, change=2, at_least=4),
        ),
        empirical(
            f"Polya shares of {PARTIES} parties",
            Relation.ZERO_OUT,
            claim(DiscreteLaplaceCounts((1,), Relation.ZERO_OUT, polya.scale), Relation.ZERO_OUT, 0),
            draws=_shifted([polya.share] * PARTIES, change=1, at_least=1),
            twin_draws=_shifted([polya.share] * few, change=1, at_least=1),
        ),
    ]


def _shifted(laws: Sequence[SymmetricLaw], *, change: int, at_least: int) -> Draws:
    """A count of `change` against one of 0, with noise of all laws; the event: the noisy count is large."""

    def draws(neighbour: bool, trials: int, source: Source) -> Hits:
        count = 0 if neighbour else change
        noise = sum(law.sample_array(trials, source.words) for law in laws)
        hits: Hits = np.asarray(count + noise) >= at_least
        return hits

    return draws


def _gaussians() -> list[Case]:
    statistic = GaussianStatistic(1.0, 1.0, Relation.REPLACE_LABEL)
    step = SubsampledGaussian(noise_multiplier=0.7, sampling_probability=0.2, steps=1)
    return [
        empirical(
            "one Gaussian statistic",
            Relation.REPLACE_LABEL,
            claim(statistic, Relation.REPLACE_LABEL, LOOSE_DELTA),
            delta=LOOSE_DELTA,
            draws=_noisy_sum(noise=1.0, share=1.0, ends=(1.0, 0.0), above=2.5),
            twin_draws=_noisy_sum(noise=0.7, share=1.0, ends=(1.0, 0.0), above=2.5),
        ),
        empirical(
            "DP-SGD step, a record removed",
            Relation.ADD_REMOVE,
            claim(step, Relation.ADD_REMOVE, LOOSE_DELTA),
            delta=LOOSE_DELTA,
            draws=_noisy_sum(noise=0.7, share=0.2, ends=(1.0, 0.0), above=1.8),
            twin_draws=_noisy_sum(noise=0.7, share=1.0, ends=(1.0, 0.0), above=1.8),  # not sampled at all
        ),
        empirical(
            "DP-SGD step, a record replaced",
            Relation.REPLACE_ONE,
            claim(step, Relation.REPLACE_ONE, LOOSE_DELTA),
            delta=LOOSE_DELTA,
            draws=_noisy_sum(noise=0.7, share=0.2, ends=(1.0, -1.0), above=1.6),
            twin_draws=_noisy_sum(noise=0.45, share=0.2, ends=(1.0, -1.0), above=1.6),
        ),
    ]


def _noisy_sum(*, noise: float, share: float, ends: tuple[float, float], above: float) -> Draws:
    """A sum that one record joins with probability `share`, adding either end; the event: the sum is large."""

    def draws(neighbour: bool, trials: int, source: Source) -> Hits:
        joins = source.words(trials) < np.uint64(min(round(share * 2**64), 2**64 - 1))
        total = np.where(joins, ends[1] if neighbour else ends[0], 0.0) + noise * source.normal(trials)
        hits: Hits = total > above
        return hits

    return draws


def _shuffled() -> list[Case]:
    cohort, delta = 40, Fraction(1, 1000)
    response = RandomizedResponse.for_epsilon(2)
    release = ShuffledChoice(Fraction(2), cohort, tuple(response.pmf(answer) for answer in (0, 1)))
    return [
        exact(
            f"randomized response shuffled among {cohort}",
            Relation.REPLACE_ONE,
            claim(release, Relation.REPLACE_ONE, float(delta)),
            delta=delta,
            rows=lambda: _shuffled_rows(response, cohort),
            twin_rows=lambda: _shuffled_rows(response, cohort // 4),  # the others had another menu
        )
    ]


def _shuffled_rows(response: RandomizedResponse, cohort: int) -> list[Row]:
    """The law of how many reports say 1, when all others have a 0 and the victim either a 0 or a 1."""
    lie = response.lie
    others = [comb(cohort - 1, k) * lie**k * (1 - lie) ** (cohort - 1 - k) for k in range(cohort)]
    rows: list[Row] = []
    for answer in (0, 1):
        zero, one = response.pmf(answer)
        rows.append(
            [a * zero + b * one for a, b in zip([*others, Fraction(0)], [Fraction(0), *others], strict=True)]
        )
    return rows
