"""What went wrong, for a log: one line, without a private value."""

from __future__ import annotations

import traceback
from pathlib import PurePath

from tacit.errors import TacitError


def in_one_line(error: BaseException) -> str:
    """What went wrong and where; our own errors in their words, which hold no private value, others by kind."""
    if isinstance(error, TacitError):
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tacit" in PurePath(frame.filename).parts] or frames
    where = f" at {PurePath(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"unexpected {type(error).__name__}{where}"
