"""Every mechanism of `privacy/`, each beside a twin that is too weak for the same claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from math import comb, prod

import numpy as np
from scipy.stats import binom, norm

from tacit.privacy.accounting.counts import shift_atoms
from tacit.privacy.audit.bounds import Row
from tacit.privacy.audit.case import Case, Draws, Hits, claim, empirical, exact
from tacit.privacy.mechanisms.memoised import SECRET_BYTES, FlipKey, flip_labels
from tacit.privacy.mechanisms.partition_selection import PartitionSelection
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse
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
    Grouped,
    NoisyCounts,
    Release,
    ShuffledChoice,
    SkellamCounts,
    SplitLabels,
    SubsampledGaussian,
)

PARTIES = 20
LOOSE_DELTA = 0.05  # large on purpose: an event as rare as a real delta would need billions of draws


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
    """The law of the report for every answer, read off the sampler: all words of a block must decide alike."""
    edges = [block * response.lie_weight for block in range(response.classes)]
    blocks = list(zip(edges, [*edges[1:], WHOLE], strict=True))
    rows: list[Row] = []
    for answer in range(response.classes):
        row = [Fraction(0)] * response.classes
        for low, high in blocks:
            seen = {_said(response, answer, word) for word in (low, (low + high) // 2, high - 1)}
            for said in seen:  # one, unless the sampler is not what it seems; then no row sums to one
                row[said] += Fraction(high - low, WHOLE)
        rows.append(row)
    return rows


def _said(response: RandomizedResponse, answer: int, word: int) -> int:
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


def _counts() -> list[Case]:
    add = Relation.ADD_REMOVE
    laplace = DiscreteLaplaceCounts((1,), add, Fraction(1))
    gaussian = DiscreteGaussianCounts((2,), add, Fraction(9))
    return [
        _on_counts("discrete Laplace on a count", laplace, [DiscreteLaplace(Fraction(1))],
                   twin=[DiscreteLaplace(Fraction(9, 10))], delta=0.0),
        _on_counts("discrete Gaussian on a count", gaussian, [DiscreteGaussian(Fraction(9))],
                   twin=[DiscreteGaussian(Fraction(7))], delta=LOOSE_DELTA),
    ]  # fmt: skip


def _shares() -> list[Case]:
    zero = Relation.ZERO_OUT
    skellam, polya = SkellamShares(Fraction(4), PARTIES), PolyaShares(Fraction(1), PARTIES)
    most = PARTIES * 4 // 5  # the twin: a fifth of the parties leaves its noise out, and nobody covers for them
    return [
        _on_counts(f"Skellam shares of {PARTIES} parties", SkellamCounts((2,), zero, skellam.variance),
                   [skellam.share] * PARTIES, twin=[skellam.share] * most, delta=LOOSE_DELTA),
        _on_counts(f"Polya shares of {PARTIES} parties", DiscreteLaplaceCounts((1,), zero, polya.scale),
                   [polya.share] * PARTIES, twin=[polya.share] * most, delta=0.0),
    ]  # fmt: skip


def _on_counts(
    name: str,
    release: NoisyCounts,
    laws: Sequence[SymmetricLaw],
    *,
    twin: Sequence[SymmetricLaw],
    delta: float,
) -> Case:
    """A count that differs by the release's change; the event is the one that tells the most at the claim."""
    claimed = claim(release, release.relation, delta)
    (change,) = release.changes
    losses, _ = shift_atoms(release, change)
    at_least = change
    if not isinstance(release, DiscreteLaplaceCounts):  # whose loss is largest from `change` on
        at_least += int(np.flatnonzero(losses >= claimed)[0]) - (len(losses) - 1) // 2
    return empirical(
        name,
        release.relation,
        claimed,
        delta=delta,
        draws=_shifted(laws, change=change, at_least=at_least),
        twin_draws=_shifted(twin, change=change, at_least=at_least),
    )


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
    label, bolder = (RandomizedResponse.for_epsilon(epsilon) for epsilon in ("1", "1.25"))
    both = Composed((step, label.release))
    removed, replaced = Relation.ADD_REMOVE, Relation.REPLACE_ONE
    return [
        _on_sums("one Gaussian statistic", statistic, Relation.REPLACE_LABEL, Sums(1.0), Sums(0.9)),
        _on_sums("DP-SGD step, a record removed", step, removed, Sums(0.7, 0.2), Sums(0.7, 0.26)),
        _on_sums("DP-SGD step, a user of 3 removed", Grouped(step, 3), removed,
                 Sums(0.7, 0.2, records=3), Sums(0.7, 0.2, records=4)),
        _on_sums("DP-SGD step, a record replaced", step, replaced,
                 Sums(0.7, 0.2, other=-1.0), Sums(0.6, 0.2, other=-1.0)),
        _on_sums("DP-SGD step beside a flipped label", both, replaced,
                 Sums(0.7, 0.2, other=-1.0, label=label), Sums(0.7, 0.2, other=-1.0, label=bolder)),
    ]  # fmt: skip


@dataclass(frozen=True)
class Sums:
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
        def draw(neighbour: bool, trials: int, source: Source) -> Hits:
            threshold = np.uint64(min(round(self.share * 2**64), 2**64 - 1))
            joins = (source.words(trials * self.records).reshape(self.records, trials) < threshold).sum(axis=0)
            total = joins * (self.other if neighbour else 1.0) + self.noise * source.normal(trials)
            hits: Hits = total > above
            if self.label is not None:
                truth = np.full(trials, 0 if neighbour else 1)
                hits = hits & (self.label.sample_array(truth, source.words) == 1)
            return hits

        return draw


def _on_sums(name: str, release: Release, relation: Relation, honest: Sums, twin: Sums) -> Case:
    """The event is the threshold that tells the most about the honest sum at the claim."""
    claimed = claim(release, relation, LOOSE_DELTA)

    def told(above: float) -> float:
        return honest.tail(False, above) - math.exp(claimed) * honest.tail(True, above)

    above = float(max(np.arange(-2.0, 6.0, 0.02), key=told))
    return empirical(
        name, relation, claimed, delta=LOOSE_DELTA, draws=honest.draws(above), twin_draws=twin.draws(above)
    )


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
