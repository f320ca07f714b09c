"""Starts parties of a clean room quickly: loads all code once, then forks. A line in, a line out:

ready                      ->  0
start OUT ERR WORD ...     ->  the new process's id; it runs `tacit room WORD ...`
wait PID                   ->  its exit code, negative for a signal; 1000 if it does not end in a minute
"""

from __future__ import annotations

import os
import sys
import time
from fractions import Fraction

from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.terms import Terms
from tacit.cli import main
from tacit.services.room import operation, platform_run  # noqa: F401 (all that either party needs is loaded here)

PATIENCE_SECONDS, STILL_RUNNING = 60, 1000


def start(out: str, errors: str, words: list[str]) -> int:
    process = os.fork()
    if process:
        return process
    for stream, path in ((0, os.devnull), (1, out), (2, errors)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), stream)
    code = 70
    try:
        code = main(["room", *words])
        sys.stdout.flush()
    finally:
        os._exit(code)


def waited_for(process: int) -> int:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return STILL_RUNNING


def think_ahead() -> None:
    """How much noise the noised trial needs takes seconds to find out: once, here, and not in every process."""
    terms = Terms(
        name="trial",
        platform="platform",
        room="room",
        platform_key="0" * 64,
        room_key="1" * 64,
        begins=0,
        expires=1,
        mode=Mode.NOISED,
        delta=Fraction(1, 10**6),
        releases_per_record=3,
    )
    assert terms.noise_multiplier > 0
    assert terms.statement().epsilon > 0


def serve_lines() -> None:
    think_ahead()
    for line in sys.stdin:
        match line.split():
            case ["ready"]:
                print(0, flush=True)
            case ["start", out, errors, *words]:
                print(start(out, errors, words), flush=True)
            case ["wait", process]:
                print(waited_for(int(process)), flush=True)


if __name__ == "__main__":  # and not when its docstrings are looked at for examples
    serve_lines()
