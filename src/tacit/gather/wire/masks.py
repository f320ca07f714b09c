"""The mask of a report: a seed of 32 bytes spelled out to any length, so that one party's part stays short."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.errors import BadInput
from tacit.gather.wire.encoding import sized
from tacit.gather.wire.groups import Group, Residues

SEED_BYTES = 32
_LABEL = b"tacit gather mask 1"
_COUNTER = modes.CTR(bytes(16))  # every key is used for one stream only
_ZEROS = bytes(1 << 16)


def mask(seed: bytes, binding: bytes, purpose: bytes, group: Group, length: int) -> Residues:
    """So many elements, to be told from uniform ones by nobody who lacks the seed.

    The stream is AES-256-CTR of zeros under SHA-256(label, length of purpose (1 byte), purpose, seed, binding):
    all 256 bits of the seed count, and another round, report or purpose gives an unrelated mask.
    """
    if len(purpose) > 255:
        raise BadInput(f"expected a purpose of at most 255 bytes, got {len(purpose)}")
    sized("seed", seed, SEED_BYTES)
    key = hashlib.sha256(b"%b%c%b%b%b" % (_LABEL, len(purpose), purpose, seed, binding)).digest()
    return group.uniform(length, keystream(key))


def keystream(key: bytes) -> Callable[[int], bytes]:
    """AES-256-CTR of zeros from counter 0, so many bytes at each call. A key is for one stream only."""
    update = Cipher(algorithms.AES256(key), _COUNTER).encryptor().update

    def stream(count: int) -> bytes:
        return update(_ZEROS[:count] if count <= len(_ZEROS) else bytes(count))

    return stream
