"""Arrays in and out of messages: little-endian, raw, read only as far as the bytes go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.wire.refusals import Refusal
from tacit.errors import BadInput, RoomRefused

MOST_MESSAGE_BYTES = 16 * 2**20
SECTION_BYTES = 4  # before each section: how many bytes it has

MOST_VALUE = 2.0**32
"""The largest size of a number that is accepted. Two of them multiplied, times a slope of 2^16, added up over
2^31 rows of 2^16 pairs each, stay below the largest float32: no sum overflows, whatever a platform sends."""

MOST_SENT = 2.0**31  # a sender keeps below, so that rounding never takes a good number beyond


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
            raise RoomRefused(Refusal.MALFORMED, f"expected {size} more bytes, got {len(self._rest)}")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return np.frombuffer(taken, kind)

    def take_section(self) -> memoryview:
        """The next bytes, which say first how many they are."""
        size = int(self.take(1, "<u4")[0])
        if size > len(self._rest):
            raise RoomRefused(Refusal.MALFORMED, f"expected {size} more bytes, got {len(self._rest)}")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def end(self) -> None:
        if len(self._rest):
            raise RoomRefused(Refusal.MALFORMED, f"expected the end, got {len(self._rest)} more bytes")


def sections(head: bytes, parts: Iterable[bytes]) -> bytes:
    """A head of known size, then each part behind its length."""
    joined = [head]
    for part in parts:
        if len(part) >= MOST_MESSAGE_BYTES:
            raise BadInput(f"expected a section below {MOST_MESSAGE_BYTES} bytes, got {len(part)}")
        joined += (len(part).to_bytes(SECTION_BYTES, "little"), part)
    return b"".join(joined)


def refuse_beyond(values: NDArray[Any]) -> None:
    """Refuse what is infinite, no number, or too large to be added up safely."""
    if values.size and not (values.max() <= MOST_VALUE and values.min() >= -MOST_VALUE):  # false for NaN too
        raise RoomRefused(Refusal.NOT_FINITE)


def expect_sendable(name: str, values: NDArray[Any]) -> None:
    """The sender's own check, so that the receiver has nothing to refuse."""
    if values.size and not (values.max() <= MOST_SENT and values.min() >= -MOST_SENT):
        raise BadInput(f"expected {name} to be finite and at most 2^31 in size, got another number")
