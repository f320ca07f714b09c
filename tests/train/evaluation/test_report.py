"""The report as a whole, the reliability table, and every way in which columns can be wrong."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.errors import BadInput
from tacit.train.evaluation.measures import Outcomes
from tacit.train.evaluation.report import (
    evaluate,
    evaluate_outcomes,
    evaluate_values,
    reliability_table,
)
from tests.support.exact_tests import ALPHA

LABEL, PROBABILITY = [0, 1, 0, 1, 0], [0.1, 0.6, 0.3, 0.2, 0.3]


def test_json_and_table_name_every_figure_that_was_measured() -> None:
    alone = evaluate(LABEL, PROBABILITY)
    record = json.loads(json.dumps(alone.as_json()))
    assert list(record) == [
        "measured_on", "rows", "clusters", "positive_rate", "auc", "auc_loss", "log_loss", "calibration_ratio",
    ]  # fmt: skip
    assert (record["measured_on"], record["rows"], record["clusters"]) == ("labels", 5, None)
    assert set(record["auc"]) == {"value", "low", "high", "level"}
    assert [row[0] for row in alone.table()] == ["AUC", "AUC loss", "log loss", "predicted / observed"]
    compared = evaluate(LABEL, PROBABILITY, baseline=PROBABILITY[::-1], clusters=["a", "b", "c", "d", "e"])
    assert compared.clusters == 5
    assert set(compared.as_json()) - set(record) == {
        "relative_auc_loss_percent", "auc_difference", "log_loss_difference",
    }  # fmt: skip
    assert len(compared.table()) == 7


def test_labels_that_were_never_flipped_give_what_labels_give() -> None:
    rng = np.random.default_rng(1)
    probability = rng.random(400)
    label = (rng.random(400) < probability).astype(int)
    known = evaluate(label, probability)
    flipped = evaluate_outcomes(Outcomes.of_flipped(label, 1.0), probability)
    certain = evaluate_outcomes(Outcomes.of_probabilities(label), probability)
    assert (known.known, flipped.known, certain.known) == ("labels", "flipped labels", "known probabilities")
    for name, measured in known.figures().items():
        for other in (flipped, certain):
            assert other.figures()[name].value == pytest.approx(measured.value)
            assert other.figures()[name].high == pytest.approx(measured.high, rel=1e-3)


def test_types_of_every_kind_are_read_alike() -> None:
    single = np.array(PROBABILITY, dtype=np.float32)
    for label in (np.array(LABEL, dtype=bool), np.array(LABEL, dtype=np.uint8), np.array(LABEL, dtype=float)):
        assert evaluate(label, single) == evaluate(LABEL, single)


MANY = np.tile([0, 1], 500)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"label": []}, "expected label to have rows, got none"),
        ({"label": [1] * 5}, "expected labels of both classes, got no negative among 5 rows"),
        ({"label": [0, 1, 0, 1, 7]}, "expected label to be 0 or 1, got other values in 1 of 5 rows"),
        ({"label": [0, 1, 0, 1, np.nan]}, "expected label to be finite, got NaN"),
        ({"label": [0, 1, 0, 0, 0]}, "expected at least two rows with a positive for an interval, got 1"),
        ({"probability": [0.5] * 4}, "expected probability to have 5 rows like the labels, got 4"),
        (
            {"probability": [0.5, 0.5, 0.5, 0.5, np.nan]},
            "expected probability to be finite, got NaN or infinity",
        ),
        (
            {"probability": [0.5, 0.5, 0.5, 0.5, 1.01]},
            "expected probability in [0, 1], got 1 of 5 rows outside",
        ),
        ({"baseline": [0.5, 0.5]}, "expected baseline to have 5 rows like the labels, got 2"),
        ({"baseline": LABEL}, "expected a baseline with some AUC loss, got one that ranks perfectly here"),
        ({"clusters": [1, 2]}, "expected clusters to have 5 rows like the labels, got shape (2,)"),
        ({"clusters": [1, 2, 3, 4, np.nan]}, "expected a cluster for every row, got NaN"),
        ({"clusters": ["a"] * 5}, "expected at least two clusters for an interval, got 1"),
        ({"level": 1.0}, "expected level in (0, 1), got 1.0"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused_in_one_line(wrong: dict[str, Any], words: str) -> None:
    columns = {"label": LABEL, "probability": PROBABILITY, **wrong}
    with pytest.raises(BadInput) as refused:
        evaluate(columns.pop("label"), columns.pop("probability"), **columns)
    assert str(refused.value).startswith(words)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("report", "keep", "wrong", "words"),
    [
        (MANY, 0.5, {}, "expected keep_probability above 1/2, got a row whose report tells nothing"),
        (MANY, 1.5, {}, "expected keep_probability in [0, 1]"),
        (MANY, [0.9, 0.9], {}, "expected keep_probability to have 1000 rows like the labels, got 2"),
        (MANY, 0.9, {"weight": np.zeros(1000)}, "expected weight > 0 in every row"),
        ([1], 0.9, {}, "expected at least two rows for an interval, got 1"),
        (np.r_[np.ones(100), np.zeros(900)], 0.9, {}, "expected positives to stand out from the flips by 3"),
        (np.ones(1000), 1.0, {}, "expected negatives to stand out from the flips by 3"),
        (MANY, 0.7, {"baseline": MANY}, "expected a baseline whose AUC loss stands out from the flips by 3"),
    ],
)
def test_reports_that_tell_too_little_are_refused(
    report: Any, keep: Any, wrong: dict[str, Any], words: str
) -> None:
    weight, baseline, probability = wrong.get("weight"), wrong.get("baseline"), np.linspace(0, 1, len(report))
    with pytest.raises(BadInput) as refused:
        evaluate_outcomes(Outcomes.of_flipped(report, keep, weight=weight), probability, baseline)
    assert str(refused.value).startswith(words)
    assert "\n" not in str(refused.value)


# Reliability


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=60), st.integers(1, 12))
def test_every_row_is_in_one_bin_and_equal_predictions_share_theirs(
    rows: list[tuple[int, int]], bins: int
) -> None:
    probability, label = (
        np.array([p / 10 for p, _ in rows] + [0.05] * 2),
        np.array([y for _, y in rows] + [0, 1]),
    )
    table = reliability_table(Outcomes.of_labels(label), probability, bins=bins)
    assert 1 <= len(table) <= bins
    assert sum(each.rows for each in table) == len(label)
    assert all(one.highest < other.lowest for one, other in pairwise(table))
    for each in table:
        inside = (probability >= each.lowest) & (probability <= each.highest)
        assert each.rows == inside.sum()
        assert each.observed.value == pytest.approx(label[inside].mean())
        assert each.predicted == pytest.approx(probability[inside].mean())
        assert 0 <= each.observed.low <= each.observed.value + 1e-12
        assert each.observed.value - 1e-12 <= each.observed.high <= 1


def test_bins_hold_about_as_many_rows_each() -> None:
    probability = np.random.default_rng(2).random(1000)
    table = reliability_table(Outcomes.of_labels(np.tile([0, 1], 500)), probability)
    assert [each.rows for each in table] == [100] * 10


def test_the_interval_of_a_bin_is_wilsons() -> None:
    # Wilson's interval for 0 of 10 at z = 1.96 ends at 0.2775; Student's quantile for 9 is 2.262, which gives
    # z^2 / (10 + z^2).
    label = np.r_[np.zeros(10), np.ones(10)]
    low, _ = reliability_table(Outcomes.of_labels(label), np.r_[np.full(10, 0.1), np.full(10, 0.8)], bins=2)
    z_squared = 2.2621571628540993**2
    assert (low.observed.low, low.observed.high) == pytest.approx((0, z_squared / (10 + z_squared)))


def test_bins_cover_what_happens_and_flipped_labels_are_undone() -> None:
    rng = np.random.default_rng(3)
    trials, held, held_flipped, naive = 100, 0, 0, 0
    for _ in range(trials):
        probability = np.repeat(rng.random(200) ** 2, 10)
        users = np.repeat(np.arange(200), 10)
        label = (rng.random(2000) < probability).astype(float)
        report = np.where(rng.random(2000) < 0.8, label, 1 - label)
        for each in reliability_table(Outcomes.of_labels(label, clusters=users), probability, bins=5):
            held += each.observed.low <= each.predicted <= each.observed.high
        for each in reliability_table(Outcomes.of_flipped(report, 0.8), probability, bins=5):
            held_flipped += each.observed.low <= each.predicted <= each.observed.high
        for each in reliability_table(Outcomes.of_labels(report), probability, bins=5):
            naive += each.observed.low <= each.predicted <= each.observed.high
    # Rows of a bin are independent given the predictions, and bins of each other, so the tail is binomial.
    assert binom.cdf(held, 5 * trials, 0.93) >= ALPHA
    assert binom.cdf(held_flipped, 5 * trials, 0.93) >= ALPHA
    assert binom.cdf(naive, 5 * trials, 0.93) < ALPHA


def test_a_table_goes_into_json() -> None:
    table = reliability_table(Outcomes.of_labels(LABEL), PROBABILITY, bins=2)
    record = json.loads(json.dumps([each.as_json() for each in table]))
    assert [each["rows"] for each in record] == [2, 3]
    assert set(record[0]["observed"]) == {"value", "low", "high", "level"}
    with pytest.raises(BadInput, match="bins to be a whole number >= 1"):
        reliability_table(Outcomes.of_labels(LABEL), PROBABILITY, bins=0)


def test_figures_of_values_are_those_of_the_textbook() -> None:
    draw = np.random.default_rng(3)
    value = draw.gamma(2.0, 10.0, 4000)
    predicted, other = 0.9 * value + draw.normal(0, 4, 4000), np.full(4000, value.mean())
    found = evaluate_values(value, predicted, baseline=other)
    squares = (predicted - value) ** 2
    assert found.mean_squared_error.value == pytest.approx(squares.mean())
    spread = squares.std(ddof=1) / np.sqrt(4000)
    reach = np.log(found.mean_squared_error.high / found.mean_squared_error.value) * squares.mean()
    assert reach == pytest.approx(1.9605 * spread, rel=1e-3)
    assert found.explained.value == pytest.approx(1 - squares.mean() / value.var())
    assert found.calibration_ratio.value == pytest.approx(predicted.mean() / value.mean())
    assert found.mean_squared_error_difference is not None
    assert found.mean_squared_error_difference.value == pytest.approx(squares.mean() - value.var())
    guess = evaluate_values(value, other)
    assert guess.explained.value == pytest.approx(0, abs=1e-12)
    assert guess.mean_squared_error_difference is None
    record = json.loads(json.dumps(found.as_json()))
    assert (record["measured_on"], record["rows"], record["clusters"]) == ("labels", 4000, None)
    assert found.table()[0][0] == "mean squared error"


def test_intervals_of_values_hold_the_truth_about_as_often_as_they_say() -> None:
    draw, held = np.random.default_rng(8), {"error": 0, "ratio": 0, "explained": 0}
    for _ in range(400):
        value = draw.normal(5, 2, 300)
        found = evaluate_values(value, 4.5 + 0.8 * (value - 5) + draw.normal(0, 1, 300))
        # E (predicted - value)^2 = .5^2 + .2^2 4 + 1; the variance is 4; the means are 4.5 and 5.
        held["error"] += found.mean_squared_error.low <= 1.41 <= found.mean_squared_error.high
        held["ratio"] += found.calibration_ratio.low <= 0.9 <= found.calibration_ratio.high
        held["explained"] += found.explained.low <= 1 - 1.41 / 4 <= found.explained.high
    for count in held.values():
        assert binom.ppf(ALPHA, 400, 0.93) <= count <= binom.isf(ALPHA, 400, 0.97)


def test_values_by_clusters_are_wider_where_rows_repeat() -> None:
    draw = np.random.default_rng(2)
    value, predicted = draw.normal(5, 2, 200), draw.normal(5, 2, 200)
    once = evaluate_values(value, predicted)
    twice = evaluate_values(np.tile(value, 2), np.tile(predicted, 2), clusters=np.tile(np.arange(200), 2))
    assert twice.clusters == 200
    assert twice.mean_squared_error.high == pytest.approx(once.mean_squared_error.high)


@pytest.mark.parametrize(
    ("value", "predicted", "message"),
    [
        ([1.0, 1.0], [0.5, 0.4], "expected values that differ, and whose mean is not 0"),
        ([-1.0, 1.0], [0.5, 0.4], "expected values that differ, and whose mean is not 0"),
        ([2.0], [0.5], "expected at least two rows for an interval, got 1"),
        ([1.0, np.nan], [0.5, 0.4], "expected label to be finite, got NaN"),
        ([1.0, 2.0], [0.5], "expected prediction to have 2 rows"),
    ],
)
def test_values_that_tell_nothing_are_refused(value: Any, predicted: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        evaluate_values(value, predicted)
