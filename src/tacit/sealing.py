"""HPKE seals to one party's public key (RFC 9180): base mode with X25519, HKDF-SHA256 and AES-128-GCM.

Whoever seals and whoever opens name the same `info`, such as the round or the menu that it is about: a seal
opens for no other.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tacit.errors import BadInput

KEY_BYTES = 32
SEAL_OVERHEAD = 48  # an ephemeral public key (32) and an authentication tag (16)
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def seal(plain: bytes, public: bytes, info: bytes) -> bytes:
    """`SEAL_OVERHEAD` bytes longer than `plain`, and different every time."""
    try:
        return _SUITE.encrypt(plain, _parse_public_key(public), info)
    except ValueError:
        raise BadInput("expected a public key of X25519, got one of small order") from None


def open_seal(sealed: bytes, private: X25519PrivateKey, info: bytes) -> bytes | None:
    """What was sealed; None with another key or info, or after any change."""
    try:
        return _SUITE.decrypt(sealed, private, info)
    except (InvalidTag, ValueError):  # the second where a release of the package tells them apart
        return None


@lru_cache(maxsize=64)
def _parse_public_key(public: bytes) -> X25519PublicKey:
    if type(public) is not bytes or len(public) != KEY_BYTES:
        got = len(public) if isinstance(public, bytes | bytearray | memoryview) else type(public).__name__
        raise BadInput(f"expected a public key to be {KEY_BYTES} bytes, got {got}")
    return X25519PublicKey.from_public_bytes(public)
