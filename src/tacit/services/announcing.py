"""A round as it is announced: its canonical bytes, and its question where it has one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from tacit.data.placing import place_whole
from tacit.errors import Refused
from tacit.gather.wire.questions import Question
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round

NO_QUESTION = bytes(32)
MOST_ANNOUNCED = 1_000


@dataclass(frozen=True)
class Announced:
    """A round, and the bytes of the question that its vector answers (empty: agreed otherwise)."""

    round: Round
    question: bytes = b""

    def __post_init__(self) -> None:
        if self.round.question == NO_QUESTION:
            if self.question:
                raise Refused(Refusal.MALFORMED, "expected no question for a round without one")
            return
        Question.of_round(self.round, self.question)

    @property
    def parts(self) -> tuple[bytes, bytes]:
        return self.round.to_bytes(), self.question

    def to_bytes(self) -> bytes:
        return bytes(msgpack.packb(self.parts))

    @classmethod
    def from_bytes(cls, data: bytes) -> Announced:
        return _read(_unpacked(data))


def to_bytes(rounds: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Several rounds in one message, from their parts."""
    return bytes(msgpack.packb(list(rounds)))


def from_bytes(data: bytes) -> list[Announced]:
    found = _unpacked(data)
    if not isinstance(found, list) or len(found) > MOST_ANNOUNCED:
        raise Refused(Refusal.MALFORMED, "expected a list of rounds")
    return [_read(each) for each in found]


def _unpacked(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, max_str_len=0, max_bin_len=len(data), max_map_len=0, max_ext_len=0)
    except (ValueError, TypeError, OverflowError, RecursionError):  # what msgpack says of bytes it cannot read
        raise Refused(Refusal.MALFORMED, "expected msgpack") from None


def _read(found: Any) -> Announced:
    if not isinstance(found, list) or len(found) != 2 or not all(type(part) is bytes for part in found):
        raise Refused(Refusal.MALFORMED, "expected a round and its question")
    return Announced(Round.from_bytes(found[0]), found[1])


class Questions:
    """Questions in a folder, each in a file named by its digest: written once, whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, digest: bytes, question: bytes) -> None:
        """On disk when this returns; the digest must be the question's own."""
        place = self._folder / digest.hex()
        if digest == NO_QUESTION or place.exists():
            return
        place_whole(place, question)

    def find(self, digest: bytes) -> bytes:
        """The question's bytes; empty for a round without a question."""
        return b"" if digest == NO_QUESTION else (self._folder / digest.hex()).read_bytes()
