"""Factored or dense, for each block and example whichever takes fewer bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.wire.blocks import Block
from tacit.cleanroom.wire.codec.precisions import Precision
from tacit.cleanroom.wire.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.wire.framing import Reader
from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import BadInput, RoomRefused
from tacit.privacy.randomness import Words

_FACTORED, _DENSE, _MIXED = 0, 1, 2
_COUNT_BYTES = 2  # how many pairs an example of a sequence has


@dataclass(frozen=True)
class WhicheverIsSmaller:
    """A byte for the form (and a bit for each example, if both occur), counts of sequences, left, right, dense.

    `always_dense` writes every derivative out. `dense_sequences` does so for layers applied at several
    positions: their pairs would show the room what the platform's model computes at each position.
    """

    name: str
    precision: Precision
    always_dense: bool = False
    dense_sequences: bool = False

    def encode(self, derivatives: BlockDerivatives, words: Words) -> bytes:
        chosen = self._chosen(derivatives)
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

    def decode(self, block: Block, examples: int, data: bytes | memoryview) -> BlockDerivatives:
        if examples < 1:
            raise RoomRefused(Refusal.WRONG_SHAPE, "expected at least one example")
        reader = Reader(data)
        form = int(reader.take(1, "u1")[0])
        if form > _MIXED or (self.always_dense and form != _DENSE):
            raise RoomRefused(Refusal.MALFORMED, f"expected a form that codec {self.name} has")
        if self._kept_dense(block) and form != _DENSE:
            raise RoomRefused(Refusal.NOT_AGREED, f"expected block {block.name} to be dense, as a sequence")
        is_dense = _read_bitmap(reader, examples) if form == _MIXED else None
        dense_count = int(np.count_nonzero(is_dense)) if is_dense is not None else examples * (form == _DENSE)
        factors = self._read_factors(reader, block, examples - dense_count)
        dense = self.precision.read(reader, dense_count, block.parameters)
        reader.end()
        if is_dense is None:
            is_dense = np.full(examples, form == _DENSE)
        return BlockDerivatives(block, is_dense, factors, dense)

    def size(self, block: Block, pairs_an_example: float) -> float:
        factored, dense = self._pair_bytes(block), self.precision.row_bytes(block.parameters)
        if self.always_dense or self._kept_dense(block):
            return dense
        return min(pairs_an_example * factored + self._count_bytes(block), dense)

    def _chosen(self, derivatives: BlockDerivatives) -> BlockDerivatives:
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
        written = BlockDerivatives.of_factors(block, factors.chosen(smaller)).as_dense()
        if not len(derivatives.dense) and len(written) == len(derivatives):
            return BlockDerivatives.of_dense(block, written)
        is_dense = derivatives.is_dense.copy()
        is_dense[np.flatnonzero(~derivatives.is_dense)[smaller]] = True
        dense = np.empty((int(np.count_nonzero(is_dense)), block.parameters), np.float32)
        before = derivatives.is_dense[is_dense]  # of those now dense: whether they were
        dense[before], dense[~before] = derivatives.dense, written
        return BlockDerivatives(block, is_dense, factors.chosen(~smaller), dense)

    def _read_factors(self, reader: Reader, block: Block, examples: int) -> Factors:
        if not examples:
            return Factors.none(block)
        if block.positions == 1:
            pairs, counts = examples, None
        else:
            counts = reader.take(examples, "<u2").astype(np.int32)
            if counts.max() > block.positions:
                raise RoomRefused(Refusal.WRONG_SHAPE, f"expected at most {block.positions} pairs an example")
            pairs = int(counts.sum(dtype=np.int64))
        left = self.precision.read(reader, pairs, block.rows)
        right = self.precision.read(reader, pairs, block.cols)
        return Factors(left, right, np.ones(examples, np.int32) if counts is None else counts)

    def _kept_dense(self, block: Block) -> bool:
        return self.dense_sequences and block.positions > 1

    def _pair_bytes(self, block: Block) -> int:
        return self.precision.row_bytes(block.rows) + self.precision.row_bytes(block.cols)

    def _count_bytes(self, block: Block) -> int:
        return _COUNT_BYTES if block.positions > 1 else 0


def _form(derivatives: BlockDerivatives) -> int:
    if not len(derivatives.dense):
        return _FACTORED
    return _MIXED if len(derivatives.factors) else _DENSE


def _read_bitmap(reader: Reader, examples: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(reader.take(-(-examples // 8), "u1"), bitorder="little")
    is_dense = bits[:examples].astype(np.bool_)
    if bits[examples:].any() or is_dense.all() or not is_dense.any():
        raise RoomRefused(Refusal.MALFORMED, "expected a bit for each example, and both forms to occur")
    return is_dense


def _expect_counts(block: Block, factors: Factors) -> None:
    if block.positions == 1 and not factors.ones:
        raise BadInput(f"expected one pair for each example of block {block.name}, got another count")
    if factors.counts.max() > block.positions:
        raise BadInput(f"expected at most {block.positions} pairs an example in block {block.name}, got more")
