"""What a study is: a figure or table of a paper, run again, with a verdict on each finding it speaks to."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tacit.errors import BadInput
from tacit.expect import Choice


class Scale(Choice):
    """How much work: seconds to see that it runs, minutes on two cores, or hours."""

    TOY = "toy"
    SMALL = "small"
    FULL = "full"


class Track(Protocol):
    """Told how far the work is: what is being done, how much of it is done, and out of how much."""

    def __call__(self, label: str, done: int, total: int) -> None: ...


def untracked(label: str, done: int, total: int) -> None:
    """For whoever does not want to know."""
    del label, done, total


@dataclass(frozen=True)
class Asked:
    """One request for a study. Finished work is kept in `out/cache`: a second request does only the rest.

    `data` is a folder with published files; without it the logs are made up. Seeds are 1, 2, ..., `seeds`.
    """

    out: Path
    scale: Scale = Scale.SMALL
    seeds: int = 3
    data: Path | None = None
    processes: int = 2
    track: Track = field(default=untracked, repr=False)

    @property
    def cache(self) -> Path:
        return self.out / "cache"

    def command(self, name: str) -> str:
        """What anybody would type to ask the same."""
        data = "" if self.data is None else f" --data {shlex.quote(str(self.data))}"
        return f"tacit reproduce {name} --scale {self.scale} --seeds {self.seeds}{data}"

    def refuse_data(self, why: str) -> None:
        """For a study that only a made-up log allows."""
        if self.data is not None:
            raise BadInput(f"expected no --data for this study, got {self.data}: {why}")


@dataclass(frozen=True)
class Finding:
    """A published finding and whether it was seen here. `rule` was written down before looking; `holds` is None
    where this run cannot tell, and `why` says what keeps it from telling where that is not the figures."""

    id: str
    words: str
    rule: str
    seen: str
    holds: bool | None
    why: str = ""

    @property
    def verdict(self) -> str:
        found = {True: "holds", False: "fails", None: "undecided"}[self.holds]
        return f"{found} ({self.why})" if self.why else found

    def as_json(self) -> dict[str, Any]:
        """With the names that every command's list of checks has: name, value, bar, holds."""
        return {
            "name": self.id,
            "finding": self.words,
            "value": self.seen,
            "bar": self.rule,
            "holds": self.holds,
            "why": self.why,
        }


def judged_at(scale: Scale, findings: Sequence[Finding]) -> list[Finding]:
    """The same findings; at toy scale undecided, whatever the figures say."""
    if scale is not Scale.TOY:
        return list(findings)
    return [replace(finding, holds=None, why="toy scale decides nothing") for finding in findings]


@dataclass(frozen=True)
class Outcome:
    """What a study found: a table for people, verdicts, and the files it left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    findings: Sequence[Finding]
    files: Sequence[Path]
    note: str = ""  # what the data was, and over how many seeds


@dataclass(frozen=True)
class Study:
    """A module of `studies` that can be asked for by name.

    Minutes are on two cores with the default seeds, measured at small scale and extrapolated at full.
    """

    name: str
    title: str
    paper: str
    place: str
    claims: Sequence[str]
    minutes: Mapping[Scale, float]
    seeds: Mapping[Scale, int]
    run: Callable[[Asked], Outcome] = field(repr=False)

    def outcome(self, asked: Asked) -> Outcome:
        """Run it. At toy scale nothing is decided, whatever the figures say."""
        found = self.run(asked)
        return replace(found, findings=judged_at(asked.scale, found.findings))
