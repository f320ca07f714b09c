"""Two made-up studies that take no time, in place of the real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import BadInput
from tacit_lab.studies import registry, results
from tacit_lab.studies.report import write_outcome
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><g id="axes"><text>synthetic</text></g></svg>'
R1 = Claim("R1", "figure 2", "prices rise")
R2 = Claim("R2", "figure 6", "prices rise further", "+3%")
T1 = Claim("T1", "the paper's best", "ours is better")
COMMON: Any = {"minutes": dict.fromkeys(StudyScale, 0.1), "seeds": dict.fromkeys(StudyScale, 2)}


@dataclass
class Measuring:
    """What a tiny study measures; it counts how often, and fails when told to."""

    name: str
    gains: Sequence[float]
    runs: list[StudyRequest] = field(default_factory=list)
    fails: Exception | None = None

    def __call__(self, asked: StudyRequest) -> StudyOutcome:
        self.runs.append(asked)
        asked.progress("measuring", 1, 2)
        if self.fails:
            raise self.fails

        def draw(path: Path, subtitle: str) -> None:
            path.with_name(f"{path.name}.svg").write_text(SVG.replace("synthetic", subtitle), encoding="utf-8")
            path.with_name(f"{path.name}.png").write_bytes(b"")

        return write_outcome(
            self.name,
            asked,
            unit="impression",
            relation="replaced",
            began=0.0,
            data="a log of 9 rows",
            parameters={"markets": list(range(len(self.gains)))},
            table=[{"market": f"market {at}", "gain": gain} for at, gain in enumerate(self.gains)],
            columns=("market", "gain"),
            rows=[(f"market {at}", f"{gain:g}") for at, gain in enumerate(self.gains)],
            draw=draw,
        )


def judge_first(kept: ResultFiles) -> list[Finding]:
    found = []
    for market, gain in zip(kept.table["market"], kept.table["gain"], strict=True):
        assert isinstance(gain, float)
        found.append(Finding(R1, "gain above 0", f"gain {gain}", gain > 0 if gain else None, str(market)))
    return [*found, Finding(T1, "gain above 1", f"gain {kept.table['gain'][0]}", True)]


def judge_second(kept: ResultFiles) -> list[Finding]:
    return [Finding(R2, "gain above 0", f"gain {kept.table['gain'][0]} ± 1%", True)]


class Tiny:
    """The two studies, and the folder that they leave their results in."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.first, self.second = Measuring("choice-tiny", (2.0, -1.0, 0.0)), Measuring("gather-tiny", (3.0,))
        self.studies = {
            "choice-tiny": Study(
                "choice-tiny",
                "Prices",
                "Laro",
                "figure 2",
                (R1, T1),
                **COMMON,
                run=self.first,
                judge=judge_first,
            ),
            "gather-tiny": Study(
                "gather-tiny", "More", "ours", "section 2", (R2,), **COMMON, run=self.second, judge=judge_second
            ),
        }

    def asked(
        self, scale: StudyScale = StudyScale.SMALL, seeds: int = 2, data: Path | None = None
    ) -> StudyRequest:
        return StudyRequest(self.out, scale, seeds, data, processes=1)

    def study(self, name: str) -> Study:
        if name not in self.studies:
            raise BadInput(f"expected a study named {', '.join(self.studies)}, got {name!r}")
        return self.studies[name]


def doctored(out: Path, name: str, /, **changes: Any) -> None:
    """Change a study's record, and write the digest of what it says then, as somebody would who means it; a
    change to None takes the key away."""
    place = out / f"{name}.json"
    record = {**json.loads(place.read_text()), **changes}
    results._replace(place, {key: value for key, value in record.items() if value is not None})


def retabled(out: Path, name: str, content: bytes) -> None:
    """Another table, and the digest of it."""
    (out / f"{name}.csv").write_bytes(content)
    doctored(out, name, table_sha256=sha256(content).hexdigest())


def redrawn(out: Path, name: str, content: bytes) -> None:
    """Another figure, and the digest of it."""
    (out / f"{name}.svg").write_bytes(content)
    doctored(out, name, figures={f"{name}.svg": sha256(content).hexdigest()})


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The registry holds the tiny studies and nothing else."""
    made = Tiny(tmp_path / "out")
    monkeypatch.setattr(registry, "STUDIES", dict.fromkeys(made.studies, ""))
    monkeypatch.setattr(registry, "load_study", made.study)
    return made
