"""Blind RSA tokens (RFC 9474, RSABSSA-SHA384-PSS-Randomized): a right to report one impression.

The device blinds a message, the ad server signs it without seeing it, and the device takes the blinding off.
What remains is an ordinary RSASSA-PSS signature that anybody can verify: the proxy counts only real tokens, and
an auditor can check a bill. The key is the menu's own, so a token is good for one menu.

The message's random prefix of RFC 9474 is the token's nonce, SHA-256 of a secret that the device draws: whoever
reports the token must know the secret, and the server learns both only from the report.

Guarantee:  the ad server cannot tell which of the requests that it signed under one key a token came from, not
            even with unlimited computing power: for every request and every token there is one blinding factor
            that leads from one to the other, and all are as likely. Nobody makes more valid tokens than the
            server signed.
Neighbours: any two assignments of a menu's tokens to the requests that they were signed for.
Assumes:    blinding factors are uniform and used once; devices take the key from a directory that is the same
            for all (`directory`); against forgery, that RSA with one more known target is hard, and SHA-384 is
            random. A key that was made to misbehave does not help. With small factors: what shares one with the
            modulus is never sent (`blind`). Where e divides the group's order: a token that verifies is an
            e-th power, among which its blinded message is uniform, and the root that the server picks says
            nothing of the one that the device gets; that others fail tells of a random prefix only.
Source:     Denis, Jacobs, Wood, RFC 9474, sections 4 and 5; Chaum 1983; EMSA-PSS: RFC 8017, 9.1.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from tacit.bill.protocol.encoding import BillVerdict, expect_size
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.privacy.randomness import Source

EXPONENT = 65_537
TOKEN_BITS = 2048
TOKEN_BYTES = TOKEN_BITS // 8
MOST_KEY_BYTES = 512  # menus take keys of TOKEN_BYTES; the vectors of RFC 9474 have twice as many
SECRET_BYTES = 32
NONCE_BYTES = 32
HASH_BYTES = 48  # SHA-384, and as many bytes of salt
_PSS = padding.PSS(padding.MGF1(hashes.SHA384()), HASH_BYTES)
_NONCE, _IMPRESSION = b"tacit/nonce/1", b"tacit/impression/1"


def token_nonce(secret: bytes) -> bytes:
    """What a token is known by; only who drew the secret can open it."""
    return hashlib.sha256(_NONCE + expect_size("a token's secret", secret, SECRET_BYTES)).digest()


def token_message(nonce: bytes, menu_id: bytes) -> bytes:
    """What is signed: the random prefix, the purpose and the menu."""
    return expect_size("a nonce", nonce, NONCE_BYTES) + _IMPRESSION + expect_size("a menu's id", menu_id, 32)


@dataclass(frozen=True)
class TokenPublicKey:
    """The public half of a menu's key: its modulus, as the directory lists it; the exponent is 65,537."""

    modulus: bytes

    def __post_init__(self) -> None:
        if type(self.modulus) is not bytes or not TOKEN_BYTES <= len(self.modulus) <= MOST_KEY_BYTES:
            raise BadInput(f"expected a modulus of {TOKEN_BYTES} to {MOST_KEY_BYTES} bytes, got another value")
        if not self.modulus[0] & 0x80 or not self.modulus[-1] & 1:
            raise BadInput(f"expected an odd modulus of {8 * len(self.modulus)} bits, got another")

    def __repr__(self) -> str:
        return brief(self, bits=8 * len(self.modulus))

    @cached_property
    def number(self) -> int:
        return int.from_bytes(self.modulus, "big")

    @cached_property
    def _key(self) -> RSAPublicKey:
        return RSAPublicNumbers(EXPONENT, self.number).public_key()

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether the holder of the private key signed the message."""
        try:
            self._key.verify(signature, message, _PSS, hashes.SHA384())
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class BlindedMessage:
    """What the ad server may see of a token, and what the device keeps to take the blinding off."""

    blinded: bytes
    inverse: bytes = field(repr=False)


def blind(key: TokenPublicKey, message: bytes, source: Source) -> BlindedMessage:
    """Blind a message, as RFC 9474 4.2 does: other factors each time, uniform and invertible."""
    size, modulus = len(key.modulus), key.number
    encoded = int.from_bytes(encode_pss(message, 8 * size - 1, source.bytes(HASH_BYTES)), "big")
    factor = 0
    while not 0 < factor < modulus:
        factor = int.from_bytes(source.bytes(size), "big")
    # What divides both the message and the modulus divides the blinded message too, and would link them.
    # Nobody meets a factor of an honest key by chance.
    if math.gcd(encoded * factor, modulus) != 1:
        raise BillRefused(BillVerdict.FORGED, "expected a modulus of two large primes")
    return blind_with(key, encoded, pow(factor, -1, modulus), factor)


def blind_with(key: TokenPublicKey, encoded: int, inverse: int, factor: int) -> BlindedMessage:
    """Blind an encoded message by a factor and its inverse, which are never used again."""
    size, modulus = len(key.modulus), key.number
    blinded = encoded * pow(factor, EXPONENT, modulus) % modulus
    return BlindedMessage(blinded.to_bytes(size, "big"), inverse.to_bytes(size, "big"))


def finalize(key: TokenPublicKey, message: bytes, blind_signature: bytes, inverse: bytes) -> bytes:
    """Take the blinding off; BillRefused(FORGED) unless what remains is a signature of the message."""
    size = len(key.modulus)
    if len(blind_signature) != size:
        raise BillRefused(BillVerdict.FORGED, "expected a signature of the key's length")
    number = int.from_bytes(blind_signature, "big") * int.from_bytes(inverse, "big") % key.number
    signature = number.to_bytes(size, "big")
    if not key.verify(message, signature):
        raise BillRefused(BillVerdict.FORGED)
    return signature


def encode_pss(message: bytes, bits: int, salt: bytes) -> bytes:
    """EMSA-PSS with SHA-384 and MGF1 (RFC 8017, 9.1.1): `bits` of an encoded message."""
    length = (bits + 7) // 8
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = bytes(length - len(salt) - HASH_BYTES - 2) + b"\x01" + salt
    mask = _mask(digest, len(block))
    masked = bytearray(a ^ b for a, b in zip(block, mask, strict=True))
    masked[0] &= 0xFF >> (8 * length - bits)
    return bytes(masked) + digest + b"\xbc"


def _mask(seed: bytes, length: int) -> bytes:
    """MGF1 with SHA-384."""
    blocks = -(-length // HASH_BYTES)
    drawn = b"".join(hashlib.sha384(seed + at.to_bytes(4, "big")).digest() for at in range(blocks))
    return drawn[:length]
