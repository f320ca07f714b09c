"""Clipping, grid and noise: no crafted batch moves a sum by more than stated, and noise is drawn once."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import kstest

from tacit.cleanroom.protocol import derivatives as norms
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.modes import Mode, NoiseLaw
from tacit.cleanroom.protocol.requests import Purpose
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room import mechanism
from tacit.cleanroom.room import sums as aggregating
from tacit.cleanroom.room.mechanism import (
    CANCELLING,
    MOST_WRITTEN,
    GridSensitivity,
    add_noise,
    clip_factors,
    noise_source,
    noise_stddev,
    round_to_grid,
    statistic_sensitivity,
    step_sensitivity,
    sum_rounding_error,
)
from tacit.cleanroom.room.sums import MOST_ROWS, StepQuery
from tacit.entropy import Simulation
from tacit.errors import RoomRefused
from tests.support.cleanroom_crafted import (
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
from tests.support.cleanroom_rooms import (
    LAYOUT,
    SECRET,
    a_metric,
    a_statistic,
    noised_terms,
    some_derivatives,
    some_logits,
    some_tokens,
    terms,
)
from tests.support.exact_tests import ALPHA


def snapped(
    batch: Batch, logits: np.ndarray, labels: np.ndarray, terms: Terms, layout: ParameterLayout
) -> np.ndarray:
    """The room's sum on its grid, before any noise, from slabs of three."""
    request, arriving = sent_in_threes(batch, logits, terms, layout)
    parts = iter([labels[start : start + 3] for start in range(0, len(labels), 3)])
    query = StepQuery(request, arriving, terms)
    total, reach = query.compute(lambda _: next(parts)), query.sensitivity()
    assert reach.sensitivity <= reach_of(terms, layout).sensitivity
    return round_to_grid(total, reach.grid)


def reach_of(terms: Terms, layout: ParameterLayout) -> GridSensitivity:
    most = max(block.positions for block in layout.blocks)
    return step_sensitivity(terms, layout, ROWS, slabs=3, largest=3 * most)


def farthest_move(batch: Batch, logits: np.ndarray, terms: Terms, layout: ParameterLayout) -> float:
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
            moves.append(float(np.abs(gap).sum() if terms.noise is NoiseLaw.LAPLACE else np.linalg.norm(gap)))
    return max(moves)


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("crafted", CRAFTED)
@pytest.mark.parametrize("layout", [LAYOUT, SEQUENCES], ids=["mixed", "sequences"])
def test_no_crafted_batch_moves_the_sum_beyond_the_stated_sensitivity(
    crafted: str, terms: Terms, layout: ParameterLayout
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


def shares_by_gram_alone(derivatives: Batch, clip_norm: float, noise: NoiseLaw) -> np.ndarray:
    """What clipping by the computed norm would keep, rounding left out of account."""
    if noise is NoiseLaw.GAUSSIAN:
        norms = np.sqrt(sum(each.squared_norms() for each in derivatives.values()))
    else:
        norms = np.asarray(sum(each.absolute_norms() for each in derivatives.values()))
    return clip_norm / np.maximum(norms, clip_norm)


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_a_twin_that_trusts_computed_norms_is_moved_by_pairs_that_cancel(
    terms: Terms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregating, "clip_factors", shares_by_gram_alone)
    batch = factored(SEQUENCES, cancelling)
    moved = farthest_move(batch, some_logits(ROWS), terms, SEQUENCES)
    assert moved > 10 * reach_of(terms, SEQUENCES).sensitivity


def test_a_twin_without_clipping_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregating, "clip_factors", lambda found, *_: np.ones(len(found["plain"])))
    moved = farthest_move(factored(SEQUENCES, ordinary), some_logits(ROWS), GAUSSIAN, SEQUENCES)
    assert moved > GAUSSIAN.clip_norm * 1.5


@pytest.mark.parametrize("noise", [NoiseLaw.GAUSSIAN, NoiseLaw.LAPLACE])
def test_honest_examples_keep_as_much_as_their_norm_allows(noise: NoiseLaw) -> None:
    batch = some_derivatives(200, SEQUENCES)
    dense = np.concatenate([written_out(each) for each in batch.values()], axis=1)
    norms = np.abs(dense).sum(axis=1) if noise is NoiseLaw.LAPLACE else np.sqrt((dense**2).sum(axis=1))
    shares = clip_factors(batch, 2.0, noise)
    assert np.all(shares * norms <= 2.0)
    assert np.allclose(shares, np.minimum(1, 2.0 / norms).astype(float), rtol=1e-6)
    assert 0 < np.count_nonzero(shares == 1.0) < 200


@pytest.mark.parametrize("noise", [NoiseLaw.GAUSSIAN, NoiseLaw.LAPLACE])
def test_examples_without_pairs_are_kept_whole_and_cost_nothing(noise: NoiseLaw) -> None:
    """A matrix of 2^24 numbers, written out for each of a million examples, would take days."""
    block, count = ParameterBlock("huge", 2**12, 2**12, positions=2), 2**20
    factors = Factors.none(block)
    nothing = Factors(factors.left, factors.right, np.zeros(count, np.int32))
    shares = clip_factors({"huge": BlockDerivatives.of_factors(block, nothing)}, 1.0, noise)
    assert np.array_equal(shares, np.ones(count))


def test_a_single_pair_of_a_sequence_is_not_written_out_for_laplace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_write_out", None)  # calling it would fail
    block = ParameterBlock("sequence", 2**12, 2**12, positions=9)
    counts = np.array([1, 0, 1], np.int32)
    pairs = Factors(np.ones((2, 2**12), np.float32), np.ones((2, 2**12), np.float32), counts)
    shares = clip_factors({"sequence": BlockDerivatives.of_factors(block, pairs)}, 1.0, NoiseLaw.LAPLACE)
    assert shares == pytest.approx([2.0**-24, 1, 2.0**-24], rel=1e-6)


def test_sequences_that_take_too_long_for_laplace_are_refused_with_the_limit() -> None:
    block = ParameterBlock("sequence", 2**12, 2**12, positions=2)
    counts = np.full(129, 2, np.int32)  # 258 pairs x 2^24 parameters
    pairs = Factors(np.zeros((258, 2**12), np.float32), np.zeros((258, 2**12), np.float32), counts)
    found = {"sequence": BlockDerivatives.of_factors(block, pairs)}
    with pytest.raises(RoomRefused, match=str(MOST_WRITTEN)) as refused:
        clip_factors(found, 1.0, NoiseLaw.LAPLACE)
    assert refused.value.reason is RoomRefusal.OVERSIZED
    assert clip_factors(found, 1.0, NoiseLaw.GAUSSIAN).tolist() == [1.0] * 129


@pytest.mark.parametrize("shape", [(3, 5), (700, 90)])  # small ones together, and some rows at a time
def test_absolute_norms_of_several_pairs_are_those_of_the_matrix(shape: tuple[int, int]) -> None:
    block = ParameterBlock("sequence", *shape, positions=4)
    found = some_derivatives(7, ParameterLayout((block,)))["sequence"]
    assert found.absolute_norms() == pytest.approx(np.abs(written_out(found)).sum(axis=1).astype(float))


def triangle(found: BlockDerivatives, noise: NoiseLaw) -> np.ndarray:
    """The sum over each example's pairs of their norms, in extended precision."""
    left, right = found.factors.left.astype(np.longdouble), found.factors.right.astype(np.longdouble)
    if noise is NoiseLaw.LAPLACE:
        sizes = np.abs(left).sum(axis=1) * np.abs(right).sum(axis=1)
    else:
        sizes = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    return np.array([sizes[first:last].sum() for first, last in pairwise(found.factors.starts)])


@pytest.mark.parametrize("noise", [NoiseLaw.GAUSSIAN, NoiseLaw.LAPLACE])
def test_pairs_that_cancel_are_kept_within_64_times_the_norm_by_themselves(noise: NoiseLaw) -> None:
    """In the noise's own norm: `sum_rounding_error` rests on it."""
    found = factored(ParameterLayout(SEQUENCES.blocks[:1]), cancelling)["sequence"]
    kept = clip_factors({"sequence": found}, 0.7, noise) * triangle(found, noise)
    assert np.all(kept <= CANCELLING * 0.7)
    assert np.all(kept >= 0.999 * CANCELLING * 0.7)


@pytest.mark.parametrize("noise", [NoiseLaw.GAUSSIAN, NoiseLaw.LAPLACE])
def test_a_norm_that_rounding_made_as_small_as_it_can_still_clips_enough(
    noise: NoiseLaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair and nearly its opposite, whose norm is computed too small by a 2^-53 for each operation."""
    block = ParameterBlock("sequence", 64, 64, positions=2)
    left = np.stack([np.ones(64), np.full(64, -1 - 1 / 16)]).astype(np.float32)
    pairs = Factors(left, np.ones((2, 64), np.float32), np.full(1, 2, np.int32))
    found = BlockDerivatives.of_factors(block, pairs)
    gaussian = noise is NoiseLaw.GAUSSIAN
    exact = Fraction(64, 16) if gaussian else Fraction(64 * 64, 16)
    spread, operations = float(triangle(found, noise)[0]), block.parameters + 2 * 64
    lost = operations * 2.0**-53 * (spread**2 if gaussian else spread)
    small = float(exact) ** (2 if gaussian else 1) - lost
    name = "squared_norms" if gaussian else "absolute_norms"
    monkeypatch.setattr(BlockDerivatives, name, lambda _: np.array([small]))
    share = Fraction(float(clip_factors({"sequence": found}, 0.5, noise)[0]))
    assert share * exact <= Fraction(1, 2)
    assert share * exact > Fraction(1, 2) * (1 - Fraction(1, 10**6))


def test_the_same_question_about_the_same_labels_has_the_same_noise_and_about_others_another() -> None:
    sums = round_to_grid(np.linspace(-3, 3, 2000), 2.0**-20)
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
    reach = GridSensitivity(0.7, 2.0**-24)
    sums = round_to_grid(np.linspace(-3, 3, 20_000), reach.grid)
    answer, stddev = add_noise(sums, reach, terms, Simulation("noise")), noise_stddev(reach, terms)
    drawn = answer - sums
    assert np.array_equal(np.rint(drawn / reach.grid) * reach.grid, drawn)
    scale = terms.noise_multiplier * reach.sensitivity
    law = ("norm", (0, scale)) if terms.noise is NoiseLaw.GAUSSIAN else ("laplace", (0, scale))
    assert stddev == pytest.approx(scale if terms.noise is NoiseLaw.GAUSSIAN else math.sqrt(2) * scale)
    assert kstest(drawn, law[0], law[1]).pvalue >= ALPHA
    # A twin with a tenth less noise: its distance of .02 to .03 is many times what 20,000 draws leave.
    assert kstest(0.9 * drawn, law[0], law[1]).pvalue < ALPHA


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_a_zero_has_no_sign(terms: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums just below zero and just above lie on the same point of the grid. With noise that happens to be
    zero, as here, answers must be the same in every bit; in floating point -0.0 + -0.0 would tell."""
    for name in ("gaussian_steps", "laplace_steps"):
        monkeypatch.setattr(mechanism, name, lambda count, *_: np.zeros(count, np.int64))
    reach = GridSensitivity(0.7, 2.0**-24)
    below, above = (round_to_grid(np.full(4, sign * 2.0**-30), reach.grid) for sign in (-1, 1))
    assert below.tobytes() == above.tobytes()
    for sums in (below, above, -above):
        answer = add_noise(sums, reach, terms, Simulation(0))
        assert not np.signbit(answer).any()
        assert not np.signbit(answer.astype(np.float32)).any()


@pytest.mark.parametrize("terms", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_noise_is_not_made_of_floating_point_normals(terms: Terms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "normal", lambda *_, **__: pytest.fail("drawn in floating point"))
    add_noise(np.zeros(100), GridSensitivity(0.7, 2.0**-24), terms, Simulation(0))


def test_the_grid_is_fine_and_sums_on_it_are_exact() -> None:
    for clip in (1e-9, 1.0, 1e9):
        for rows in (1, 2**12, 2**22):
            for noise, delta in ((NoiseLaw.GAUSSIAN, "1e-6"), (NoiseLaw.LAPLACE, 0)):
                agreed = noised_terms(clip_norm=clip, epsilon="0.001", noise=noise, delta=delta)
                largest = min(rows, 256)
                slabs = rows // largest
                reach = step_sensitivity(agreed, LAYOUT, rows, slabs=slabs, largest=largest, several=False)
                assert math.frexp(reach.grid)[0] == 0.5  # a power of two
                spread = 256 * agreed.noise_multiplier * reach.sensitivity
                assert (rows * clip + spread) / reach.grid < 2**53
                assert reach.sensitivity < 1.01 * clip


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_statistics_grid_is_exact_however_large_the_noise(purpose: Purpose) -> None:
    """The least epsilon and the most releases that terms can have, and ordinary ones."""
    noised = [noised_terms(epsilon="0.001", releases_per_record=10_000, noise="laplace", delta=0), LAPLACE]
    statistics = [terms(mode=Mode.STATISTIC, epsilon=e, delta=d) for e, d in [("0.001", "1e-15"), (3, "1e-6")]]
    one = np.zeros((4, 1), np.int32)
    for agreed in noised if purpose is Purpose.METRIC else statistics:
        if purpose is Purpose.METRIC:
            request, _ = a_metric(agreed, some_tokens(4), one)
        else:
            request, _ = a_statistic(agreed, some_tokens(4), one, np.zeros((4, 2), np.float32), cells=2**20)
        reach = statistic_sensitivity(agreed, request)
        spread = (256 if agreed.noise is NoiseLaw.LAPLACE else 16) * agreed.noise_multiplier * reach.sensitivity
        assert (MOST_ROWS + spread) / reach.grid < 2**53
        norm = 1.0 if purpose is Purpose.METRIC else math.sqrt(1.25)
        assert norm <= reach.sensitivity <= norm * (1 + 1e-5)


def test_pairs_that_a_codec_makes_beyond_what_a_block_announces_are_in_the_bound() -> None:
    """PowerSGD of rank 2 is read as two pairs, which may cancel, where the block has one position."""
    layout = ParameterLayout((ParameterBlock("plain", 4, 4),))
    (block,), source, codec = layout.blocks, Simulation("two pairs"), codec_named("powersgd-2")
    worst = 0.0
    for _ in range(60):
        left, right = (source.normal((1, 4)).astype(np.float32) for _ in range(2))
        third = (right / np.float32(3)).astype(np.float32)
        left, right = np.concatenate([left, 3 * left]), 100 * np.concatenate([right, -third])
        found = codec.decode(block, 1, left.tobytes() + right.tobytes())
        request, arriving = sent_in_threes({"plain": found}, np.full(1, -99, np.float32), GAUSSIAN, layout)
        total = StepQuery(request, arriving, GAUSSIAN).compute(lambda _: np.ones(1, np.uint8))
        share = Fraction(float(clip_factors({"plain": found}, GAUSSIAN.clip_norm, NoiseLaw.GAUSSIAN)[0]))
        exact = [
            -share * sum(Fraction(float(left[t, i])) * Fraction(float(right[t, j])) for t in range(2))
            for i in range(4)
            for j in range(4)
        ]
        off = [float(Fraction(float(got)) - true) for got, true in zip(total, exact, strict=True)]
        worst = max(worst, float(np.linalg.norm(off)))
        assert arriving.several
        operations = 3 * arriving.largest + arriving.slabs + 8
    assert worst <= sum_rounding_error(operations, 1, arriving.several, GAUSSIAN.clip_norm)
    # What the block announces alone would not do: this is the bound for one pair.
    assert worst > sum_rounding_error(3 + 1 + 8, 1, False, GAUSSIAN.clip_norm)


@pytest.mark.parametrize("agreed", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_rounding_and_grid_are_in_the_sensitivity(agreed: Terms) -> None:
    """Where rounding is most of what is added, and where the grid is; two sums round, each in its own way."""
    rows, largest, clip = 2**16, 2**11, agreed.clip_norm
    for layout in (
        ParameterLayout((ParameterBlock("one", 1, 1),)),
        ParameterLayout((ParameterBlock("many", 2**7, 2**7),)),
    ):
        reach = step_sensitivity(agreed, layout, rows, slabs=4, largest=largest)
        across = layout.parameters if agreed.noise is NoiseLaw.LAPLACE else math.sqrt(layout.parameters)
        rounding = sum_rounding_error(3 * largest + 4, rows, True, clip)
        assert rounding > 2.0**-20 * clip
        assert reach.sensitivity >= clip + 2 * rounding + across * reach.grid
        fewer = step_sensitivity(agreed, layout, rows, slabs=4, largest=largest, several=False)
        assert fewer.sensitivity < reach.sensitivity - 1.9 * rounding


def test_the_grid_is_coarse_enough_for_the_sum_of_all_rows() -> None:
    layout, rows = ParameterLayout((ParameterBlock("huge", 2**12, 2**12),)), 2**22
    agreed = noised_terms(epsilon=40)
    reach = step_sensitivity(agreed, layout, rows, slabs=600, largest=2**13, several=False)
    assert 2 * rows * agreed.clip_norm / reach.grid <= 2**51


@pytest.mark.parametrize("agreed", [noised_terms(epsilon="0.001", releases_per_record=10_000), LAPLACE])
def test_a_step_that_rounds_too_much_is_refused_before_a_label_is_read(agreed: Terms) -> None:
    """The more rows and products, the more rounding: up to the last that is accepted, noise stays exact."""
    layout, accepted = ParameterLayout((ParameterBlock("w", 1, 1, positions=65535),)), 0
    for rows in 2 ** np.arange(2, 23):
        try:
            reach = step_sensitivity(agreed, layout, int(rows), slabs=7, largest=int(rows) * 64)
        except RoomRefused:
            break
        accepted = int(rows)
        assert reach.sensitivity <= agreed.clip_norm * (1 + 2.0**-10) * (1 + 1e-9)
        farthest = 256 if agreed.noise is NoiseLaw.LAPLACE else 16
        assert farthest * agreed.noise_multiplier * reach.sensitivity / reach.grid < 2**51
    assert 2**12 <= accepted < 2**22
    request, arriving = sent_in_threes(factored(SEQUENCES, ordinary), some_logits(ROWS), agreed, SEQUENCES)
    arriving.slabs = 2**45  # as if so many had come
    with pytest.raises(RoomRefused, match=RoomRefusal.OVERSIZED.words):
        StepQuery(request, arriving, agreed).compute(lambda _: pytest.fail("a label was read"))
