"""Bad rows of a file: counted, shown by line number, and refused beyond a limit; never dropped silently.

This module stays free of pyarrow: the command line reads its default limit when it builds its parser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tacit import expect
from tacit.errors import TooManyBadRows

SHOWN = 20
DEFAULT_LIMIT = 100


@dataclass(frozen=True)
class BadRow:
    """A bad row: where it is, and what was expected. The value itself may be personal and is never shown."""

    line: int
    column: str
    problem: str

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}" if self.column else f"line {self.line}"
        return f"{where}: {self.problem}"


@dataclass
class BadRows:
    """All bad rows of one file. More than `limit` of them, and the file is refused."""

    place: str
    limit: int = DEFAULT_LIMIT
    count: int = 0
    first: list[BadRow] = field(default_factory=list)
    by_problem: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        expect.whole("the limit of bad rows", self.limit, at_least=0)

    def add(self, rows: Iterable[BadRow]) -> None:
        for row in rows:
            self.count += 1
            self.by_problem[row.column, row.problem] += 1
            if len(self.first) < SHOWN:
                self.first.append(row)
        if self.count > self.limit:
            shown = "; ".join(str(row) for row in self.first[:3])
            raise TooManyBadRows(
                f"{self.place}: expected at most {self.limit} bad rows, got {self.count} so far: {shown}"
            )

    def as_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            "first": [{"line": row.line, "column": row.column, "problem": row.problem} for row in self.first],
            "by_problem": [
                {"column": column, "problem": problem, "count": count}
                for (column, problem), count in self.by_problem.most_common()
            ],
        }
