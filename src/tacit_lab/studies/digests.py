"""Digests of requests and code: names for finished work, and whether a study would come out the same.

A digest is made of a value spelled out whole and of the code that computes: sources of some packages, compiled
kernels, Python, and the libraries that compute. `fingerprint` is the digest of a whole study: request,
data, and all code that its figures may depend on.

Most rules stand in the file of the run whose table they judge, so a rule that is edited there runs its
family of studies again, though no figure would change. Only sources that hold nothing but rules are left
out, by name (`JUDGING`).
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np

import tacit
import tacit_lab
from tacit import kernels
from tacit.errors import BadInput
from tacit_lab.studies.registry import STUDIES

TRAINING = ("data", "schema", "kernels", "train", "entropy", "expect", "privacy")
"""The packages whose code decides what a training gives."""

LIBRARIES = ("numpy", "scipy", "dp-accounting", "torch")
"""Of others, which compute."""

JUDGING = frozenset({"tacit_lab/studies/verdicts.py", "tacit_lab/studies/semi_sensitive/frontier_verdicts.py"})
"""Sources of rules alone: figures stay when they are edited. They count where one is a package by itself."""

KNOWN_AS = {
    "tacit_lab.studies.gather.setting.Gathering": "tacit.studies.gather.setting.Gathering",
    "tacit_lab.studies.gather.setting.OurNoise": "tacit.studies.gather.setting.OurNoise",
    "tacit_lab.studies.gather.setting.PaperNoise": "tacit.studies.gather.setting.PaperNoise",
    "tacit.gather.estimate.plan.NoiseBy": "tacit.gather.estimate.planning.NoiseBy",
    "tacit.deliver.server.moment_shrinkage.MomentShrinkage": "tacit.deliver.estimates.moments.MomentShrinkage",
}
"""Types that were moved since results were recorded, by what they were called then: the noise of these arms is
drawn from a seed that spells them out."""


def digest(*texts: str, packages: tuple[str, ...]) -> str:
    """Sixteen hex digits; another text, changed code in one of the packages or another library gives others."""
    named = hashlib.sha256(f"{code_digest(packages)}\n{installed_versions()}\n".encode())
    for text in texts:
        named.update(f"{len(text)}:{text}".encode())
    return named.hexdigest()[:16]


def spell_out(value: Any) -> str:
    """All of a value in words that no other value has.

    Unlike `repr`, which shortens long arrays and leaves out what a dataclass does not show. What could not be
    spelled out is refused, since two of it might be taken for one another.
    """
    if isinstance(value, Enum):
        return f"{_type_name(value)}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | Fraction | Decimal):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.dtype.str} {value.shape} {content}"
    if isinstance(value, Path):
        return f"path {str(value)!r}"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{field.name}={spell_out(getattr(value, field.name))}" for field in fields(value))
        return f"{_type_name(value)}({', '.join(parts)})"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} [{', '.join(map(spell_out, value))}]"
    if isinstance(value, set | frozenset):
        return f"set {{{', '.join(sorted(map(spell_out, value)))}}}"
    if isinstance(value, Mapping):
        parts = (f"{spell_out(key)}: {spell_out(each)}" for key, each in value.items())
        return f"mapping {{{', '.join(sorted(parts))}}}"
    raise BadInput(f"expected settings that can be spelled out, got {_type_name(value)}")


def _type_name(value: Any) -> str:
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return KNOWN_AS.get(name, name)


def package_of(value: Any) -> tuple[str, ...]:
    """The module of ours that a value's own code is in, as a package; none for code of others."""
    package, *rest = type(value).__module__.split(".")
    if package == tacit_lab.__name__:
        return ("/".join((package, *rest)),)
    return ("/".join(rest),) if package == tacit.__name__ else ()


@cache
def code_digest(packages: tuple[str, ...]) -> str:
    """Of the sources of some packages, so that nothing is taken for what other code would give.

    A package is a folder or module of tacit, such as `data`, or of the laboratory: `tacit_lab/studies/logs`.
    """
    own, theirs = Path(tacit.__file__).parent, Path(tacit_lab.__file__).parent
    named = hashlib.sha256()
    for package in packages:
        root = theirs.parent if package.startswith(f"{tacit_lab.__name__}/") else own
        place = root / package
        folder = (place / "__init__.py").exists()
        sources = sorted(place.rglob("*")) if folder else [place.with_suffix(".py")]
        for source in sources:
            name = source.relative_to(root).as_posix()
            if source.suffix in (".py", ".cpp", ".h") and (name not in JUDGING or not folder):
                content = source.read_bytes()
                named.update(f"{name} {len(content)} ".encode() + content)
    return named.hexdigest()


@cache
def installed_versions() -> str:
    """Python and the libraries by their versions, the compiled kernels by their bytes: a line for each.

    Nothing is loaded to know it.
    """
    versions = (f"{name} {_version(name)}" for name in LIBRARIES)
    return "\n".join(
        [f"python {platform.python_version()}", *versions, *kernel_digests(map(Path, kernels.__path__))]
    )


def kernel_digests(folders: Iterable[Path]) -> list[str]:
    """The extensions in some folders, each with its digest; where there are none, NumPy computes."""
    found = (place for folder in folders for place in sorted(folder.glob(f"*{EXTENSION_SUFFIXES[-1]}")))
    return [f"{place.name} {hashlib.sha256(place.read_bytes()).hexdigest()}" for place in found]


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"


COMPUTING = (*TRAINING, "deliver", "bill", "gather", "cleanroom", "config", "files", "memory_ledger", "sealing")
"""The packages whose code any study's figures may depend on."""

APART = {
    "arrays": "names types",
    "display": "shows objects to people",
    "errors": "says what was refused; a run that was refused leaves nothing",
    "progress": "says how far the work is",
    "store": "remembers calibrations by the code of privacy and its libraries, and computes none",
    "studies": "counts by family: see _studies",
    "exports": "hands out names that are defined elsewhere, and computes nothing",
}
"""The other packages that studies import, and why their code does not count, or not as a whole."""

SHOWING = frozenset({"__init__", "book", "claims", "registry"})
"""Modules of ours that say what was found, and change nothing of it."""

RULES = "verdicts"
SHOWING_VERDICTS = frozenset({"tacit_lab.studies.label_dp.methods"})
"""Studies whose run looks at the shared rules, to say in its table who won: for them these count."""

_OURS = re.compile(r"\btacit_lab\.studies\.(\w+)")


def fingerprint(name: str, module: str, asked: str, data: Path | None, out: Path) -> str:
    """Sixteen hex digits, others as soon as something changed that a study's figures may depend on.

    `module` is where its code is; `asked` spells out the request; files in `data` count by size and time, but
    for those that studies leave in `out`, should the two be one folder.
    """
    return digest(name, asked, *_files(name, data, out), packages=(*COMPUTING, *_studies(module)))


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
    return tuple(f"tacit_lab/studies/{each}" for each in sorted(shared | reached))
