"""HPKE (RFC 9180) by hand, from X25519, HMAC and AES-GCM: base mode, with an ephemeral key that is given.

A second implementation to hold `tacit.sealing` to, and the way to seals that are the same every time.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEM, KDF, AEAD = b"\x00\x20", b"\x00\x01", b"\x00\x01"  # X25519 with HKDF-SHA256; HKDF-SHA256; AES-128-GCM


def sealed_by_hand(plain: bytes, public: bytes, info: bytes, ephemeral: bytes) -> bytes:
    """What `tacit.sealing.seal` would give with this ephemeral private key."""
    own = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = own.public_key().public_bytes_raw()
    shared = own.exchange(X25519PublicKey.from_public_bytes(public))
    kem = b"KEM" + KEM
    secret = _expand(_extract(b"", kem, b"eae_prk", shared), kem, b"shared_secret", enc + public, 32)
    suite = b"HPKE" + KEM + KDF + AEAD
    context = b"\x00" + _extract(b"", suite, b"psk_id_hash", b"") + _extract(b"", suite, b"info_hash", info)
    scheduled = _extract(secret, suite, b"secret", b"")
    key = _expand(scheduled, suite, b"key", context, 16)
    nonce = _expand(scheduled, suite, b"base_nonce", context, 12)
    return enc + AESGCM(key).encrypt(nonce, plain, b"")


def _extract(salt: bytes, suite: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.new(salt or bytes(32), b"HPKE-v1" + suite + label + material, hashlib.sha256).digest()


def _expand(key: bytes, suite: bytes, label: bytes, info: bytes, size: int) -> bytes:
    labelled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.new(key, labelled + b"\x01", hashlib.sha256).digest()[:size]  # one block is enough
