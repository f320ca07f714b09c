"""Layout of the trained matrices: their order, and what a flat vector of their entries means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol import encoding
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.errors import BadInput, RoomRefused

BY_ROWS = "rows"
MOST_BLOCKS = 4096
MOST_PARAMETERS = 2**28
MOST_POSITIONS = 2**16 - 1  # how often a pair may come is two bytes on the wire


@dataclass(frozen=True)
class ParameterBlock:
    """One trainable matrix. An example's d logit / d matrix is the sum over positions t of left_t right_t^T.

    `positions` is the most pairs that an example may have: 1 for a layer that is applied once. With `by_rows`
    an example touches some rows of the matrix, `positions` at most, and only these are sent
    (`protocol.row_derivatives`).
    """

    name: str
    rows: int
    cols: int
    positions: int = 1
    by_rows: bool = False

    def __post_init__(self) -> None:
        encoding.check_name("block name", self.name)
        encoding.check_whole(f"rows of block {self.name}", self.rows, at_least=1, at_most=MOST_PARAMETERS)
        encoding.check_whole(f"cols of block {self.name}", self.cols, at_least=1, at_most=MOST_PARAMETERS)
        encoding.check_whole(
            f"positions of block {self.name}", self.positions, at_least=1, at_most=MOST_POSITIONS
        )

    @property
    def parameters(self) -> int:
        return self.rows * self.cols

    def as_json(self) -> list[Any]:
        """As small as it can be: [name, rows, cols, positions], and a last "rows" where it is by rows."""
        return [self.name, self.rows, self.cols, self.positions, *([BY_ROWS] if self.by_rows else [])]

    @classmethod
    def from_json(cls, line: Any) -> ParameterBlock:
        if not isinstance(line, list) or len(line) not in (4, 5) or (len(line) == 5 and line[4] != BY_ROWS):
            raise BadInput(f"expected each block as [name, rows, cols, positions], or with a last {BY_ROWS!r}")
        name, rows, cols, positions = line[:4]
        return cls(name, rows, cols, positions, len(line) == 5)


@dataclass(frozen=True)
class ParameterLayout:
    """All trainable matrices in order; a flat vector is their concatenation, each in C order."""

    blocks: tuple[ParameterBlock, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.blocks) <= MOST_BLOCKS:
            raise BadInput(f"expected 1..{MOST_BLOCKS} blocks, got {len(self.blocks)}")
        if len({block.name for block in self.blocks}) != len(self.blocks):
            raise BadInput("expected every block to have a name of its own, got one twice")
        if self.parameters > MOST_PARAMETERS:
            raise BadInput(f"expected at most {MOST_PARAMETERS} parameters, got {self.parameters}")

    @cached_property
    def parameters(self) -> int:
        return sum(block.parameters for block in self.blocks)

    @property
    def by_rows(self) -> bool:
        """Whether a block is sent by rows."""
        return any(block.by_rows for block in self.blocks)

    def split(self, flat: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Each matrix (rows, cols) by its name: views into the flat vector."""
        if flat.shape != (self.parameters,):
            raise BadInput(f"expected a flat vector of {self.parameters}, got shape {flat.shape}")
        parts, start = {}, 0
        for block in self.blocks:
            parts[block.name] = flat[start : start + block.parameters].reshape(block.rows, block.cols)
            start += block.parameters
        return parts

    def join(self, parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """The flat vector of these matrices: `split` undone."""
        if parts.keys() != {block.name for block in self.blocks}:
            raise BadInput("expected one matrix for each block of the layout, got other names")
        for block in self.blocks:
            if parts[block.name].shape != (block.rows, block.cols):
                raise BadInput(f"expected block {block.name} of {block.rows} x {block.cols}, got another shape")
        return np.concatenate([parts[block.name].reshape(-1) for block in self.blocks])

    def as_json(self) -> list[list[Any]]:
        """A line for every block."""
        return [block.as_json() for block in self.blocks]

    @classmethod
    def from_json(cls, value: Any) -> ParameterLayout:
        """The layout that a message describes; whatever is wrong with it is a refusal."""
        if not isinstance(value, list) or not 1 <= len(value) <= MOST_BLOCKS:
            raise RoomRefused(RoomRefusal.MALFORMED, f"expected layout to be a list of 1..{MOST_BLOCKS} blocks")
        try:
            return cls(tuple(ParameterBlock.from_json(line) for line in value))
        except BadInput as wrong:
            raise RoomRefused(RoomRefusal.MALFORMED, f"layout: {wrong}") from None
