"""Normals by key: the kernel against its NumPy twin, the law, the tails, and independence.

Statistical checks fix their events beforehand and use exact tails, each wrong with probability ALPHA at most.
Each check is also run on a sampler that is wrong on purpose and must be refused.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy import stats

from tacit.entropy import Simulation
from tacit.errors import BadInput, SelfCheckFailed
from tacit.kernels import normals, reference
from tacit.kernels.backend import load_kernel
from tacit.kernels.normals import BLOCK, CHUNK, FURTHER_FROM, Normals
from tests.support.exact_tests import ALPHA
from tests.support.repository import ROOT

COUNT = 128 * BLOCK + 17
Sampler = Callable[[], NDArray[np.float64]]
Types = pytest.mark.parametrize("dtype", [np.float32, np.float64])
FILL = {np.float32: "fill_float32", np.float64: "fill_float64"}
WORD = {np.float32: np.uint32, np.float64: np.uint64}


def key_of(seed: int | str) -> bytes:
    return Simulation(seed).bytes(normals.KEY_BYTES)


def filled(size: int, dtype: type[np.floating], key: bytes, scale: float = 1.0) -> Normals:
    out: Normals = np.empty(size, dtype=dtype)
    normals.fill_normals(out, key, scale)
    return out


def by_twin(size: int, dtype: type[np.floating], key: bytes, scale: float = 1.0) -> NDArray[np.float64]:
    """The twin's answer before it is rounded to the array's type, from OpenSSL's keystream."""

    def from_counter(counter: int, count: int) -> bytes:
        start = modes.CTR(counter.to_bytes(16, "big"))
        return Cipher(algorithms.AES256(key), start).encryptor().update(bytes(count))

    words = -(-size // (2 * CHUNK)) * 2 * CHUNK
    keystream = np.frombuffer(from_counter(0, words * np.dtype(dtype).itemsize), np.uint8)
    out = np.empty(size, dtype=np.float64)
    further = lambda pair: int.from_bytes(from_counter(FURTHER_FROM + pair, 8), "little")  # noqa: E731
    getattr(reference, FILL[dtype])(out, keystream, further, scale)
    return out


def assert_same(given: Normals, expected: NDArray[np.float64], scale: float = 1.0) -> None:
    """Equal to within 4 units in the last place of the pair's radius, which bounds both of its numbers."""
    for start in range(0, given.size, 2 * CHUNK):
        found, wanted = given[start : start + 2 * CHUNK], expected[start : start + 2 * CHUNK]
        pairs = found.size - found.size // 2
        up = np.full(pairs, scale)  # of an odd number the last sine was left out
        up[: found.size - pairs] = np.abs(wanted[pairs:])
        radius = np.hypot(np.abs(wanted[:pairs]), up)
        allowed = 4 * float(np.finfo(given.dtype).eps) * np.concatenate([radius, radius])[: found.size]
        assert np.all(np.abs(found - wanted) <= allowed)


@Types
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 1022, 1023, 1024, 1025, 2048, 2049, 100_003])
@pytest.mark.parametrize("scale", [1.0, 0.125, 3e5])
def test_kernel_equals_its_twin(dtype: type[np.floating], size: int, scale: float) -> None:
    key = key_of(size)
    expected = by_twin(size, dtype, key, scale)
    assert_same(filled(size, dtype, key, scale), expected, scale)
    from_library: Normals = np.empty(size, dtype=dtype)
    normals.fill_from_library(from_library, key, scale)
    assert_same(from_library, expected, scale)


@Types
@pytest.mark.parametrize("size", [1, 1025, 50_001])
@pytest.mark.parametrize("add", [normals.fill_normals, normals.fill_from_library])
def test_normals_can_be_added_to_what_is_there(dtype: type[np.floating], size: int, add: Any) -> None:
    there = np.linspace(-2, 2, size).astype(dtype)
    changed = there.copy()
    add(changed, key_of("add"), 3.0, add=True)
    expected = there + by_twin(size, dtype, key_of("add"), 3.0)
    np.testing.assert_allclose(changed, expected, rtol=0, atol=60 * float(np.finfo(dtype).eps))


def of_words(
    module: Any,
    dtype: type[np.floating],
    radii: list[int],
    angles: list[int],
    further: int = 2**63,
    **way: bool,
) -> Any:
    """The normals of these words, 64 bits each and cut to the type's width; the twin's are not rounded."""
    size, narrow = 2 * len(radii), 64 - 8 * np.dtype(dtype).itemsize
    keystream = np.full((-(-size // (2 * CHUNK)), 2, CHUNK), 2**31, WORD[dtype])
    for chunk in range(len(keystream)):
        for place, words in enumerate((radii, angles)):
            some = [word >> narrow for word in words[chunk * CHUNK : (chunk + 1) * CHUNK]]
            keystream[chunk, place, : len(some)] = some
    out = np.empty(size, dtype=np.float64 if module is reference else dtype)
    getattr(module, FILL[dtype])(out, keystream.reshape(-1).view(np.uint8), lambda _: further, 1.0, **way)
    return out


EXTREME = [0, 1, 2**33 + 5, 2**39, 2**40 - 1, 2**40, 2**41, 2**62, 2**63 - 1, 2**63, 2**64 - 2**33, 2**64 - 1]
EXTREME += [
    int(2**64 * 0.5**0.5) + change for change in (-(2**33), -4096, 0, 4096, 2**33)
]  # the logarithm folds


@Types
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("further", [0, 2**63, 2**64 - 1])
def test_both_compilations_equal_the_twin_at_extreme_words(
    dtype: type[np.floating], wide: bool, further: int
) -> None:
    compiled = pytest.importorskip("tacit.kernels._normals")
    axes = [turn * 2**61 + change for turn in range(8) for change in (-(2**33), -1, 0, 1, 2**33)]
    angles = sorted({axis % 2**64 for axis in axes} | set(EXTREME))
    radii = [word for word in EXTREME for _ in angles]
    words = (dtype, radii, angles * len(EXTREME), further)
    given = of_words(compiled, *words, wide=wide)
    assert np.all(np.isfinite(given))
    assert_same(given, of_words(reference, *words))


@Types
@pytest.mark.parametrize("module", ["tacit.kernels._normals", "tacit.kernels.reference"])
def test_every_angle_has_its_mirror_image(dtype: type[np.floating], module: str) -> None:
    kernel = pytest.importorskip(module)
    angles = [word % 2**64 for word in (0, 12345 << 40, 2**60 + (77 << 33), 2**61 + (5 << 50))]
    mirrored = [word ^ (2**62 - 1) for word in angles]  # the other side of the axis, as far away
    opposite = [word ^ 2**63 for word in mirrored]  # and of the other axis
    radii = [2**50] * 4

    def turned(words: list[int]) -> NDArray[np.float64]:
        across, up = of_words(kernel, dtype, radii, words).reshape(2, 4)
        return np.array([across, up], np.float64)

    across, up = turned(angles)
    swapped_across, swapped_up = turned([word ^ 2**62 for word in angles])
    np.testing.assert_array_equal(turned(mirrored), [across, -up])
    np.testing.assert_array_equal(turned(opposite), [-across, -up])
    np.testing.assert_array_equal([swapped_up, swapped_across], [across, up])
    assert np.all(across * up != 0)


def furthest(dtype: type[np.floating], further: int) -> float:
    """The largest normal there is: least uniform, angle beside the axis."""
    return float(of_words(load_kernel("_normals"), dtype, [0], [0], further)[0])


@Types
def test_tails_reach_beyond_eleven_sigma(dtype: type[np.floating]) -> None:
    bits = 31 if dtype is np.float32 else 52
    assert furthest(dtype, 0) == pytest.approx(math.sqrt(2 * (bits + 65) * math.log(2)), rel=1e-6)
    assert furthest(dtype, 0) > 11.5
    # Without the further bits there would be less than nine sigma of a double, and seven of a float.
    assert furthest(dtype, 2**63) < (7 if dtype is np.float32 else 9)
    given = [furthest(dtype, word) for word in (0, 2**20, 2**40, 2**60, 2**62, 2**63, 2**64 - 1)]
    assert given == sorted(given, reverse=True)
    assert len(set(given)) == len(given)


def test_the_docs_say_how_far_the_tails_reach() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    single, double = (math.floor(10 * furthest(each, 0)) / 10 for each in (np.float32, np.float64))
    assert f"floating point; tails to {single} standard deviations, {double} in double precision" in page


@Types
def test_a_rare_pair_has_bits_of_its_own(dtype: type[np.floating]) -> None:
    pairs, itemsize = 2**21, np.dtype(dtype).itemsize
    for seed in range(200):
        key = key_of(f"rare {seed}")
        stream = (
            Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(2 * pairs * itemsize))
        )
        words = np.frombuffer(stream, WORD[dtype]).reshape(-1, 2, CHUNK)[:, 0]
        found = np.argwhere(words < 2 ** (8 * itemsize - 24))
        if len(found):
            break
    chunk, place = found[0].tolist()
    start = 2 * CHUNK * chunk
    given = filled(2 * pairs, dtype, key)
    expected = by_twin(start + 2 * CHUNK, dtype, key)
    assert_same(given[start : start + 2 * CHUNK], expected[start:])
    from_library: Normals = np.empty(2 * pairs, dtype)
    normals.fill_from_library(from_library, key, 1.0)
    assert_same(from_library[start : start + 2 * CHUNK], expected[start:])
    assert math.hypot(expected[start + place], expected[start + CHUNK + place]) > 5.7


@Types
def test_small_radii_stay_precise(dtype: type[np.floating]) -> None:
    # u = 1 - 2^-bits (j + 1/2): a logarithm of u rounded to float32 would be 0 for all of them.
    bits = 31 if dtype is np.float32 else 52
    steps = np.arange(64, dtype=np.float64)
    radii = [(2**bits - 1 - step) << (64 - bits) for step in range(64)]
    across, up = of_words(load_kernel("_normals"), dtype, radii, [0] * 64).reshape(2, 64).astype(np.float64)
    expected = np.sqrt(-2 * np.log1p(-(steps + 0.5) * 2.0**-bits))
    np.testing.assert_allclose(np.hypot(across, up), expected, rtol=4 * float(np.finfo(dtype).eps))


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
    draws = np.random.default_rng(4)
    radius = np.repeat(np.sqrt(-2 * np.log(draws.random(64 * BLOCK))), 2)
    angle = 2 * np.pi * draws.random(radius.size)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


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
    fill: Any = partial(normals.fill_normals, key=bytes(32), scale=1.0)
    with pytest.raises(BadInput, match="float32 or float64"):
        fill(np.zeros(2, dtype=np.float16))
    with pytest.raises(BadInput, match="flat"):
        fill(np.zeros((1, 2), dtype=np.float32))
    with pytest.raises(BadInput, match="flat"):
        fill(np.zeros(8)[::2])
    with pytest.raises(BadInput, match="a key of 32 bytes, got 16"):
        normals.fill_normals(np.zeros(2), bytes(16), 1.0)
    with pytest.raises(BadInput, match="under one key"):
        fill(np.broadcast_to(np.zeros(1, np.float32), 2**28 + 1).view(Writable))


class Writable(np.ndarray[Any, Any]):
    """An array of any size that takes no memory and says that it can be written."""

    @property
    def flags(self) -> Any:
        return np.zeros(1).flags


def test_the_compiled_kernel_checks_sizes_and_types_itself() -> None:
    compiled = pytest.importorskip("tacit.kernels._normals")
    stream, none = np.zeros(8 * CHUNK, dtype=np.uint8), lambda _: 0
    with pytest.raises(ValueError, match="expected 4096 keystream bytes, got 4088"):
        compiled.fill_float32(np.zeros(6, dtype=np.float32), stream[:-8], none, 1.0)
    with pytest.raises(ValueError, match="whole word"):
        compiled.fill_float32(np.zeros(6, dtype=np.float32), np.zeros(8 * CHUNK + 1, np.uint8)[1:], none, 1.0)
    with pytest.raises(TypeError):
        compiled.fill_float32(np.zeros(4, dtype=np.float64), stream, none, 1.0)
    with pytest.raises(ValueError, match="expected 32 bytes of key, got 31"):
        compiled.fill_float32_by_key(np.zeros(4, dtype=np.float32), bytes(31), 1.0)
    read_only = np.zeros(4, dtype=np.float32)
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        compiled.fill_float32(read_only, stream, none, 1.0)


@Types
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("size", [1, 1023, 50_001])
def test_the_widest_instructions_make_the_same_normals(dtype: type[np.floating], size: int, add: bool) -> None:
    compiled = pytest.importorskip("tacit.kernels._normals")
    if not compiled.has_keystream():
        pytest.skip("this machine has no VAES: no keystream is made in the kernel")
    make = getattr(compiled, f"fill_{np.dtype(dtype).name}_by_key")
    widest, wide = np.ones(size, dtype), np.ones(size, dtype)
    make(widest, bytes(range(32)), 2.5, add, widest=True)
    make(wide, bytes(range(32)), 2.5, add, widest=False)
    np.testing.assert_allclose(widest, wide, rtol=0, atol=1e-5 if dtype is np.float32 else 2e-14)
    assert size == 1 or np.std(wide) > 2


def test_a_keystream_that_is_not_aes_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        has_keystream = staticmethod(lambda: True)
        fill_float32, fill_float64 = reference.fill_float32, reference.fill_float64

        @staticmethod
        def fill_float32_by_key(out: Normals, key: bytes, scale: float) -> None:
            normals.fill_from_library(out, key[::-1], scale)

    monkeypatch.setattr(normals, "load_kernel", lambda _: Wrong)
    normals._makes_its_keystream.cache_clear()
    with pytest.raises(SelfCheckFailed, match="a keystream of AES-256"):
        normals.fill_normals(np.zeros(4, np.float32), bytes(32), 1.0)
    normals._makes_its_keystream.cache_clear()
