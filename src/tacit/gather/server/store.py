"""What the server needs kept. Every method is one transaction, and durable when it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tacit import expect


class ServerPhase(expect.Choice):
    """How far the server is with a round. A phase never goes back, and RELEASED and TOO_FEW are final."""

    OPEN = "open"  # takes jobs
    AGREED = "agreed"  # takes no more jobs; waits for the proxy's noisy share
    RELEASED = "released"
    TOO_FEW = "too-few"


@dataclass(frozen=True)
class StoredServerRound:
    """A round's canonical bytes, and how far it is."""

    body: bytes
    phase: ServerPhase


@dataclass(frozen=True)
class AnsweredJob:
    """A job that was answered, by its hash, and the answer."""

    job_hash: bytes
    reply: bytes


class ServerStore(Protocol):
    """Rounds, answered jobs, report ids, and the one result of each round."""

    def open_round(self, digest: bytes, task: str, level: int, body: bytes) -> None:
        """Begin a round. Again with the same body: nothing; another body for (task, level): CONFLICT."""

    def round(self, digest: bytes) -> StoredServerRound | None: ...

    def rounds(self) -> list[StoredServerRound]: ...

    def job(self, digest: bytes, number: int) -> AnsweredJob | None: ...

    def seen_ids(self, digest: bytes, report_ids: Sequence[bytes]) -> set[bytes]:
        """Which of these ids were in an earlier job of the round, whatever its verdict was."""

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
        """Keep an answer, the ids that it decided with a code each, and the partial sum of the accepted.

        The first answer under a number wins and is returned, in whatever phase. For a new number: CLOSED
        unless the round is OPEN at this moment; REPLAYED if one of the ids was decided meanwhile. `ids` are
        distinct, and are those decided by this job: entries that the job repeats are not among them.
        """

    def accepted_ids(self, digest: bytes) -> Iterator[bytes]:
        """The ids of accepted reports: sorted, streamed."""

    def accepted_count(self, digest: bytes) -> int: ...

    def totals(self, digest: bytes) -> Iterator[bytes]:
        """The partial sums of answered jobs, streamed."""

    def set_phase(self, digest: bytes, phase: ServerPhase, *, only_from: frozenset[ServerPhase]) -> None:
        """Go on to a phase. Already there: nothing; from a phase that is not in `only_from`: CONFLICT."""

    def keep_result(self, digest: bytes, ids_hash: bytes, result: bytes) -> bytes:
        """Keep the result and go from AGREED to RELEASED. The first one wins; returns the kept one.

        From any other phase, with no result kept: CONFLICT. With one kept for another ids_hash: CONFLICT.
        """

    def result(self, digest: bytes) -> bytes | None: ...
