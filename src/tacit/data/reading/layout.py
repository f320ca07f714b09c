"""How a published file is laid out: its separator, its columns and what stands for a missing value."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa

from tacit.errors import BadInput
from tacit.expect import Choice


class Raw(Choice):
    """What a cell of the file holds."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"
    LIST = "list"  # Parquet only


# Text is read as bytes: a value is a token, and need not be valid in any encoding.
ARROW_TYPE = {Raw.TEXT: pa.binary(), Raw.WHOLE: pa.int64(), Raw.REAL: pa.float64()}
EXPECTED = {Raw.TEXT: "a text", Raw.WHOLE: "a whole number", Raw.REAL: "a number", Raw.LIST: "a list"}


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

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or len(self.separator) != 1:
            raise BadInput(f"expected a separator of one character, got {self.separator!r}")

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
