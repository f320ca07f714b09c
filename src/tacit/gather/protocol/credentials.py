"""Keys of the parties and of the devices: HPKE seals to one party, and HMAC tags that show whose report it is.

A seal is HPKE (`tacit.sealing`); party, round and report go
into `info`, so that it opens only for the same ones. A device's key can be derived again by the proxy, which
need not store it. Its tag shows that a report is the device's, and unchanged. It says nothing of whether the
counts are true.
"""

from __future__ import annotations

import hmac
from typing import Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit import expect, sealing
from tacit.errors import BadInput, Refused
from tacit.gather.protocol.encoding import MessageVerdict, expect_bytes
from tacit.sealing import KEY_BYTES

_LABEL = b"tacit gather seal 1"


class PartyRole(expect.Choice):
    """The two parties that a report is split between."""

    PROXY = "proxy"
    SERVER = "server"


_LABELS = {role: b"%b %b " % (_LABEL, role.encode()) for role in PartyRole}


class SealingKey:
    """A party's private key. It is read once; printing it shows its public half."""

    def __init__(self, private: X25519PrivateKey) -> None:
        expect.kind("private", private, X25519PrivateKey)
        self._private = private
        self.public = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """A new key, from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, private: bytes) -> Self:
        return cls(X25519PrivateKey.from_private_bytes(expect_bytes("a private key", private, KEY_BYTES)))

    def to_bytes(self) -> bytes:
        """The private key itself, to be kept where nobody else reads."""
        return self._private.private_bytes_raw()

    def open(self, sealed: bytes, *, role: PartyRole, binding: bytes) -> bytes:
        """What was sealed; Refused(UNOPENABLE) with another key, role or binding, or after any change."""
        plain = sealing.open_seal(sealed, self._private, _LABELS[role] + binding)
        if plain is None:
            raise Refused(MessageVerdict.UNOPENABLE)
        return plain

    def derive(self, label: bytes) -> bytes:
        """A secret of 32 bytes for one purpose, which tells nothing of the key or of any other purpose's."""
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=label).derive(self.to_bytes())

    def __repr__(self) -> str:
        return f"SealingKey(public={self.public.hex()})"


def seal(plain: bytes, public: bytes, *, role: PartyRole, binding: bytes) -> bytes:
    """`SEAL_OVERHEAD` bytes longer than `plain`, and different every time."""
    return sealing.seal(plain, public, _LABELS[role] + binding)


DEVICE_BYTES = 16
TAG_BYTES = 32
SHORTEST_SECRET = 32
_ENROLMENT = b"tacit gather enrolment 1 "
_REPORT = b"tacit gather report 1 "


def issue_device_key(enrolment_secret: bytes, device: bytes) -> bytes:
    """The key of one device, handed to it once when it enrols; 32 bytes."""
    expect.kind("enrolment_secret", enrolment_secret, bytes)
    if len(enrolment_secret) < SHORTEST_SECRET:
        raise BadInput(f"expected an enrolment secret of at least {SHORTEST_SECRET} bytes, got fewer")
    return hmac.digest(enrolment_secret, _ENROLMENT + expect_bytes("device", device, DEVICE_BYTES), "sha256")


def report_tag(key: bytes, signed_bytes: bytes) -> bytes:
    """HMAC-SHA256 of an upload's signed bytes under its device's key."""
    return hmac.digest(key, _REPORT + signed_bytes, "sha256")


def check_report_tag(enrolment_secret: bytes, device: bytes, signed_bytes: bytes, given: bytes) -> bool:
    """Whether the given tag is this device's for these bytes; takes as long whether it is or not."""
    return hmac.compare_digest(report_tag(issue_device_key(enrolment_secret, device), signed_bytes), given)
