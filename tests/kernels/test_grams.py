"""Norms of sums of outer products, compiled and not, against the gradients themselves in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.kernels import grams, reference_grams
from tacit.kernels.grams import Numbers, squared_products
from tests.support.kernel_ways import U, Ways

SHAPES = st.tuples(
    st.integers(1, 5), st.integers(1, 19), st.sampled_from([1, 2, 7, 8, 9, 24, 33]), st.integers(1, 17)
)


def found_by(
    way: str, read: Numbers, gradient: Numbers, *, bias: bool, threads: int = 1
) -> tuple[Numbers, Numbers]:
    with pytest.MonkeyPatch.context() as patch:
        if way == "twin":
            patch.setattr(grams, "load_kernel", lambda *_: reference_grams)
        else:
            pytest.importorskip("tacit.kernels._grams")
        return squared_products(read, gradient, bias=bias, threads=threads, wide=way == "wide")


@Ways
@given(shape=SHAPES, seed=st.integers(0, 2**32), bias=st.booleans(), threads=st.integers(1, 7))
def test_norms_are_those_of_the_gradients(
    way: str, shape: tuple[int, int, int, int], seed: int, bias: bool, threads: int
) -> None:
    examples, positions, inputs, outputs = shape
    rng = np.random.default_rng(seed)
    read = rng.standard_normal((examples, positions, inputs)).astype(np.float32)
    gradient = rng.standard_normal((examples, positions, outputs)).astype(np.float32)
    squares, sizes = found_by(way, read, gradient, bias=bias, threads=threads)
    one = np.ones((examples, positions, int(bias)))
    wide = np.concatenate([read.astype(np.float64), one], axis=2)
    made = np.einsum("etp,etq->epq", wide, gradient.astype(np.float64))  # every example's gradient
    most = (np.square(wide).sum(axis=2) * np.square(gradient.astype(np.float64)).sum(axis=2)).sum(axis=1)
    rounding = 4 * (positions + inputs + outputs) * U * positions * most
    np.testing.assert_array_less(np.abs(squares - np.square(made).sum(axis=(1, 2))), rounding + 1e-30)
    np.testing.assert_array_less(np.abs(sizes - most), rounding + 1e-30)


def test_a_batch_without_examples_has_no_norms_and_double_precision_is_kept() -> None:
    squares, sizes = squared_products(
        np.zeros((0, 3, 4), np.float32), np.zeros((0, 3, 5), np.float32), bias=True
    )
    assert len(squares) == len(sizes) == 0
    tiny = np.full((1, 2, 1), 1 + 2.0**-40)
    assert squared_products(tiny, tiny, bias=False)[0][0] == pytest.approx(4 * (1 + 2.0**-38), rel=1e-15)


@pytest.mark.parametrize(
    ("read", "gradient", "words"),
    [
        (np.zeros((2, 3, 4), np.float16), np.zeros((2, 3, 4), np.float16), "expected arrays of float32"),
        (np.zeros((2, 3, 4), np.float32), np.zeros((2, 4, 4), np.float32), "expected gradient as contiguous"),
        (np.zeros((2, 4, 3), np.float32).transpose(0, 2, 1), np.zeros((2, 3, 4), np.float32), "expected read"),
    ],
)  # fmt: skip
def test_other_arrays_are_refused(read: Numbers, gradient: Numbers, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        squared_products(read, gradient, bias=False)
