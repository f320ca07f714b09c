"""The mechanisms of `privacy` for `tacit audit`, and how each can be weaker than the same claim allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from math import comb, prod

import numpy as np
from scipy.stats import binom, norm

from tacit.privacy.accounting.loss_distributions import count_noise_atoms
from tacit.privacy.audit.case import (
    AuditCase,
    AuditDraws,
    AuditNoiseLaw,
    Draws,
    Hits,
    Row,
    best_threshold,
    claimed_epsilon,
    discrete_law,
    empirical_case,
    exact_case,
    flips_law,
    gaussian_law,
)
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES, FlipKey, flip_labels
from tacit.privacy.mechanisms.partition_selection import PartitionSelection
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.exact_sampler import SymmetricLaw
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.randomness import Source
from tacit.privacy.releases import (
    Composed,
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    GaussianStatistic,
    Grouped,
    NoisyCounts,
    Release,
    ShuffledChoice,
    SkellamCounts,
    SplitLabels,
    SubsampledGaussian,
)
from tacit.privacy.units import Relation

PARTIES = 20
LOOSE_DELTA = 0.05  # large on purpose: an event as rare as a real delta would need billions of draws


def cases() -> list[AuditCase]:
    """All cases. Claims come from the accountant, never from here, so that it is audited too."""
    return [*_flips(), *_selection(), *_counts(), *_shares(), *_gaussians(), *_shuffled_cases()]


def _flips() -> list[AuditCase]:
    binary, five = RandomizedResponse.for_epsilon(1), RandomizedResponse.for_epsilon(2, classes=5)
    third, label = RandomizedResponse.for_epsilon(Fraction(1, 3)), Relation.REPLACE_LABEL
    flipping = RandomizedResponse.for_epsilon
    return [
        exact_case(
            "randomized response, 2 classes",
            label,
            claimed_epsilon(binary.release, label, 0),
            rows=lambda share: _answer_rows(flipping(1 / share)),
        ),
        exact_case(
            "randomized response, 5 classes",
            label,
            claimed_epsilon(five.release, label, 0),
            rows=lambda share: _answer_rows(flipping(2 / share, classes=5)),
        ),
        exact_case(
            "a user's labels, cap 3, epsilon/K each",
            label,
            claimed_epsilon(Composed((third.release,), 3), label, 0),
            rows=lambda share: _vector_rows(flipping(1 / (3 * share)), 3),
            twin_rows=lambda: _vector_rows(third, 4),  # one label too many was kept
        ),
        exact_case(
            "a user's labels, cap 3, epsilon/K_i each",
            label,
            claimed_epsilon(SplitLabels(Fraction(1), 3), label, 0),
            rows=lambda share: _vector_rows(flipping(1 / (2 * share)), 2),
            twin_rows=lambda: _vector_rows(flipping(Fraction(1, 2)), 3),  # miscounted
        ),
        empirical_case(
            "memoised flips, read twice",
            label,
            claimed_epsilon(binary.release, label, 0),
            draws=_two_reads(second_version=0),
            law=response_law(1),
            twin_draws=_two_reads(second_version=1),  # a fresh flip that nobody paid for
        ),
    ]


def response_law(epsilon: int) -> AuditNoiseLaw:
    """Of randomized response between two answers: how often it lies."""

    def lie(share: Fraction) -> float:
        return float(RandomizedResponse.for_epsilon(epsilon / share).lie)

    return flips_law(lie, lambda share: float(epsilon / share))


def _answer_rows(response: RandomizedResponse) -> list[Row]:
    """The law of the report for every answer, read off the sampler: all words of a block must decide alike."""
    edges = [block * response.lie_weight for block in range(response.classes)]
    blocks = list(zip(edges, [*edges[1:], WHOLE], strict=True))
    rows: list[Row] = []
    for answer in range(response.classes):
        row = [Fraction(0)] * response.classes
        for low, high in blocks:
            seen = {_sample_answer(response, answer, word) for word in (low, (low + high) // 2, high - 1)}
            for said in seen:  # one, unless the sampler is not what it seems; then no row sums to one
                row[said] += Fraction(high - low, WHOLE)
        rows.append(row)
    return rows


def _sample_answer(response: RandomizedResponse, answer: int, word: int) -> int:
    (said,) = response.sample_array([answer], lambda _: np.array([word], dtype=np.uint64)).tolist()
    return int(said)


def _vector_rows(response: RandomizedResponse, labels: int) -> list[Row]:
    """The law of a whole vector of flips, for every vector of labels."""
    vectors = list(product(range(response.classes), repeat=labels))
    laws = _answer_rows(response)

    def chance(truth: tuple[int, ...], seen: tuple[int, ...]) -> Fraction:
        return prod((laws[t][r] for t, r in zip(truth, seen, strict=True)), start=Fraction(1))

    return [[chance(truth, seen) for seen in vectors] for truth in vectors]


def _two_reads(*, second_version: int) -> Draws:
    """One label per trial, read under two keys; the event: both reads say 1. Noise: the first one lies."""

    def draws(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
        response = RandomizedResponse.for_epsilon(1 / share)
        secret, records = source.bytes(SECRET_BYTES), np.arange(trials)
        labels = np.full(trials, 0 if neighbour else 1)
        keys = (FlipKey("audit", 0), FlipKey("audit", 0, second_version))
        first, second = (flip_labels(labels, records, key, response, secret) for key in keys)
        return AuditDraws((first == 1) & (second == 1), first != labels)

    return draws


def _selection() -> list[AuditCase]:
    rule = PartitionSelection(Fraction(1), Fraction(1, 1000))

    def rows(units: int, share: Fraction) -> list[Row]:
        return _keep_rows(PartitionSelection(rule.epsilon / share, rule.delta / share), units)

    return [
        exact_case(
            f"partition selection, {units} against {units + 1} users",
            Relation.ADD_REMOVE,
            float(rule.epsilon),
            delta=rule.delta,
            rows=partial(rows, units),
        )
        for units in (0, 4)
    ]


def _keep_rows(rule: PartitionSelection, units: int) -> list[Row]:
    """How many of all words keep a value, found by halving: read off the sampler, not off its table."""

    def keeps(count: int, word: int) -> bool:
        return bool(rule.select([count], lambda _: np.array([word], dtype=np.uint64))[0])

    rows: list[Row] = []
    for count in (units, units + 1):
        low, high = 0, WHOLE  # every word below `low` keeps it, none from `high` on does
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if keeps(count, middle) else (low, middle)
        rows.append((Fraction(low, WHOLE), 1 - Fraction(low, WHOLE)))
    return rows


def _counts() -> list[AuditCase]:
    add = Relation.ADD_REMOVE
    return [
        _on_counts(
            "discrete Laplace on a count",
            lambda share: DiscreteLaplaceCounts((1,), add, share),
            lambda share: [DiscreteLaplace(share)],
            DiscreteLaplace,
            delta=0.0,
        ),
        _on_counts(
            "discrete Gaussian on a count",
            lambda share: DiscreteGaussianCounts((2,), add, 9 * share**2),
            lambda share: [DiscreteGaussian(9 * share**2)],
            lambda share: DiscreteGaussian(9 * share**2),
            delta=LOOSE_DELTA,
        ),
    ]


def _shares() -> list[AuditCase]:
    zero = Relation.ZERO_OUT
    most = PARTIES * 4 // 5  # the twin: a fifth of the parties leaves its noise out, and nobody covers for them

    def skellam(share: Fraction) -> SkellamShares:
        return SkellamShares(4 * share**2, PARTIES)

    def polya(share: Fraction) -> PolyaShares:
        return PolyaShares(share, PARTIES)

    return [
        _on_counts(
            f"Skellam shares of {PARTIES} parties",
            lambda share: SkellamCounts((2,), zero, 4 * share**2),
            lambda share: [skellam(share).share] * PARTIES,
            lambda share: Skellam(4 * share**2),
            twin=lambda share: [skellam(share).share] * most,
            delta=LOOSE_DELTA,
        ),
        _on_counts(
            f"Polya shares of {PARTIES} parties",
            lambda share: DiscreteLaplaceCounts((1,), zero, share),
            lambda share: [polya(share).share] * PARTIES,
            DiscreteLaplace,
            twin=lambda share: [polya(share).share] * most,
            delta=0.0,
        ),
    ]


Laws = Callable[[Fraction], Sequence[SymmetricLaw]]


def _on_counts(
    name: str,
    release: Callable[[Fraction], NoisyCounts],
    laws: Laws,
    together: Callable[[Fraction], SymmetricLaw],
    *,
    twin: Laws | None = None,
    delta: float,
) -> AuditCase:
    """A count that differs by the release's change; the event is the one that tells the most at the claim."""
    honest = release(Fraction(1))
    claimed = claimed_epsilon(honest, honest.relation, delta)
    (change,) = honest.changes
    at_least = change
    if not isinstance(honest, DiscreteLaplaceCounts):  # whose loss is largest from `change` on
        at_least = most_revealing_count(honest, change, claimed)

    def shifted(laws: Laws) -> Draws:
        """A count of `change` against one of 0, with noise of all laws; the event: the noisy count is large."""

        def draws(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
            noise = np.sum([law.sample_array(trials, source.words) for law in laws(share)], axis=0)
            return AuditDraws((0 if neighbour else change) + noise >= at_least, noise)

        return draws

    return empirical_case(
        name,
        honest.relation,
        claimed,
        delta=delta,
        draws=shifted(laws),
        law=discrete_law(together, lambda share: claimed_epsilon(release(share), honest.relation, delta)),
        twin_draws=None if twin is None else shifted(twin),
    )


def most_revealing_count(release: NoisyCounts, change: int, claimed: float) -> int:
    """From where on a noisy count, of `change` or next door 0, tells more than is claimed."""
    losses, _ = count_noise_atoms(release, change)
    return change + int(np.flatnonzero(losses >= claimed)[0]) - (len(losses) - 1) // 2


def _gaussians() -> list[AuditCase]:
    label, bolder = (RandomizedResponse.for_epsilon(epsilon) for epsilon in ("1", "1.25"))
    removed, replaced = Relation.ADD_REMOVE, Relation.REPLACE_ONE

    def step(share: Fraction) -> SubsampledGaussian:
        return SubsampledGaussian(noise_multiplier=0.7 * float(share), sampling_probability=0.2, steps=1)

    return [
        _on_sums("one Gaussian statistic",
                 lambda share: GaussianStatistic(float(share), 1.0, Relation.REPLACE_LABEL),
                 Relation.REPLACE_LABEL, NoisySum(1.0)),
        _on_sums("DP-SGD step, a record removed", step, removed, NoisySum(0.7, 0.2), NoisySum(0.7, 0.26)),
        _on_sums("DP-SGD step, a user of 3 removed", lambda share: Grouped(step(share), 3), removed,
                 NoisySum(0.7, 0.2, records=3), NoisySum(0.7, 0.2, records=4)),
        _on_sums("DP-SGD step, a record replaced", step, replaced,
                 NoisySum(0.7, 0.2, other=-1.0), NoisySum(0.7, 0.26, other=-1.0)),
        _on_sums("DP-SGD step beside a flipped label",
                 lambda share: Composed((step(share), label.release)), replaced,
                 NoisySum(0.7, 0.2, other=-1.0, label=label), NoisySum(0.7, 0.2, other=-1.0, label=bolder)),
    ]  # fmt: skip


@dataclass(frozen=True)
class NoisySum:
    """A noisy sum that `records` records join with probability `share` each, adding 1, or `other` next door."""

    noise: float
    share: float = 1.0
    other: float = 0.0
    records: int = 1
    label: RandomizedResponse | None = None

    def tail(self, neighbour: bool, above: float) -> float:
        """The chance that the sum is larger (and that a label of 1, next door 0, is reported as 1)."""
        each = self.other if neighbour else 1.0
        joined = np.arange(self.records + 1)
        chances = binom.pmf(joined, self.records, self.share)
        told = 1.0 if self.label is None else float(self.label.pmf(0 if neighbour else 1)[1])
        return float(chances @ norm.sf((above - joined * each) / self.noise)) * told

    def draws(self, above: float) -> Draws:
        def draw(left: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
            threshold = np.uint64(min(round(self.share * 2**64), 2**64 - 1))
            joins = (source.words(trials * self.records).reshape(self.records, trials) < threshold).sum(axis=0)
            noise = self.noise * float(left) * source.normal(trials)
            told: Hits = joins * (self.other if neighbour else 1.0) + noise > above
            if self.label is not None:
                truth = np.full(trials, 0 if neighbour else 1)
                told = told & (self.label.sample_array(truth, source.words) == 1)
            return AuditDraws(told, noise)

        return draw


def _on_sums(
    name: str,
    release: Callable[[Fraction], Release],
    relation: Relation,
    honest: NoisySum,
    twin: NoisySum | None = None,
) -> AuditCase:
    """The event is the threshold that tells the most about the honest sum at the claim."""

    def claimed_at(share: Fraction) -> float:
        return claimed_epsilon(release(share), relation, LOOSE_DELTA)

    claimed = claimed_at(Fraction(1))

    above = best_threshold(claimed, partial(honest.tail, False), partial(honest.tail, True))
    return empirical_case(
        name,
        relation,
        claimed,
        delta=LOOSE_DELTA,
        draws=honest.draws(above),
        law=gaussian_law(honest.noise, claimed_at),
        twin_draws=None if twin is None else twin.draws(above),
    )


def _shuffled_cases() -> list[AuditCase]:
    cohort, delta = 40, Fraction(1, 1000)
    response = RandomizedResponse.for_epsilon(2)
    release = ShuffledChoice(Fraction(2), cohort, tuple(response.pmf(answer) for answer in (0, 1)))
    return [
        exact_case(
            f"randomized response shuffled among {cohort}",
            Relation.REPLACE_ONE,
            claimed_epsilon(release, Relation.REPLACE_ONE, float(delta)),
            delta=delta,
            rows=lambda share: _shuffled_rows(RandomizedResponse.for_epsilon(2 / share), cohort),
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
