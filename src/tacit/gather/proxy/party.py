"""The proxy as a party: uploads in, jobs and one noisy share out. All that it remembers is in its store.

`drive` brings a round to its end over a link that may fail anywhere: call it again, and it goes on from the
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tacit import expect
from tacit.display import brief
from tacit.errors import GatherError, NotYet, Refused, TooFew, Unproven
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import (
    MOST_ENTRIES,
    Job,
    JobReply,
    NoisyShare,
    ReportSet,
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
from tacit.gather.protocol.sharing import PartOpener, open_parts
from tacit.gather.proxy.reports import (
    UPLOAD_ANSWERS,
    JobDraft,
    KnownRounds,
    admit_upload,
    draft_job,
    settle_job,
)
from tacit.gather.proxy.store import NewReport, ProxyPhase, ProxyStore, StoredJob


class Proxy:
    """Takes one report per device and round, agrees with the server on their set, and adds noise of its own.

    It sees who reports, when, and from where, and masked vectors: uniform to whoever lacks the seeds, which are
    sealed to the server. The server gets from it sealed seeds under random ids, and one noisy sum.

    Guarantee:  against the server, and whoever sees the results, all rounds of a run are together DP as
                round.promise says: what leaves is the sum of the accepted reports plus noise that the server
                does not know, the same whenever it is drawn for one set. A round whose noise does not keep its
                promise, or whose run was not paid for with its first round, is refused.
    Neighbours: the counts of one device set to zero (zero-out); that it reported is known to both parties.
    Assumes:    the proxy follows this code and keeps its key from the server, now and later: its noise follows
                from it (`noise_words`); devices keep to what the round promises of them, which is *enforced*
                only where the round has `bounds`, by both parties (`settle_job` here); with user noise, at most
                the stated fraction leaves its noise out. The ledger is not put back to an older state together
                with its witness: a proxy restored alone, or copied, makes the same release or none
                (`pay_round`). One whose ledger forgot as well could agree on *another* set of the same round,
                and make a second release, which nobody pays for. Keep the witness apart.
    Source:     the laws in `privacy.noise`; the agreement on the set before the release: DAP
                (draft-ietf-ppm-dap), with SHA-256 over the sorted ids.

    Enforced here: one report per device, of the exact size, in time, with the device's tag; at least
    round.smallest_batch and at most round.parties reports in a release. Enforced by the server, whatever the
    proxy does: each report id once, none after the agreement, both limits again, its own noise and payment.

    A malicious proxy can make up devices, leave reports out, and leave out its noise: the result may then be
    wrong, or protected against the public by the server's noise only. With noise by servers, the server's
    noise still covers every device against the proxy, even if all others are made up; with noise by users it
    does not, because made-up devices count as having added theirs. It cannot unmask a report.

    Proofs bind devices as long as both services compute their messages about them as told. A dishonest server
    can have the proxy accept what is not proven (its message can be the negative of the proxy's own); noise,
    set and payment do not depend on that.
    """

    def __init__(
        self,
        key: SealingKey,
        store: ProxyStore,
        ledger: PartyLedger,
        *,
        enrolment_secret: bytes,
        check_key: bytes,
        opening: PartOpener = open_parts,
    ) -> None:
        self._key, self._store, self._ledger = key, store, ledger
        self._enrolment_secret, self._check_key, self._opening = enrolment_secret, check_key, opening
        self._rounds = KnownRounds(store)
        self._drafts: dict[bytes, JobDraft] = {}  # the job that is on its way, by round

    def __repr__(self) -> str:
        return brief(self, store=self._store)

    def open_round(self, round: Round) -> None:
        """Begin to take reports for a round. Doing it twice is fine."""
        if round.proxy_key != self._key.public:
            raise Refused(MessageVerdict.UNOPENABLE, "devices would seal to another key than this proxy's")
        expect_check_key(round, self._check_key)
        round.expect_promise_kept()
        self._store.open_round(round.digest, round.task, round.level, round.to_bytes())
        self._rounds.add(round)

    def phase(self, digest: bytes) -> ProxyPhase:
        stored = self._store.round(digest)
        if stored is None:
            raise Refused(MessageVerdict.UNKNOWN_ROUND)
        return stored.phase

    def take(self, uploads: Sequence[bytes], now: int) -> list[MessageVerdict]:
        """What becomes of each upload; the accepted ones are on disk when this returns, in one transaction."""
        checked = [self._admit(data, now) for data in uploads]
        new = [each for each in checked if isinstance(each, NewReport)]
        added = iter(self._store.add_reports(new) if new else ())
        return [UPLOAD_ANSWERS[next(added)] if isinstance(each, NewReport) else each for each in checked]

    def _admit(self, data: bytes, now: int) -> NewReport | MessageVerdict:
        try:
            return admit_upload(data, self._rounds, self._enrolment_secret, now)
        except Refused as refused:
            return MessageVerdict(refused.reason)

    def next_job(self, digest: bytes, *, most: int = 500) -> Job | None:
        """The job that waits for its answer, or a new one; None: every report has its verdict, or none will."""
        if self.phase(digest) is ProxyPhase.STOPPED:
            return None
        most = min(most, MOST_ENTRIES)
        while (stored := self._store.unanswered_job(digest) or self._store.begin_job(digest, most)) is not None:
            drafted = self._find_draft(digest, stored)
            if drafted.job is not None:
                return drafted.job
            self._finish(digest, drafted, None)
        return None

    def take_reply(self, reply: bytes) -> None:
        """Take the server's verdicts. An answer to a job that is not waiting changes nothing."""
        answer = JobReply.from_bytes(reply)
        self._rounds.of(answer.digest)
        drafted = self._drafts.get(answer.digest)
        if drafted is None or drafted.number != answer.number:  # from before a restart, or answered already
            stored = self._store.unanswered_job(answer.digest)
            if stored is None or stored.number != answer.number:
                return
            drafted = self._find_draft(answer.digest, stored)
        self._finish(answer.digest, drafted, answer)

    def _find_draft(self, digest: bytes, stored: StoredJob) -> JobDraft:
        known = self._rounds.of(digest)
        drafted = self._drafts.get(digest)
        if drafted is None or drafted.number != stored.number:
            drafted = draft_job(stored, known, key=self._key, check_key=self._check_key, opening=self._opening)
            self._drafts[digest] = drafted
        return drafted

    def _finish(self, digest: bytes, drafted: JobDraft, reply: JobReply | None) -> None:
        try:
            verdicts, total = settle_job(drafted, reply, self._rounds.of(digest))
        except Unproven:
            self._store.set_phase(
                digest, ProxyPhase.STOPPED, only_from=frozenset({ProxyPhase.OPEN, ProxyPhase.CLOSED})
            )
            self._drafts.pop(digest, None)
            raise
        self._store.finish_job(digest, drafted.number, verdicts, total)
        self._drafts.pop(digest, None)

    def agreement(self, digest: bytes, now: int) -> ReportSet:
        """The set of reports, for the server to agree to. NotYet while any may still come or has no verdict.

        From here on no report is taken, whatever the clock says: the server may agree, and then the set is
        final, whether or not its answer arrives. Until it is known that it did not (`reopen`), it is asked.
        """
        round = self._rounds.of(digest).round
        if self.phase(digest) is ProxyPhase.OPEN:
            if now < round.closes + round.skew:
                raise NotYet(f"{round.key} takes reports until {round.closes + round.skew}, got now={now}")
            self._store.set_phase(digest, ProxyPhase.CLOSED, only_from=frozenset({ProxyPhase.OPEN}))
        return self._final(digest)

    def reopen(self, digest: bytes, now: int) -> None:
        """Take reports again: the server has not agreed to the set, and our clock says that the round is open.

        So it was closed by a clock that was wrong. Nothing had left for it, and the server is asked to agree to
        one set only: the one that is there when the round closes again. The clock still says that it is over:
        nothing.
        """
        round = self._rounds.of(digest).round
        if self.phase(digest) is ProxyPhase.CLOSED and now < round.closes + round.skew:
            self._store.set_phase(digest, ProxyPhase.OPEN, only_from=frozenset({ProxyPhase.CLOSED}))

    def accepted_set(self, digest: bytes) -> ReportSet:
        """The set of reports accepted so far, large enough or not."""
        self._rounds.of(digest)
        ids_hash = report_set_hash(digest, self._store.accepted_ids(digest))
        return ReportSet(digest, self._store.accepted_count(digest), ids_hash)

    def _final(self, digest: bytes) -> ReportSet:
        """The set to which nothing is added now."""
        round, phase = self._rounds.of(digest).round, self.phase(digest)
        if phase is ProxyPhase.STOPPED:
            raise Unproven(
                f"{round.key} was stopped: the server accepted what is not proven, or by an operator"
            )
        if phase is ProxyPhase.OPEN:
            raise NotYet(f"{round.key} is still open")
        waiting = self._store.waiting_count(digest)
        if waiting:
            raise NotYet(f"{round.key} has {waiting} reports without a verdict")
        mine = self.accepted_set(digest)
        if mine.count > round.parties:
            raise Refused(
                MessageVerdict.CONFLICT, "the server accepted more reports than the round has parties"
            )
        return mine

    def noisy_share(self, digest: bytes, theirs: ReportSet) -> NoisyShare:
        """The proxy's sum with its noise, for the set that both agreed on: the same bytes whenever asked.
        TooFew where they agreed that it is too small, which is final.

        Paid before the noise is drawn, and spent for good before anything leaves: what a ledger still has as
        reserved is not out. Noise drawn again for the same set, after a crash, is the same noise.
        """
        mine = self._final(digest)
        if theirs != mine:
            raise Refused(MessageVerdict.CONFLICT, "the server has another set of reports")
        round, kept = self._rounds.of(digest).round, self._store.share(digest)
        if mine.count < round.smallest_batch:
            self._store.set_phase(digest, ProxyPhase.TOO_FEW, only_from=frozenset({ProxyPhase.CLOSED}))
            raise TooFew(mine.count, round.smallest_batch)
        if kept is None:
            total = sum_shares(round, self._store.totals(digest))
            content = content_hash(round, mine.ids_hash, total)
            pay_round(self._ledger, round, PartyRole.PROXY, self._key, content)
            words = noise_words(self._key, PartyRole.PROXY, round, content)
            share = round.group.to_bytes(round.group.add(total, draw_party_noise(round, mine.count, words)))
            kept = self._store.keep_share(digest, mine.ids_hash, share)
        settle_round(self._ledger, round, PartyRole.PROXY, self._key)
        return NoisyShare(digest, mine.ids_hash, kept)

    def take_receipt(self, receipt: ShareReceipt) -> None:
        """The server has the share, and the round is over."""
        self._rounds.of(receipt.digest)
        sent = self._store.share(receipt.digest) is not None
        if not (sent and receipt.accepted and receipt.ids_hash == self.accepted_set(receipt.digest).ids_hash):
            raise Refused(MessageVerdict.CONFLICT, "the receipt is not for what this proxy sent")
        self._store.set_phase(receipt.digest, ProxyPhase.RELEASED, only_from=frozenset({ProxyPhase.AGREED}))


class ServerLink(Protocol):
    """The way to the server. Any call may raise OSError, before or after the server acted on it."""

    def job(self, body: bytes) -> bytes: ...
    def agree(self, body: bytes) -> bytes: ...
    def share(self, body: bytes) -> bytes: ...


def drive(proxy: Proxy, link: ServerLink, digest: bytes, now: int, *, most: int = 500) -> ProxyPhase:
    """Bring the round as far as it goes; returns the phase it is in. Safe at any time, after any crash.

    Every message is sent again until it is answered, and the server answers a repeated one as it did before.
    """
    expect.kind("proxy", proxy, Proxy)
    if (phase := proxy.phase(digest)) in (ProxyPhase.RELEASED, ProxyPhase.STOPPED):
        return phase
    _send_jobs(proxy, link, digest, most)
    try:
        mine = proxy.agreement(digest, now)
    except NotYet:  # by the proxy's clock
        return proxy.phase(digest)
    try:
        theirs = ReportSet.from_bytes(link.agree(mine.to_bytes()))
    except NotYet:  # by the server's: it has not agreed to anything
        proxy.reopen(digest, now)
        return proxy.phase(digest)
    try:
        share = proxy.noisy_share(digest, theirs)
    except TooFew:  # and the server knows
        return ProxyPhase.TOO_FEW
    proxy.take_receipt(ShareReceipt.from_bytes(link.share(share.to_bytes())))
    return proxy.phase(digest)


def _send_jobs(proxy: Proxy, link: ServerLink, digest: bytes, most: int) -> None:
    last = -1
    while (job := proxy.next_job(digest, most=most)) is not None:
        if job.number <= last:
            raise GatherError(f"the answer to job {last} was of another job; nothing was changed by it")
        last = job.number
        proxy.take_reply(link.job(job.to_bytes()))
