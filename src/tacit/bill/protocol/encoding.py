"""Bytes of billing messages: fields of fixed layout, big-endian, so that each message has one spelling.

Every message is read to its last byte, or refused. Lengths are held against the bytes that are there before
anything is taken from them. Verdicts are one byte on the wire and a few words for people.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn, TypeVar

from tacit.errors import BadInput, BillRefused

VERSION = 1
LONGEST_TEXT = 65_535


class BillVerdict(IntEnum):
    """What became of a report, or why a message is not taken. Numbers are on the wire and never change."""

    ACCEPTED = 0
    DUPLICATE = 1
    MALFORMED = 2
    OVERSIZED = 3
    UNKNOWN_MENU = 4
    UNKNOWN_CONTEXT = 5
    STALE_EPOCH = 6
    EXPIRED = 7
    FORGED = 8
    UNOPENABLE = 9
    WRONG_OPENING = 10
    NO_SUCH_ENTRY = 11
    CONFLICT = 12
    UNAUTHENTICATED = 13
    NOT_LISTED = 14
    OVER_BUDGET = 15
    NONE_LEFT = 16

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    BillVerdict.ACCEPTED: "accepted",
    BillVerdict.DUPLICATE: "the token was spent before",
    BillVerdict.MALFORMED: "not a message of the kind that was expected",
    BillVerdict.OVERSIZED: "longer than a good message can be",
    BillVerdict.UNKNOWN_MENU: "no such menu is known here",
    BillVerdict.UNKNOWN_CONTEXT: "no menu is offered for this context",
    BillVerdict.STALE_EPOCH: "the epoch is over, or has not begun: fetch the current directory",
    BillVerdict.EXPIRED: "reports for this epoch are no longer taken",
    BillVerdict.FORGED: "the token is not one that the ad server signed for this menu",
    BillVerdict.UNOPENABLE: "the seal does not open with this epoch's key, for this menu and token",
    BillVerdict.WRONG_OPENING: "what was sealed is not what token and commitment say",
    BillVerdict.NO_SUCH_ENTRY: "the menu has no such entry",
    BillVerdict.CONFLICT: "the same name came before with other content",
    BillVerdict.UNAUTHENTICATED: "the sender is not the party it should be",
    BillVerdict.NOT_LISTED: "the menu does not stand at its context's place in the countersigned directory",
    BillVerdict.OVER_BUDGET: "the campaign has no money left: kept until its budget is raised",
    BillVerdict.NONE_LEFT: "fewer tokens of this menu are left: ask for one, or come back in the next epoch",
}


def refuse_malformed(detail: str) -> NoReturn:
    raise BillRefused(BillVerdict.MALFORMED, detail) from None


def expect_bytes(data: bytes) -> bytes:
    """Bytes as they came; other buffers could change after they were read."""
    if type(data) is not bytes:
        refuse_malformed("expected bytes")
    return data


@contextmanager
def malformed_if_refused() -> Iterator[None]:
    """What a value's own check refuses while a message is read makes the message malformed."""
    try:
        yield
    except BadInput as refusal:
        raise BillRefused(BillVerdict.MALFORMED, str(refusal)) from None


class Writer:
    """Fields in the order in which they are written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, layout: str, value: float) -> Writer:
        """A number of this `struct` layout, such as "B", "H", "I", "Q", "q" or "d"."""
        try:
            self._parts.append(struct.pack(f">{layout}", value))
        except (struct.error, OverflowError):  # the second where a whole number is too large for a double
            raise BadInput(f"expected a number that fits its field, got {value!r}") from None
        return self

    def raw(self, value: bytes, size: int) -> Writer:
        self._parts.append(expect_size("a field", value, size))
        return self

    def blob(self, value: bytes, layout: str = "H") -> Writer:
        """Bytes behind their length."""
        self.number(layout, len(value))
        self._parts.append(value)
        return self

    def text(self, value: str) -> Writer:
        try:
            return self.blob(value.encode())
        except UnicodeEncodeError:
            raise BadInput("expected a text that UTF-8 can spell, got another") from None

    def to_bytes(self) -> bytes:
        return b"".join(self._parts)


Parsed = TypeVar("Parsed")


class Reader:
    """Fields in the order in which they were written; BillRefused(MALFORMED) where the bytes end early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = expect_bytes(data), 0

    def number(self, layout: str) -> int:
        size = struct.calcsize(f">{layout}")
        return int(struct.unpack(f">{layout}", self.raw(size))[0])

    def double(self) -> float:
        return float(struct.unpack(">d", self.raw(8))[0])

    def raw(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            refuse_malformed("expected more bytes")
        self._at += size
        return found

    def blob(self, layout: str = "H") -> bytes:
        return self.raw(self.number(layout))

    def text(self) -> str:
        try:
            return self.blob().decode()
        except UnicodeDecodeError:
            refuse_malformed("expected UTF-8")

    def rest(self) -> bytes:
        """All that was not read."""
        return self.raw(len(self._data) - self._at)

    def end(self) -> None:
        if self._at != len(self._data):
            refuse_malformed("expected the message to end")


def read_message(data: bytes, kind: str, parse: Callable[[Reader], Parsed]) -> Parsed:
    """A message that begins with the version and ends where its last field does."""
    reader = Reader(data)
    if reader.number("B") != VERSION:
        refuse_malformed(f"expected a {kind} of version {VERSION}")
    with malformed_if_refused():
        parsed = parse(reader)
    reader.end()
    return parsed


def begin_message() -> Writer:
    return Writer().number("B", VERSION)


def expect_size(name: str, value: bytes, size: int) -> bytes:
    """Bytes of exactly this size."""
    if type(value) is not bytes or len(value) != size:
        got = len(value) if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__
        raise BadInput(f"expected {name} to be {size} bytes, got {got}")
    return value
