"""Encodes messages as msgpack arrays, and defines the codes by which parties refuse them.

Each message has exactly one spelling: it is read back only from the very bytes that writing it gives. A
refusal is one byte on the wire and a few words for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from fractions import Fraction
from typing import Any, NoReturn

import msgpack

from tacit.errors import BadInput, Refused


class MessageVerdict(IntEnum):
    """What became of a report or a message. Numbers are part of the wire format and never change."""

    ACCEPTED = 0
    MALFORMED = 1
    OVERSIZED = 2
    UNKNOWN_ROUND = 3
    TOO_EARLY = 4
    TOO_LATE = 5
    FORGED = 6
    DUPLICATE = 7
    REPLAYED = 8
    UNOPENABLE = 9
    OUT_OF_RANGE = 10
    CLOSED = 11
    CONFLICT = 12
    UNAUTHENTICATED = 13
    PROMISE_NOT_KEPT = 14

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    MessageVerdict.ACCEPTED: "accepted",
    MessageVerdict.MALFORMED: "not a message of the kind that was expected",
    MessageVerdict.OVERSIZED: "longer than a good message can be",
    MessageVerdict.UNKNOWN_ROUND: "no such round is known here",
    MessageVerdict.TOO_EARLY: "the round is not open yet",
    MessageVerdict.TOO_LATE: "the round takes no more reports",
    MessageVerdict.FORGED: "the device's tag does not fit the report",
    MessageVerdict.DUPLICATE: "the device has already reported in this round",
    MessageVerdict.REPLAYED: "the report's id was used before",
    MessageVerdict.UNOPENABLE: "the seal does not open with this key, for this round, report and party",
    MessageVerdict.OUT_OF_RANGE: "the proof does not show that the counts are in range",
    MessageVerdict.CLOSED: "the set of reports is already agreed on",
    MessageVerdict.CONFLICT: "the same name came before with other content",
    MessageVerdict.UNAUTHENTICATED: "the sender is not the party it should be",
    MessageVerdict.PROMISE_NOT_KEPT: "what the run promised its devices would not be kept",
}


VERSION = 1
LONGEST_TEXT = 1024  # bytes of any one text in a message
MOST_FIELDS = 64  # of any one array in a message
_FRACTION = re.compile(r"(0|-?[1-9][0-9]*)/([1-9][0-9]*)", re.ASCII)


class MessageKind(IntEnum):
    """The first number of a message, so that none can be read as another."""

    ROUND = 1
    QUESTION = 2
    UPLOAD = 3
    JOB = 4
    JOB_REPLY = 5
    AGREEMENT = 6
    NOISY_SHARE = 7
    RECEIPT = 8
    RESULT = 9
    CONTRIBUTIONS = 10


def encode_message(kind: MessageKind, *fields: Any) -> bytes:
    """The message's bytes: [kind, version, *fields]."""
    return bytes(msgpack.packb((int(kind), VERSION, *fields), use_bin_type=True))


def decode_message(
    kind: MessageKind, data: bytes, *types: type, most_fields: int = MOST_FIELDS
) -> tuple[Any, ...]:
    """The fields of a message of this kind, each of exactly its type; Refused(MALFORMED) for anything else.

    Whatever would not be written as the very same bytes is refused too: longer spellings of a number, bytes
    after the end, maps, extension types.
    """
    if type(data) is not bytes:  # others could change after they were read
        refuse_malformed("expected bytes")
    try:
        message = msgpack.unpackb(
            data,
            use_list=False,
            raw=False,
            max_str_len=LONGEST_TEXT,
            max_bin_len=len(data),
            max_array_len=most_fields,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, TypeError, OverflowError, RecursionError):  # what msgpack says of bytes it cannot read
        refuse_malformed("expected one msgpack array")
    if type(message) is not tuple or message[:2] != (kind, VERSION):
        refuse_malformed(f"expected {kind.name} of version {VERSION}")
    fields: tuple[Any, ...] = message[2:]
    if tuple(map(type, fields)) != types:
        refuse_malformed(f"expected {kind.name} with fields {', '.join(each.__name__ for each in types)}")
    if encode_message(kind, *fields) != data:
        refuse_malformed(f"expected {kind.name} in its shortest spelling")
    return fields


def refuse_malformed(detail: str) -> NoReturn:
    raise Refused(MessageVerdict.MALFORMED, detail) from None


@contextmanager
def malformed_if_refused() -> Iterator[None]:
    """What a value's own check refuses while a message is read makes the message malformed."""
    try:
        yield
    except BadInput as refusal:
        raise Refused(MessageVerdict.MALFORMED, str(refusal)) from None


def fraction_text(number: Fraction) -> str:
    """A fraction in lowest terms, "numerator/denominator"."""
    text = f"{number.numerator}/{number.denominator}"
    if len(text) > LONGEST_TEXT:
        raise BadInput(f"expected a fraction of at most {LONGEST_TEXT} characters, got {len(text)}")
    return text


def parse_fraction(text: Any) -> Fraction:
    """The fraction that `fraction_text` wrote."""
    found = _FRACTION.fullmatch(text) if type(text) is str else None
    if found is None or len(text) > LONGEST_TEXT:
        raise BadInput("expected a fraction as numerator/denominator, got something else")
    return Fraction(int(found[1]), int(found[2]))


def expect_bytes(name: str, value: Any, size: int) -> bytes:
    """Bytes of exactly this size."""
    if type(value) is not bytes or len(value) != size:
        got = len(value) if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__
        raise BadInput(f"expected {name} to be {size} bytes, got {got}")
    return value
