"""Whether a study would come out as it lies there: what was asked, the data, and all code that computes it.

Most rules stand in the file of the run whose table they judge, so a rule that is edited there runs its family
of studies again, though no figure would change. Only sources that hold nothing but rules are left out, by name
(`digests.JUDGING`).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tacit.studies.digests import TRAINING, digest
from tacit.studies.registry import STUDIES

COMPUTING = (*TRAINING, "deliver", "bill", "gather", "cleanroom", "toml", "records", "parquet")
"""The rooms whose code any study's figures may depend on."""

APART = {
    "errors": "says what was refused; a run that was refused leaves nothing",
    "private": "writes files for their owner alone, and changes nothing in them",
    "store": "remembers calibrations by the code of privacy and its libraries, and computes none",
    "studies": "counts by family: see _studies",
}
"""The other rooms that studies import, and why their code does not count, or not as a whole."""

SHOWING = frozenset({"__init__", "book", "book_study", "claims", "papers", "registry", "unchanged"})
"""Modules of ours that say what was found, and change nothing of it."""

RULES = "verdicts"
SHOWING_VERDICTS = frozenset({"tacit.studies.label_dp.methods"})
"""Studies whose run looks at the shared rules, to say in its table who won: for them these count."""

_OURS = re.compile(r"\btacit\.studies\.(\w+)")


def fingerprint(name: str, module: str, asked: str, data: Path | None, out: Path) -> str:
    """Sixteen hex digits, others as soon as something changed that a study's figures may depend on.

    `module` is where its code is; `asked` spells out the request; files in `data` count by size and time, but
    for those that studies leave in `out`, should the two be one folder.
    """
    return digest(name, asked, *_files(name, data, out), rooms=(*COMPUTING, *_studies(module)))


def _files(name: str, data: Path | None, out: Path) -> list[str]:
    if data is None:
        return ["made up"]
    found = (place for place in sorted(data.rglob("*")) if place.is_file())
    return [
        f"{place.relative_to(data)} {place.stat().st_size} {place.stat().st_mtime_ns}"
        for place in found
        if not _left_by_us(name, place.resolve(), out.resolve())
    ]


def _left_by_us(name: str, place: Path, out: Path) -> bool:
    """Whether studies left it: in their cache, or beside it under a study's name."""
    return out / "cache" in place.parents or (place.parent == out and place.stem in (name, *STUDIES, "index"))


@cache
def _studies(module: str) -> tuple[str, ...]:
    """What all studies share, the family that a module is in, and the families that it draws on; all families
    for code of others."""
    root = Path(__file__).parent
    shared = {place.stem for place in root.glob("*.py")} - SHOWING
    shared -= set() if module in SHOWING_VERDICTS else {RULES}
    families = {place.parent.name for place in root.glob("*/__init__.py")}
    wanted = {each for each in _OURS.findall(module) if each in families} or families
    reached: set[str] = set()
    while wanted:
        family = wanted.pop()
        reached.add(family)
        sources = (root / family).rglob("*.py")
        named = {each for source in sources for each in _OURS.findall(source.read_text(encoding="utf-8"))}
        wanted |= (named & families) - reached
    return tuple(f"studies/{each}" for each in sorted(shared | reached))
