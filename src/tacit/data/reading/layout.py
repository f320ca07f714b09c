"""How a published file is laid out: its separator, its columns and what stands for a missing value."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa

from tacit import expect
from tacit.errors import BadInput
from tacit.expect import Choice


class Raw(Choice):
    """What a cell of the file holds."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"
    LIST = "list"  # Parquet only
    # Whole numbers by what they mean: `Log.as_read` tells them apart.
    FLAG = "flag"  # true and false too
    TIME = "time"  # seconds since the epoch; dates and times too
    ID = "id"  # of any length: beyond 64 bits it is its digits


class Encoding(Choice):
    """How a text file spells its letters."""

    UTF8 = "utf-8"
    LATIN1 = "latin-1"
    WINDOWS = "windows-1252"


# Text is checked to be UTF-8 and kept as bytes: a value is a token.
ARROW_TYPE = {Raw.TEXT: pa.string(), Raw.REAL: pa.float64()} | dict.fromkeys(
    (Raw.WHOLE, Raw.FLAG, Raw.TIME, Raw.ID), pa.int64()
)
EXPECTED = {
    Raw.TEXT: "a text",
    Raw.WHOLE: "a whole number",
    Raw.REAL: "a number",
    Raw.LIST: "a list",
    Raw.FLAG: "0 or 1, or true or false",
    Raw.TIME: "seconds since 1970, or a date and time such as 2024-01-31T12:00:00Z",
    Raw.ID: "a whole number",
}
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
MOST_NAMED = 40
LONGEST_NAME = 64


@dataclass(frozen=True)
class Layout:
    """The columns of a file and their raw types, and how a text file separates them.

    With a header the order is the file's own; `aliases` maps other spellings in it to ours, and columns that
    are not listed are passed over. Without one, `columns` is the order. A Parquet file needs the names only.
    """

    columns: Mapping[str, Raw]
    separator: str = ","
    header: bool = True
    quoted: bool = True
    missing: tuple[str, ...] = ("",)
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    encoding: Encoding | str = Encoding.UTF8

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or len(self.separator) != 1:
            raise BadInput(f"expected a separator of one character, got {self.separator!r}")
        object.__setattr__(self, "encoding", Encoding(self.encoding))

    def decoded(self, lines: bytes, place: str, first_line: int) -> str:
        """These lines as text; refused by the number of the line where they are in another encoding."""
        if lines.startswith(UTF16_MARKS) or any(len(lines) > 4 and not any(lines[at:50:2]) for at in (0, 1)):
            raise BadInput(f"{place}: line {first_line}: expected UTF-8, got UTF-16; save it as UTF-8")
        try:
            return lines.decode(self.encoding)
        except UnicodeDecodeError as problem:
            line = first_line + lines.count(b"\n", 0, problem.start)
            raise BadInput(
                f"{place}: line {line}: expected {self._encoding_in_words}, got other bytes{self.advice}"
            ) from None

    @property
    def _encoding_in_words(self) -> str:
        return "UTF-8" if self.encoding is Encoding.UTF8 else str(self.encoding)

    @property
    def advice(self) -> str:
        """What to do about other bytes."""
        if self.encoding is not Encoding.UTF8:
            return ""
        return '; if the file is in latin-1, say encoding = "latin-1" under [file], or --encoding latin-1'

    def cells(self, line: str) -> list[str]:
        """The cells of one line; a line that cannot be taken apart is one cell."""
        if not self.quoted:
            return line.split(self.separator)
        try:
            return next(csv.reader([line], delimiter=self.separator), [line])
        except csv.Error:
            return [line]

    def in_order(self, header: list[str] | None, place: str) -> list[str]:
        """The columns of a file in their order, by our names; refused where one of ours comes twice."""
        if header is None:
            return list(self.columns)
        names = [self.aliases.get(name, name) for name in header]
        for name in self.columns:
            if names.count(name) > 1:
                raise BadInput(f"{place}: expected column {name} once, got it {names.count(name)} times")
        # Columns that are passed over still need names of their own.
        return [name if name in self.columns else f"{index}: {name}" for index, name in enumerate(names)]


def found_instead(lacking: str, found: Sequence[str], known: Collection[str] | None = None) -> str:
    """The end of a refusal: the columns that are there, and the one most like what is lacking.

    A first line that is a row and no header holds somebody's data: it is repeated only where all of it could be
    names, and one of them is `known`, or nearly.
    """
    if known is not None and not (all(map(_is_name, found)) and any(_is_known(name, known) for name in found)):
        return "got another first line"
    others = f" and {len(found) - MOST_NAMED} others" if len(found) > MOST_NAMED else ""
    return f"got {', '.join(found[:MOST_NAMED])}{others}{expect.nearest(lacking, found)}"


def _is_known(name: str, known: Collection[str]) -> bool:
    return bool(difflib.get_close_matches(name.lower(), [each.lower() for each in known], 1, cutoff=0.75))


def _is_name(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return 0 < len(cell) <= LONGEST_NAME and cell.isprintable()
    return False
