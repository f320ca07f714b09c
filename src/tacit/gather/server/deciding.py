"""What the server makes of a job: a verdict for each report, and its partial sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.gather.wire.checking import expect_check_key
from tacit.gather.wire.forms import Form
from tacit.gather.wire.jobs import Job, JobReply
from tacit.gather.wire.opening import Opening
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.sealing import Role, SealingKey


@dataclass(frozen=True)
class Decided:
    """An answer, the ids that it decides with a code each, and the sum of the server's accepted shares."""

    reply: JobReply
    ids: tuple[bytes, ...]
    verdicts: bytes
    total: bytes


def decide(
    job: Job,
    round: Round,
    form: Form,
    seen: set[bytes],
    room: int,
    *,
    key: SealingKey,
    check_key: bytes,
    opening: Opening,
) -> Decided:
    """Judge each report once. Ids in `seen`, or earlier in this job, are REPLAYED and not looked at again.

    That each id is judged once also keeps a proxy from trying one report with many proof messages. Reports
    beyond the `room` that the round's number of parties leaves are CLOSED: noise and group fit no more.
    With another check key than the round's, nothing is judged at all.
    """
    expect_check_key(round, check_key)
    codes = np.full(len(job.entries), Refusal.REPLAYED, np.uint8)
    first = {entry.report_id: row for row, entry in reversed(list(enumerate(job.entries)))}
    fresh = np.array(sorted(row for each, row in first.items() if each not in seen), np.intp)
    entries = [job.entries[row] for row in fresh]
    parts = [(entry.report_id, entry.sealed) for entry in entries]
    prepared = opening(key, Role.SERVER, form, parts, round.digest, check_key)
    found = prepared.refused.copy()  # (fresh,)
    fine = np.flatnonzero(found == Refusal.ACCEPTED)
    if form.message_bytes and len(fine):
        proven = form.valid([prepared.messages[row] for row in fine], [entries[row].message for row in fine])
        found[fine[~proven]] = Refusal.OUT_OF_RANGE
    found[np.flatnonzero(found == Refusal.ACCEPTED)[room:]] = Refusal.CLOSED
    codes[fresh] = found

    messages = [bytes(form.message_bytes)] * len(job.entries)
    for row, message in zip(fresh, prepared.messages, strict=True):
        messages[row] = message
    total = round.group.total(prepared.shares[found == Refusal.ACCEPTED])
    return Decided(
        JobReply(job.digest, job.number, job.hash, codes.tobytes(), tuple(messages)),
        tuple(entry.report_id for entry in entries),
        found.tobytes(),
        round.group.to_bytes(total),
    )
