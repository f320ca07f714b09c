"""Normals from a keystream: the kernel against its NumPy twin, the law, the tails, and independence.

Statistical checks fix their events beforehand and use exact tails, each wrong with probability ALPHA at most.
Each check is also run on a sampler that is wrong on purpose and must be refused.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from exact_tests import ALPHA
from tacit import kernels
from tacit.entropy import BLOCK, Simulation
from tacit.errors import BadInput
from tacit.kernels import Normals, reference

COUNT = 128 * BLOCK + 17
Sampler = Callable[[], NDArray[np.float64]]
Types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def filled(size: int, dtype: type[np.floating], keystream: NDArray[np.uint8], scale: float = 1.0) -> Normals:
    out: Normals = np.empty(size, dtype=dtype)
    kernels.fill_normals(out, keystream, scale)
    return out


def by_reference(
    size: int, dtype: type[np.floating], keystream: NDArray[np.uint8], scale: float = 1.0
) -> NDArray[np.float64]:
    """The twin's answer before it is rounded to the array's type."""
    out = np.empty(size, dtype=np.float64)
    fill = reference.fill_float32 if dtype is np.float32 else reference.fill_float64
    fill(out, keystream, scale)  # type: ignore[arg-type]
    return out


def keystream_of(size: int, dtype: type[np.floating], seed: int | str) -> NDArray[np.uint8]:
    return np.frombuffer(Simulation(seed).bytes(kernels.keystream_bytes(size, np.dtype(dtype))), dtype=np.uint8)


def assert_same(given: Normals, expected: NDArray[np.float64], scale: float = 1.0) -> None:
    """Equal to within 4 units in the last place of the pair's radius, which bounds both of its numbers."""
    pairs = given.size - given.size // 2
    across = np.abs(expected[:pairs])
    up = np.zeros(pairs)
    up[: given.size - pairs] = np.abs(expected[pairs:])
    if given.size % 2:
        up[-1] = scale  # its sine was left out
    radius = np.hypot(across, up)
    allowed = 4 * float(np.finfo(given.dtype).eps) * np.concatenate([radius, radius])[: given.size]
    assert np.all(np.abs(given - expected) <= allowed)


@Types
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 1022, 1023, 1024, 1025, 2048, 2049, 100_003])
@pytest.mark.parametrize("scale", [1.0, 0.125, 3e5])
def test_kernel_equals_its_twin(dtype: type[np.floating], size: int, scale: float) -> None:
    keystream = keystream_of(size, dtype, size)
    assert_same(filled(size, dtype, keystream, scale), by_reference(size, dtype, keystream, scale), scale)


@Types
@pytest.mark.parametrize("wide", [True, False])
def test_both_compilations_of_the_kernel_equal_the_twin(dtype: type[np.floating], wide: bool) -> None:
    compiled = pytest.importorskip("tacit.kernels._normals")
    keystream = keystream_of(50_001, dtype, "compiled")
    out: Normals = np.empty(50_001, dtype=dtype)
    fill = compiled.fill_float32 if dtype is np.float32 else compiled.fill_float64
    fill(out, keystream, 1.0, wide=wide)
    assert_same(out, by_reference(50_001, dtype, keystream))


EXTREME = [0, 1, 2**11, 2**12 - 1, 2**12, 2**62, 2**63 - 1, 2**63, 2**63 + 2**62, 2**64 - 2**12, 2**64 - 1]
EXTREME += [int(2**64 * (1 - 0.5**0.5)) + change for change in (-4096, 0, 4096)]  # where the logarithm folds


def crafted(dtype: type[np.floating], radius_words: list[int], angle_words: list[int]) -> NDArray[np.uint8]:
    """A keystream of these words; 64-bit angles are cut to the type's width."""
    angles = np.array(angle_words, dtype=np.uint64)
    narrow = (angles >> np.uint64(32)).astype(np.uint32) if dtype is np.float32 else angles
    return np.concatenate([np.array(radius_words, dtype=np.uint64).view(np.uint8), narrow.view(np.uint8)])


@Types
def test_kernel_equals_its_twin_at_extreme_words(dtype: type[np.floating]) -> None:
    axes = [turn * 2**61 + change for turn in range(8) for change in (-(2**33), -1, 0, 1, 2**33)]
    angles = sorted({axis % 2**64 for axis in axes} | set(EXTREME))
    radius_words = [word for word in EXTREME for _ in angles]
    keystream = crafted(dtype, radius_words, angles * len(EXTREME))
    size = 2 * len(radius_words)
    given = filled(size, dtype, keystream)
    assert np.all(np.isfinite(given))
    assert_same(given, by_reference(size, dtype, keystream))


@Types
def test_every_angle_has_its_mirror_image(dtype: type[np.floating]) -> None:
    angles = [word % 2**64 for word in (0, 12345 << 40, 2**60 + (77 << 33), 2**63 + (5 << 50))]
    step = 2**32 if dtype is np.float32 else 2**10
    mirrored = [(-word - step) % 2**64 for word in angles]
    opposite = [(word + 2**63) % 2**64 for word in angles]
    radius = [2**64 - 2**30] * 4
    given = filled(8, dtype, crafted(dtype, radius, angles))
    below = filled(8, dtype, crafted(dtype, radius, mirrored))
    behind = filled(8, dtype, crafted(dtype, radius, opposite))
    np.testing.assert_array_equal(below, np.concatenate([given[:4], -given[4:]]))
    np.testing.assert_array_equal(behind, -given)
    assert np.all(given != 0)


Fill = Callable[[int, type[np.floating], NDArray[np.uint8]], Normals]


def furthest(fill: Fill, dtype: type[np.floating]) -> float:
    """The largest normal there is: least uniform, angle along the axis."""
    return float(fill(2, dtype, crafted(dtype, [2**64 - 1], [0]))[0])


def distinct_in_the_tail(fill: Fill, dtype: type[np.floating]) -> int:
    """How many different numbers the 64 least uniforms of 52 bits give."""
    words = [2**64 - 1 - (steps << 12) for steps in range(64)]
    return len(np.unique(fill(128, dtype, crafted(dtype, words, [0] * 64))[:64]))


def from_24_bits(size: int, dtype: type[np.floating], keystream: NDArray[np.uint8]) -> Normals:
    """Wrong on purpose: a uniform of 24 bits, as a careless float32 would have."""
    pairs = size - size // 2
    words = keystream[: 8 * pairs].view(np.uint64) >> np.uint64(40) << np.uint64(40)
    return filled(size, dtype, np.concatenate([words.view(np.uint8), keystream[8 * pairs :]]))


@Types
def test_tails_reach_beyond_eight_sigma(dtype: type[np.floating]) -> None:
    assert furthest(filled, dtype) == pytest.approx(np.sqrt(2 * 52 * np.log(2)), rel=1e-6)
    assert furthest(filled, dtype) > 8.49
    assert distinct_in_the_tail(filled, dtype) == 64
    assert furthest(from_24_bits, dtype) < 5.8
    assert distinct_in_the_tail(from_24_bits, dtype) == 1


@Types
def test_small_radii_stay_precise(dtype: type[np.floating]) -> None:
    # u = 1 - 2^-52 j: a logarithm of u rounded to float32 would be 0 for all of them.
    steps = np.arange(1, 65, dtype=np.float64)
    words = [int(step) << 12 for step in steps]
    given = filled(128, dtype, crafted(dtype, words, [0] * 64))[:64].astype(np.float64)
    expected = np.sqrt(-2 * np.log1p(-steps * 2.0**-52))
    np.testing.assert_allclose(given, expected, rtol=4 * float(np.finfo(dtype).eps))
    assert filled(2, dtype, crafted(dtype, [0], [0]))[0] == 0  # u = 1


# Events fixed before any sample is drawn.
EDGES = np.array([-np.inf, -5, -4.5, -4, -3, -2, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2, 3, 4, 4.5, 5, np.inf])
LAGS = (1, 2, BLOCK // 2, BLOCK, 2 * BLOCK, 1024)


def passes_cells(sample: NDArray[np.float64]) -> bool:
    """Counts between the edges, each against its exact binomial law."""
    counts = np.histogram(sample, EDGES)[0]
    expected = np.diff(stats.norm.cdf(EDGES))
    # The upper tail by symmetry: 1 - cdf would lose its digits.
    expected[-1] = expected[0]
    tests = [stats.binomtest(int(c), sample.size, p).pvalue for c, p in zip(counts, expected, strict=True)]
    return bool(min(tests) >= ALPHA / len(tests))


def passes_moments(sample: NDArray[np.float64]) -> bool:
    """If the sample is what it should be, its sum is exactly normal and its squares exactly chi-squared."""
    mean = 2 * stats.norm.sf(abs(sample.sum()) / np.sqrt(sample.size))
    squares = float(np.sum(sample**2))
    spread = 2 * min(stats.chi2.cdf(squares, sample.size), stats.chi2.sf(squares, sample.size))
    return bool(mean >= ALPHA / 2 and spread >= ALPHA / 2)


def passes_independence(sample: NDArray[np.float64]) -> bool:
    """At each lag: equal signs, and both numbers large. Pairs do not overlap, so the counts are binomial."""
    large = 2 * stats.norm.sf(1.5)
    for lag in LAGS:
        whole = sample[: sample.size // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
        first, second = whole[:, 0].ravel(), whole[:, 1].ravel()
        same = int(np.count_nonzero((first > 0) == (second > 0)))
        both = int(np.count_nonzero((np.abs(first) > 1.5) & (np.abs(second) > 1.5)))
        values = [
            stats.binomtest(same, first.size, 0.5).pvalue,
            stats.binomtest(both, first.size, large**2).pvalue,
        ]
        if min(values) < ALPHA / (2 * len(LAGS)):
            return False
    return True


def passes(sample: NDArray[np.float64]) -> tuple[bool, bool, bool]:
    return passes_cells(sample), passes_moments(sample), passes_independence(sample)


def honest(dtype: type[np.floating], seed: int) -> NDArray[np.float64]:
    return Simulation(seed).normal(COUNT, dtype=dtype).astype(np.float64)


@Types
@pytest.mark.parametrize("seed", [1, 2])
def test_normals_follow_their_law(dtype: type[np.floating], seed: int) -> None:
    assert passes(honest(dtype, seed)) == (True, True, True)


def repeated_blocks() -> NDArray[np.float64]:
    whole = honest(np.float32, 3)[: 128 * BLOCK].reshape(-1, 2, BLOCK)
    whole[:, 1] = whole[:, 0]
    return whole.ravel()


def shared_radius() -> NDArray[np.float64]:
    """Each radius serves two pairs: uncorrelated, and still dependent."""
    keystream = keystream_of(BLOCK, np.float32, 4).copy()
    parts = []
    for seed in range(64):
        keystream[8 * (BLOCK // 2) :] = keystream_of(BLOCK, np.float32, seed)[8 * (BLOCK // 2) :]
        if seed % 2 == 0:
            keystream[: 4 * BLOCK] = keystream_of(BLOCK, np.float32, seed)[: 4 * BLOCK]
        parts.append(filled(BLOCK, np.float32, keystream).astype(np.float64))
    return np.concatenate(parts)


def cut_at_four() -> NDArray[np.float64]:
    return np.clip(honest(np.float32, 5), -4, 4)


WRONG: dict[str, tuple[Sampler, int]] = {
    "too little noise, by cells": (lambda: 0.98 * honest(np.float32, 6), 0),
    "too little noise, by moments": (lambda: 0.98 * honest(np.float32, 6), 1),
    "off centre, by cells": (lambda: honest(np.float32, 6) + 0.01, 0),
    "off centre, by moments": (lambda: honest(np.float32, 6) + 0.01, 1),
    "no tail": (cut_at_four, 0),
    "uniform of the same variance": (lambda: 3**0.5 * (2 * stats.norm.cdf(honest(np.float32, 7)) - 1), 0),
    "the same block twice": (repeated_blocks, 2),
    "one radius for two pairs": (shared_radius, 2),
    "each number twice": (lambda: np.repeat(honest(np.float32, 8), 2), 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_normals_are_caught(name: str) -> None:
    sampler, check = WRONG[name]
    assert not passes(sampler())[check]


FALLBACK = """
import sys, warnings
sys.modules["tacit.kernels._normals"] = None  # as if it had never been compiled
from tacit.entropy import Simulation
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    drawn = [Simulation(9).normal(40_001, dtype=dtype) for dtype in ("float32", "float64", "float32")]
assert [str(w.message)[:45] for w in caught] == ["tacit was installed without its compiled kern"], caught
assert "tacit.kernels.reference" in sys.modules
sys.stdout.buffer.write(b"".join(array.tobytes() for array in drawn[:2]))
"""


def test_without_a_compiled_kernel_the_twin_serves_with_one_warning() -> None:
    done = subprocess.run([sys.executable, "-c", FALLBACK], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    single = np.frombuffer(done.stdout[: 4 * 40_001], dtype=np.float32)
    double = np.frombuffer(done.stdout[4 * 40_001 :], dtype=np.float64)
    np.testing.assert_allclose(single, Simulation(9).normal(40_001), rtol=0, atol=4e-6)
    np.testing.assert_allclose(double, Simulation(9).normal(40_001, dtype=np.float64), rtol=0, atol=8e-15)


def test_wrong_arrays_are_refused() -> None:
    stream = np.zeros(12, dtype=np.uint8)
    with pytest.raises(BadInput, match="float32 or float64"):
        kernels.fill_normals(np.zeros(2, dtype=np.float16), stream, 1.0)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="flat"):
        kernels.fill_normals(np.zeros((1, 2), dtype=np.float32), stream, 1.0)
    with pytest.raises(BadInput, match="expected 12 contiguous"):
        kernels.fill_normals(np.zeros(2, dtype=np.float32), stream[:11], 1.0)
    with pytest.raises(BadInput, match="expected 16 contiguous"):
        kernels.fill_normals(np.zeros(2), stream, 1.0)
    with pytest.raises(BadInput, match="expected 12 contiguous"):
        kernels.fill_normals(np.zeros(2, dtype=np.float32), np.zeros(24, dtype=np.uint8)[::2], 1.0)


def test_the_compiled_kernel_checks_sizes_and_types_itself() -> None:
    compiled = pytest.importorskip("tacit.kernels._normals")
    stream = np.zeros(24, dtype=np.uint8)
    with pytest.raises(ValueError, match="expected 36 keystream bytes, got 24"):
        compiled.fill_float32(np.zeros(6, dtype=np.float32), stream, 1.0)
    with pytest.raises(TypeError):
        compiled.fill_float32(np.zeros(4, dtype=np.float64), stream, 1.0)
    read_only = np.zeros(4, dtype=np.float32)
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        compiled.fill_float32(read_only, stream, 1.0)
