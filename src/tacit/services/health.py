"""Whether a party can do its work: looked at now and then, and told to whoever asks.

    store     answers
    disk      has room, where the store lies
    ledger    answers
    link      the server answered when it was last asked (the proxy only)

Without store or disk nothing can be taken: "failing", status 503. Without ledger or link what is taken waits:
"degraded", status 200, so that nothing in front of the service keeps devices from it. What is said is at most
some seconds old: strangers who ask all the time cost no look, and learn no more than these words.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tacit.services.granting import Accounts
from tacit.services.one_line import in_one_line
from tacit.services.problems import LOG

LOOK_SECONDS = 10
LEAST_FREE_BYTES = 256 * 2**20
VITAL = frozenset({"store", "disk"})

Check = Callable[[], bool]
"""Whether one thing is well; an error is a no."""


def has_room(path: Path) -> bool:
    """Whether there is room on the disk where this file lies or will lie."""
    return shutil.disk_usage(path.parent).free >= LEAST_FREE_BYTES


class Rounds(Protocol):
    """The part of either party's store that is looked at."""

    def round(self, digest: bytes) -> object: ...


def looked_up(store: Rounds, accounts: Accounts) -> dict[str, Check]:
    """Store and ledger: something that is not there is looked up in each."""
    return {
        "store": lambda: store.round(bytes(32)) is None,
        "ledger": lambda: accounts.reservation("healthz") is None,
    }


class Health:
    """The last look at some things; a change is one line in the log, and what goes on is none."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks, self._ended = checks, asyncio.Event()
        self._found = dict.fromkeys(checks, True)

    def look(self) -> None:
        for name, check in self._checks.items():
            trouble = ""
            try:
                well = check()
            except Exception as problem:  # whatever it is, it is not well
                well, trouble = False, f": {in_one_line(problem)}"
            if well is not self._found[name]:
                say = LOG.info if well else LOG.error
                say("%s is %s%s", name, "well again" if well else "failing", trouble)
            self._found[name] = well

    def answer(self) -> Response:
        failing = {name for name, well in self._found.items() if not well}
        status = "failing" if failing & VITAL else "degraded" if failing else "ok"
        told = {name: "ok" if well else "failing" for name, well in self._found.items()}
        return JSONResponse({"status": status, **told}, 503 if status == "failing" else 200)

    async def endpoint(self, _request: Request) -> Response:
        return self.answer()

    async def run(self) -> None:
        while not self._ended.is_set():
            await asyncio.to_thread(self.look)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), LOOK_SECONDS)

    def end(self) -> None:
        self._ended.set()
