"""Random sources: `Entropy` for what is released, `Simulation` for what is not.

`KeyedEntropy` is for a release that must come out the same if it is asked for again. All of them turn
AES-256 in counter mode into bytes, words, whole numbers and normals; they differ only in their keys. Draws
are handed out as bound methods (`entropy.words`, `entropy.uniform_below`, `entropy.normal`), so that a
mechanism states what it needs and a test can enumerate it.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import DTypeLike, NDArray

from tacit.display import brief
from tacit.errors import BadInput, EntropyMisuse
from tacit.kernels.normals import KEY_BYTES, MOST_AT_ONCE, Normals, fill_normals

REKEY_AFTER = 2**32
"""Keystream bytes under one key. Over 2^28 blocks a random permutation differs from random bytes with an
advantage below 2^-72, and the 128-bit counter is nowhere near its end."""

_SMALL = 16384  # draws up to this size share a buffer, because a fresh key costs as much as 60 KB of keystream
_BUFFER = 65536
_ZEROS = bytes(131072)  # encrypted at once: they and what they become fit a second-level cache

Key = bytes  # in a class with a method of that name
Fill = Callable[[bytearray | memoryview], None]


class Keystream:
    """AES-256-CTR of zeros, from counter 0, under one key after another. Only for the process that made it."""

    def __init__(self, next_key: Callable[[], bytes], rekey_after: int = REKEY_AFTER) -> None:
        self._next_key = next_key
        self._rekey_after = rekey_after
        self._left = 0
        self._lock = threading.Lock()
        self._process = os.getpid()

    def fill(self, target: bytearray | memoryview) -> None:
        """Overwrite the target with the next bytes of the stream."""
        if os.getpid() != self._process:  # before the lock, which another thread may have held in the fork
            raise EntropyMisuse("expected a stream of this process, got one from before a fork")
        view, zeros = memoryview(target), memoryview(_ZEROS)
        with self._lock:
            while len(view):
                if self._left == 0:
                    self._cipher = Cipher(algorithms.AES256(self._next_key()), modes.CTR(bytes(16))).encryptor()
                    self._left = self._rekey_after
                count = min(len(view), self._left, len(zeros))
                self._cipher.update_into(zeros[:count], view[:count])
                self._left -= count
                view = view[count:]


def uniform_below(n: int, take: Callable[[int], bytes | bytearray]) -> int:
    """A whole number in 0..n-1, exactly uniform if the bytes that `take(count)` gives are.

    Draws as many bits as n - 1 has, and draws afresh while they spell n or more: every number has the same
    probability, and more than half of all draws are accepted.
    """
    if isinstance(n, bool) or not hasattr(n, "__index__") or int(n) < 1:
        raise BadInput(f"expected n to be a whole number >= 1, got {n!r}")
    bits = (int(n) - 1).bit_length()
    size = -(-bits // 8)
    while True:
        number = int.from_bytes(take(size), "little") >> (8 * size - bits)
        if number < n:
            return number


class _Source(ABC):
    """The draws that all kinds share, made of `_fill_for(size)`: a way to fill about `size` bytes."""

    fit_for_release: bool

    @abstractmethod
    def _fill_for(self, size: int) -> Fill: ...

    def bytes(self, n: int) -> bytes:
        """n uniform bytes."""
        return bytes(self._draw(_count("n", n)))

    def words(self, n: int) -> NDArray[np.uint64]:
        """n independent words, each uniform on 0..2^64-1."""
        return np.frombuffer(self._draw(8 * _count("n", n)), dtype="<u8").astype(np.uint64, copy=False)

    def uniform_below(self, n: int) -> int:
        """Exactly uniform on 0..n-1, for any whole n >= 1."""
        return uniform_below(n, self._draw)

    def normal(
        self,
        shape: int | Iterable[int] | None = None,
        dtype: DTypeLike = np.float32,
        out: Normals | None = None,
        scale: float = 1.0,
    ) -> Normals:
        """Independent N(0, scale^2): a new array of this shape and type, or `out`, filled.

        `scale` rounds up to the array's type, never down. These are floating-point normals, for the noise of
        training: they do not hide what the rounding of a sum gives away, and their tail ends at 11.5 scales
        (12.7 in double precision; beyond it are 1e-29 of all pairs). Counts take the exact discrete laws in
        `privacy` instead.
        """
        if out is None:
            if shape is None:
                raise BadInput("expected a shape or an array to fill, got neither")
            out = np.empty(_shape(shape), dtype=_float_type(dtype))
        elif shape is not None and _shape(shape) != out.shape:
            raise BadInput(f"expected out to have shape {_shape(shape)}, got {out.shape}")
        self._normals_into(out, scale, add=False)
        return out

    def add_normal(self, out: Normals, scale: float) -> None:
        """Add independent N(0, scale^2) to `out`, in place; the draws themselves are seen nowhere."""
        self._normals_into(out, scale, add=True)

    def _normals_into(self, out: Normals, scale: float, *, add: bool) -> None:
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise BadInput("expected out to be contiguous and writable, got another array")
        rounded = _scale_rounded_up(scale, _float_type(out.dtype))
        flat = out.reshape(-1)
        for start in range(0, flat.size, MOST_AT_ONCE):
            some = flat[start : start + MOST_AT_ONCE]
            fill_normals(some, self._key_for(some.nbytes), rounded, add=add)

    def _key_for(self, size: int) -> Key:  # noqa: ARG002 (a source may have better keys for large draws)
        return Key(self._draw(KEY_BYTES))

    def _draw(self, size: int) -> bytearray:
        drawn = bytearray(size)
        self._fill_for(size)(drawn)
        return drawn

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # what copy, deepcopy and pickle all ask for
        raise EntropyMisuse(
            f"expected to use this {type(self).__name__} in place, got a request to copy or store it: two "
            "copies would give out the same noise. A resumed run starts a fresh one"
        )


class Entropy(_Source):
    """Randomness for what is released, keyed by the operating system.

    Promised: every draw of more than 16 KB, and every refill of the 64 KB that smaller draws come from, is
    AES-256-CTR under a key of its own from `os.urandom`. Keys are dropped after use and given bytes are wiped
    from the buffer, so whoever reads this object later learns nothing about earlier draws. Threads may share
    it; no byte is given out twice. After a fork the child draws from new keys. It cannot be copied or pickled.

    Not promised: that Python, the allocator or a crash dump keep no other copy of a key or a draw; that draws
    of at most 16 KB stay fresh in a virtual machine that was cloned or restored from a snapshot, where both
    machines hold the same buffer; anything about an operating system that seeds itself badly.
    """

    fit_for_release = True

    def __init__(self) -> None:
        self._forget()
        _living.add(self)

    def __repr__(self) -> str:
        return brief(self)

    def _forget(self) -> None:
        """Start anew, in this process. The lock too: in a fork, another thread may have held the old one."""
        self._lock = threading.Lock()
        self._buffer = bytearray(_BUFFER)
        self._used = _BUFFER
        self._process = os.getpid()

    def _fill_for(self, size: int) -> Fill:
        return self._fill_from_buffer if size <= _SMALL else Keystream(_fresh_key).fill

    def _key_for(self, size: int) -> Key:
        return super()._key_for(size) if size <= _SMALL else _fresh_key()

    def _fill_from_buffer(self, target: bytearray | memoryview) -> None:
        if os.getpid() != self._process:  # a fork made by other means than Python's
            self._forget()
        with self._lock:
            if self._used + len(target) > _BUFFER:
                Keystream(_fresh_key).fill(self._buffer)
                self._used = 0
            given = slice(self._used, self._used + len(target))
            target[:] = self._buffer[given]
            self._buffer[given] = bytes(len(target))
            self._used += len(target)


class Simulation(_Source):
    """The same draws, repeatable from a seed: for simulations and tests, never for a release.

    One key stream from SHA-256 of the whole seed, so any two seeds give unrelated draws, and the same calls in
    the same order give the same ones. A forked process must start its own, from a seed of its own.
    """

    fit_for_release = False

    def __init__(self, seed: int | str) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | str):
            raise BadInput(f"expected a seed that is a whole number or a text, got {seed!r}")
        spelled = f"text {seed}" if isinstance(seed, str) else f"whole {seed:x}"
        self._seed = spelled.encode()
        self._keys_used = 0
        self._fill = Keystream(self._next_key).fill

    def __repr__(self) -> str:
        return brief(self, seed=self._seed.partition(b" ")[2].decode())

    def _next_key(self) -> bytes:
        label = b"tacit simulation, key %d, seed " % self._keys_used
        self._keys_used += 1
        return hashlib.sha256(label + self._seed).digest()

    def _fill_for(self, size: int) -> Fill:  # noqa: ARG002 (one stream, whatever the size)
        return self._fill


class KeyedEntropy(_Source):
    """Draws that a secret and a label decide: for a release that must not be drawn twice with two noises.

    Guarantee:  draws under distinct labels look like those of independent, uniform sources to whoever does not
                have the secret; so a release made with them keeps the guarantee that it has with fresh noise,
                against every adversary of bounded computing power. The same label gives the same draws, in any
                process, so a release that is repeated tells nothing new.
    Neighbours: those of the release that it is used in.
    Assumes:    `secret` is 32 uniform bytes that never leave; SHA-256 in HMAC and AES-256 are pseudorandom. The
                label holds everything that decides what is released, the private sums themselves among it:
                two sums under one label would differ by no noise at all.
    Source:     HKDF: Krawczyk 2010 (Crypto), RFC 5869.
    """

    fit_for_release = True

    def __init__(self, secret: bytes, label: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise BadInput(f"expected a secret of {KEY_BYTES} bytes, got another value")
        if not isinstance(label, bytes) or not label:
            raise BadInput("expected a label of at least one byte, got another value")
        self._secret, self._label = secret, label
        self._keys_used = 0
        self._fill = Keystream(self._next_key).fill

    def _next_key(self) -> bytes:
        info = b"tacit keyed, key %d, label " % self._keys_used + self._label
        self._keys_used += 1
        return HKDF(hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(self._secret)

    def _fill_for(self, size: int) -> Fill:  # noqa: ARG002 (one stream, whatever the size)
        return self._fill


def draw_token(size: int = 16) -> str:
    """A token that nobody can guess and nobody else draws, in hex: what holds a payment, or names a run."""
    return Entropy().bytes(size).hex()


_living: weakref.WeakSet[Entropy] = weakref.WeakSet()


def _forget_all() -> None:
    for entropy in list(_living):
        entropy._forget()


# Not left to the check at each draw: a grandchild can be given its grandparent's process number.
os.register_at_fork(after_in_child=_forget_all)


def _fresh_key() -> bytes:
    return os.urandom(KEY_BYTES)


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
        raise BadInput(f"expected {name} to be a whole number >= 0, got {value!r}")
    return int(value)


def _shape(shape: int | Iterable[int]) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, Iterable) else (shape,)
    return tuple(_count("every size in shape", size) for size in sizes)


def _float_type(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        asked = np.dtype("O" if dtype is None else dtype)  # NumPy reads None as float64; here it is no answer
    except TypeError:
        asked = np.dtype("O")
    if asked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise BadInput(f"expected dtype float32 or float64, got {dtype!r}")
    return asked


def _scale_rounded_up(scale: float, dtype: np.dtype[Any]) -> float:
    """The scale in the array's type, never below the one asked for."""
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.floating) or not math.isfinite(scale):
        raise BadInput(f"expected scale to be a finite number, got {scale!r}")
    limits = np.finfo(dtype)
    if not float(limits.tiny) <= scale <= float(limits.max) / 16:  # no normal under- or overflows
        raise BadInput(f"expected scale within what {dtype} can hold, got {scale!r}")
    rounded = dtype.type(scale)
    return float(rounded if float(rounded) >= scale else np.nextafter(rounded, dtype.type(np.inf)))
