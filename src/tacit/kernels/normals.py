"""Normal draws from a key; compiled or not, the same ones for the same key.

The compiled kernel makes its own keystream where the machine has the instructions. Elsewhere it, or its NumPy
twin, is handed OpenSSL's.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.errors import BadInput, SelfCheckFailed
from tacit.kernels.backend import load_kernel

Normals = NDArray[np.float32] | NDArray[np.float64]

KEY_BYTES = 32
MOST_AT_ONCE = 2**28
"""Normals under one key: at most 2^28 blocks of keystream, over which a random permutation differs from random
bytes with an advantage below 2^-72."""

CHUNK = 512  # pairs whose words lie together in the keystream: all their radii, then all their angles
BLOCK = 32 * CHUNK  # normals from one piece of OpenSSL's keystream, so that both fit a second-level cache
_ZEROS = memoryview(bytes(BLOCK * 8))
FURTHER_FROM = 2**64  # the block of the keystream that refines pair 0; block k of it is for pair k

_FILLS: dict[np.dtype[Any], str] = {np.dtype(np.float32): "fill_float32", np.dtype(np.float64): "fill_float64"}


def fill_normals(out: Normals, key: bytes, scale: float, *, add: bool = False) -> None:
    """Fill a flat, contiguous array with scale * N(0, 1), made of this key's keystream and nothing else.

    Or `add` them to what is there, which saves a large array half of its ways through memory.

    A pair is a radius sqrt(-2 ln u) and a uniform angle. The u of a float32 has 31 bits, that of a float64 52,
    and 64 more where u is below 2^-24, so that the tail ends at 11.5 scales. No key may ever serve twice.
    """
    if out.dtype not in _FILLS:
        raise BadInput(f"expected an array of float32 or float64, got {out.dtype}")
    if out.ndim != 1 or not out.flags.c_contiguous or not out.flags.writeable:
        raise BadInput("expected a flat, contiguous, writable array to fill, got another")
    if len(key) != KEY_BYTES:
        raise BadInput(f"expected a key of {KEY_BYTES} bytes, got {len(key)}")
    if out.size > MOST_AT_ONCE:
        raise BadInput(f"expected at most {MOST_AT_ONCE} normals under one key, got {out.size}")
    if _makes_its_keystream():
        getattr(load_kernel("_normals"), f"{_FILLS[out.dtype]}_by_key")(out, key, scale, add=add)
    else:
        fill_from_library(out, key, scale, add=add)


def fill_from_library(out: Normals, key: bytes, scale: float, *, add: bool = False) -> None:
    """The same, with OpenSSL's keystream."""
    fill = getattr(load_kernel("_normals"), _FILLS[out.dtype])
    counting = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    drawn, keystream = np.empty(BLOCK, out.dtype), bytearray(len(_ZEROS))
    for start in range(0, out.size, BLOCK):
        block = out[start : start + BLOCK]
        size = -(-block.size // (2 * CHUNK)) * 2 * CHUNK * out.dtype.itemsize
        counting.update_into(_ZEROS[:size], keystream)
        target = drawn[: block.size] if add else block
        further = partial(_further_word, key, start // 2)
        fill(target, np.frombuffer(keystream, np.uint8, size), further, scale)
        if add:
            block += target


def _further_word(key: bytes, first: int, pair: int) -> int:
    """The 64 bits that refine a pair, counted from the block's first; whatever else was drawn."""
    counter = (FURTHER_FROM + first + pair).to_bytes(16, "big")
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
    return int.from_bytes(encryptor.update(bytes(8)), "little")


@cache
def _makes_its_keystream() -> bool:
    """Whether the kernel has a keystream of its own here. It is held to OpenSSL's once, before it is used."""
    kernel = load_kernel("_normals")
    if not getattr(kernel, "has_keystream", bool)():
        return False
    for dtype in _FILLS:
        made: Normals = np.empty(3 * CHUNK, dtype)
        expected = made.copy()
        for first in (0, 77):
            key = bytes(range(first, first + KEY_BYTES))
            getattr(kernel, f"{_FILLS[dtype]}_by_key")(made, key, 1.0)
            fill_from_library(expected, key, 1.0)
            if not np.allclose(made, expected, rtol=0, atol=1e-5):
                raise SelfCheckFailed("normals: expected a keystream of AES-256, got another; nothing is drawn")
    return True
