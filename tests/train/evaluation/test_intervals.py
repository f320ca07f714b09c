"""Intervals hold the truth as often as they say, and do not where what they rest on is left out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from tacit.errors import BadInput
from tacit.train.evaluation import measures
from tacit.train.evaluation.intervals import MeasuredValue, mean_difference_over_seeds, mean_over_seeds
from tacit.train.evaluation.measures import Outcomes, auc
from tacit.train.evaluation.report import (
    Evaluation,
    evaluate,
    evaluate_outcomes,
    reliability_table,
)
from tests.support.exact_tests import ALPHA

Floats = NDArray[np.float64]
TRIALS, TWINS = 600, 300  # half the trials see twins that cover 75%, with a chance of .998
CLAIMED = 0.95
NAMES = ("auc_loss", "log_loss", "calibration_ratio", "relative_auc_loss_percent", "log_loss_difference")


def assert_covers(hits: int, trials: int = TRIALS) -> None:
    """Intervals are asymptotic: the claim is a coverage of 93 to 97%; a false alarm has probability ALPHA."""
    assert binom.cdf(hits, trials, CLAIMED - 0.02) >= ALPHA, f"covered {hits} of {trials}"
    assert binom.sf(hits - 1, trials, CLAIMED + 0.02) >= ALPHA, f"covered {hits} of {trials}"


def world(rng: np.random.Generator, groups: int, per_group: int) -> tuple[Floats, Floats, Floats, Floats]:
    """True probability, a model that sees a part of it, one that sees less, and which rows share all of it."""
    x = np.repeat(rng.normal(size=groups), per_group)
    unseen = np.repeat(rng.normal(size=groups), per_group)
    truth, seen = expit(1.8 * x + unseen - 2), expit(1.6 * x - 1.8)
    return truth, seen, expit(x + 0.7 * np.sin(9 * x) - 2), np.repeat(np.arange(groups), per_group)


@pytest.fixture(scope="module")
def truths() -> dict[str, float]:
    """The figures of 500,000 rows without labels' noise: within a fiftieth of an interval of the limit."""
    truth, seen, less, _ = world(np.random.default_rng(11), 500_000, 1)
    figures = evaluate_outcomes(Outcomes.of_probabilities(truth), less, seen).figures()
    return {name: figures[name].value for name in NAMES}


def hits(
    groups: int,
    per_group: int,
    truths: dict[str, float],
    measure: Callable[[Floats, Floats, Floats, Floats], Evaluation],
    trials: int = TRIALS,
) -> dict[str, int]:
    """How often each interval held the truth, in fresh logs."""
    rng = np.random.default_rng(12)
    counts = dict.fromkeys(NAMES, 0)
    for _ in range(trials):
        truth, seen, less, cluster = world(rng, groups, per_group)
        label = (rng.random(len(truth)) < truth).astype(float)
        figures = measure(label, less, seen, cluster).figures()
        for name in NAMES:
            counts[name] += figures[name].low <= truths[name] <= figures[name].high
    return counts


def test_intervals_cover(truths: dict[str, float]) -> None:
    found = hits(600, 1, truths, lambda y, p, base, _: evaluate(y, p, baseline=base))
    for name in NAMES:
        assert_covers(found[name])


def test_intervals_of_clusters_cover_and_those_of_their_rows_do_not(
    truths: dict[str, float],
) -> None:
    found = hits(200, 8, truths, lambda y, p, base, users: evaluate(y, p, baseline=base, clusters=users))
    for name in NAMES:
        assert_covers(found[name])
    blind = hits(200, 8, truths, lambda y, p, base, _: evaluate(y, p, baseline=base), TWINS)
    for name in ("auc_loss", "log_loss", "calibration_ratio"):
        with pytest.raises(AssertionError, match="covered"):
            assert_covers(blind[name], TWINS)


def test_intervals_from_flipped_labels_cover_and_those_from_reports_do_not(
    truths: dict[str, float],
) -> None:
    rng = np.random.default_rng(13)

    def reported(label: Floats) -> tuple[Floats, Floats]:
        keep = np.where(rng.random(len(label)) < 0.5, 0.95, 0.85)
        return np.where(rng.random(len(label)) < keep, label, 1 - label), keep

    found = hits(
        2000, 1, truths, lambda y, p, base, _: evaluate_outcomes(Outcomes.of_flipped(*reported(y)), p, base)
    )
    for name in NAMES:
        assert_covers(found[name])
    naive = hits(2000, 1, truths, lambda y, p, base, _: evaluate(reported(y)[0], p, baseline=base), TWINS)
    for name in ("auc_loss", "log_loss", "calibration_ratio"):
        with pytest.raises(AssertionError, match="covered"):
            assert_covers(naive[name], TWINS)


def test_expected_figures_have_far_narrower_intervals_and_cover(truths: dict[str, float]) -> None:
    rng = np.random.default_rng(14)
    held = 0
    for _ in range(TRIALS):
        truth, _, less, _ = world(rng, 600, 1)
        narrow = evaluate_outcomes(Outcomes.of_probabilities(truth), less).auc_loss
        held += narrow.low <= truths["auc_loss"] <= narrow.high
    assert_covers(held)
    label = rng.random(600) < truth
    wide = evaluate(label, less).auc_loss
    assert narrow.high - narrow.low < 0.7 * (wide.high - wide.low)


def test_a_weight_makes_flipped_rows_count_by_it() -> None:
    rng = np.random.default_rng(15)
    truth, seen, _, _ = world(rng, 100_000, 1)
    label = (rng.random(len(truth)) < truth).astype(float)
    keep = np.where(seen > 0.2, 0.9, 0.55)  # not independent of the prediction, so the population shifts
    report = np.where(rng.random(len(truth)) < keep, label, 1 - label)
    weight = (2 * keep - 1) ** 2
    plain = evaluate_outcomes(Outcomes.of_flipped(report, keep), seen).auc_loss
    weighed = evaluate_outcomes(Outcomes.of_flipped(report, keep, weight=weight), seen).auc_loss
    assert plain.low < evaluate(label, seen).auc_loss.value < plain.high
    # Rows with keep 0.9 count 64 times those with 0.55.
    times = np.where(seen > 0.2, 64, 1)
    target = 1 - auc(np.repeat(label, times), np.repeat(seen, times))
    assert weighed.low < target < weighed.high
    assert not weighed.low < evaluate(label, seen).auc_loss.value < weighed.high
    assert weighed.high - weighed.low < (plain.high - plain.low) / 2


# Exact values


def test_a_weight_counts_in_calibration_on_both_sides() -> None:
    """Labels that are not flipped at all, so that weights are all there is: whole weights are rows repeated."""
    label, probability, weight = (
        np.tile(row, 20) for row in ([0, 1, 0, 1, 1, 0], [0.2, 0.9, 0.4, 0.3, 0.6, 0.1], [1, 2, 5, 1, 3, 4])
    )
    found = evaluate_outcomes(Outcomes.of_flipped(label, 1.0, weight=weight), probability).calibration_ratio
    repeated = evaluate(np.repeat(label, weight), np.repeat(probability, weight)).calibration_ratio
    assert found.value == pytest.approx(repeated.value, rel=1e-12)
    assert found.value == pytest.approx((weight @ probability) / (weight @ label), rel=1e-12)
    assert found.value != pytest.approx(probability.sum() / label.sum(), rel=0.05), "weights matter here"
    assert found.value != pytest.approx(probability.sum() / (weight @ label), rel=0.05)
    bins = reliability_table(Outcomes.of_flipped(label, 1.0, weight=weight), probability, bins=1)
    assert bins[0].predicted == pytest.approx(weight @ probability / weight.sum(), rel=1e-12)
    assert bins[0].observed.value == pytest.approx(weight @ label / weight.sum(), rel=1e-12)


def test_figures_by_hand() -> None:
    label, probability, baseline = [0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8], [0.1, 0.8, 0.4, 0.4]
    found = evaluate(label, probability, baseline=baseline)
    assert found.auc.value == 0.875
    assert found.auc_loss.value == 0.125
    assert found.log_loss.value == pytest.approx(-np.log([0.9, 0.6, 0.4, 0.8]).mean())
    assert found.calibration_ratio.value == pytest.approx(1.7 / 2)
    assert found.relative_auc_loss_percent is not None
    assert found.relative_auc_loss_percent.value == pytest.approx(100 * (0.125 / 0.5 - 1))
    assert found.auc_difference is not None
    assert found.auc_difference.value == pytest.approx(0.375)


def test_log_loss_is_clipped_where_it_says() -> None:
    outcomes = Outcomes.of_labels([1, 0, 1, 0])
    assert measures.log_loss(outcomes, [0.0, 1.0, 0.0, 1.0]).value == pytest.approx(-np.log(1e-7))
    assert measures.log_loss(outcomes, [1.0, 0.0, 1.0, 0.0]).value == pytest.approx(1e-7, rel=1e-6)


def test_a_perfect_ranking_is_not_a_certain_one() -> None:
    label, score = np.r_[np.zeros(50), np.ones(20)], np.r_[np.full(50, 0.2), np.full(20, 0.7)]
    found = measures.auc_loss(Outcomes.of_labels(label), score)
    # Twenty pairs with nothing in common were in order, which has probability 2.5% at this loss.
    assert (found.value, found.low) == (0, 0)
    assert (1 - found.high) ** 20 == pytest.approx(0.025)
    assert measures.auc_loss(Outcomes.of_labels(label), -score).low == pytest.approx(1 - found.high)
    noisy = np.r_[score[:49], 0.9, score[50:]]
    change = measures.relative_auc_loss_percent(Outcomes.of_labels(label), score, noisy)
    assert (change.value, change.low) == (-100, -100)
    assert change.high > -100
    users = np.arange(70) // 10  # seven users, no row of one beside another's
    assert measures.auc_loss(Outcomes.of_labels(label, clusters=users), score).high == pytest.approx(
        1 - 0.025 ** (1 / 2)
    )


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 0.999))
def test_an_interval_holds_its_value_and_grows_with_its_level(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    label = np.r_[0, 1, 0, 1, rng.integers(0, 2, 30)]
    probability, baseline = rng.random((2, 34))
    narrow = evaluate(label, probability, baseline=baseline, level=level / 2).figures()
    wide = evaluate(label, probability, baseline=baseline, level=level).figures()
    for name, inner in narrow.items():
        outer = wide[name]
        assert outer.low <= inner.low <= inner.value <= inner.high <= outer.high
    assert wide["auc"].low >= 0
    assert wide["auc"].high <= 1


def test_the_same_model_twice_differs_by_nothing() -> None:
    rng = np.random.default_rng(16)
    label, probability = rng.integers(0, 2, 100), rng.random(100)
    found = evaluate(label, probability, baseline=probability)
    for name in ("relative_auc_loss_percent", "auc_difference", "log_loss_difference"):
        measured = found.figures()[name]
        assert (measured.value, measured.low, measured.high) == pytest.approx((0, 0, 0), abs=1e-12)


# Seeds


def test_paired_seeds_is_students_interval() -> None:
    # Student's quantile for 95% and two degrees of freedom is 4.302652729911275.
    found = mean_difference_over_seeds([3.0, 4.0, 5.0], [1.0, 3.0, 2.0])
    assert (found.value, found.level) == (2, 0.95)
    assert found.high - found.value == pytest.approx(4.302652729911275 / np.sqrt(3))
    assert found == mean_over_seeds([2.0, 1.0, 3.0])


def test_paired_seeds_cover_and_a_normal_quantile_would_not() -> None:
    rng = np.random.default_rng(17)
    found = [mean_over_seeds(rng.normal(size=3)) for _ in range(TRIALS)]
    held = sum(each.low <= 0 <= each.high for each in found)
    assert_covers(held)
    narrowed = 1.96 / 4.302652729911275
    with pytest.raises(AssertionError, match="covered"):
        assert_covers(sum(abs(each.value) <= narrowed * (each.high - each.value) for each in found))


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([1.0], [2.0], "at least two seeds"),
        ([1.0, 2.0], [1.0], "expected b to have 2 rows"),
        ([1.0, np.nan], [1.0, 2.0], "expected a to be finite"),
    ],
)
def test_seeds_that_cannot_be_compared_are_refused(a: list[float], b: list[float], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        mean_difference_over_seeds(a, b)


def test_a_level_outside_0_to_1_is_refused() -> None:
    with pytest.raises(BadInput, match=r"level in \(0, 1\)"):
        evaluate([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], level=95)


def test_a_figure_reads_well() -> None:
    assert str(MeasuredValue(0.123456, 0.1, 0.2, 0.95)) == "0.1235 [0.1, 0.2]"
