"""Moment shrinkage against its formula written out, and what it wins where noise dominates."""

from __future__ import annotations

from weakref import ref

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tacit.arrays import Floats, Integers
from tacit.deliver.server import moment_shrinkage as spread_module
from tacit.deliver.server.moment_shrinkage import MomentShrinkage, corrected_spread, measured_spread
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.counts import Counts, LevelCounts
from tests.support.drawn_counts import (
    CHAIN,
    CONTEXT,
    EXACT,
    GROUP,
    Noise,
    drawn,
    everything,
    flat,
    level_counts,
    spread_children,
)

BELOW, ABOVE = (0,), (1,)
SURELY = 10**9  # impressions of a parent whose rate is as good as known


def under_a_known_parent(clicks: Floats, shown: Floats, sd: float, rate: float) -> Counts:
    nodes = len(clicks)
    child = LevelCounts(
        BELOW, nodes, 1, shown.copy(), np.arange(nodes + 1), np.zeros(nodes, np.int64), clicks, shown, sd
    )
    parent = LevelCounts(
        ABOVE, 1, 1, np.array([SURELY * 1.0]), np.array([0, 1]), np.array([0]), np.array([SURELY * rate]),
        np.array([SURELY * 1.0]),
    )  # fmt: skip
    return Counts((BELOW, ABOVE), {BELOW: child, ABOVE: parent}, {(BELOW, ABOVE): np.zeros(nodes, np.int64)})


def by_the_formula(c: Floats, n: Floats, sd: float, pi: float) -> tuple[Floats, float]:
    e = c - pi * n
    s2 = sd**2 * ((1 - pi) ** 2 + pi**2)
    top = sum(e**2 - s2 - n * pi * (1 - pi))
    tau2 = max(0.0, top / sum(np.maximum(n**2 - 2 * sd**2 - n, 0)))
    w = tau2 * n**2 / (tau2 * n**2 + n * pi * (1 - pi) + s2)
    return np.clip(pi + w * e / n, 0, 1), tau2


def noisy_contexts(seed: int, rate: float, sd_of_rates: float, nodes: int) -> tuple[Floats, Floats, Floats]:
    """Rates, clicks and impressions: 100 true impressions each, clicks and no-clicks with noise of sd 34."""
    rng = np.random.default_rng(seed)
    strength = rate * (1 - rate) / sd_of_rates**2 - 1
    truth = rng.beta(strength * rate, strength * (1 - rate), nodes)
    clicks = rng.binomial(100, truth)
    others = 100 - clicks + rng.normal(0, 34, nodes)
    noisy = clicks + rng.normal(0, 34, nodes)
    return truth, noisy, noisy + others


def test_it_is_the_formula() -> None:
    _, clicks, shown = noisy_contexts(1, 0.3, 0.1, 3000)
    seen = shown > 0  # the formula divides by n
    counts = under_a_known_parent(clicks[seen], shown[seen], 34.0, 0.3)
    expected, tau2 = by_the_formula(clicks[seen], shown[seen], 34.0, 0.3)
    assert tau2 > 0
    assert measured_spread(counts)[BELOW] == pytest.approx(tau2, rel=1e-6)
    found, _ = everything(MomentShrinkage(corrected=False), counts, BELOW)
    assert_allclose(found[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("rate", [0.3, 0.5])
def test_it_wins_where_noise_dominates(rate: float) -> None:
    """Noise of sd 34 in counts of 100, rates that vary by .1: an error of .093 where raw rates have .24 or .27.

    Over 4,000 contexts the standard error of the root mean square is about .001.
    """
    truth, clicks, shown = noisy_contexts(2, rate, 0.1, 4000)
    found, _ = everything(MomentShrinkage(), under_a_known_parent(clicks, shown, 34.0, rate), BELOW)
    raw = np.clip(clicks / np.where(shown > 0, shown, np.inf), 0, 1)
    assert np.sqrt(np.mean((found[:, 0] - truth) ** 2)) < 0.098
    assert np.sqrt(np.mean((raw - truth) ** 2)) > 0.23


@pytest.mark.parametrize(
    "noise", [EXACT, Noise(20.0), Noise(20.0, totals=True), Noise(0.0, totals=True)], ids=str
)
def test_the_corrected_spread_is_the_one_drawn_with(noise: Noise) -> None:
    """Four contexts to a group: uncorrected, their common mean hides a good part of the spread.

    Between seeds, the corrected spread has a standard deviation of .00013 to .00023 (.00056 for contexts from
    noisy totals), measured over 12; the mean of 8 is held to 15 %, which is 3 standard errors of the widest.
    """
    corrected, measured = [], []
    for seed in range(8):
        counts, _ = drawn(np.random.default_rng(seed), spread_children(0.004), 0.3, flat, noise)
        measured.append(measured_spread(counts))
        corrected.append(corrected_spread(counts, measured[-1]))
    for levels in (CONTEXT, GROUP):
        assert np.mean([each[levels] for each in corrected]) == pytest.approx(0.004, rel=0.15)
    assert np.mean([each[CONTEXT] for each in measured]) < 0.0032


def test_equal_rates_have_no_spread_and_take_the_parent_s() -> None:
    counts = under_a_known_parent(np.full(50, 20.0), np.full(50, 100.0), 0.0, 0.2)
    rate, variance = everything(MomentShrinkage(), counts, BELOW)
    assert measured_spread(counts)[BELOW] == 0.0
    assert_allclose(rate, 0.2, rtol=1e-6)
    assert_allclose(variance, 0.0, atol=1e-9)


def test_pairs_are_measured_some_at_a_time_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    for noise in (EXACT, Noise(0.0, totals=True)):
        counts, _ = drawn(rng, spread_children(0.004), 0.3, flat, noise, ads=30)
        whole = corrected_spread(counts, measured_spread(counts))
        monkeypatch.setattr(spread_module, "PAIRS_AT_ONCE", 70)
        pieces = corrected_spread(counts, measured_spread(counts))
        monkeypatch.undo()
        assert_allclose([pieces[each] for each in CHAIN], [whole[each] for each in CHAIN], rtol=1e-9)


def test_zeros_that_are_not_listed_count_where_counts_are_exact() -> None:
    """Totals only: dropping the ads without a click at the top must change nothing."""
    rng = np.random.default_rng(3)
    rate = np.full((6, 40), 0.002)
    shown = np.full((6, 40), 300)
    listed = level_counts(ABOVE, rng.binomial(shown, rate), shown, Noise(totals=True), rng)
    kept = listed.clicks > 0
    offsets = np.concatenate([[0], np.cumsum(np.bincount(listed.entry_node[kept], minlength=6))])
    sparse = LevelCounts(ABOVE, 6, 40, listed.total, offsets, listed.ad[kept], listed.clicks[kept])
    assert 0 < kept.sum() < kept.size
    dense_counts, sparse_counts = (Counts((ABOVE,), {ABOVE: each}, {}) for each in (listed, sparse))
    for measure in (measured_spread, lambda counts: corrected_spread(counts, measured_spread(counts))):
        assert measure(sparse_counts)[ABOVE] == pytest.approx(measure(dense_counts)[ABOVE], rel=1e-9, abs=1e-15)
    assert_allclose(
        everything(MomentShrinkage(), sparse_counts, ABOVE), everything(MomentShrinkage(), dense_counts, ABOVE)
    )


def test_the_spread_of_counts_is_measured_once_and_forgotten_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def counted(counts: Counts) -> spread_module.LevelSpreads:
        measured.append(id(counts))
        return measured_spread(counts)

    monkeypatch.setattr(spread_module, "measured_spread", counted)
    one, other = (
        drawn(np.random.default_rng(seed), spread_children(0.004), 0.3, flat, ads=20)[0] for seed in (0, 1)
    )
    for counts in (one, other, one):
        everything(MomentShrinkage(), counts, CONTEXT)
    assert measured == [id(one), id(other)]
    plain = everything(MomentShrinkage(corrected=False), one, CONTEXT)
    assert measured == [id(one), id(other), id(one)]  # another question, not the answer that is kept
    assert not np.array_equal(plain, everything(MomentShrinkage(), one, CONTEXT))
    gone = ref(one)
    del one, counts
    assert gone() is None


def test_a_spread_may_be_given() -> None:
    counts, _ = drawn(np.random.default_rng(0), spread_children(0.004), 0.3, flat, ads=20)
    fitted = MomentShrinkage(spread=corrected_spread(counts, measured_spread(counts)))
    assert_allclose(everything(fitted, counts, CONTEXT), everything(MomentShrinkage(), counts, CONTEXT))
    with pytest.raises(BadInput, match="expected a spread for every level"):
        everything(MomentShrinkage(spread={CONTEXT: 0.1}), counts, CONTEXT)


def test_a_level_that_is_all_noise_does_not_hide_the_spread_above_it() -> None:
    """24 ads, 12 contexts, 192 below them with three impressions an ad each, and noise of sd 8 on every count.

    Below, both sums are noise, and their ratio anything; as a spread it took what ads differ by for itself.
    """
    top, middle, finest = ((2,), (1,), (0,))
    ads, sd, rng = 24, 8.0, np.random.default_rng(3)
    parent: dict[tuple[Levels, Levels], Integers] = {
        (finest, middle): np.repeat(np.arange(12), 16),
        (middle, top): np.zeros(12, np.int64),
    }
    for _ in range(20):
        rates = np.clip(rng.normal(0.065, 0.038, ads), 0.01, 0.3)
        clicks = rng.binomial(3, np.tile(rates, (192, 1))).astype(float)
        others = 3.0 - clicks
        by_level: dict[Levels, LevelCounts] = {}
        for levels, group in ((finest, 1), (middle, 16), (top, 192)):
            counted = [each.reshape(-1, group, ads).sum(axis=1) for each in (clicks, others)]
            noisy = [each + rng.normal(0, sd, each.shape) for each in counted]
            nodes = 192 // group
            by_level[levels] = LevelCounts(
                levels, nodes, ads, np.full(nodes, 3.0 * ads * group), np.arange(nodes + 1) * ads,
                np.tile(np.arange(ads), nodes), noisy[0].ravel(), (noisy[0] + noisy[1]).ravel(), sd,
            )  # fmt: skip
        counts = Counts((finest, middle, top), by_level, parent)
        spread = corrected_spread(counts, measured_spread(counts))
        assert spread[finest] == 0.0
        assert 0.3 < spread[top] / rates.var() < 3.0
