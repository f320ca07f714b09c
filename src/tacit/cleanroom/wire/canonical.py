"""One spelling of each small message: JSON with sorted keys, no spaces, no duplicates, plain ASCII."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from typing import Any, NoReturn, TypeVar

from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import BadInput, RoomRefused

MOST_JSON_BYTES = 2**20
MOST_WHOLE = 2**53  # beyond it, readers in other languages lose digits
_NAME = re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?")  # 1 to 128 printable characters, no space at the ends
_DIGEST = re.compile(r"[0-9a-f]{64}")

Made = TypeVar("Made")


def spell(value: Any) -> bytes:
    """The one way to write a value down."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def read(data: bytes | memoryview, keys: Collection[str], *, most: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """The object that these bytes spell, with exactly these keys; another spelling of it is refused."""
    if len(data) > most:
        raise RoomRefused(Refusal.OVERSIZED, f"expected at most {most} bytes, got {len(data)}")
    value = made(lambda: read_canonical("a message", bytes(data), at_most=most))
    return fields(value, keys)


def read_canonical(what: str, data: bytes, *, at_most: int) -> Any:
    """The record that these bytes spell; refused unless they are its one spelling, and no longer than this."""
    if len(data) > at_most:
        raise BadInput(f"expected {what} of at most {at_most} bytes, got {len(data)}")
    try:
        record = json.loads(data.decode("ascii"), parse_constant=_no_constant)
        same = spell(record) == data  # a key that stands twice is not spelled twice
    except (ValueError, RecursionError):  # UnicodeDecodeError, JSONDecodeError, an infinity, a deep nest
        raise BadInput(f"expected {what} as canonical JSON, got something else") from None
    if not same:
        raise BadInput(f"expected {what} as canonical JSON (sorted keys, no spaces), got another spelling")
    return record


def fields(value: Any, keys: Collection[str]) -> dict[str, Any]:
    """A table with exactly these keys."""
    if not isinstance(value, dict) or value.keys() != set(keys):
        raise RoomRefused(Refusal.MALFORMED, f"expected an object with the keys {', '.join(sorted(keys))}")
    return value


def name(key: str, value: Any) -> str:
    """A short text that is safe to print and to store."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise BadInput(f"expected {key} to be 1 to 128 printable characters, got another text or kind")
    return value


def digest(key: str, value: Any) -> str:
    """A SHA-256 as 64 lower-case hex digits."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise BadInput(f"expected {key} to be 64 hex digits, got another text or kind")
    return value


def whole(key: str, value: Any, *, at_least: int, at_most: int = MOST_WHOLE) -> int:
    """A whole number, not a float or truth value that looks like one."""
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
        raise BadInput(f"expected {key} to be a whole number in {at_least}..{at_most}, got another")
    return value


def finite(key: str, value: Any, *, at_least: float = -math.inf) -> float:
    """A float that is neither infinite nor no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"expected {key} to be a finite number, got another")
    if value < at_least:
        raise BadInput(f"expected {key} >= {at_least:g}, got less")
    return float(value)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)


def made(make: Callable[[], Made]) -> Made:
    """What a message says, where the values it has are refused like its spelling."""
    try:
        return make()
    except BadInput as wrong:
        raise RoomRefused(Refusal.MALFORMED, str(wrong)) from None
