"""Codecs: what comes back, and how many bytes it takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.arrays import Floats32
from tacit.cleanroom.protocol.codecs import CODECS, codec_named
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.encoding import MOST_VALUE, RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock
from tacit.cleanroom.protocol.precisions import Int8
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomRefused

PLAIN = ParameterBlock("plain", 24, 30)
SEQUENCE = ParameterBlock("sequence", 6, 8, positions=7)
FLAT = ParameterBlock("flat", 1, 5)
BLOCKS = [PLAIN, SEQUENCE, FLAT, ParameterBlock("one", 1, 1), ParameterBlock("buckets", 33, 32)]
SMALLER = ["fp32", "bf16", "int8"]
Numbers = NDArray[np.float32]


def drawn(block: ParameterBlock, examples: int, seed: int = 0) -> BlockDerivatives:
    numbers = np.random.default_rng(seed)
    counts = np.ones(examples, np.int32)
    if block.positions > 1:
        counts = numbers.integers(0, block.positions + 1, examples).astype(np.int32)
    left = numbers.normal(size=(int(counts.sum()), block.rows)).astype(np.float32)
    right = numbers.normal(size=(int(counts.sum()), block.cols)).astype(np.float32)
    return BlockDerivatives.of_factors(block, Factors(left, right, counts))


def words_of_lanes(lane: Callable[[NDArray[np.int64]], Any]) -> Callable[[int], NDArray[np.uint64]]:
    """Words whose k-th 16 bits, over all calls, are lane(k)."""
    given_out = 0

    def words(count: int) -> NDArray[np.uint64]:
        nonlocal given_out
        places = np.arange(given_out, given_out + 4 * count)
        given_out += 4 * count
        return np.broadcast_to(lane(places), places.shape).astype("<u2").view("<u8").astype(np.uint64)

    return words


def words(seed: int = 0) -> Callable[[int], NDArray[np.uint64]]:
    return Simulation(seed).words


def through(name: str, derivatives: BlockDerivatives, seed: int = 0) -> BlockDerivatives:
    codec = CODECS[name]
    return codec.decode(derivatives.block, len(derivatives), codec.encode(derivatives, words(seed)))


def relative_error(found: Numbers, expected: Numbers) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
@pytest.mark.parametrize("name", list(CODECS))
def test_every_codec_gives_back_every_block(name: str, block: ParameterBlock) -> None:
    derivatives = drawn(block, 19)
    back = through(name, derivatives)
    assert len(back) == 19
    assert back.block == block
    expected = derivatives.as_dense()
    if name.startswith(("fp32", "bf16", "int8")):
        bound = {"fp32": 1e-6, "bf16": 2**-8, "int8": 0.03}[name.removesuffix("-dense")]
        assert relative_error(back.as_dense(), expected) <= bound
    assert codec_named(name).encode(derivatives, words()) == codec_named(name).encode(derivatives, words())


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32))
def test_fp32_is_bit_exact(rows: int, cols: int, positions: int, examples: int, seed: int) -> None:
    derivatives = drawn(ParameterBlock("layer", rows, cols, positions), examples, seed)
    back = through("fp32", derivatives)
    kept = ~back.is_dense
    assert back.factors.left.tobytes() == derivatives.factors.select(kept).left.tobytes()
    assert back.factors.right.tobytes() == derivatives.factors.select(kept).right.tobytes()
    assert back.dense.tobytes() == derivatives.as_dense()[back.is_dense].tobytes()
    np.testing.assert_array_equal(back.factors.counts, derivatives.factors.counts[kept])
    assert through("fp32", back).dense.tobytes() == back.dense.tobytes()  # also where both forms come in


def test_bf16_rounds_as_torch_does() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32)
    bits[:4000] = (bits[:4000] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)  # ties
    values = bits.view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) <= 2.0**31)]
    block = ParameterBlock("layer", 1, len(values))
    back = through("bf16-dense", BlockDerivatives.of_dense(block, values[None])).dense[0]
    expected = torch.from_numpy(values.copy()).to(torch.bfloat16).to(torch.float32).numpy()
    assert back.tobytes() == expected.tobytes()


def exact_mean_of_int8(x: float, lane: Callable[[NDArray[np.int64]], Any]) -> tuple[float, float]:
    """The mean of what comes back for x beside 1, over all 2^16 draws, and the scale of the row."""
    derivatives = BlockDerivatives.of_dense(
        ParameterBlock("layer", 1, 2), np.tile(np.array([1, x], np.float32), (2**16, 1))
    )
    codec = CODECS["int8-dense"]
    data = codec.encode(derivatives, words_of_lanes(lane))
    back = codec.decode(derivatives.block, 2**16, data).dense.astype(np.float64)
    return float(back[:, 1].mean()), 1 / 127


@pytest.mark.parametrize("x", [0.0, 1e-7, 0.001, 0.1, 1 / 3, 0.5, 0.9999, -0.0033, -0.77, -1.0])
def test_int8_has_the_right_mean_by_enumeration(x: float) -> None:
    # Entry k is number k % 2 of row k // 2, so both numbers of every row meet all 2^16 draws once.
    mean, scale = exact_mean_of_int8(x, lambda places: (places // 2) % 2**16)
    assert abs(mean - float(np.float32(x))) <= scale * 2**-15


@pytest.mark.parametrize("x", [0.001, 0.1, -0.0033])
def test_int8_rounded_to_the_nearest_would_be_caught(x: float) -> None:
    mean, scale = exact_mean_of_int8(x, lambda _: 2**15)  # the middle draw, always: nearest
    assert abs(mean - x) > 0.05 * scale > scale * 2**-15


def test_both_factors_are_rounded_by_draws_of_their_own() -> None:
    block = ParameterBlock("layer", 4, 4)
    row = np.array([[1, 0.1, 0.2, 0.3]], np.float32)
    derivatives = BlockDerivatives.of_factors(block, Factors(row, row, np.ones(1, np.int32)))
    # The left row takes the first word, the right row the second: down, then up.
    data = CODECS["int8"].encode(derivatives, words_of_lanes(lambda places: np.where(places < 4, 0, 2**16 - 1)))
    back = CODECS["int8"].decode(block, 1, data).factors
    np.testing.assert_array_equal(np.rint(back.left[0, 1:] * 127), [12, 25, 38])
    np.testing.assert_array_equal(np.rint(back.right[0, 1:] * 127), [13, 26, 39])


@settings(max_examples=50)
@given(
    st.lists(st.floats(-(2.0**31), 2.0**31, width=32), min_size=1, max_size=8), st.sampled_from([0, 2**16 - 1])
)
def test_int8_never_leaves_its_range(row: list[float], lane: int) -> None:
    values = np.array([row], np.float32)
    data = Int8().write(values, words_of_lanes(lambda _: lane))
    scale, levels = np.frombuffer(data[:4], "<f4")[0], np.frombuffer(data[4:], np.int8)
    assert levels.min() >= -127
    assert (
        np.abs(levels * np.float64(scale) - values[0]).max() <= scale + 1.5e-36
    )  # smaller rows are sent as zero


def test_a_rows_largest_number_is_level_127_whatever_is_drawn() -> None:
    """Half of all quotients by 127 round down: with them for scales, 127 and a large draw would spill over."""
    largest = np.random.default_rng(9).uniform(1, 2, (2000, 1)).astype(np.float32)
    for values in (largest, -largest):
        for draws in (words_of_lanes(lambda _: 0), words_of_lanes(lambda _: 2**16 - 1)):
            levels = np.frombuffer(Int8().write(values, draws)[4 * 2000 :], np.int8)
            assert np.abs(levels.astype(int)).max() <= 127
            assert np.abs(levels.astype(int)).min() >= 126


def test_aggregates_of_factored_int8_are_close() -> None:
    derivatives, weights = (
        drawn(ParameterBlock("layer", 64, 96), 512),
        np.random.default_rng(5).normal(size=512),
    )
    expected = derivatives.weighted_sum(weights)
    assert relative_error(through("fp32", derivatives).weighted_sum(weights), expected) == 0
    assert relative_error(through("bf16", derivatives).weighted_sum(weights), expected) < 0.005
    assert relative_error(through("int8", derivatives).weighted_sum(weights), expected) < 0.02


@pytest.mark.parametrize("name", SMALLER)
@settings(max_examples=12)
@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from([1, 4, 12]), st.integers(0, 2**32))
def test_the_smaller_form_is_sent(name: str, rows: int, cols: int, positions: int, seed: int) -> None:
    block, codec = ParameterBlock("layer", rows, cols, positions), CODECS[name]
    derivatives = drawn(block, 9, seed)
    number, row = {"fp32": (4, 0), "bf16": (2, 0), "int8": (1, 4)}[name]
    counted = 2 if positions > 1 else 0
    factored = derivatives.factors.counts * (number * (rows + cols) + 2 * row) + counted
    dense = np.full(9, number * rows * cols + row)
    for example in range(9):
        data = codec.encode(derivatives.rows(example, example + 1), words())
        assert len(data) == 1 + min(factored[example], dense[example])
    whole = codec.encode(derivatives, words())
    both = (factored <= dense).any() and (factored > dense).any()
    assert len(whole) == 1 + 2 * both + np.minimum(factored, dense).sum()  # 9 examples: 2 bytes of bits
    assert codec.decode(block, 9, whole).is_dense.tolist() == (factored > dense).tolist()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
@pytest.mark.parametrize("name", list(CODECS))
def test_size_is_what_is_sent(name: str, block: ParameterBlock) -> None:
    codec, derivatives = CODECS[name], drawn(block, 50)
    sizes = [codec.size(block, float(count)) for count in derivatives.factors.counts]
    # One byte for the form, and a bit for each example where both forms occur.
    assert 0 <= len(codec.encode(derivatives, words())) - sum(sizes) <= 1 + 7


@pytest.mark.parametrize("name", SMALLER)
def test_dense_sequences_hide_the_pairs_of_sequences_alone(name: str) -> None:
    free, strict = codec_named(name), codec_named(name, dense_sequences=True)
    few = ParameterBlock("sequence", 20, 30, positions=7)
    for block, is_dense in ((few, True), (PLAIN, False)):
        derivatives = drawn(block, 11)
        back = strict.decode(block, 11, strict.encode(derivatives, words()))
        assert back.is_dense.all() == is_dense
        assert strict.size(block, 1.0) == (free.size(block, 1.0) if not is_dense else free.size(block, 1e9))
    with pytest.raises(RoomRefused) as refused:
        strict.decode(few, 11, free.encode(drawn(few, 11), words()))
    assert refused.value.reason is RoomRefusal.NOT_AGREED
    with pytest.raises(RoomRefused):
        CODECS[f"{name}-dense"].decode(PLAIN, 11, free.encode(drawn(PLAIN, 11), words()))


def slow_qsgd(dense: Floats32, bucket: int, draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """The definition (Alistarh et al. 2017), a number at a time: a level below or above, by one draw each."""
    found = np.zeros(dense.shape)
    for place, row in enumerate(dense.astype(np.float64)):
        for start in range(0, len(row), bucket):
            some = row[start : start + bucket]
            norm = np.sqrt((some**2).sum())
            for offset, x in enumerate(some):
                level = 127 * x / norm
                below = np.floor(level)
                up = draws[place, start + offset] > 1 - (level - below)
                found[place, start + offset] = norm * (below + up) / 127
    return found


@pytest.mark.parametrize(("name", "bucket"), [("qsgd-8", 512), ("qsgd-8-whole", 10**9)])
def test_qsgd_is_its_slow_definition(name: str, bucket: int) -> None:
    block = ParameterBlock("layer", 32, 32)  # two whole buckets
    dense = np.random.default_rng(2).normal(size=(6, 1024)).astype(np.float32)
    lanes = np.random.default_rng(3).integers(0, 2**16, 6 * 1024)
    data = CODECS[name].encode(BlockDerivatives.of_dense(block, dense), words_of_lanes(lambda k: lanes[k]))
    back = CODECS[name].decode(block, 6, data).dense
    expected = slow_qsgd(dense, bucket, ((lanes + 0.5) / 2**16).reshape(6, 1024))
    # A draw within 2^-15 of the border may fall to the other side in float32: about 6144 x 2^-15 of them.
    apart = np.abs(back - expected) > 1e-4
    assert apart.sum() <= 3


def test_qsgd_has_a_last_bucket_of_what_is_left() -> None:
    block, dense = ParameterBlock("layer", 33, 32), np.zeros((1, 1056), np.float32)
    dense[0, 1024:] = 1  # the last 32 numbers: a bucket of norm sqrt(32)
    dense[0, 0] = 1000
    data = CODECS["qsgd-8"].encode(BlockDerivatives.of_dense(block, dense), words())
    assert len(data) == 1056 + 3 * 4
    back = CODECS["qsgd-8"].decode(block, 1, data).dense[0]
    assert back[0] == pytest.approx(1000, rel=1e-6)
    assert np.abs(back[1024:] - 1).max() <= np.sqrt(32) / 127 + 1e-6  # unharmed by the large number elsewhere
    whole = through("qsgd-8-whole", BlockDerivatives.of_dense(block, dense)).dense[0]
    assert np.abs(whole[1024:] - 1).max() > 0.5


def test_top_ten_keeps_the_largest_tenth() -> None:
    dense = np.random.default_rng(4).normal(size=(7, 95)).astype(np.float32)
    back = through("top-10", BlockDerivatives.of_dense(ParameterBlock("layer", 5, 19), dense)).dense
    for row, found in zip(dense, back, strict=True):
        kept = sorted(range(95), key=lambda place: -abs(row[place]))[:10]  # 9.5, rounded up
        expected = np.zeros(95, np.float32)
        expected[kept] = row[kept]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rank", [1, 2])
def test_power_iteration_is_its_slow_definition(rank: int) -> None:
    block, lanes = ParameterBlock("layer", 12, 9), np.random.default_rng(6).integers(0, 2**16, 64)
    derivatives = drawn(ParameterBlock("layer", 12, 9, positions=5), 8, seed=3)
    derivatives = BlockDerivatives.of_dense(block, derivatives.as_dense())
    codec = CODECS[f"powersgd-{rank}"]
    data = codec.encode(derivatives, words_of_lanes(lambda k: lanes[k]))
    back = codec.decode(block, 8, data).as_dense()
    start = ((lanes[: 9 * rank] + 0.5) / 2**16 - 0.5).reshape(9, rank)
    for row, found in zip(derivatives.dense, back, strict=True):
        matrix = row.reshape(12, 9).astype(np.float64)
        basis = np.zeros((12, 0))
        for column in (matrix @ start).T:  # Gram-Schmidt
            rest = column - basis @ (basis.T @ column)
            size = np.linalg.norm(rest)
            basis = np.column_stack([basis, rest / size]) if size > 1e-9 else basis
        np.testing.assert_allclose(found.reshape(12, 9), basis @ (basis.T @ matrix), atol=1e-4)


@pytest.mark.parametrize("name", ["powersgd-1", "powersgd-2"])
def test_power_iteration_of_rank_one_is_exact(name: str) -> None:
    derivatives = drawn(PLAIN, 20)
    assert relative_error(through(name, derivatives).as_dense(), derivatives.as_dense()) < 5e-6
    silent = BlockDerivatives.of_dense(PLAIN, np.zeros((2, PLAIN.parameters), np.float32))
    np.testing.assert_array_equal(through(name, silent).as_dense(), silent.dense)
    two = ParameterBlock("layer", 12, 9, positions=2)
    left, right = (np.random.default_rng(8).normal(size=(2, width)).astype(np.float32) for width in (12, 9))
    pairs = BlockDerivatives.of_factors(two, Factors(left, right, np.array([2], np.int32)))
    error = relative_error(through(name, pairs).as_dense(), pairs.as_dense())
    assert error < 1e-5 if name == "powersgd-2" else error > 0.01


@pytest.mark.parametrize("name", list(CODECS))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**33])
def test_what_is_not_finite_is_not_even_sent(name: str, bad: float) -> None:
    dense = np.ones((3, PLAIN.parameters), np.float32)
    dense[1, 7] = bad
    with pytest.raises(BadInput, match="finite"):
        CODECS[name].encode(BlockDerivatives.of_dense(PLAIN, dense), words())


def refused(name: str, data: bytes, block: ParameterBlock = FLAT, examples: int = 1) -> RoomRefusal:
    with pytest.raises(RoomRefused) as caught:
        CODECS[name].decode(block, examples, data)
    reason: RoomRefusal = caught.value.reason
    return reason


BEYOND = [np.nan, np.inf, -np.inf, 3e38, -3e38, float(np.nextafter(np.float32(MOST_VALUE), np.float32(np.inf)))]


@pytest.mark.parametrize("bad", BEYOND)
def test_numbers_that_are_not_finite_are_refused_in_every_precision(bad: float) -> None:
    ones = np.ones(5, "<f4")
    spoiled = ones.copy()
    spoiled[3] = bad
    zeros = bytes(5)
    assert refused("fp32-dense", b"\x01" + spoiled.tobytes()) is RoomRefusal.NOT_FINITE
    assert refused("fp32", b"\x01" + spoiled.tobytes()) is RoomRefusal.NOT_FINITE
    assert refused("fp32", b"\x00" + ones[:1].tobytes() + spoiled.tobytes()) is RoomRefusal.NOT_FINITE
    upper = (spoiled.view("<u4") >> 16).astype("<u2")
    if abs(bad) != abs(BEYOND[-1]):  # that one's upper half is 2^32 itself, which is accepted
        assert refused("bf16", b"\x01" + upper.tobytes()) is RoomRefusal.NOT_FINITE
    scale = np.array([bad], "<f4").tobytes()
    for name, data in [("int8", b"\x01" + scale + zeros), ("qsgd-8", scale + zeros)]:
        assert refused(name, data) in (
            (RoomRefusal.NOT_FINITE, RoomRefusal.MALFORMED) if bad < 0 else (RoomRefusal.NOT_FINITE,)
        )
    assert refused("top-10", scale + bytes(4)) is RoomRefusal.NOT_FINITE
    assert refused("powersgd-1", ones[:1].tobytes() + spoiled.tobytes()) is RoomRefusal.NOT_FINITE


def test_the_largest_scale_is_that_of_the_largest_number() -> None:
    most = np.float32(MOST_VALUE / 127)
    beyond = np.nextafter(most, np.float32(np.inf)).astype("<f4").tobytes()
    for name, form in [("int8", b"\x01"), ("qsgd-8", b"")]:
        assert refused(name, form + beyond + bytes(5)) is RoomRefusal.NOT_FINITE
        back = CODECS[name].decode(FLAT, 1, form + most.astype("<f4").tobytes() + bytes([127] * 5))
        assert np.all(back.dense <= MOST_VALUE)


def test_strange_scales_levels_forms_and_places_are_refused() -> None:
    one, zeros = np.ones(1, "<f4").tobytes(), bytes(5)
    CODECS["int8"].decode(FLAT, 1, b"\x01" + one + b"\x81\x7f\x00\x01\xff")  # -127 and 127 are good
    assert refused("int8", b"\x01" + one + b"\x80" + bytes(4)) is RoomRefusal.MALFORMED  # -128
    for scale in (-1.0, -0.0):
        data = np.array([scale], "<f4").tobytes() + zeros
        assert refused("int8", b"\x01" + data) is RoomRefusal.MALFORMED
        assert refused("qsgd-8", data) is RoomRefusal.MALFORMED
    assert refused("int8", b"\x03" + one + zeros) is RoomRefusal.MALFORMED  # no such form
    assert refused("fp32", b"") is RoomRefusal.MALFORMED
    assert refused("fp32", b"\x01" + bytes(21)) is RoomRefusal.MALFORMED  # one byte more
    assert refused("fp32", b"\x01" + bytes(20), examples=0) is RoomRefusal.WRONG_SHAPE
    wide = ParameterBlock("wide", 1, 20)  # two places
    for places in ([3, 3], [5, 4], [0, 20], [2**32 - 1, 1]):
        data = np.ones(2, "<f4").tobytes() + np.array(places, "<u4").tobytes()
        assert refused("top-10", data, wide) is RoomRefusal.MALFORMED
    for bits in (0b00, 0b11, 0b101):  # none dense, all dense, a bit beyond the examples
        assert refused("fp32", b"\x02" + bytes([bits]) + bytes(44), examples=2) is RoomRefusal.MALFORMED
    too_many = b"\x00" + np.array([8], "<u2").tobytes() + bytes(4 * 8 * 14)
    assert refused("fp32", too_many, SEQUENCE) is RoomRefusal.WRONG_SHAPE
    with pytest.raises(RoomRefused):
        codec_named("zip")


def accepts_or_refuses(name: str, block: ParameterBlock, examples: int, data: bytes) -> None:
    """The one thing hostile bytes may do: be refused, or be read as finite numbers of the right shape."""
    try:
        back = CODECS[name].decode(block, examples, data)
    except RoomRefused:
        return
    assert len(back) == examples
    assert np.isfinite(back.weighted_sum(np.ones(examples))).all()
    assert np.isfinite(back.squared_norms()).all()


@pytest.mark.parametrize("name", list(CODECS))
@settings(max_examples=12)
@given(st.sampled_from(BLOCKS), st.integers(0, 2**40), st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(name: str, block: ParameterBlock, examples: int, data: bytes) -> None:
    accepts_or_refuses(name, block, examples, data)
    accepts_or_refuses(name, block, examples % 4, data)


@pytest.mark.parametrize("name", list(CODECS))
@settings(max_examples=12)
@given(st.sampled_from(BLOCKS), st.data())
def test_spoiled_messages_are_refused_or_read(name: str, block: ParameterBlock, data: st.DataObject) -> None:
    good = bytearray(CODECS[name].encode(drawn(block, 3), words()))
    cut = data.draw(st.integers(0, len(good)))
    if cut < len(good):
        with pytest.raises(RoomRefused):
            CODECS[name].decode(block, 3, bytes(good[:cut]))
    with pytest.raises(RoomRefused):
        CODECS[name].decode(block, 3, bytes(good) + b"\x00")
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    accepts_or_refuses(name, block, 3, bytes(good))


@pytest.mark.parametrize("name", list(CODECS))
def test_large_claims_take_no_memory(name: str) -> None:
    huge = ParameterBlock("huge", 2**14, 2**14, positions=2**16 - 1)
    codec = CODECS[name]
    tracemalloc.start()
    for block, examples in ((huge, 1), (huge, 2**31), (FLAT, 2**31), (SEQUENCE, 2**40)):
        for first in (b"\x00", b"\x01", b"\x02", b"\x00\xff\xff"):
            with pytest.raises(RoomRefused):
                codec.decode(block, examples, first + bytes(2000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
