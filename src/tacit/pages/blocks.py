"""What a page is made of, as values; all text is plain and becomes safe when it is written out."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tacit.errors import BadInput


@dataclass(frozen=True)
class Link:
    """Words that lead to a section or ruling of the same page, by its id."""

    text: str
    to: str


@dataclass(frozen=True)
class Verdict:
    """A verdict in words: what begins with holds, fails or undecided has its mark, all else counts as open."""

    words: str

    @property
    def kind(self) -> str:
        found = re.match(r"holds|fails|undecided", self.words)
        return found[0] if found else "open"


Cell = str | Link | Verdict


@dataclass(frozen=True)
class Prose:
    """Paragraphs, with an empty line between them; `code` and *emphasis* are marked as here."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows under a header. `numbers` are the columns set to the right, by name; `strong` the cells in bold, by
    their row and column from 0: the best, where the difference exceeds its interval."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Collection[str] = ()
    caption: str = ""
    strong: Collection[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise BadInput(f"expected rows of {len(self.columns)} cells, got one of {wrong[0]}")
        unknown = [name for name in self.numbers if name not in self.columns]
        if unknown:
            raise BadInput(f"expected numbers to name columns ({', '.join(self.columns)}), got {unknown[0]!r}")


@dataclass(frozen=True)
class Figure:
    """A drawing, as the text of an SVG file, and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Facts:
    """A few large figures in a row: the figure with its unit, what it is, and a note that may be empty."""

    facts: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Flow:
    """Stages in their order, connected: name, what it does, and what it spends (may be empty)."""

    stages: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Code:
    """Commands or their output, as typed."""

    text: str


@dataclass(frozen=True)
class Ruling:
    """One claim and its verdict, with facts as (label, text): the rule, what was seen, what was published."""

    name: str
    words: str
    verdict: Verdict
    facts: Sequence[tuple[str, Cell]]
    id: str = ""


@dataclass(frozen=True)
class Verdicts:
    """Claims one below the other."""

    rulings: Sequence[Ruling]


@dataclass(frozen=True)
class Chip:
    """A claim's name and verdict, as small as can be; `to` is where it is spelled out."""

    name: str
    verdict: Verdict
    words: str
    to: str


@dataclass(frozen=True)
class Board:
    """All claims at a glance: rows of chips under the name of their paper."""

    rows: Sequence[tuple[str, Sequence[Chip]]]


@dataclass(frozen=True)
class Details:
    """What few want to read, folded away under its name."""

    name: str
    blocks: Sequence[Prose | Table | Code]


Block = Prose | Table | Figure | Facts | Flow | Code | Verdicts | Board | Details


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it; a section in a section is a smaller one. The id is what links go to,
    made of the heading where none is given."""

    heading: str
    blocks: Sequence[Block | Section]
    id: str = ""
