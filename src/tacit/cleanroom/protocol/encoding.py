"""Encodes messages as bytes and reads them strictly: canonical JSON for small ones, raw arrays for numbers.

JSON has sorted keys, no spaces, no duplicate keys and plain ASCII, so that each message has exactly one
spelling and a digest names it. Arrays are little-endian, and are read only as far as the bytes go: a message
that claims to be longer than it is is refused before anything is allocated.

What cannot be read, or is not allowed, is refused for one of the reasons in `RoomRefusal`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput, RoomRefused
from tacit.expect import Choice


class RoomRefusal(Choice):
    """A reason, on which no label has had an effect, as long as the table of labels stays the same.

    Whether it does is told by LABELS_CHANGED. Nothing changes by a refusal.
    """

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    NOT_FINITE = "not_finite"
    WRONG_SHAPE = "wrong_shape"
    REPEATED_RECORD = "repeated_record"
    TOO_SMALL_BATCH = "too_small_batch"
    UNKNOWN_TASK = "unknown_task"
    NOT_AGREED = "not_agreed"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    RECORD_EXHAUSTED = "record_exhausted"
    CONFLICT = "conflict"
    FOREIGN = "foreign"
    BUDGET = "budget"
    LABELS_CHANGED = "labels_changed"
    UNKNOWN_AGREEMENT = "unknown_agreement"
    NOT_SIGNED = "not_signed"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    RoomRefusal.MALFORMED: "not a message of the kind that was expected",
    RoomRefusal.OVERSIZED: "larger than a good message can be",
    RoomRefusal.NOT_FINITE: "a number is not finite, or too large to be added up safely",
    RoomRefusal.WRONG_SHAPE: "the sizes do not fit what was announced",
    RoomRefusal.REPEATED_RECORD: "a record comes twice in one batch",
    RoomRefusal.TOO_SMALL_BATCH: "fewer records than the agreement allows in one batch",
    RoomRefusal.UNKNOWN_TASK: "the agreement has no such task",
    RoomRefusal.NOT_AGREED: "the agreement does not allow this",
    RoomRefusal.EXPIRED: "the agreement has expired",
    RoomRefusal.NOT_YET_VALID: "the agreement has not begun yet",
    # Which record, and how many: that would tell what others asked for.
    RoomRefusal.RECORD_EXHAUSTED: "a record in the batch has no release left",
    RoomRefusal.CONFLICT: "the same run and number came before with other content",
    RoomRefusal.FOREIGN: "the sender is not the party that signed the agreement",
    RoomRefusal.BUDGET: "the budget does not pay for this",
    RoomRefusal.LABELS_CHANGED: "the labels are not those of this window and version",
    RoomRefusal.UNKNOWN_AGREEMENT: "no agreement with these terms is in force here",
    RoomRefusal.NOT_SIGNED: "a signature is missing or does not fit",
}


MOST_JSON_BYTES = 2**20
MOST_MESSAGE_BYTES = 16 * 2**20
SECTION_BYTES = 4  # before each section: how many bytes it has
MOST_WHOLE = 2**53  # beyond it, readers in other languages lose digits
MOST_VALUE = 2.0**32
"""The largest size of a number that is accepted. Two of them multiplied, times a slope of 2^16, added up over
2^31 rows of 2^16 pairs each, stay below the largest float32: no sum overflows, whatever a platform sends."""

MOST_SENT = 2.0**31  # a sender keeps below, so that rounding never takes a good number beyond

_NAME = re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?")  # 1 to 128 printable characters, no space at the ends
_DIGEST = re.compile(r"[0-9a-f]{64}")

Made = TypeVar("Made")


def canonical_json(value: Any) -> bytes:
    """The one way to write a value down."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def read_message(
    data: bytes | memoryview, keys: Collection[str], *, most: int = MOST_JSON_BYTES
) -> dict[str, Any]:
    """The object that these bytes spell, with exactly these keys; another spelling of it is refused."""
    if len(data) > most:
        raise RoomRefused(RoomRefusal.OVERSIZED, f"expected at most {most} bytes, got {len(data)}")
    value = build_or_refuse(lambda: read_canonical_json("a message", bytes(data), at_most=most))
    return check_keys(value, keys)


def read_canonical_json(what: str, data: bytes, *, at_most: int) -> Any:
    """The record that these bytes spell; refused unless they are its one spelling, and no longer than this."""
    if len(data) > at_most:
        raise BadInput(f"expected {what} of at most {at_most} bytes, got {len(data)}")
    try:
        record = json.loads(data.decode("ascii"), parse_constant=_no_constant)
        same = canonical_json(record) == data  # a key that stands twice is not spelled twice
    except (ValueError, RecursionError):  # UnicodeDecodeError, JSONDecodeError, an infinity, a deep nest
        raise BadInput(f"expected {what} as canonical JSON, got something else") from None
    if not same:
        raise BadInput(f"expected {what} as canonical JSON (sorted keys, no spaces), got another spelling")
    return record


def check_keys(value: Any, keys: Collection[str]) -> dict[str, Any]:
    """A table with exactly these keys."""
    if not isinstance(value, dict) or value.keys() != set(keys):
        raise RoomRefused(RoomRefusal.MALFORMED, f"expected an object with the keys {', '.join(sorted(keys))}")
    return value


def check_name(key: str, value: Any) -> str:
    """A short text that is safe to print and to store."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise BadInput(f"expected {key} to be 1 to 128 printable characters, got another text or kind")
    return value


def check_digest(key: str, value: Any) -> str:
    """A SHA-256 as 64 lower-case hex digits."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise BadInput(f"expected {key} to be 64 hex digits, got another text or kind")
    return value


def check_whole(key: str, value: Any, *, at_least: int, at_most: int = MOST_WHOLE) -> int:
    """A whole number, not a float or truth value that looks like one."""
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
        raise BadInput(f"expected {key} to be a whole number in {at_least}..{at_most}, got another")
    return value


def check_finite(key: str, value: Any, *, at_least: float = -math.inf) -> float:
    """A float that is neither infinite nor no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"expected {key} to be a finite number, got another")
    if value < at_least:
        raise BadInput(f"expected {key} >= {at_least:g}, got less")
    return float(value)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)


def build_or_refuse(make: Callable[[], Made]) -> Made:
    """What a message says, where the values it has are refused like its spelling."""
    try:
        return make()
    except BadInput as wrong:
        raise RoomRefused(RoomRefusal.MALFORMED, str(wrong)) from None


class Reader:
    """Takes arrays from the front of some bytes. More than there is, is refused, not allocated."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._rest = memoryview(data).cast("B")

    def __len__(self) -> int:
        return len(self._rest)

    def take(self, count: int, dtype: str) -> NDArray[Any]:
        """The next numbers, as a view that nobody can write to."""
        kind = np.dtype(dtype)
        size = count * kind.itemsize
        if size > len(self._rest):
            raise RoomRefused(RoomRefusal.MALFORMED, f"expected {size} more bytes, got {len(self._rest)}")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return np.frombuffer(taken, kind)

    def take_section(self) -> memoryview:
        """The next bytes, which say first how many they are."""
        size = int(self.take(1, "<u4")[0])
        if size > len(self._rest):
            raise RoomRefused(RoomRefusal.MALFORMED, f"expected {size} more bytes, got {len(self._rest)}")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def end(self) -> None:
        if len(self._rest):
            raise RoomRefused(RoomRefusal.MALFORMED, f"expected the end, got {len(self._rest)} more bytes")


def join_sections(head: bytes, parts: Iterable[bytes]) -> bytes:
    """A head of known size, then each part behind its length."""
    joined = [head]
    for part in parts:
        if len(part) >= MOST_MESSAGE_BYTES:
            raise BadInput(f"expected a section below {MOST_MESSAGE_BYTES} bytes, got {len(part)}")
        joined += (len(part).to_bytes(SECTION_BYTES, "little"), part)
    return b"".join(joined)


def refuse_out_of_range(values: NDArray[Any]) -> None:
    """Refuse what is infinite, no number, or too large to be added up safely."""
    if values.size and not (values.max() <= MOST_VALUE and values.min() >= -MOST_VALUE):  # false for NaN too
        raise RoomRefused(RoomRefusal.NOT_FINITE)


def expect_sendable(name: str, values: NDArray[Any]) -> None:
    """The sender's own check, so that the receiver has nothing to refuse."""
    if values.size and not (values.max() <= MOST_SENT and values.min() >= -MOST_SENT):
        raise BadInput(f"expected {name} to be finite and at most 2^31 in size, got another number")
