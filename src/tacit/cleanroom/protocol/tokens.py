"""Tokens that name records on the wire: keyed hashes of ids, or masked points under private set intersection.

Keyed tokens: both parties hold the key of their collaboration. Tokens hide ids from everybody who sees only the
wire or the store of counts, but not from the other party, which has the key and can try ids.

Private set intersection on Curve25519 is for parties that must not be able to. The room finds the labels of the
platform's records; neither party learns the other's ids beyond that, and the platform does not learn which of
its records matched. Each id becomes a point H(id). The room sends a H(x) for its ids x, padded to an agreed
number and shuffled; the platform returns each of them times b, in order. The platform names a record y by
b H(y), and the room looks up a (b H(y)) among the points that it got back: they are equal if and only if y = x,
because a b H = b a H.

A record's identity in the room is what `PointMask.mask_again` gives, never the token itself: several tokens (a
point, and the point plus one of low order) lead to the same identity, and a label must not be flipped afresh
for each. For the same reason points are exchanged once per agreement: a second exchange would give every label
a second name.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from tacit import expect
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.data.encoding.fingerprints import Fingerprints, key_fingerprints
from tacit.data.frames import key_column, read_frame
from tacit.errors import BadInput, RoomRefused
from tacit.privacy.randomness import Source
from tacit.schema.columns import Column, Kind, Role

TOKEN_BYTES = 16
KEY_BYTES = 32

Ids = Sequence[str] | Sequence[bytes] | Sequence[int] | NDArray[np.integer]


def token_key(secret: bytes, name: str) -> bytes:
    """The key of one collaboration: the same shared secret gives unrelated tokens under another name."""
    if len(secret) < KEY_BYTES:
        raise BadInput(f"expected a shared secret of at least {KEY_BYTES} bytes, got {len(secret)}")
    return hmac.digest(secret, b"tacit room tokens 1 " + name.encode(), "sha256")


def tokens(ids: Ids, key: bytes) -> NDArray[np.uint8]:
    """(n, 16): HMAC-SHA256 of each id, cut to 128 bits. The same id gives the same token, wherever it is made.

    Guarantee:  without the key, tokens tell nothing but which of them are of the same id; two of n ids share
                a token with probability below n^2 / 2^129 (1e-27 for a hundred thousand million pairs).
    Neighbours: none: this is no differential privacy, and whoever holds the key can try ids.
    Assumes:    HMAC-SHA256 is a pseudorandom function; the key is 32 secret bytes.
    Source:     HMAC: Bellare 2006 (CRYPTO); FIPS 198-1; truncation: RFC 2104, section 5.
    """
    if len(key) != KEY_BYTES:
        raise BadInput(f"expected a token key of {KEY_BYTES} bytes, got {len(key)}")
    made = b"".join([hmac.digest(key, each, "sha256")[:TOKEN_BYTES] for each in id_bytes(ids)])
    return np.frombuffer(made, np.uint8).reshape(-1, TOKEN_BYTES).copy()


RECORD_NAMESPACE = "record"
"""Ids become 64-bit fingerprints in this namespace before they become tokens, as in prepared logs: that way
both parties name a record alike, whether its id is written as text or as a number."""


def record_fingerprints(ids: Any, column: str = "record") -> Fingerprints:
    """The fingerprint of each record's id, (n,): of an array, a list, or a column of any frame."""
    table = ids if isinstance(ids, pa.Table) else read_frame({column: ids}, column)
    ids = table.column(column)
    if pa.types.is_floating(ids.type) and pc.any(pc.not_equal(pc.floor(ids), ids)).as_py():
        raise BadInput(f"column {column}: expected ids as texts or whole numbers, got fractions")
    return key_fingerprints(key_column(table, Column(column, {Role.RECORD}), Kind.CATEGORY), RECORD_NAMESPACE)


def record_tokens(ids: Any, key: bytes) -> NDArray[np.uint8]:
    """(n, 16): the tokens of records by the ids that both parties know, e.g. click ids. Both sides name records
    by this; a prepared log's record keys are fingerprints already (`ConversionExamples.tokens` knows)."""
    return tokens(record_fingerprints(ids), key)


def id_bytes(ids: Ids) -> list[bytes]:
    """One spelling of each id: texts as their UTF-8 bytes, whole numbers as nine bytes, and never alike."""
    if isinstance(ids, str | bytes):
        raise BadInput("expected a list of ids, got a single text")
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        return _spelled_array(ids)
    return [_id_bytes(each) for each in ids]


def _spelled_array(ids: NDArray[np.integer]) -> list[bytes]:
    if ids.ndim != 1:
        raise BadInput(f"expected a flat list of ids, got shape {ids.shape}")
    wide = ids.astype(np.uint64 if ids.dtype.kind == "u" else np.int64)
    rows = np.empty((len(wide), 10), np.uint8)  # "w", the sign (0 or 255), eight bytes of two's complement
    rows[:, 0] = ord("w")
    rows[:, 1] = np.where(wide < 0, 255, 0)
    rows[:, 2:] = wide.astype(wide.dtype.newbyteorder(">")).view(np.uint8).reshape(-1, 8)
    flat = rows.tobytes()
    return [flat[start : start + 10] for start in range(0, len(flat), 10)]


def _id_bytes(each: object) -> bytes:
    if isinstance(each, bytes):
        return b"t" + each
    if isinstance(each, str):
        return b"t" + each.encode()
    if isinstance(each, bool) or not isinstance(each, int | np.integer):
        raise BadInput("expected ids as texts, bytes or whole numbers, got another kind")
    if not -(2**63) <= int(each) < 2**64:
        raise BadInput("expected whole ids of 64 bits, got a larger one")
    return b"w" + int(each).to_bytes(9, "big", signed=True)


POINT_BYTES = 32
PRIME = 2**255 - 19
CURVE_A = 486662  # v^2 = u^3 + A u^2 + u

Points = NDArray[np.uint8]  # (n, 32): u-coordinates, little-endian, below PRIME

_ID, _PAD = b"tacit room point 1 ", b"tacit room padding 1 "  # apart: no id is ever padding


class PointMask:
    """A secret scalar that hides points. One for each party and agreement.

    Guarantee:  for each party, points of ids that the other does not have look like random points: the
                platform learns nothing from the room's (their number is agreed), the room learns which of
                its ids are among the platform's and nothing of the others.
    Neighbours: none: this is no differential privacy. What labels give away is promised by the agreement.
    Assumes:    decisional Diffie-Hellman on Curve25519, SHA-256 as a random oracle, and parties that follow
                the protocol. A malicious platform may return or name any points: a label then has a wrong
                name, or none, but never two (`match_points` refuses repeated points, identities have no second
                token), and what leaves is promised for any names whatever, so it gains nothing beyond the
                agreement. The result of `mask_again` on its points never leaves the room. A malicious room may
                put guessed ids on its list, as many as were agreed: it learns whether the platform has those.
    Source:     Meadows 1986; Huberman, Franklin, Hogg 1999; security: Agrawal, Evfimievski, Srikant 2003,
                theorem 1; X25519 and its clamped scalars: Bernstein 2006, RFC 7748.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != POINT_BYTES:
            raise BadInput(f"expected a mask of {POINT_BYTES} bytes, got {len(secret)}")
        self._scalar = X25519PrivateKey.from_private_bytes(secret)

    @classmethod
    def new(cls, entropy: Source) -> PointMask:
        return cls(entropy.bytes(POINT_BYTES))

    def mask(self, ids: Ids) -> Points:
        """(n, 32): the points of the ids, times the scalar."""
        return _array([self._times(_point(_ID, each)) for each in id_bytes(ids)])

    def mask_again(self, points: Points) -> Points:
        """(n, 32): the other's points, times the scalar; points that are not whole or of low order are refused.

        Points on the curve's twist are not told apart: it is as strong a curve, the scalar is a multiple of
        both cofactors, and there they match nothing.
        """
        return _array([self._times(each) for each in _expect_points(points)])

    def padding(self, count: int, entropy: Source) -> Points:
        """(count, 32): points of no id, distributed as those of ids are."""
        drawn = [entropy.bytes(32) for _ in range(count)]
        return _array([self._times(_point(_PAD, each)) for each in drawn])

    def _times(self, point: bytes) -> bytes:
        try:
            return self._scalar.exchange(X25519PublicKey.from_public_bytes(point))
        except ValueError:  # the product is the neutral element
            raise RoomRefused(RoomRefusal.MALFORMED, "expected points of large order, got another") from None


@dataclass(frozen=True, eq=False)
class PointOffer:
    """What the room sends, and for itself: in which place each of its ids stands."""

    points: Points  # (most_ids, 32)
    places: NDArray[np.int64]  # (ids,)


def offer_points(mask: PointMask, ids: Ids, most_ids: int, entropy: Source) -> PointOffer:
    """The room's points, padded to `most_ids` and in an order that tells nothing. Keep it: it is made once."""
    own = id_bytes(ids)
    most = expect.whole("most_ids", most_ids, at_least=1)
    if len(own) > most:
        raise BadInput(f"expected at most most_ids = {most} ids, got more")
    if len(set(own)) < len(own):
        raise BadInput("expected each id once, got one twice")
    points = np.concatenate([mask.mask(ids), mask.padding(most - len(own), entropy)])
    # Ranks by 128 random bits: an order is as likely as any other but for ties, below n^2 / 2^129.
    order = np.lexsort((entropy.words(most), entropy.words(most)))  # place -> row
    places = np.empty(most, np.int64)
    places[order] = np.arange(most)
    return PointOffer(points[order], places[: len(own)])


def answer_points(mask: PointMask, points: Points, most_ids: int) -> Points:
    """The platform's answer to an offer: each point once more, in order; repeated points are refused."""
    _expect_distinct(points, most_ids)
    return mask.mask_again(points)


def match_points(places: NDArray[np.int64], answered: Points, most_ids: int) -> Points:
    """(ids, 32): the identity of each of the room's ids, in the order in which they were offered."""
    _expect_points(answered)
    _expect_distinct(answered, most_ids)
    return answered[places]


def _point(domain: bytes, spelled_id: bytes) -> bytes:
    """The first of SHA-256(domain, 0, id), SHA-256(domain, 1, id), ... that is a u on the curve, as 32 bytes.

    On the curve and not its twist: multiplying keeps a point on its side, so the side would be one bit of the
    id that every mask leaves in sight. Takes two tries on average; the time tells about the id, locally.
    """
    for count in range(256):
        digest = hashlib.sha256(domain + bytes([count]) + spelled_id).digest()
        u = int.from_bytes(digest, "little") & (2**255 - 1)
        if u < PRIME and jacobi_symbol(u * (u * (u + CURVE_A) + 1) % PRIME) == 1:
            return u.to_bytes(POINT_BYTES, "little")
    raise AssertionError("256 hashes in a row off the curve")  # probability 2^-256


def jacobi_symbol(number: int, modulus: int = PRIME) -> int:
    """The Jacobi symbol, for an odd modulus: 1 for squares other than 0, if it is prime; four times as fast as
    Euler's power here."""
    sign = 1
    while number:
        zeros = (number & -number).bit_length() - 1
        number >>= zeros
        if zeros & 1 and modulus & 7 in (3, 5):
            sign = -sign
        if number & modulus & 3 == 3:
            sign = -sign
        number, modulus = modulus % number, number
    return sign if modulus == 1 else 0


def _expect_points(points: Points) -> list[bytes]:
    """The points one by one; refused unless each is 32 bytes that spell a number below the prime."""
    if not isinstance(points, np.ndarray) or points.dtype != np.uint8 or points.shape[1:] != (POINT_BYTES,):
        raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected points of {POINT_BYTES} bytes each")
    # PRIME is ed ff .. ff 7f in bytes, from the low end: past it are the top bit, and ed to ff before ff .. 7f.
    high = points[:, 31]
    past = (high == 0x7F) & (points[:, 0] >= 0xED) & (points[:, 1:31] == 0xFF).all(axis=1)
    if ((high > 0x7F) | past).any():
        raise RoomRefused(RoomRefusal.MALFORMED, "expected points in their one spelling, below 2^255 - 19")
    flat = points.tobytes()
    return [flat[start : start + POINT_BYTES] for start in range(0, len(flat), POINT_BYTES)]


def _expect_distinct(points: Points, most_ids: int) -> None:
    if points.shape != (most_ids, POINT_BYTES):
        raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected {most_ids} points of {POINT_BYTES} bytes")
    ordered = np.sort(np.ascontiguousarray(points).view(f"V{POINT_BYTES}").ravel())
    if (ordered[1:] == ordered[:-1]).any():
        raise RoomRefused(RoomRefusal.REPEATED_RECORD, "expected each point once")


def _array(points: list[bytes]) -> Points:
    return np.frombuffer(b"".join(points), np.uint8).reshape(-1, POINT_BYTES).copy()
