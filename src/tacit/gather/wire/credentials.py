"""A device's right to one report a round: a key that the proxy can derive again and need not store.

A tag shows that a report is its device's, and unchanged. It says nothing of whether the counts are true.
"""

from __future__ import annotations

import hmac

from tacit.errors import BadInput
from tacit.gather.wire.encoding import sized

DEVICE_BYTES = 16
TAG_BYTES = 32
SHORTEST_SECRET = 32
_ENROLMENT = b"tacit gather enrolment 1 "
_REPORT = b"tacit gather report 1 "


def issue(enrolment_secret: bytes, device: bytes) -> bytes:
    """The key of one device, handed to it once when it enrols; 32 bytes."""
    if len(enrolment_secret) < SHORTEST_SECRET:
        raise BadInput(f"expected an enrolment secret of at least {SHORTEST_SECRET} bytes, got fewer")
    return hmac.digest(enrolment_secret, _ENROLMENT + sized("device", device, DEVICE_BYTES), "sha256")


def tag(key: bytes, signed_bytes: bytes) -> bytes:
    """HMAC-SHA256 of an upload's signed bytes under its device's key."""
    return hmac.digest(key, _REPORT + signed_bytes, "sha256")


def check(enrolment_secret: bytes, device: bytes, signed_bytes: bytes, given: bytes) -> bool:
    """Whether the given tag is this device's for these bytes; takes as long whether it is or not."""
    return hmac.compare_digest(tag(issue(enrolment_secret, device), signed_bytes), given)
