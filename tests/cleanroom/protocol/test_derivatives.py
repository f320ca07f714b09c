"""Layouts and derivatives: closed forms against every matrix written out, one example at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import MOST_BLOCKS, ParameterBlock, ParameterLayout
from tacit.errors import BadInput, RoomRefused

LAYOUT = ParameterLayout(
    (
        ParameterBlock("query.A", 2, 5),
        ParameterBlock("query.B", 7, 2, positions=4),
        ParameterBlock("tower.A", 1, 3),
    )
)


def drawn_factors(block: ParameterBlock, counts: NDArray[np.int32], seed: int) -> Factors:
    numbers, pairs = np.random.default_rng(seed), int(counts.sum())
    left = numbers.normal(size=(pairs, block.rows)).astype(np.float32)
    return Factors(left, numbers.normal(size=(pairs, block.cols)).astype(np.float32), counts)


def mixed(
    block: ParameterBlock, counts: NDArray[np.int32], is_dense: NDArray[np.bool_], seed: int
) -> BlockDerivatives:
    factors = drawn_factors(block, counts, seed)
    numbers = np.random.default_rng(seed + 1)
    dense = numbers.normal(size=(int(is_dense.sum()), block.parameters)).astype(np.float32)
    return BlockDerivatives(block, is_dense, factors, dense)


def slow_matrices(derivatives: BlockDerivatives) -> NDArray[np.float64]:
    """(n, rows, cols): the definition, one example and one pair at a time, in float64."""
    block, factors = derivatives.block, derivatives.factors
    matrices, pair, example, dense = [], 0, 0, 0
    for is_dense in derivatives.is_dense:
        matrix = np.zeros((block.rows, block.cols))
        if is_dense:
            matrix += derivatives.dense[dense].reshape(block.rows, block.cols)
            dense += 1
        else:
            for _ in range(factors.counts[example]):
                left, right = factors.left[pair].astype(np.float64), factors.right[pair].astype(np.float64)
                matrix += np.outer(left, right)
                pair += 1
            example += 1
        matrices.append(matrix)
    return np.array(matrices).reshape(len(derivatives), block.rows, block.cols)


@st.composite
def some_derivatives(draw: st.DrawFn) -> BlockDerivatives:
    positions = draw(st.sampled_from([1, 1, 2, 9]))
    block = ParameterBlock("layer", draw(st.integers(1, 40)), draw(st.integers(1, 40)), positions)
    is_dense = np.array(draw(st.lists(st.booleans(), min_size=1, max_size=12)), np.bool_)
    factored = int((~is_dense).sum())
    if positions == 1:
        counts = np.ones(factored, np.int32)
    else:
        some = st.lists(st.integers(0, positions), min_size=factored, max_size=factored)
        counts = np.array(draw(some), np.int32)
    return mixed(block, counts, is_dense, draw(st.integers(0, 2**32)))


@given(some_derivatives(), st.integers(0, 2**32))
def test_closed_forms_equal_the_written_out_ones(derivatives: BlockDerivatives, seed: int) -> None:
    matrices = slow_matrices(derivatives)
    flat = matrices.reshape(len(derivatives), -1)
    weights = np.random.default_rng(seed).normal(size=len(derivatives))
    expected = np.einsum("n,nij->ij", weights, matrices)
    size = max(float(np.abs(weights) @ np.abs(flat).max(axis=1)), 1e-30)
    # float32 sums of at most 12 x 9 terms: a few times 2^-24; float64 exactly as the definition.
    np.testing.assert_allclose(derivatives.weighted_sum(weights) / size, expected / size, atol=1e-6)
    wide = derivatives.weighted_sum(weights, dtype=np.float64)
    np.testing.assert_allclose(wide / size, expected / size, atol=1e-14)
    assert wide.dtype == np.float64

    squares = np.square(flat).sum(axis=1)
    np.testing.assert_allclose(derivatives.squared_norms(), squares, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(derivatives.absolute_norms(), np.abs(flat).sum(axis=1), rtol=1e-10, atol=1e-12)
    assert (derivatives.triangle_norms() >= np.sqrt(squares) * (1 - 1e-12)).all()
    absolute = derivatives.triangle_absolute_norms()
    assert (absolute >= np.abs(flat).sum(axis=1) * (1 - 1e-12)).all()
    scale = max(float(squares.max()), 1e-30)
    np.testing.assert_allclose(derivatives.gram() / scale, flat @ flat.T / scale, atol=1e-6)
    written = derivatives.as_dense()
    assert written.dtype == np.float32
    np.testing.assert_allclose(written, flat, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("positions", [1, 2])
def test_long_batches_are_worked_off_in_chunks(positions: int) -> None:
    block, examples = ParameterBlock("layer", 2, 3, positions), 120_000  # several chunks of every kind
    counts = np.random.default_rng(3).integers(1, positions + 1, examples).astype(np.int32)
    derivatives = BlockDerivatives.of_factors(block, drawn_factors(block, counts, 4))
    factors, weights = derivatives.factors, np.random.default_rng(5).normal(size=examples)
    owners = np.repeat(np.arange(examples), counts)
    pairs = np.einsum("pi,pj->pij", factors.left.astype(np.float64), factors.right.astype(np.float64))
    matrices = np.zeros((examples, 2, 3))
    np.add.at(matrices, owners, pairs)
    expected = np.einsum("n,nij->ij", weights, matrices)
    np.testing.assert_allclose(derivatives.weighted_sum(weights, dtype=np.float64), expected, rtol=1e-10)
    np.testing.assert_allclose(derivatives.weighted_sum(weights), expected, rtol=1e-3)
    np.testing.assert_allclose(
        derivatives.squared_norms(), (matrices**2).sum(axis=(1, 2)), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(derivatives.absolute_norms(), np.abs(matrices).sum(axis=(1, 2)), rtol=1e-9)
    dense = BlockDerivatives.of_dense(block, derivatives.as_dense())
    np.testing.assert_allclose(dense.weighted_sum(weights, dtype=np.float64), expected, rtol=1e-3)
    np.testing.assert_allclose(dense.squared_norms(), derivatives.squared_norms(), rtol=1e-3, atol=1e-6)


@given(some_derivatives(), st.integers(-3, 14), st.integers(-3, 14))
def test_rows_are_a_slice(derivatives: BlockDerivatives, start: int, stop: int) -> None:
    some = derivatives.rows(start, stop)
    np.testing.assert_array_equal(slow_matrices(some), slow_matrices(derivatives)[start:stop])
    np.testing.assert_array_equal(some.is_dense, derivatives.is_dense[start:stop])


def test_norms_of_float32_at_their_limits_stay_finite() -> None:
    block = ParameterBlock("layer", 4096, 4096)
    large = np.full((1, 4096), 3e38, np.float32)
    derivatives = BlockDerivatives.of_factors(block, Factors(large, large, np.ones(1, np.int32)))
    assert np.isfinite(derivatives.squared_norms()).all()
    assert np.isfinite(derivatives.absolute_norms()).all()


def test_norms_of_pairs_that_cancel_are_bounded_only_by_the_triangle() -> None:
    # Two pairs that cancel but for what float64 loses of them: why clipping must not rest on the norm alone.
    block, large = ParameterBlock("layer", 64, 64, positions=2), np.float32(2.0**31)
    left = np.zeros((2, 64), np.float32)
    right = np.zeros((2, 64), np.float32)
    left[:, 0], right[:, 0] = (large, -large), (large, large)
    left[1, 1] = 1  # leaves an entry of 2^31
    derivatives = BlockDerivatives.of_factors(block, Factors(left, right, np.array([2], np.int32)))
    true_norm = 2.0**31
    assert abs(derivatives.squared_norms()[0] ** 0.5 - true_norm) > true_norm / 2
    assert derivatives.triangle_norms()[0] >= 2.0**63


def test_empty_batches_and_examples_without_pairs() -> None:
    block = ParameterBlock("layer", 3, 2, positions=5)
    nothing = BlockDerivatives.of_factors(block, Factors.none(block))
    assert len(nothing) == 0
    assert nothing.squared_norms().shape == (0,)
    np.testing.assert_array_equal(nothing.weighted_sum(np.empty(0)), np.zeros((3, 2)))
    silent = BlockDerivatives.of_factors(block, drawn_factors(block, np.zeros(4, np.int32), 1))
    np.testing.assert_array_equal(silent.squared_norms(), np.zeros(4))
    np.testing.assert_array_equal(silent.triangle_norms(), np.zeros(4))
    np.testing.assert_array_equal(silent.as_dense(), np.zeros((4, 6)))


def test_derivatives_that_do_not_fit_are_refused() -> None:
    block = ParameterBlock("layer", 3, 2)
    left, right = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    ones = np.ones(4, np.int32)
    with pytest.raises(BadInput, match="add up"):
        Factors(left, right, np.ones(3, np.int32))
    with pytest.raises(BadInput, match="counts >= 0"):
        Factors(left, right, np.array([-1, 5], np.int32))
    with pytest.raises(BadInput, match="left"):
        Factors(left.astype(np.float64), right, ones)
    with pytest.raises(BadInput, match="wide"):
        BlockDerivatives.of_factors(ParameterBlock("layer", 2, 2), Factors(left, right, ones))
    with pytest.raises(BadInput, match="dense"):
        BlockDerivatives.of_dense(block, np.ones((4, 5), np.float32))
    good = BlockDerivatives.of_factors(block, Factors(left, right, ones))
    with pytest.raises(BadInput, match="4 weights"):
        good.weighted_sum(np.ones(5))


def test_split_and_join_undo_each_other() -> None:
    flat = np.arange(LAYOUT.parameters, dtype=np.float32)
    parts = LAYOUT.split(flat)
    assert [part.shape for part in parts.values()] == [(2, 5), (7, 2), (1, 3)]
    np.testing.assert_array_equal(LAYOUT.join(parts), flat)
    parts["query.B"][0, 1] = -1  # a view
    assert flat[11] == -1
    with pytest.raises(BadInput, match="flat vector"):
        LAYOUT.split(flat[1:])
    with pytest.raises(BadInput, match="one matrix for each block"):
        LAYOUT.join({"query.A": parts["query.A"]})
    with pytest.raises(BadInput, match=r"query\.A of 2 x 5"):
        LAYOUT.join({**parts, "query.A": parts["query.A"].T})


def test_layout_through_json() -> None:
    assert ParameterLayout.from_json(LAYOUT.as_json()) == LAYOUT


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        [["a", 1, 1]],
        [["a", 1, 1, 1, 1]],
        [["a", 0, 1, 1]],
        [["a", 1, -1, 1]],
        [["a", 1, 1, 0]],
        [["a", 1, 1, 2**16]],
        [["a", 1.0, 1, 1]],
        [["a", True, 1, 1]],
        [["", 1, 1, 1]],
        [["a" * 129, 1, 1, 1]],
        [["a\n", 1, 1, 1]],
        [[3, 1, 1, 1]],
        [["a", 1, 1, 1], ["a", 1, 1, 1]],
        [["a", 2**28, 2, 1]],
        [["a", 2**100, 1, 1]],
        [[f"b{place}", 1, 1, 1] for place in range(MOST_BLOCKS + 1)],
        [[f"b{place}", 2**14, 2**14, 1] for place in range(2)],
    ],
)
def test_strange_layouts_are_refused(value: Any) -> None:
    with pytest.raises(RoomRefused) as refused:
        ParameterLayout.from_json(value)
    assert refused.value.reason is RoomRefusal.MALFORMED
