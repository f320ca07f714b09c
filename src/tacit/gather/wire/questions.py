"""What a round asks of every device: which cells its vector has. Public, and made before anyone answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput, Refused
from tacit.gather.wire.encoding import MOST_FIELDS, Kind, decode, encode, malformed, reading
from tacit.gather.wire.promises import Promise
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import MOST_CELLS, Round
from tacit.schema.contexts.hierarchy import Levels

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Question:
    """Some nodes of one level and, at each of them, some ads.

    The cells are, in this order: for every node how often it was seen; for every (node, ad) entry the clicks;
    for every entry the impressions without a click. Without entries it asks for totals alone.
    """

    levels: Levels
    nodes: Integers  # (nodes,) ids, rising
    offsets: Integers  # (nodes + 1,) where each node's entries start
    ad: Integers  # (entries,) rising within a node

    def __post_init__(self) -> None:
        levels = self.levels
        if type(levels) is not tuple or not 1 <= len(levels) <= MOST_FIELDS:
            raise BadInput(f"expected levels as a tuple of 1 to {MOST_FIELDS}, got something else")
        if any(type(level) is not int or not 0 <= level < 1 << 31 for level in levels):
            raise BadInput("expected levels that are small whole numbers >= 0, got others")
        for name in ("nodes", "offsets", "ad"):
            column = getattr(self, name)
            if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.ndim != 1:
                raise BadInput(f"expected {name} as a row of int64, got something else")
        if not len(self.nodes) or self.nodes[0] < 0 or (self.nodes[1:] <= self.nodes[:-1]).any():
            raise BadInput("expected nodes >= 0 in rising order, at least one, got others")
        entries = len(self.ad)
        if len(self.offsets) != len(self.nodes) + 1 or self.offsets[0] != 0 or self.offsets[-1] != entries:
            raise BadInput(f"expected offsets from 0 to {entries}, one more than nodes, got others")
        if (self.offsets[1:] < self.offsets[:-1]).any():
            raise BadInput("expected offsets that never fall, got others")
        same_node = self.entry_node[1:] == self.entry_node[:-1]
        if (self.ad < 0).any() or (self.ad[1:] <= self.ad[:-1])[same_node].any():
            raise BadInput("expected each node's ads >= 0 in rising order, got others")
        if self.cells > MOST_CELLS:
            raise BadInput(f"expected at most {MOST_CELLS} cells, got {self.cells}")

    @property
    def entries(self) -> int:
        return len(self.ad)

    @property
    def cells(self) -> int:
        return len(self.nodes) + 2 * self.entries

    @property
    def totals(self) -> slice:
        """The cells of the nodes."""
        return slice(0, len(self.nodes))

    @property
    def clicks(self) -> slice:
        """The cells of clicks, an entry each."""
        return slice(len(self.nodes), len(self.nodes) + self.entries)

    @property
    def no_clicks(self) -> slice:
        """The cells of impressions without a click, an entry each."""
        return slice(len(self.nodes) + self.entries, self.cells)

    @cached_property
    def entry_node(self) -> Integers:
        """(entries,) the place in `nodes` of each entry."""
        return np.repeat(np.arange(len(self.nodes), dtype=np.int64), np.diff(self.offsets))

    @cached_property
    def _bytes(self) -> bytes:
        columns = (self.nodes, self.offsets, self.ad)
        return encode(Kind.QUESTION, self.levels, *(column.astype("<i8").tobytes() for column in columns))

    def to_bytes(self) -> bytes:
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Question:
        levels, *columns = decode(Kind.QUESTION, data, tuple, bytes, bytes, bytes)
        with reading():
            return cls(levels, *map(_column, columns))

    @classmethod
    def of_round(cls, round: Round, data: bytes) -> Question:
        """The question that the round names; Refused(CONFLICT) if these bytes are another."""
        found = cls.from_bytes(data)
        if found.digest != round.question or found.cells != round.cells:
            raise Refused(Refusal.CONFLICT, "expected the question that the round names, got another")
        try:
            found.expect_promised(round.promise)
        except BadInput as more:
            raise Refused(Refusal.CONFLICT, str(more)) from None
        return found

    def expect_promised(self, promise: Promise) -> None:
        """BadInput where the promise is for totals alone and the question has entries of ads."""
        if promise.totals_only and self.entries:
            raise BadInput(
                f"expected a question for totals alone, as was promised, got {self.entries} entries of ads"
            )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the bytes: a Round's `question`."""
        return hashlib.sha256(self._bytes).digest()


def _column(data: bytes) -> NDArray[Any]:
    if len(data) % 8:
        malformed("expected columns of 8 bytes an entry")
    return np.frombuffer(data, "<i8").astype(np.int64)
