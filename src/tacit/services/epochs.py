"""The ad server's background task that opens epochs: the current one, and the next before its time.

Epochs follow one another without a gap, on a grid of `epoch_seconds`: an epoch's number is its time on that
grid, or one more than any before. What is out never changes. Changed bids, and campaigns without money, count
from the next epoch that is opened; `rotate` opens one now, with new keys and menus, in the place of all that
were open or drawn ahead. Of several that are open the one with the highest number is offered.

    a proxy that does not answer     what was drawn is kept, and sent again, later and later
    a proxy that refuses an epoch    that number is left, and the next one tried
    a market that cannot be read     the last good one goes on counting
    nobody who could pay             no epoch is opened until somebody can
    tokens that are given too soon   another epoch takes its place, where campaigns can pay for more

Several processes may serve one database. One of them opens epochs (`opening`), all of them follow what is
published (`following`), so that any of them offers it and can go on when the one that opened it is gone.

Each is one line in the log when it begins, and one when it is over. Keys are deleted some days after their
epoch expired; not while the clocks of both parties differ, when nothing can be opened either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from tacit.bill.protocol.directory import Directory, EpochHead
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.server.party import AdServer, DirectoryLink, EpochTimes
from tacit.bill.server.store import AdStore, EpochLimits
from tacit.errors import BadInput, BillRefused, TacitError
from tacit.schema.contexts.hierarchy import Node
from tacit.services.background import DAY_SECONDS, BackgroundTask, LookTask
from tacit.services.endpoints import Clock
from tacit.services.http_clients import LinkFailed
from tacit.services.key_maker import KeyMaker
from tacit.services.log import error_line
from tacit.services.problems import LOG, ServiceBusy, TroubleLog

LONGEST_PAUSE_SECONDS = 30.0
FORGET_SECONDS = 3_600
SETTLE_SECONDS = 30
FOLLOW_SECONDS = 1.0
TURN_SECONDS = 10.0
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
        closes: int,
        left_micros: Mapping[int, int],
        without: Mapping[Node, frozenset[int]],
    ) -> list[PricedMenu]:
        """All menus of an epoch that is offered between these seconds, for both lanes; none where nobody can
        pay.

        left_micros  what campaigns with a limit have left: who cannot pay for one impression is left out
        without      campaigns that are left out of some contexts besides
        """


AskForMenus = Callable[[Mapping[int, int], Mapping[Node, frozenset[int]]], list[PricedMenu]]
"""From what campaigns have left, and whom to leave out of which contexts, to menus."""


class PacedMenus(Protocol):
    """Menus of an epoch, with how many tokens of each may be signed."""

    @property
    def menus(self) -> list[PricedMenu]: ...

    @property
    def limits(self) -> EpochLimits: ...

    def serves(self, places: Any) -> bool:
        """Whether it has tokens where they had run out."""


class EpochPacer(Protocol):
    """Who says how much of each campaign may be out in an epoch (`services.ads.pacer`)."""

    def plan(self, times: EpochTimes, ask: AskForMenus) -> PacedMenus: ...

    def leave(self, epoch: int) -> None:
        """An epoch is never offered."""

    def settle(self, compare_clocks: Callable[[], None]) -> None:
        """Look after what is over; before money is freed, the clocks of both parties are compared."""

    def ran_out(self, head: EpochHead, epoch_seconds: int) -> Any | None:
        """Where so many tokens of an offered epoch are given that another should take its place; None: not."""


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
        pacer: EpochPacer | None = None,
    ) -> None:
        """Without a pacer no menu has a limit of tokens, and all have whoever can pay for one impression."""
        self._server, self._store, self._link, self._clock = server, store, link, clock
        self._source, self._pacer = source, pacer
        self._keys, self._keep_seconds, self._every_seconds = keys, keep_days * DAY_SECONDS, every_seconds
        self._heads: dict[int, EpochHead] = {}
        self._unpublished: list[int] = []
        self._left: set[int] = set()  # drawn, and never to be published
        self._began = clock()
        self._pause = every_seconds
        self._trouble, self._source_trouble = TroubleLog("epochs are opened again"), TroubleLog()
        self._forgot_at: int | None = None
        self._settled_at = -SETTLE_SECONDS
        self._lock = threading.Lock()  # a look and a rotation take turns, here and among all processes
        self._resume()

    def heads(self) -> list[EpochHead]:
        """Epochs that are published and have not expired, in order."""
        now = self._clock()
        return sorted(
            (head for head in list(self._heads.values()) if head.expires > now), key=lambda h: h.epoch
        )

    def offered(self) -> EpochHead | None:
        """The epoch whose menus are offered now: the last of those that are open."""
        now = self._clock()
        return next((head for head in reversed(self.heads()) if head.opens <= now < head.closes), None)

    def is_offering(self) -> bool:
        """Whether an epoch with menus is open now."""
        offered = self.offered()
        return offered is not None and offered.menus > 0

    def is_well(self) -> bool:
        """Whether an epoch is offered now, or we have only just begun."""
        return self.is_offering() or 0 <= self._clock() - self._began < BEGINNING_SECONDS

    def rotate(self) -> EpochHead:
        """Open an epoch now, in the place of all that are open or were drawn ahead; raises where it cannot."""
        with self._lock, self._store.opening_turn():
            self._resume()
            self._source.refresh()
            head = self._open(self._times_from_now())
        LOG.info("epoch %d was opened by the operator, with new keys and menus", head.epoch)
        return head

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While no epoch is planned or opened, by whichever process; ServiceBusy where that takes long."""
        if not self._lock.acquire(timeout=TURN_SECONDS):
            raise ServiceBusy
        try:
            with self._store.opening_turn():
                yield
        finally:
            self._lock.release()

    def _times_from_now(self) -> EpochTimes:
        """Of an epoch in the place of all that are open or were drawn ahead."""
        now, seconds = self._clock(), self._source.epoch_seconds
        covered = max((head.closes for head in self.heads()), default=now)
        closes = max(covered, _grid_after(now + (seconds + 1) // 2, seconds))
        return EpochTimes(now, closes, closes + self._source.report_seconds)

    def look(self) -> float:
        """Open what is to be opened; the seconds until the next look."""
        try:
            with self._lock, self._store.opening_turn():
                self._resume()
                self._publish()
                self._open_due()
                self._open_early()
                self._forget()
        except OSError as problem:
            said = str(problem) if isinstance(problem, LinkFailed) else type(problem).__name__
            trouble = f"the proxy did not countersign an epoch, will ask again: {said}"
        except TacitError as problem:
            trouble = f"no epoch can be opened, will try again: {error_line(problem)}"
        else:
            self._trouble.tell("")
            self._pause = self._every_seconds
            return self._pause
        if not self._keys.is_ended:
            self._trouble.tell(trouble)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return self._pause

    def _resume(self) -> None:
        """Take up what is in the store and not known here: what another process opened, or this one before it
        was started again. What is published is offered from the first request on."""
        now = self._clock()
        drawn = set(self._store.epochs(now)) - self._load_published(now)
        self._unpublished = [epoch for epoch in sorted(drawn) if epoch not in self._left]

    def _follow(self) -> float:
        """Offer what other processes published, and let go of what has expired."""
        self._load_published(self._clock())
        if self.is_offering():  # or the clock may be wrong
            self._unload(self._clock())
        return FOLLOW_SECONDS

    def _load_published(self, now: int) -> set[int]:
        published = set(self._store.published_epochs(now))
        for epoch in sorted(published - self._heads.keys()):
            self._heads[epoch] = self._server.load_epoch(epoch).head
        return published

    def _unload(self, now: int) -> None:
        self._server.unload_epochs(now)
        for epoch, head in list(self._heads.items()):
            if head.expires < now:
                self._heads.pop(epoch, None)

    def _publish(self) -> None:
        """Send what the proxy may not have: it answers the same however often."""
        while self._unpublished:
            epoch = self._unpublished[0]
            stored, now = self._store.epoch(epoch), self._clock()
            assert stored is not None, "it was kept"
            head = Directory.from_bytes(stored.directory).head
            # One that is over was never offered; one far ahead was drawn by a clock that was wrong; one without
            # keys was closed when an older state of the store was taken.
            if stored.sealing_key and now < head.closes and head.opens <= now + self._source.epoch_seconds:
                times = EpochTimes(head.opens, head.closes, head.expires)
                try:
                    menus = [kept.menu for kept in stored.menus]
                    self._heads[epoch] = self._server.open_epoch(menus, times, self._link)
                except BillRefused as refused:
                    LOG.error("epoch %d is left: %s", epoch, error_line(refused))
                    self._leave(epoch)
            else:
                self._leave(epoch)
            self._unpublished.pop(0)

    def _leave(self, epoch: int) -> None:
        self._left.add(epoch)
        if self._pacer is not None:
            self._pacer.leave(epoch)

    def _open_due(self) -> None:
        for _ in range(3):  # the current one and the next; a short one between them after a rotation
            covered, now = covered_until(self.heads(), self._clock()), self._clock()
            times = next_times(covered, now, self._source.epoch_seconds, self._source.report_seconds)
            if times is None:
                return
            self._refresh()
            self._open(times)

    def _open_early(self) -> None:
        """An epoch in the place of one whose tokens are given before its time, where campaigns can pay for more
        of what ran out."""
        offered = self.offered()
        if self._pacer is None or offered is None:
            return
        gone = self._pacer.ran_out(offered, self._source.epoch_seconds)
        if gone is None:
            return
        self._refresh()
        times = self._times_from_now()
        epoch, ask = self._next(times)
        plan = self._pacer.plan(times, ask)
        if plan.menus and plan.serves(gone):
            self._keep(epoch, times, plan.menus, plan.limits)
            LOG.info("epoch %d was opened early: tokens of the one before were given", epoch)

    def _open(self, times: EpochTimes) -> EpochHead:
        epoch, ask = self._next(times)
        if self._pacer is None:
            menus, limits = ask(self._left_micros(), {}), None
        else:
            plan = self._pacer.plan(times, ask)
            menus, limits = plan.menus, plan.limits
        if not menus:
            raise BadInput(
                "expected a campaign with an ad, a bid that holds in some context and money for an impression, "
                "got none: tacit ads add, creative add, or set --budget"
            )
        return self._keep(epoch, times, menus, limits)

    def _next(self, times: EpochTimes) -> tuple[int, AskForMenus]:
        """The number of the next epoch, and how to ask for its menus."""
        last = self._store.last_epoch()
        epoch = max(times.opens // self._source.epoch_seconds, 0 if last is None else last + 1)
        return epoch, lambda left, without: self._source.menus(epoch, times.opens, times.closes, left, without)

    def _keep(
        self, epoch: int, times: EpochTimes, menus: list[PricedMenu], limits: EpochLimits | None
    ) -> EpochHead:
        self._keys.expect(len(menus))
        try:
            head = self._heads[epoch] = self._server.open_epoch(menus, times, self._link, limits)
        except BillRefused:
            self._leave(epoch)  # the next number is tried; one that got no answer is sent again
            raise
        return head

    def _refresh(self) -> None:
        trouble = ""
        try:
            self._source.refresh()
        except BadInput as wrong:
            trouble = f"the market as it was goes on: {error_line(wrong)}"
        self._source_trouble.tell(trouble)

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
        parties' clocks agree but for an epoch or so, which `keep_days` are longer than."""
        now = self._clock()
        self._unload(now)
        if self._pacer is not None and not 0 <= now - self._settled_at < SETTLE_SECONDS:
            self._pacer.settle(self._compare_clocks)
            self._settled_at = now
        if self._forgot_at is None or not 0 <= now - self._forgot_at < FORGET_SECONDS:
            if done := self._store.forget_keys(now - self._keep_seconds):
                LOG.info("deleted the keys of %d epochs", done)
            self._forgot_at = now

    def _compare_clocks(self) -> None:
        """OSError unless the proxy, asked for what it countersigned last, finds our time right: a request is
        signed with it. That an epoch is open says nothing: it may be older than the fault of the clock."""
        stored = next((self._store.epoch(head.epoch) for head in reversed(self.heads())), None)
        if stored is None:
            raise LinkFailed("expected an epoch by which to compare clocks, got none")
        self._link.countersign(stored.directory)

    def opening(self) -> BackgroundTask:
        """The task that opens epochs, of one process at a time."""
        return LookTask(self.look, LONGEST_PAUSE_SECONDS)

    def following(self) -> BackgroundTask:
        """The task of every process that offers what any of them opened. It ends with the service: so does the
        drawing of keys, after the one that is being drawn."""
        return LookTask(self._follow, LONGEST_PAUSE_SECONDS, self._keys.end)
