"""The parties' stores in memory: for simulations and tests, gone with the process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from tacit.display import brief
from tacit.errors import Refused
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.proxy import store as proxy_store
from tacit.gather.proxy.store import AddOutcome, NewReport, StoredJob
from tacit.gather.server import store as server_store
from tacit.gather.server.store import AnsweredJob

ACCEPTED = int(MessageVerdict.ACCEPTED)


@dataclass
class _Job:
    report_ids: tuple[bytes, ...]
    verdicts: bytes | None = None
    total: bytes = b""


AnyPhase = TypeVar("AnyPhase", proxy_store.ProxyPhase, server_store.ServerPhase)


@dataclass
class _Round(Generic[AnyPhase]):
    """What either party keeps of a round; `kept` is the hash of the set, and what was made of it."""

    task: str
    level: int
    body: bytes
    phase: AnyPhase
    accepted: list[bytes] = field(default_factory=list)
    kept: tuple[bytes, bytes] | None = None


@dataclass
class _ProxyRound(_Round[proxy_store.ProxyPhase]):
    reports: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)  # id -> device, upload hash
    devices: dict[bytes, bytes] = field(default_factory=dict)  # device -> id
    uploads: dict[bytes, bytes] = field(default_factory=dict)  # of reports in no finished job
    queue: deque[bytes] = field(default_factory=deque)  # ids in no job
    jobs: list[_Job] = field(default_factory=list)


@dataclass
class _ServerRound(_Round[server_store.ServerPhase]):
    decided: set[bytes] = field(default_factory=set)
    jobs: dict[int, AnsweredJob] = field(default_factory=dict)
    totals: list[bytes] = field(default_factory=list)


Made = TypeVar("Made", bound=_Round[Any])


class _Rounds(Generic[Made, AnyPhase]):
    """Rounds by digest, one of a kind for each (task, level)."""

    def __init__(self, made: Callable[[str, int, bytes], Made]) -> None:
        self._made = made
        self._rounds: dict[bytes, Made] = {}
        self._lock = threading.RLock()

    def open_round(self, digest: bytes, task: str, level: int, body: bytes) -> None:
        with self._lock:
            for known in self._rounds.values():
                if (known.task, known.level) == (task, level) and known.body != body:
                    raise Refused(MessageVerdict.CONFLICT)
            self._rounds.setdefault(digest, self._made(task, level, body))

    def accepted_ids(self, digest: bytes) -> Iterator[bytes]:
        return iter(sorted(self._of(digest).accepted))

    def accepted_count(self, digest: bytes) -> int:
        return len(self._of(digest).accepted)

    def set_phase(self, digest: bytes, phase: AnyPhase, *, only_from: frozenset[AnyPhase]) -> None:
        with self._lock:
            round = self._of(digest)
            if round.phase is not phase and round.phase not in only_from:
                raise Refused(MessageVerdict.CONFLICT)
            round.phase = phase

    def _keep_first(
        self, digest: bytes, ids_hash: bytes, made: bytes, *, before: AnyPhase, after: AnyPhase
    ) -> bytes:
        """Keep what was made of a set, unless something was kept before; what is kept now."""
        with self._lock:
            round = self._of(digest)
            if round.kept is None:
                if round.phase is not before:
                    raise Refused(MessageVerdict.CONFLICT)
                round.kept, round.phase = (ids_hash, made), after
            known, kept = round.kept
            if known != ids_hash:
                raise Refused(MessageVerdict.CONFLICT)
            return kept

    def _kept(self, digest: bytes) -> bytes | None:
        kept = self._of(digest).kept
        return None if kept is None else kept[1]

    def _of(self, digest: bytes) -> Made:
        if digest not in self._rounds:
            raise Refused(MessageVerdict.UNKNOWN_ROUND)
        return self._rounds[digest]


class MemoryProxyStore(_Rounds[_ProxyRound, proxy_store.ProxyPhase]):
    """A `ProxyStore` in memory."""

    def __init__(self) -> None:
        super().__init__(partial(_ProxyRound, phase=proxy_store.ProxyPhase.OPEN))

    def __repr__(self) -> str:
        return brief(self, rounds=len(self._rounds))

    def round(self, digest: bytes) -> proxy_store.StoredProxyRound | None:
        kept = self._rounds.get(digest)
        return None if kept is None else proxy_store.StoredProxyRound(kept.body, kept.phase)

    def rounds(self) -> list[proxy_store.StoredProxyRound]:
        return [proxy_store.StoredProxyRound(kept.body, kept.phase) for kept in list(self._rounds.values())]

    def add_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        with self._lock:
            return [self._add(report) for report in reports]

    def find_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        with self._lock:
            return [self._find(report) for report in reports]

    def _find(self, report: NewReport) -> AddOutcome:
        kept = self._rounds.get(report.digest)
        same = kept and kept.reports.get(report.report_id) == (report.device, report.upload_hash)
        return AddOutcome.SAME if same else AddOutcome.NOT_OPEN

    def _add(self, report: NewReport) -> AddOutcome:
        kept, found = self._rounds.get(report.digest), self._find(report)
        if kept is None or found is AddOutcome.SAME or kept.phase is not proxy_store.ProxyPhase.OPEN:
            return found
        if report.device in kept.devices:
            return AddOutcome.DEVICE_TAKEN
        if report.report_id in kept.reports:
            return AddOutcome.ID_TAKEN
        kept.reports[report.report_id] = (report.device, report.upload_hash)
        kept.devices[report.device] = report.report_id
        kept.uploads[report.report_id] = report.upload
        kept.queue.append(report.report_id)
        return AddOutcome.NEW

    def unanswered_job(self, digest: bytes) -> StoredJob | None:
        with self._lock:
            kept = self._of(digest)
            for number, job in enumerate(kept.jobs):
                if job.verdicts is None:
                    return _stored_job(kept, number)
            return None

    def begin_job(self, digest: bytes, most: int) -> StoredJob | None:
        with self._lock:
            kept = self._of(digest)
            if not kept.queue:
                return None
            taken = tuple(kept.queue.popleft() for _ in range(min(most, len(kept.queue))))
            kept.jobs.append(_Job(taken))
            return _stored_job(kept, len(kept.jobs) - 1)

    def finish_job(self, digest: bytes, number: int, verdicts: bytes, total: bytes) -> None:
        with self._lock:
            kept = self._of(digest)
            if not 0 <= number < len(kept.jobs):
                raise Refused(MessageVerdict.CONFLICT)
            job = kept.jobs[number]
            if job.verdicts is not None:
                if (job.verdicts, job.total) != (verdicts, total):
                    raise Refused(MessageVerdict.CONFLICT)
                return
            if len(verdicts) != len(job.report_ids):
                raise Refused(MessageVerdict.CONFLICT)
            job.verdicts, job.total = verdicts, total
            for report_id, code in zip(job.report_ids, verdicts, strict=True):
                del kept.uploads[report_id]
                if code == ACCEPTED:
                    kept.accepted.append(report_id)

    def waiting_count(self, digest: bytes) -> int:
        return len(self._of(digest).uploads)

    def totals(self, digest: bytes) -> Iterator[bytes]:
        return iter([job.total for job in self._of(digest).jobs if job.verdicts is not None])

    def keep_share(self, digest: bytes, ids_hash: bytes, share: bytes) -> bytes:
        phase = proxy_store.ProxyPhase
        return self._keep_first(digest, ids_hash, share, before=phase.CLOSED, after=phase.AGREED)

    def share(self, digest: bytes) -> bytes | None:
        return self._kept(digest)


def _stored_job(kept: _ProxyRound, number: int) -> StoredJob:
    ids = kept.jobs[number].report_ids
    return StoredJob(number, ids, tuple(kept.uploads[report_id] for report_id in ids))


class MemoryServerStore(_Rounds[_ServerRound, server_store.ServerPhase]):
    """A `ServerStore` in memory."""

    def __init__(self) -> None:
        super().__init__(partial(_ServerRound, phase=server_store.ServerPhase.OPEN))

    def __repr__(self) -> str:
        return brief(self, rounds=len(self._rounds))

    def round(self, digest: bytes) -> server_store.StoredServerRound | None:
        kept = self._rounds.get(digest)
        return None if kept is None else server_store.StoredServerRound(kept.body, kept.phase)

    def rounds(self) -> list[server_store.StoredServerRound]:
        return [server_store.StoredServerRound(kept.body, kept.phase) for kept in list(self._rounds.values())]

    def job(self, digest: bytes, number: int) -> AnsweredJob | None:
        return self._of(digest).jobs.get(number)

    def seen_ids(self, digest: bytes, report_ids: Sequence[bytes]) -> set[bytes]:
        return self._of(digest).decided.intersection(report_ids)

    def keep_job(
        self,
        digest: bytes,
        number: int,
        job_hash: bytes,
        reply: bytes,
        ids: Sequence[bytes],
        verdicts: bytes,
        total: bytes,
    ) -> AnsweredJob:
        with self._lock:
            kept = self._of(digest)
            if number in kept.jobs:
                return kept.jobs[number]
            if kept.phase is not server_store.ServerPhase.OPEN:
                raise Refused(MessageVerdict.CLOSED)
            if kept.decided.intersection(ids):
                raise Refused(MessageVerdict.REPLAYED)
            kept.jobs[number] = AnsweredJob(job_hash, reply)
            kept.decided.update(ids)
            kept.accepted += [each for each, code in zip(ids, verdicts, strict=True) if code == ACCEPTED]
            kept.totals.append(total)
            return kept.jobs[number]

    def totals(self, digest: bytes) -> Iterator[bytes]:
        return iter(list(self._of(digest).totals))

    def keep_result(self, digest: bytes, ids_hash: bytes, result: bytes) -> bytes:
        phase = server_store.ServerPhase
        return self._keep_first(digest, ids_hash, result, before=phase.AGREED, after=phase.RELEASED)

    def result(self, digest: bytes) -> bytes | None:
        return self._kept(digest)
