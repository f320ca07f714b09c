"""Keys of the parties: Ed25519 signatures that anybody can check, and X25519 keys that reports are sealed to.

Ad server and proxy sign with keys that follow from their long-lived secrets. What reports are sealed to is
drawn anew for each epoch and deleted after it, so that no key that is stolen later opens them.
"""

from __future__ import annotations

from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.bill.protocol.encoding import BillVerdict, expect_bytes, expect_size
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.sealing import KEY_BYTES, open_seal

SIGNATURE_BYTES = 64
_SIGNING = b"tacit bill signing 1"


class SigningKey:
    """A party's key for what others must be able to check. Printing it shows its public half."""

    def __init__(self, private: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(expect_size("a private key", private, KEY_BYTES))
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def derive(cls, secret: bytes) -> Self:
        """The key that follows from a party's long-lived secret of 32 bytes, and tells nothing of it."""
        expect_size("a secret", secret, KEY_BYTES)
        return cls(HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=_SIGNING).derive(secret))

    def sign(self, label: bytes, body: bytes) -> bytes:
        """A signature for one purpose: it passes under no other label."""
        return self._private.sign(label + b"\0" + body)

    def __repr__(self) -> str:
        return brief(self, public=self.public.hex())


def check_signature(public: bytes, label: bytes, body: bytes, signature: bytes) -> None:
    """BillRefused(UNAUTHENTICATED) unless the holder of this key signed exactly this, for this purpose."""
    try:
        key = Ed25519PublicKey.from_public_bytes(expect_size("a public key", public, KEY_BYTES))
        key.verify(signature, label + b"\0" + body)
    except (InvalidSignature, BadInput):
        raise BillRefused(BillVerdict.UNAUTHENTICATED) from None


class OpeningKey:
    """What opens seals of requests or of one epoch's reports. Printing it shows its public half."""

    def __init__(self, private: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(expect_size("a private key", private, KEY_BYTES))
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """A new key, from the operating system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    def to_bytes(self) -> bytes:
        """The private key itself, to be kept where nobody else reads."""
        return self._private.private_bytes_raw()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """What was sealed; BillRefused(UNOPENABLE) with another key or info, or after any change."""
        plain = open_seal(expect_bytes(sealed), self._private, info)
        if plain is None:
            raise BillRefused(BillVerdict.UNOPENABLE)
        return plain

    def __repr__(self) -> str:
        return brief(self, public=self.public.hex())
