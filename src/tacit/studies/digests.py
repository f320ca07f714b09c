"""Names for finished work: what was asked for, and the code that did it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import tacit


def digest(*texts: str, rooms: tuple[str, ...]) -> str:
    """Sixteen hex digits; another text or changed code in one of the rooms gives others."""
    spelled = hashlib.sha256(code(rooms).encode())
    for text in texts:
        spelled.update(f"{len(text)}:{text}".encode())
    return spelled.hexdigest()[:16]


@cache
def code(rooms: tuple[str, ...]) -> str:
    """Of the sources of some rooms, so that nothing is taken for what other code would give."""
    root = Path(tacit.__file__).parent
    spelled = hashlib.sha256()
    for room in rooms:
        place = root / room
        sources = sorted(place.rglob("*")) if place.is_dir() else [place.with_suffix(".py")]
        for source in sources:
            if source.suffix in (".py", ".cpp", ".h"):
                content = source.read_bytes()
                spelled.update(f"{source.relative_to(root)} {len(content)} ".encode() + content)
    return spelled.hexdigest()
