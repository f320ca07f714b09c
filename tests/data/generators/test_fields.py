"""The core of the generators of categorical logs: laws of ranks, ties between fields, and the label's law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binomtest, norm

from tacit.data.generators.distributions import Histogram, LogNormalCounts, Zipf
from tacit.data.generators.fields import (
    Absence,
    Field,
    FieldModel,
    Ranks,
    Signal,
    lower_hex8,
    mix_ranks,
    upper_hex32,
)
from tacit.data.generators.worlds import seeded_generator
from tacit.errors import BadInput
from tests.support.exact_tests import ALPHA, assert_matches_pmf
from tests.support.generator_checks import expected_distinct, label_surprises

LAWS = [Zipf(1), Zipf(50), Zipf(20_000), Zipf(20_000, 0.7, 50.0), Zipf(30_000, 1.6, 0.3)]


def exact(law: Zipf) -> NDArray[np.float64]:
    """The law summed rank by rank, whatever the size of the vocabulary."""
    masses = (np.arange(law.values) + law.shift) ** -law.exponent
    probabilities: NDArray[np.float64] = masses / masses.sum()
    return probabilities


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_zipf_is_the_exact_law_beyond_its_table_too(law: Zipf) -> None:
    probabilities, ranks = exact(law), np.arange(law.values)
    ends = np.cumsum(probabilities)
    # The integral's error is about 1 / (24 * 4096^2) of the tail.
    assert np.abs(law.cdf(ranks) - ends).max() < 1e-8
    assert np.array_equal(law.ranks(ends - probabilities / 2), ranks)


@pytest.mark.parametrize("law", [*LAWS, Zipf(10_131_227, 1.038, 1.65)], ids=str)
def test_zipf_ends_at_one(law: Zipf) -> None:
    last = np.array([law.values - 1])
    assert law.cdf(last)[0] == pytest.approx(1, abs=1e-12)
    assert law.ranks(np.array([0.0, 1 - 2**-53, 1.0])).tolist() == [0, last[0], last[0]]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_expected_distinct_is_what_rows_show(law: Zipf) -> None:
    rows = 5_000
    exactly = float(-np.expm1(rows * np.log1p(-np.minimum(exact(law), 1 - 1e-12))).sum())
    assert expected_distinct(law, rows) == pytest.approx(exactly, rel=1e-3)
    seen = len(np.unique(law.ranks(seeded_generator(3, law.values).random(rows))))
    # Values are seen or not with negative association, so that the variance is at most the mean.
    assert abs(seen - exactly) <= norm.isf(ALPHA / 2) * np.sqrt(exactly)


def test_expected_distinct_tells_laws_apart() -> None:
    seen = len(np.unique(Zipf(20_000, 1.2).ranks(seeded_generator(3).random(5_000))))
    claimed = expected_distinct(Zipf(20_000), 5_000)
    assert abs(seen - claimed) > norm.isf(ALPHA / 2) * np.sqrt(claimed)


def test_scores_order_ranks_and_are_nearly_standard() -> None:
    law = Zipf(20_000)
    scores = law.scores(np.arange(law.values))
    assert (np.diff(scores) > 0).all()
    mean = (exact(law) * scores).sum()
    assert abs(mean) < 0.01
    # A discrete law has a little less spread.
    assert (exact(law) * scores**2).sum() == pytest.approx(1, abs=0.05)


def test_zipf_refuses_the_exponent_that_its_integral_cannot_take() -> None:
    with pytest.raises(BadInput, match="exponent != 1"):
        Zipf(10, 1.0)


def test_histogram_draws_its_weights() -> None:
    law = Histogram((5.0, 3.0, 0.0, 2.0))
    ranks, counts = np.unique(law.ranks(seeded_generator(1).random(20_000)), return_counts=True)
    pmf = {0: 0.5, 1: 0.3, 3: 0.2}
    assert_matches_pmf(dict(zip(ranks.tolist(), counts.tolist(), strict=True)), pmf)
    assert law.ranks(np.array([0.0, 1.0])).tolist() == [0, 3]
    with pytest.raises(BadInput, match="at least one"):
        Histogram(())


def test_counts_stay_in_the_level_of_the_law_they_round() -> None:
    law = LogNormalCounts(3.0, 2.0, 1.2, lowest=-2)
    draw = seeded_generator(2)
    z = np.clip(draw.standard_normal(100_000), -4.9, 4.9)
    direct = np.floor(np.exp(3.0 + np.where(z < 0, 2.0, 1.2) * z)).astype(np.int64)
    numbers = law.numbers(law.ranks(ndtr(z)), draw.random(len(z))) + 2
    assert np.array_equal(numbers[direct < 4], direct[direct < 4])
    assert (np.maximum(numbers, direct) < 1.5 * np.minimum(numbers, direct) + 1e-9)[direct >= 4].all()
    assert law.numbers(np.array([0]), np.array([0.999])).tolist() == [-2]


def test_names_never_collide_within_a_field() -> None:
    """Neighbours, and ranks from everywhere: a step that merged pairs would show about 8 times."""
    anywhere = np.unique(seeded_generator(4).integers(2**32, size=2**18))
    for ranks in (np.arange(2**18), anywhere):
        assert len(np.unique(mix_ranks(ranks, salt=7))) == len(ranks)
    assert not np.array_equal(mix_ranks(anywhere, salt=7), mix_ranks(anywhere, salt=8))


def test_names_are_hex_digits() -> None:
    ranks, missing = np.array([0, 1, 93_144]), np.array([False, True, False])
    expected = [f"{word:08x}" for word in mix_ranks(ranks, salt=3).tolist()]
    assert lower_hex8(ranks, 3, missing).to_pylist() == [expected[0], None, expected[2]]
    assert pc.all(pc.match_substring_regex(upper_hex32(ranks, 3), "^[0-9A-F]{32}$")).as_py()


SIGNAL = Signal(rate=0.2, rare_signal=0.2, shared=0.5, linear=1.2, interaction=0.4)
FIELDS = (Field("few", Zipf(10), 0), Field("some", Zipf(200), 1), Field("many", Zipf(50_000), 0))
MODEL = FieldModel(11, FIELDS, SIGNAL)
ROWS = 50_000


def rows_of(model: FieldModel, rows: int = ROWS) -> Ranks:
    return model.ranks(seeded_generator(model.seed, 1), rows)


def test_base_rate() -> None:
    # Calibration and this draw each err by about sd(p) / 230 = .001: five of their common standard deviations.
    assert MODEL.probabilities(rows_of(MODEL)).mean() == pytest.approx(SIGNAL.rate, abs=0.007)


def test_same_seed_same_rows() -> None:
    again = FieldModel(11, FIELDS, SIGNAL)
    assert all(np.array_equal(a, b) for a, b in zip(rows_of(MODEL), rows_of(again), strict=True))
    assert np.array_equal(MODEL.logits(rows_of(MODEL)), again.logits(rows_of(again)))
    other = FieldModel(12, FIELDS, SIGNAL)
    assert not np.allclose(MODEL.logits(rows_of(MODEL)), other.logits(rows_of(MODEL)))


def test_fields_of_a_group_hang_together_and_others_do_not() -> None:
    few, some, many = (field.law.scores(ranks) for field, ranks in zip(FIELDS, rows_of(MODEL), strict=True))
    assert np.corrcoef(few, many)[0, 1] > 0.5  # tie .6, less what ten values round away
    assert abs(np.corrcoef(few, some)[0, 1]) < norm.isf(ALPHA / 2) / np.sqrt(ROWS)


def test_marginals_do_not_depend_on_ties() -> None:
    ranks, counts = np.unique(rows_of(MODEL)[0], return_counts=True)
    pmf = dict(enumerate(exact(Zipf(10)).tolist()))
    assert_matches_pmf(dict(zip(ranks.tolist(), counts.tolist(), strict=True)), pmf)


def test_labels_follow_the_truth_and_the_check_has_power() -> None:
    p = MODEL.probabilities(rows_of(MODEL))
    uniform = seeded_generator(1, 2).random(ROWS)
    assert label_surprises((uniform < p).astype(np.int8), p) == 0
    assert label_surprises((uniform < p + 0.06).astype(np.int8), p) > 0
    assert label_surprises((uniform < 0.5 * p + 0.5 * p.mean()).astype(np.int8), p) > 0


def explained(model: FieldModel, index: int) -> float:
    """The share of the logit's variance between the values of one field, of those with at least 50 rows."""
    ranks = rows_of(model)
    logits, values = model.logits(ranks), ranks[index]
    counts = np.bincount(values)
    kept = counts[values] >= 50
    means = np.bincount(values, weights=logits)[values] / counts[values]
    return float(means[kept].var() / logits[kept].var())


def test_more_rare_signal_moves_signal_into_large_fields() -> None:
    # Untied, so that a field explains itself only.
    apart = replace(MODEL, tie=0.0, signal=replace(SIGNAL, interaction=0.0))
    few, many = zip(
        *(
            (explained(world, 0), explained(world, 2))
            for rare in (0.0, 0.25, 0.5)
            for world in [replace(apart, signal=replace(apart.signal, rare_signal=rare))]
        ),
        strict=True,
    )
    assert few[0] > few[1] > few[2]
    assert many[0] < many[1] < many[2]


def double_difference(model: FieldModel, first: int, second: int) -> float:
    """How much the effect of one field's value depends on the other field's value, in the logit."""
    corners = [np.zeros(4, dtype=np.int64) for _ in model.fields]
    corners[first] = np.array([0, 1, 0, 1])
    corners[second] = np.array([0, 0, 1, 1])
    a, b, c, d = model.logits(corners)
    return abs(float(a - b - c + d))


def test_combinations_matter_only_where_asked() -> None:
    linear = replace(MODEL, signal=replace(SIGNAL, interaction=0.0))
    crossed = replace(linear, crossed=((0, 1),), signal=replace(linear.signal, cross=0.9))
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert max(double_difference(linear, *pair) for pair in pairs) < 1e-9
    assert double_difference(crossed, 0, 1) > 0.1
    assert max(double_difference(crossed, *pair) for pair in pairs[1:]) < 1e-9
    assert min(double_difference(MODEL, *pair) for pair in pairs) > 1e-3


GAPS = replace(MODEL, absences=(Absence(((0, 0.1), (2, 0.3)), lean=0.8), Absence(((1, 0.3),), lean=-0.8)))


def test_values_go_missing_at_their_rates_and_together() -> None:
    few, some, many = (ranks == field.missing_rank for field, ranks in zip(FIELDS, rows_of(GAPS), strict=True))
    for gone, rate in ((few, 0.1), (some, 0.3), (many, 0.3)):
        assert binomtest(int(gone.sum()), ROWS, rate).pvalue > ALPHA
    assert not (few & ~many).any()  # the lower rate only where the higher one is missing too
    assert np.corrcoef(some, many)[0, 1] < -0.2  # opposite leans
    assert not any((ranks == f.missing_rank).any() for f, ranks in zip(FIELDS, rows_of(MODEL), strict=True))


def test_missing_is_a_value_with_an_effect_and_the_rate_holds_with_it() -> None:
    present = [np.zeros(1, dtype=np.int64) for _ in FIELDS]
    base = GAPS.logits(present)[0]
    for index, field in enumerate(FIELDS):
        without = [np.array([field.missing_rank]) if i == index else ranks for i, ranks in enumerate(present)]
        assert abs(GAPS.logits(without)[0] - base) > 1e-3
    assert GAPS.probabilities(rows_of(GAPS)).mean() == pytest.approx(SIGNAL.rate, abs=0.007)


def test_absences_refuse_what_is_no_rate() -> None:
    with pytest.raises(BadInput, match="rate in"):
        Absence(((0, 1.0),))
    with pytest.raises(BadInput, match="lean"):
        Absence(((0, 0.5),), lean=-1.5)
