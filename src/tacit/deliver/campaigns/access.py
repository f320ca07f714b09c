"""Who may see and change what of an ad server's campaigns: access keys, their roles, what follows from them.

    spelled, key = make_key(AccessRole.ADVERTISER, "Bean & Leaf", entropy.bytes, now=now)

A key is spelled tacit_ID_SECRET and told once. Of it only a SHA-256 digest is kept: 256 random bits need no
slow hash. To rotate is to make a new key and to give the old one an end, so that both hold while programs
change over.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tacit import expect
from tacit.deliver.campaigns.campaign import expect_name, expect_second
from tacit.errors import BadInput

ID_BYTES, SECRET_BYTES = 8, 32
_SPELLED = re.compile(rf"tacit_([0-9a-f]{{{2 * ID_BYTES}}})_[0-9a-f]{{{2 * SECRET_BYTES}}}")


class AccessRole(expect.Choice):
    """What a key is for: everything, looking at everything, or the same of one advertiser alone."""

    OPERATOR = "operator"
    VIEWER = "viewer"
    ADVERTISER = "advertiser"
    ADVERTISER_VIEWER = "advertiser-viewer"

    @property
    def changes(self) -> bool:
        return self in (AccessRole.OPERATOR, AccessRole.ADVERTISER)

    @property
    def of_one(self) -> bool:
        """Whether it is about one advertiser."""
        return self in (AccessRole.ADVERTISER, AccessRole.ADVERTISER_VIEWER)


@dataclass(frozen=True)
class Access:
    """What somebody may do, by the key that they came with."""

    key_id: str
    role: AccessRole
    advertiser: str | None = None

    def may_read(self, advertiser: str | None) -> bool:
        """Whether it covers this advertiser; None: what is no advertiser's."""
        return not self.role.of_one or (advertiser is not None and advertiser == self.advertiser)

    def may_change(self, advertiser: str | None) -> bool:
        return self.role.changes and self.may_read(advertiser)


@dataclass(frozen=True)
class AccessKey:
    """A key as it is kept.

    ends      the second from which it no longer holds; None: until it is revoked
    revoked   when it was; from then on it holds never again, whatever the clock says
    """

    key_id: str
    role: AccessRole
    advertiser: str | None
    made: int
    ends: int | None = None
    revoked: int | None = None
    digest: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", AccessRole.named("role", self.role))
        if self.role.of_one != (self.advertiser is not None):
            wanted = "the advertiser that the key is for" if self.role.of_one else "none for this role"
            raise BadInput(f"advertiser: expected {wanted}, got {'one' if self.advertiser else 'none'}")
        if self.advertiser is not None:
            expect_name("advertiser", self.advertiser)
        for name in ("made", "ends", "revoked"):
            if getattr(self, name) is not None:
                expect_second(name, getattr(self, name))

    @property
    def access(self) -> Access:
        return Access(self.key_id, self.role, self.advertiser)

    def holds_at(self, second: int) -> bool:
        return self.revoked is None and (self.ends is None or second < self.ends)

    def is_spelled(self, spelled: str) -> bool:
        """Whether this is the key; compared in the same time wherever they differ."""
        return hmac.compare_digest(self.digest, digest_of(spelled))

    def as_json(self) -> dict[str, Any]:
        """Without its digest."""
        return {
            "key_id": self.key_id,
            "role": str(self.role),
            "advertiser": self.advertiser,
            "made": self.made,
            "ends": self.ends,
            "revoked": self.revoked,
        }


def make_key(
    role: AccessRole,
    advertiser: str | None,
    draw: Callable[[int], bytes],
    *,
    now: int,
    ends: int | None = None,
) -> tuple[str, AccessKey]:
    """A new key: as it is spelled, to be told once, and as it is kept."""
    key_id = bytes(draw(ID_BYTES)).hex()
    spelled = f"tacit_{key_id}_{bytes(draw(SECRET_BYTES)).hex()}"
    if ends is not None and expect_second("ends", ends) <= now:
        raise BadInput(f"ends: expected a second after now, {now}, got {ends}")
    return spelled, AccessKey(key_id, role, advertiser, now, ends, digest=digest_of(spelled))


def key_id_of(spelled: str) -> str | None:
    """The id in a spelled key; None where it is spelled otherwise."""
    found = _SPELLED.fullmatch(spelled)
    return found[1] if found else None


def digest_of(spelled: str) -> bytes:
    return hashlib.sha256(spelled.encode()).digest()
