"""From waiting reports to a job for the server, and from its answer to verdicts and a partial sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import Refused, Unproven
from tacit.gather.proxy.known import Known
from tacit.gather.proxy.store import StoredJob
from tacit.gather.wire.checking import expect_check_key
from tacit.gather.wire.forms import Prepared
from tacit.gather.wire.jobs import Job, JobEntry, JobReply
from tacit.gather.wire.opening import Opening
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.sealing import Role, SealingKey


@dataclass(frozen=True, eq=False)
class Draft:
    """A job as it is sent, and what the proxy needs when the answer comes. Made anew after a crash."""

    number: int
    job: Job | None  # None: the proxy itself refused all of its reports
    prepared: Prepared  # of all reports of the stored job; shares (reports, cells)
    sent: NDArray[np.intp]  # (entries,) which reports are in the job: those the proxy found no fault with


def draft(stored: StoredJob, known: Known, *, key: SealingKey, check_key: bytes, opening: Opening) -> Draft:
    """Open the proxy's parts and put the server's, still sealed, into a job.

    What the proxy cannot read itself is refused here and never sent. The draft follows from the stored job
    alone, so that one made again after a crash is the same; with another check key it would not be, and is
    refused.
    """
    expect_check_key(known.round, check_key)
    for_proxy, for_server = known.layout.sealed_proxy, known.layout.sealed_server
    parts = [upload[for_proxy] for upload in stored.uploads]
    entries = list(zip(stored.report_ids, parts, strict=True))
    prepared = opening(key, Role.PROXY, known.form, entries, known.round.digest, check_key)
    sent = np.flatnonzero(prepared.refused == Refusal.ACCEPTED)
    chosen = tuple(
        JobEntry(stored.report_ids[row], stored.uploads[row][for_server], prepared.messages[row])
        for row in sent.tolist()
    )
    job = Job(known.round.digest, stored.number, chosen) if chosen else None
    return Draft(stored.number, job, prepared, sent)


def settled(draft: Draft, reply: JobReply | None, known: Known) -> tuple[bytes, bytes]:
    """A verdict for each report of the stored job, and the sum of the proxy's shares of the accepted ones.

    The proxy judges the proofs itself: a server that accepted what is not proven is wrong or lies. Unproven
    says so, and the round is to stop.
    """
    codes = draft.prepared.refused.copy()
    if reply is not None:
        _expect_answer(draft, reply, known)
        codes[draft.sent] = np.frombuffer(reply.verdicts, np.uint8)
    accepted = codes == Refusal.ACCEPTED
    shares = draft.prepared.shares  # (reports, cells); picking rows would copy all of them
    total = known.round.group.total(shares if accepted.all() else shares[accepted])
    return codes.tobytes(), known.round.group.to_bytes(total)


def _expect_answer(draft: Draft, reply: JobReply, known: Known) -> None:
    fits = draft.job is not None and reply.job_hash == draft.job.hash
    if not fits or len(reply.verdicts) != len(draft.sent):
        raise Refused(Refusal.CONFLICT, "the answer is not to this job")
    if not known.form.message_bytes:
        return
    if len(reply.messages[0]) != known.form.message_bytes:
        raise Refused(Refusal.MALFORMED, "the answer has messages of another size")
    accepted = [place for place, code in enumerate(reply.verdicts) if code == Refusal.ACCEPTED]
    own = [draft.prepared.messages[draft.sent[place]] for place in accepted]
    other = [reply.messages[place] for place in accepted]
    if accepted and not known.form.valid(own, other).all():
        raise Unproven(f"{known.round.key}: the server accepted what is not proven; it is stopped for good")
