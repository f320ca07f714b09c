"""Baseline codecs: the published compressions of dense derivatives that Li et al. (RecSys 2024) compare with.

QSGD, top-k and PowerSGD. Each example's derivative is compressed by itself; nothing is carried from one step to
the next, because the platform does not see the same example at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats32
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.encoding import Reader, RoomRefusal, expect_sendable, refuse_out_of_range
from tacit.cleanroom.protocol.layout import ParameterBlock
from tacit.cleanroom.protocol.precisions import Fp32, read_levels, read_scales, round_rows, scales_for, uniforms
from tacit.errors import RoomRefused
from tacit.privacy.randomness import WordSource

_WRITTEN_AT_ONCE = 2**20  # numbers of derivatives that are written out together


@dataclass(frozen=True)
class Qsgd:
    """QSGD (Alistarh et al., NeurIPS 2017, arXiv:1610.02132): a norm for each bucket, 127 levels, at random.

    A number x of a bucket with L2 norm N becomes one of the two levels next to 127 x / N, with the mean x. What
    is sent of N is its 127th part, rounded up. `bucket` None: one bucket for the whole derivative.
    """

    name: str
    bucket: int | None
    sends_rows: ClassVar[bool] = False

    def encode(self, derivatives: BlockDerivatives, words: WordSource) -> bytes:
        all_scales, all_levels = [], []
        for dense in _written_out(derivatives):
            scales, levels = [], []
            for start, stop, width in self._parts(derivatives.block):
                buckets = np.ascontiguousarray(dense[:, start:stop]).reshape(-1, width)
                found = scales_for(_norms(buckets))
                scales.append(found.reshape(len(dense), -1))
                levels.append(round_rows(buckets, found, words).reshape(len(dense), -1))
            all_scales.append(np.concatenate(scales, axis=1))
            all_levels.append(np.concatenate(levels, axis=1))
        return b"".join(part.astype("<f4").tobytes() for part in all_scales) + b"".join(
            part.tobytes() for part in all_levels
        )

    def decode(self, block: ParameterBlock, examples: int, data: bytes | memoryview) -> BlockDerivatives:
        _expect_size(examples, data, self._bytes(block))
        reader = Reader(data)
        scales = read_scales(reader, examples * self._buckets(block)).reshape(examples, -1)
        dense = read_levels(reader, examples, block.parameters).astype(np.float32)
        first = 0
        for start, stop, width in self._parts(block):
            count = (stop - start) // width
            # A view: only the last axis is split.
            buckets = dense[:, start:stop].reshape(examples, count, width)
            buckets *= scales[:, first : first + count, None]
            first += count
        return BlockDerivatives.of_dense(block, dense)

    def size(self, block: ParameterBlock, pairs_per_example: float) -> float:  # noqa: ARG002 (dense whatever the pairs)
        return self._bytes(block)

    def _bytes(self, block: ParameterBlock) -> int:
        return block.parameters + 4 * self._buckets(block)

    def _buckets(self, block: ParameterBlock) -> int:
        return sum((stop - start) // width for start, stop, width in self._parts(block))

    def _parts(self, block: ParameterBlock) -> list[tuple[int, int, int]]:
        """(start, stop, width of a bucket): whole buckets, then one of what is left."""
        width = min(self.bucket or block.parameters, block.parameters)
        whole = block.parameters - block.parameters % width
        rest = [(whole, block.parameters, block.parameters - whole)] if whole < block.parameters else []
        return [(0, whole, width), *rest]


@dataclass(frozen=True)
class TopShare:
    """The largest numbers, with their places; the others are dropped. Biased, since no error is fed back."""

    name: str
    share: Fraction
    sends_rows: ClassVar[bool] = False

    def encode(self, derivatives: BlockDerivatives, words: WordSource) -> bytes:  # noqa: ARG002 (nothing is drawn)
        kept = self._count_kept(derivatives.block)
        all_values, all_places = [], []
        for dense in _written_out(derivatives):
            expect_sendable("derivatives", dense)
            places = np.argpartition(np.abs(dense), dense.shape[1] - kept, axis=1)[:, dense.shape[1] - kept :]
            places.sort(axis=1)
            all_values.append(np.take_along_axis(dense, places, axis=1).astype("<f4").tobytes())
            all_places.append(places.astype("<u4").tobytes())
        return b"".join(all_values + all_places)

    def decode(self, block: ParameterBlock, examples: int, data: bytes | memoryview) -> BlockDerivatives:
        kept = self._count_kept(block)
        _expect_size(examples, data, 8 * kept)
        reader = Reader(data)
        values = reader.take(examples * kept, "<f4").reshape(examples, kept)
        places = reader.take(examples * kept, "<u4").astype(np.int64).reshape(examples, kept)
        refuse_out_of_range(values)
        if (places[:, 1:] <= places[:, :-1]).any() or places.max() >= block.parameters:
            raise RoomRefused(RoomRefusal.MALFORMED, "expected places within the block, in ascending order")
        dense = np.zeros((examples, block.parameters), np.float32)
        np.put_along_axis(dense, places, values, axis=1)
        return BlockDerivatives.of_dense(block, dense)

    def size(self, block: ParameterBlock, pairs_per_example: float) -> float:  # noqa: ARG002 (dense whatever the pairs)
        return 8 * self._count_kept(block)

    def _count_kept(self, block: ParameterBlock) -> int:
        return -(-block.parameters * self.share.numerator // self.share.denominator)


@dataclass(frozen=True)
class PowerSgd:
    """PowerSGD (Vogels et al., NeurIPS 2019, arXiv:1905.13727): one power iteration, from a random start.

    M becomes P (M^T P)^T with P an orthonormal basis of M Q. A matrix of no more than this rank is exact, up to
    rounding. It is read as factors, `rank` pairs for each example.
    """

    name: str
    rank: int
    sends_rows: ClassVar[bool] = False

    def encode(self, derivatives: BlockDerivatives, words: WordSource) -> bytes:
        block = derivatives.block
        rank = self._pairs(block)
        start = uniforms((block.cols, rank), words) - np.float32(0.5)  # (cols, rank)
        bases, rests = [], []
        for dense in _written_out(derivatives):
            expect_sendable("derivatives", dense)
            matrices = dense.reshape(-1, block.rows, block.cols)
            basis = np.linalg.qr(matrices @ start).Q  # (some, rows, rank)
            bases.append(basis.transpose(0, 2, 1).reshape(-1, block.rows))
            rests.append((basis.transpose(0, 2, 1) @ matrices).reshape(-1, block.cols))
        return b"".join(Fp32().write(np.concatenate(parts), words) for parts in (bases, rests))

    def decode(self, block: ParameterBlock, examples: int, data: bytes | memoryview) -> BlockDerivatives:
        rank = self._pairs(block)
        _expect_size(examples, data, self._bytes(block))
        reader = Reader(data)
        left = Fp32().read(reader, examples * rank, block.rows)
        right = Fp32().read(reader, examples * rank, block.cols)
        return BlockDerivatives.of_factors(block, Factors(left, right, np.full(examples, rank, np.int32)))

    def size(self, block: ParameterBlock, pairs_per_example: float) -> float:  # noqa: ARG002 (dense whatever the pairs)
        return self._bytes(block)

    def _bytes(self, block: ParameterBlock) -> int:
        return 4 * self._pairs(block) * (block.rows + block.cols)

    def _pairs(self, block: ParameterBlock) -> int:
        return min(self.rank, block.rows, block.cols)


def _written_out(derivatives: BlockDerivatives) -> Iterator[Floats32]:
    """Dense derivatives (some, rows * cols), a few examples at a time."""
    step = max(_WRITTEN_AT_ONCE // derivatives.block.parameters, 1)
    for start in range(0, len(derivatives), step):
        yield derivatives.rows(start, start + step).as_dense()


def _norms(buckets: Floats32) -> Floats32:
    """L2 norms. Rounding takes none below the largest number of its bucket, which is a float32 itself."""
    exact: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", buckets, buckets, dtype=np.float64))
    expect_sendable("norms of derivatives", exact)
    return exact.astype(np.float32)


def _expect_size(examples: int, data: bytes | memoryview, bytes_per_example: int) -> None:
    if examples < 1:
        raise RoomRefused(RoomRefusal.WRONG_SHAPE, "expected at least one example")
    if len(data) != examples * bytes_per_example:
        raise RoomRefused(
            RoomRefusal.MALFORMED, f"expected {examples * bytes_per_example} bytes, got {len(data)}"
        )
