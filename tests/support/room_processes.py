"""Both parties of a clean room as processes of their own; every one is ended by its id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.repository import ROOT

PATIENCE_SECONDS, STILL_RUNNING = 60, 1000  # as the launcher has them


class Launcher:
    """The process that all others are forked from; see `room_launcher`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.room_launcher"]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread, cwd=ROOT
        )

    def told(self, *words: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=PATIENCE_SECONDS)


class Running:
    """The processes of one trial, and what they said."""

    def __init__(self, launcher: Launcher, folder: Path) -> None:
        self._launcher, self.folder = launcher, folder
        self._alive: dict[str, int] = {}
        self._said = 0

    @property
    def room_settings(self) -> Path:
        return self.folder / "room/room.toml"

    @property
    def platform_settings(self) -> Path:
        return self.folder / "platform/platform.toml"

    def serve(self) -> None:
        """Start the room, and wait until it says that it listens."""
        before = self.out("serve").count("listens")
        self._start("serve", self.room_settings)
        until(lambda: self.out("serve").count("listens") > before, lambda: self.err("serve"))

    def train(self) -> None:
        self._start("train", self.platform_settings, "--json")

    def _start(self, action: str, *words: object) -> None:
        places = (self._place(action, "out"), self._place(action, "err"))
        self._alive[action] = self._launcher.told("start", *places, action, *words)

    def kill(self, action: str) -> None:
        """As a power cut would: nothing is said, nothing is put in order."""
        process = self._alive.pop(action)
        os.kill(process, signal.SIGKILL)
        code = self._launcher.told("wait", process)
        assert code == -signal.SIGKILL, (action, code, self.out(action), self.err(action))

    def ask_to_end(self, action: str) -> int:
        os.kill(self._alive[action], signal.SIGTERM)
        return self._ended(action)

    def _ended(self, action: str) -> int:
        """The exit code; a process that does not end stays with those that `end` kills."""
        code = self._launcher.told("wait", self._alive[action])
        assert code != STILL_RUNNING, (action, self.out(action), self.err(action))
        del self._alive[action]
        return code

    def finish(self, action: str) -> dict[str, Any]:
        """Wait for the process's own end; what it printed, as JSON."""
        code = self._ended(action)
        assert code == 0, (code, self.err(action))
        found: dict[str, Any] = json.loads(self.out(action))
        return found

    def end(self) -> None:
        for process in list(self._alive.values()):
            os.kill(process, signal.SIGKILL)
            self._launcher.told("wait", process)

    def _place(self, action: str, kind: str) -> Path:
        return self.folder / f"{action}.{kind}"

    def out(self, action: str) -> str:
        place = self._place(action, "out")
        return place.read_text() if place.exists() else ""

    def err(self, action: str) -> str:
        place = self._place(action, "err")
        return place.read_text() if place.exists() else ""

    def receipts(self) -> int:
        place = self.folder / "platform/runs/receipts.jsonl"
        return place.read_text().count("\n") if place.exists() else 0

    def wait_for_receipts(self, count: int) -> None:
        until(lambda: self.receipts() >= count, lambda: self.err("train") + self.out("train"))


def until(holds: Callable[[], bool], said: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, said()
        time.sleep(0.002)


@contextmanager
def running(launcher: Launcher, folder: Path) -> Iterator[Running]:
    processes = Running(launcher, folder)
    try:
        yield processes
    finally:
        processes.end()
