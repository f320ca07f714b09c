"""Ids as keyed tokens: both parties hold the key of their collaboration, and no one else can make or read them.

Tokens hide ids from whoever sees only the wire or the store of counts. They do not hide them from the other
party, which has the key and can try ids: `intersection` is for parties that must not.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput

TOKEN_BYTES = 16
KEY_BYTES = 32

Ids = Sequence[str] | Sequence[bytes] | Sequence[int] | NDArray[np.integer]


def token_key(secret: bytes, name: str) -> bytes:
    """The key of one collaboration: the same shared secret gives unrelated tokens under another name."""
    if len(secret) < KEY_BYTES:
        raise BadInput(f"expected a shared secret of at least {KEY_BYTES} bytes, got {len(secret)}")
    return hmac.digest(secret, b"tacit room tokens 1 " + name.encode(), "sha256")


def tokens(ids: Ids, key: bytes) -> NDArray[np.uint8]:
    """(n, 16): HMAC-SHA256 of each id, cut to 128 bits. The same id gives the same token, wherever it is made.

    Guarantee:  without the key, tokens tell nothing but which of them are of the same id; two of n ids share
                a token with probability below n^2 / 2^129 (1e-27 for a hundred thousand million pairs).
    Neighbours: none: this is no differential privacy, and whoever holds the key can try ids.
    Assumes:    HMAC-SHA256 is a pseudorandom function; the key is 32 secret bytes.
    Source:     HMAC: Bellare 2006 (CRYPTO); FIPS 198-1; truncation: RFC 2104, section 5.
    """
    if len(key) != KEY_BYTES:
        raise BadInput(f"expected a token key of {KEY_BYTES} bytes, got {len(key)}")
    made = b"".join([hmac.digest(key, each, "sha256")[:TOKEN_BYTES] for each in spelled(ids)])
    return np.frombuffer(made, np.uint8).reshape(-1, TOKEN_BYTES).copy()


def spelled(ids: Ids) -> list[bytes]:
    """One spelling of each id: texts as their UTF-8 bytes, whole numbers as nine bytes, and never alike."""
    if isinstance(ids, str | bytes):
        raise BadInput("expected a list of ids, got a single text")
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        return _spelled_array(ids)
    return [_spelled(each) for each in ids]


def _spelled_array(ids: NDArray[np.integer]) -> list[bytes]:
    if ids.ndim != 1:
        raise BadInput(f"expected a flat list of ids, got shape {ids.shape}")
    wide = ids.astype(np.uint64 if ids.dtype.kind == "u" else np.int64)
    rows = np.empty((len(wide), 10), np.uint8)  # "w", the sign (0 or 255), eight bytes of two's complement
    rows[:, 0] = ord("w")
    rows[:, 1] = np.where(wide < 0, 255, 0)
    rows[:, 2:] = wide.astype(wide.dtype.newbyteorder(">")).view(np.uint8).reshape(-1, 8)
    flat = rows.tobytes()
    return [flat[start : start + 10] for start in range(0, len(flat), 10)]


def _spelled(each: object) -> bytes:
    if isinstance(each, bytes):
        return b"t" + each
    if isinstance(each, str):
        return b"t" + each.encode()
    if isinstance(each, bool) or not isinstance(each, int | np.integer):
        raise BadInput("expected ids as texts, bytes or whole numbers, got another kind")
    if not -(2**63) <= int(each) < 2**64:
        raise BadInput("expected whole ids of 64 bits, got a larger one")
    return b"w" + int(each).to_bytes(9, "big", signed=True)
