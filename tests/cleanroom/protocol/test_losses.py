"""Losses and their slopes, for true labels and for flipped ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit

from tacit.cleanroom.protocol.losses import Loss, losses, slopes
from tacit.errors import BadInput
from tacit.train.targets import Targets

KEEPS = [0.6, 0.7310585786300049, 0.95, 1.0]
LOGITS = np.linspace(-12, 12, 97)


def both_labels(logits: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return np.concatenate([logits, logits]), np.repeat([0, 1], len(logits))


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("keep", KEEPS)
def test_slopes_are_the_derivatives_of_losses(loss: Loss, keep: float) -> None:
    z, y = both_labels(LOGITS)
    step = 1e-5  # central differences: step^2 of truncation, 1e-16 / step of rounding
    numeric = (losses(z + step, y, loss, keep) - losses(z - step, y, loss, keep)) / (2 * step)
    np.testing.assert_allclose(slopes(z, y, loss, keep), numeric, atol=2e-9)


@pytest.mark.parametrize("loss", list(Loss))
def test_nothing_flipped_is_raw(loss: Loss) -> None:
    z, y = both_labels(LOGITS)
    np.testing.assert_allclose(slopes(z, y, loss, 1.0), slopes(z, y, Loss.RAW, None), atol=1e-15)
    np.testing.assert_allclose(losses(z, y, loss, 1.0), losses(z, y, Loss.RAW, None), atol=1e-12)


@pytest.mark.parametrize("keep", KEEPS)
def test_unbiased_means_unbiased_and_raw_is_not(keep: float) -> None:
    z, y = both_labels(LOGITS)
    for of in (slopes, losses):
        true = of(z, y, Loss.RAW, None)
        mean = keep * of(z, y, Loss.UNBIASED, keep) + (1 - keep) * of(z, 1 - y, Loss.UNBIASED, keep)
        np.testing.assert_allclose(mean, true, atol=1e-12)
        raw = keep * of(z, y, Loss.RAW, None) + (1 - keep) * of(z, 1 - y, Loss.RAW, None)
        assert keep == 1 or np.abs(raw - true).max() > 0.04  # the twin


@pytest.mark.parametrize("keep", KEEPS)
def test_forward_is_right_at_the_truth(keep: float) -> None:
    # Where the model's p is the true rate, the expected slope over label and flip is zero; raw drifts.
    z = np.linspace(-5, 5, 41)
    p = 1 / (1 + np.exp(-z))
    reported = (1 - keep) + (2 * keep - 1) * p
    ones, zeros = np.ones(41), np.zeros(41)
    expected = reported * slopes(z, ones, Loss.FORWARD, keep)
    expected += (1 - reported) * slopes(z, zeros, Loss.FORWARD, keep)
    np.testing.assert_allclose(expected, 0, atol=1e-14)
    raw = reported * slopes(z, ones, Loss.RAW, None) + (1 - reported) * slopes(z, zeros, Loss.RAW, None)
    assert keep == 1 or np.abs(raw).max() > 0.04  # the twin


@pytest.mark.parametrize("keep", [0.6, 0.95])
def test_forward_agrees_with_training_elsewhere(keep: float) -> None:
    z, y = both_labels(np.linspace(-6, 6, 25))
    targets = Targets(y.astype(np.float32), np.full(len(y), keep, np.float32))
    theirs = targets.residual(z.astype(np.float32), np.arange(len(y)))
    np.testing.assert_allclose(slopes(z, y, Loss.FORWARD, keep), theirs, atol=2e-6)  # theirs are float32


@given(st.floats(-1e300, 1e300), st.integers(0, 1), st.floats(0.5, 1, exclude_min=True))
def test_slopes_are_bounded_at_any_logit(logit: float, label: int, keep: float) -> None:
    z, y = np.array([logit]), np.array([label])
    assert abs(slopes(z, y, Loss.RAW, None)[0]) <= 1
    assert abs(slopes(z, y, Loss.FORWARD, keep)[0]) <= 1
    largest = keep / (2 * keep - 1)
    assert abs(slopes(z, y, Loss.UNBIASED, keep)[0]) <= largest * (1 + 1e-9)
    assert slopes(z, [0], Loss.RAW, None)[0] - slopes(z, [1], Loss.RAW, None)[0] == pytest.approx(1, abs=1e-15)


def test_no_slope_is_so_small_that_it_takes_longer_to_multiply() -> None:
    """Whatever the logit, a raw slope is 0 or so large that no product with clipped float32 numbers, at least
    2^-149 each, is subnormal. The twin, p as it comes, makes one at -700 already."""
    logits = np.concatenate([np.linspace(-1000, 1000, 20_001), [-41.5, -41.6, 37.5, -(2.0**32), 2.0**32]])
    for label in (0, 1):
        sizes = np.abs(slopes(logits, np.full(len(logits), label), Loss.RAW, None))
        assert np.all((sizes == 0) | (sizes >= 2.0**-60))
        assert np.isfinite(sizes).all()
        # Next to a slope of 1, what was left out is nothing: below the last digit of float64 by far.
        exact = np.abs(expit(logits) - label)
        assert np.abs(sizes - exact).max() < 2.0**-60
    twin = expit(-700.0) * np.float64(np.float32(1e-12))
    assert 0 < twin < np.finfo(np.float64).tiny


@pytest.mark.parametrize("loss", list(Loss))
def test_slopes_at_extreme_logits_go_to_their_limits(loss: Loss) -> None:
    z, y = np.array([-800.0, -800, 800, 800]), np.array([0, 1, 0, 1])
    np.testing.assert_allclose(slopes(z, y, loss, 1.0), [0, -1, 1, 0], atol=1e-15)
    if loss is Loss.FORWARD:
        np.testing.assert_allclose(slopes(z, y, loss, 0.9), 0, atol=1e-15)


def test_losses_at_extreme_logits_are_exact() -> None:
    keep = 0.9
    np.testing.assert_allclose(losses([800.0], [0], Loss.FORWARD, keep), -np.log(0.1), rtol=1e-12)
    np.testing.assert_allclose(losses([-800.0], [1], Loss.FORWARD, keep), -np.log(0.1), rtol=1e-12)
    np.testing.assert_allclose(losses([800.0], [1], Loss.FORWARD, keep), -np.log(0.9), rtol=1e-12)
    np.testing.assert_allclose(losses([800.0], [0], Loss.RAW, None), 800.0)


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(BadInput, match="keep"):
        slopes([0.0], [1], Loss.FORWARD, None)
    with pytest.raises(BadInput, match="keep"):
        losses([0.0], [1], Loss.UNBIASED, 0.5)
    with pytest.raises(BadInput, match="finite"):
        slopes([np.inf], [1], Loss.RAW, None)
    with pytest.raises(BadInput, match="0 or 1"):
        slopes([0.0], [2], Loss.RAW, None)
    with pytest.raises(BadInput, match="as many"):
        slopes([0.0, 1.0], [1], Loss.RAW, None)
    with pytest.raises(BadInput, match="Loss"):
        Loss("hinge")
