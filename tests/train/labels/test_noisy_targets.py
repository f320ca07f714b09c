"""Noisy targets by privacy unit: within its epsilon by brute force, refusals, and base rates."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.privacy.accounting import pure_epsilon
from tacit.privacy.mechanisms.memoisation import FlipKey, flip_labels
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.units import Cap, CapChoice, Relation, Split, Unit, UnitKind, Window
from tacit.train.labels.mechanism import Bins, Correction, LabelPrior
from tacit.train.labels.noisy_targets import base_rate
from tacit.train.labels.randomizers import FlipLabels, FlipTowardsPrior, LaplaceWithPrior
from tacit.train.targets import Head, Targets
from tests.support.label_examples import (
    IMPRESSION,
    KEY,
    MECHANISMS,
    PUBLIC,
    SECRET,
    NoisyTargets,
    examples_of,
    noisy_targets,
    told,
)

LABEL = Relation.REPLACE_LABEL
SPEND = Bins((1.0, 10.0, 50.0), (0.0, 5.0, 20.0, 80.0))


# Units: brute force over small logs.

rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 1), st.integers(0, 40), st.integers(0, 1)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(
    rows,
    st.sampled_from(list(UnitKind)),
    st.integers(1, 3),
    st.sampled_from(list(CapChoice)),
    st.sampled_from(list(Split)),
    st.booleans(),
)
def test_each_unit_spends_at_most_epsilon_whatever_the_cap(
    data: list[tuple[int, ...]], kind: UnitKind, k: int, choice: CapChoice, split: Split, windowed: bool
) -> None:
    """Each target is the flip of its own label at the epsilon that brute force gives its row."""
    table = np.array(data)
    keys = dict(zip(("user", "publisher", "advertiser", "time"), table.T, strict=False))
    keys["device"] = 2 * keys["user"] + keys["publisher"]  # a person has two
    unit = Unit(kind, Window(20) if windowed else None)
    noisy = noisy_targets(
        examples_of(table[:, 4], keys), FlipLabels(), unit, Cap(k, choice, split), 2, key=KEY, secret=SECRET
    )
    units: dict[object, list[int]] = defaultdict(list)
    for row in range(len(data)):
        named = [row] if kind is UnitKind.IMPRESSION else [int(keys[c][row]) for c in kind.key_columns]
        units[(*named, int(keys["time"][row]) // 20 if windowed else 0)].append(row)
    assert noisy.targets.rows is not None
    assert noisy.targets.keep is not None
    place = {row: at for at, row in enumerate(noisy.targets.rows.tolist())}
    assert len(place) == sum(min(k, len(members)) for members in units.values())
    assert noisy.labelling.count == len(noisy.targets) == len(place)
    for members in units.values():
        kept = [row for row in members if row in place]
        if choice is CapChoice.FIRST:
            assert kept == sorted(sorted(members, key=lambda row: (keys["time"][row], row))[:k])
        alone = kind is UnitKind.IMPRESSION
        divisor = len(kept) if split is Split.BY_COUNT else (1 if alone else k)
        response = RandomizedResponse.for_epsilon(Fraction(2, divisor))
        for row in kept:
            (flip,) = flip_labels([data[row][4]], [1000 + row], KEY, response, SECRET)
            assert noisy.targets.values[place[row]] == flip
            assert noisy.targets.keep[place[row]] == np.float32(float(response.truth))
        assert len(kept) * Fraction(2, divisor) <= 2
    assert pure_epsilon(noisy.release, relation=LABEL) <= 2 + 1e-9


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("name", MECHANISMS)
def test_releases_add_up_to_epsilon_for_every_mechanism_and_unit(name: str, split: Split) -> None:
    keys = {"user": np.repeat([1, 2, 3], [1, 2, 6]), "time": np.arange(9)}
    for unit, cap in ((Unit(UnitKind.USER), Cap(3, split=split)), (IMPRESSION, Cap(3, split=split))):
        noisy = noisy_targets(
            examples_of(np.arange(9) % 2, keys), MECHANISMS[name], unit, cap, 2, key=KEY, secret=SECRET
        )
        assert pure_epsilon(noisy.release, relation=LABEL) == pytest.approx(2)
        assert pure_epsilon(noisy.release, relation=Relation.REPLACE_ONE) == pytest.approx(2)
        spent = sum(each * count for each, count in noisy.labels_by_epsilon.items())
        assert spent <= 2 * (3 if unit.kind is UnitKind.USER else 9)
        assert sum(noisy.labels_by_epsilon.values()) == len(noisy.targets)


def test_a_random_cap_keeps_the_same_rows_for_every_version_and_epsilon() -> None:
    keys = {"user": np.repeat(np.arange(50), 4)}
    examples, cap = examples_of(np.zeros(200, int), keys), Cap(2, CapChoice.RANDOM)

    def kept(key: FlipKey, epsilon: float) -> list[int]:
        unit = Unit(UnitKind.USER)
        noisy = noisy_targets(examples, FlipLabels(), unit, cap, epsilon, key=key, secret=SECRET)
        assert noisy.targets.rows is not None
        places: list[int] = noisy.targets.rows.tolist()
        return places

    first = kept(KEY, 1)
    assert first == kept(FlipKey("conversions", 3, 5), 4)
    assert first != kept(FlipKey("conversions", 4), 1)


# What is refused.


@pytest.mark.parametrize(
    ("labels", "keys", "public", "epsilon", "message"),
    [
        ([0, 1], {"time": [1, 2]}, PUBLIC, 1, "expected a column 'user' for unit user"),
        ([0, 1], {"user": [1, 2], "time": [1, 2]}, PUBLIC - {"user"}, 1, "expected column 'user' to be public"),
        ([0, 2], {"user": [1, 2], "time": [1, 2]}, PUBLIC, 1, "expected 0 or 1, got another value"),
        ([0.0, np.nan], {"user": [1, 2], "time": [1, 2]}, PUBLIC, 1, "label: expected 0 or 1, got a missing"),
        (None, {"user": [1, 2], "time": [1, 2]}, PUBLIC, 1, "expected a label column"),
        ([0, 1], {"user": [1, 2], "time": [1, 2]}, PUBLIC, 0.002, "expected epsilon >= 0.001 for each label"),
        ([0, 1], {"user": [1, 2], "time": [1, 2]}, PUBLIC, 0, "expected epsilon > 0"),
        ([0, 1], {"user": [1, 2], "time": [1, 2], "row": [5, 5]}, PUBLIC, 1, "expected distinct record ids"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", MECHANISMS)
def test_bad_examples_are_refused_in_one_line(
    name: str,
    labels: list[float] | None,
    keys: dict[str, list[int]],
    public: frozenset[str],
    epsilon: float,
    message: str,
) -> None:
    examples = examples_of(labels, keys, public=public)
    with pytest.raises(BadInput, match=message) as refusal:
        noisy_targets(examples, MECHANISMS[name], Unit(UnitKind.USER), Cap(3), epsilon, key=KEY, secret=SECRET)
    assert "\n" not in str(refusal.value)


def test_bad_mechanisms_are_refused() -> None:
    prior = LabelPrior.of_rate(0.5)
    for make, message in (
        (lambda: FlipLabels(SPEND, Correction.FORWARD), "expected labels of 0 or 1 for forward"),
        (lambda: FlipLabels(correction=Correction.POSTERIOR), "it needs a prior"),
        (lambda: FlipTowardsPrior(prior, correction=Correction.FORWARD), "expected raw or posterior"),
        (lambda: FlipTowardsPrior(2), "expected prior to be a LabelPrior, got 2"),  # type: ignore[arg-type]
        (lambda: LaplaceWithPrior(2), "expected prior to be a LabelPrior, got 2"),  # type: ignore[arg-type]
        (lambda: FlipTowardsPrior(prior, SPEND), "expected a prior over 4 classes, got 2"),
        (lambda: LaplaceWithPrior(prior, SPEND), "expected a prior over 4 classes, got 2"),
        (lambda: LabelPrior(np.array([0.5, 0.6])), "probabilities that sum to 1"),
        (lambda: LabelPrior(np.array([[0.5, 0.5]] * 2)), "expected the group of every example"),
        (lambda: LabelPrior(np.array([0.5, 0.5]), np.array([1])), r"expected groups in 0\.\.0"),
        (lambda: Bins((), (1.0,)), "expected at least one edge"),
        (lambda: Bins((2.0, 1.0), (1.0, 2.0, 3.0)), "each above the last"),
        (lambda: Bins((1.0,), (1.0,)), "expected 2 values for the bins"),
        (lambda: Bins((1.0,), (1.0, np.nan)), "expected finite values"),
        (lambda: Bins((1.0,), (-1.0, 1.0), Head.POISSON), "expected values >= 0"),
        (lambda: Bins((1.0,), (0.0, 1.0), Head.LOGISTIC), "got logistic"),
        (lambda: SPEND.of([np.nan]), "column label: expected numbers, got a missing value"),
        (
            lambda: told([0, 1], LaplaceWithPrior(LabelPrior.of_rate(np.array([0.5])))),
            "group of 2 examples, got 1",
        ),
    ):
        with pytest.raises(BadInput, match=message):
            make()


def test_open_windows_are_refused() -> None:
    keys, unit = {"user": [1, 1], "time": [3, 19]}, Unit(UnitKind.USER, Window(10))
    with pytest.raises(BadInput, match="expected only closed windows at now=19"):
        noisy_targets(examples_of([0, 1], keys), FlipLabels(), unit, Cap(1), 1, key=KEY, secret=SECRET, now=19)


# Base rates.


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0.55, 0.7, 0.9]), min_size=1, max_size=30),
    st.integers(0, 2**30 - 1),
)
def test_the_base_rate_is_the_likeliest(keep: list[float], bits: int) -> None:
    values = np.array([bits >> at & 1 for at in range(len(keep))], np.float32)
    targets = Targets(values, np.array(keep, np.float32))
    found = base_rate(targets)

    def log_likelihood(rate: float) -> float:
        ones = (1 - np.array(keep)) + (2 * np.array(keep) - 1) * rate
        return float(np.log(np.where(values == 1, ones, 1 - ones)).sum())

    assert 1e-4 <= found <= 1 - 1e-4
    best = max(log_likelihood(rate) for rate in np.linspace(1e-4, 1 - 1e-4, 501))
    assert log_likelihood(found) >= best - 1e-6


def test_the_base_rate_of_one_epsilon_is_the_moment_estimate() -> None:
    values, keep = np.array([1, 1, 0, 0, 0], np.float32), np.full(5, 0.8, np.float32)
    assert base_rate(Targets(values, keep)) == pytest.approx((0.4 - 0.2) / 0.6, abs=1e-6)
    assert base_rate(Targets(values)) == pytest.approx(0.4)
    assert base_rate(Targets(np.zeros(3, np.float32), np.full(3, 0.8, np.float32))) == 1e-4
    assert base_rate(Targets(np.full(3, -2, np.float32))) == 1e-4
    assert base_rate(Targets(np.ones(2, np.float32), np.ones(2, np.float32))) == 1 - 1e-4
    with pytest.raises(BadInput, match="got a squared head"):
        base_rate(Targets(values, head=Head.SQUARED))
    with pytest.raises(BadInput, match="got none"):
        base_rate(Targets(np.zeros(0, np.float32)))


def test_base_rates_of_noisy_targets_come_close() -> None:
    labels = (np.arange(40_000) % 10 == 0).astype(int)
    keys = {"user": np.arange(40_000) // 3, "time": np.arange(40_000)}
    unit, cap = Unit(UnitKind.USER), Cap(3, split=Split.BY_COUNT)
    noisy: NoisyTargets = noisy_targets(
        examples_of(labels, keys), FlipLabels(), unit, cap, 3, key=KEY, secret=SECRET
    )
    # At epsilon 1 a report has a standard deviation of .44 and a gain of .46: 7 of them over 200 are .034.
    assert noisy.base_rate == pytest.approx(0.1, abs=0.034)
