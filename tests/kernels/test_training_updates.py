"""How rows and blocks of a table change: every way of running the loops against their definitions in double
precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.kernels import training
from tests.support.kernel_ways import U, Ways, served

Array = NDArray[Any]


@Ways
@pytest.mark.parametrize("keep", [0.0, 0.9])
@pytest.mark.parametrize("pulled", [False, True])
@pytest.mark.parametrize("width", [1, 9, 33])
def test_apply_rows(way: str, keep: float, pulled: bool, width: int) -> None:
    rng = np.random.default_rng(7)
    weights, gathered = rng.standard_normal((2, 50, width), dtype=np.float32)
    pulls = rng.standard_normal(50, dtype=np.float32)
    rows = np.sort(rng.choice(50, 30, replace=False)).astype(np.int32)
    exact = [array.astype(np.float64) for array in (weights, gathered, pulls)]
    with served(way):
        training.apply_rows(weights, gathered, rows, 0.25, keep, pulls if pulled else None)
    w, v, pull = exact
    for row in rows:
        if pulled:
            v[row, 1:] -= pull[row] * w[row, 1:]
            pull[row] = 0
        w[row] -= 0.25 * v[row]
        v[row] *= np.float32(keep)
    for found, expected in zip((weights, gathered, pulls), (w, v, pull), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=4 * U * 32)  # 4 roundings of numbers below 32


def test_clearing_forgets_infinities() -> None:
    weights, gathered = np.zeros((1, 4), np.float32), np.full((1, 4), np.inf, np.float32)
    training.apply_rows(weights, gathered, np.zeros(1, np.int32), 0.0, 0.0)
    assert not gathered.any()


def caught_up(
    way: str, rows: Any, *, momentum: bool, noisy: bool, width: int = 33
) -> tuple[list[Array], list[Array]]:
    """What catch_up makes of 40 rows, and what it says that it does, entry by entry."""
    rng = np.random.default_rng(11)
    weights, velocity = rng.standard_normal((2, 40, width), dtype=np.float32)
    since = rng.integers(20, 26, 40, dtype=np.int32)  # 25 is now
    decay, drift = rng.random((2, 5), dtype=np.float32)
    factors = rng.standard_normal((5, 3), dtype=np.float32)
    shape = (2, len(rows), width) if momentum else (len(rows), width)
    normals = rng.standard_normal(shape, dtype=np.float32) if noisy else None
    w, v, s = weights.astype(np.float64), velocity.astype(np.float64), since.copy()
    with served(way):
        training.catch_up(
            weights, velocity if momentum else None, rows, since, 20, 25, decay, drift, factors, normals
        )
    for k, row in enumerate(rows):
        if s[row] == 25:
            continue
        a, s[row] = s[row] - 20, 25
        if not momentum:
            w[row] += factors[a, 0] * normals[k] if normals is not None else 0
            continue
        x, y = normals[:, k] if normals is not None else np.zeros((2, width))
        w[row] += drift[a] * v[row] + factors[a, 1] * x + factors[a, 2] * y
        v[row] = decay[a] * v[row] + factors[a, 0] * x
    return [weights, velocity, since], [w, v, s]


@Ways
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("rows", [np.array([3, 39, 0, 17, 8], np.int32), range(40), range(5, 12), range(9, 9)])
def test_catch_up(way: str, momentum: bool, noisy: bool, rows: Any) -> None:
    found, expected = caught_up(way, rows, momentum=momentum, noisy=noisy)
    for array, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, exact, rtol=0, atol=6 * U * 32)  # 6 roundings of numbers below 32


@Ways
def test_rows_outside_the_open_steps_change_nothing(way: str) -> None:
    weights, since = np.ones((4, 2), np.float32), np.array([5, 6, 4, 9], np.int32)
    entries = np.ones(3, np.float32), np.ones(3, np.float32), np.ones((3, 3), np.float32)
    normals = np.ones((2, 2), np.float32)
    with served(way):
        for rows in (np.array([0, 2], np.int32), range(2, 4)):
            with pytest.raises(BadInput, match=r"since in 5\.\.8"):
                training.catch_up(weights, None, rows, since, 5, 8, *entries, normals)
    assert np.all(weights == 1)
    np.testing.assert_array_equal(since, [5, 6, 4, 9])


def test_factors_round_away_from_zero() -> None:
    exact = np.array([0.1, -0.1, 1 / 3, 0.5, 0.0, 1e-46, -(2.0**-149)])
    rounded = training.never_closer_to_zero(exact).astype(np.float64)
    assert np.all(np.abs(rounded) >= np.abs(exact))
    assert np.all(np.sign(rounded) == np.sign(exact))
    np.testing.assert_allclose(rounded, exact, rtol=2 * U, atol=2.0**-149)


MOMENTS = {
    "rate": 0.1,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-3,
    "correction1": 0.19,
    "correction2": 0.002,
}
RMS = {"rate": 0.1, "decay": 0.99, "epsilon": 1e-3}


def exact_block(name: str, w: Array, m: Array, s: Array, g: Array) -> tuple[Array, Array, Array]:
    """The three optimizers by their definitions."""
    if name == "rmsprop_block":
        s = RMS["decay"] * s + (1 - RMS["decay"]) * g**2
        return w - RMS["rate"] * g / (np.sqrt(s) + RMS["epsilon"]), m, s
    beta1, beta2 = MOMENTS["beta1"], MOMENTS["beta2"]
    m = beta1 * m + (1 - beta1) * g
    s = beta2 * s + (1 - beta2) * g**2 if name == "adam_block" else s - (1 - beta2) * np.sign(s - g**2) * g**2
    mean, root = m / MOMENTS["correction1"], np.sqrt(s / MOMENTS["correction2"])
    return w - MOMENTS["rate"] * mean / (root + MOMENTS["epsilon"]), m, s


@Ways
@pytest.mark.parametrize("name", ["adam_block", "yogi_block", "rmsprop_block"])
@pytest.mark.parametrize(("shrink", "width"), [(0.0, 0), (0.3, 33), (0.3, 5), (0.3, 1)])
def test_adaptive_blocks(way: str, name: str, shrink: float, width: int) -> None:
    rng = np.random.default_rng(13)
    w, m, g = rng.standard_normal((3, 330), dtype=np.float32)
    s = (0.1 + rng.random(330, dtype=np.float32)).astype(np.float32)
    if name == "yogi_block":
        g[:7], s[:7] = 0.5, 0.25  # the sign of nothing
    exact = [array.astype(np.float64) for array in (w, m, s, g)]
    gradient = exact[3]
    if shrink:
        gradient += shrink * np.where(np.arange(330) % width == 0, 0, exact[0])
    expected = exact_block(name, exact[0], exact[1], exact[2], gradient)
    state = (w, s, g) if name == "rmsprop_block" else (w, m, s, g)
    settings = RMS if name == "rmsprop_block" else MOMENTS
    with served(way):
        getattr(training, name)(*state, **settings, shrink=shrink, width=width)
    assert not g.any()
    # Some ten roundings of numbers below 16, the step's at most twice its size.
    for found, exactly in zip((w, m, s), expected, strict=True):
        np.testing.assert_allclose(found, exactly, rtol=0, atol=16 * U * 16)


@Ways
def test_sgd_block(way: str) -> None:
    w, v = np.random.default_rng(17).standard_normal((2, 1001), dtype=np.float32)
    exact_w, exact_v = w.astype(np.float64), v.astype(np.float64)
    with served(way):
        training.sgd_block(w, v, 0.25, 0.5)
    np.testing.assert_allclose(w, exact_w - 0.25 * exact_v, rtol=0, atol=4 * U * 8)
    np.testing.assert_allclose(v, 0.5 * exact_v, rtol=0, atol=4 * U * 8)


def test_the_callers_own_tiny_numbers_survive() -> None:
    """The loops take numbers below 1.2e-38 for zero, where machines let them; nobody else's arithmetic does."""
    tiny = np.full(9, 1e-40, np.float32)
    training.sgd_block(np.ones(9, np.float32), tiny.copy(), 0.1, 0.9)
    assert np.all(tiny * np.float32(0.5) > 0)
