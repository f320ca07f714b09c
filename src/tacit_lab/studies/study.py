"""What a study is: a figure or table of a paper, run again, with a verdict on each finding it speaks to.

`StudyRequest` is what somebody asks for, `Study` what can be asked for by name, `StudyOutcome` what it
leaves. A `Claim` is a published finding in our words, a `Finding` what one table says of it by a rule that
was fixed before the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.progress import Progress, no_progress
from tacit_lab.studies.digests import fingerprint
from tacit_lab.studies.published import exact_file, has_file, published_file
from tacit_lab.studies.results import ResultFiles, complete_result


class StudyScale(Choice):
    """How much work: seconds to see that it runs, minutes on two cores, or hours."""

    TOY = "toy"
    SMALL = "small"
    FULL = "full"


@dataclass(frozen=True)
class StudyRequest:
    """One request for a study. Finished work is kept in `out/cache`: a second request does only the rest.

    `data` is a folder with published files; without it the logs are made up. `public_keys` are keys of theirs
    that their log takes for sensitive, and that whoever asks states to be public; `city` is which of several
    logs of visits is meant. Seeds are 1, 2, ..., `seeds`.
    """

    out: Path
    scale: StudyScale = StudyScale.SMALL
    seeds: int = 3
    data: Path | None = None
    public_keys: tuple[str, ...] = ()
    city: str = ""
    processes: int = 2
    progress: Progress = field(default=no_progress, repr=False)

    @property
    def cache(self) -> Path:
        return self.out / "cache"

    def command(self, name: str) -> str:
        """What anybody would type to ask the same."""
        data = "" if self.data is None else f" --data {shlex.quote(str(self.data))}"
        data += "".join(f" --public-key {key}" for key in self.public_keys)
        return f"tacit reproduce {name} --scale {self.scale} --seeds {self.seeds}{data}"

    def refuse_data(self, why: str) -> None:
        """For a study that only a made-up log allows."""
        if self.data is not None:
            raise BadInput(f"expected no --data for this study, got {self.data}: {why}")


@dataclass(frozen=True)
class Claim:
    """A finding as its paper has it, in our words; or one of our own, whose id starts with T.

    `place` is where the paper says so (for ours: what it is held against), `published` the figure that it
    prints, or "direction" where it claims no more than that.
    """

    id: str
    place: str
    words: str
    published: str = "direction"

    @property
    def ours(self) -> bool:
        return self.id.startswith("T")


@dataclass(frozen=True)
class Finding:
    """A claim and whether it was seen here. `rule` was fixed before this run, when earlier trials were known;
    `holds` is None where this run cannot tell. `why` says what keeps it from telling where that is not the
    figures, and how little holding says where the rule asks for little. `where` names the part of the study's
    data that it is about, if not all of it. `decider` says what would decide one that is undecided, where it is
    not more seeds or rows."""

    claim: Claim
    rule: str
    seen: str
    holds: bool | None
    where: str = ""
    why: str = ""
    decider: str = ""

    @property
    def found(self) -> str:
        return {True: "holds", False: "fails", None: "undecided"}[self.holds]

    @property
    def verdict(self) -> str:
        return f"{self.found} ({self.why})" if self.why else self.found

    def as_json(self) -> dict[str, Any]:
        """With the names that every command's list of checks has: name, value, bar, holds."""
        return {
            "name": self.claim.id,
            "finding": self.claim.words,
            "place": self.claim.place,
            "published": self.claim.published,
            "where": self.where,
            "value": self.seen,
            "bar": self.rule,
            "holds": self.holds,
            "why": self.why,
        }


@dataclass(frozen=True)
class StudyOutcome:
    """What a study found: a table for people, the files it left, and the verdicts on them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    files: Sequence[Path]
    note: str = ""  # what the data was, and over how many seeds
    findings: Sequence[Finding] = ()
    kept: bool = False  # nothing had changed since it was run, so it was read back


@dataclass(frozen=True)
class StudyInputs:
    """What of a folder of published files a study can take.

    reads    the logs, any of which allows it; none: it makes its own up
    cities   of logs of visits: the names of each city's file. A further city has results in a folder of its own
    minutes  on two cores, with the files in circulation
    least    bytes of a file that is more than a sample
    key      the key that units go by, which the search log takes for sensitive
    alone    published files decide: made up it only shows that it runs, and its claims lack nothing without
    """

    reads: Sequence[str] = ()
    cities: Mapping[str, Sequence[str]] = field(default_factory=dict)
    minutes: Mapping[StudyScale, float] = field(default_factory=dict)
    least: int = 0
    key: str = ""
    alone: bool = False

    def lacking(self, data: Path, public_keys: Sequence[str]) -> str:
        """Why the files of a folder do not allow the study; empty where they do, or where only trying tells."""
        if not self.reads:
            return ""
        folders = any((data / name).is_dir() for name in self.reads)
        there = [published_file(data, name) for name in self.reads if has_file(data, name)]
        if not there and not folders:
            return f"it needs {' or '.join(self.reads)}, which {data} has not"
        if not folders and all(place.stat().st_size < self.least for place in there):
            return f"it needs more than a sample, which {there[0].name} is"
        stated = self.key in public_keys or not self.key or has_file(data, self.reads[0])
        return "" if stated else f"its units need a public {self.key}: state it by --public-key {self.key}"


MADE_UP_ALONE = StudyInputs()


def no_claims(kept: ResultFiles) -> Sequence[Finding]:
    """For a study that only shows."""
    del kept
    return ()


@dataclass(frozen=True)
class Study:
    """A module of `studies` that can be asked for by name.

    `run` measures and leaves NAME.csv, .svg, .png and .json; `judge` looks at the table that was left, so a
    verdict can be read again by anybody who has it. Minutes are on two cores with the default seeds, measured
    at small scale and extrapolated at full.
    """

    name: str
    title: str
    paper: str
    place: str
    claims: Sequence[Claim]
    minutes: Mapping[StudyScale, float]
    seeds: Mapping[StudyScale, int]
    run: Callable[[StudyRequest], StudyOutcome] = field(repr=False)
    judge: Callable[[ResultFiles], Sequence[Finding]] = field(default=no_claims, repr=False)
    inputs: StudyInputs = MADE_UP_ALONE

    def requests(self, asked: StudyRequest) -> list[StudyRequest]:
        """What was asked; where it is about visits, one for each city whose log is in the folder."""
        if asked.data is None or not self.inputs.cities:
            return [asked]
        data = asked.data
        there = [
            city
            for city, names in self.inputs.cities.items()
            if any(exact_file(data, name) is not None for name in names)
        ]
        return [replace(asked, city=city, out=asked.out / city) for city in there] or [asked]

    def minutes_of(self, scale: StudyScale, data: Path | None) -> float:
        """About how long it takes, made up or on the files in circulation."""
        return self.minutes.get(scale, 0.0) if data is None else self.inputs.minutes.get(scale, 0.0)

    def outcome(self, asked: StudyRequest) -> StudyOutcome:
        """Run it, or read it back where nothing has changed since, and judge what lies there."""
        mark = self._fingerprint(asked)
        found = self._find_unchanged(asked.out, mark)
        if found is None:
            found = self.run(asked)
            shown = {
                "columns": list(found.columns),
                "rows": [list(row) for row in found.rows],
                "note": found.note,
                "files": [str(file.relative_to(asked.out)) for file in found.files],
            }
            complete_result(asked.out, self.name, shown=shown, fingerprint=mark)
        return replace(found, findings=self.findings(asked.out))

    def findings(self, folder: Path) -> list[Finding]:
        """Verdicts on the table in a folder."""
        return self.verdicts(ResultFiles.of(folder, self.name))

    def verdicts(self, kept: ResultFiles) -> list[Finding]:
        """What a table says. At toy scale nothing is decided, whatever the figures are."""
        found = self.judge(kept)
        if StudyScale(kept.scale) is not StudyScale.TOY:
            return list(found)
        return [replace(each, holds=None, why="toy scale decides nothing") for each in found]

    def _fingerprint(self, asked: StudyRequest) -> str:
        keys = f", public keys {', '.join(asked.public_keys)}" if asked.public_keys else ""
        city = f", {asked.city}" if asked.city else ""
        request = f"{asked.scale} scale, {asked.seeds} seeds{keys}{city}"
        return fingerprint(self.name, getattr(self.run, "__module__", ""), request, asked.data, asked.out)

    def _find_unchanged(self, folder: Path, mark: str) -> StudyOutcome | None:
        """What lies there, if it is whole and a run would give the same."""
        try:
            kept = ResultFiles.of(folder, self.name)
        except (BadInput, OSError):
            return None
        shown = kept.settings.get("shown")
        if kept.settings.get("fingerprint") != mark or not shown or not kept.has_figures(folder):
            return None
        files = [folder / name for name in shown["files"]]
        if not all(file.exists() for file in files):
            return None
        return StudyOutcome(shown["columns"], shown["rows"], files, shown["note"], kept=True)
