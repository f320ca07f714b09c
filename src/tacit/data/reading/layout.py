"""The layout of a log file: separator, encoding, columns and cell types, and how cells are parsed as numbers.

pyarrow parses plain digits. Numbers spelled another way (1.0, true, 2024-01-31T12:00:00Z) and ids longer than
64 bits are parsed here from text, into the same numbers. Text that is still no number raises
`pa.ArrowInvalid`, as pyarrow does.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from tacit import expect
from tacit.errors import BadInput
from tacit.expect import Choice


class CellType(Choice):
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
    """The character encoding of a text file."""

    UTF8 = "utf-8"
    LATIN1 = "latin-1"
    WINDOWS = "windows-1252"


# Text is checked to be UTF-8 and kept as bytes: a value is a token.
ARROW_TYPE = {CellType.TEXT: pa.string(), CellType.REAL: pa.float64()} | dict.fromkeys(
    (CellType.WHOLE, CellType.FLAG, CellType.TIME, CellType.ID), pa.int64()
)
EXPECTED = {
    CellType.TEXT: "a text",
    CellType.WHOLE: "a whole number",
    CellType.REAL: "a number",
    CellType.LIST: "a list",
    CellType.FLAG: "0 or 1, or true or false",
    CellType.TIME: "seconds since 1970, or a date and time such as 2024-01-31T12:00:00Z",
    CellType.ID: "a whole number",
}
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
MOST_NAMED = 40
LONGEST_NAME = 64


@dataclass(frozen=True)
class FileLayout:
    """The columns of a file and their raw types, and how a text file separates them.

    With a header the order is the file's own; `aliases` maps other spellings in it to ours, and columns that
    are not listed are passed over. Without one, `columns` is the order. A Parquet file needs the names only.
    """

    columns: Mapping[str, CellType]
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

    def decode(self, lines: bytes, place: str, first_line: int) -> str:
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
        """What a refusal of other bytes advises."""
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


WHOLE_PATTERN = r"^[+-]?[0-9]+$"
ZEROS_PATTERN = r"^([+-]?[0-9]+)\.0*$"
ZONE_PATTERN = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
PLAIN_PATTERN = re.compile(r"-?[0-9]{1,18}")
MICROSECONDS = pa.timestamp("us")


def parse_numbers(raw: CellType, texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    """These texts as whole numbers; ids of which one is longer than 64 bits as their digits, all of them.

    A word for missing means the same with zeros behind it: -1.0 where -1 is one.
    """
    spelled = pc.replace_substring_regex(texts, ZEROS_PATTERN, r"\1")
    spelled = pc.if_else(pc.is_in(spelled, value_set=pa.array(missing, pa.string())), None, spelled)
    spelled = pc.replace_substring_regex(pc.utf8_trim_whitespace(spelled), ZEROS_PATTERN, r"\1")
    if raw is CellType.FLAG:
        lower = pc.utf8_lower(spelled)
        spelled = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(pc.equal(lower, "false"), "0", spelled))
    if raw is CellType.TIME:
        return _parse_times(spelled)
    if raw is CellType.ID:
        return _parse_ids(spelled)
    return spelled.cast(pa.int64())


def epoch_seconds(times: pa.Array) -> pa.Array:
    """Timestamps of any unit and zone, and dates, as whole seconds since the epoch, rounded down.

    A time without a zone is taken to be in UTC.
    """
    if pa.types.is_timestamp(times.type):
        return pc.floor_temporal(times.cast(pa.timestamp(times.type.unit)), unit="second").cast(
            pa.timestamp("s")
        ).cast(pa.int64())  # fmt: skip
    if pa.types.is_date(times.type):
        return times.cast(pa.timestamp("s")).cast(pa.int64())
    raise pa.ArrowInvalid("a time of day, or a stretch of time, is no moment")


def nulls_for_missing(array: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Null where the value is one of the words for missing."""
    if pa.types.is_binary(array.type):
        words = pa.array([word.encode() for word in missing], pa.binary())
    elif pa.types.is_int64(array.type):
        words = pa.array([int(word) for word in missing if PLAIN_PATTERN.fullmatch(word)], pa.int64())
    elif pa.types.is_float64(array.type):
        words = pa.array([float(word) for word in missing if PLAIN_PATTERN.fullmatch(word)], pa.float64())
    else:
        return array
    if not len(words):
        return array
    found = pc.is_in(array, value_set=words)
    return pc.if_else(found, None, array) if pc.any(found).as_py() else array


def _parse_times(spelled: pa.Array) -> pa.Array:
    plain = pc.match_substring_regex(spelled, WHOLE_PATTERN)
    whole = pc.if_else(plain, spelled, None).cast(pa.int64())
    moments = pc.if_else(plain, None, spelled)
    if moments.null_count == len(moments):
        return whole
    moments = pc.replace_substring_regex(moments, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(moments, r"[T ].*" + ZONE_PATTERN)
    here = pc.if_else(zoned, None, moments).cast(MICROSECONDS)
    elsewhere = pc.if_else(zoned, moments, None).cast(pa.timestamp("us", "UTC")).cast(MICROSECONDS)
    return pc.coalesce(whole, epoch_seconds(pc.coalesce(here, elsewhere)))


def _parse_ids(spelled: pa.Array) -> pa.Array:
    try:
        return spelled.cast(pa.int64())
    except pa.ArrowInvalid:
        if not pc.all(pc.match_substring_regex(spelled, WHOLE_PATTERN)).as_py():  # nulls apart
            raise
    digits = pc.replace_substring_regex(spelled, r"^(-?)\+?0*([0-9]+)$", r"\1\2")
    return pc.if_else(pc.equal(digits, "-0"), "0", digits).cast(pa.binary())
