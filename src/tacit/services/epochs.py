"""The ad server's background task that opens epochs: the current one, and the next before its time.

Epochs follow one another without a gap, on a grid of `epoch_seconds`: an epoch's number is its time on that
grid, or one more than any before. What is out never changes. Changed bids, and campaigns without money, count
from the next epoch that is opened; `rotate` opens one now, with new keys and menus, in the place of all that
were open or drawn ahead. Of several that are open the one with the highest number is offered.

    a proxy that does not answer     what was drawn is kept, and sent again, later and later
    a proxy that refuses an epoch    that number is left, and the next one tried
    a market that cannot be read     the last good one goes on counting
    nobody who could pay             no epoch is opened until somebody can

Each is one line in the log when it begins, and one when it is over. Keys are deleted some days after their
epoch expired; not while the clocks of both parties differ, when nothing can be opened either.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from tacit.bill.protocol.directory import Directory, EpochHead
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.server.party import AdServer, DirectoryLink, EpochTimes
from tacit.bill.server.store import AdStore
from tacit.bill.server.token_keys import TokenKey
from tacit.errors import BadInput, BillError, BillRefused, TacitError
from tacit.schema.contexts.hierarchy import Node
from tacit.services.background import DAY_SECONDS, keep_looking
from tacit.services.endpoints import Clock
from tacit.services.http_clients import LinkFailed
from tacit.services.log import error_line
from tacit.services.problems import LOG

LONGEST_PAUSE_SECONDS = 30.0
FORGET_SECONDS = 3_600
BEGINNING_SECONDS = 60  # in which an epoch may still be missing


class MenuSource(Protocol):
    """Where the menus of an epoch come from. One thread asks at a time, and it may take its time."""

    @property
    def epoch_seconds(self) -> int:
        """For how long a menu and its token keys are offered."""

    @property
    def report_seconds(self) -> int:
        """For how long after its epoch's end an impression can still be reported."""

    def refresh(self) -> None:
        """Read again what menus are made of; BadInput where that is wrong, and then all stays as it was."""

    def menus(
        self,
        epoch: int,
        opens: int,
        left_micros: Mapping[int, int],
        without: Mapping[Node, frozenset[int]],
    ) -> list[PricedMenu]:
        """All menus of an epoch that opens at this second, for both lanes; none where nobody can pay.

        left_micros  what campaigns with a limit have left: who cannot pay for one impression is left out
        without      campaigns that are left out of some contexts besides
        """


class KeyMaker:
    """Draws token keys, in whatever thread asks for them, until the service is to end."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def __call__(self) -> TokenKey:
        if self._ended.is_set():
            raise LinkFailed("this service is ending")
        return TokenKey.generate()

    def end(self) -> None:
        self._ended.set()


def covered_until(heads: Iterable[EpochHead], now: int) -> int:
    """The second until which some epoch is open at every moment from now on; now itself where none is."""
    at, known = now, list(heads)
    while later := [head.closes for head in known if head.opens <= at < head.closes]:
        at = max(later)
    return at


def next_times(covered: int, now: int, epoch_seconds: int, report_seconds: int) -> EpochTimes | None:
    """When the next epoch is open, if it is time to open one: none is open, or half an epoch is left.

    >>> next_times(1_000, 1_000, 600, 60), next_times(1_200, 1_000, 600, 60), next_times(1_200, 800, 600, 60)
    (EpochTimes(opens=600, closes=1200, expires=1260), EpochTimes(opens=1200, closes=1800, expires=1860), None)
    """
    if covered > now + epoch_seconds // 2:
        return None
    opens = covered if covered > now else now - now % epoch_seconds
    closes = _grid_after(
        opens + (epoch_seconds + 1) // 2, epoch_seconds
    )  # no epoch is shorter than half of one
    return EpochTimes(opens, closes, closes + report_seconds)


def _grid_after(second: int, epoch_seconds: int) -> int:
    return -(-second // epoch_seconds) * epoch_seconds


class EpochKeeper:
    """Looks again and again whether an epoch has to be opened. It may be cut off anywhere and goes on."""

    def __init__(
        self,
        server: AdServer,
        store: AdStore,
        link: DirectoryLink,
        *,
        source: MenuSource,
        clock: Clock,
        keys: KeyMaker,
        keep_days: int,
        every_seconds: float,
    ) -> None:
        self._server, self._store, self._link, self._clock = server, store, link, clock
        self._source = source
        self._keys, self._keep_seconds, self._every_seconds = keys, keep_days * DAY_SECONDS, every_seconds
        self._heads: dict[int, EpochHead] = {}
        self._unpublished: list[int] = []
        self._began = clock()
        self._pause, self._said, self._said_of_source = every_seconds, "", ""
        self._forgot_at: int | None = None
        self._lock = threading.Lock()  # a look and a rotation take turns
        self._ended = asyncio.Event()
        self._resume()

    def heads(self) -> list[EpochHead]:
        """Epochs that are published and have not expired, in order."""
        now = self._clock()
        return sorted(
            (head for head in list(self._heads.values()) if head.expires > now), key=lambda h: h.epoch
        )

    def is_offering(self) -> bool:
        """Whether an epoch with menus is open now."""
        now = self._clock()
        return any(head.menus for head in self.heads() if head.opens <= now < head.closes)

    def is_well(self) -> bool:
        """Whether an epoch is offered now, or we have only just begun."""
        return self.is_offering() or 0 <= self._clock() - self._began < BEGINNING_SECONDS

    def rotate(self) -> EpochHead:
        """Open an epoch now, in the place of all that are open or were drawn ahead; raises where it cannot."""
        with self._lock:
            self._source.refresh()
            now, seconds = self._clock(), self._source.epoch_seconds
            covered = max((head.closes for head in self.heads()), default=now)
            closes = max(covered, _grid_after(now + (seconds + 1) // 2, seconds))
            head = self._open(EpochTimes(now, closes, closes + self._source.report_seconds))
        LOG.info("epoch %d was opened by the operator, with new keys and menus", head.epoch)
        return head

    def look(self) -> float:
        """Open what is to be opened; the seconds until the next look."""
        try:
            with self._lock:
                self._publish()
                self._open_due()
                self._forget()
        except OSError as problem:
            said = str(problem) if isinstance(problem, LinkFailed) else type(problem).__name__
            self._tell(f"the proxy did not countersign an epoch, will ask again: {said}")
        except TacitError as problem:
            self._tell(f"no epoch can be opened, will try again: {error_line(problem)}")
        else:
            self._tell("")
            return self._every_seconds
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return self._pause

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._said and not self._ended.is_set():
            LOG.error("%s", trouble)
        elif self._said and not trouble:
            LOG.info("epochs are opened again")
            self._pause = self._every_seconds
        self._said = trouble

    def _resume(self) -> None:
        """What is in the store: what is published is offered from the first request after a restart on."""
        for epoch in self._store.epochs(self._clock()):
            stored = self._store.epoch(epoch)
            assert stored is not None, "it was listed"
            if stored.head is None:
                self._unpublished.append(epoch)
            else:
                self._heads[epoch] = self._server.load_epoch(epoch).head

    def _publish(self) -> None:
        """Send what the proxy may not have: it answers the same however often."""
        while self._unpublished:
            epoch = self._unpublished[0]
            stored, now = self._store.epoch(epoch), self._clock()
            assert stored is not None, "it was kept"
            head = Directory.from_bytes(stored.directory).head
            # One that is over was never offered; one far ahead was drawn by a clock that was wrong.
            if now < head.closes and head.opens <= now + self._source.epoch_seconds:
                times = EpochTimes(head.opens, head.closes, head.expires)
                try:
                    menus = [kept.menu for kept in stored.menus]
                    self._heads[epoch] = self._server.open_epoch(menus, times, self._link)
                except BillRefused as refused:
                    LOG.error("epoch %d is left: %s", epoch, error_line(refused))
            self._unpublished.pop(0)

    def _open_due(self) -> None:
        for _ in range(3):  # the current one and the next; a short one between them after a rotation
            covered, now = covered_until(self.heads(), self._clock()), self._clock()
            times = next_times(covered, now, self._source.epoch_seconds, self._source.report_seconds)
            if times is None:
                return
            self._refresh()
            self._open(times)

    def _open(self, times: EpochTimes) -> EpochHead:
        last = self._store.last_epoch()
        epoch = max(times.opens // self._source.epoch_seconds, 0 if last is None else last + 1)
        menus = self._source.menus(epoch, times.opens, self._left_micros(), {})
        if not menus:
            raise BillError("expected a campaign that can pay for an impression, got none: raise a budget")
        try:
            head = self._heads[epoch] = self._server.open_epoch(menus, times, self._link)
        except OSError:
            if self._store.epoch(epoch) is not None:  # kept, and perhaps countersigned: this very one is sent
                self._unpublished.append(epoch)
            raise
        return head

    def _refresh(self) -> None:
        said = ""
        try:
            self._source.refresh()
        except BadInput as wrong:
            said = error_line(wrong)
            if said != self._said_of_source:
                LOG.error("the market as it was goes on: %s", said)
        self._said_of_source = said

    def _left_micros(self) -> dict[int, int]:
        """What campaigns with a limit have left, beyond what is held."""
        held = self._store.held_micros()
        return {
            each.campaign: each.budget_micros - each.charged_micros - held.get(each.campaign, 0)
            for each in self._store.campaigns()
            if each.budget_micros is not None
        }

    def _forget(self) -> None:
        """Let go of keys that are no longer needed. We come here only where epochs are open, so that both
        parties' clocks agree: a clock that is wrong deletes nothing."""
        now = self._clock()
        self._server.unload_epochs(now)
        for epoch in [epoch for epoch, head in self._heads.items() if head.expires < now]:
            del self._heads[epoch]
        if self._forgot_at is None or not 0 <= now - self._forgot_at < FORGET_SECONDS:
            if done := self._store.forget_keys(now - self._keep_seconds):
                LOG.info("deleted the keys of %d epochs", done)
            self._forgot_at = now

    async def run(self) -> None:
        await keep_looking(self.look, self._ended, lambda: LONGEST_PAUSE_SECONDS)

    def end(self) -> None:
        """Stop after the key that is being drawn, or the message that is on its way."""
        self._ended.set()
        self._keys.end()
