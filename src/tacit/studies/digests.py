"""Names for finished work: what was asked for, spelled out whole, and the code that did it.

The code is the sources of some rooms, the compiled kernels, Python, and the libraries that compute.
"""

from __future__ import annotations

import hashlib
import platform
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
from tacit import kernels
from tacit.errors import BadInput

TRAINING = ("data", "schema", "kernels", "train", "entropy", "expect", "privacy")
"""The rooms whose code decides what a training gives."""

LIBRARIES = ("numpy", "scipy", "dp-accounting", "torch")
"""Of others, which compute."""

JUDGING = frozenset({"studies/verdicts.py", "studies/semi_sensitive/frontier_verdicts.py"})
"""Sources of rules alone: figures stay when they are edited. They count where one is a room by itself."""


def digest(*texts: str, rooms: tuple[str, ...]) -> str:
    """Sixteen hex digits; another text, changed code in one of the rooms or another library gives others."""
    named = hashlib.sha256(f"{code(rooms)}\n{installed()}\n".encode())
    for text in texts:
        named.update(f"{len(text)}:{text}".encode())
    return named.hexdigest()[:16]


def spelled(value: Any) -> str:
    """All of a value in words that no other value has.

    Unlike `repr`, which shortens long arrays and leaves out what a dataclass does not show. What could not be
    spelled out is refused, since two of it might be taken for one another.
    """
    if isinstance(value, Enum):
        return f"{_kind(value)}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | Fraction | Decimal):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.dtype.str} {value.shape} {content}"
    if isinstance(value, Path):
        return f"path {str(value)!r}"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{field.name}={spelled(getattr(value, field.name))}" for field in fields(value))
        return f"{_kind(value)}({', '.join(parts)})"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} [{', '.join(map(spelled, value))}]"
    if isinstance(value, set | frozenset):
        return f"set {{{', '.join(sorted(map(spelled, value)))}}}"
    if isinstance(value, Mapping):
        parts = (f"{spelled(key)}: {spelled(each)}" for key, each in value.items())
        return f"mapping {{{', '.join(sorted(parts))}}}"
    raise BadInput(f"expected settings that can be spelled out, got {_kind(value)}")


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def room_of(value: Any) -> tuple[str, ...]:
    """The module of ours that a value's own code is in, as a room; none for code of others."""
    package, *rest = type(value).__module__.split(".")
    return ("/".join(rest),) if package == tacit.__name__ else ()


@cache
def code(rooms: tuple[str, ...]) -> str:
    """Of the sources of some rooms, so that nothing is taken for what other code would give."""
    root = Path(tacit.__file__).parent
    named = hashlib.sha256()
    for room in rooms:
        place = root / room
        sources = sorted(place.rglob("*")) if place.is_dir() else [place.with_suffix(".py")]
        for source in sources:
            name = source.relative_to(root).as_posix()
            if source.suffix in (".py", ".cpp", ".h") and (name not in JUDGING or not place.is_dir()):
                content = source.read_bytes()
                named.update(f"{name} {len(content)} ".encode() + content)
    return named.hexdigest()


@cache
def installed() -> str:
    """Python and the libraries by their versions, the compiled kernels by their bytes: a line for each.

    Nothing is loaded to know it.
    """
    versions = (f"{name} {_version(name)}" for name in LIBRARIES)
    return "\n".join([f"python {platform.python_version()}", *versions, *compiled(map(Path, kernels.__path__))])


def compiled(folders: Iterable[Path]) -> list[str]:
    """The extensions in some folders, each with its digest; where there are none, NumPy computes."""
    found = (place for folder in folders for place in sorted(folder.glob(f"*{EXTENSION_SUFFIXES[-1]}")))
    return [f"{place.name} {hashlib.sha256(place.read_bytes()).hexdigest()}" for place in found]


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"
