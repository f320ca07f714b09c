"""A simulated round, from the first upload to its release, by the parties' own code; and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import TooFew
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import JobReply
from tacit.gather.protocol.releases import PartyLedger
from tacit.gather.protocol.rounds import Round
from tacit.gather.protocol.sharing import PreparedShares, SealedParts, SharingScheme, open_parts
from tacit.gather.proxy.party import Proxy, drive
from tacit.gather.proxy.store import ProxyStore
from tacit.gather.server.party import Server
from tacit.gather.server.store import ServerStore
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore
from tacit.gather.simulate.population import (
    MISBEHAVIOURS,
    SHIFT,
    Behaviour,
    Population,
    SimulationKeys,
    expected_refusal,
)
from tacit.gather.simulate.uploads import BlockUploads, Clock, UploadSettings, make_upload_blocks
from tacit.memory_ledger import MemoryLedger
from tacit.progress import Count, no_count


@dataclass(frozen=True)
class Traffic:
    """Bytes on the wire: from devices to the proxy, from the proxy to the server and back."""

    uploads: int = 0
    to_server: int = 0
    from_server: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.uploads + other.uploads, self.to_server + other.to_server, self.from_server + other.from_server
        )


@dataclass(frozen=True)
class PartySeconds:
    """Time by party, as the clock that was handed in counts it."""

    devices: float = 0.0
    proxy: float = 0.0
    server: float = 0.0

    def __add__(self, other: PartySeconds) -> PartySeconds:
        return PartySeconds(self.devices + other.devices, self.proxy + other.proxy, self.server + other.server)


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """A round: who took part, what was refused and why, and the release beside the exact sum."""

    devices: int
    present: int
    uploads: int
    accepted: int
    refused: Mapping[MessageVerdict, int]
    foreseen: Mapping[MessageVerdict, int]  # what the misbehaviour should have led to
    lied: int  # accepted reports with counts that no honest device has
    without_noise: int  # accepted reports that left the device's noise out
    exact: NDArray[np.int64]  # (cells,) over the accepted reports, as honest devices would have counted
    shift: int  # what liars added to the first count
    released: NDArray[np.int64] | None  # (cells,); None: too few reports
    variance_stated: float  # of the noise in each released count, as the round publishes it
    variance_expected: float  # the same, less what devices left out
    traffic: Traffic
    seconds: PartySeconds

    @property
    def as_foreseen(self) -> bool:
        """Whether exactly the bad uploads were refused, each for its reason."""
        return dict(self.refused) == dict(self.foreseen)

    @property
    def noise(self) -> NDArray[np.int64] | None:
        """(cells,) what is in the release beside the exact sum and the lies."""
        if self.released is None:
            return None
        noise = self.released - self.exact
        noise[0] -= self.shift
        return noise

    @property
    def variance_seen(self) -> float | None:
        """Mean square of the noise: its law has mean 0."""
        return None if self.noise is None else float(np.mean(self.noise.astype(np.float64) ** 2))

    @property
    def largest_error(self) -> int | None:
        """Of any released count against the exact one, lies included."""
        return None if self.released is None else int(np.abs(self.released - self.exact).max())

    def as_json(self) -> dict[str, Any]:
        return {
            "devices": self.devices,
            "present": self.present,
            "uploads": self.uploads,
            "accepted": self.accepted,
            "refused": {str(reason.name).lower(): count for reason, count in sorted(self.refused.items())},
            "refused_as_foreseen": self.as_foreseen,
            "accepted_lies": self.lied,
            "accepted_without_noise": self.without_noise,
            "released": self.released is not None,
            "noise_variance_stated": self.variance_stated,
            "noise_variance_expected": self.variance_expected,
            "noise_variance_seen": self.variance_seen,
            "largest_error": self.largest_error,
            "bytes_uploaded": self.traffic.uploads,
            "bytes_to_server": self.traffic.to_server,
            "bytes_from_server": self.traffic.from_server,
            "seconds_devices": self.seconds.devices,
            "seconds_proxy": self.seconds.proxy,
            "seconds_server": self.seconds.server,
        }


@dataclass(frozen=True)
class PartyStores:
    """Where one simulation keeps its state: in memory or on disk, as its caller likes."""

    proxy_store: ProxyStore
    server_store: ServerStore
    proxy_ledger: PartyLedger
    server_ledger: PartyLedger

    @classmethod
    def in_memory(cls, round: Round) -> PartyStores:
        """Gone with the process; both ledgers have room for this round."""
        expect.kind("round", round, Round)
        ledgers = MemoryLedger(), MemoryLedger()
        for ledger in ledgers:
            ledger.grant(round.line, round.cost)
        return cls(MemoryProxyStore(), MemoryServerStore(), *ledgers)


@dataclass
class _Tally:
    """What is known so far; nothing here grows with the number of devices."""

    exact: np.ndarray[tuple[int], np.dtype[np.int64]]
    present: int = 0
    uploads: int = 0
    accepted: int = 0
    shift: int = 0
    refused: Counter[MessageVerdict] = field(default_factory=Counter)
    foreseen: Counter[MessageVerdict] = field(default_factory=Counter)
    unseen: Counter[Behaviour] = field(default_factory=Counter)  # accepted, but not honest
    traffic: Traffic = field(default_factory=Traffic)
    seconds: PartySeconds = field(default_factory=PartySeconds)


class SimulatedRound:
    """Devices, a proxy and a server, and one round between them.

    Uploads are made, taken, opened and judged a block at a time, so that memory does not grow with the number
    of devices (what the stores keep of each report, its id, is theirs).
    """

    def __init__(
        self,
        round: Round,
        population: Population,
        keys: SimulationKeys,
        books: PartyStores,
        *,
        clock: Clock,
    ) -> None:
        self._round, self._population, self._clock = round, population, clock
        self._secret = keys.enrolment_secret
        self._refused_by_proxy: dict[bytes, MessageVerdict] = {}
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

    def run(self, *, processes: int = 1, progress: Count = no_count) -> RoundOutcome:
        """The whole round: all uploads, all jobs, the agreement, the release."""
        steps = self.steps(processes)
        while True:
            try:
                progress(next(steps))
            except StopIteration as end:
                found: RoundOutcome = end.value
                return found

    def steps(self, processes: int = 1) -> Generator[int, None, RoundOutcome]:
        """The same a block at a time: how many devices are done, and in the end what came of it."""
        devices = UploadSettings(self._round, self._population, self._secret, self._clock)
        tally = _Tally(np.zeros(self._round.cells, np.int64))
        done = 0
        for made in make_upload_blocks(devices, processes):
            done += self._block(made, tally)
            yield done
        released = self._release(tally)
        noise, accepted = self._round.noise, tally.accepted
        law, quiet = noise.device_law, tally.unseen[Behaviour.NO_NOISE]
        stated = noise.published_variance(accepted)
        left_out = 0.0 if law is None else (quiet + tally.unseen[Behaviour.OUT_OF_RANGE]) * float(law.variance)
        return RoundOutcome(
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

    def _block(self, made: BlockUploads, tally: _Tally) -> int:
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
            reason = expected_refusal(behaviour, proof=self._round.bounds is not None)
            if reason is not MessageVerdict.ACCEPTED and senders:
                tally.foreseen[reason] += len(senders)
        tally.seconds += PartySeconds(devices=made.seconds)
        return len(block)

    def _take(self, made: BlockUploads, tally: _Tally) -> dict[bytes, int]:
        """The ids of the reports that the proxy took, each at its time, and whose they are."""
        taken: dict[bytes, int] = {}
        for late in (False, True):
            sent = [each for each in made.sent if each.late is late]
            if not sent:
                continue
            now = self._round.closes + self._round.skew if late else self._round.opens
            with self._measure_time(tally, PartyRole.PROXY):
                answers = self.proxy.take([each.data for each in sent], now)
            tally.traffic += Traffic(uploads=sum(len(each.data) for each in sent))
            for each, answer in zip(sent, answers, strict=True):
                if answer is MessageVerdict.ACCEPTED:
                    taken[each.report_id] = each.row
                else:
                    tally.refused[answer] += 1
        return taken

    def _judge(self, taken: dict[bytes, int], tally: _Tally) -> set[bytes]:
        """The ids among them that both parties accepted."""
        digest, now = self._round.digest, self._round.opens
        accepted: set[bytes] = set()
        while True:
            with self._measure_time(tally, PartyRole.PROXY):
                job = self.proxy.next_job(digest)
                body = b"" if job is None else job.to_bytes()
            if job is None:
                break
            with self._measure_time(tally, PartyRole.SERVER):
                reply = self.server.job(body, now)
            with self._measure_time(tally, PartyRole.PROXY):
                self.proxy.take_reply(reply)
            tally.traffic += Traffic(to_server=len(body), from_server=len(reply))
            for entry, code in zip(job.entries, JobReply.from_bytes(reply).verdicts, strict=True):
                if code == MessageVerdict.ACCEPTED:
                    accepted.add(entry.report_id)
                else:
                    self._refused_by_proxy[entry.report_id] = MessageVerdict(code)
        for report_id in taken.keys() - accepted:
            tally.refused[self._refused_by_proxy.pop(report_id, MessageVerdict.CLOSED)] += 1
        return accepted

    def _release(self, tally: _Tally) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
        now = self._round.closes + self._round.skew
        link = _TimedLink(self, now, tally)
        before = self._clock()
        drive(self.proxy, link, self._round.digest, now)
        tally.seconds += PartySeconds(proxy=self._clock() - before - link.seconds, server=link.seconds)
        try:
            return self.server.result(self._round.digest, now).values
        except TooFew:
            return None

    def _open_and_note(
        self,
        key: SealingKey,
        role: PartyRole,
        scheme: SharingScheme,
        entries: SealedParts,
        digest: bytes,
        check_key: bytes,
    ) -> PreparedShares:
        """The usual opening; what the proxy refuses in it is remembered until its block is counted."""
        prepared = open_parts(key, role, scheme, entries, digest, check_key)
        for row in np.flatnonzero(prepared.refused).tolist():
            self._refused_by_proxy[entries[row][0]] = MessageVerdict(int(prepared.refused[row]))
        return prepared

    @contextmanager
    def _measure_time(self, tally: _Tally, role: PartyRole) -> Iterator[None]:
        before = self._clock()
        yield
        taken = self._clock() - before
        tally.seconds += PartySeconds(proxy=taken) if role is PartyRole.PROXY else PartySeconds(server=taken)


class _TimedLink:
    """The way to the server within one process; counts its time and bytes."""

    def __init__(self, world: SimulatedRound, now: int, tally: _Tally) -> None:
        self._world, self._now, self._tally = world, now, tally
        self.seconds = 0.0

    def job(self, body: bytes) -> bytes:
        return self._send(self._world.server.job, body)

    def agree(self, body: bytes) -> bytes:
        return self._send(self._world.server.agree, body)

    def share(self, body: bytes) -> bytes:
        return self._send(self._world.server.share, body)

    def _send(self, handle: Callable[[bytes, int], bytes], body: bytes) -> bytes:
        before = self._world._clock()
        reply = handle(body, self._now)
        self.seconds += self._world._clock() - before
        self._tally.traffic += Traffic(to_server=len(body), from_server=len(reply))
        return reply
