"""Strings of the Transparency and Consent Framework, version 2 (2.0 to 2.4 are written alike).

    said = TcString.parse("COvFyGBOvFyGBAbAAAENAPCAAOAAAAAAAAAAAEEUACCKAAA")
    said.consents(vendor=2, purpose=1)

Segments stand between dots, each in base64url, six bits per character, the most significant first. What is cut
off, contradicts itself or goes on where it should be over is refused as BadInput, so that nobody reads a yes
from a damaged string. Source: IAB Tech Lab, "Transparency and Consent String with Global Vendor & CMP List
Formats", version 2, sections "The Core String" and "Disclosed Vendors".
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

from tacit.display import brief
from tacit.errors import BadInput

MOST_CHARACTERS = 65_536
MOST_VENDOR = 2**16 - 1
VERSION = 2
_STANDARD = bytes.maketrans(b"-_", b"+/")
_FOREIGN = frozenset("+/=\r\n\t ")


def refuse(what: str) -> NoReturn:
    raise BadInput(f"expected {what}, got another text")


class BitReader:
    """The bits of a text in base64url, read from the left."""

    def __init__(self, text: str, what: str) -> None:
        self._what = what
        if not text or len(text) > MOST_CHARACTERS or not text.isascii() or _FOREIGN & set(text):
            refuse(what)
        padded = text + "A" * (-len(text) % 4)  # whole bytes, by bits that are 0
        try:
            found = binascii.a2b_base64(padded.encode().translate(_STANDARD), strict_mode=True)
        except binascii.Error:
            refuse(what)
        self._left = 6 * len(text)
        self._bits = int.from_bytes(found, "big") >> (8 * len(found) - self._left)

    def take(self, count: int) -> int:
        """The next bits, as a whole number."""
        if count > self._left:
            refuse(f"{self._what} that is not cut off")
        self._left -= count
        found = self._bits >> self._left
        self._bits &= (1 << self._left) - 1
        return found

    def flag(self) -> bool:
        return bool(self.take(1))

    def fibonacci(self) -> int:
        """A whole number from 1 on, as a sum of Fibonacci numbers whose last two bits are ones."""
        found, last, value, following = 0, False, 1, 2
        for _ in range(32):
            bit = self.flag()
            if bit and last:
                return found
            found, last = found + bit * value, bit
            value, following = following, value + following
        refuse(f"{self._what} with numbers that end")

    def end(self) -> None:
        """Refuse what goes on: only padding may follow."""
        if self._bits:
            refuse(f"{self._what} that ends where it should")


@dataclass(frozen=True)
class VendorSet:
    """Ids of vendors, as a field of bits (the first is vendor 1) or as ranges."""

    bits: int = field(default=0, repr=False)
    most: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, vendor: int) -> bool:
        if any(first <= vendor <= last for first, last in self.ranges):
            return True
        return 1 <= vendor <= self.most and bool(self.bits >> (self.most - vendor) & 1)

    @classmethod
    def read(cls, reader: BitReader) -> VendorSet:
        """With its largest id in front, and whether ranges follow."""
        most = reader.take(16)
        if not reader.flag():
            return cls(reader.take(most), most)
        return cls(ranges=cls.read_ranges(reader, most))

    @staticmethod
    def read_ranges(reader: BitReader, most: int = MOST_VENDOR) -> tuple[tuple[int, int], ...]:
        found = []
        for _ in range(reader.take(12)):
            several, first = reader.flag(), reader.take(16)
            last = reader.take(16) if several else first
            if not 1 <= first <= last <= most:
                refuse("ranges of vendors within their largest id")
            found.append((first, last))
        return tuple(found)


class Restriction(IntEnum):
    """What a publisher says of a purpose for some vendors, whatever people said."""

    NOT_ALLOWED = 0
    NEEDS_CONSENT = 1
    NEEDS_INTEREST = 2


class Segment(IntEnum):
    """What follows the core, by its first three bits."""

    DISCLOSED = 1
    ALLOWED = 2
    PUBLISHER = 3


@dataclass(frozen=True)
class TcString:
    """What a person was asked, by whom, and what they said.

    updated              the second of the last change
    purposes, interests  purposes with consent, and with legitimate interest that nobody objected to
    restrictions         by purpose, kind and vendors: what the publisher takes back
    disclosed            vendors that the person was told of; None where the string does not say
    hidden_purpose_one   purpose 1 was not asked about: its bit means nothing
    """

    updated: int
    cmp_id: int
    vendor_list_version: int
    policy_version: int
    purposes: frozenset[int]
    interests: frozenset[int]
    hidden_purpose_one: bool
    vendors: VendorSet = field(repr=False)
    vendor_interests: VendorSet = field(repr=False)
    restrictions: tuple[tuple[int, Restriction, VendorSet], ...] = field(default=(), repr=False)
    disclosed: VendorSet | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return brief(self, purposes=sorted(self.purposes), policy_version=self.policy_version)

    @classmethod
    def parse(cls, text: str) -> TcString:
        """A string of version 2; BadInput for anything else."""
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            refuse("a TC string")
        core, *others = text.split(".")
        disclosed: VendorSet | None = None
        seen: set[Segment] = set()
        for each in others:
            reader = BitReader(each, "a segment of a TC string")
            kind = reader.take(3)
            if kind not in set(Segment) or kind in seen:
                refuse("segments of a TC string, each kind once")
            seen.add(Segment(kind))
            if kind == Segment.DISCLOSED:
                disclosed = VendorSet.read(reader)
                reader.end()
        return cls._read_core(BitReader(core, "the core of a TC string"), disclosed)

    @classmethod
    def _read_core(cls, reader: BitReader, disclosed: VendorSet | None) -> TcString:
        if reader.take(6) != VERSION:
            refuse("a TC string of version 2")
        created, updated = reader.take(36), reader.take(36)
        cmp_id, _cmp_version, _screen, _language = (reader.take(size) for size in (12, 12, 6, 12))
        vendor_list_version, policy_version = reader.take(12), reader.take(6)
        _service_specific, _own_texts, _features = reader.flag(), reader.flag(), reader.take(12)
        purposes, interests = _purposes(reader), _purposes(reader)
        hidden, _country = reader.flag(), reader.take(12)
        vendors, vendor_interests = VendorSet.read(reader), VendorSet.read(reader)
        restrictions = []
        for _ in range(reader.take(12)):
            purpose, kind = reader.take(6), reader.take(2)
            if not purpose or kind not in set(Restriction):
                refuse("restrictions of purposes, of a known kind")
            affected = VendorSet(ranges=VendorSet.read_ranges(reader))
            restrictions.append((purpose, Restriction(kind), affected))
        reader.end()
        if updated < created:
            refuse("a TC string that was changed after it was made")
        return cls(
            updated // 10, cmp_id, vendor_list_version, policy_version, purposes, interests, hidden, vendors,
            vendor_interests, tuple(restrictions), disclosed,
        )  # fmt: skip

    def consents(self, *, vendor: int, purpose: int) -> bool:
        """Whether the person agreed to this purpose for this vendor, and the publisher does not forbid it."""
        if purpose == 1 and self.hidden_purpose_one:
            return False
        forbidden = {Restriction.NOT_ALLOWED, Restriction.NEEDS_INTEREST}
        said = purpose in self.purposes and vendor in self.vendors
        return said and self._is_told_of(vendor) and not self._restricted(vendor, purpose) & forbidden

    def has_interest(self, *, vendor: int, purpose: int) -> bool:
        """Whether the vendor may act on its legitimate interest: told of, not objected to, not forbidden.

        Purpose 1 never has one, and purposes 3 to 6 have none since version 2.2.
        """
        if purpose in (1, 3, 4, 5, 6):
            return False
        forbidden = {Restriction.NOT_ALLOWED, Restriction.NEEDS_CONSENT}
        said = purpose in self.interests and vendor in self.vendor_interests
        return said and self._is_told_of(vendor) and not self._restricted(vendor, purpose) & forbidden

    def _is_told_of(self, vendor: int) -> bool:
        return self.disclosed is None or vendor in self.disclosed

    def _restricted(self, vendor: int, purpose: int) -> set[Restriction]:
        return {kind for of, kind, vendors in self.restrictions if of == purpose and vendor in vendors}


def _purposes(reader: BitReader) -> frozenset[int]:
    bits = reader.take(24)
    return frozenset(number for number in range(1, 25) if bits >> (24 - number) & 1)
