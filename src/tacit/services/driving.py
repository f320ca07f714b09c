"""The proxy's background work: rounds that closed, or have enough reports waiting, go as far as they can."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tacit.errors import TacitError
from tacit.gather.proxy.driving import Link, drive
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import ProxyStore
from tacit.gather.wire.rounds import Round
from tacit.services.admitting import Clock
from tacit.services.linking import LinkFailed
from tacit.services.live import SETTLED, LiveRounds
from tacit.services.one_line import in_one_line
from tacit.services.problems import LOG

LONGEST_PAUSE_SECONDS = 30


class Driver:
    """Looks at live rounds again and again. It may be cut off anywhere: the next look goes on from there."""

    def __init__(
        self,
        proxy: Proxy,
        store: ProxyStore,
        live: LiveRounds,
        link: Link,
        *,
        clock: Clock,
        enough: int,
        every_seconds: float,
    ) -> None:
        self._proxy, self._store, self._live, self._clock = proxy, store, live, clock
        self._enough, self._every_seconds = enough, every_seconds
        self._troubled: dict[bytes, tuple[int, int]] = {}  # when to try again, and the pause before it
        self._ended = asyncio.Event()
        self._link = _UntilEnded(link, self._ended)

    def due(self, now: int) -> list[Round]:
        """Rounds that are not settled, and closed by now or have enough reports waiting."""
        return [
            each
            for each in self._live.all()
            if now >= self._troubled.get(each.digest, (0, 0))[0]
            and (now >= each.closes + each.skew or self._store.waiting(each.digest) >= self._enough)
        ]

    def look(self) -> bool:
        """One look at all rounds; whether the server was in reach."""
        for round in self.due(self._clock()):
            try:
                self._drive(round)
            except OSError as problem:  # the link is down: so it is for the other rounds
                if not self._ended.is_set():
                    said = problem if isinstance(problem, LinkFailed) else type(problem).__name__
                    LOG.warning("the server is out of reach, will try again: %s", said)
                return False
        return True

    def _drive(self, round: Round) -> None:
        """Bring one round as far as it goes. Its trouble is its own: other rounds do not wait for it."""
        before = self._proxy.phase(round.digest)
        try:
            phase = drive(self._proxy, self._link, round.digest, self._clock(), most=self._enough)
        except TacitError as problem:  # no budget, say, or other reports at the server: somebody has to look
            pause = min(2 * self._troubled.get(round.digest, (0, 1))[1], LONGEST_PAUSE_SECONDS)
            self._troubled[round.digest] = self._clock() + pause, pause
            LOG.error("%s cannot go on, will try again: %s", round.key, in_one_line(problem))
            return
        self._troubled.pop(round.digest, None)
        if phase in SETTLED:
            self._live.settle(round)  # the server knows, too
            if phase is not before:
                LOG.info("%s is settled: %s", round.key, phase)

    async def run(self) -> None:
        pause = self._every_seconds
        while not self._ended.is_set():
            try:
                reached = await asyncio.to_thread(self.look)
            except Exception as problem:  # whatever it is, the next look may do better
                LOG.error("%s", in_one_line(problem))
                reached = False
            pause = self._every_seconds if reached else min(2 * pause, LONGEST_PAUSE_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), pause)

    def end(self) -> None:
        """Stop after the message that is on its way now."""
        self._ended.set()


class _UntilEnded:
    """A link that is down once the service is to end, so that no round keeps it from ending."""

    def __init__(self, link: Link, ended: asyncio.Event) -> None:
        self._to, self._ended = link, ended

    def _link(self) -> Link:
        if self._ended.is_set():
            raise LinkFailed("this service is ending")
        return self._to

    def job(self, body: bytes) -> bytes:
        return self._link().job(body)

    def agree(self, body: bytes) -> bytes:
        return self._link().agree(body)

    def share(self, body: bytes) -> bytes:
        return self._link().share(body)
