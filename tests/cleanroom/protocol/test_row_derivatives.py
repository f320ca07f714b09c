"""Derivatives in rows of an embedding: the same numbers as written out, exact norms, and one spelling."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.cleanroom.protocol.codecs import CODECS, AdaptiveCodec, codec_named, decode_block, encode_block
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.modes import NoiseLaw
from tacit.cleanroom.protocol.row_derivatives import RowDerivatives
from tacit.cleanroom.room.mechanism import clip_factors
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomRefused

ROWS, COLS, FIELDS, N = 9, 3, 4, 12
BLOCK = ParameterBlock("fields.rows", ROWS, COLS, FIELDS, by_rows=True)
WORDS = Simulation("rows").words
SENDING = [name for name, codec in CODECS.items() if codec.sends_rows]


def touched(seed: int = 1, n: int = N, scale: float = 1.0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Some values come twice in an example, some are none of the matrix's."""
    draw = np.random.default_rng(seed)
    places = draw.integers(-1, ROWS, (n, FIELDS))
    places[0] = -1
    places[1] = 4
    return places, draw.normal(0, scale, (n, FIELDS, COLS)).astype(np.float32)


def written_out(places: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The slow definition: an entry for each row and column, each position added to it."""
    found = np.zeros((len(places), ROWS, COLS))
    for example, position in np.argwhere(places >= 0):
        found[example, places[example, position]] += values[example, position]
    return found.reshape(len(places), -1)


def test_everything_is_as_if_written_out() -> None:
    places, values = touched()
    found, dense = RowDerivatives.of_touched(BLOCK, places, values), written_out(places, values)
    assert found.counts[:2].tolist() == [0, 1]
    assert found.as_dense() == pytest.approx(dense, abs=1e-6)
    weights = np.random.default_rng(2).normal(size=N)
    assert found.weighted_sum(weights, dtype=np.float64).reshape(-1) == pytest.approx(weights @ dense, abs=1e-5)
    assert found.squared_norms() == pytest.approx((dense**2).sum(axis=1), abs=1e-5)
    assert found.absolute_norms() == pytest.approx(np.abs(dense).sum(axis=1), abs=1e-5)
    assert found.gram() == pytest.approx(dense @ dense.T, abs=1e-5)
    matrix = np.random.default_rng(3).normal(size=(ROWS, COLS))
    assert found.inner_products(matrix) == pytest.approx(dense @ matrix.reshape(-1), abs=1e-5)
    assert found.rows(3, 8).as_dense() == pytest.approx(dense[3:8], abs=1e-6)
    again = RowDerivatives.join(BLOCK, [found.rows(0, 5), found.rows(5, N)])
    assert np.array_equal(again.as_dense(), found.as_dense())
    wide = found.as_dense().reshape(N, ROWS, COLS)
    some = np.unique(found.places)
    numbers = np.random.default_rng(4).permutation(len(some))
    renumbered = found.renumbered(some, numbers)
    expected = np.empty((N, len(some), COLS), np.float32)
    expected[:, numbers] = wide[:, some]
    assert np.array_equal(renumbered.as_dense(), expected.reshape(N, -1))


@pytest.mark.parametrize("noise", list(NoiseLaw))
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_a_clipped_example_is_within_the_norm_in_exact_arithmetic(noise: NoiseLaw, scale: float) -> None:
    """Over the whole derivative: rows of embeddings, of which some come twice, beside a block of factors."""
    found = RowDerivatives.of_touched(BLOCK, *touched(5, 40, scale))
    clip = 1.0
    for derivatives in ({BLOCK.name: found}, {"a": found, "b": found}):
        factors = clip_factors(derivatives, clip, noise)
        for example, factor in enumerate(factors):
            parts = [each.rows(example, example + 1).values.reshape(-1) for each in derivatives.values()]
            entries = [Fraction(float(number)) for number in np.concatenate(parts)]
            share = Fraction(float(factor))
            if noise is NoiseLaw.GAUSSIAN:
                assert sum((share * each) ** 2 for each in entries) <= Fraction(clip) ** 2
            else:
                assert sum(abs(share * each) for each in entries) <= Fraction(clip)
            norm = math.sqrt(sum(float(each) ** 2 for each in entries))
            if noise is NoiseLaw.GAUSSIAN and norm > 1.01:
                assert float(factor) * norm > 0.999, "and no shorter than it must be"


@pytest.mark.parametrize("name", SENDING)
def test_codecs_bring_rows_across(name: str) -> None:
    codec = codec_named(name)
    sent = RowDerivatives.of_touched(BLOCK, *touched())
    data = encode_block(codec, sent, WORDS)
    found = decode_block(codec, BLOCK, N, data)
    assert isinstance(found, RowDerivatives)
    assert np.array_equal(found.places, sent.places)
    assert np.array_equal(found.counts, sent.counts)
    near = {"fp32": 0.0, "bf16": 2.0**-8, "int8": 1 / 127}[name]
    assert np.abs(found.values - sent.values).max() <= near * np.abs(sent.values).max()
    assert len(data) == pytest.approx(1 + N * codec.size(BLOCK, len(sent.places) / N))


def test_eight_bits_are_right_on_average() -> None:
    sent = RowDerivatives.of_touched(BLOCK, *touched())
    codec, total = codec_named("int8"), np.zeros(sent.values.shape)
    for _ in range(400):
        found = decode_block(codec, BLOCK, N, encode_block(codec, sent, WORDS))
        assert isinstance(found, RowDerivatives)
        total += found.values
    # A rounding has a deviation of at most half a step, 1/254 of the row's largest: of 400, 2e-4; 6 of these.
    assert np.abs(total / 400 - sent.values).max() < 6 * np.abs(sent.values).max() / 254 / math.sqrt(400)


def spelled(places: list[int], counts: list[int]) -> bytes:
    values = np.ones((len(places), COLS), "<f4").tobytes()
    return bytes([3]) + np.array(counts, "<u2").tobytes() + bytes(places) + values


def test_what_no_sender_writes_is_refused() -> None:
    codec = codec_named("fp32")
    assert len(decode_block(codec, BLOCK, 2, spelled([1, 2, 0], [2, 1]))) == 2
    for places, counts, reason in (
        ([1, 1, 0], [2, 1], RoomRefusal.MALFORMED),  # a row twice would weigh more than it is clipped for
        ([2, 1, 0], [2, 1], RoomRefusal.MALFORMED),
        ([1, 9, 0], [2, 1], RoomRefusal.WRONG_SHAPE),
        ([1, 2, 3, 4, 5], [5, 0], RoomRefusal.WRONG_SHAPE),
        ([1, 2, 0], [2, 0], RoomRefusal.MALFORMED),
        ([1, 2], [2, 1], RoomRefusal.MALFORMED),
    ):
        with pytest.raises(RoomRefused) as refusal:
            decode_block(codec, BLOCK, 2, spelled(places, counts))
        assert refusal.value.reason in (reason, RoomRefusal.WRONG_SHAPE, RoomRefusal.MALFORMED)
    for form in (0, 1, 2, 7):
        with pytest.raises(RoomRefused):
            decode_block(codec, BLOCK, 2, bytes([form]) + spelled([1, 2, 0], [2, 1])[1:])
    draw = np.random.default_rng(8)
    good = bytearray(spelled([1, 2, 0], [2, 1]))
    for _ in range(300):
        bad = bytearray(good)
        bad[draw.integers(1, 8)] ^= 1 << int(draw.integers(0, 8))
        try:
            found = decode_block(codec, BLOCK, 2, bytes(bad))
        except RoomRefused:
            continue
        assert isinstance(found, RowDerivatives)  # whose own checks hold


@pytest.mark.parametrize("name", [name for name in CODECS if name not in SENDING])
def test_codecs_without_rows_say_so(name: str) -> None:
    sent = RowDerivatives.of_touched(BLOCK, *touched())
    with pytest.raises(RoomRefused, match=f"codec {name} does not send block fields.rows, which is by rows"):
        encode_block(codec_named(name), sent, WORDS)
    with pytest.raises(RoomRefused, match="by rows"):
        decode_block(codec_named(name), BLOCK, 2, spelled([1, 2, 0], [2, 1]))


def test_a_layout_by_rows_has_one_spelling() -> None:
    layout = ParameterLayout((ParameterBlock("a", 2, 3), BLOCK))
    assert layout.as_json() == [["a", 2, 3, 1], ["fields.rows", ROWS, COLS, FIELDS, "rows"]]
    assert ParameterLayout.from_json(layout.as_json()) == layout
    for line in (["a", 2, 3, 1, True], ["a", 2, 3, 1, "row"], ["a", 2, 3, 1, "rows", 1], ["a", 2, 3]):
        with pytest.raises(RoomRefused, match="expected each block as"):
            ParameterLayout.from_json([line])
    assert isinstance(CODECS["int8"], AdaptiveCodec)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a row twice": ({"places": [1, 1, 0]}, "each row once per example"),
    "another order": ({"places": [2, 1, 0]}, "each row once per example"),
    "a row outside": ({"places": [1, 9, 0]}, "rows of block fields.rows in 0..8"),
    "too many": ({"counts": [5, -2]}, "0..4 rows per example"),
    "another sum": ({"counts": [1, 1]}, "counts to add up to 3"),
    "another width": ({"values": np.ones((3, 2), np.float32)}, "3 wide"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_cannot_be_meant_are_refused(name: str) -> None:
    changes, said = WRONG[name]
    good: dict[str, Any] = {"places": [1, 2, 0], "values": np.ones((3, COLS), np.float32), "counts": [2, 1]}
    given = good | changes
    with pytest.raises(BadInput, match=said):
        RowDerivatives(
            BLOCK, np.array(given["places"], np.int32), given["values"], np.array(given["counts"], np.int32)
        )
