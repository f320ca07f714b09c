"""A round from the first upload to its release, driven through the parties' own code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tacit.errors import TooFew
from tacit.gather.proxy.driving import drive
from tacit.gather.proxy.party import Proxy
from tacit.gather.proxy.store import ProxyStore
from tacit.gather.server.party import Server
from tacit.gather.server.store import ServerStore
from tacit.gather.simulate.making import Clock, Devices, Made
from tacit.gather.simulate.outcome import PartySeconds, Simulated, Traffic
from tacit.gather.simulate.population import MISBEHAVIOURS, SHIFT, Behaviour, Population, refusal_of
from tacit.gather.simulate.setting import Keys
from tacit.gather.simulate.workers import made_blocks
from tacit.gather.wire.forms import Form, Prepared
from tacit.gather.wire.jobs import JobReply
from tacit.gather.wire.opening import Entries, open_parts
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.releases import Payer
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import Role, SealingKey

Told = Callable[[int], None]
"""Told how many devices are done."""


def _untold(done: int) -> None:
    del done


@dataclass(frozen=True)
class Books:
    """Where one simulation keeps its state: in memory or on disk, as its caller likes."""

    proxy_store: ProxyStore
    server_store: ServerStore
    proxy_ledger: Payer
    server_ledger: Payer


@dataclass
class _Tally:
    """What is known so far; nothing here grows with the number of devices."""

    exact: np.ndarray[tuple[int], np.dtype[np.int64]]
    present: int = 0
    uploads: int = 0
    accepted: int = 0
    shift: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    foreseen: Counter[Refusal] = field(default_factory=Counter)
    unseen: Counter[Behaviour] = field(default_factory=Counter)  # accepted, but not honest
    traffic: Traffic = field(default_factory=Traffic)
    seconds: PartySeconds = field(default_factory=PartySeconds)


class World:
    """Devices, a proxy and a server, and one round between them.

    Uploads are made, taken, opened and judged a block at a time, so that memory does not grow with the number
    of devices (what the stores keep of each report, its id, is theirs).
    """

    def __init__(
        self,
        round: Round,
        population: Population,
        keys: Keys,
        books: Books,
        *,
        clock: Clock,
    ) -> None:
        self._round, self._population, self._clock = round, population, clock
        self._secret = keys.enrolment_secret
        self._refused_by_proxy: dict[bytes, Refusal] = {}
        self.proxy = Proxy(
            keys.proxy,
            books.proxy_store,
            books.proxy_ledger,
            enrolment_secret=keys.enrolment_secret,
            check_key=keys.check_key,
            opening=self._open_and_note,
        )
        self.server = Server(keys.server, books.server_store, books.server_ledger, check_key=keys.check_key)
        self.proxy.open_round(round)
        self.server.open_round(round)

    def run(self, *, processes: int = 1, told: Told = _untold) -> Simulated:
        """The whole round: all uploads, all jobs, the agreement, the release."""
        steps = self.steps(processes)
        while True:
            try:
                told(next(steps))
            except StopIteration as end:
                found: Simulated = end.value
                return found

    def steps(self, processes: int = 1) -> Generator[int, None, Simulated]:
        """The same a block at a time: how many devices are done, and in the end what came of it."""
        devices = Devices(self._round, self._population, self._secret, self._clock)
        tally = _Tally(np.zeros(self._round.cells, np.int64))
        done = 0
        for made in made_blocks(devices, processes):
            done += self._block(made, tally)
            yield done
        released = self._release(tally)
        noise, accepted = self._round.noise, tally.accepted
        law, quiet = noise.device_law, tally.unseen[Behaviour.NO_NOISE]
        stated = noise.published_variance(accepted)
        left_out = 0.0 if law is None else (quiet + tally.unseen[Behaviour.OUT_OF_RANGE]) * float(law.variance)
        return Simulated(
            devices=self._population.devices,
            present=tally.present,
            uploads=tally.uploads,
            accepted=accepted,
            refused=tally.refused,
            foreseen=tally.foreseen,
            lied=tally.unseen[Behaviour.OUT_OF_RANGE],
            without_noise=quiet,
            exact=tally.exact,
            shift=tally.shift,
            released=released,
            variance_stated=stated,
            variance_expected=stated - left_out,
            traffic=tally.traffic,
            seconds=tally.seconds,
        )

    def _block(self, made: Made, tally: _Tally) -> int:
        """Take the uploads of a block, have them judged, count what was accepted; how many devices it had."""
        block = self._population.block(made.block)
        taken = self._take(made, tally)
        rows = np.array([taken[each] for each in self._judge(taken, tally)], np.intp)
        tally.exact += block.total(rows)
        tally.accepted += len(rows)
        tally.present += int(block.present.sum())
        tally.uploads += len(made.sent)
        for row in rows.tolist():
            tally.unseen[block.behaves(row)] += 1
        if self._round.bounds is None:
            tally.shift += SHIFT * sum(block.behaves(row) is Behaviour.OUT_OF_RANGE for row in rows.tolist())
        for behaviour in MISBEHAVIOURS:
            senders = {each.row for each in made.sent if block.behaves(each.row) is behaviour}
            reason = refusal_of(behaviour, proof=self._round.bounds is not None)
            if reason is not Refusal.ACCEPTED and senders:
                tally.foreseen[reason] += len(senders)
        tally.seconds += PartySeconds(devices=made.seconds)
        return len(block)

    def _take(self, made: Made, tally: _Tally) -> dict[bytes, int]:
        """The ids of the reports that the proxy took, each at its time, and whose they are."""
        taken: dict[bytes, int] = {}
        for late in (False, True):
            sent = [each for each in made.sent if each.late is late]
            if not sent:
                continue
            now = self._round.closes + self._round.skew if late else self._round.opens
            with self._timed(tally, Role.PROXY):
                answers = self.proxy.take([each.data for each in sent], now)
            tally.traffic += Traffic(uploads=sum(len(each.data) for each in sent))
            for each, answer in zip(sent, answers, strict=True):
                if answer is Refusal.ACCEPTED:
                    taken[each.report_id] = each.row
                else:
                    tally.refused[answer] += 1
        return taken

    def _judge(self, taken: dict[bytes, int], tally: _Tally) -> set[bytes]:
        """The ids among them that both parties accepted."""
        digest, now = self._round.digest, self._round.opens
        accepted: set[bytes] = set()
        while True:
            with self._timed(tally, Role.PROXY):
                job = self.proxy.next_job(digest)
                body = b"" if job is None else job.to_bytes()
            if job is None:
                break
            with self._timed(tally, Role.SERVER):
                reply = self.server.job(body, now)
            with self._timed(tally, Role.PROXY):
                self.proxy.job_answered(reply)
            tally.traffic += Traffic(to_server=len(body), from_server=len(reply))
            for entry, code in zip(job.entries, JobReply.from_bytes(reply).verdicts, strict=True):
                if code == Refusal.ACCEPTED:
                    accepted.add(entry.report_id)
                else:
                    self._refused_by_proxy[entry.report_id] = Refusal(code)
        for report_id in taken.keys() - accepted:
            tally.refused[self._refused_by_proxy.pop(report_id, Refusal.CLOSED)] += 1
        return accepted

    def _release(self, tally: _Tally) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
        now = self._round.closes + self._round.skew
        link = _Direct(self, now, tally)
        before = self._clock()
        drive(self.proxy, link, self._round.digest, now)
        tally.seconds += PartySeconds(proxy=self._clock() - before - link.seconds, server=link.seconds)
        try:
            return self.server.result(self._round.digest, now).values
        except TooFew:
            return None

    def _open_and_note(
        self, key: SealingKey, role: Role, form: Form, entries: Entries, digest: bytes, check_key: bytes
    ) -> Prepared:
        """The usual opening; what the proxy refuses in it is remembered until its block is counted."""
        prepared = open_parts(key, role, form, entries, digest, check_key)
        for row in np.flatnonzero(prepared.refused).tolist():
            self._refused_by_proxy[entries[row][0]] = Refusal(int(prepared.refused[row]))
        return prepared

    @contextmanager
    def _timed(self, tally: _Tally, role: Role) -> Iterator[None]:
        before = self._clock()
        yield
        taken = self._clock() - before
        tally.seconds += PartySeconds(proxy=taken) if role is Role.PROXY else PartySeconds(server=taken)


class _Direct:
    """The way to the server within one process; counts its time and bytes."""

    def __init__(self, world: World, now: int, tally: _Tally) -> None:
        self._world, self._now, self._tally = world, now, tally
        self.seconds = 0.0

    def job(self, body: bytes) -> bytes:
        return self._sent(self._world.server.job, body)

    def agree(self, body: bytes) -> bytes:
        return self._sent(self._world.server.agree, body)

    def share(self, body: bytes) -> bytes:
        return self._sent(self._world.server.share, body)

    def _sent(self, handle: Callable[[bytes, int], bytes], body: bytes) -> bytes:
        before = self._world._clock()
        reply = handle(body, self._now)
        self.seconds += self._world._clock() - before
        self._tally.traffic += Traffic(to_server=len(body), from_server=len(reply))
        return reply
