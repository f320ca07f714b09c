"""Log lines of the services: one line per error, without private values or passwords."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import PurePath

from tacit import expect
from tacit.errors import TacitError


def error_line(error: BaseException) -> str:
    """What went wrong and where; our own errors in their words, which hold no private value, others by kind."""
    if isinstance(error, TacitError):
        words = expect.without_passwords(str(error))
        return f"{type(error).__name__}: {words.splitlines()[0] if words else ''}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tacit" in PurePath(frame.filename).parts] or frames
    where = f" at {PurePath(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"unexpected {type(error).__name__}{where}"


class PasswordFreeFormatter(logging.Formatter):
    """Shows no password, whoever writes the line."""

    def format(self, record: logging.LogRecord) -> str:
        return expect.without_passwords(super().format(record))


def configure_logging(ours: logging.Logger) -> None:
    """Our own lines from INFO, everybody else's from WARNING, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PasswordFreeFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    ours.setLevel(logging.INFO)
