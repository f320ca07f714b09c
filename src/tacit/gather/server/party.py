"""The server as a party: jobs in, one result per round out. All that it remembers is in its store.

`decide_job` gives each report of a job its verdict, and the job its partial sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.display import brief
from tacit.errors import NotYet, Refused, TooFew
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import (
    Job,
    JobReply,
    NoisyShare,
    ReportSet,
    RoundResult,
    ShareReceipt,
    report_set_hash,
)
from tacit.gather.protocol.releases import (
    PartyLedger,
    content_hash,
    draw_party_noise,
    noise_words,
    pay_round,
    settle_round,
    sum_shares,
)
from tacit.gather.protocol.rounds import Round, expect_check_key
from tacit.gather.protocol.sharing import PartOpener, SharingScheme, open_parts, sharing_scheme
from tacit.gather.server.store import ServerPhase, ServerStore


@dataclass(frozen=True)
class JobDecision:
    """An answer, the ids that it decides with a code each, and the sum of the server's accepted shares."""

    reply: JobReply
    ids: tuple[bytes, ...]
    verdicts: bytes
    total: bytes


def decide_job(
    job: Job,
    round: Round,
    scheme: SharingScheme,
    seen: set[bytes],
    room: int,
    *,
    key: SealingKey,
    check_key: bytes,
    opening: PartOpener,
) -> JobDecision:
    """Judge each report once. Ids in `seen`, or earlier in this job, are REPLAYED and not looked at again.

    That each id is judged once also keeps a proxy from trying one report with many proof messages. Reports
    beyond the `room` that the round's number of parties leaves are CLOSED: noise and group fit no more.
    With another check key than the round's, nothing is judged at all.
    """
    expect_check_key(round, check_key)
    codes = np.full(len(job.entries), MessageVerdict.REPLAYED, np.uint8)
    first = {entry.report_id: row for row, entry in reversed(list(enumerate(job.entries)))}
    fresh = np.array(sorted(row for each, row in first.items() if each not in seen), np.intp)
    entries = [job.entries[row] for row in fresh]
    parts = [(entry.report_id, entry.sealed) for entry in entries]
    prepared = opening(key, PartyRole.SERVER, scheme, parts, round.digest, check_key)
    found = prepared.refused.copy()  # (fresh,)
    fine = np.flatnonzero(found == MessageVerdict.ACCEPTED)
    if scheme.message_bytes and len(fine):
        proven = scheme.valid([prepared.messages[row] for row in fine], [entries[row].message for row in fine])
        found[fine[~proven]] = MessageVerdict.OUT_OF_RANGE
    found[np.flatnonzero(found == MessageVerdict.ACCEPTED)[room:]] = MessageVerdict.CLOSED
    codes[fresh] = found

    messages = [bytes(scheme.message_bytes)] * len(job.entries)
    for row, message in zip(fresh, prepared.messages, strict=True):
        messages[row] = message
    total = round.group.total(prepared.shares[found == MessageVerdict.ACCEPTED])
    return JobDecision(
        JobReply(job.digest, job.number, job.hash, codes.tobytes(), tuple(messages)),
        tuple(entry.report_id for entry in entries),
        found.tobytes(),
        round.group.to_bytes(total),
    )


class Server:
    """Judges the reports that the proxy hands on, adds noise of its own, and publishes one sum per round.

    It sees seeds of masks under random report ids, drawn without the counts; how many reports there are; and
    the sum of the agreed reports plus the proxy's noise. It meets no device and learns no device's name.

    Guarantee:  against the proxy, and whoever sees the results, all rounds of a run are together DP as
                round.promise says: what is published is the sum of the agreed reports plus noise that the proxy
                does not know, the same whenever it is drawn for one set. A round whose noise does not keep its
                promise, or whose run was not paid for with its first round, is refused.
    Neighbours: the counts of one device set to zero (zero-out); that it reported is known to the proxy.
    Assumes:    the server follows this code and keeps its key from the proxy, now and later: its noise follows
                from it (`noise_words`); devices keep to what the round promises of them, which is *enforced*
                only where the round has `bounds`, by both parties (`decide_job` here); with user noise, at most
                the stated fraction leaves its noise out. The ledger is not put back to an older state together
                with its witness: a server restored alone, or copied, makes the same release or none
                (`pay_round`). One whose ledger forgot as well could agree on *another* set of the same round,
                and make a second release, which nobody pays for. Keep the witness apart.
    Source:     the laws in `privacy.noise`; the agreement on the set before the release: DAP
                (draft-ietf-ppm-dap), with SHA-256 over the sorted ids.

    Enforced here, whatever the proxy does: each report id is judged once, none after the agreement, at most
    round.parties and at least round.smallest_batch are in a sum, one sum per round, paid for. Enforced by the
    proxy alone: that a report is of an enrolled device, and one per device.

    A malicious server can refuse reports, publish anything, and leave out its noise: the result may then be
    wrong, or protected against the public by the proxy's noise only. With noise by servers, the proxy's noise
    still covers every device against the server. It cannot unmask a report.

    Proofs bind devices as long as both services compute their messages about them as told. A dishonest proxy
    can have the server accept what is not proven, if it knows what the server's part says (of a device that it
    made up, or that helps it); noise, set and payment do not depend on that.
    """

    def __init__(
        self,
        key: SealingKey,
        store: ServerStore,
        ledger: PartyLedger,
        *,
        check_key: bytes,
        opening: PartOpener = open_parts,
    ) -> None:
        self._key, self._store, self._ledger = key, store, ledger
        self._check_key, self._opening = check_key, opening
        self._rounds: dict[bytes, tuple[Round, SharingScheme]] = {}

    def __repr__(self) -> str:
        return brief(self, store=self._store)

    def open_round(self, round: Round) -> None:
        """Begin to take jobs for a round. Doing it twice is fine."""
        if round.server_key != self._key.public:
            raise Refused(MessageVerdict.UNOPENABLE, "devices would seal to another key than this server's")
        expect_check_key(round, self._check_key)
        round.expect_promise_kept()
        self._store.open_round(round.digest, round.task, round.level, round.to_bytes())

    def phase(self, digest: bytes) -> ServerPhase:
        stored = self._store.round(digest)
        if stored is None:
            raise Refused(MessageVerdict.UNKNOWN_ROUND)
        return stored.phase

    def job(self, body: bytes, now: int) -> bytes:
        """The answer to a job: kept before it leaves, and the same whenever the same job comes again."""
        job = Job.from_bytes(body)
        round, scheme = self._find_round(job.digest)
        job.expect_sizes(round)
        kept = self._store.job(job.digest, job.number)
        if kept is None:
            if now < round.opens - round.skew:
                raise Refused(MessageVerdict.TOO_EARLY)
            if self.phase(job.digest) is not ServerPhase.OPEN:
                raise Refused(MessageVerdict.CLOSED)
            ids = [entry.report_id for entry in job.entries]
            decided = decide_job(
                job,
                round,
                scheme,
                self._store.seen_ids(job.digest, ids),
                round.parties - self._store.accepted_count(job.digest),
                key=self._key,
                check_key=self._check_key,
                opening=self._opening,
            )
            kept = self._store.keep_job(
                job.digest,
                job.number,
                job.hash,
                decided.reply.to_bytes(),
                decided.ids,
                decided.verdicts,
                decided.total,
            )
        if kept.job_hash != job.hash:
            raise Refused(MessageVerdict.CONFLICT, f"job {job.number} came before with other reports")
        return kept.reply

    def agree(self, body: bytes, now: int) -> bytes:
        """The server's own count and hash, if the proxy's are the same. The set is final after that."""
        theirs = ReportSet.from_bytes(body)
        round, _ = self._find_round(theirs.digest)
        phase = self.phase(theirs.digest)
        if phase is ServerPhase.OPEN and now < round.closes:
            raise NotYet(f"{round.key} closes at {round.closes}, got now={now}")
        mine = self._accepted_set(theirs.digest)
        if mine != theirs:
            raise Refused(MessageVerdict.CONFLICT, "the proxy has another set of reports")
        if mine.count > round.parties:  # jobs that came at the same time
            raise Refused(MessageVerdict.CONFLICT, "there are more reports than the round has parties")
        if phase is ServerPhase.OPEN:
            enough = mine.count >= round.smallest_batch
            self._store.set_phase(
                theirs.digest,
                ServerPhase.AGREED if enough else ServerPhase.TOO_FEW,
                only_from=frozenset({ServerPhase.OPEN}),
            )
        return mine.to_bytes()

    def share(self, body: bytes, now: int) -> bytes:  # noqa: ARG002 (the agreement has looked at the time)
        """Add both shares and the server's noise, keep the result, and say so; again: the same receipt.

        Paid before the noise is drawn, kept and spent for good before anything is said. Noise drawn again for
        the same set, after a crash, is the same noise.
        """
        theirs = NoisyShare.from_bytes(body)
        round, _ = self._find_round(theirs.digest)
        proxy_share = round.group.from_bytes(theirs.share, round.cells)
        phase = self._settled_phase(round)
        if phase is ServerPhase.OPEN:
            raise NotYet(f"{round.key} has no agreed set of reports")
        # Counted again, now that no job can be added: one that was kept while the parties agreed shows here.
        mine = self._accepted_set(theirs.digest)
        if theirs.ids_hash != mine.ids_hash:
            raise Refused(MessageVerdict.CONFLICT, "the share is of another set of reports")
        if phase is ServerPhase.AGREED:
            total = sum_shares(round, self._store.totals(theirs.digest))
            # By the server's own sum alone: a proxy that could change what decides would have many draws.
            content = content_hash(round, mine.ids_hash, total)
            pay_round(self._ledger, round, PartyRole.SERVER, self._key, content)
            words = noise_words(self._key, PartyRole.SERVER, round, content)
            noisy = round.group.add(total, draw_party_noise(round, mine.count, words))
            noisy = round.group.add(noisy, proxy_share)
            variance = float(round.noise.published_variance(mine.count))
            result = RoundResult(theirs.digest, mine.count, round.group.lift(noisy), variance)
            self._store.keep_result(theirs.digest, mine.ids_hash, result.to_bytes())
        settle_round(self._ledger, round, PartyRole.SERVER, self._key)
        return ShareReceipt(theirs.digest, mine.ids_hash, accepted=True).to_bytes()

    def result(self, digest: bytes, now: int) -> RoundResult:
        """What the round released: the same whenever asked. NotYet and TooFew are different answers."""
        round, _ = self._find_round(digest)
        if self._settled_phase(round) is not ServerPhase.RELEASED:
            until = f"closes at {round.closes}" if now < round.closes else "is not released yet"
            raise NotYet(f"{round.key} {until}, got now={now}")
        kept = self._store.result(digest)
        assert kept is not None  # the phase says so
        # A crash may have come between keeping the result and settling its payment.
        settle_round(self._ledger, round, PartyRole.SERVER, self._key)
        return RoundResult.from_bytes(kept)

    def _settled_phase(self, round: Round) -> ServerPhase:
        phase = self.phase(round.digest)
        if phase is ServerPhase.TOO_FEW:
            raise TooFew(self._store.accepted_count(round.digest), round.smallest_batch)
        return phase

    def _accepted_set(self, digest: bytes) -> ReportSet:
        ids_hash = report_set_hash(digest, self._store.accepted_ids(digest))
        return ReportSet(digest, self._store.accepted_count(digest), ids_hash)

    def _find_round(self, digest: bytes) -> tuple[Round, SharingScheme]:
        if digest not in self._rounds:
            stored = self._store.round(digest)
            if stored is None:
                raise Refused(MessageVerdict.UNKNOWN_ROUND)
            round = Round.from_bytes(stored.body)
            self._rounds[digest] = round, sharing_scheme(round)
        return self._rounds[digest]
