"""What the proxy does with reports: it checks uploads, puts them into jobs, and settles the replies.

Every check of an upload that needs no store is here, the cheapest first; rounds are read once each and kept.
A job holds waiting reports for the server; its reply becomes verdicts and a partial sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import Refused, Unproven
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import Job, JobEntry, JobReply
from tacit.gather.protocol.rounds import Round, expect_check_key
from tacit.gather.protocol.sharing import PartOpener, PreparedShares, SharingScheme, sharing_scheme
from tacit.gather.protocol.uploads import Upload, UploadLayout, upload_digest
from tacit.gather.proxy.store import AddOutcome, NewReport, ProxyStore, StoredJob


@dataclass(frozen=True)
class KnownRound:
    """A round, and what follows from it."""

    round: Round
    scheme: SharingScheme
    layout: UploadLayout

    @classmethod
    def of(cls, round: Round) -> KnownRound:
        return cls(round, sharing_scheme(round), UploadLayout.of(round))


class KnownRounds:
    """Rounds by digest. What is not known yet is looked for in the store, so a restart forgets none."""

    def __init__(self, store: ProxyStore) -> None:
        expect.having("store", store, "rounds", "a ProxyStore")
        self._store = store
        self._by_digest: dict[bytes, KnownRound] = {}
        self.largest_upload = 0
        for stored in store.rounds():
            self.add(Round.from_bytes(stored.body))

    def add(self, round: Round) -> KnownRound:
        known = KnownRound.of(round)
        self.largest_upload = max(self.largest_upload, known.layout.size)
        self._by_digest[round.digest] = known
        return known

    def of(self, digest: bytes) -> KnownRound:
        known = self._by_digest.get(digest)
        if known is None:
            stored = self._store.round(digest)
            if stored is None:
                raise Refused(MessageVerdict.UNKNOWN_ROUND)
            known = self.add(Round.from_bytes(stored.body))
        return known


UPLOAD_ANSWERS = {
    AddOutcome.NEW: MessageVerdict.ACCEPTED,
    AddOutcome.SAME: MessageVerdict.ACCEPTED,  # its answer got lost, and the device asks again
    AddOutcome.NOT_OPEN: MessageVerdict.TOO_LATE,
    AddOutcome.DEVICE_TAKEN: MessageVerdict.DUPLICATE,
    AddOutcome.ID_TAKEN: MessageVerdict.REPLAYED,
}
"""What a device is told of what the store did."""


def admit_upload(data: bytes, rounds: KnownRounds, enrolment_secret: bytes, now: int) -> NewReport:
    """The report in an upload, or Refused: by size, spelling, round, time, and the device's tag."""
    if len(data) > rounds.largest_upload:
        raise Refused(MessageVerdict.OVERSIZED)
    try:
        known = rounds.of(upload_digest(data))
    except Refused:
        Upload.from_bytes(data)  # what is no upload at all is MALFORMED
        raise
    layout = known.layout
    if len(data) > layout.size:
        raise Refused(MessageVerdict.OVERSIZED)
    if not layout.fits(data):
        raise Refused(MessageVerdict.MALFORMED)
    # Devices and the proxy may disagree on the time by `skew`, in either direction.
    if now < known.round.opens - known.round.skew:
        raise Refused(MessageVerdict.TOO_EARLY)
    if now >= known.round.closes + known.round.skew:
        raise Refused(MessageVerdict.TOO_LATE)
    device, tag = data[layout.device], data[layout.tag]
    signed = data[: layout.tag.start]  # the tag is last
    if not credentials.check_report_tag(enrolment_secret, device, signed, tag):
        raise Refused(MessageVerdict.FORGED)
    # The tag, now that it is known to fit, is a hash of all the rest: it tells a retry from another report.
    return NewReport(known.round.digest, data[layout.report_id], device, tag, data)


@dataclass(frozen=True, eq=False)
class JobDraft:
    """A job as it is sent, and what the proxy needs when the answer comes. Made anew after a crash."""

    number: int
    job: Job | None  # None: the proxy itself refused all of its reports
    prepared: PreparedShares  # of all reports of the stored job; shares (reports, cells)
    sent: NDArray[np.intp]  # (entries,) which reports are in the job: those the proxy found no fault with


def draft_job(
    stored: StoredJob, known: KnownRound, *, key: SealingKey, check_key: bytes, opening: PartOpener
) -> JobDraft:
    """Open the proxy's parts and put the server's, still sealed, into a job.

    What the proxy cannot read itself is refused here and never sent. The draft follows from the stored job
    alone, so that one made again after a crash is the same; with another check key it would not be, and is
    refused.
    """
    expect_check_key(known.round, check_key)
    for_proxy, for_server = known.layout.sealed_proxy, known.layout.sealed_server
    parts = [upload[for_proxy] for upload in stored.uploads]
    entries = list(zip(stored.report_ids, parts, strict=True))
    prepared = opening(key, PartyRole.PROXY, known.scheme, entries, known.round.digest, check_key)
    sent = np.flatnonzero(prepared.refused == MessageVerdict.ACCEPTED)
    chosen = tuple(
        JobEntry(stored.report_ids[row], stored.uploads[row][for_server], prepared.messages[row])
        for row in sent.tolist()
    )
    job = Job(known.round.digest, stored.number, chosen) if chosen else None
    return JobDraft(stored.number, job, prepared, sent)


def settle_job(draft: JobDraft, reply: JobReply | None, known: KnownRound) -> tuple[bytes, bytes]:
    """A verdict for each report of the stored job, and the sum of the proxy's shares of the accepted ones.

    The proxy judges the proofs itself: a server that accepted what is not proven is wrong or lies. Unproven
    says so, and the round is to stop.
    """
    codes = draft.prepared.refused.copy()
    if reply is not None:
        _expect_answer(draft, reply, known)
        codes[draft.sent] = np.frombuffer(reply.verdicts, np.uint8)
    accepted = codes == MessageVerdict.ACCEPTED
    shares = draft.prepared.shares  # (reports, cells); picking rows would copy all of them
    total = known.round.group.total(shares if accepted.all() else shares[accepted])
    return codes.tobytes(), known.round.group.to_bytes(total)


def _expect_answer(draft: JobDraft, reply: JobReply, known: KnownRound) -> None:
    fits = draft.job is not None and reply.job_hash == draft.job.hash
    if not fits or len(reply.verdicts) != len(draft.sent):
        raise Refused(MessageVerdict.CONFLICT, "the answer is not to this job")
    if not known.scheme.message_bytes:
        return
    if len(reply.messages[0]) != known.scheme.message_bytes:
        raise Refused(MessageVerdict.MALFORMED, "the answer has messages of another size")
    accepted = [place for place, code in enumerate(reply.verdicts) if code == MessageVerdict.ACCEPTED]
    own = [draft.prepared.messages[draft.sent[place]] for place in accepted]
    other = [reply.messages[place] for place in accepted]
    if accepted and not known.scheme.valid(own, other).all():
        raise Unproven(f"{known.round.key}: the server accepted what is not proven; it is stopped for good")
