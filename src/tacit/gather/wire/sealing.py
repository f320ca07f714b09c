"""Sealed to one party: only the holder of its key opens it, and only for the same party, round and report.

HPKE (RFC 9180) in base mode with X25519, HKDF-SHA256 and AES-128-GCM.
What the seal is bound to goes into `info`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit import expect
from tacit.errors import BadInput, Refused
from tacit.gather.wire.encoding import sized
from tacit.gather.wire.refusals import Refusal

KEY_BYTES = 32
SEAL_OVERHEAD = 48  # an ephemeral public key (32) and an authentication tag (16)
_LABEL = b"tacit gather seal 1"
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class Role(expect.Choice):
    """The two parties that a report is split between."""

    PROXY = "proxy"
    SERVER = "server"


_LABELS = {role: b"%b %b " % (_LABEL, role.encode()) for role in Role}


class SealingKey:
    """A party's private key. It is read once; printing it shows its public half."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """A new key, from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, private: bytes) -> Self:
        return cls(X25519PrivateKey.from_private_bytes(sized("a private key", private, KEY_BYTES)))

    def to_bytes(self) -> bytes:
        """The private key itself, to be kept where nobody else reads."""
        return self._private.private_bytes_raw()

    def open(self, sealed: bytes, *, role: Role, binding: bytes) -> bytes:
        """What was sealed; Refused(UNOPENABLE) with another key, role or binding, or after any change."""
        try:
            return _SUITE.decrypt(sealed, self._private, _LABELS[role] + binding)
        except (InvalidTag, ValueError):  # the second where a release of the package tells them apart
            raise Refused(Refusal.UNOPENABLE) from None

    def derived(self, label: bytes) -> bytes:
        """A secret of 32 bytes for one purpose, which tells nothing of the key or of any other purpose's."""
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=label).derive(self.to_bytes())

    def __repr__(self) -> str:
        return f"SealingKey(public={self.public.hex()})"


def seal(plain: bytes, public: bytes, *, role: Role, binding: bytes) -> bytes:
    """`SEAL_OVERHEAD` bytes longer than `plain`, and different every time."""
    try:
        return _SUITE.encrypt(plain, _parsed(public), _LABELS[role] + binding)
    except ValueError:
        raise BadInput("expected a public key of X25519, got one of small order") from None


@lru_cache(maxsize=64)
def _parsed(public: bytes) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(sized("a public key", public, KEY_BYTES))
