"""Every claim with what the results in a folder say of it: read from their tables, never typed in.

Results of made-up data and of real data stand side by side: a claim has a verdict of each, and where they
differ the real one counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.errors import BadInput
from tacit_lab.studies.registry import OURS, paper_of_claim
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyScale

RECORDED = Path(__file__).with_name("recorded")
"""The results that come with tacit: NAME.csv and NAME.json of a run of all studies, and in `REAL` those of runs
on published files."""
REAL = "real"

HOLDS, FAILS, UNDECIDED, NOT_TESTED = "holds", "fails", "undecided", "not tested"
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError)
"""What rules stumble over in a table that another version made."""


@dataclass(frozen=True)
class StudyResult:
    """A study as it lies in a folder: not there (`kept` is None), there, or there in a form that cannot be
    read, or not by the rules of this version (`stale` says why). `failed` says why it could not be made again,
    where that was tried just now."""

    study: Study
    kept: ResultFiles | None = None
    findings: Sequence[Finding] = ()
    stale: str = ""
    failed: str = ""

    @property
    def command(self) -> str:
        """What makes it, or makes it again as it was."""
        plain = f"tacit reproduce {self.study.name}"
        return plain if self.kept is None else str(self.kept.settings.get("command", plain))

    @property
    def is_real(self) -> bool:
        """Whether it is of published files that nobody made up."""
        return self.kept is not None and not self.kept.settings["synthetic"]

    @property
    def stale_words(self) -> str:
        """Why it cannot be read, and what to do."""
        return (
            f"{self.study.name}: its table is not what this version reads ({self.stale}); "
            f"run {self.command} --out DIR again"
        )


def read_result(study: Study, folder: Path) -> StudyResult:
    """A table or settings that were edited are refused: nothing that follows from them would be true."""
    if not (folder / f"{study.name}.json").exists():
        return StudyResult(study)
    kept = ResultFiles.of(folder, study.name)
    try:
        return StudyResult(study, kept, study.verdicts(kept))
    except KeyError as missing:
        return StudyResult(study, kept, stale=f"it has no {missing}")
    except _UNREADABLE as problem:
        return StudyResult(study, kept, stale=str(problem) or type(problem).__name__)


def read_results(studies: Iterable[Study], folder: Path) -> list[StudyResult]:
    """All that a folder has of some studies, further cities and its folder of real results among it; a study
    that has nothing there comes once."""
    found: list[StudyResult] = []
    for study in studies:
        cities = [city for city in study.inputs.cities if city]
        places = [base / city for base in (folder, folder / REAL) for city in ("", *cities)]
        there = [place for place in places if (place / f"{study.name}.json").exists()]
        found += [read_result(study, place) for place in there] or [StudyResult(study)]
    return found


def read_result_or_stale(study: Study, folder: Path, failed: str = "") -> StudyResult:
    """For whoever goes on without it: what would be refused is stale, and named."""
    try:
        return replace(read_result(study, folder), failed=failed)
    except (BadInput, OSError) as problem:
        return StudyResult(study, stale=str(problem), failed=failed)


@dataclass(frozen=True)
class Evidence:
    """One finding on a claim, and the study it is from."""

    read: StudyResult
    finding: Finding

    @property
    def words(self) -> str:
        where = self.finding.where
        return f"{where}: {self.finding.seen}" if where else self.finding.seen

    @property
    def data(self) -> str:
        return "" if self.read.kept is None else self.read.kept.words

    @property
    def decider(self) -> str:
        """What would decide a finding that is undecided, as far as data, seeds and scale can."""
        kept, study = self.read.kept, self.read.study
        if self.finding.holds is not None or kept is None:
            return ""
        if self.finding.decider:
            return self.finding.decider
        ways = []
        if kept.settings["synthetic"] and study.inputs.reads:
            ways.append(f"the published log ({' or '.join(study.inputs.reads)}): --data DIR")
        seeds, most = len(kept.settings["seeds"]), study.seeds[StudyScale.FULL]
        if kept.settings["synthetic"] and kept.scale != StudyScale.FULL:
            time = time_words(study.minutes[StudyScale.FULL])
            ways.append(f"--scale full, {most} seed{'s' * (most != 1)}, about {time}")
        elif seeds > 1:
            ways.append(f"more than {seeds} seeds: --seeds {2 * seeds}")
        elif not kept.settings["synthetic"]:
            ways.append("a longer log: its intervals are over people")
        return "; or ".join(ways)


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, all that was found about it, and the studies that speak to it but say nothing there."""

    claim: Claim
    heard: Sequence[Evidence]
    silent: Sequence[StudyResult]

    @property
    def paper_name(self) -> str:
        """The paper's, or that of what is ours."""
        paper = paper_of_claim(self.claim)
        return paper.name if paper else OURS

    def as_json(self) -> list[dict[str, Any]]:
        """One record for each finding; one that says how to make some where there is none."""
        claim = self.claim
        about = {
            "name": claim.id,
            "claim": claim.id,
            "finding": claim.words,
            "paper": self.paper_name,
            "place": claim.place,
            "published": claim.published,
            "claim_verdict": self.verdict,
        }
        if not self.heard:
            could = self.silent[0]
            nothing = dict.fromkeys(("value", "bar", "holds", "data", "synthetic", "decider"))
            how = {"verdict": self.verdict, "where": "", "study": could.study.name, "command": could.command}
            return [{**about, **nothing, **how}]
        return [
            {
                **about,
                **each.finding.as_json(),
                "verdict": each.finding.verdict,
                "data": each.data,
                "synthetic": not each.read.is_real,
                "decider": each.decider,
                "study": each.read.study.name,
                "command": each.read.command,
            }
            for each in self.heard
        ]

    @property
    def missing(self) -> list[StudyResult]:
        """Studies that would say more if they had results there."""
        lacking = [read for read in self.silent if read.kept is None or read.stale]
        return [read for read in lacking if read.stale or not read.study.inputs.alone]

    @cached_property
    def kind(self) -> str:
        """Fails if it fails anywhere, holds if it holds everywhere and no study is missing, not tested where
        nobody looked."""
        if not self.heard:
            return NOT_TESTED
        found = {each.finding.holds for each in self.heard}
        if False in found:
            return FAILS
        return HOLDS if found == {True} and not self.missing else UNDECIDED

    @property
    def verdict(self) -> str:
        """The kind, and how many findings say so where they differ, or studies where some are missing."""
        counted = Counter(each.finding.holds for each in self.heard)
        if self.kind == FAILS and counted[False] < len(self.heard):
            return f"fails on {counted[False]} of {len(self.heard)}"
        if self.kind == UNDECIDED and counted[True]:
            if counted[True] == len(self.heard):
                return f"undecided ({self._so_far})"
            return f"undecided on {counted[None]} of {len(self.heard)}"
        why = self._why
        return f"{self.kind} ({why})" if why else self.kind

    @property
    def by_rule(self) -> list[tuple[str, list[Evidence]]]:
        """Each rule once, with what was found by it, in the order in which they were heard."""
        found: dict[str, list[Evidence]] = {}
        for each in self.heard:
            found.setdefault(each.finding.rule, []).append(each)
        return list(found.items())

    def mark(self, heard: Evidence) -> str:
        """What one finding says, as far as the verdict on the claim leaves that open."""
        if len(self.heard) == 1 and not self.missing:
            return "seen"
        return heard.finding.found if heard.finding.why == self._why else heard.finding.verdict

    @property
    def _why(self) -> str:
        """What all findings have to say of their verdicts, if it is one thing."""
        whys = {each.finding.why for each in self.heard}
        return whys.pop() if len(whys) == 1 else ""

    @property
    def _so_far(self) -> str:
        """It holds wherever it was looked at: holds in 1 of 4 studies, 2 not run, 1 not readable."""
        studies = {each.read.study.name for each in self.heard}
        stale = sum(bool(read.stale) for read in self.missing)
        lacking = {"not run": len(self.missing) - stale, "not readable": stale}
        return f"holds in {len(studies)} of {len(studies) + len(self.missing)} studies, " + ", ".join(
            f"{count} {how}" for how, count in lacking.items() if count
        )


def judge_claims(reads: Iterable[StudyResult]) -> list[ClaimVerdict]:
    """The claims of all studies, each once, in the order of their ids."""
    claims: dict[str, Claim] = {}
    heard: dict[str, list[Evidence]] = {}
    silent: dict[str, list[StudyResult]] = {}
    for read in reads:
        found = [Evidence(read, finding) for finding in read.findings]
        for claim in (*read.study.claims, *(each.finding.claim for each in found)):
            claims.setdefault(claim.id, claim)
        for each in found:
            heard.setdefault(each.finding.claim.id, []).append(each)
        for claim in read.study.claims:
            if claim.id not in {each.finding.claim.id for each in found}:
                silent.setdefault(claim.id, []).append(read)
    return [
        ClaimVerdict(claims[name], tuple(heard.get(name, ())), tuple(silent.get(name, ())))
        for name in sorted(claims, key=_order)
    ]


@dataclass(frozen=True)
class ClaimColumns:
    """A claim by made-up data and by real data; where no real data speaks of it, nothing is heard there."""

    made_up: ClaimVerdict
    real: ClaimVerdict

    @property
    def claim(self) -> Claim:
        return self.made_up.claim

    @property
    def paper_name(self) -> str:
        return self.made_up.paper_name

    @property
    def verdict(self) -> str:
        """Both, where real data speaks."""
        if not self.real.heard:
            return self.made_up.verdict
        return (
            f"{self.real.verdict} on real data"
            if not self.made_up.heard
            else (f"{self.made_up.verdict} made up, {self.real.verdict} on real data")
        )

    @property
    def agreement(self) -> str:
        """Whether made-up and real data say the same; empty where one of them says nothing."""
        if not self.real.heard or not self.made_up.heard:
            return ""
        if self.made_up.kind == self.real.kind:
            return "agree"
        if UNDECIDED in (self.made_up.kind, self.real.kind):
            return "open"
        return "differ"

    def as_json(self) -> list[dict[str, Any]]:
        """A record for each finding, those of real data last; each says whether the two agree."""
        made_up = self.made_up.as_json() if self.made_up.heard or not self.real.heard else []
        real = self.real.as_json() if self.real.heard else []
        return [{**record, "agreement": self.agreement} for record in (*made_up, *real)]


def judge_columns(reads: Sequence[StudyResult]) -> list[ClaimColumns]:
    """Every claim by both kinds of data. Of real data only what was run is asked for: most studies make up what
    no published log has."""
    real = [read for read in reads if read.is_real]
    run = {read.study.name for read in reads if not read.is_real}
    lacking = {read.study.name: StudyResult(read.study) for read in real if read.study.name not in run}
    made_up = judge_claims([*(read for read in reads if not read.is_real), *lacking.values()])
    heard = {each.claim.id: each for each in judge_claims(real)}
    return [
        ClaimColumns(each, replace(heard[each.claim.id], silent=()))
        if each.claim.id in heard and heard[each.claim.id].heard
        else ClaimColumns(each, ClaimVerdict(each.claim, (), ()))
        for each in made_up
    ]


def time_words(minutes: float) -> str:
    """About how long: < 1 min, 4 min, 5 h."""
    if minutes < 1:
        return "< 1 min"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def tally(judged: Sequence[ClaimVerdict]) -> str:
    """How many of each, in words: 31 hold, 1 fails, 9 undecided, 15 not tested."""
    counted = Counter(each.kind for each in judged)
    several = {HOLDS: "hold", FAILS: "fail"}
    return ", ".join(
        f"{counted[kind]} {kind if counted[kind] == 1 else several.get(kind, kind)}"
        for kind in (HOLDS, FAILS, UNDECIDED, NOT_TESTED)
    )


def _order(name: str) -> tuple[str, int]:
    """R2 before R10."""
    letters, digits = re.fullmatch(r"(\D*)(\d*)", name).groups()  # type: ignore[union-attr]
    return letters, int(digits or 0)
