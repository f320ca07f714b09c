"""Ed25519 signatures over canonical JSON. Each is for one stated purpose and is valid for no other."""

from __future__ import annotations

from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.cleanroom.protocol.encoding import canonical_json
from tacit.errors import BadInput
from tacit.privacy.randomness import Source

KEY_BYTES = 32
SIGNATURE_BYTES = 64

PrivateKey = Ed25519PrivateKey


def new_key(entropy: Source) -> PrivateKey:
    """A fresh private key."""
    return Ed25519PrivateKey.from_private_bytes(entropy.bytes(KEY_BYTES))


def private_key(secret: bytes) -> PrivateKey:
    """The key of these 32 bytes."""
    if len(secret) != KEY_BYTES:
        raise BadInput(f"expected a private key of {KEY_BYTES} bytes, got {len(secret)}")
    return Ed25519PrivateKey.from_private_bytes(secret)


def public_key(key: PrivateKey) -> str:
    """The public half, as 64 hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def check_public_key(name: str, spelled: object) -> str:
    """A public key as it is written in an agreement; refused unless it is 64 lower-case digits."""
    if not isinstance(spelled, str) or not _is_hex(spelled, KEY_BYTES):
        raise BadInput(
            f"expected {name} as {2 * KEY_BYTES} hexadecimal digits in lower case, got another value"
        )
    return spelled


def sign(key: PrivateKey, purpose: str, record: Any) -> bytes:
    """64 bytes over the purpose and the record."""
    return key.sign(_message(purpose, record))


def is_signed(key: str, signature: bytes, purpose: str, record: Any) -> bool:
    """Whether the holder of this public key signed this record for this purpose."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, _message(purpose, record))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(purpose: str, record: Any) -> bytes:
    # A line break cannot be in a purpose: the two parts cannot run into each other.
    if "\n" in purpose:
        raise BadInput("expected a purpose of one line, got several")
    return f"tacit room 1: {purpose}\n".encode() + canonical_json(record)


def _is_hex(spelled: str, size: int) -> bool:
    return len(spelled) == 2 * size and all(digit in "0123456789abcdef" for digit in spelled)
