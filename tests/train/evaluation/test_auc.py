"""AUC by ranks against all pairs, its variance against the textbook, stand-ins for labels by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.train.evaluation.measures import (
    LabelSource,
    Outcomes,
    auc,
    auc_estimate,
    auc_value,
    expected_auc,
    unflip,
)

Floats = NDArray[np.float64]
TIED = st.integers(0, 5).map(float)  # few values, so that most examples have ties


def above(score: Floats) -> Floats:
    """[i, j]: 1 where i scores above j, 1/2 where they tie."""
    difference: Floats = np.sign(score[:, None] - score[None, :])
    return (1 + difference) / 2


def pair_sums(positive: Floats, negative: Floats, score: Floats) -> tuple[float, float]:
    """Ordered pairs and all pairs, one at a time; a row never meets itself."""
    ordered = pairs = 0.0
    wins = above(score)
    for i, j in product(range(len(score)), repeat=2):
        if i != j:
            ordered += positive[i] * negative[j] * wins[i, j]
            pairs += positive[i] * negative[j]
    return ordered, pairs


def textbook_delong(label: Floats, scores: list[Floats]) -> tuple[Floats, Floats]:
    """AUCs and their covariance matrix, by the definition: every positive against every negative."""
    tables = [above(score)[np.ix_(label == 1, label == 0)] for score in scores]  # each (positives, negatives)
    by_positive = np.cov(np.array([wins.mean(axis=1) for wins in tables]), ddof=1)
    by_negative = np.cov(np.array([wins.mean(axis=0) for wins in tables]), ddof=1)
    values = np.array([wins.mean() for wins in tables])
    return values, by_positive / (label == 1).sum() + by_negative / (label == 0).sum()


@st.composite
def labelled(draw: st.DrawFn, each_class: int = 1) -> tuple[Floats, Floats, Floats]:
    """Labels with at least `each_class` of each class, and two columns of scores with many ties."""
    more = draw(st.lists(st.integers(0, 1), max_size=12))
    label = np.array(draw(st.permutations([0, 1] * each_class + more)), dtype=np.float64)
    columns = [draw(st.lists(TIED, min_size=len(label), max_size=len(label))) for _ in range(2)]
    return label, np.array(columns[0]), np.array(columns[1])


@given(labelled())
def test_ranks_count_what_all_pairs_count(case: tuple[Floats, Floats, Floats]) -> None:
    label, score, _ = case
    ordered, pairs = pair_sums(label, 1 - label, score)
    assert auc(label, score) == pytest.approx(ordered / pairs, abs=1e-12)
    assert auc(label, -score) == pytest.approx(1 - ordered / pairs, abs=1e-12)


@given(st.lists(st.tuples(TIED, st.floats(0.05, 0.95)), min_size=2, max_size=12))
def test_expected_auc_counts_expected_pairs(rows: list[tuple[float, float]]) -> None:
    score, truth = (np.array(column) for column in zip(*rows, strict=True))
    ordered, pairs = pair_sums(truth, 1 - truth, score)
    assert expected_auc(score, truth) == pytest.approx(ordered / pairs, abs=1e-9)


def test_expected_auc_is_exact_over_all_labels() -> None:
    score, truth = np.array([0.1, 0.4, 0.4, 0.7, 0.2]), np.array([0.2, 0.9, 0.5, 0.6, 0.35])
    ordered = pairs = 0.0
    for labels in product((0.0, 1.0), repeat=5):
        label = np.array(labels)
        chance = float(np.prod(np.where(label == 1, truth, 1 - truth)))
        found = pair_sums(label, 1 - label, score)
        ordered, pairs = ordered + chance * found[0], pairs + chance * found[1]
    assert expected_auc(score, truth) == pytest.approx(ordered / pairs, abs=1e-12)
    assert expected_auc(score, np.array([0, 1, 1, 0, 0])) == auc([0, 1, 1, 0, 0], score)


def test_flipped_labels_leave_both_sums_unbiased_and_a_row_that_meets_itself_would_not() -> None:
    label, score = np.array([1.0, 0.0, 0.0, 1.0, 0.0]), np.array([0.1, 0.4, 0.4, 0.7, 0.2])
    keep = np.array([0.6, 0.9, 0.75, 0.8, 1.0])
    ordered = pairs = with_itself = 0.0
    for reports in product((0.0, 1.0), repeat=5):
        report = np.array(reports)
        chance = float(np.prod(np.where(report == label, keep, 1 - keep)))
        stand_in = unflip(report, keep)
        found = pair_sums(stand_in, 1 - stand_in, score)
        ordered, pairs = ordered + chance * found[0], pairs + chance * found[1]
        with_itself += chance * (found[1] + float(np.dot(stand_in, 1 - stand_in)))
    assert (ordered, pairs) == pytest.approx(pair_sums(label, 1 - label, score), abs=1e-12)
    assert with_itself < pairs - 5  # the twin would divide by -1.3 in place of 6


@given(st.lists(st.tuples(TIED, st.floats(-3, 3)), min_size=4, max_size=12), st.floats(0.5, 2))
def test_any_stand_ins_are_counted_in_pairs(rows: list[tuple[float, float]], weight: float) -> None:
    score, label = (np.array(column) for column in zip(*rows, strict=True))
    outcomes = Outcomes(LabelSource.FLIPPED, weight * label, weight * (1 - label), None)
    ordered, pairs = pair_sums(outcomes.positive, outcomes.negative, score)
    if pairs > 0.1:
        assert auc_value(outcomes, score) == pytest.approx(ordered / pairs, abs=1e-7)


def test_one_keep_probability_gives_the_published_relation() -> None:
    # AUC of the reports - 1/2 = (1 - a - b)(AUC - 1/2), a = P(label 0 | report 1), b = P(label 1 | report 0).
    rng = np.random.default_rng(5)
    rows, keep = 4000, 0.8
    score = rng.normal(size=rows)
    label = rng.random(rows) < 1 / (1 + np.exp(1 - score))
    report = np.where(rng.random(rows) < keep, label, ~label).astype(float)
    rate = unflip(report, np.full(rows, keep)).mean()
    wrong_ones, wrong_zeros = (1 - keep) * (1 - rate) / report.mean(), (1 - keep) * rate / (1 - report.mean())
    related = 0.5 + (auc(report, score) - 0.5) / (1 - wrong_ones - wrong_zeros)
    assert auc_value(Outcomes.of_flipped(report, keep), score) == pytest.approx(related, abs=2 / rows)


@given(labelled(each_class=2))
def test_variance_is_delongs_for_one_model_and_for_two(case: tuple[Floats, Floats, Floats]) -> None:
    label, one, other = case
    values, covariance = textbook_delong(label, [one, other])
    outcomes = Outcomes.of_labels(label)
    a, b = auc_estimate(outcomes, one), auc_estimate(outcomes, other)
    assert (a.value, b.value) == pytest.approx(tuple(values), abs=1e-12)
    assert a.variance == pytest.approx(covariance[0, 0], abs=1e-12)
    paired = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    assert a.minus(b).variance == pytest.approx(paired, abs=1e-12)


@given(labelled(each_class=2), st.data())
def test_rows_that_are_their_own_clusters_are_no_clusters(
    case: tuple[Floats, Floats, Floats], data: st.DataObject
) -> None:
    label, score, _ = case
    names = np.array(data.draw(st.permutations(range(len(label)))))
    alone = auc_estimate(Outcomes.of_labels(label), score)
    named = auc_estimate(Outcomes.of_labels(label, clusters=names), score)
    assert named.variance == pytest.approx(alone.variance, abs=1e-15)
    assert named.freedom == pytest.approx(alone.freedom)


def test_copies_of_every_row_tell_nothing_new_to_clusters() -> None:
    rng = np.random.default_rng(6)
    label, score = rng.integers(0, 2, 300), rng.normal(size=300)
    once = auc_estimate(Outcomes.of_labels(label), score).variance
    thrice, copied = np.tile(label, 3), np.tile(score, 3)
    clustered = auc_estimate(Outcomes.of_labels(thrice, clusters=np.tile(np.arange(300), 3)), copied)
    assert clustered.variance == pytest.approx(once, rel=1e-9)
    # The twin that takes copies for news is three times too sure.
    assert auc_estimate(Outcomes.of_labels(thrice), copied).variance == pytest.approx(once / 3, rel=0.02)


@pytest.mark.parametrize("per_cluster", [1, 4])
def test_variance_agrees_with_the_bootstrap(per_cluster: int) -> None:
    """2000 resamples tell a standard error to 1.6%; 8% is five of those. Without clusters it must miss."""
    rng = np.random.default_rng(7)
    groups = 150
    common = np.repeat(rng.normal(size=groups), per_cluster)
    rows = len(common)
    label = (rng.random(rows) < 1 / (1 + np.exp(1 - 2 * common))).astype(float)
    score = np.round(common + 0.5 * rng.normal(size=rows), 1)  # ties
    clusters = np.repeat(np.arange(groups), per_cluster)
    members = np.arange(rows).reshape(groups, per_cluster)
    drawn = []
    for _ in range(2000):
        picked = members[rng.integers(0, groups, groups)].ravel()
        drawn.append(auc(label[picked], score[picked]))
    found = auc_estimate(Outcomes.of_labels(label, clusters=clusters), score).variance ** 0.5
    assert found == pytest.approx(np.std(drawn), rel=0.08)
    if per_cluster > 1:
        assert auc_estimate(Outcomes.of_labels(label), score).variance ** 0.5 < 0.8 * float(np.std(drawn))


@pytest.mark.parametrize(
    ("label", "score", "words"),
    [
        ([], [], "expected label to have rows, got none"),
        ([1, 1], [0.1, 0.2], "expected labels of both classes, got no negative among 2 rows"),
        ([0, 0], [0.1, 0.2], "expected labels of both classes, got no positive among 2 rows"),
        ([0, 2], [0.1, 0.2], "expected label to be 0 or 1, got other values in 1 of 2 rows"),
        ([0, 1], [0.1, np.nan], "expected score to be finite, got NaN or infinity in 1 of 2 rows"),
        ([0, 1], [0.1], "expected score to have 2 rows like the labels, got 1"),
        ([[0, 1]], [0.1], "expected label as a flat column of numbers"),
        (["a", "b"], [0.1, 0.2], "expected label as a flat column of numbers"),
    ],
)
def test_what_cannot_be_ranked_is_refused(label: object, score: object, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        auc(label, score)  # type: ignore[arg-type]
    assert str(refused.value).startswith(words)
    assert "\n" not in str(refused.value)


def test_one_positive_gives_a_value_but_no_interval() -> None:
    assert auc([1, 0, 0], [0.5, 0.1, 0.5]) == 0.75
    with pytest.raises(BadInput, match="two rows with a positive for an interval, got 1"):
        auc_estimate(Outcomes.of_labels([1, 0, 0]), [0.5, 0.1, 0.5])
    with pytest.raises(BadInput, match="two clusters with a positive for an interval, got 1"):
        auc_estimate(Outcomes.of_labels([1, 1, 0, 0], clusters=["u", "u", "v", "w"]), [0.5, 0.1, 0.5, 0.2])
