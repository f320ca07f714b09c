"""What the proxy needs kept. Every method is one transaction, and durable when it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tacit import expect


class ProxyPhase(expect.Choice):
    """How far the proxy is with a round. RELEASED, TOO_FEW, STOPPED are final.

    A phase goes back only from CLOSED to OPEN, and only while the server has agreed to nothing: a round that
    was closed by a wrong clock is opened again by a right one.
    """

    OPEN = "open"  # takes reports
    CLOSED = "closed"  # takes no reports, since the server may be agreeing to those it has
    AGREED = "agreed"  # its noisy share is kept, and may have left
    RELEASED = "released"
    TOO_FEW = "too-few"
    STOPPED = "stopped"  # the server accepted what is not proven, or an operator gave up: nothing is released


@dataclass(frozen=True)
class StoredProxyRound:
    """A round's canonical bytes, and how far it is."""

    body: bytes
    phase: ProxyPhase


@dataclass(frozen=True)
class NewReport:
    """An upload that passed all checks which need no store."""

    digest: bytes
    report_id: bytes
    device: bytes
    upload_hash: bytes  # 32 bytes that differ for different uploads of one device
    upload: bytes


class AddOutcome(expect.Choice):
    """What became of a new report. The first that applies, in this order."""

    SAME = "same"  # this device, id and hash are there already, in whatever phase: a retry
    NOT_OPEN = "not-open"
    DEVICE_TAKEN = "device-taken"
    ID_TAKEN = "id-taken"
    NEW = "new"


@dataclass(frozen=True)
class StoredJob:
    """Reports that were taken into a job, in the order of that moment; `uploads` in the same order."""

    number: int
    report_ids: tuple[bytes, ...]
    uploads: tuple[bytes, ...]


class ProxyStore(Protocol):
    """Rounds, reports, jobs, and the one noisy share of each round."""

    def open_round(self, digest: bytes, task: str, level: int, body: bytes) -> None:
        """Begin a round. Again with the same body: nothing; another body for (task, level): CONFLICT."""

    def round(self, digest: bytes) -> StoredProxyRound | None: ...

    def rounds(self) -> list[StoredProxyRound]: ...

    def add_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        """Keep new reports, all in one transaction; each also sees those before it in the same call.

        A device and a report id are taken within their round, by any report that was ever NEW in it.
        """

    def find_reports(self, reports: Sequence[NewReport]) -> list[AddOutcome]:
        """SAME for each that is there already, NOT_OPEN for others; nothing is kept."""

    def unanswered_job(self, digest: bytes) -> StoredJob | None:
        """The oldest job that was begun and not finished."""

    def begin_job(self, digest: bytes, most: int) -> StoredJob | None:
        """Take up to `most` waiting reports into a job with the next number, from 0; None: none waits."""

    def finish_job(self, digest: bytes, number: int, verdicts: bytes, total: bytes) -> None:
        """Keep a code per report, in order, and the partial sum; drop the uploads.

        Again with the same verdicts and total: nothing; with others, or for a job never begun: CONFLICT.
        """

    def waiting_count(self, digest: bytes) -> int:
        """How many reports are in no finished job."""

    def accepted_ids(self, digest: bytes) -> Iterator[bytes]:
        """The ids of accepted reports in finished jobs: sorted, streamed."""

    def accepted_count(self, digest: bytes) -> int: ...

    def totals(self, digest: bytes) -> Iterator[bytes]:
        """The partial sums of finished jobs, streamed."""

    def set_phase(self, digest: bytes, phase: ProxyPhase, *, only_from: frozenset[ProxyPhase]) -> None:
        """Go on to a phase. Already there: nothing; from a phase that is not in `only_from`: CONFLICT."""

    def keep_share(self, digest: bytes, ids_hash: bytes, share: bytes) -> bytes:
        """Keep the noisy share and go from CLOSED to AGREED. The first one wins; returns the kept one.

        From any other phase, with no share kept: CONFLICT. With one kept for another ids_hash: CONFLICT.
        """

    def share(self, digest: bytes) -> bytes | None: ...
