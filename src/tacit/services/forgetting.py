"""What nobody needs any more is deleted: who reported in a round, so many days after it closed and was settled.

The round itself stays, and so does its result (at the server) or its noisy share (at the proxy). Until then
either party may be away: one that comes back later finds that the other no longer knows the set of reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tacit.gather.wire.rounds import Round
from tacit.services.admitting import Clock
from tacit.services.one_line import in_one_line
from tacit.services.problems import LOG

SETTLED = ("released", "too-few", "stopped")
DAY_SECONDS = 86_400
LOOK_SECONDS = 3_600


class StoredRound(Protocol):
    """A round as a store has it."""

    @property
    def body(self) -> bytes: ...

    @property
    def phase(self) -> str: ...


class ForgettingStore(Protocol):
    """The part of either party's store that is needed here."""

    def rounds(self) -> Sequence[StoredRound]: ...

    def forget(self, digest: bytes) -> None:
        """Delete who reported in a settled round. Again: nothing."""


class Forgetting:
    """Forgets settled rounds that closed before the days to keep, now and every hour."""

    def __init__(self, store: ForgettingStore, *, clock: Clock, keep_days: int) -> None:
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

    async def run(self) -> None:
        while not self._ended.is_set():
            try:
                if done := await asyncio.to_thread(self.look):
                    LOG.info("forgot who reported in %d rounds", done)
            except Exception as problem:  # the next look may do better
                LOG.error("%s", in_one_line(problem))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), LOOK_SECONDS)

    def end(self) -> None:
        self._ended.set()
