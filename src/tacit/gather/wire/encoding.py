"""One spelling of each message: a msgpack array of plain values, read back only from exactly the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from fractions import Fraction
from typing import Any, NoReturn

import msgpack

from tacit.errors import BadInput, Refused
from tacit.gather.wire.refusals import Refusal

VERSION = 1
LONGEST_TEXT = 1024  # bytes of any one text in a message
MOST_FIELDS = 64  # of any one array in a message
_FRACTION = re.compile(r"(0|-?[1-9][0-9]*)/([1-9][0-9]*)", re.ASCII)


class Kind(IntEnum):
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


def encode(kind: Kind, *fields: Any) -> bytes:
    """The message's bytes: [kind, version, *fields]."""
    return bytes(msgpack.packb((int(kind), VERSION, *fields), use_bin_type=True))


def decode(kind: Kind, data: bytes, *types: type, most_fields: int = MOST_FIELDS) -> tuple[Any, ...]:
    """The fields of a message of this kind, each of exactly its type; Refused(MALFORMED) for anything else.

    Whatever would not be written as the very same bytes is refused too: longer spellings of a number, bytes
    after the end, maps, extension types.
    """
    if type(data) is not bytes:  # others could change after they were read
        malformed("expected bytes")
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
        malformed("expected one msgpack array")
    if type(message) is not tuple or message[:2] != (kind, VERSION):
        malformed(f"expected {kind.name} of version {VERSION}")
    fields: tuple[Any, ...] = message[2:]
    if tuple(map(type, fields)) != types:
        malformed(f"expected {kind.name} with fields {', '.join(each.__name__ for each in types)}")
    if encode(kind, *fields) != data:
        malformed(f"expected {kind.name} in its shortest spelling")
    return fields


def malformed(detail: str) -> NoReturn:
    raise Refused(Refusal.MALFORMED, detail) from None


@contextmanager
def reading() -> Iterator[None]:
    """What a value's own check refuses while a message is read makes the message malformed."""
    try:
        yield
    except BadInput as refusal:
        raise Refused(Refusal.MALFORMED, str(refusal)) from None


def exact_text(number: Fraction) -> str:
    """A fraction in lowest terms, "numerator/denominator"."""
    text = f"{number.numerator}/{number.denominator}"
    if len(text) > LONGEST_TEXT:
        raise BadInput(f"expected a fraction of at most {LONGEST_TEXT} characters, got {len(text)}")
    return text


def exact_number(text: Any) -> Fraction:
    """The fraction that `exact_text` wrote."""
    found = _FRACTION.fullmatch(text) if type(text) is str else None
    if found is None or len(text) > LONGEST_TEXT:
        raise BadInput("expected a fraction as numerator/denominator, got something else")
    return Fraction(int(found[1]), int(found[2]))


def sized(name: str, value: Any, size: int) -> bytes:
    """Bytes of exactly this size."""
    if type(value) is not bytes or len(value) != size:
        got = len(value) if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__
        raise BadInput(f"expected {name} to be {size} bytes, got {got}")
    return value
