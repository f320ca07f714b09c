"""Sums that the room computes, against plain numpy; streamed, and in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.losses import Loss, slopes
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.slabs import Slab, StatisticSlab, encode_slab
from tacit.cleanroom.room import sums as aggregating
from tacit.cleanroom.room.labels import flipped_labels
from tacit.cleanroom.room.mechanism import STATISTIC_GRID, statistic_sensitivity
from tacit.cleanroom.room.sums import StatisticQuery
from tacit.entropy import Simulation
from tests.support.cleanroom_rooms import (
    LAYOUT,
    NOW,
    PLATFORM,
    SECRET,
    a_metric,
    a_room,
    a_statistic,
    some_derivatives,
    some_logits,
    some_table,
    some_tokens,
    step_request,
    step_slabs,
    terms,
)

ROWS = 60
AGREED = terms(epsilon=1)


def written(derivatives: dict[str, BlockDerivatives]) -> np.ndarray:
    """Every example's derivative, flat, in float64: (n, parameters)."""
    parts = []
    for block in LAYOUT.blocks:
        factors = derivatives[block.name].factors
        pairs = np.einsum("pr,pc->prc", factors.left.astype(float), factors.right.astype(float))
        starts = factors.starts
        parts.append([pairs[a:b].sum(axis=0).reshape(-1) for a, b in pairwise(starts)])
    return np.concatenate([np.array(part) for part in parts], axis=1)


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("each", [1, 7, 60])
def test_an_aggregate_is_numpys_sum_over_flipped_labels(loss: Loss, each: int) -> None:
    table, tokens = some_table(40), some_tokens(ROWS)  # a third of the rows have no label
    derivatives, logits = some_derivatives(ROWS), some_logits(ROWS)
    request = step_request(AGREED, ROWS, loss=loss)
    slabs = step_slabs(request, tokens, derivatives, logits, each=each)
    answer = a_room(AGREED, table).step(request, slabs, peer=PLATFORM, now=NOW)
    labels = flipped_labels(table, tokens, "conversion", AGREED, SECRET)
    assert 0 < (labels != table.look_up(tokens, "conversion")).sum() < ROWS
    expected = slopes(logits, labels, loss, AGREED.keep) @ written(derivatives)
    assert np.abs(answer.sum - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (answer.rows, answer.noise_stddev) == (ROWS, 0)


@pytest.mark.parametrize("codec", ["int8", "bf16", "fp32-dense"])
def test_flips_are_the_same_whatever_the_codec_run_and_batch(codec: str) -> None:
    """A derivative that names its row shows each row's slope, so its flip, whatever the codec rounds."""
    layout = ParameterLayout((ParameterBlock("rows", ROWS, 1),))
    tokens, table = some_tokens(ROWS), some_table(ROWS)
    logits = np.zeros(ROWS, np.float32)
    seen = []
    for run, order in (("first", np.arange(ROWS)), ("second", np.arange(ROWS)[::-1])):
        rows = Factors(np.eye(ROWS, dtype=np.float32), np.ones((ROWS, 1), np.float32), np.ones(ROWS, np.int32))
        request = step_request(AGREED, ROWS, run=run, codec=codec, layout=layout)
        named = {"rows": BlockDerivatives.of_factors(layout.blocks[0], rows)}
        slabs = step_slabs(request, tokens[order], named, logits, each=11)
        answer = a_room(AGREED, table).step(request, slabs, peer=PLATFORM, now=NOW)
        seen.append(((0.5 - answer.sum) > 0.5).astype(np.uint8)[np.argsort(order)])  # slope 1/2 - y
    assert np.array_equal(seen[0], seen[1])
    assert np.array_equal(seen[0], flipped_labels(table, tokens, "conversion", AGREED, SECRET))


def test_a_metric_counts_flipped_positives_by_cell() -> None:
    tokens, table = some_tokens(ROWS), some_table(ROWS)
    cells = np.arange(ROWS, dtype=np.int32) % 4
    request, slabs = a_metric(AGREED, tokens, cells)
    answer = a_room(AGREED, table).statistic(request, slabs, peer=PLATFORM, now=NOW)
    labels = flipped_labels(table, tokens, "conversion", AGREED, SECRET)
    assert answer.sums.tolist() == np.bincount(cells, labels, minlength=4).tolist()
    assert answer.noise_stddev == 0


def test_a_statistic_is_the_exact_sum_over_clipped_features_but_for_its_noise() -> None:
    agreed = terms(mode=Mode.STATISTIC, delta="1e-6", epsilon=40)
    tokens, table = some_tokens(ROWS), some_table(ROWS)
    source = Simulation("features")
    features = (source.normal((ROWS, 3)) * 2).astype(np.float32)
    cells = np.stack([np.arange(ROWS) % 3, 3 + np.arange(ROWS) % 2], axis=1).astype(np.int32)
    request, slabs = a_statistic(agreed, tokens, cells, features)
    answer = a_room(agreed, table).statistic(request, slabs, peer=PLATFORM, now=NOW)
    labels = table.look_up(tokens, "conversion").astype(float)
    norms = np.linalg.norm(features.astype(float), axis=1)
    clipped = features / np.maximum(1, norms)[:, None]
    assert (norms > 1).any()
    expected = np.concatenate([0.5 * np.bincount(cells.reshape(-1), np.repeat(labels, 2)), labels @ clipped])
    assert answer.noise_stddev == pytest.approx(agreed.noise_multiplier * np.sqrt(2 * 0.25 + 1))
    # Eight normals are all within 8 standard deviations but once in 1e14.
    assert np.abs(answer.sums - expected).max() < 8 * answer.noise_stddev
    assert np.array_equal(np.rint(answer.sums / STATISTIC_GRID) * STATISTIC_GRID, answer.sums)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e9])
def test_one_label_moves_a_statistic_by_no_more_than_stated(size: float) -> None:
    agreed = terms(mode=Mode.STATISTIC, delta="1e-6")
    features = np.clip(Simulation("wild").normal((8, 5)) * size, -(2.0**32), 2.0**32).astype(np.float32)
    cells = (np.arange(8)[:, None] + np.arange(3)).astype(np.int32)  # three distinct cells a row
    request, _ = a_statistic(agreed, some_tokens(8), cells, features, cell_weight=0.3)
    slabs = [StatisticSlab(0, some_tokens(8), cells, features)]
    reach = statistic_sensitivity(agreed, request)
    none = np.zeros(8, np.uint8)
    moves = []
    for row in range(8):
        labels = none.copy()
        labels[row] = 1
        sums = [
            StatisticQuery(request, [(slab, chosen) for slab in slabs], agreed).compute(lambda found: found)  # type: ignore
            for chosen in (none, labels)
        ]
        moves.append(np.linalg.norm(sums[1] - sums[0]))
    assert max(moves) <= reach.sensitivity
    assert max(moves) >= (0.99 * reach.sensitivity if size >= 1 else 0.9 * 0.3 * np.sqrt(3))


def test_a_cells_weight_is_cut_to_the_grid_and_never_grows() -> None:
    """0.7 is 751,619,276.8 steps of the grid: nearer to the next than to the last."""
    agreed, cells = terms(mode=Mode.STATISTIC, delta="1e-6"), np.zeros((1, 1), np.int32)
    request, _ = a_statistic(agreed, some_tokens(1), cells, None, cell_weight=0.7)
    slab = StatisticSlab(0, some_tokens(1), cells, np.empty((1, 0), np.float32))
    ones = np.ones(1, np.uint8)
    (sums,) = StatisticQuery(request, [(slab, ones)], agreed).compute(lambda found: found)  # type: ignore
    assert sums == 751_619_276 * STATISTIC_GRID <= 0.7


def test_another_window_or_version_of_labels_flips_anew() -> None:
    """Two unrelated flips at epsilon 1 differ for 39% of records: of 2,000 for 30% to 48%, but once in 1e15."""
    table, tokens = some_table(2000), some_tokens(2000)
    first = flipped_labels(table, tokens, "conversion", AGREED, SECRET)
    for changed in (terms(epsilon=1, label_version=1), terms(epsilon=1, window=1)):
        differ = np.mean(flipped_labels(table, tokens, "conversion", changed, SECRET) != first)
        assert 0.3 < differ < 0.48


def test_features_are_clipped_in_whichever_order_their_squares_are_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One large number, then 65,535 whose squares, one by one, are each lost beside it: all together are not.

    Libraries add in an order of their own; the worst is one after the other.
    """

    def one_by_one(some: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.cumsum(some * other, axis=-1)[..., -1]

    monkeypatch.setattr(np, "vecdot", one_by_one)
    features = np.full((1, 2**16), 2.0**-26.6, np.float32)
    features[0, 0] = 1
    lost = features.astype(np.float64)
    assert one_by_one(lost, lost)[0] == 1
    monkeypatch.setattr(aggregating, "STATISTIC_GRID", 2.0**-80)  # else what is cut towards zero hides it
    clipped = [Fraction(float(each)) for each in aggregating._clip_features(features)[0]]
    assert sum(each * each for each in clipped) <= 1


def test_memory_does_not_grow_with_the_length_of_a_stream() -> None:
    """Sixty slabs of 400 KB take no more than six, but for 16 bytes a record."""
    layout = ParameterLayout((ParameterBlock("wide", 300, 50),))
    each = 290
    words = Simulation("words").words
    codec = codec_named("fp32")
    left, right = Simulation("left").normal((each, 300)), Simulation("right").normal((each, 50))
    factors = Factors(left.astype(np.float32), right.astype(np.float32), np.ones(each, np.int32))
    blocks = {"wide": BlockDerivatives.of_factors(layout.blocks[0], factors)}
    logits = some_logits(each)

    def slabs(count: int) -> Iterator[bytes]:
        for place in range(count):
            tokens = some_tokens(each, f"slab {place}")
            yield encode_slab(Slab(place * each, tokens, logits, blocks), layout, codec, words)

    def peak(count: int, agreed_mode: Mode) -> int:
        agreed = terms(mode=agreed_mode, delta="1e-6" if agreed_mode is Mode.NOISED else 0)
        assert agreed.noise_multiplier >= 0  # computed and remembered beforehand
        room = a_room(agreed)
        request = step_request(agreed, count * each, layout=layout)
        tracemalloc.start()
        try:
            room.step(request, slabs(count), peer=PLATFORM, now=NOW)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for mode in (Mode.AGGREGATE, Mode.NOISED):
        few, many = peak(6, mode), peak(60, mode)
        records = 54 * each
        # Records are kept and sorted at the end; a store in memory keeps a count for each besides.
        assert many - few < records * (300 if mode is Mode.NOISED else 120)
        assert many < 54 * 400_000 / 2  # half of what the slabs themselves would take
