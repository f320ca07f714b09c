"""Codecs: derivatives of one block as bytes and back, by the names that an agreement lists.

The usual codecs (fp32, bf16, int8) send each example as factors or dense, whichever takes fewer bytes, and
rows of embeddings as their numbers and values; the
-dense ones always write derivatives out. Baselines for comparison are in `baseline_codecs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol.baseline_codecs import PowerSgd, Qsgd, TopShare
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.encoding import Reader, RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock
from tacit.cleanroom.protocol.precisions import Bf16, Fp32, Int8, Precision
from tacit.cleanroom.protocol.row_derivatives import ExampleDerivatives, RowDerivatives, rises
from tacit.errors import BadInput, RoomRefused
from tacit.privacy.randomness import WordSource


class Codec(Protocol):
    """Bytes are a function of the derivatives and the words alone, so a repeated step sends the same bytes."""

    @property
    def name(self) -> str: ...

    @property
    def sends_rows(self) -> bool:
        """Whether it has a form for blocks that are sent by rows."""

    def encode(self, derivatives: BlockDerivatives, words: WordSource) -> bytes: ...

    def decode(self, block: ParameterBlock, examples: int, data: bytes | memoryview) -> BlockDerivatives:
        """What was encoded. Anything else is `RoomRefused`; memory stays within a few times the data's size."""

    def size(self, block: ParameterBlock, pairs_per_example: float) -> float:
        """Bytes per example with this number of pairs, up to a header that does not grow with the examples.

        Where examples differ in their pairs, average this over them: a form is chosen for each.
        """


_FACTORED, _DENSE, _MIXED, _ROWS = 0, 1, 2, 3
_COUNT_BYTES = 2  # how many pairs an example of a sequence has


@dataclass(frozen=True)
class AdaptiveCodec:
    """A byte for the form (and a bit for each example, if both occur), counts of sequences, left, right, dense.

    `always_dense` writes every derivative out. `dense_sequences` does so for layers applied at several
    positions: their pairs would show the room what the platform's model computes at each position.
    """

    name: str
    precision: Precision
    always_dense: bool = False
    dense_sequences: bool = False

    @property
    def sends_rows(self) -> bool:
        return not self.always_dense

    def encode_rows(self, derivatives: RowDerivatives, words: WordSource) -> bytes:
        """A byte for the form, how many rows each example touches, their numbers, and their values."""
        _expect_rows_sent(self, derivatives.block)
        return b"".join(
            (
                bytes([_ROWS]),
                derivatives.counts.astype("<u2").tobytes(),
                derivatives.places.astype(_place_type(derivatives.block)).tobytes(),
                self.precision.write(derivatives.values, words),
            )
        )

    def decode_rows(self, block: ParameterBlock, examples: int, data: bytes | memoryview) -> RowDerivatives:
        """What `encode_rows` wrote. A row that comes twice in an example is refused, as is another order."""
        if examples < 1:
            raise RoomRefused(RoomRefusal.WRONG_SHAPE, "expected at least one example")
        _expect_rows_sent(self, block)
        reader = Reader(data)
        if int(reader.take(1, "u1")[0]) != _ROWS:
            raise RoomRefused(RoomRefusal.MALFORMED, f"expected block {block.name} by rows")
        counts = reader.take(examples, "<u2").astype(np.int32)
        if counts.max() > block.positions:
            raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected at most {block.positions} rows per example")
        places = reader.take(int(counts.sum(dtype=np.int64)), _place_type(block)).astype(np.int64)
        if len(places) and places.max() >= block.rows:
            raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected rows in 0..{block.rows - 1}")
        if not rises(places, counts):
            raise RoomRefused(RoomRefusal.MALFORMED, "expected each row once per example, in rising order")
        values = self.precision.read(reader, len(places), block.cols)
        reader.end()
        return RowDerivatives(block, places.astype(np.int32), values, counts)

    def encode(self, derivatives: BlockDerivatives, words: WordSource) -> bytes:
        chosen = self._choose_form(derivatives)
        block, factors, precision = chosen.block, chosen.factors, self.precision
        parts = [bytes([_form(chosen)])]
        if len(factors) and len(chosen.dense):
            parts.append(np.packbits(chosen.is_dense, bitorder="little").tobytes())
        if len(factors):
            if block.positions > 1:
                parts.append(factors.counts.astype("<u2").tobytes())
            parts += (precision.write(factors.left, words), precision.write(factors.right, words))
        if len(chosen.dense):
            parts.append(precision.write(chosen.dense, words))
        return b"".join(parts)

    def decode(self, block: ParameterBlock, examples: int, data: bytes | memoryview) -> BlockDerivatives:
        if examples < 1:
            raise RoomRefused(RoomRefusal.WRONG_SHAPE, "expected at least one example")
        reader = Reader(data)
        form = int(reader.take(1, "u1")[0])
        if form > _MIXED or (self.always_dense and form != _DENSE):
            raise RoomRefused(RoomRefusal.MALFORMED, f"expected a form that codec {self.name} has")
        if self._kept_dense(block) and form != _DENSE:
            raise RoomRefused(RoomRefusal.NOT_AGREED, f"expected block {block.name} to be dense, as a sequence")
        is_dense = _read_bitmap(reader, examples) if form == _MIXED else None
        dense_count = int(np.count_nonzero(is_dense)) if is_dense is not None else examples * (form == _DENSE)
        factors = self._read_factors(reader, block, examples - dense_count)
        dense = self.precision.read(reader, dense_count, block.parameters)
        reader.end()
        if is_dense is None:
            is_dense = np.full(examples, form == _DENSE)
        return BlockDerivatives(block, is_dense, factors, dense)

    def size(self, block: ParameterBlock, pairs_per_example: float) -> float:
        if block.by_rows:
            a_row = self.precision.row_bytes(block.cols) + np.dtype(_place_type(block)).itemsize
            return pairs_per_example * a_row + _COUNT_BYTES
        factored, dense = self._pair_bytes(block), self.precision.row_bytes(block.parameters)
        if self.always_dense or self._kept_dense(block):
            return dense
        return min(pairs_per_example * factored + self._count_bytes(block), dense)

    def _choose_form(self, derivatives: BlockDerivatives) -> BlockDerivatives:
        """The same derivatives, with those written out that are smaller so."""
        block, factors = derivatives.block, derivatives.factors
        if not len(factors):
            return derivatives
        _expect_counts(block, factors)
        if self.always_dense or self._kept_dense(block):
            smaller = np.ones(len(factors), np.bool_)
        else:
            taken = factors.counts.astype(np.int64) * self._pair_bytes(block) + self._count_bytes(block)
            smaller = taken > self.precision.row_bytes(block.parameters)
        if not smaller.any():
            return derivatives
        written = BlockDerivatives.of_factors(block, factors.select(smaller)).as_dense()
        if not len(derivatives.dense) and len(written) == len(derivatives):
            return BlockDerivatives.of_dense(block, written)
        is_dense = derivatives.is_dense.copy()
        is_dense[np.flatnonzero(~derivatives.is_dense)[smaller]] = True
        dense = np.empty((int(np.count_nonzero(is_dense)), block.parameters), np.float32)
        before = derivatives.is_dense[is_dense]  # of those now dense: whether they were
        dense[before], dense[~before] = derivatives.dense, written
        return BlockDerivatives(block, is_dense, factors.select(~smaller), dense)

    def _read_factors(self, reader: Reader, block: ParameterBlock, examples: int) -> Factors:
        if not examples:
            return Factors.none(block)
        if block.positions == 1:
            pairs, counts = examples, None
        else:
            counts = reader.take(examples, "<u2").astype(np.int32)
            if counts.max() > block.positions:
                raise RoomRefused(
                    RoomRefusal.WRONG_SHAPE, f"expected at most {block.positions} pairs per example"
                )
            pairs = int(counts.sum(dtype=np.int64))
        left = self.precision.read(reader, pairs, block.rows)
        right = self.precision.read(reader, pairs, block.cols)
        return Factors(left, right, np.ones(examples, np.int32) if counts is None else counts)

    def _kept_dense(self, block: ParameterBlock) -> bool:
        return self.dense_sequences and block.positions > 1

    def _pair_bytes(self, block: ParameterBlock) -> int:
        return self.precision.row_bytes(block.rows) + self.precision.row_bytes(block.cols)

    def _count_bytes(self, block: ParameterBlock) -> int:
        return _COUNT_BYTES if block.positions > 1 else 0


def encode_block(codec: Codec, derivatives: ExampleDerivatives, words: WordSource) -> bytes:
    """A block's derivatives in the form that it has: by rows, or as factors and dense."""
    if isinstance(derivatives, BlockDerivatives):
        return codec.encode(derivatives, words)
    _expect_rows_sent(codec, derivatives.block)
    assert isinstance(codec, AdaptiveCodec), "the others do not send rows"
    return codec.encode_rows(derivatives, words)


def decode_block(
    codec: Codec, block: ParameterBlock, examples: int, data: bytes | memoryview
) -> ExampleDerivatives:
    """What `encode_block` wrote."""
    if not block.by_rows:
        return codec.decode(block, examples, data)
    _expect_rows_sent(codec, block)
    assert isinstance(codec, AdaptiveCodec), "the others do not send rows"
    return codec.decode_rows(block, examples, data)


def _expect_rows_sent(codec: Codec, block: ParameterBlock) -> None:
    if not codec.sends_rows:
        raise RoomRefused(
            RoomRefusal.NOT_AGREED, f"codec {codec.name} does not send block {block.name}, which is by rows"
        )


def _place_type(block: ParameterBlock) -> str:
    """The shortest whole numbers that name all rows."""
    return "<u1" if block.rows <= 2**8 else "<u2" if block.rows <= 2**16 else "<u4"


def _form(derivatives: BlockDerivatives) -> int:
    if not len(derivatives.dense):
        return _FACTORED
    return _MIXED if len(derivatives.factors) else _DENSE


def _read_bitmap(reader: Reader, examples: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(reader.take(-(-examples // 8), "u1"), bitorder="little")
    is_dense = bits[:examples].astype(np.bool_)
    if bits[examples:].any() or is_dense.all() or not is_dense.any():
        raise RoomRefused(RoomRefusal.MALFORMED, "expected a bit for each example, and both forms to occur")
    return is_dense


def _expect_counts(block: ParameterBlock, factors: Factors) -> None:
    if block.positions == 1 and not factors.ones:
        raise BadInput(f"expected one pair for each example of block {block.name}, got another count")
    if factors.counts.max() > block.positions:
        raise BadInput(f"expected at most {block.positions} pairs per example in block {block.name}, got more")


_ALL: tuple[Codec, ...] = (
    AdaptiveCodec("fp32", Fp32()),
    AdaptiveCodec("bf16", Bf16()),
    AdaptiveCodec("int8", Int8()),
    AdaptiveCodec("fp32-dense", Fp32(), always_dense=True),
    AdaptiveCodec("bf16-dense", Bf16(), always_dense=True),
    AdaptiveCodec("int8-dense", Int8(), always_dense=True),
    Qsgd("qsgd-8", bucket=512),
    Qsgd("qsgd-8-whole", bucket=None),
    TopShare("top-10", Fraction(1, 10)),
    PowerSgd("powersgd-1", 1),
    PowerSgd("powersgd-2", 2),
)

CODECS: dict[str, Codec] = {codec.name: codec for codec in _ALL}


def codec_named(name: str, *, dense_sequences: bool = False) -> Codec:
    """The codec of this name. With `dense_sequences` it neither writes nor reads the pairs of a sequence."""
    codec = CODECS.get(name)
    if codec is None:
        raise RoomRefused(RoomRefusal.NOT_AGREED, f"expected codec to be one of {', '.join(CODECS)}")
    if isinstance(codec, AdaptiveCodec):
        return replace(codec, dense_sequences=dense_sequences)
    return codec
