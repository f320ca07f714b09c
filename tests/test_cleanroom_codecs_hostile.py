"""Codecs under hostile bytes: refused, or read as finite numbers of the right shape; nothing else."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.cleanroom.wire.blocks import Block
from tacit.cleanroom.wire.codec import CODECS, codec_named
from tacit.cleanroom.wire.framing import MOST_VALUE
from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import RoomRefused
from test_cleanroom_codecs import BLOCKS, FLAT, SEQUENCE, drawn, words


def refused(name: str, data: bytes, block: Block = FLAT, examples: int = 1) -> Refusal:
    with pytest.raises(RoomRefused) as caught:
        CODECS[name].decode(block, examples, data)
    reason: Refusal = caught.value.reason
    return reason


BEYOND = [np.nan, np.inf, -np.inf, 3e38, -3e38, float(np.nextafter(np.float32(MOST_VALUE), np.float32(np.inf)))]


@pytest.mark.parametrize("bad", BEYOND)
def test_numbers_that_are_not_finite_are_refused_in_every_precision(bad: float) -> None:
    ones = np.ones(5, "<f4")
    spoiled = ones.copy()
    spoiled[3] = bad
    zeros = bytes(5)
    assert refused("fp32-dense", b"\x01" + spoiled.tobytes()) is Refusal.NOT_FINITE
    assert refused("fp32", b"\x01" + spoiled.tobytes()) is Refusal.NOT_FINITE
    assert refused("fp32", b"\x00" + ones[:1].tobytes() + spoiled.tobytes()) is Refusal.NOT_FINITE
    upper = (spoiled.view("<u4") >> 16).astype("<u2")
    if abs(bad) != abs(BEYOND[-1]):  # that one's upper half is 2^32 itself, which is accepted
        assert refused("bf16", b"\x01" + upper.tobytes()) is Refusal.NOT_FINITE
    scale = np.array([bad], "<f4").tobytes()
    for name, data in [("int8", b"\x01" + scale + zeros), ("qsgd-8", scale + zeros)]:
        assert refused(name, data) in (
            (Refusal.NOT_FINITE, Refusal.MALFORMED) if bad < 0 else (Refusal.NOT_FINITE,)
        )
    assert refused("top-10", scale + bytes(4)) is Refusal.NOT_FINITE
    assert refused("powersgd-1", ones[:1].tobytes() + spoiled.tobytes()) is Refusal.NOT_FINITE


def test_the_largest_scale_is_that_of_the_largest_number() -> None:
    most = np.float32(MOST_VALUE / 127)
    beyond = np.nextafter(most, np.float32(np.inf)).astype("<f4").tobytes()
    for name, form in [("int8", b"\x01"), ("qsgd-8", b"")]:
        assert refused(name, form + beyond + bytes(5)) is Refusal.NOT_FINITE
        back = CODECS[name].decode(FLAT, 1, form + most.astype("<f4").tobytes() + bytes([127] * 5))
        assert np.all(back.dense <= MOST_VALUE)


def test_strange_scales_levels_forms_and_places_are_refused() -> None:
    one, zeros = np.ones(1, "<f4").tobytes(), bytes(5)
    CODECS["int8"].decode(FLAT, 1, b"\x01" + one + b"\x81\x7f\x00\x01\xff")  # -127 and 127 are good
    assert refused("int8", b"\x01" + one + b"\x80" + bytes(4)) is Refusal.MALFORMED  # -128
    for scale in (-1.0, -0.0):
        data = np.array([scale], "<f4").tobytes() + zeros
        assert refused("int8", b"\x01" + data) is Refusal.MALFORMED
        assert refused("qsgd-8", data) is Refusal.MALFORMED
    assert refused("int8", b"\x03" + one + zeros) is Refusal.MALFORMED  # no such form
    assert refused("fp32", b"") is Refusal.MALFORMED
    assert refused("fp32", b"\x01" + bytes(21)) is Refusal.MALFORMED  # one byte more
    assert refused("fp32", b"\x01" + bytes(20), examples=0) is Refusal.WRONG_SHAPE
    wide = Block("wide", 1, 20)  # two places
    for places in ([3, 3], [5, 4], [0, 20], [2**32 - 1, 1]):
        data = np.ones(2, "<f4").tobytes() + np.array(places, "<u4").tobytes()
        assert refused("top-10", data, wide) is Refusal.MALFORMED
    for bits in (0b00, 0b11, 0b101):  # none dense, all dense, a bit beyond the examples
        assert refused("fp32", b"\x02" + bytes([bits]) + bytes(44), examples=2) is Refusal.MALFORMED
    too_many = b"\x00" + np.array([8], "<u2").tobytes() + bytes(4 * 8 * 14)
    assert refused("fp32", too_many, SEQUENCE) is Refusal.WRONG_SHAPE
    with pytest.raises(RoomRefused):
        codec_named("zip")


def accepts_or_refuses(name: str, block: Block, examples: int, data: bytes) -> None:
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
def test_any_bytes_are_refused_or_read(name: str, block: Block, examples: int, data: bytes) -> None:
    accepts_or_refuses(name, block, examples, data)
    accepts_or_refuses(name, block, examples % 4, data)


@pytest.mark.parametrize("name", list(CODECS))
@settings(max_examples=12)
@given(st.sampled_from(BLOCKS), st.data())
def test_spoiled_messages_are_refused_or_read(name: str, block: Block, data: st.DataObject) -> None:
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
    huge = Block("huge", 2**14, 2**14, positions=2**16 - 1)
    codec = CODECS[name]
    tracemalloc.start()
    for block, examples in ((huge, 1), (huge, 2**31), (FLAT, 2**31), (SEQUENCE, 2**40)):
        for first in (b"\x00", b"\x01", b"\x02", b"\x00\xff\xff"):
            with pytest.raises(RoomRefused):
                codec.decode(block, examples, first + bytes(2000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
