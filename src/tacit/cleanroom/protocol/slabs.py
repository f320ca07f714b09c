"""Slabs: messages of about four megabytes that carry the examples of one request.

A slab is: magic, version, kind, first example, number of examples, then sections, each behind its length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol.codecs import Codec, decode_block, encode_block
from tacit.cleanroom.protocol.encoding import (
    MOST_MESSAGE_BYTES,
    Reader,
    RoomRefusal,
    expect_sendable,
    join_sections,
    refuse_out_of_range,
)
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.requests import StatisticRequest
from tacit.cleanroom.protocol.row_derivatives import Derivatives
from tacit.errors import BadInput, RoomRefused
from tacit.privacy.randomness import WordSource

SLAB_BYTES = 4 * 2**20  # aimed at: in slabs of a megabyte, small calls take as long as the numbers do
_HEADER = struct.Struct("<4sBBHQI")  # magic, version, kind, nothing, first example, examples
HEADER_BYTES = _HEADER.size
LOGIT_BYTES = 4
_MAGIC, _VERSION = b"tcrm", 1
_STEP, _STATISTIC, _TOKENS = 1, 2, 3


@dataclass(frozen=True, eq=False)
class Slab:
    """Some examples of a step."""

    first: int
    tokens: NDArray[np.uint8]  # (n, width)
    logits: NDArray[np.float32]  # (n,)
    blocks: Derivatives

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def most_products(self) -> int:
        """How many products an entry of a block's sum is made of, in the block that has most."""
        return max(each.products for each in self.blocks.values())

    @property
    def several(self) -> bool:
        """Whether an example may have more than one pair. Some codecs make more than its block announces."""
        return not all(each.single for each in self.blocks.values())


@dataclass(frozen=True, eq=False)
class StatisticSlab:
    """Some examples of a statistic: the cells that each falls into, and its features."""

    first: int
    tokens: NDArray[np.uint8]  # (n, width)
    cells: NDArray[np.int32]  # (n, indices), distinct in each row
    features: NDArray[np.float32]  # (n, features)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, eq=False)
class TokenSlab:
    """Some examples whose flipped labels are asked for."""

    first: int
    tokens: NDArray[np.uint8]  # (n, width)

    def __len__(self) -> int:
        return len(self.tokens)


def examples_per_slab(
    layout: ParameterLayout,
    codec: Codec,
    mean_pairs: Mapping[str, float] | float = 1.0,
    *,
    token_bytes: int = 16,
) -> int:
    """How many examples make about four megabytes; `mean_pairs` of sequences, by block or for all alike."""
    taken = float(token_bytes + LOGIT_BYTES)
    for block in layout.blocks:
        pairs = mean_pairs if isinstance(mean_pairs, float | int) else mean_pairs.get(block.name, 1.0)
        taken += codec.size(block, pairs if block.positions > 1 else 1.0)
    return max(int(SLAB_BYTES / taken), 1)


def encode_slab(slab: Slab, layout: ParameterLayout, codec: Codec, words: WordSource) -> bytes:
    if slab.blocks.keys() != {block.name for block in layout.blocks}:
        raise BadInput("expected derivatives in every block of the layout, got other names")
    expect_sendable("logits", slab.logits)
    parts = [slab.tokens.tobytes(), slab.logits.astype("<f4", copy=False).tobytes()]
    for block in layout.blocks:
        derivatives = slab.blocks[block.name]
        if derivatives.block != block or len(derivatives) != len(slab):
            raise BadInput(f"expected {len(slab)} derivatives of block {block.name}, got others")
        parts.append(encode_block(codec, derivatives, words))
    return _encode_slab(_STEP, slab.first, slab.tokens, parts, slab.logits)


def decode_slab(data: bytes | memoryview, layout: ParameterLayout, codec: Codec, token_bytes: int) -> Slab:
    reader, first, examples = _open_slab(data, _STEP)
    tokens = _read_tokens(reader, examples, token_bytes)
    logits = _section(reader, examples, "<f4").astype(np.float32)
    refuse_out_of_range(logits)
    blocks = {
        block.name: decode_block(codec, block, examples, reader.take_section()) for block in layout.blocks
    }
    reader.end()
    return Slab(first, tokens, logits, blocks)


def encode_statistic_slab(slab: StatisticSlab) -> bytes:
    expect_sendable("features", slab.features)
    cells = slab.cells.astype("<i4", copy=False).tobytes()
    features = slab.features.astype("<f4", copy=False).tobytes()
    parts = [slab.tokens.tobytes(), cells, features]
    return _encode_slab(_STATISTIC, slab.first, slab.tokens, parts, slab.cells, slab.features)


def decode_statistic_slab(
    data: bytes | memoryview, request: StatisticRequest, token_bytes: int
) -> StatisticSlab:
    """Cells are distinct in each row: one cell twice would weigh more than a release is noised for."""
    reader, first, examples = _open_slab(data, _STATISTIC)
    tokens = _read_tokens(reader, examples, token_bytes)
    cells = _section(reader, examples * request.indices, "<i4").astype(np.int32).reshape(examples, -1)
    features = _section(reader, examples * request.features, "<f4").astype(np.float32).reshape(examples, -1)
    reader.end()
    refuse_out_of_range(features)
    if cells.size and not (cells.min() >= 0 and cells.max() < request.cells):
        raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected cells in 0..{request.cells - 1}")
    ordered = np.sort(cells, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise RoomRefused(RoomRefusal.MALFORMED, "expected the cells of a row to be distinct")
    return StatisticSlab(first, tokens, cells, features)


def encode_token_slab(slab: TokenSlab) -> bytes:
    return _encode_slab(_TOKENS, slab.first, slab.tokens, [slab.tokens.tobytes()])


def decode_token_slab(data: bytes | memoryview, token_bytes: int) -> TokenSlab:
    reader, first, examples = _open_slab(data, _TOKENS)
    tokens = _read_tokens(reader, examples, token_bytes)
    reader.end()
    return TokenSlab(first, tokens)


def _encode_slab(
    kind: int, first: int, tokens: NDArray[np.uint8], parts: list[bytes], *aligned: NDArray[np.generic]
) -> bytes:
    examples = len(tokens)
    if tokens.dtype != np.uint8 or tokens.ndim != 2 or not examples:
        raise BadInput("expected tokens as uint8 of shape (n, width) with n >= 1, got another array")
    if any(len(array) != examples for array in aligned):
        raise BadInput(f"expected {examples} rows beside {examples} tokens, got another number")
    data = join_sections(_HEADER.pack(_MAGIC, _VERSION, kind, 0, first, examples), parts)
    if len(data) > MOST_MESSAGE_BYTES:
        raise BadInput(
            f"expected a slab of at most {MOST_MESSAGE_BYTES} bytes, got {len(data)}: send fewer examples"
        )
    return data


def _open_slab(data: bytes | memoryview, kind: int) -> tuple[Reader, int, int]:
    """What follows the header, the first example, and how many there are."""
    if len(data) > MOST_MESSAGE_BYTES:
        raise RoomRefused(
            RoomRefusal.OVERSIZED, f"expected at most {MOST_MESSAGE_BYTES} bytes, got {len(data)}"
        )
    reader = Reader(data)
    head = reader.take(HEADER_BYTES, "u1").tobytes()
    magic, version, found, nothing, first, examples = _HEADER.unpack(head)
    if (magic, version, found, nothing) != (_MAGIC, _VERSION, kind, 0):
        raise RoomRefused(RoomRefusal.MALFORMED, f"expected a slab of kind {kind}, version {_VERSION}")
    if examples < 1:
        raise RoomRefused(RoomRefusal.WRONG_SHAPE, "expected at least one example")
    return reader, first, examples


def _read_tokens(reader: Reader, examples: int, token_bytes: int) -> NDArray[np.uint8]:
    tokens = _section(reader, examples * token_bytes, "u1").astype(np.uint8)
    return tokens.reshape(examples, token_bytes)


def _section(reader: Reader, count: int, dtype: str) -> NDArray[np.generic]:
    """The next section, which has exactly `count` numbers."""
    data = reader.take_section()
    if len(data) != count * np.dtype(dtype).itemsize:
        raise RoomRefused(
            RoomRefusal.WRONG_SHAPE, f"expected a section of {count} numbers, got {len(data)} bytes"
        )
    return np.frombuffer(data, dtype)
