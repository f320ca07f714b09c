"""Billing notices of exchanges over HTTP, and the background task that reports them to the proxy as devices do.

    GET or POST /openrtb/notice/TOKEN       204; the same however often it comes

A notice is on disk before it is answered. Its report goes to the proxy like any device's, so that charges,
invoices and an auditor's check have one way only; the proxy sees this server's address there. What an exchange
fills into macros is not read: an address has none.

    a proxy that does not answer     a longer pause before the next try, up to half a minute
    a report that it refuses         is left, and counted: its epoch expired before the proxy was reached
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.notices import BidNotice, KeptNotice, NoticeDesk, NoticeKey, NoticeStore
from tacit.errors import BillRefused, TacitError
from tacit.services.background import DAY_SECONDS, Look, Reading, keep_looking
from tacit.services.endpoints import Clock
from tacit.services.log import error_line
from tacit.services.problems import LOG, TroubleLog, refusal_name
from tacit.services.proxy_intake import Batcher
from tacit.store.console_figures import token_use
from tacit.store.database import PartyDatabase
from tacit.store.notices import SqlNoticeStore

PATH = "/openrtb/notice"
AT_ONCE, SENDERS = 500, 8
LONGEST_PAUSE_SECONDS, SPENT_SECONDS = 30.0, 1.0
KEEP_SECONDS = DAY_SECONDS  # beyond its expiry, in case the clock is set back
STATUS = {BillVerdict.ACCEPTED: 204, BillVerdict.DUPLICATE: 204, BillVerdict.EXPIRED: 410}

TAKEN = frozenset({BillVerdict.ACCEPTED, BillVerdict.DUPLICATE, BillVerdict.CONFLICT})
"""The proxy has a report of this bid: this one, or one that was made before its notice was forgotten here."""

FINAL = TAKEN | {BillVerdict.EXPIRED, BillVerdict.UNKNOWN_MENU, BillVerdict.FORGED, BillVerdict.MALFORMED}
"""Answers of the proxy that no second try would change."""

UNCHARGED = (BillVerdict.NONE_LEFT, BillVerdict.EXPIRED)
"""What was shown, and nobody is charged for: its menu had no token left, or its notice came too late."""

SendReport = Callable[[bytes], None]
"""Hands one report to the proxy: BillRefused where it refuses it, OSError where it does not answer."""


class NoticeIntake:
    """The endpoint. Notices that come together are kept together."""

    def __init__(self, desk: NoticeDesk, key: NoticeKey, clock: Clock, *, wait_ms: int, most: int) -> None:
        self._desk, self._key, self._clock = desk, key, clock
        self.batcher: Batcher[BidNotice, BillVerdict] = Batcher(
            self._take, wait_seconds=wait_ms / 1000, most=most
        )
        self.taken = Counter(
            "tacit_openrtb_notices", "Notices of exchanges, by what became of them.", ["verdict"], registry=None
        )
        for verdict in UNCHARGED:  # there from the start, so that an alert sees the first
            self.taken.labels(refusal_name(verdict))
        self.lost = Counter(
            "tacit_openrtb_notices_lost", "Notices whose reports the proxy refused for good.",
            registry=None,
        )  # fmt: skip

    def _take(self, notices: Sequence[BidNotice]) -> Sequence[BillVerdict]:
        return self._desk.take(notices, self._clock())

    async def endpoint(self, request: Request) -> Response:
        """No content, as OpenRTB has it: neither of success nor of a refusal."""
        if request.method == "HEAD":  # asks whether there is something, and tells of nothing
            return Response(status_code=204)
        try:
            verdict = await self.batcher.submit(self._key.open(request.path_params["token"]))
        except BillRefused as refused:
            verdict = BillVerdict(refused.reason)
        self.taken.labels(refusal_name(verdict)).inc()
        return Response(status_code=STATUS.get(verdict, 404))

    def routes(self) -> list[Route]:
        return [Route(f"{PATH}/{{token}}", self.endpoint, methods=["GET", "POST"])]


class NoticeReporter:
    """Sends reports of notices to the proxy until it has them. It may be cut off anywhere and goes on."""

    def __init__(
        self,
        store: NoticeStore,
        send: SendReport,
        *,
        clock: Clock,
        every_seconds: float,
        note_lost: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """How many reports the proxy refused for good is told to whoever counts."""
        self._note_lost = note_lost
        self._store, self._send, self._clock, self._every_seconds = store, send, clock, every_seconds
        self._pause, self._forgot = every_seconds, clock()
        self._trouble = TroubleLog("reports of notices are delivered again", logging.WARNING)
        self._ended = asyncio.Event()

    def look(self) -> float:
        """Send what waits; the seconds until the next look."""
        trouble = ""
        try:
            while (waiting := self._store.waiting(AT_ONCE)) and not self._ended.is_set():
                with ThreadPoolExecutor(SENDERS) as senders:
                    outcomes = list(zip(waiting, senders.map(self._deliver, waiting), strict=True))
                self._store.mark_delivered([each.nonce for each, verdict in outcomes if verdict is not None])
                lost = [verdict for _, verdict in outcomes if verdict is not None and verdict not in TAKEN]
                if lost:
                    self._note_lost(len(lost))
                    LOG.error("the proxy refused %d reports of notices: %s", len(lost), lost[0].words)
                if any(verdict is None for _, verdict in outcomes):
                    trouble = "the proxy did not answer for a report of an exchange's notice, will try again"
                    break
            self._forget()
        except TacitError as problem:
            trouble = f"notices wait, will try again: {error_line(problem)}"
        if not (trouble and self._ended.is_set()):
            self._trouble.tell(trouble)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS) if trouble else self._every_seconds
        return self._pause

    def _deliver(self, notice: KeptNotice) -> BillVerdict | None:
        """What the proxy says of a report for good; None where it is to be sent again."""
        if self._ended.is_set():
            return None
        try:
            self._send(notice.report)
        except BillRefused as refused:
            return BillVerdict(refused.reason) if refused.reason in FINAL else None
        except (OSError, TacitError):
            return None
        return BillVerdict.ACCEPTED

    def _forget(self) -> None:
        now = self._clock()
        if abs(now - self._forgot) >= KEEP_SECONDS // 24:
            self._store.forget(now - KEEP_SECONDS)
            self._forgot = now

    async def run(self) -> None:
        await keep_looking(self.look, self._ended, lambda: LONGEST_PAUSE_SECONDS)

    def end(self) -> None:
        """Stop after the reports that are on their way."""
        self._ended.set()


class SpentMenus:
    """Menus of which no token is left, looked up each second: nobody would be charged for what is shown.
    A menu of which a notice was refused is one at once."""

    def __init__(
        self, desk: NoticeDesk, database: PartyDatabase, heads: Callable[[], Sequence[EpochHead]]
    ) -> None:
        self._desk, self._database, self._heads = desk, database, heads
        self._spent: frozenset[bytes] = frozenset()

    def __contains__(self, menu_id: bytes) -> bool:
        return menu_id in self._spent or self._desk.is_spent(menu_id)

    def look(self) -> float:
        used = [each for head in self._heads() for each in token_use(self._database, head.epoch, spent=True)]
        self._spent = frozenset(each.menu_id for each in used)
        return SPENT_SECONDS


def look_at_notices(store: SqlNoticeStore) -> Look:
    """What waits for the proxy."""
    words = "Reports of exchanges' notices that the proxy may not have yet."
    return lambda: [Reading("tacit_openrtb_notices_waiting", words, store.count_waiting())]
