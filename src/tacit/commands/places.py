"""Places that a command will write to: looked at before the work, and said in one line where they fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tacit.errors import BadInput

ADVICE = {
    errno.EACCES: "choose another place, or give yourself the right to it (chmod, chown)",
    errno.EPERM: "choose another place, or give yourself the right to it (chmod, chown)",
    errno.EROFS: "choose a place on a disk that can be written",
    errno.ENOSPC: "make room there, or choose another place",
    errno.EDQUOT: "make room there, or choose another place",
    errno.ENOTDIR: "a part of that path is a file: choose another place",
    errno.EISDIR: "there is a folder of that name: choose another",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def check_writable(name: str, path: Path) -> None:
    """Refuse a place that a file or folder could not be made at. Nothing is written to find out."""
    above = path.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise BadInput(f"{name}: expected a place below a folder, got {path}: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise BadInput(
            f"{name}: expected a place that can be written, got {path}: {above} is not writable for you; "
            f"{ADVICE[errno.EACCES]}"
        )


def check_folder(name: str, path: Path) -> None:
    """Refuse a folder that files could not be put into, whether it is there already or has to be made."""
    if not path.exists():
        check_writable(name, path)
    elif not path.is_dir():
        raise BadInput(f"{name}: expected a folder, got {path}, which is a file")
    else:
        check_writable(name, path / "file")


def explain_os_error(problem: OSError) -> str:
    """What went wrong at which place, and what to do, without numbers of errors."""
    reason = problem.strerror.lower() if problem.strerror else str(problem)
    place = f"{_text(problem.filename)}: " if problem.filename is not None else ""
    advice = ADVICE.get(problem.errno or 0)
    return f"{place}{reason}" + ("" if advice is None else f"; {advice}")


def _text(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, str | bytes) else str(name)
