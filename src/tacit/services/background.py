"""Background tasks of both parties: health checks, and deleting who reported in old rounds.

Health is checked every few seconds, and /healthz answers with the last result, so that requests cost no check:

    store, billing_store   answers, and takes a transaction that writes
    disk, billing_disk     has room and can be written to, where the store lies
    revision               this version of tacit works on the store's tables
    ledger                 answers
    link                   the other party answered when it was last asked
    billing_link           the ad server answered for a batch when it was last asked (the proxy only)
    epoch                  menus are offered now (parties that bill)
    checks                 the checks themselves came to an end lately

Without a store or disk nothing can be taken: "failing", status 503. Without ledger or link what is taken waits:
"degraded", status 200, so that no load balancer keeps devices away. A check that hangs, as one of a disk that
no longer answers does, is failing, too: the last result is then no longer worth anything.

Retention: who reported in a round is deleted a number of days after it closed and was settled. The round itself
stays, and so does its result (at the server) or its noisy share (at the proxy). Until then either party may be
away; one that comes back later finds that the other no longer knows the set of reports.

Several processes may serve one party's PostgreSQL databases. What goes on in each of them is in `works`:
signing tokens, following what others opened. What must not be done twice is in `owned_works`: one process at a
time does it, the owner (`store.ownership`), and another one takes it up within seconds when the owner is gone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.gather.protocol.rounds import Round
from tacit.services.endpoints import Clock
from tacit.services.log import error_line
from tacit.services.problems import LOG
from tacit.services.rounds import LedgerAccounts


class BackgroundTask(Protocol):
    """Something that goes on until it is told to end."""

    async def run(self) -> None: ...

    def end(self) -> None: ...


@asynccontextmanager
async def run_background(works: Callable[[], Sequence[BackgroundTask]], _app: Starlette) -> AsyncIterator[None]:
    """What goes on beside the requests, from the first to the last of them."""
    running = works()  # made here, in the loop that they belong to
    tasks = [asyncio.create_task(each.run()) for each in running]
    try:
        yield
    finally:
        for each in running:
            each.end()
        await asyncio.gather(*tasks)


async def keep_looking(
    look: Callable[[], float], ended: asyncio.Event, after_failure: Callable[[], float]
) -> None:
    """Call `look` in a thread, again and again until the end: it says in how many seconds it looks again. Where
    it fails in a way that nobody foresaw, one line says so, and the next look may do better."""
    while not ended.is_set():
        try:
            pause = await asyncio.to_thread(look)
        except Exception as problem:
            LOG.error("%s", error_line(problem))
            pause = after_failure()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), pause)


class LookTask:
    """A background task that is one function, called again and again: it says in how many seconds it looks
    again. A new one can be made for the same function where an earlier one ended."""

    def __init__(
        self, look: Callable[[], float], after_failure_seconds: float, stop: Callable[[], None] = lambda: None
    ) -> None:
        """`stop` is called at the end, so that a look that goes on comes to its end soon."""
        self._look, self._after_failure, self._stop = look, after_failure_seconds, stop
        self._ended = asyncio.Event()

    async def run(self) -> None:
        await keep_looking(self._look, self._ended, lambda: self._after_failure)

    def end(self) -> None:
        self._ended.set()
        self._stop()


class Owner(Protocol):
    """Who says whether this process does what one process at a time must do: `store.ownership.OwnerLock`."""

    @property
    def is_shared(self) -> bool: ...

    @property
    def is_held(self) -> bool: ...

    def hold(self) -> bool: ...

    def release(self) -> None: ...


class AloneOwner:
    """The owner where there is one process only."""

    is_shared, is_held = False, True

    def hold(self) -> bool:
        return True

    def release(self) -> None:
        return None


OWNER_SECONDS = 1.0


class OwnedTasks:
    """Background tasks that run while this process is the owner: made when it becomes it, ended when it is no
    longer, and made anew if it becomes it again."""

    def __init__(self, owner: Owner, works: Callable[[], Sequence[BackgroundTask]]) -> None:
        self._owner, self._works = owner, works
        self._ended = asyncio.Event()
        self._running: list[tuple[BackgroundTask, asyncio.Task[None]]] = []

    async def run(self) -> None:
        try:
            while not self._ended.is_set():
                was, is_ours = bool(self._running), await asyncio.to_thread(self._owner.hold)
                if is_ours and not was and not self._ended.is_set():
                    self._running = [(each, asyncio.create_task(each.run())) for each in self._works()]
                    if self._owner.is_shared:
                        LOG.info("this process does the work that one does for all")
                elif was and not is_ours:
                    LOG.warning("another process may do the work that one does for all: it is left here")
                    await self._end_running()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), OWNER_SECONDS)
        finally:
            await self._end_running()
            await asyncio.to_thread(self._owner.release)

    async def _end_running(self) -> None:
        running, self._running = self._running, []
        for each, _ in running:
            each.end()
        await asyncio.gather(*(task for _, task in running))

    def end(self) -> None:
        self._ended.set()
        for each, _ in self._running:
            each.end()


HEALTH_SECONDS = 10
LEAST_FREE_BYTES = 256 * 2**20
STALE_SECONDS = 90.0  # a check may wait a minute for a store that is busy, and no longer
VITAL = frozenset({"store", "disk", "billing_store", "billing_disk", "revision", "checks"})

HealthCheck = Callable[[], bool]
"""Whether one thing is well; an error is a no."""


@dataclass(frozen=True)
class Reading:
    """A figure that was looked up, for /metrics: `words` are its help, labels name nobody."""

    name: str
    words: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


Look = Callable[[], Sequence[Reading]]
"""Looks figures up, in a thread, every few seconds."""


@dataclass(frozen=True)
class AppPart:
    """What a party's app has beside its own.

    works   tasks beside the requests, in every process that serves the party
    owned_works  tasks that one process at a time does for all: new ones whenever it becomes the owner
    checks  for /healthz
    needed  what has to be there before /readyz says that requests may come
    looks   figures for /metrics that are looked up
    meters  those that are counted on the way
    """

    routes: Sequence[Route] = ()
    works: Callable[[], Sequence[BackgroundTask]] = tuple
    checks: Mapping[str, HealthCheck] = field(default_factory=dict)
    needed: Mapping[str, HealthCheck] = field(default_factory=dict)
    looks: Sequence[Look] = ()
    meters: Sequence[Collector] = ()
    owned_works: Callable[[], Sequence[BackgroundTask]] = tuple

    def all_works(self, owner: Owner) -> list[BackgroundTask]:
        """Tasks of every process, and those that run while it is the owner."""
        return [*self.works(), OwnedTasks(owner, self.owned_works)]


NOTHING_MORE = AppPart()


def join_parts(parts: Sequence[AppPart]) -> AppPart:
    """All of them as one, in their order; a check has one name among all."""
    return AppPart(
        [route for part in parts for route in part.routes],
        lambda: [work for part in parts for work in part.works()],
        {name: check for part in parts for name, check in part.checks.items()},
        {name: check for part in parts for name, check in part.needed.items()},
        [look for part in parts for look in part.looks],
        [meter for part in parts for meter in part.meters],
        lambda: [work for part in parts for work in part.owned_works()],
    )


def has_free_disk(path: Path) -> bool:
    """Whether there is room on the disk where this file lies or will lie, and it can be written to."""
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize >= LEAST_FREE_BYTES and not found.f_flag & os.ST_RDONLY


class RoundLookup(Protocol):
    """The part of either party's store that is looked at."""

    def round(self, digest: bytes) -> object: ...


def store_checks(store: RoundLookup, accounts: LedgerAccounts) -> dict[str, HealthCheck]:
    """Store and ledger: something that is not there is looked up in each."""
    return {
        "store": lambda: store.round(bytes(32)) is None,
        "ledger": lambda: accounts.reservation("healthz") is None,
    }


class Health:
    """The last look at some things; a change is one line in the log, and what goes on is none."""

    def __init__(
        self, checks: Mapping[str, HealthCheck], *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._checks, self._timer, self._ended = checks, timer, asyncio.Event()
        self._found = dict.fromkeys(checks, True)
        self._looked: float | None = None  # when a look last came to its end

    @property
    def has_looked(self) -> bool:
        return self._looked is not None

    def found(self) -> dict[str, bool]:
        """What is well, as far as is known now."""
        is_stale = self._looked is not None and self._timer() - self._looked > STALE_SECONDS
        return {**self._found, "checks": False} if is_stale else dict(self._found)

    def is_vital_well(self) -> bool:
        """Whether work can be taken."""
        return all(well or name not in VITAL for name, well in self.found().items())

    def readings(self) -> Sequence[Reading]:
        words = "Whether a check of /healthz found its subject well."
        return [Reading("tacit_health_ok", words, well, {"check": name}) for name, well in self.found().items()]

    def look(self) -> None:
        for name, check in self._checks.items():
            trouble = ""
            try:
                well = check()
            except Exception as problem:  # whatever it is, it is not well
                well, trouble = False, f": {error_line(problem)}"
            if well is not self._found[name]:
                say = LOG.info if well else LOG.error
                say("%s is %s%s", name, "well again" if well else "failing", trouble)
            self._found[name] = well
        self._looked = self._timer()

    def answer(self) -> Response:
        found = self.found()
        failing = {name for name, well in found.items() if not well}
        status = "failing" if failing & VITAL else "degraded" if failing else "ok"
        told = {name: "ok" if well else "failing" for name, well in found.items()}
        return JSONResponse({"status": status, **told}, 503 if status == "failing" else 200)

    async def endpoint(self, _request: Request) -> Response:
        return self.answer()

    async def run(self) -> None:
        while not self._ended.is_set():
            await asyncio.to_thread(self.look)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), HEALTH_SECONDS)

    def end(self) -> None:
        self._ended.set()


SETTLED = ("released", "too-few", "stopped")
DAY_SECONDS = 86_400
RETENTION_SECONDS = 3_600


class RetainedRound(Protocol):
    """A round as a store has it."""

    @property
    def body(self) -> bytes: ...

    @property
    def phase(self) -> str: ...


class RetentionStore(Protocol):
    """The part of either party's store that is needed here."""

    def rounds(self) -> Sequence[RetainedRound]: ...

    def forget(self, digest: bytes) -> None:
        """Delete who reported in a settled round. Again: nothing."""


class Retention:
    """Forgets settled rounds that closed before the days to keep, now and every hour."""

    def __init__(self, store: RetentionStore, *, clock: Clock, keep_days: int) -> None:
        self._store, self._clock, self._keep_seconds = store, clock, keep_days * DAY_SECONDS
        self._forgotten_before = 0  # what closed before that second and was settled then is forgotten
        self._unsettled: set[bytes] = set()  # what closed before it and was not settled
        self._ended = asyncio.Event()

    def look(self) -> int:
        """Forget what is due; how many rounds that were."""
        before, done = self._clock() - self._keep_seconds, 0
        for stored in self._store.rounds():
            if self._ended.is_set():
                return done
            round = Round.from_bytes(stored.body)
            if round.closes >= before:
                continue
            if round.closes < self._forgotten_before and round.digest not in self._unsettled:
                continue
            self._unsettled.add(round.digest)
            if stored.phase in SETTLED:
                self._store.forget(round.digest)
                self._unsettled.discard(round.digest)
                done += 1
        self._forgotten_before = before  # earlier than the last one where the clock was set back
        return done

    def _look(self) -> float:
        if done := self.look():
            LOG.info("forgot who reported in %d rounds", done)
        return RETENTION_SECONDS

    async def run(self) -> None:
        await keep_looking(self._look, self._ended, lambda: RETENTION_SECONDS)

    def end(self) -> None:
        self._ended.set()
