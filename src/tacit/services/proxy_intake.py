"""How the proxy takes uploads: unsettled rounds, group commit, and checks before anything waits.

Unsettled rounds are read from the store when the proxy starts, and kept up to date after that: every few
seconds where other processes may open rounds in the same store.

Group commit: uploads that arrive at the same time are decided and stored together, and answered after that. A
durable commit costs about the same for one upload as for hundreds. The first of a batch waits a few
milliseconds for others; while a batch is being stored the next one gathers.

Uploads of devices that are not enrolled are refused before they wait or reach the store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from tacit.errors import Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.rounds import Round
from tacit.gather.protocol.uploads import upload_digest
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.reports import UPLOAD_ANSWERS, KnownRound, KnownRounds, admit_upload
from tacit.gather.proxy.store import NewReport, ProxyPhase, ProxyStore, StoredProxyRound
from tacit.services import rounds
from tacit.services.endpoints import Clock, LruCache, UploadQuota
from tacit.services.problems import ServiceBusy, TroubleLog
from tacit.services.rounds import AnnouncedRound, QuestionFiles
from tacit.services.settings import ServicePace

SETTLED = frozenset({ProxyPhase.RELEASED, ProxyPhase.TOO_FEW, ProxyPhase.STOPPED})


REFRESH_SECONDS = 3.0


class RoundsStore(Protocol):
    """The part of a proxy's store that is needed here."""

    def rounds(self) -> Sequence[StoredProxyRound]: ...


class UnsettledRounds:
    """Rounds that are not settled. What is settled is let go: it is in the store for whoever asks."""

    def __init__(self, store: RoundsStore, *, not_before: int) -> None:
        """A round with too few reports is told to the server once more, unless it closed before that second."""
        self._store = store
        stored = [(Round.from_bytes(each.body), each.phase) for each in store.rounds()]
        self._rounds = {
            round.digest: round
            for round, phase in stored
            if phase not in SETTLED or (phase is ProxyPhase.TOO_FEW and round.closes >= not_before)
        }
        self._lock = threading.Lock()

    def refresh(self) -> float:
        """Hear of what other processes opened and settled; the seconds until the next time."""
        stored = [(Round.from_bytes(each.body), each.phase) for each in self._store.rounds()]
        with self._lock:
            for round, phase in stored:
                if phase not in SETTLED:
                    self._rounds[round.digest] = round
                elif phase is not ProxyPhase.TOO_FEW:  # of which the server is told once more
                    self._rounds.pop(round.digest, None)
        return REFRESH_SECONDS

    def add(self, round: Round) -> None:
        with self._lock:
            self._rounds[round.digest] = round

    def settle(self, round: Round) -> None:
        with self._lock:
            self._rounds.pop(round.digest, None)

    def all(self) -> Sequence[Round]:
        with self._lock:
            return list(self._rounds.values())


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Hands items in batches to `decide`, which runs in a thread and gives an answer for each, in order."""

    def __init__(
        self,
        decide: Callable[[Sequence[Item]], Sequence[Answer]],
        *,
        wait_seconds: float,
        most: int,
    ) -> None:
        self._decide, self._wait_seconds, self._most = decide, wait_seconds, most
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._arrived, self._full = asyncio.Event(), asyncio.Event()
        self._ending = False

    async def submit(self, item: Item) -> Answer:
        """The answer for this item, once its batch is decided; the caller sees to it that not too many wait."""
        if self._ending:
            raise ServiceBusy
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        self._arrived.set()
        if len(self._waiting) >= self._most:
            self._full.set()
        return await answer

    async def run(self) -> None:
        """Decide batch after batch, until `end`; what came before it is still decided."""
        while True:
            await self._arrived.wait()
            if self._wait_seconds and not self._ending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._full.wait(), self._wait_seconds)
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            if len(self._waiting) < self._most:
                self._full.clear()
            if batch:
                await self._answer(batch)
            if not self._waiting:
                if self._ending:
                    return
                self._arrived.clear()

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await asyncio.to_thread(self._decide, [item for item, _ in batch])
        except Exception as error:
            for _, waiting in batch:
                if not waiting.done():  # its caller may have gone away
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)

    def end(self) -> None:
        self._ending = True
        self._arrived.set()
        self._full.set()


MOST_KNOWN = 256


class Intake:
    """What the endpoints share: rounds as they were last read, uploads that wait, and the memory they take."""

    def __init__(
        self,
        proxy: Proxy,
        store: ProxyStore,
        live: UnsettledRounds,
        questions: QuestionFiles,
        *,
        enrolment_secret: bytes,
        clock: Clock,
        pace: ServicePace,
    ) -> None:
        self.questions, self.quota = questions, UploadQuota(pace.held_bytes_most)
        self._trouble = TroubleLog("all open rounds have their questions again")
        self._proxy, self._store, self._live = proxy, store, live
        self._enrolment_secret, self._clock = enrolment_secret, clock
        self._recent: LruCache[bytes, KnownRound] = LruCache(MOST_KNOWN)
        self._listed: tuple[int, bytes] | None = None  # the second at which the list was made
        self.batcher: Batcher[NewReport, MessageVerdict] = Batcher(
            self._take, wait_seconds=pace.commit_wait_ms / 1000, most=pace.commit_most
        )

    def open(self, announced: AnnouncedRound) -> None:
        # The question first: a round that is open can be asked for.
        self.questions.keep(announced.round.question, announced.question)
        self._proxy.open_round(announced.round)
        if self.stored_round(announced.round.digest).phase not in SETTLED:
            self._live.add(announced.round)
            self._listed = None

    def stored_round(self, digest: bytes) -> StoredProxyRound:
        found = self._store.round(digest)
        if found is None:
            raise Refused(MessageVerdict.UNKNOWN_ROUND)
        return found

    def cached_round(self, digest: bytes) -> KnownRound | None:
        return self._recent.get(digest)

    def known_round(self, digest: bytes) -> KnownRound:
        """A round, from the store where it is not remembered; it never changes, only its phase does."""
        found = self._recent.get(digest)
        if found is None:
            found = KnownRound.of(Round.from_bytes(self.stored_round(digest).body))
            self._recent.put(digest, found)
        return found

    def open_rounds(self) -> bytes:
        """The rounds that take reports now; the list is made anew at most once per second."""
        now = self._clock()
        if self._listed is None or self._listed[0] != now:
            here = [
                each for each in self._live.all() if each.opens - each.skew <= now < each.closes + each.skew
            ]
            self._listed = now, rounds.pack_rounds(self._answerable(here))
        return self._listed[1]

    def _answerable(self, here: Sequence[Round]) -> list[tuple[bytes, bytes]]:
        """Rounds with their questions; one whose question is gone, as after a restore, keeps no other from
        being told of."""
        parts, lacking = [], []
        for each in here:
            try:
                parts.append((each.to_bytes(), self.questions.find(each.question)))
            except Refused:
                lacking.append(each.key)
        self._trouble.tell(f"questions of open rounds are gone: {', '.join(lacking)}" if lacking else "")
        return parts

    def report_in(self, upload: bytes, known: KnownRound, report_id: bytes) -> NewReport:
        """The report of an enrolled device, or Refused: all that needs neither a store nor the time."""
        round = known.round
        if upload_digest(upload) != round.digest:
            raise Refused(MessageVerdict.MALFORMED, "expected the upload that its path names")
        report = admit_upload(upload, _OneRound(known), self._enrolment_secret, round.opens)
        if report.report_id != report_id:
            raise Refused(MessageVerdict.MALFORMED, "expected the upload that its path names")
        return report

    def _take(self, reports: Sequence[NewReport]) -> Sequence[MessageVerdict]:
        now = self._clock()
        answers = self._proxy.take([each.upload for each in reports], now)
        late = [place for place, answer in enumerate(answers) if answer is MessageVerdict.TOO_LATE]
        for place, answer in zip(late, self._too_late([reports[place] for place in late]), strict=True):
            answers[place] = answer
        return answers

    def _too_late(self, reports: Sequence[NewReport]) -> Sequence[MessageVerdict]:
        """Whether they came in time once before: a device whose answer got lost is told of its report.

        Nothing is changed by it: the round is over by the clock, which may be wrong.
        """
        return [UPLOAD_ANSWERS[each] for each in self._store.find_reports(reports)] if reports else []


class _OneRound(KnownRounds):
    """The round that an upload's path names, and no store behind it."""

    def __init__(self, known: KnownRound) -> None:
        self._known, self.largest_upload = known, known.layout.size

    def of(self, digest: bytes) -> KnownRound:
        if digest != self._known.round.digest:
            raise Refused(MessageVerdict.UNKNOWN_ROUND)
        return self._known
