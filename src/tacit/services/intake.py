"""How the proxy takes uploads: strangers are sent away before anything of theirs waits or reaches the store."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import Refused
from tacit.gather.proxy.intake import ANSWERS, admitted
from tacit.gather.proxy.known import Known, KnownRounds
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import NewReport, ProxyStore, StoredRound
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.uploads import digest_of
from tacit.services import announcing
from tacit.services.admitting import Clock
from tacit.services.announcing import Announced, Questions
from tacit.services.batching import Batcher
from tacit.services.holding import Room
from tacit.services.live import SETTLED, LiveRounds
from tacit.services.recent import Recent
from tacit.services.settings import Pace

MOST_KNOWN = 256


class Intake:
    """What the endpoints share: rounds as they were last read, uploads that wait, and the room they take."""

    def __init__(
        self,
        proxy: Proxy,
        store: ProxyStore,
        live: LiveRounds,
        questions: Questions,
        *,
        enrolment_secret: bytes,
        clock: Clock,
        pace: Pace,
    ) -> None:
        self.questions, self.room = questions, Room(pace.held_bytes_most)
        self._proxy, self._store, self._live = proxy, store, live
        self._enrolment_secret, self._clock = enrolment_secret, clock
        self._recent: Recent[bytes, Known] = Recent(MOST_KNOWN)
        self._listed: tuple[int, bytes] | None = None  # the second at which the list was made
        self.batcher: Batcher[NewReport, Refusal] = Batcher(
            self._take, wait_seconds=pace.commit_wait_ms / 1000, most=pace.commit_most
        )

    def open(self, announced: Announced) -> None:
        # The question first: a round that is open can be asked for.
        self.questions.keep(announced.round.question, announced.question)
        self._proxy.open_round(announced.round)
        if self.stored(announced.round.digest).phase not in SETTLED:
            self._live.add(announced.round)
            self._listed = None

    def stored(self, digest: bytes) -> StoredRound:
        found = self._store.round(digest)
        if found is None:
            raise Refused(Refusal.UNKNOWN_ROUND)
        return found

    def remembered(self, digest: bytes) -> Known | None:
        return self._recent.get(digest)

    def known(self, digest: bytes) -> Known:
        """A round, from the store where it is not remembered; it never changes, only its phase does."""
        found = self._recent.get(digest)
        if found is None:
            found = Known.of(Round.from_bytes(self.stored(digest).body))
            self._recent.keep(digest, found)
        return found

    def listed(self) -> bytes:
        """The rounds that take reports now; the list is made anew at most once a second."""
        now = self._clock()
        if self._listed is None or self._listed[0] != now:
            here = [
                each for each in self._live.all() if each.opens - each.skew <= now < each.closes + each.skew
            ]
            parts = [(each.to_bytes(), self.questions.find(each.question)) for each in here]
            self._listed = now, announcing.to_bytes(parts)
        return self._listed[1]

    def report_in(self, upload: bytes, known: Known, report_id: bytes) -> NewReport:
        """The report of an enrolled device, or Refused: all that needs neither a store nor the time."""
        round = known.round
        if digest_of(upload) != round.digest:
            raise Refused(Refusal.MALFORMED, "expected the upload that its path names")
        report = admitted(upload, _OneRound(known), self._enrolment_secret, round.opens)
        if report.report_id != report_id:
            raise Refused(Refusal.MALFORMED, "expected the upload that its path names")
        return report

    def _take(self, reports: Sequence[NewReport]) -> Sequence[Refusal]:
        now = self._clock()
        answers = self._proxy.take([each.upload for each in reports], now)
        late = [place for place, answer in enumerate(answers) if answer is Refusal.TOO_LATE]
        for place, answer in zip(late, self._too_late([reports[place] for place in late]), strict=True):
            answers[place] = answer
        return answers

    def _too_late(self, reports: Sequence[NewReport]) -> Sequence[Refusal]:
        """Whether they came in time once before: a device whose answer got lost is told of its report.

        Nothing is changed by it: the round is over by the clock, which may be wrong.
        """
        return [ANSWERS[each] for each in self._store.find_reports(reports)] if reports else []


class _OneRound(KnownRounds):
    """The round that an upload's path names, and no store behind it."""

    def __init__(self, known: Known) -> None:
        self._known, self.largest_upload = known, known.layout.size

    def of(self, digest: bytes) -> Known:
        if digest != self._known.round.digest:
            raise Refused(Refusal.UNKNOWN_ROUND)
        return self._known
