"""Projecting a noisy sum onto the span of its derivatives: the sum stays, and most of the noise goes."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.cleanroom.platform.gradients import inner_products, project_gradient
from tacit.cleanroom.platform.steps import AdapterPlan
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout

PLAIN, SEQUENCE, WRITTEN = (
    ParameterBlock("plain", 6, 5),
    ParameterBlock("sequence", 4, 7, positions=3),
    ParameterBlock("written", 3, 4),
)
LAYOUT = ParameterLayout((PLAIN, SEQUENCE, WRITTEN))


def examples(count: int, seed: int = 0) -> dict[str, BlockDerivatives]:
    """Derivatives of all kinds: one pair, several (or none), written out, and both mixed in one block."""
    draw = np.random.default_rng(seed)

    def floats(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(np.float32)

    counts = draw.integers(0, 4, count).astype(np.int32)
    pairs = int(counts.sum())
    is_dense = draw.random(count) < 0.5
    pairwise = Factors(
        floats(int((~is_dense).sum()), 3),
        floats(int((~is_dense).sum()), 4),
        np.ones((~is_dense).sum(), np.int32),
    )
    return {
        "plain": BlockDerivatives.of_factors(
            PLAIN, Factors(floats(count, 6), floats(count, 5), np.ones(count, np.int32))
        ),
        "sequence": BlockDerivatives.of_factors(SEQUENCE, Factors(floats(pairs, 4), floats(pairs, 7), counts)),
        "written": BlockDerivatives(WRITTEN, is_dense, pairwise, floats(int(is_dense.sum()), 12)),
    }


def written_out(derivatives: dict[str, BlockDerivatives]) -> np.ndarray:
    return np.concatenate([derivatives[b.name].as_dense() for b in LAYOUT.blocks], axis=1).astype(np.float64)


def rank(derivatives: dict[str, BlockDerivatives]) -> int:
    """The trace of the projection."""
    trace = sum(float(project_gradient(unit, derivatives, LAYOUT) @ unit) for unit in np.eye(LAYOUT.parameters))
    assert trace == pytest.approx(round(trace), abs=1e-3)
    return round(trace)


def test_inner_products_are_those_of_the_written_out_derivatives() -> None:
    derivatives = examples(9)
    for block in LAYOUT.blocks:
        matrix = np.random.default_rng(1).standard_normal((block.rows, block.cols))
        slow = derivatives[block.name].as_dense().astype(np.float64) @ matrix.reshape(-1)
        assert inner_products(derivatives[block.name], matrix) == pytest.approx(slow, rel=1e-5, abs=1e-5)


def test_a_sum_of_derivatives_stays_as_it_is() -> None:
    derivatives = examples(12)
    slopes = np.random.default_rng(2).uniform(-1, 1, 12)
    aggregate = slopes @ written_out(derivatives)
    kept = project_gradient(aggregate, derivatives, LAYOUT)
    assert np.linalg.norm(kept - aggregate) < 1e-6 * np.linalg.norm(aggregate)


def test_what_is_outside_the_span_goes_and_twice_is_once() -> None:
    derivatives = examples(12)
    dense = written_out(derivatives)
    noise = np.random.default_rng(3).standard_normal(LAYOUT.parameters)
    kept = project_gradient(noise, derivatives, LAYOUT)
    by_svd = dense.T @ np.linalg.lstsq(dense.T, noise, rcond=None)[0]  # the slow definition
    assert kept == pytest.approx(by_svd, abs=1e-5)
    assert project_gradient(kept, derivatives, LAYOUT) == pytest.approx(kept, abs=1e-6)
    assert dense @ (noise - kept) == pytest.approx(np.zeros(12), abs=1e-4)


def test_of_noise_in_all_directions_rank_over_parameters_stays() -> None:
    """|P noise|^2 is chi-square with `rank` degrees of freedom: an exact law for the mean of 300 draws."""
    derivatives = examples(12)
    dimension = rank(derivatives)
    assert dimension == 12
    draw = np.random.default_rng(4)
    squares = [
        np.sum(project_gradient(draw.standard_normal(LAYOUT.parameters), derivatives, LAYOUT) ** 2)
        for _ in range(300)
    ]
    from scipy.stats import chi2

    total = 300 * dimension
    low, high = chi2.ppf(5e-10, total), chi2.isf(5e-10, total)  # false alarm: 1e-9
    assert low < sum(squares) < high
    assert not low < 300 * (dimension + 3) < high  # a projection onto three more directions would be noticed


def test_repeated_and_empty_derivatives_lower_the_rank() -> None:
    derivatives = examples(5)
    twice = {
        block.name: BlockDerivatives.of_dense(
            block,
            np.concatenate([derivatives[block.name].as_dense(), derivatives[block.name].as_dense() * 1000,
                            np.zeros((2, block.parameters), np.float32)]),
        )
        for block in LAYOUT.blocks
    }  # fmt: skip
    assert rank(twice) == 5
    gradient = np.random.default_rng(5).standard_normal(LAYOUT.parameters)
    assert project_gradient(gradient, twice, LAYOUT) == pytest.approx(
        project_gradient(gradient, derivatives, LAYOUT), abs=1e-5
    )


def test_all_zero_derivatives_leave_nothing() -> None:
    nothing = {
        b.name: BlockDerivatives.of_dense(b, np.zeros((3, b.parameters), np.float32)) for b in LAYOUT.blocks
    }
    assert not project_gradient(np.ones(LAYOUT.parameters), nothing, LAYOUT).any()


def test_long_and_short_derivatives_both_count() -> None:
    """A derivative a million times shorter than the longest is no rounding error."""
    derivatives = examples(6)
    dense = written_out(derivatives)
    scaled = dense * np.logspace(0, -6, 6)[:, None]
    split = [LAYOUT.split(row) for row in scaled]
    uneven = {
        b.name: BlockDerivatives.of_dense(b, np.stack([row[b.name].reshape(-1) for row in split]).astype("f4"))
        for b in LAYOUT.blocks
    }
    assert rank(uneven) == 6


@pytest.mark.parametrize(
    ("rows", "smallest", "batch"),
    [(100, 1, 256), (6_892, 1, 256), (30_000, 1, 512), (10**7, 1, 1024), (100, 400, 400)],
)
def test_a_batch_that_nobody_chose_suits_the_rows(rows: int, smallest: int, batch: int) -> None:
    assert AdapterPlan().for_rows(rows, smallest).batch == batch
    assert AdapterPlan(batch=77).for_rows(rows, smallest).batch == 77
