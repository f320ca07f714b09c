"""Starts parties quickly: loads all code once, then forks a process for each. A line in, a line out:

ready                          ->  0
start proxy SETTINGS OUT ERR   ->  the new process's id
start ads SETTINGS OUT ERR REVISIONS   ->  the same, of a release that has one more revision, of this folder
wait PID                       ->  its exit code, negative for a signal

The file that it is given says by how many seconds the clock of all these processes is ahead: the time at which
a round closes comes when a test says so, and nobody waits for it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from tacit.cli import main
from tacit.services import billing_launch, launch  # all that a party needs is loaded here
from tacit.store import billing_ads
from tests.support.service_processes import clock_of


def start(party: str, settings: str, out: str, errors: str, revisions: str = "") -> int:
    process = os.fork()
    if process:
        return process
    if revisions:
        known = billing_ads.SCHEMA
        billing_ads.SCHEMA = replace(known, head="later", folders=(*known.folders, Path(revisions)))
    for stream, path in ((0, os.devnull), (1, out), (2, errors)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), stream)
    code = 70
    try:
        code = main(["serve", party, settings])
        sys.stdout.flush()
    finally:
        os._exit(code)


def serve_lines() -> None:
    assert billing_launch, "it is loaded"
    launch.clock = clock_of(Path(sys.argv[1]))
    for line in sys.stdin:
        match line.split():
            case ["ready"]:
                print(0, flush=True)
            case ["start", *words]:
                print(start(*words), flush=True)
            case ["wait", process]:
                print(os.waitstatus_to_exitcode(os.waitpid(int(process), 0)[1]), flush=True)


if __name__ == "__main__":  # and not when its docstrings are looked at for examples
    serve_lines()
