"""How a file that somebody damaged is read: taken, refused in one line, or a fault of ours."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tacit.cli import _run, parser
from tacit.errors import BadInput, TacitError

SECONDS = 20  # of the wall clock, for a file of a few kilobytes: a hang, not a slow machine
MORE_MEMORY = 3 * 2**29


class Hung(BaseException):
    """Reading took longer than a file of this size can."""


@dataclass(frozen=True)
class Kind:
    """One kind: its file, how it is read, and how an editor would fit JSON to its digest again."""

    file: Path
    read: Callable[[], object]
    fitted: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def problem_with(kind: Kind, content: bytes) -> str | None:
    """What is wrong with how this content is read; None where it is taken, or refused in one line.

    The file is as it was afterwards.
    """
    before = kind.file.read_bytes()
    kind.file.write_bytes(content)
    try:
        with _no_longer_than(SECONDS):
            kind.read()
    except (TacitError, OSError) as refusal:  # what the command line prints in one line, with exit code 2
        if isinstance(refusal, TacitError) and "\n" in str(refusal).strip("\n"):
            return f"several lines: {refusal!r}"
    except OverflowError:  # likewise
        pass
    except (Exception, Hung) as fault:
        return f"{type(fault).__name__}: {fault} at {_where(fault)}"
    finally:
        kind.file.write_bytes(before)
    return None


def run(*arguments: object) -> None:
    """A command, which is done, or refuses in one line and raises what that says."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run(_grammar().parse_args([str(each) for each in arguments]))
    if code == 2:
        assert re.fullmatch(r"tacit [^\n]+\n", err.getvalue()), f"expected one line, got {err.getvalue()!r}"
        raise BadInput(err.getvalue().strip())
    assert code in (0, 1), code


@cache
def _grammar() -> argparse.ArgumentParser:
    """Made once: it takes longer to make than a small file to be read."""
    return parser()


@contextlib.contextmanager
def little_memory(more: int = MORE_MEMORY) -> Iterator[None]:
    """This process may take so many bytes more than it has, so that a length that was made up is noticed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    def end(*_: object) -> None:
        raise Hung(f"no answer in {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _where(fault: BaseException) -> str:
    """The innermost line of tacit's own."""
    at, found = fault.__traceback__, "?"
    while at is not None:
        name = at.tb_frame.f_code.co_filename
        if "/tacit/" in name and "/tests/" not in name:
            found = f"{name.rpartition('/tacit/')[2]}:{at.tb_lineno}"
        at = at.tb_next
    return found
