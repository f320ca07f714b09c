"""From labels to noisy targets: unbiased by enumeration, and the same when they are asked for again."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.splits import RowSet
from tacit.errors import BadInput
from tacit.privacy.budget import exp_rounded_down
from tacit.privacy.mechanisms.memoisation import FlipKey, flip_labels
from tacit.privacy.mechanisms.one_hot_laplace import OneHotLaplace
from tacit.privacy.mechanisms.randomized_response import WHOLE, RandomizedResponse, TopResponse
from tacit.privacy.units import Cap, Relation
from tacit.train.labels.mechanism import Bins, Correction, LabelMechanism, LabelPrior
from tacit.train.labels.randomizers import FlipLabels, FlipTowardsPrior, LaplaceWithPrior, unbiased
from tacit.train.labels.values import STEPS, FlipEnds, best_bins
from tacit.train.targets import Head
from tests.support.exact_tests import assert_matches_pmf
from tests.support.label_examples import IMPRESSION, KEY, MECHANISMS, SECRET, examples_of, noisy_targets, told

LABEL = Relation.REPLACE_LABEL
SPEND = Bins((1.0, 10.0, 50.0), (0.0, 5.0, 20.0, 80.0))


# Each way to read a report, by enumeration.


@given(
    st.floats(0.05, 12),
    st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=2, max_size=9),
)
def test_unbiased_targets_have_the_true_value_as_their_mean_exactly(
    epsilon: float, values: list[float]
) -> None:
    response = RandomizedResponse.for_epsilon(epsilon, len(values))
    targets = unbiased(response, values)
    for label, value in enumerate(values):
        law = response.pmf(label)
        assert sum(p * target for p, target in zip(law, targets, strict=True)) == Fraction(value)


def test_raw_reports_do_not_have_it() -> None:
    """The twin: without correction the mean is off by almost half at epsilon = 1."""
    law = RandomizedResponse.for_epsilon(1).pmf(0)
    assert law[1] > Fraction(1, 4)


@pytest.mark.parametrize("correction", [Correction.RAW, Correction.UNBIASED, Correction.FORWARD])
def test_flips_of_two_classes_are_read_as_asked(correction: Correction) -> None:
    labels, records = np.arange(200) % 2, np.arange(1000, 1200)
    response = RandomizedResponse.for_epsilon(1)
    flips = flip_labels(labels, records, KEY, response, SECRET)
    noisy = noisy_targets(
        examples_of(labels), FlipLabels(correction=correction), IMPRESSION, Cap(1), 1, key=KEY, secret=SECRET
    )
    expected = [float(t) for t in unbiased(response, (0, 1))] if correction is Correction.UNBIASED else [0, 1]
    assert np.array_equal(noisy.targets.values, np.array(expected, np.float32)[flips])
    assert noisy.targets.head is Head.LOGISTIC
    if correction is Correction.FORWARD:
        assert noisy.targets.keep is not None
        assert set(noisy.targets.keep.tolist()) == {float(np.float32(float(response.truth)))}
    else:
        assert noisy.targets.keep is None


def test_bins_default_to_unbiased_targets_in_value_units() -> None:
    labels = np.array([0.0, 0.99, 1.0, 9.0, 10.0, 49.9, 50.0, 1e9, -3.0])
    assert SPEND.of(labels).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 0]
    noisy = noisy_targets(examples_of(labels), FlipLabels(SPEND), IMPRESSION, Cap(1), 2, key=KEY, secret=SECRET)
    allowed = [np.float32(float(t)) for t in unbiased(RandomizedResponse.for_epsilon(2, 4), SPEND.values)]
    assert set(noisy.targets.values.tolist()) <= {float(value) for value in allowed}
    assert noisy.targets.head is Head.SQUARED
    assert "randomized response on 4 classes" in noisy.release.words


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda bins: FlipLabels(bins, Correction.RAW),
        lambda bins: FlipTowardsPrior(LabelPrior(np.array([0.5, 0.5])), bins, Correction.RAW),
    ],
)
def test_reports_of_other_bins_share_no_draw(mechanism: Callable[[Bins], LabelMechanism]) -> None:
    """Of labels of the same class under both: with one draw, reports that differ would show that classes do."""
    count, response = 20_000, RandomizedResponse.for_epsilon(1)
    low, high = (told(np.zeros(count), mechanism(Bins((edge,), (0.0, 1.0)))) for edge in (1.0, 2.0))
    both = int(((low == 1) & (high == 1)).sum())
    assert_matches_pmf({True: both, False: count - both}, {True: response.lie**2, False: 1 - response.lie**2})
    again = told(np.zeros(count), mechanism(Bins((1.0,), (3.0, 7.0))))  # reads the same reports
    assert ((again == 7) == (low == 1)).all()


def test_counts_are_bins_with_an_open_end() -> None:
    bins = Bins.counts(3)
    assert bins.of([0, 1, 2, 3, 4, 100]).tolist() == [0, 1, 2, 3, 3, 3]
    assert (bins.values, bins.head) == ((0.0, 1.0, 2.0, 3.0), Head.POISSON)


def posterior_means(law: list[list[float]], prior: list[float], values: tuple[float, ...]) -> list[float]:
    """By Bayes' rule, written out: law[label][report]."""
    means = []
    for report in range(len(law[0])):
        joint = [prior[label] * law[label][report] for label in range(len(prior))]
        means.append(sum(j * v for j, v in zip(joint, values, strict=True)) / sum(joint))
    return means


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_reports_by_a_prior_are_read_by_bayes_rule(epsilon: float) -> None:
    prior = [0.1, 0.5, 0.15, 0.25]
    order = [1, 3, 2, 0]
    labels = np.repeat([0.0, 5.0, 20.0, 80.0], 500)
    mechanism = FlipTowardsPrior(LabelPrior(np.array(prior)), SPEND)
    found = told(labels, mechanism, epsilon)
    raw = told(labels, FlipTowardsPrior(LabelPrior(np.array(prior)), SPEND, Correction.RAW), epsilon)
    responses = [TopResponse.for_epsilon(epsilon, top, 4) for top in range(1, 5)]
    right = [sum(prior[order[r]] * float(x.pmf(r)[r]) for r in range(x.top)) for x in responses]
    response = responses[int(np.argmax(right))]
    law = [[float(p) for p in response.pmf(order.index(label))] for label in range(4)]
    expected = posterior_means(law, prior, SPEND.values)
    by_report = dict(zip([SPEND.values[order[rank]] for rank in range(response.top)], expected, strict=True))
    assert set(raw.tolist()) == set(by_report)
    assert found == pytest.approx([by_report[value] for value in raw.tolist()], rel=1e-6)


def test_reports_by_a_prior_follow_the_law_of_their_group() -> None:
    """At epsilon 2 both groups report among two classes; class 0 is one of them in group 0 only."""
    table = np.array([[0.6, 0.3, 0.1], [0.1, 0.45, 0.45]])
    groups = np.arange(60_000) % 2
    bins = Bins((0.5, 1.5), (0.0, 1.0, 2.0))
    reports = told(np.zeros(60_000), FlipTowardsPrior(LabelPrior(table, groups), bins, Correction.RAW), 2.0)
    truth, lie = RandomizedResponse.for_epsilon(2).pmf(0)
    half = Fraction(1, 2)
    for group, law in ((0, {0.0: truth, 1.0: lie}), (1, {1.0: half, 2.0: half})):
        seen = reports[groups == group]
        assert_matches_pmf({value: int((seen == value).sum()) for value in np.unique(seen).tolist()}, law)
    assert not np.any(told(np.zeros(9), FlipTowardsPrior(LabelPrior.of_rate(0.01), correction=Correction.RAW)))


def test_a_prior_of_two_classes_is_plain_response_or_the_prior_itself() -> None:
    labels = np.arange(2000) % 2
    even = told(labels, FlipTowardsPrior(LabelPrior.of_rate(0.4)))
    truth, lie = (float(p) for p in RandomizedResponse.for_epsilon(1).pmf(0))
    expected = [0.4 * lie / (0.4 * lie + 0.6 * truth), 0.4 * truth / (0.4 * truth + 0.6 * lie)]
    assert sorted(set(even.tolist())) == pytest.approx(expected)
    sure = told(labels, FlipTowardsPrior(LabelPrior.of_rate(0.1)))  # .9 is more often right than e / (e + 1)
    assert set(sure.tolist()) == {float(np.float32(0.1))}


def test_laplace_targets_are_posterior_means_of_the_noisy_vectors() -> None:
    """On average a posterior mean is the prior mean; and for one vector, Bayes' rule is written out."""
    labels = np.array([0.0] * 3000 + [5.0] * 3000 + [20.0] * 3000 + [80.0] * 3000)
    prior = [0.25] * 4
    found = told(labels, LaplaceWithPrior(LabelPrior(np.array(prior)), SPEND), 3.0)
    # Each lies in 0..80: by Hoeffding the mean is within 80 sqrt(ln(2e9) / 24000) = 2.4, but for once in 1e9.
    assert abs(float(found.mean()) - 26.25) < 2.4
    by_label = found.reshape(4, 3000).mean(axis=1)
    assert by_label[3] - by_label[2] > 9.6  # twice the same bound for 3000
    noise = OneHotLaplace.for_epsilon(3, 4)
    report = np.array([[3, 18, -1, 2]])
    chances = [
        np.prod([noise.law.pmf(x - noise.steps * (at == label)) for at, x in enumerate(report[0].tolist())])
        for label in range(4)
    ]
    means = LaplaceWithPrior(LabelPrior(np.array(prior)), SPEND)._means(
        noise.log_likelihoods(report), np.zeros(1, int)
    )
    assert means[0] == pytest.approx(np.dot(chances, SPEND.values) / np.sum(chances))


def test_the_same_laplace_draws_are_read_again_with_another_prior() -> None:
    labels = np.arange(300) % 2
    first, second = (told(labels, LaplaceWithPrior(LabelPrior.of_rate(rate))) for rate in (0.2, 0.5))
    odds = np.log(first / (1 - first)) - np.log(second / (1 - second))  # differs by the prior's odds alone
    assert odds == pytest.approx(np.full(300, np.log(0.25)), abs=1e-4)
    impossible = told(labels, LaplaceWithPrior(LabelPrior.of_rate(0.0)))
    assert not impossible.any()


# Drawn once.


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_same_key_gives_the_same_targets_in_any_company(name: str) -> None:
    labels, mechanism = np.arange(1000) % 2, MECHANISMS[name]
    examples = examples_of(labels)
    whole = noisy_targets(examples, mechanism, IMPRESSION, Cap(1), 1, key=KEY, secret=SECRET).targets.values
    some = noisy_targets(
        examples_of(labels, at=RowSet(np.array([7, 3, 900]))), mechanism, IMPRESSION, Cap(1), 1,
        key=KEY, secret=SECRET,
    )  # fmt: skip
    assert some.targets.values.tolist() == whole[[7, 3, 900]].tolist()
    assert some.targets.rows is not None
    assert some.targets.rows.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("other", ["key", "version", "epsilon", "secret", "label"])
def test_anything_else_gives_unrelated_targets(name: str, other: str) -> None:
    """Two independent reports fall on the same side of their middle with the chance that the law says."""
    labels, mechanism, count = np.zeros(20_000, int), MECHANISMS[name], 20_000
    changed = {
        "key": lambda: told(labels, mechanism, key=FlipKey("conversions", 4)),
        "version": lambda: told(labels, mechanism, key=FlipKey("conversions", 3, 1)),
        "epsilon": lambda: told(labels, mechanism, 1.0001),
        "secret": lambda: told(labels, mechanism, secret=bytes(32)),
        "label": lambda: told(labels + 1, mechanism),
    }[other]()
    one, two = told(labels, mechanism) > 0.5, changed > 0.5
    # Given the rates of both sides, independence fixes the chance of both; the bound is Hoeffding's at 1e-9.
    assert abs(np.mean(one & two) - one.mean() * two.mean()) < 3 * np.sqrt(np.log(2e9) / (2 * count))
    assert 0.02 < one.mean() < 0.98


@pytest.mark.parametrize("changed", ["the other group's prior", "the row's group"])
def test_another_prior_means_fresh_draws(changed: str) -> None:
    labels, first_table = np.zeros(20_000, int), np.array([[0.6, 0.4], [0.6, 0.4]])
    table, group = (
        (np.array([[0.6, 0.4], [0.4, 0.6]]), 0) if changed.startswith("the other") else (first_table, 1)
    )
    first, second = (
        told(labels, FlipTowardsPrior(LabelPrior(each, np.full(20_000, which)), correction=Correction.RAW))
        for each, which in ((first_table, 0), (table, group))
    )
    lie = RandomizedResponse.for_epsilon(1).lie
    both = int(((first == 1) & (second == 1)).sum())
    assert_matches_pmf({True: both, False: 20_000 - both}, {True: lie**2, False: 1 - lie**2})


# The best bins.


def expected_error(bins: Bins, values: list[float], prior: list[float], epsilon: float) -> float:
    """Of a raw report, over the prior and the exact law of the flip."""
    response = RandomizedResponse.for_epsilon(epsilon, len(bins.values))
    labels = bins.of(values).tolist()
    return sum(
        mass * float(p) * (said - value) ** 2
        for value, mass, label in zip(values, prior, labels, strict=True)
        for said, p in zip(bins.values, response.pmf(label), strict=True)
    )


def least_error(values: list[float], prior: list[float], epsilon: float) -> float:
    """Over every way to cut the values, each with its best values for the bins, found by least squares."""
    errors = []
    for count in range(1, len(values)):
        response = RandomizedResponse.for_epsilon(epsilon, count + 1)
        laws = np.array([[float(p) for p in response.pmf(label)] for label in range(count + 1)])
        for cuts in combinations(range(1, len(values)), count):
            place = [sum(at >= cut for cut in cuts) for at in range(len(values))]
            weight = np.array(prior)[:, None] * laws[place]  # (values, reports)
            centre = weight.T @ np.array(values) / weight.sum(axis=0)
            errors.append(float((weight * (np.array(values)[:, None] - centre) ** 2).sum()))
    return min(errors)


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True),
    st.lists(st.integers(1, 20), min_size=6, max_size=6),
)
def test_no_other_bins_have_a_smaller_error(numbers: list[int], weights: list[int]) -> None:
    values = sorted(map(float, numbers))
    prior = [w / sum(weights[: len(values)]) for w in weights[: len(values)]]
    for epsilon in (0.2, 0.8, 1.4, 2, 2.6, 3.2, 4, 5, 8):
        found = best_bins(values, prior, epsilon, correction=Correction.RAW)
        assert expected_error(found, values, prior, epsilon) == pytest.approx(
            least_error(values, prior, epsilon), rel=1e-9, abs=1e-9
        )


def test_more_epsilon_means_more_bins() -> None:
    values, prior = list(range(8)), [1 / 8] * 8
    counts = [
        len(best_bins(values, prior, epsilon, correction=Correction.RAW).values) for epsilon in (0.1, 2, 5, 20)
    ]
    assert counts == sorted(counts)
    assert counts[0] == 2
    assert counts[-1] == 8


def test_bad_priors_of_bins_are_refused() -> None:
    with pytest.raises(BadInput, match="each above the last"):
        best_bins([1, 1], [0.5, 0.5], 1, correction=Correction.RAW)
    with pytest.raises(BadInput, match="sum to 1"):
        best_bins([1, 2], [0.5, 0.6], 1, correction=Correction.RAW)
    with pytest.raises(BadInput, match="expected raw or unbiased"):
        best_bins([1, 2], [0.5, 0.5], 1, correction=Correction.FORWARD)


def test_bins_for_unbiased_targets_stand_for_what_they_hold() -> None:
    """So the mean target over the prior is the mean value; the values for raw reports lie closer together."""
    values, prior = [0.0, 1.0, 2.0, 9.0], [0.5, 0.2, 0.2, 0.1]
    raw, fair = (best_bins(values, prior, 1, correction=way) for way in (Correction.RAW, Correction.UNBIASED))
    assert raw.edges == fair.edges
    mean = float(np.dot(values, prior))
    means = [float(np.dot(prior, np.array(bins.values)[bins.of(values)])) for bins in (raw, fair)]
    assert means[1] == pytest.approx(mean)
    spread = [max(bins.values) - min(bins.values) for bins in (raw, fair)]
    assert spread[0] < spread[1] / 2
    nobody = best_bins([0.0, 1.0, 5.0], [1.0, 0.0, 0.0], 1, correction=Correction.UNBIASED)
    assert len(nobody.values) == 2


# One bit of a value.


@given(st.integers(0, STEPS), st.floats(0.05, 10), st.floats(-50, 50), st.floats(0.5, 100))
def test_a_value_by_its_ends_is_unbiased_exactly(step: int, epsilon: float, low: float, width: float) -> None:
    """The target's mean is the value at this step, in fractions, and any two are within truth / lie."""
    high = low + width
    response = RandomizedResponse.for_epsilon(epsilon)
    share, targets = Fraction(step, STEPS), unbiased(response, (low, high))
    up = share * response.truth + (1 - share) * response.lie
    assert (1 - up) * targets[0] + up * targets[1] == Fraction(low) + share * (Fraction(high) - Fraction(low))
    assert response.lie <= up <= response.truth  # any two values: a ratio of at most truth / lie


def test_the_ends_are_sampled_as_stated_by_enumeration() -> None:
    """The rounding's edge is at the step itself; the flip is that of randomized response."""
    response = RandomizedResponse.for_epsilon(1)
    for step in (0, 1, 12345, STEPS - 1, STEPS):
        edge = step << 32
        for first in {0, max(edge - 1, 0), min(edge, WHOLE - 1), WHOLE - 1}:
            for second in (0, response.lie_weight - 1, response.lie_weight, WHOLE - 1):
                words = np.array([[first, second]], dtype=np.uint64)
                (end,) = FlipEnds.report(np.array([step]), words, response).tolist()
                assert end == (first < edge) ^ (second < response.lie_weight)


def test_values_by_their_ends_come_back_the_same_and_near_the_mean() -> None:
    labels = np.tile([0.0, 2.5, 10.0, 40.0], 10_000)  # 40 counts as 10
    mechanism = FlipEnds(0, 10)
    found = told(labels, mechanism)
    assert found.tolist() == told(labels, mechanism).tolist()
    # Two targets about 22 apart: by Hoeffding a mean of 10,000 is within 22 sqrt(ln(2e9) / 20,000) = .72.
    assert found.reshape(-1, 4).mean(axis=0) == pytest.approx([0, 2.5, 10, 10], abs=0.72)
    assert len(set(found.tolist())) == 2
    assert mechanism.steps([0, 2.5, 10, 40, -1]).tolist() == [0, STEPS // 4, STEPS, STEPS, 0]


def test_bad_ends_are_refused() -> None:
    for low, high in ((1, 1), (2, 1), (-1e308, 1e308)):
        with pytest.raises(BadInput, match="expected low < high"):
            FlipEnds(low, high)
    with pytest.raises(BadInput, match="expected values >= 0 for a poisson head"):
        FlipEnds(-1, 1, Head.POISSON)
    with pytest.raises(BadInput, match="column label: expected numbers"):
        told([np.nan], FlipEnds(0, 1))


def test_a_whole_unit_of_flips_by_a_prior_keeps_to_its_epsilon_exactly() -> None:
    """Two labels of a user, four classes, all sixteen pairs of labels against each other and all outputs."""
    response = TopResponse.for_epsilon(Fraction(1, 2), 3, 4)
    pairs = list(product(range(4), repeat=2))
    rows = [[response.pmf(a)[x] * response.pmf(b)[y] for x, y in product(range(3), repeat=2)] for a, b in pairs]
    worst = max(p / q for one in rows for other in rows for p, q in zip(one, other, strict=True))
    assert float(worst) == pytest.approx(np.e, rel=1e-12)
    assert worst <= exp_rounded_down(Fraction(1))
