"""What a codec is: one block's derivatives of some examples as bytes, and back."""

from __future__ import annotations

from typing import Protocol

from tacit.cleanroom.wire.blocks import Block
from tacit.cleanroom.wire.derivatives import BlockDerivatives
from tacit.privacy.randomness import Words


class Codec(Protocol):
    """Bytes are a function of the derivatives and the words alone, so a repeated step sends the same bytes."""

    @property
    def name(self) -> str: ...

    def encode(self, derivatives: BlockDerivatives, words: Words) -> bytes: ...

    def decode(self, block: Block, examples: int, data: bytes | memoryview) -> BlockDerivatives:
        """What was encoded. Anything else is `RoomRefused`; memory stays within a few times the data's size."""

    def size(self, block: Block, pairs_an_example: float) -> float:
        """Bytes an example that has so many pairs, up to a header that does not grow with the examples.

        Where examples differ in their pairs, average this over them: a form is chosen for each.
        """
