"""The proxy's background task that settles rounds: closed ones, and those with enough reports waiting.

The link to the server may lose messages, be slow, or be down, and trouble with one round must not delay the
others:

    a message that gets no answer     sent once more at once, if the link answered before it
    a round whose message is lost     left where it is until the next pass; the other rounds are tried
    a pass in which nothing came back a longer pause before the next one, up to half a minute
    a pass in which something did     the usual pause: whatever else was lost, the link works
    a round that cannot go on         a pause of its own, longer each time: no budget, for example

Pauses are measured by a monotonic timer, not by the clock, and drawn from their second half, so that parties
that failed together do not return together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.entropy import Entropy, Simulation
from tacit.errors import TacitError
from tacit.gather.protocol.rounds import Round
from tacit.gather.proxy.party import Proxy, ServerLink, drive
from tacit.gather.proxy.store import ProxyPhase, ProxyStore
from tacit.services.background import keep_looking
from tacit.services.endpoints import Clock
from tacit.services.http_clients import LinkFailed
from tacit.services.log import error_line
from tacit.services.problems import LOG
from tacit.services.proxy_intake import SETTLED, UnsettledRounds

LONGEST_PAUSE_SECONDS = 30.0
FAILURES_THAT_TELL = 2  # in a row, with no answer at all: then the other rounds' messages would fail, too

Timer = Callable[[], float]
"""Seconds since some moment, which only go forward."""


@dataclass
class LinkState:
    """Whether the server answered when it was last asked."""

    works: bool = True


class RoundDriver:
    """Looks at live rounds again and again. It may be cut off anywhere: the next look goes on from there."""

    def __init__(
        self,
        proxy: Proxy,
        store: ProxyStore,
        live: UnsettledRounds,
        link: ServerLink,
        *,
        reach: LinkState,
        clock: Clock,
        timer: Timer,
        entropy: Entropy | Simulation,
        enough: int,
        every_seconds: float,
    ) -> None:
        self._proxy, self._store, self._live, self._clock = proxy, store, live, clock
        self._reach, self._timer, self._entropy = reach, timer, entropy
        self._enough, self._every_seconds = enough, every_seconds
        self._troubled: dict[bytes, tuple[float, float]] = {}  # when to try again, and the pause before it
        self._losses: dict[bytes, int] = {}  # looks that ended in a lost message, since one did not
        self._complaints: dict[bytes, str] = {}  # what was last said of a round's trouble
        self._said = ""  # of the link
        self._pause = every_seconds
        self._ended = asyncio.Event()
        self._link = _RetryingLink(link, self._ended)

    def due(self, now: int) -> list[Round]:
        """Rounds that are not settled, and closed by now, or begun to close, or have enough reports waiting.

        Those whose messages got lost come last: what was too much for the link does not hold up the others.
        """
        awake = self._timer()
        due = [
            each
            for each in self._live.all()
            if awake >= self._troubled.get(each.digest, (awake, 0.0))[0] and self._is_due(each, now)
        ]
        return sorted(due, key=lambda each: self._losses.get(each.digest, 0))

    def _is_due(self, round: Round, now: int) -> bool:
        if now >= round.closes + round.skew or self._store.waiting_count(round.digest) >= self._enough:
            return True
        # Closed, and yet not over by the clock, which was wrong then or is wrong now: the server will say.
        stored = self._store.round(round.digest)
        return stored is not None and stored.phase is not ProxyPhase.OPEN

    def look(self) -> float:
        """One look at all rounds; the seconds until the next."""
        lost: list[OSError] = []
        before = self._link.answered
        for round in self.due(self._clock()):
            try:
                self._drive(round)
                self._losses.pop(round.digest, None)
            except OSError as problem:
                lost.append(problem)
                self._losses[round.digest] = self._losses.get(round.digest, 0) + 1
                if self._link.answered == before and len(lost) >= FAILURES_THAT_TELL:
                    break
        works = not lost or self._link.answered > before
        if works:
            self._pause = self._every_seconds
            self._reach.works = self._reach.works or self._link.answered > before
        else:
            self._longer_pause()
            self._reach.works = False
        self._tell(lost, works=works)
        return self._jitter(self._pause) if lost else self._pause

    def _tell(self, lost: Sequence[OSError], *, works: bool) -> None:
        """One line when it begins, or is about something else, and one when it is over."""
        if lost and not self._ended.is_set():
            said = str(lost[0]) if isinstance(lost[0], LinkFailed) else type(lost[0]).__name__
            if said != self._said:
                LOG.warning("the server did not answer for %d round(s), will try again: %s", len(lost), said)
            self._said = said
        elif works and self._said:
            LOG.info("the server answers again")
            self._said = ""

    def _drive(self, round: Round) -> None:
        """Bring one round as far as it goes. Its trouble is its own: other rounds do not wait for it."""
        before = self._proxy.phase(round.digest)
        try:
            phase = drive(self._proxy, self._link, round.digest, self._clock(), most=self._enough)
        except TacitError as problem:  # no budget, say, or other reports at the server: somebody has to look
            pause = min(2 * self._troubled.get(round.digest, (0.0, 1.0))[1], LONGEST_PAUSE_SECONDS)
            self._troubled[round.digest] = self._timer() + self._jitter(pause), pause
            if self._complaints.get(round.digest) != (said := error_line(problem)):
                LOG.error("%s cannot go on, will try again: %s", round.key, said)
            self._complaints[round.digest] = said
            return
        self._troubled.pop(round.digest, None)
        self._complaints.pop(round.digest, None)
        if phase is ProxyPhase.OPEN and before is ProxyPhase.CLOSED:
            LOG.warning("%s takes reports again: it was closed by a clock that was wrong", round.key)
        if phase in SETTLED:
            self._live.settle(round)  # the server knows, too
            if phase is not before:
                LOG.info("%s is settled: %s", round.key, phase)

    def _jitter(self, pause: float) -> float:
        return pause * (0.5 + self._entropy.uniform_below(1 << 16) / (1 << 17))

    def _longer_pause(self) -> float:
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return self._pause

    async def run(self) -> None:
        await keep_looking(self.look, self._ended, self._longer_pause)

    def end(self) -> None:
        """Stop after the message that is on its way now."""
        self._ended.set()


class _RetryingLink:
    """A link that sends a lost message once more while it works otherwise, and counts its answers.

    It is down once the service is to end, so that no round keeps it from ending.
    """

    def __init__(self, link: ServerLink, ended: asyncio.Event) -> None:
        self._link, self._ended = link, ended
        self._works, self.answered = False, 0

    def job(self, body: bytes) -> bytes:
        return self._send(self._link.job, body)

    def agree(self, body: bytes) -> bytes:
        return self._send(self._link.agree, body)

    def share(self, body: bytes) -> bytes:
        return self._send(self._link.share, body)

    def _send(self, send: Callable[[bytes], bytes], body: bytes) -> bytes:
        insist, self._works = self._works, False
        try:
            reply = self._once(send, body)
        except OSError:
            if not insist:
                raise
            reply = self._once(send, body)
        return reply

    def _once(self, send: Callable[[bytes], bytes], body: bytes) -> bytes:
        if self._ended.is_set():
            raise LinkFailed("this service is ending")
        try:
            reply = send(body)
        except TacitError:  # an answer, if not the one that was hoped for
            self._works, self.answered = True, self.answered + 1
            raise
        self._works, self.answered = True, self.answered + 1
        return reply
