"""Noise from epsilon: safe, close, remembered, and refused where no noise helps."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import BadInput, NoFiniteGuarantee
from tacit.privacy import calibration
from tacit.privacy.accounting import epsilon
from tacit.privacy.calibration import least_noise, noise_multiplier
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.releases import (
    Composed,
    DiscreteGaussianCounts,
    GaussianStatistic,
    Grouped,
    SubsampledGaussian,
)
from tacit.privacy.units import Relation
from tacit.store import calibration_cache
from tacit.store.calibration_cache import CalibrationCache

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


@settings(max_examples=3, deadline=None)
@given(
    st.floats(math.log(0.01), math.log(50)),
    st.floats(-4, 0),
    st.integers(1, 2000),
    st.sampled_from([ADD, REPLACE]),
)
def test_there_and_back(log_target: float, log_share: float, steps: int, relation: Relation) -> None:
    target, share = math.exp(log_target), 10**log_share
    noise = noise_multiplier(
        epsilon=target, delta=1e-6, relation=relation, sampling_probability=share, steps=steps
    )
    found = epsilon(SubsampledGaussian(noise, share, steps), delta=1e-6, relation=relation)
    assert found <= target * (1 + 1e-9)
    assert found >= target * 0.98


def test_less_noise_would_not_do() -> None:
    """The twin: one percent less noise breaks the promise."""
    noise = noise_multiplier(epsilon=2, delta=1e-6, relation=ADD, sampling_probability=0.01, steps=500)
    assert epsilon(SubsampledGaussian(noise * 0.99, 0.01, 500), delta=1e-6, relation=ADD) > 2


@pytest.mark.parametrize(("target", "noise"), [(1, 1.590), pytest.param(8, 0.542, marks=pytest.mark.slow)])
def test_the_table_backwards(target: float, noise: float) -> None:
    found = noise_multiplier(
        epsilon=target, delta=Fraction(1, 32_000_000), relation=REPLACE,
        sampling_probability=16_384 / 32_000_000, steps=97_656,
    )  # fmt: skip
    assert found == pytest.approx(noise, rel=0.01)


def test_joint_with_flipped_labels() -> None:
    labels = RandomizedResponse.for_epsilon(1).release
    asked = {"epsilon": 3, "delta": 1e-6, "relation": REPLACE, "sampling_probability": 0.01, "steps": 300}
    jointly = noise_multiplier(**asked, beside=[labels])  # type: ignore[arg-type]
    by_addition = noise_multiplier(**{**asked, "epsilon": 2})  # type: ignore[arg-type]
    assert jointly <= by_addition
    release = Composed((SubsampledGaussian(jointly, 0.01, 300), labels))
    assert epsilon(release, delta=1e-6, relation=REPLACE) <= 3


def test_groups_need_more_noise() -> None:
    asked = {"epsilon": 3, "delta": 1e-6, "relation": ADD, "sampling_probability": 0.05, "steps": 20}
    alone, together = (noise_multiplier(**asked, unit="user", records=k) for k in (1, 3))  # type: ignore[arg-type]
    assert together > alone * 1.3
    release = Grouped(SubsampledGaussian(together, 0.05, 20), 3)
    assert epsilon(release, delta=1e-6, relation=ADD) <= 3


def test_what_is_released_beside_is_grouped_too() -> None:
    """A statistic that one record moves by 1 is moved by 4 in a unit of four."""
    beside = GaussianStatistic(5.0, 1.0, ADD)
    noise = noise_multiplier(
        epsilon=4,
        delta=1e-6,
        relation=ADD,
        sampling_probability=0.01,
        steps=100,
        beside=[beside],
        unit="user",
        records=4,
    )
    release = Grouped(Composed((SubsampledGaussian(noise, 0.01, 100), beside)), 4)
    assert epsilon(release, delta=1e-6, relation=ADD) <= 4


def test_answers_of_another_accountant_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = CalibrationCache(tmp_path / "answers.sqlite")
    memory.keep("question", 1.5)
    assert memory.recall("question") == 1.5
    monkeypatch.setattr(calibration_cache, "_fingerprint", lambda: "another")
    assert memory.recall("question") is None


def test_any_family_of_releases_can_be_calibrated() -> None:
    def counts(noise: float) -> DiscreteGaussianCounts:
        return DiscreteGaussianCounts((2, 1), ADD, Fraction(noise) ** 2)

    noise = least_noise(counts, epsilon=1, delta=1e-6, relation=ADD)
    assert 0.98 <= epsilon(counts(noise), delta=1e-6, relation=ADD) <= 1


def test_no_noise_helps_where_the_labels_spend_it_all() -> None:
    with pytest.raises(NoFiniteGuarantee, match="already spends that much"):
        noise_multiplier(
            epsilon=1, delta=1e-6, relation=REPLACE, sampling_probability=0.01, steps=10,
            beside=[RandomizedResponse.for_epsilon(2).release],
        )  # fmt: skip


@pytest.mark.parametrize("target", [0, -1, math.nan, math.inf])
def test_bad_targets_are_refused(target: float) -> None:
    with pytest.raises(BadInput, match="expected epsilon"):
        noise_multiplier(epsilon=target, delta=1e-6, relation=ADD, sampling_probability=0.1, steps=10)


# Remembered answers.

STEP = SubsampledGaussian(1.0, 0.01, 100)


def test_answers_are_remembered_across_runs(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "answers.sqlite"
    found = calibration.epsilon(STEP, delta=1e-6, relation=ADD, memory=CalibrationCache(path))
    question = f"epsilon {STEP!r} delta={Fraction(1, 10**6)} {ADD}"
    assert CalibrationCache(path).recall(question) == found
    CalibrationCache(path).keep(question, 42.0)  # a mark that only a memory can give back
    assert calibration.epsilon(STEP, delta=1e-6, relation=ADD, memory=CalibrationCache(path)) == 42.0
    assert path.stat().st_mode & 0o077 == 0


def test_different_questions_have_different_answers(tmp_path: Path) -> None:
    memory = CalibrationCache(tmp_path / "answers.sqlite")
    found = {
        calibration.epsilon(STEP, delta=delta, relation=relation, memory=memory)
        for delta in (1e-6, 1e-7)
        for relation in (ADD, REPLACE)
    }
    assert len(found) == 4


@pytest.mark.parametrize("contents", [b"", b"not a database at all, but long enough to look at" * 40])
def test_a_broken_memory_costs_time_only(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "answers.sqlite"
    path.write_bytes(contents)
    memory = CalibrationCache(path)
    assert memory.recall("anything") is None
    assert calibration.epsilon(STEP, delta=1e-6, relation=ADD, memory=memory) == epsilon(
        STEP, delta=1e-6, relation=ADD
    )


def test_a_remembered_nonsense_is_not_believed(tmp_path: Path) -> None:
    memory = CalibrationCache(tmp_path / "answers.sqlite")
    memory.keep("question", -1.0)
    assert memory.recall("question") is None
