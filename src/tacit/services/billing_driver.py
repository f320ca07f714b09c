"""The proxy's background tasks of billing: batches go out until they are receipted; what is old is forgotten.

    an ad server that does not answer   a longer pause before the next try, up to half a minute
    a batch that it refuses             stays, and keeps no other: somebody has to look

Each is one line in the log when it begins, and one when it is over. Nothing that waits is ever given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tacit.bill.protocol.batches import BatchStatement
from tacit.bill.proxy.party import BatchLink, BillingProxy
from tacit.bill.proxy.store import BillingProxyStore
from tacit.entropy import Entropy, Simulation
from tacit.errors import TacitError
from tacit.services.background import DAY_SECONDS, RETENTION_SECONDS, keep_looking
from tacit.services.endpoints import Clock
from tacit.services.http_clients import LinkFailed
from tacit.services.log import error_line
from tacit.services.problems import LOG, TroubleLog
from tacit.services.proxy_driver import LONGEST_PAUSE_SECONDS, LinkState


class BatchDriver:
    """Forms what is due and delivers what has no receipt, again and again. It may be cut off anywhere."""

    def __init__(
        self,
        proxy: BillingProxy,
        link: BatchLink,
        *,
        reach: LinkState,
        clock: Clock,
        entropy: Entropy | Simulation,
        every_seconds: float,
        note_formed: Callable[[Sequence[BatchStatement]], None] = lambda _formed: None,
    ) -> None:
        """Batches that are formed are told to whoever counts them."""
        self._note_formed = note_formed
        self._proxy, self._link, self._reach, self._clock = proxy, link, reach, clock
        self._entropy, self._every_seconds = entropy, every_seconds
        self._pause, self._trouble = every_seconds, TroubleLog("batches are delivered again", logging.WARNING)
        self._ended = asyncio.Event()

    def deliver(self, batch: bytes) -> bytes:
        """As a link that is down once the service is to end, so that no batch keeps it from ending."""
        if self._ended.is_set():
            raise LinkFailed("this service is ending")
        return self._link.deliver(batch)

    def look(self) -> float:
        """Form and deliver what there is; the seconds until the next look."""
        trouble = ""
        try:
            self._note_formed(self._proxy.form_batches(self._clock(), self._entropy))
            if self._proxy.deliver_batches(self):
                self._reach.works = True
        except OSError as problem:
            self._reach.works = False
            said = str(problem) if isinstance(problem, LinkFailed) else type(problem).__name__
            trouble = f"the ad server did not answer for a batch, will try again: {said}"
        except TacitError as problem:
            self._reach.works = True
            trouble = f"a batch cannot be delivered, will try again: {error_line(problem)}"
        if not self._ended.is_set():
            self._trouble.tell(trouble)
        if not trouble:
            self._pause = self._every_seconds
            return self._pause
        return self._longer_pause() * (0.5 + self._entropy.uniform_below(1 << 16) / (1 << 17))

    def _longer_pause(self) -> float:
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return self._pause

    async def run(self) -> None:
        await keep_looking(self.look, self._ended, self._longer_pause)

    def end(self) -> None:
        """Stop after the batch that is on its way now."""
        self._ended.set()


class BillingRetention:
    """Forgets epochs that expired before the days to keep, now and every hour.

    Only while an epoch is open: by a clock that is far off none is, and it must delete nothing.
    """

    def __init__(self, store: BillingProxyStore, *, clock: Clock, keep_days: int) -> None:
        self._store, self._clock, self._keep_seconds = store, clock, keep_days * DAY_SECONDS
        self._ended = asyncio.Event()

    def look(self) -> int:
        """Forget what is due; how many epochs that were."""
        now = self._clock()
        return 0 if self._store.current_head(now) is None else self._store.forget(now - self._keep_seconds)

    def _look(self) -> float:
        if done := self.look():
            LOG.info("forgot the reports of %d epochs", done)
        return RETENTION_SECONDS

    async def run(self) -> None:
        await keep_looking(self._look, self._ended, lambda: RETENTION_SECONDS)

    def end(self) -> None:
        self._ended.set()
