"""Batches: Poisson samples by skips, and shuffled epochs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.train.sgd.draws import order_by_words, poisson_sample, shuffled_epochs
from tacit.train.sgd.optimizers import Decay, Schedule
from tests.support.exact_tests import ALPHA, assert_matches_pmf

TRIALS = 20_000


def test_every_subset_has_its_poisson_probability() -> None:
    share, records = 0.3, 4
    source = Simulation("subsets")
    found: Counter[tuple[int, ...]] = Counter(
        tuple(poisson_sample(records, share, source.words).tolist()) for _ in range(TRIALS)
    )
    exact = Fraction(3, 10)
    pmf: dict[tuple[int, ...], Fraction] = {
        tuple(i for i in range(records) if subset >> i & 1): exact ** subset.bit_count()
        * (1 - exact) ** (records - subset.bit_count())
        for subset in range(2**records)
    }
    assert_matches_pmf(found, pmf)
    # The twin that must fail: batches of a fixed size, which are what most trainers draw.
    fixed: Counter[tuple[int, ...]] = Counter({subset: TRIALS // 6 for subset in pmf if len(subset) == 2})
    with pytest.raises(AssertionError):
        assert_matches_pmf(fixed, pmf)


def test_sizes_and_places_of_large_samples() -> None:
    records, share = 1_000_000, 0.002
    source = Simulation("large")
    samples = [poisson_sample(records, share, source.words) for _ in range(200)]
    for places in samples:
        assert np.all(np.diff(places) > 0)
        assert places[0] >= 0
        assert places[-1] < records
    total = sum(len(places) for places in samples)
    assert binomtest(total, 200 * records, share).pvalue > ALPHA
    late = sum(int(np.sum(places >= records // 2)) for places in samples)
    assert binomtest(late, 200 * records // 2, share).pvalue > ALPHA
    spread = np.var([len(places) for places in samples]) / binom.var(records, share)
    assert 0.5 < spread < 1.7  # 200 draws of a chi-square: a fixed size would give 0


def test_the_ends() -> None:
    words = Simulation(1).words
    assert poisson_sample(5, 1, words).tolist() == [0, 1, 2, 3, 4]
    assert poisson_sample(0, 0.5, words).tolist() == []
    assert sum(len(poisson_sample(3, 1e-9, words)) for _ in range(50)) == 0  # an empty batch is a batch
    for wrong in (0, -0.1, 1.1, float("nan")):
        with pytest.raises(BadInput, match="sampling_probability"):
            poisson_sample(5, wrong, words)


def test_epochs_show_every_record_once() -> None:
    batches = list(shuffled_epochs(10, 4, 3, Simulation(2).words))
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    for epoch in range(3):
        assert sorted(np.concatenate(batches[3 * epoch : 3 * epoch + 3]).tolist()) == list(range(10))
    assert not np.array_equal(batches[0], batches[3])


@pytest.mark.parametrize("most", [0, 1, 2**5, 2**40, 2**64 - 1])
def test_an_order_is_that_of_a_stable_sort(most: int) -> None:
    """Equal words, words that differ in the bits that places take, and words like those of an epoch."""
    rng = np.random.default_rng(1)
    for records in (0, 1, 2, 3, 64, 1000):
        words = rng.integers(0, most, records, dtype=np.uint64, endpoint=True)
        order = order_by_words(words)
        assert order.dtype == np.int64
        np.testing.assert_array_equal(order, np.argsort(words, kind="stable"))


def test_schedules() -> None:
    cosine = Schedule(2.0, 4)
    assert [round(cosine.at(step), 3) for step in range(4)] == [2.0, 1.707, 1.0, 0.293]
    assert Schedule(2.0, 4, Decay.CONSTANT).at(3) == 2.0
    with pytest.raises(BadInput, match="Decay to be one of constant, cosine"):
        Schedule(2.0, 4, "linear")  # type: ignore[arg-type]
