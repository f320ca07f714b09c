"""Log lines of the services: one line per error, without private values or passwords.

A line that repeats itself is written once, and then once per minute with how often it came since. Lines are
text, or one JSON object each:

    {"time": "2026-11-18T10:30:00Z", "level": "error", "party": "proxy", "message": "...", "times": 12}
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
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


TIMES = "tacit_times"
"""The attribute of a record that stands for several: how many."""


class TextFormatter(logging.Formatter):
    """A line of text, which shows no password, whoever writes it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        line = expect.without_passwords(super().format(record))
        times = getattr(record, TIMES, 1)
        return line if times == 1 else f"{line} ({times} times more)"


class JsonFormatter(logging.Formatter):
    """A line that is one JSON object, for those who collect logs; it shows no password either."""

    def __init__(self, party: str) -> None:
        super().__init__()
        self._party = party

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "party": self._party,
            "message": expect.without_passwords(record.getMessage()),
        }
        if record.exc_info and record.exc_info[1] is not None:
            said["error"] = error_line(record.exc_info[1])
        times = getattr(record, TIMES, 1)
        return json.dumps(said if times == 1 else {**said, "times": times}, ensure_ascii=False)


FOLD_SECONDS = 60.0
MOST_FOLDED = 256  # different lines that are remembered


class _Folded:
    """A line that was written, and what came of it since."""

    def __init__(self, record: logging.LogRecord, since: float) -> None:
        self.record, self.since, self.times = record, since, 0


class FoldingHandler(logging.Handler):
    """Hands lines on to another handler, those that repeat within a minute as one with their number.

    What is held back is written when its minute is over and anything else is logged, or when the process ends:
    `logging` flushes all handlers then.
    """

    def __init__(self, inner: logging.Handler, timer: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._inner, self._timer = inner, timer
        self._seen: OrderedDict[tuple[int, str], _Folded] = OrderedDict()
        self._turn = threading.RLock()

    def emit(self, record: logging.LogRecord) -> None:
        key, now = (record.levelno, record.getMessage()), self._timer()
        with self._turn:
            self._tell(lambda each: now - each.since >= FOLD_SECONDS)
            folded = self._seen.get(key)
            if folded is not None:
                folded.times, folded.record = folded.times + 1, record
                return
            if len(self._seen) >= MOST_FOLDED:
                self._write(self._seen.popitem(last=False)[1])
            self._seen[key] = _Folded(record, now)
            self._inner.handle(record)

    def flush(self) -> None:
        """Write what was held back, now; nothing where its stream is closed already."""
        if getattr(getattr(self._inner, "stream", None), "closed", False):
            return
        with self._turn:
            self._tell(lambda _each: True)
        self._inner.flush()

    def _tell(self, is_over: Callable[[_Folded], bool]) -> None:
        for key, folded in [(key, each) for key, each in self._seen.items() if is_over(each)]:
            del self._seen[key]
            self._write(folded)

    def _write(self, folded: _Folded) -> None:
        if folded.times:
            setattr(folded.record, TIMES, folded.times)
            self._inner.handle(folded.record)


def configure_logging(ours: logging.Logger, form: str = "text", party: str = "") -> None:
    """Our own lines from INFO, everybody else's from WARNING, to stderr, in one of two forms: text or json."""
    stderr = logging.StreamHandler(sys.stderr)
    stderr.setFormatter(JsonFormatter(party) if form == "json" else TextFormatter())
    handler = FoldingHandler(stderr)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    ours.setLevel(logging.INFO)
