"""Addition modulo M, and the pseudo-random masks that hide counts in it.

A uniform mask hides a whole number modulo M wholly. No prime is needed for that; the field is there for
proofs about counts. A mask is a seed of 32 bytes expanded to any length, so that one party's part of a report
stays short.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.protocol.encoding import expect_bytes, refuse_malformed

Residues = NDArray[Any]  # uint32 for RING32, uint64 for the others; each below the modulus

FIELD_PRIME = 2**64 - 2**32 + 1
_P = np.uint64(FIELD_PRIME)
_WRAP = np.uint64(2**32 - 1)  # 2^64 modulo p
_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)


class Group(expect.Choice):
    """Addition modulo 2^32, 2^64, or the prime 2^64 - 2^32 + 1."""

    RING32 = "ring32"
    RING64 = "ring64"
    FIELD64 = "field64"

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return 4 if self is Group.RING32 else 8

    @property
    def modulus(self) -> int:
        return FIELD_PRIME if self is Group.FIELD64 else 1 << 8 * self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint32 if self is Group.RING32 else np.uint64)

    def residues(self, values: NDArray[np.int64]) -> Residues:
        """Each value modulo M."""
        if values.dtype != np.int64:
            raise BadInput(f"expected values of type int64, got {values.dtype}")
        wrapped = values.view(np.uint64) if values.flags.c_contiguous else values.astype(np.uint64)
        if self is Group.FIELD64:
            return np.where(values < 0, wrapped + _P, wrapped)
        return wrapped.astype(self.dtype)

    def lift(self, residues: Residues) -> NDArray[np.int64]:
        """The whole number nearest to zero of each class: within M/2 of it."""
        if self is Group.RING32:
            return residues.view(np.int32).astype(np.int64)
        if self is Group.FIELD64:
            residues = np.where(residues > np.uint64(FIELD_PRIME // 2), residues - _P, residues)
        return residues.astype(np.int64)

    def add(self, a: Residues, b: Residues) -> Residues:
        """a + b; shapes broadcast."""
        total = a + b
        if self is not Group.FIELD64:
            return total
        total += np.where(total < a, _WRAP, np.uint64(0))  # what 2^64 dropped
        return np.where(total >= _P, total - _P, total)

    def subtract(self, a: Residues, b: Residues) -> Residues:
        """a - b; shapes broadcast."""
        difference = a - b
        if self is Group.FIELD64:
            difference -= np.where(a < b, _WRAP, np.uint64(0))
        return difference

    def total(self, shares: Residues) -> Residues:
        """(reports, cells) -> (cells,): the sum of all rows, of which there may be up to 2^32."""
        if self is not Group.FIELD64:
            return np.asarray(shares.sum(axis=0, dtype=self.dtype))
        # Sums of 2^32 halves are at most 2^64 - 2^32, below p. Modulo p, 2^64 is 2^32 - 1, so the two terms of
        # `high` are below p as well.
        low = (shares & _LOW).sum(axis=0, dtype=np.uint64)
        high = (shares >> _HALF).sum(axis=0, dtype=np.uint64)
        return self.add(self.add((high >> _HALF) * _WRAP, (high & _LOW) << _HALF), low)

    def to_bytes(self, residues: Residues) -> bytes:
        """Little-endian, one element after another."""
        return residues.astype(self._wire, copy=False).tobytes()

    def from_bytes(self, data: bytes, length: int) -> Residues:
        """The elements that `to_bytes` wrote; Refused(MALFORMED) on another size or an element beyond M."""
        if len(data) != length * self.width:
            refuse_malformed(f"expected {length} elements of {self}, got {len(data)} bytes")
        residues = np.frombuffer(data, self._wire).astype(self.dtype, copy=False)
        if self is Group.FIELD64 and (residues >= _P).any():
            refuse_malformed(f"expected elements of {self} below its modulus")
        return residues

    def uniform(self, length: int, stream: Callable[[int], bytes]) -> Residues:
        """`length` uniform elements from a stream of uniform bytes: its words in order, but none beyond M."""
        words = np.frombuffer(stream(length * self.width), self._wire).astype(self.dtype, copy=False)
        if self is not Group.FIELD64:
            return words
        while (refused := words >= _P).any() or len(words) < length:
            words = words[~refused]
            more = np.frombuffer(stream(8 * (length - len(words))), self._wire).astype(self.dtype, copy=False)
            words = np.concatenate((words, more))
        return words

    @property
    def _wire(self) -> str:
        return "<u4" if self is Group.RING32 else "<u8"


SEED_BYTES = 32
_LABEL = b"tacit gather mask 1"
_COUNTER = modes.CTR(bytes(16))  # every key is used for one stream only
_ZEROS = bytes(1 << 16)


def mask(seed: bytes, binding: bytes, purpose: bytes, group: Group, length: int) -> Residues:
    """`length` elements, to be told from uniform ones by nobody who lacks the seed.

    The stream is AES-256-CTR of zeros under SHA-256(label, length of purpose (1 byte), purpose, seed, binding):
    all 256 bits of the seed count, and another round, report or purpose gives an unrelated mask.
    """
    if len(purpose) > 255:
        raise BadInput(f"expected a purpose of at most 255 bytes, got {len(purpose)}")
    expect_bytes("seed", seed, SEED_BYTES)
    key = hashlib.sha256(b"%b%c%b%b%b" % (_LABEL, len(purpose), purpose, seed, binding)).digest()
    return group.uniform(length, keystream(key))


def keystream(key: bytes) -> Callable[[int], bytes]:
    """AES-256-CTR of zeros from counter 0, `count` bytes at each call. A key is for one stream only."""
    update = Cipher(algorithms.AES256(key), _COUNTER).encryptor().update

    def stream(count: int) -> bytes:
        return update(_ZEROS[:count] if count <= len(_ZEROS) else bytes(count))

    return stream
