"""Figures from positives by score bin, against those from the labels themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binomtest

from tacit.cleanroom.platform.metrics import BinPositives, RoomMetrics, ScoreBins, compute_metrics
from tacit.errors import BadInput
from tacit.train.evaluation import measures
from tacit.train.evaluation.measures import Outcomes, auc
from tacit.train.evaluation.measures import auc_value as auc_of

KEEP = math.exp(3) / (1 + math.exp(3))


def world(rows: int, seed: int = 0, rate: float = -2.0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    draw = np.random.default_rng(seed)
    logits = rate + 1.2 * draw.standard_normal(rows)
    return logits, (draw.random(rows) < expit(logits)).astype(np.int64)


def told(bins: ScoreBins, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.bincount(bins.cell, labels, minlength=len(bins)).astype(np.float64)


def flipped(labels: NDArray[np.int64], draw: np.random.Generator, keep: float = KEEP) -> NDArray[np.int64]:
    return np.where(draw.random(len(labels)) < keep, labels, 1 - labels)


def test_without_noise_and_with_fine_bins_all_figures_are_exact() -> None:
    logits, labels = world(3000)
    bins = ScoreBins.of(logits, bins=3000)
    found = compute_metrics(bins, BinPositives(told(bins, labels)))
    assert found.auc is not None
    assert found.calibration is not None
    assert found.auc.value == pytest.approx(auc(labels, logits), abs=1e-12)
    assert found.calibration.value == pytest.approx(expit(logits).sum() / labels.sum(), rel=1e-12)
    assert found.log_loss.value == pytest.approx(np.mean(np.logaddexp(0, logits) - labels * logits), rel=1e-12)
    assert (found.positives.low, found.positives.high) == (labels.sum(), labels.sum())


def test_intervals_without_noise_are_those_of_the_labels() -> None:
    logits, labels = world(3000)
    bins, outcomes = ScoreBins.of(logits, bins=3000), Outcomes.of_labels(labels)
    found = compute_metrics(bins, BinPositives(told(bins, labels)))
    assert found.auc is not None
    assert found.calibration is not None
    slow = measures.auc_loss(outcomes, logits)
    assert found.auc.low == pytest.approx(1 - slow.high, abs=2e-4)  # Student's t and n - 1 there, normal here
    assert found.auc.high == pytest.approx(1 - slow.low, abs=2e-4)
    ratio = measures.calibration_ratio(outcomes, expit(logits))
    assert found.calibration.low == pytest.approx(ratio.low, rel=2e-3)
    assert found.calibration.high == pytest.approx(ratio.high, rel=2e-3)
    loss = measures.log_loss(outcomes, expit(logits))
    assert found.log_loss.high - found.log_loss.low == pytest.approx(loss.high - loss.low, rel=5e-3)


def test_64_bins_lose_little() -> None:
    logits, labels = world(20_000)
    bins = ScoreBins.of(logits)
    assert len(bins) == 64
    found = compute_metrics(bins, BinPositives(told(bins, labels)))
    assert found.auc is not None
    assert found.auc.value == pytest.approx(auc(labels, logits), abs=5e-4)
    assert found.log_loss.value == pytest.approx(np.mean(np.logaddexp(0, logits) - labels * logits), abs=1e-3)


def test_flips_are_undone_exactly_as_row_by_row() -> None:
    """With a bin for each row, the debiased AUC is that of `train.evaluation`, to the last digits."""
    logits, labels = world(4000)
    reports = flipped(labels, np.random.default_rng(1))
    bins = ScoreBins.of(logits, bins=4000)
    found = compute_metrics(bins, BinPositives(told(bins, reports), keep=KEEP))
    assert found.auc is not None
    assert found.auc.value == pytest.approx(auc_of(Outcomes.of_flipped(reports, KEEP), logits), abs=1e-12)
    biased = compute_metrics(bins, BinPositives(told(bins, reports))).auc
    assert biased is not None
    assert biased.value < found.auc.value - 0.03  # what not undoing them would give


def test_flips_and_noise_are_unbiased_over_many_draws() -> None:
    """Means over 400 draws within 4.5 standard errors (a false alarm in 10^5, and the seed is fixed)."""
    logits, labels = world(3000)
    bins = ScoreBins.of(logits, bins=16)
    exact = compute_metrics(bins, BinPositives(told(bins, labels)))
    assert exact.auc is not None
    draw, by_kind = np.random.default_rng(2), {"flips": [], "noise": []}  # type: ignore[var-annotated]
    for _ in range(400):
        of_flips = BinPositives(told(bins, flipped(labels, draw)), keep=KEEP)
        of_noise = BinPositives(told(bins, labels) + 5 * draw.standard_normal(len(bins)), noise_stddev=5.0)
        for kind, positives in (("flips", of_flips), ("noise", of_noise)):
            found = compute_metrics(bins, positives)
            assert found.auc is not None
            by_kind[kind].append((found.auc.value, found.positives.value, found.log_loss.value))
    for found_values in by_kind.values():
        values = np.array(found_values)
        off = values.mean(axis=0) - (exact.auc.value, exact.positives.value, exact.log_loss.value)
        assert (np.abs(off) < 4.5 * values.std(axis=0) / 20 + [2e-4, 0, 0]).all(), off  # a ratio's own bias


@pytest.mark.parametrize(("keep", "noise"), [(KEEP, 0.0), (1.0, 4.0), (1.0, 0.0)])
def test_intervals_hold_the_truth_as_often_as_they_say(keep: float, noise: float) -> None:
    """95% intervals over 300 fresh worlds: the exact binomial test at 1e-6 accepts 88 to 99%, not 80%."""
    draw, hits = np.random.default_rng(3), {"auc": 0, "calibration": 0, "log_loss": 0}
    wide_logits, wide_labels = world(400_000, seed=9)
    true_auc = auc(wide_labels, wide_logits)
    true_loss = float(np.mean(np.logaddexp(0, wide_logits) - expit(wide_logits) * wide_logits))
    for trial in range(300):
        logits, labels = world(3000, seed=100 + trial)
        bins = ScoreBins.of(logits, bins=48)
        counts = told(bins, flipped(labels, draw, keep)) + noise * draw.standard_normal(len(bins))
        found = compute_metrics(bins, BinPositives(counts, keep, noise))
        assert found.auc is not None
        assert found.calibration is not None
        hits["auc"] += found.auc.low <= true_auc <= found.auc.high
        hits["calibration"] += found.calibration.low <= 1 <= found.calibration.high
        hits["log_loss"] += found.log_loss.low <= true_loss <= found.log_loss.high
    for name, held in hits.items():
        assert binomtest(held, 300, 0.95).pvalue > 1e-6, (name, held)
    assert binomtest(240, 300, 0.95).pvalue < 1e-6  # intervals that forgot the noise would be noticed


def test_where_the_noise_is_louder_there_is_no_figure() -> None:
    logits, labels = world(500)
    bins = ScoreBins.of(logits, bins=10)
    found = compute_metrics(bins, BinPositives(told(bins, labels), noise_stddev=100.0))
    assert found.auc is None
    assert found.calibration is None
    assert found.positives.high - found.positives.low > 1000
    assert isinstance(found, RoomMetrics)
    assert found.as_json()["auc"] is None


def test_predictions_that_differ_within_a_bin_widen_the_calibration() -> None:
    """One bin, and labels that have nothing to do with the scores: the interval of row by row, with no part
    of it lost. What chance correlates of them is of order 1 / sqrt(4000)."""
    draw = np.random.default_rng(4)
    logits, labels = 3 * draw.standard_normal(4000), draw.integers(0, 2, 4000)
    bins = ScoreBins.of(logits, bins=1)
    found = compute_metrics(bins, BinPositives(told(bins, labels))).calibration
    slow = measures.calibration_ratio(Outcomes.of_labels(labels), expit(logits))
    assert found is not None
    assert found.high - found.low == pytest.approx(slow.high - slow.low, rel=0.03)


def test_equal_scores_share_a_bin_and_order_does_not_matter() -> None:
    logits = np.repeat([0.5, -1.0, 2.0], [5, 3, 4])
    bins = ScoreBins.of(logits, bins=64)
    assert len(bins) == 3
    assert bins.rows.tolist() == [3, 5, 4]
    again = ScoreBins.of(logits[::-1], bins=64)
    assert again.cell[::-1].tolist() == bins.cell.tolist()


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(BadInput, match="finite logit"):
        ScoreBins.of(np.array([0.0, np.nan]))
    with pytest.raises(BadInput, match="keep"):
        BinPositives(np.zeros(3), keep=0.5)
    with pytest.raises(BadInput, match="2 bins"):
        compute_metrics(ScoreBins.of(np.array([0.0, 1.0])), BinPositives(np.zeros(3)))
