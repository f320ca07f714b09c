"""Files for their owner alone: what people's data, secrets or bills are written to.

A file is made with its mode, not given it afterwards, so there is no moment at which others could read it; the
umask can only take away from that. What anybody may read (models, statements, keys to seal to) is written the
usual way.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Literal

MODE, FOLDER_MODE, READABLE_MODE = 0o600, 0o700, 0o644
OTHERS = 0o077
"""Permissions that are not the owner's."""


def opened(path: Path, way: Literal["wb", "xb", "ab", "a+b"], *, readable: bool = False) -> BinaryIO:
    """The file, open for writing; one that others could use before is theirs no longer.

    `readable`: everybody may read this one, and nobody else write it.
    """
    mode = READABLE_MODE if readable else MODE
    file = open(path, way, opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
    if os.fstat(file.fileno()).st_mode & OTHERS & ~mode:
        os.fchmod(file.fileno(), mode)
    return file


def make_folder(path: Path) -> None:
    """A new folder, in one that is there or is made as usual."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE)


def make_all_private(folder: Path) -> None:
    """All that is in a private folder, also what a library wrote there in its own way."""
    for each in folder.rglob("*"):
        each.chmod(FOLDER_MODE if each.is_dir() else MODE)
