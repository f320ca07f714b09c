"""Slabs: what comes back, about how large they are, and that a hostile one is refused and nothing else."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.cleanroom.protocol.codecs import CODECS, codec_named
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.encoding import MOST_MESSAGE_BYTES, RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.requests import Purpose, StatisticRequest
from tacit.cleanroom.protocol.slabs import (
    SLAB_BYTES,
    Slab,
    StatisticSlab,
    TokenSlab,
    decode_slab,
    decode_statistic_slab,
    decode_token_slab,
    encode_slab,
    encode_statistic_slab,
    encode_token_slab,
    examples_per_slab,
)
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomRefused

LAYOUT = ParameterLayout((ParameterBlock("a", 3, 4), ParameterBlock("b", 5, 2, positions=3)))
CODEC = codec_named("fp32")
REQUEST = StatisticRequest(
    "0" * 64,
    "run",
    0,
    "conversion",
    Purpose.STATISTIC,
    rows=100,
    cells=9,
    indices=3,
    cell_weight=0.5,
    features=2,
)
HEAD = struct.Struct("<4sBBHQI")


def drawn(layout: ParameterLayout, examples: int, pairs: int = 2) -> Slab:
    numbers, blocks = np.random.default_rng(1), {}
    for block in layout.blocks:
        counts = np.full(examples, pairs if block.positions > 1 else 1, np.int32)
        left = numbers.normal(size=(int(counts.sum()), block.rows)).astype(np.float32)
        right = numbers.normal(size=(int(counts.sum()), block.cols)).astype(np.float32)
        blocks[block.name] = BlockDerivatives.of_factors(block, Factors(left, right, counts))
    tokens = numbers.integers(0, 256, (examples, 16)).astype(np.uint8)
    return Slab(70, tokens, numbers.normal(size=examples).astype(np.float32), blocks)


def drawn_statistic(examples: int = 6) -> StatisticSlab:
    numbers = np.random.default_rng(2)
    cells = np.array([numbers.permutation(9)[:3] for _ in range(examples)], np.int32)
    tokens = numbers.integers(0, 256, (examples, 16)).astype(np.uint8)
    return StatisticSlab(7, tokens, cells, numbers.normal(size=(examples, 2)).astype(np.float32))


GOOD = encode_slab(drawn(LAYOUT, 4), LAYOUT, CODEC, Simulation(1).words)
GOOD_STATISTIC = encode_statistic_slab(drawn_statistic())
GOOD_TOKENS = encode_token_slab(TokenSlab(3, drawn(LAYOUT, 4).tokens))


def decode_all(data: bytes) -> list[RoomRefusal]:
    """Why each of the three readers refuses these bytes; nothing but a refusal may come."""
    reasons = []
    for decode in (
        lambda: decode_slab(data, LAYOUT, CODEC, 16),
        lambda: decode_statistic_slab(data, REQUEST, 16),
        lambda: decode_token_slab(data, 16),
    ):
        try:
            decode()
        except RoomRefused as refused:
            reasons.append(refused.reason)
    return reasons


@pytest.mark.parametrize("name", list(CODECS))
def test_a_slab_comes_back(name: str) -> None:
    slab, codec = drawn(LAYOUT, 11), codec_named(name)
    data = encode_slab(slab, LAYOUT, codec, Simulation(5).words)
    assert data == encode_slab(slab, LAYOUT, codec, Simulation(5).words)
    back = decode_slab(memoryview(data), LAYOUT, codec, 16)
    assert back.first == 70
    np.testing.assert_array_equal(back.tokens, slab.tokens)
    assert back.logits.tobytes() == slab.logits.tobytes()
    assert list(back.blocks) == ["a", "b"]
    for name_of, derivatives in back.blocks.items():
        assert derivatives.block == slab.blocks[name_of].block
        assert len(derivatives) == 11


def test_statistic_and_token_slabs_come_back() -> None:
    slab = drawn_statistic()
    back = decode_statistic_slab(GOOD_STATISTIC, REQUEST, 16)
    for name in ("first", "tokens", "cells", "features"):
        np.testing.assert_array_equal(getattr(back, name), getattr(slab, name))
    bins = StatisticRequest("0" * 64, "run", 0, "cart", Purpose.METRIC, 50, 9, 1, 1.0, 0)
    metric = StatisticSlab(0, slab.tokens, slab.cells[:, :1], np.empty((6, 0), np.float32))
    again = decode_statistic_slab(encode_statistic_slab(metric), bins, 16)
    np.testing.assert_array_equal(again.cells, metric.cells)
    assert again.features.shape == (6, 0)
    tokens = decode_token_slab(GOOD_TOKENS, 16)
    assert tokens.first == 3
    np.testing.assert_array_equal(tokens.tokens, drawn(LAYOUT, 4).tokens)


@pytest.mark.parametrize("name", ["fp32", "int8", "qsgd-8", "top-10", "powersgd-2"])
def test_slabs_are_about_a_megabyte(name: str) -> None:
    layout = ParameterLayout((ParameterBlock("a", 32, 256), ParameterBlock("b", 128, 16, positions=8)))
    codec = codec_named(name)
    examples = examples_per_slab(layout, codec, 5)
    assert examples == examples_per_slab(layout, codec, {"b": 5.0})
    data = encode_slab(drawn(layout, examples, pairs=5), layout, codec, Simulation(1).words)
    assert 0.95 * SLAB_BYTES < len(data) < 1.01 * SLAB_BYTES
    assert (
        examples_per_slab(ParameterLayout((ParameterBlock("large", 4096, 4096),)), codec_named("fp32-dense"))
        == 1
    )


def test_cuts_and_extra_bytes_are_refused() -> None:
    for good in (GOOD, GOOD_STATISTIC, GOOD_TOKENS):
        assert len(decode_all(good)) == 2  # only its own reader takes it
        for cut in range(len(good)):
            assert len(decode_all(good[:cut])) == 3
        assert len(decode_all(good + b"\x00")) == 3


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ((b"tcrM", 1, 1, 0, 0, 4), RoomRefusal.MALFORMED),
        ((b"tcrm", 2, 1, 0, 0, 4), RoomRefusal.MALFORMED),
        ((b"tcrm", 1, 9, 0, 0, 4), RoomRefusal.MALFORMED),
        ((b"tcrm", 1, 1, 1, 0, 4), RoomRefusal.MALFORMED),
        ((b"tcrm", 1, 1, 0, 0, 0), RoomRefusal.WRONG_SHAPE),
        ((b"tcrm", 1, 1, 0, 0, 3), RoomRefusal.WRONG_SHAPE),
        ((b"tcrm", 1, 1, 0, 0, 2**32 - 1), RoomRefusal.WRONG_SHAPE),
    ],
)
def test_wrong_headers_are_refused(head: tuple[Any, ...], reason: RoomRefusal) -> None:
    with pytest.raises(RoomRefused) as refused:
        decode_slab(HEAD.pack(*head) + GOOD[HEAD.size :], LAYOUT, CODEC, 16)
    assert refused.value.reason is reason


def test_large_claims_and_messages_take_no_memory() -> None:
    huge = ParameterLayout((ParameterBlock("huge", 2**14, 2**14, positions=2**16 - 1),))
    claims = [
        HEAD.pack(b"tcrm", 1, kind, 0, 0, examples) + struct.pack("<I", size) + bytes(100)
        for kind in (1, 2, 3)
        for examples in (1, 6, 2**32 - 1)
        for size in (100, 2**32 - 1)
    ]
    # Tokens and logits that fit, and then a block that does not.
    sections = [
        struct.pack("<I", 16) + bytes(16),
        struct.pack("<I", 4) + bytes(4),
        struct.pack("<I", 9) + b"\1" * 9,
    ]
    claims.append(HEAD.pack(b"tcrm", 1, 1, 0, 0, 1) + b"".join(sections))
    oversized = bytes(MOST_MESSAGE_BYTES + 1)
    tracemalloc.start()
    for name in CODECS:
        for claim in claims:
            with pytest.raises(RoomRefused):
                decode_slab(claim, huge, codec_named(name), 16)
    for claim in claims:
        assert len(decode_all(claim)) == 3
    assert set(decode_all(oversized)) == {RoomRefusal.OVERSIZED}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert len(decode_all(data)) == 3
    assert len(decode_all(GOOD[: HEAD.size] + data)) == 3


@settings(max_examples=300)
@given(st.sampled_from([GOOD, GOOD_STATISTIC, GOOD_TOKENS]), st.data())
def test_spoiled_slabs_are_refused_or_read(good: bytes, data: st.DataObject) -> None:
    spoiled = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        spoiled[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    assert len(decode_all(bytes(spoiled))) >= 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**40])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    slab = drawn(LAYOUT, 4)
    place = HEAD.size + 4 + 4 * 16 + 4 + 2 * 4  # logit 2, behind the tokens and two lengths
    assert GOOD[place : place + 4] == slab.logits[2:3].tobytes()
    spoiled = GOOD[:place] + struct.pack("<f", bad) + GOOD[place + 4 :]
    with pytest.raises(RoomRefused) as refused:
        decode_slab(spoiled, LAYOUT, CODEC, 16)
    assert refused.value.reason is RoomRefusal.NOT_FINITE
    spoiled = GOOD_STATISTIC[:-4] + struct.pack("<f", bad)
    with pytest.raises(RoomRefused) as refused:
        decode_statistic_slab(spoiled, REQUEST, 16)
    assert refused.value.reason is RoomRefusal.NOT_FINITE
    slab.logits[1] = bad
    with pytest.raises(BadInput, match="logits"):
        encode_slab(slab, LAYOUT, CODEC, Simulation(1).words)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([0, 0, 1], RoomRefusal.MALFORMED),
        ([8, 1, 8], RoomRefusal.MALFORMED),
        ([0, 1, 9], RoomRefusal.WRONG_SHAPE),
        ([-1, 1, 2], RoomRefusal.WRONG_SHAPE),
        ([2**31 - 1, 1, 2], RoomRefusal.WRONG_SHAPE),
    ],
)
def test_repeated_and_unknown_cells_are_refused(cells: list[int], reason: RoomRefusal) -> None:
    # A cell named twice would move the sums by more than the release is noised for.
    slab = drawn_statistic()
    slab.cells[4] = cells
    with pytest.raises(RoomRefused) as refused:
        decode_statistic_slab(encode_statistic_slab(slab), REQUEST, 16)
    assert refused.value.reason is reason


def test_slabs_that_do_not_fit_are_not_sent() -> None:
    slab, words = drawn(LAYOUT, 4), Simulation(1).words
    with pytest.raises(BadInput, match="every block"):
        encode_slab(Slab(0, slab.tokens, slab.logits, {"a": slab.blocks["a"]}), LAYOUT, CODEC, words)
    some = {**slab.blocks, "b": slab.blocks["b"].rows(0, 3)}
    with pytest.raises(BadInput, match="derivatives of block b"):
        encode_slab(Slab(0, slab.tokens, slab.logits, some), LAYOUT, CODEC, words)
    with pytest.raises(BadInput, match="4 rows"):
        encode_slab(Slab(0, slab.tokens, slab.logits[:3], slab.blocks), LAYOUT, CODEC, words)
    with pytest.raises(BadInput, match="tokens"):
        encode_token_slab(TokenSlab(0, np.empty((0, 16), np.uint8)))
    with pytest.raises(BadInput, match="section below"):
        encode_token_slab(TokenSlab(0, np.zeros((2**20, 16), np.uint8)))
