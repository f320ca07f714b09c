"""How far one label can move a sum: grids that stay exact, rounding that is in the bound, or a refusal."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from cleanroom_crafted import (
    GAUSSIAN,
    LAPLACE,
    ROWS,
    SEQUENCES,
    factored,
    ordinary,
    sent_in_threes,
)
from cleanroom_rooms import (
    LAYOUT,
    a_metric,
    a_statistic,
    noised_terms,
    some_logits,
    some_tokens,
    terms,
)
from tacit.cleanroom.room.aggregating import MOST_ROWS, step_sum
from tacit.cleanroom.room.clipping import kept_shares, rounding_of_sum
from tacit.cleanroom.room.noising import reach_of_statistic, reach_of_step
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.blocks import Block, Layout
from tacit.cleanroom.wire.codec import codec_named
from tacit.cleanroom.wire.modes import Mode, Noise
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import Purpose
from tacit.entropy import Simulation
from tacit.errors import RoomRefused


def test_the_grid_is_fine_and_sums_on_it_are_exact() -> None:
    for clip in (1e-9, 1.0, 1e9):
        for rows in (1, 2**12, 2**22):
            for noise, delta in ((Noise.GAUSSIAN, "1e-6"), (Noise.LAPLACE, 0)):
                agreed = noised_terms(clip_norm=clip, epsilon="0.001", noise=noise, delta=delta)
                largest = min(rows, 256)
                slabs = rows // largest
                reach = reach_of_step(agreed, LAYOUT, rows, slabs=slabs, largest=largest, several=False)
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
        reach = reach_of_statistic(agreed, request)
        spread = (256 if agreed.noise is Noise.LAPLACE else 16) * agreed.noise_multiplier * reach.sensitivity
        assert (MOST_ROWS + spread) / reach.grid < 2**53
        norm = 1.0 if purpose is Purpose.METRIC else math.sqrt(1.25)
        assert norm <= reach.sensitivity <= norm * (1 + 1e-5)


def test_pairs_that_a_codec_makes_beyond_what_a_block_announces_are_in_the_bound() -> None:
    """PowerSGD of rank 2 is read as two pairs, which may cancel, where the block has one position."""
    layout = Layout((Block("plain", 4, 4),))
    (block,), source, codec = layout.blocks, Simulation("two pairs"), codec_named("powersgd-2")
    worst = 0.0
    for _ in range(60):
        left, right = (source.normal((1, 4)).astype(np.float32) for _ in range(2))
        third = (right / np.float32(3)).astype(np.float32)
        left, right = np.concatenate([left, 3 * left]), 100 * np.concatenate([right, -third])
        found = codec.decode(block, 1, left.tobytes() + right.tobytes())
        request, arriving = sent_in_threes({"plain": found}, np.full(1, -99, np.float32), GAUSSIAN, layout)
        total = step_sum(request, arriving, lambda _: np.ones(1, np.uint8), GAUSSIAN)
        share = Fraction(float(kept_shares({"plain": found}, GAUSSIAN.clip_norm, Noise.GAUSSIAN)[0]))
        exact = [
            -share * sum(Fraction(float(left[t, i])) * Fraction(float(right[t, j])) for t in range(2))
            for i in range(4)
            for j in range(4)
        ]
        off = [float(Fraction(float(got)) - true) for got, true in zip(total, exact, strict=True)]
        worst = max(worst, float(np.linalg.norm(off)))
        assert arriving.several
        operations = 3 * arriving.largest + arriving.slabs + 8
    assert worst <= rounding_of_sum(operations, 1, arriving.several, GAUSSIAN.clip_norm)
    # What the block announces alone would not do: this is the bound for one pair.
    assert worst > rounding_of_sum(3 + 1 + 8, 1, False, GAUSSIAN.clip_norm)


@pytest.mark.parametrize("agreed", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_rounding_and_grid_are_in_the_sensitivity(agreed: Terms) -> None:
    """Where rounding is most of what is added, and where the grid is; two sums round, each in its own way."""
    rows, largest, clip = 2**16, 2**11, agreed.clip_norm
    for layout in (Layout((Block("one", 1, 1),)), Layout((Block("many", 2**7, 2**7),))):
        reach = reach_of_step(agreed, layout, rows, slabs=4, largest=largest)
        across = layout.parameters if agreed.noise is Noise.LAPLACE else math.sqrt(layout.parameters)
        rounding = rounding_of_sum(3 * largest + 4, rows, True, clip)
        assert rounding > 2.0**-20 * clip
        assert reach.sensitivity >= clip + 2 * rounding + across * reach.grid
        fewer = reach_of_step(agreed, layout, rows, slabs=4, largest=largest, several=False)
        assert fewer.sensitivity < reach.sensitivity - 1.9 * rounding


def test_the_grid_is_coarse_enough_for_the_sum_of_all_rows() -> None:
    layout, rows = Layout((Block("huge", 2**12, 2**12),)), 2**22
    agreed = noised_terms(epsilon=40)
    reach = reach_of_step(agreed, layout, rows, slabs=600, largest=2**13, several=False)
    assert 2 * rows * agreed.clip_norm / reach.grid <= 2**51


@pytest.mark.parametrize("agreed", [noised_terms(epsilon="0.001", releases_per_record=10_000), LAPLACE])
def test_a_step_that_rounds_too_much_is_refused_before_a_label_is_read(agreed: Terms) -> None:
    """The more rows and products, the more rounding: up to the last that is accepted, noise stays exact."""
    layout, accepted = Layout((Block("w", 1, 1, positions=65535),)), 0
    for rows in 2 ** np.arange(2, 23):
        try:
            reach = reach_of_step(agreed, layout, int(rows), slabs=7, largest=int(rows) * 64)
        except RoomRefused:
            break
        accepted = int(rows)
        assert reach.sensitivity <= agreed.clip_norm * (1 + 2.0**-10) * (1 + 1e-9)
        farthest = 256 if agreed.noise is Noise.LAPLACE else 16
        assert farthest * agreed.noise_multiplier * reach.sensitivity / reach.grid < 2**51
    assert 2**12 <= accepted < 2**22
    request, arriving = sent_in_threes(factored(SEQUENCES, ordinary), some_logits(ROWS), agreed, SEQUENCES)
    arriving.slabs = 2**45  # as if so many had come
    with pytest.raises(RoomRefused, match=Refusal.OVERSIZED.words):
        step_sum(request, arriving, lambda _: pytest.fail("a label was read"), agreed)
