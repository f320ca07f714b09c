"""Clipping, grid and noise: no crafted batch moves a sum by more than stated, and noise is drawn once."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import kstest

from cleanroom_crafted import (
    CRAFTED,
    GAUSSIAN,
    LAPLACE,
    LARGEST,
    ROWS,
    SEQUENCES,
    Batch,
    cancelling,
    factored,
    ordinary,
    sent_in_threes,
    wildly_sized,
    written_out,
)
from cleanroom_rooms import (
    LAYOUT,
    SECRET,
    some_derivatives,
    some_logits,
)
from exact_tests import ALPHA
from tacit.cleanroom.room import aggregating, noising
from tacit.cleanroom.room.aggregating import reach_of_sum, step_sum
from tacit.cleanroom.room.clipping import CANCELLING, MOST_WRITTEN, kept_shares
from tacit.cleanroom.room.noising import Reach, noise_source, noise_stddev, noised, on_grid, reach_of_step
from tacit.cleanroom.wire import norms
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.blocks import Block, Layout
from tacit.cleanroom.wire.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.wire.modes import Noise
from tacit.cleanroom.wire.refusals import Refusal
from tacit.entropy import Simulation
from tacit.errors import RoomRefused


def snapped(batch: Batch, logits: np.ndarray, labels: np.ndarray, terms: Terms, layout: Layout) -> np.ndarray:
    """The room's sum on its grid, before any noise, from slabs of three."""
    request, arriving = sent_in_threes(batch, logits, terms, layout)
    parts = iter([labels[start : start + 3] for start in range(0, len(labels), 3)])
    total = step_sum(request, arriving, lambda _: next(parts), terms)
    reach = reach_of_sum(request, arriving, terms)
    assert reach.sensitivity <= reach_of(terms, layout).sensitivity
    return on_grid(total, reach.grid)


def reach_of(terms: Terms, layout: Layout) -> Reach:
    most = max(block.positions for block in layout.blocks)
    return reach_of_step(terms, layout, ROWS, slabs=3, largest=3 * most)


def farthest_move(batch: Batch, logits: np.ndarray, terms: Terms, layout: Layout) -> float:
    """The most that one label moves the sum, over every row and two sets of the others' labels."""
    rows = len(logits)
    moves = [0.0]
    for others in (np.zeros(rows), np.arange(rows) % 2):
        labels = others.astype(np.uint8)
        first = snapped(batch, logits, labels, terms, layout)
        for row in range(rows):
            changed = labels.copy()
            changed[row] ^= 1
            gap = snapped(batch, logits, changed, terms, layout) - first
            moves.append(float(np.abs(gap).sum() if terms.noise is Noise.LAPLACE else np.linalg.norm(gap)))
    return max(moves)


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("crafted", CRAFTED)
@pytest.mark.parametrize("layout", [LAYOUT, SEQUENCES], ids=["mixed", "sequences"])
def test_no_crafted_batch_moves_the_sum_beyond_the_stated_sensitivity(
    crafted: str, terms: Terms, layout: Layout
) -> None:
    batch = factored(layout, CRAFTED[crafted])
    reach = reach_of(terms, layout)
    for logits in (some_logits(ROWS), np.full(ROWS, -200, np.float32), np.full(ROWS, LARGEST, np.float32)):
        assert farthest_move(batch, logits, terms, layout) <= reach.sensitivity
    # And it is not bought with noise: rounding and the grid add next to nothing.
    assert terms.clip_norm <= reach.sensitivity <= terms.clip_norm * (1 + 3e-6)


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_dense_derivatives_are_clipped_alike(terms: Terms) -> None:
    batch = {
        name: BlockDerivatives.of_dense(found.block, found.as_dense())
        for name, found in factored(LAYOUT, wildly_sized).items()
    }
    reach = reach_of(terms, LAYOUT)
    assert farthest_move(batch, some_logits(ROWS), terms, LAYOUT) <= reach.sensitivity


def shares_by_gram_alone(derivatives: Batch, clip_norm: float, noise: Noise) -> np.ndarray:
    """What clipping by the computed norm would keep, rounding left out of account."""
    if noise is Noise.GAUSSIAN:
        norms = np.sqrt(sum(each.squared_norms() for each in derivatives.values()))
    else:
        norms = np.asarray(sum(each.absolute_norms() for each in derivatives.values()))
    return clip_norm / np.maximum(norms, clip_norm)


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_a_twin_that_trusts_computed_norms_is_moved_by_pairs_that_cancel(
    terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregating, "kept_shares", shares_by_gram_alone)
    batch = factored(SEQUENCES, cancelling)
    moved = farthest_move(batch, some_logits(ROWS), terms, SEQUENCES)
    assert moved > 10 * reach_of(terms, SEQUENCES).sensitivity


def test_a_twin_without_clipping_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregating, "kept_shares", lambda found, *_: np.ones(len(found["plain"])))
    moved = farthest_move(factored(SEQUENCES, ordinary), some_logits(ROWS), GAUSSIAN, SEQUENCES)
    assert moved > GAUSSIAN.clip_norm * 1.5


@pytest.mark.parametrize("noise", [Noise.GAUSSIAN, Noise.LAPLACE])
def test_honest_examples_keep_as_much_as_their_norm_allows(noise: Noise) -> None:
    batch = some_derivatives(200, SEQUENCES)
    dense = np.concatenate([written_out(each) for each in batch.values()], axis=1)
    norms = np.abs(dense).sum(axis=1) if noise is Noise.LAPLACE else np.sqrt((dense**2).sum(axis=1))
    shares = kept_shares(batch, 2.0, noise)
    assert np.all(shares * norms <= 2.0)
    assert np.allclose(shares, np.minimum(1, 2.0 / norms).astype(float), rtol=1e-6)
    assert 0 < np.count_nonzero(shares == 1.0) < 200


@pytest.mark.parametrize("noise", [Noise.GAUSSIAN, Noise.LAPLACE])
def test_examples_without_pairs_are_kept_whole_and_cost_nothing(noise: Noise) -> None:
    """A matrix of 2^24 numbers, written out for each of a million examples, would take days."""
    block, count = Block("huge", 2**12, 2**12, positions=2), 2**20
    factors = Factors.none(block)
    nothing = Factors(factors.left, factors.right, np.zeros(count, np.int32))
    shares = kept_shares({"huge": BlockDerivatives.of_factors(block, nothing)}, 1.0, noise)
    assert np.array_equal(shares, np.ones(count))


def test_a_single_pair_of_a_sequence_is_not_written_out_for_laplace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_written", None)  # calling it would fail
    block = Block("sequence", 2**12, 2**12, positions=9)
    counts = np.array([1, 0, 1], np.int32)
    pairs = Factors(np.ones((2, 2**12), np.float32), np.ones((2, 2**12), np.float32), counts)
    shares = kept_shares({"sequence": BlockDerivatives.of_factors(block, pairs)}, 1.0, Noise.LAPLACE)
    assert shares == pytest.approx([2.0**-24, 1, 2.0**-24], rel=1e-6)


def test_sequences_that_take_too_long_for_laplace_are_refused_with_the_limit() -> None:
    block = Block("sequence", 2**12, 2**12, positions=2)
    counts = np.full(129, 2, np.int32)  # 258 pairs x 2^24 parameters
    pairs = Factors(np.zeros((258, 2**12), np.float32), np.zeros((258, 2**12), np.float32), counts)
    found = {"sequence": BlockDerivatives.of_factors(block, pairs)}
    with pytest.raises(RoomRefused, match=str(MOST_WRITTEN)) as refused:
        kept_shares(found, 1.0, Noise.LAPLACE)
    assert refused.value.reason is Refusal.OVERSIZED
    assert kept_shares(found, 1.0, Noise.GAUSSIAN).tolist() == [1.0] * 129


@pytest.mark.parametrize("shape", [(3, 5), (700, 90)])  # small ones together, and some rows at a time
def test_absolute_norms_of_several_pairs_are_those_of_the_matrix(shape: tuple[int, int]) -> None:
    block = Block("sequence", *shape, positions=4)
    found = some_derivatives(7, Layout((block,)))["sequence"]
    assert found.absolute_norms() == pytest.approx(np.abs(written_out(found)).sum(axis=1).astype(float))


def triangle(found: BlockDerivatives, noise: Noise) -> np.ndarray:
    """The sum over each example's pairs of their norms, in extended precision."""
    left, right = found.factors.left.astype(np.longdouble), found.factors.right.astype(np.longdouble)
    if noise is Noise.LAPLACE:
        sizes = np.abs(left).sum(axis=1) * np.abs(right).sum(axis=1)
    else:
        sizes = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    return np.array([sizes[first:last].sum() for first, last in pairwise(found.factors.starts)])


@pytest.mark.parametrize("noise", [Noise.GAUSSIAN, Noise.LAPLACE])
def test_pairs_that_cancel_are_kept_within_64_times_the_norm_by_themselves(noise: Noise) -> None:
    """In the noise's own norm: `rounding_of_sum` rests on it."""
    found = factored(Layout(SEQUENCES.blocks[:1]), cancelling)["sequence"]
    kept = kept_shares({"sequence": found}, 0.7, noise) * triangle(found, noise)
    assert np.all(kept <= CANCELLING * 0.7)
    assert np.all(kept >= 0.999 * CANCELLING * 0.7)


@pytest.mark.parametrize("noise", [Noise.GAUSSIAN, Noise.LAPLACE])
def test_a_norm_that_rounding_made_as_small_as_it_can_still_clips_enough(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair and nearly its opposite, whose norm is computed too small by a 2^-53 for each operation."""
    block = Block("sequence", 64, 64, positions=2)
    left = np.stack([np.ones(64), np.full(64, -1 - 1 / 16)]).astype(np.float32)
    pairs = Factors(left, np.ones((2, 64), np.float32), np.full(1, 2, np.int32))
    found = BlockDerivatives.of_factors(block, pairs)
    gaussian = noise is Noise.GAUSSIAN
    exact = Fraction(64, 16) if gaussian else Fraction(64 * 64, 16)
    spread, operations = float(triangle(found, noise)[0]), block.parameters + 2 * 64
    lost = operations * 2.0**-53 * (spread**2 if gaussian else spread)
    small = float(exact) ** (2 if gaussian else 1) - lost
    name = "squared_norms" if gaussian else "absolute_norms"
    monkeypatch.setattr(BlockDerivatives, name, lambda _: np.array([small]))
    share = Fraction(float(kept_shares({"sequence": found}, 0.5, noise)[0]))
    assert share * exact <= Fraction(1, 2)
    assert share * exact > Fraction(1, 2) * (1 - Fraction(1, 10**6))


def test_the_same_question_about_the_same_labels_has_the_same_noise_and_about_others_another() -> None:
    sums = on_grid(np.linspace(-3, 3, 2000), 2.0**-20)
    other = sums.copy()
    other[7] += 2.0**-20  # one step of the grid in one entry
    first, again, elsewhere, asked = (
        noise_source(SECRET, asked, of).normal(2000, np.float64)
        for asked, of in [(b"asked", sums), (b"asked", sums.copy()), (b"asked", other), (b"other", sums)]
    )
    assert np.array_equal(first, again)
    for unrelated in (elsewhere, asked):
        # The correlation of 2,000 independent normals is within 6 / sqrt(2000) but once in 5e8.
        assert abs(np.corrcoef(first, unrelated)[0, 1]) < 6 / math.sqrt(2000)


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_noise_has_the_agreed_law_and_lies_on_the_grid(terms: Terms) -> None:
    reach = Reach(0.7, 2.0**-24)
    sums = on_grid(np.linspace(-3, 3, 20_000), reach.grid)
    answer, stddev = noised(sums, reach, terms, Simulation("noise")), noise_stddev(reach, terms)
    drawn = answer - sums
    assert np.array_equal(np.rint(drawn / reach.grid) * reach.grid, drawn)
    scale = terms.noise_multiplier * reach.sensitivity
    law = ("norm", (0, scale)) if terms.noise is Noise.GAUSSIAN else ("laplace", (0, scale))
    assert stddev == pytest.approx(scale if terms.noise is Noise.GAUSSIAN else math.sqrt(2) * scale)
    assert kstest(drawn, law[0], law[1]).pvalue >= ALPHA
    # A twin with a tenth less noise: its distance of .02 to .03 is many times what 20,000 draws leave.
    assert kstest(0.9 * drawn, law[0], law[1]).pvalue < ALPHA


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_a_zero_has_no_sign(terms: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums just below zero and just above lie on the same point of the grid. With noise that happens to be
    zero, as here, answers must be the same in every bit; in floating point -0.0 + -0.0 would tell."""
    for name in ("gaussian_steps", "laplace_steps"):
        monkeypatch.setattr(noising, name, lambda count, *_: np.zeros(count, np.int64))
    reach = Reach(0.7, 2.0**-24)
    below, above = (on_grid(np.full(4, sign * 2.0**-30), reach.grid) for sign in (-1, 1))
    assert below.tobytes() == above.tobytes()
    for sums in (below, above, -above):
        answer = noised(sums, reach, terms, Simulation(0))
        assert not np.signbit(answer).any()
        assert not np.signbit(answer.astype(np.float32)).any()


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_noise_is_not_made_of_floating_point_normals(terms: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "normal", lambda *_, **__: pytest.fail("drawn in floating point"))
    noised(np.zeros(100), Reach(0.7, 2.0**-24), terms, Simulation(0))
