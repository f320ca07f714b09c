"""The factorization machine's loops and the gathering of rows: every way of running them against the twins in
double precision, and the twins against the definition. What is refused, and that the twins serve."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.kernels import backend, training
from tacit.kernels import reference_training as twins
from tests.support.kernel_ways import U, Ways, served

Array = NDArray[Any]


@dataclass(frozen=True)
class Batch:
    table: NDArray[np.float32]  # (rows, 1 + dimension)
    ids: NDArray[np.int32]  # (examples, fields)
    first_trained: int
    coefficients: NDArray[np.float32]  # (examples,)

    @property
    def table64(self) -> NDArray[np.float64]:
        return self.table.astype(np.float64)

    def forward(self) -> tuple[Array, Array, Array]:
        logits, squares = np.full((2, len(self.ids)), np.nan, np.float32)
        sums = np.full((len(self.ids), self.table.shape[1] - 1), np.nan, np.float32)
        training.fm_forward(self.table, self.ids, self.first_trained, logits, sums, squares)
        return logits, sums, squares

    def scattered(self, sums: Array, *, pulled: bool) -> Array:
        into, pulls = np.zeros_like(self.table), np.zeros(len(self.table), np.float32)
        given = (self.table, self.ids, self.first_trained, self.coefficients, sums, into)
        training.fm_scatter(*given, pulls if pulled else None)
        if pulled:
            rows = np.unique(self.ids[:, self.first_trained :]).astype(np.int32)
            training.apply_rows(self.table.copy(), into, rows, 0.0, 1.0, pulls)  # no step: completed alone
            assert not pulls.any()
        return into


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Few rows, so that most examples repeat some; columns by the 32, 16, 8 and 4, and what is left of them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, fields = draw(st.integers(1, 60)), draw(st.integers(1, 40))
    dimension = draw(st.sampled_from([0, 1, 3, 4, 7, 8, 9, 16, 20, 31, 32, 33, 45, 64, 75]))
    examples = draw(st.sampled_from([0, 1, 2, 17]))
    table = rng.standard_normal((rows, 1 + dimension), dtype=np.float32)
    ids = rng.integers(0, rows, (examples, fields), dtype=np.int32)
    first_trained = draw(st.sampled_from([0, fields // 2, fields]))
    return Batch(table, ids, first_trained, rng.standard_normal(examples, dtype=np.float32))


def slow_logit(table: Array, ids: Array) -> float:
    """The factorization machine as it is defined: every pair of fields."""
    pairs = [(f, g) for f in range(len(ids)) for g in range(f)]
    linear = sum(float(table[row, 0]) for row in ids)
    return linear + sum(float(table[ids[f], 1:] @ table[ids[g], 1:]) for f, g in pairs)


@given(batch=batches())
def test_the_twin_is_the_definition(batch: Batch) -> None:
    table, ids = batch.table64, batch.ids[:3]
    logits, squares = np.empty((2, len(ids)))
    sums = np.empty((len(ids), table.shape[1] - 1))
    twins.fm_forward(table, ids, batch.first_trained, logits, sums, squares)  # type: ignore[arg-type]
    for example, row_ids in enumerate(ids):
        assert logits[example] == pytest.approx(slow_logit(table, row_ids), rel=1e-10, abs=1e-10)
        gradient = np.zeros_like(table)
        for row in row_ids[batch.first_trained :]:
            gradient[row, 0] += 1
            gradient[row, 1:] += sums[example] - table[row, 1:]
        assert squares[example] == pytest.approx(float(np.sum(gradient**2)), rel=1e-10)
        scattered = np.zeros_like(table)
        one = slice(example, example + 1)
        twins.fm_scatter(
            table, ids[one], batch.first_trained, np.ones(1), sums[one], scattered, None  # type: ignore[arg-type]
        )  # fmt: skip
        np.testing.assert_allclose(scattered, gradient, rtol=1e-10, atol=1e-12)


def test_the_gradient_is_the_slope_of_the_logit() -> None:
    """The logit is at most quadratic in every entry, so that a central difference is exact but for rounding."""
    rng = np.random.default_rng(3)
    table, ids = rng.standard_normal((5, 4)), np.array([[0, 3, 3, 1, 3, 0]], dtype=np.int32)
    slopes = np.zeros_like(table)
    for place in np.ndindex(*table.shape):
        step = np.zeros_like(table)
        step[place] = 0.5
        slopes[place] = slow_logit(table + step, ids[0]) - slow_logit(table - step, ids[0])
    logits, sums, squares = np.empty(1), np.empty((1, 3)), np.empty(1)
    twins.fm_forward(table, ids, 0, logits, sums, squares)  # type: ignore[arg-type]
    scattered = np.zeros_like(table)
    twins.fm_scatter(table, ids, 0, np.ones(1), sums, scattered, None)  # type: ignore[arg-type]
    np.testing.assert_allclose(scattered, slopes, rtol=1e-12, atol=1e-12)
    assert squares[0] == pytest.approx(float(np.sum(slopes**2)), rel=1e-12)


@Ways
@given(batch=batches())
def test_forward(way: str, batch: Batch) -> None:
    with served(way):
        logits, sums, squares = batch.forward()
    table, (examples, fields) = batch.table64, batch.ids.shape
    expected, exact_sums, ignored = np.empty(examples), np.empty(sums.shape), np.empty(examples)
    twins.fm_forward(table, batch.ids, batch.first_trained, expected, exact_sums, ignored)  # type: ignore[arg-type]
    sizes = np.abs(table[batch.ids])  # (examples, fields, width)
    reach = sizes[:, :, 1:].sum(axis=1)  # at least every |S - v|
    assert np.all(np.abs(sums - exact_sums) <= fields * U * reach)
    terms = fields + table.shape[1]
    assert np.all(
        np.abs(logits - expected) <= 4 * terms * U * (sizes[:, :, 0].sum(axis=1) + (reach**2).sum(axis=1))
    )
    # Of the sums that will be scattered the squares are right to a small part of themselves.
    trained = batch.ids[:, batch.first_trained :]
    gradient = np.zeros((examples, *table.shape))
    apart = np.concatenate(
        [np.ones((*trained.shape, 1)), sums[:, None].astype(np.float64) - table[trained][:, :, 1:]], axis=2
    )
    np.add.at(gradient, (np.arange(examples)[:, None], trained), apart)
    np.testing.assert_allclose(squares, (gradient**2).sum(axis=(1, 2)), rtol=4 * terms * U)


@Ways
@pytest.mark.parametrize("pulled", [False, True])
@given(batch=batches())
def test_scatter(way: str, pulled: bool, batch: Batch) -> None:
    with served(way):
        _, sums, _ = batch.forward()
        found = batch.scattered(sums, pulled=pulled)
    table, expected, most = batch.table64, *np.zeros((2, *batch.table.shape))
    arguments = (batch.ids, batch.first_trained)
    exact, size = (a.astype(np.float64) for a in (batch.coefficients, np.abs(batch.coefficients)))
    twins.fm_scatter(table, *arguments, exact, sums.astype(float), expected, None)  # type: ignore[arg-type]
    twins.fm_scatter(-np.abs(table), *arguments, size, np.abs(sums).astype(float), most, None)  # type: ignore[arg-type]
    assert np.all(np.abs(found - expected) <= (batch.ids.size + 4) * U * most)


@Ways
@given(batch=batches())
def test_an_example_adds_as_much_as_its_norm_says(way: str, batch: Batch) -> None:
    """What clipping rests on: the squares are the norms of what is scattered, repeats and all."""
    alone = Batch(batch.table, batch.ids[:1], batch.first_trained, np.ones(len(batch.ids[:1]), np.float32))
    with served(way):
        _, sums, squares = alone.forward()
        added = alone.scattered(sums, pulled=False).astype(np.float64)
    terms = sum(batch.table.shape) + batch.ids.shape[1]
    np.testing.assert_allclose(np.sum(added**2), squares.sum(), rtol=8 * terms * U)


@Ways
@pytest.mark.parametrize("rows", [40, 5000])
def test_an_example_of_many_fields_adds_as_much_as_its_norm_says(way: str, rows: int) -> None:
    """Beyond 256 fields rows are put in order to find those that come twice."""
    rng = np.random.default_rng(rows)
    table = 0.1 * rng.standard_normal((rows, 6), dtype=np.float32)
    ids = rng.integers(0, rows, (1, 700), dtype=np.int32)
    batch = Batch(table, ids, 100, np.ones(1, np.float32))
    with served(way):
        _, sums, squares = batch.forward()
        added = batch.scattered(sums, pulled=False).astype(np.float64)
    assert len(np.unique(ids[:, 100:])) < 600
    np.testing.assert_allclose(np.sum(added**2), squares[0], rtol=1e-4)


def test_forgotten_repeats_would_be_caught() -> None:
    """The twin that must fail: a norm that takes repeated rows for different ones falls short."""
    table = np.ones((2, 3), np.float32)
    batch = Batch(table, np.zeros((1, 3), np.int32), 0, np.ones(1, np.float32))
    _, sums, squares = batch.forward()
    forgetful = 3 * (np.sum((sums[0] - table[0, 1:]) ** 2) + 1)
    added = np.sum(batch.scattered(sums, pulled=False) ** 2)
    assert added == squares[0] == 3 * forgetful


def grouped_squares(batch: Batch, sums: Array, groups: Array, count: int) -> Array:
    squares = np.full(count, np.nan)
    training.fm_group_squares(
        batch.table, batch.ids, batch.first_trained, batch.coefficients, sums, groups, squares
    )
    return squares


@Ways
@given(batch=batches(), data=st.data())
def test_squares_of_groups(way: str, batch: Batch, data: st.DataObject) -> None:
    """Each group's gradient sum, dense and in double precision. Few rows, so that most are read several times,
    by one example and by others; some groups are empty."""
    count, examples = data.draw(st.integers(1, 12)), len(batch.ids)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    groups = np.sort(rng.integers(0, count, examples))
    _, sums, _ = batch.forward()
    with served(way):
        found = grouped_squares(batch, sums, groups, count)
    for group in range(count):
        own, gradient = groups == group, np.zeros(batch.table.shape)
        arguments = batch.ids[own], batch.first_trained, batch.coefficients[own].astype(float)
        twins.fm_scatter(batch.table64, *arguments, sums[own].astype(float), gradient, None)  # type: ignore[arg-type]
        assert found[group] == pytest.approx(float(np.sum(gradient**2)), rel=1e-9, abs=1e-18)


@Ways
@given(batch=batches())
def test_a_group_of_one_is_the_example(way: str, batch: Batch) -> None:
    with served(way):
        _, sums, squares = batch.forward()
        found = grouped_squares(batch, sums, np.arange(len(batch.ids)), len(batch.ids))
    terms = batch.ids.shape[1] + batch.table.shape[1]
    exact = batch.coefficients.astype(float) ** 2 * squares
    np.testing.assert_allclose(found, exact, rtol=8 * terms * U)


@Ways
def test_a_large_group_and_many_small_ones(way: str) -> None:
    """A table of rows grows with the largest group; what it left there must not show in a later one."""
    rng = np.random.default_rng(7)
    table = rng.standard_normal((5000, 33), dtype=np.float32)
    ids = rng.integers(0, 5000, (900, 7), dtype=np.int32)
    batch = Batch(table, ids, 2, rng.standard_normal(900, dtype=np.float32))
    groups = np.r_[np.repeat(np.arange(100), 2), np.full(500, 100), 101 + np.arange(200)]
    _, sums, _ = batch.forward()
    with served(way):
        found = grouped_squares(batch, sums, groups, 301)
    for group in range(0, 301, 10):
        own = np.flatnonzero(groups == group)
        alone = Batch(table, ids[own], 2, batch.coefficients[own])
        expected = grouped_squares(alone, sums[own], np.zeros(len(own), np.int64), 1)
        assert found[group] == pytest.approx(expected[0], rel=1e-12)


@Ways
def test_what_is_left_of_gradients_that_cancel_is_not_understated(way: str) -> None:
    """Two examples pull the same rows in opposite directions, but for the last bit of a residual of 1000."""
    rng = np.random.default_rng(11)
    table = rng.standard_normal((9, 17), dtype=np.float32)
    ids = np.repeat(rng.integers(0, 9, (1, 5), dtype=np.int32), 2, axis=0)
    larger = np.nextafter(np.float32(1000), np.float32(np.inf))
    batch = Batch(table, ids, 0, np.array([larger, -1000], np.float32))
    _, sums, squares = batch.forward()
    with served(way):
        left, nothing = (
            grouped_squares(Batch(table, ids, 0, pair), sums, np.zeros(2, np.int64), 1)[0]
            for pair in (batch.coefficients, np.array([1000, -1000], np.float32))
        )
    assert left == pytest.approx((float(larger) - 1000) ** 2 * float(squares[0]), rel=1e-5)
    assert nothing == 0


@Ways
def test_what_is_not_finite_stays_so(way: str) -> None:
    table, ids = np.ones((4, 3), np.float32), np.array([[0, 1], [2, 3], [1, 2]], np.int32)
    batch = Batch(table, ids, 0, np.array([np.nan, 1, np.inf], np.float32))
    _, sums, _ = batch.forward()
    with served(way), np.errstate(invalid="ignore"):
        found = grouped_squares(batch, sums, np.arange(3), 3)
    np.testing.assert_array_equal(np.isfinite(found), [False, True, False])


@Ways
@given(data=st.data(), rows=st.sampled_from([1, 63, 64, 65, 300, 20_000]), count=st.integers(0, 80))
def test_touch(way: str, data: st.DataObject, rows: int, count: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    ids = rng.integers(0, rows, (count, 2), dtype=np.int32)
    before = rng.choice(np.array([4, 7], np.int32), rows)  # some rows were touched in this step already
    stamps, listed = before.copy(), np.full(min(ids.size, rows), -1, np.int32)
    with served(way):
        found = training.touch(ids, stamps, 7, listed)
        again = training.touch(ids, stamps, 7, listed.copy())
    wanted = np.unique(ids[before[ids] != 7])
    np.testing.assert_array_equal(listed[:found], wanted)
    assert again == 0
    before[wanted] = 7
    np.testing.assert_array_equal(stamps, before)


@Ways
@given(seed=st.integers(0, 2**32), width=st.sampled_from([1, 5, 8, 33, 64]), examples=st.integers(0, 30))
def test_take_and_add_rows(way: str, seed: int, width: int, examples: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((20, width), dtype=np.float32)
    ids = rng.integers(0, 20, (examples, 3), dtype=np.int32)
    taken = np.empty((*ids.shape, width), np.float32)
    into = table.copy()
    values = np.empty_like(taken)
    values[:] = rng.integers(-8, 9, values.shape)  # whole numbers: their sums are exact
    into[:] = rng.integers(-8, 9, into.shape)
    expected = into.copy()
    with served(way):
        training.take_rows(table, ids, taken)
        training.add_rows(into, ids, values)
    np.testing.assert_array_equal(taken, table[ids])
    np.add.at(expected, ids, values)
    np.testing.assert_array_equal(into, expected)


@Ways
def test_gather_ids_from_mapped_arrays(way: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for name, fields in (("public", 39), ("sensitive", 5)):
        np.save(tmp_path / f"{name}.npy", rng.integers(0, 1000, (500, fields), dtype=np.int32))
    public, sensitive = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("public", "sensitive"))
    rows = rng.integers(0, 500, 80)
    both, alone = np.empty((80, 44), np.int32), np.empty((80, 39), np.int32)
    with served(way):
        training.gather_ids(public, sensitive, rows, 7000, both)
        training.gather_ids(public, None, rows, 0, alone)
    np.testing.assert_array_equal(both, np.hstack([public[rows], sensitive[rows] + 7000]))
    np.testing.assert_array_equal(alone, public[rows])


def zeros(*shape: int, of: type = np.float32) -> Array:
    return np.zeros(shape, of)


def frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def ids(*values: int) -> Array:
    return np.array([values], np.int32)


OUTPUTS = (zeros(1), zeros(1, 2), zeros(1))
REFUSED = {
    "a row too far": lambda: training.fm_forward(zeros(4, 3), ids(0, 4), 0, *OUTPUTS),
    "a row below": lambda: training.fm_forward(zeros(4, 3), ids(0, -1), 0, *OUTPUTS),
    "64-bit ids": lambda: training.fm_forward(zeros(4, 3), ids(0).astype(np.int64), 0, *OUTPUTS),
    "double weights": lambda: training.fm_forward(zeros(4, 3, of=np.float64), ids(0), 0, *OUTPUTS),
    "no columns": lambda: training.fm_forward(zeros(4, 0), ids(0), 0, *OUTPUTS),
    "a strided table": lambda: training.fm_forward(zeros(8, 3)[::2], ids(0), 0, *OUTPUTS),
    "trained beyond": lambda: training.fm_forward(zeros(4, 3), ids(0), 2, *OUTPUTS),
    "trained before": lambda: training.fm_forward(zeros(4, 3), ids(0), -1, *OUTPUTS),
    "sums too narrow": lambda: training.fm_forward(zeros(4, 3), ids(0), 0, zeros(1), zeros(1, 1), zeros(1)),
    "outputs frozen": lambda: training.fm_forward(zeros(4, 3), ids(0), 0, frozen(zeros(1)), *OUTPUTS[1:]),
    "into of other rows": lambda: training.fm_scatter(
        zeros(4, 3), ids(0), 0, zeros(1), zeros(1, 2), zeros(3, 3)
    ),
    "too few pulls": lambda: training.fm_scatter(
        zeros(4, 3), ids(0), 0, zeros(1), zeros(1, 2), zeros(4, 3), zeros(3)
    ),
    "into the table": lambda: training.fm_scatter(
        (table := zeros(4, 3)), ids(0), 0, zeros(1), zeros(1, 2), table
    ),
    "a group too far": lambda: training.fm_group_squares(
        zeros(4, 3), ids(0), 0, zeros(1), zeros(1, 2), np.array([1]), zeros(1, of=np.float64)
    ),
    "a group below": lambda: training.fm_group_squares(
        zeros(4, 3), ids(0), 0, zeros(1), zeros(1, 2), np.array([-1]), zeros(1, of=np.float64)
    ),
    "groups that fall": lambda: training.fm_group_squares(
        zeros(4, 3), zeros(2, 1, of=np.int32), 0, zeros(2), zeros(2, 2), np.array([1, 0]),
        zeros(2, of=np.float64),
    ),
    "squares of floats": lambda: training.fm_group_squares(
        zeros(4, 3), ids(0), 0, zeros(1), zeros(1, 2), np.array([0]), zeros(1)
    ),
    "rows of a log too far": lambda: training.gather_ids(
        zeros(4, 2, of=np.int32), None, np.array([4]), 0, zeros(1, 2, of=np.int32)
    ),
    "rows of a log below": lambda: training.gather_ids(
        zeros(4, 2, of=np.int32), None, np.array([-1]), 0, zeros(1, 2, of=np.int32)
    ),
    "an offset below": lambda: training.gather_ids(
        zeros(4, 2, of=np.int32), None, np.array([1]), -1, zeros(1, 2, of=np.int32)
    ),
    "other sensitive rows": lambda: training.gather_ids(
        zeros(4, 2, of=np.int32), zeros(3, 1, of=np.int32), np.array([1]), 0, zeros(1, 3, of=np.int32)
    ),
    "take too far": lambda: training.take_rows(zeros(4, 3), ids(4), zeros(1, 1, 3)),
    "add too far": lambda: training.add_rows(zeros(4, 3), ids(4), zeros(1, 1, 3)),
    "no room": lambda: training.touch(ids(0, 1), zeros(4, of=np.int32), 1, zeros(1, of=np.int32)),
    "touch too far": lambda: training.touch(ids(0, 4), zeros(4, of=np.int32), 1, zeros(4, of=np.int32)),
    "apply too far": lambda: training.apply_rows(zeros(4, 3), zeros(4, 3), ids(4)[0], 0.1, 0.0),
    "a range too far": lambda: training.catch_up(
        zeros(4, 3), None, range(2, 5), zeros(4, of=np.int32), 0, 1, zeros(1), zeros(1), zeros(1, 3), None
    ),
    "a range of steps": lambda: training.catch_up(
        zeros(4, 3), None, range(0, 4, 2), zeros(4, of=np.int32), 0, 1, zeros(1), zeros(1), zeros(1, 3), None
    ),
    "too few open steps": lambda: training.catch_up(
        zeros(4, 3), None, range(2), zeros(4, of=np.int32), 0, 2, zeros(1), zeros(1), zeros(1, 3), None
    ),
    "one normal for two": lambda: training.catch_up(
        zeros(4, 3), zeros(4, 3), range(2), zeros(4, of=np.int32), 0, 1, zeros(1), zeros(1), zeros(1, 3),
        zeros(2, 3),
    ),
    "a short velocity": lambda: training.sgd_block(zeros(4), zeros(3), 0.1),
    "parts of rows": lambda: training.rmsprop_block(
        zeros(4), zeros(4), zeros(4), rate=1.0, decay=0.9, epsilon=1e-3, shrink=0.1, width=3
    ),
}  # fmt: skip


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_refused_in_one_line(refused: Any) -> None:
    with pytest.raises(BadInput, match=r"^expected .*, got .*") as caught:
        refused()
    assert "\n" not in str(caught.value)


def test_without_compiled_kernels_the_twins_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_interactions", "_rows", "_blocks"):
        monkeypatch.setitem(sys.modules, f"tacit.kernels.{name}", None)
    monkeypatch.setattr(training, "load_kernel", backend.load_kernel.__wrapped__)
    backend._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="twins serve"):
        assert training._kernel("rows") is twins
    weights = np.ones(3, np.float32)
    training.sgd_block(weights, np.ones(3, np.float32), 0.5)
    assert np.all(weights == 0.5)


def test_the_twins_have_every_kernel() -> None:
    for module in ("interactions", "rows", "blocks"):
        compiled = pytest.importorskip(f"tacit.kernels._{module}")
        for name in (name for name in dir(compiled) if not name.startswith("_")):
            assert callable(getattr(twins, name))
