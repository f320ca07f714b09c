"""The room as a party: it answers what the agreement allows, and refuses the rest before anything changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.answers import (
    AuditReceipt,
    BeginAnswer,
    LabelsAnswer,
    RemainingBudget,
    RoomDescription,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.protocol.audit_log import AuditEntry, answer_hash
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest
from tacit.cleanroom.protocol.signatures import PrivateKey, public_key
from tacit.cleanroom.protocol.slabs import decode_slab, decode_statistic_slab, decode_token_slab
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.protocol.tokens import match_points
from tacit.cleanroom.room import quotas
from tacit.cleanroom.room.active_terms import (
    ActiveTerms,
    JoinShare,
    activate_terms,
    adopt_agreement,
    parse_points,
    store_identity,
)
from tacit.cleanroom.room.labels import LabelTable, Records, flipped_labels
from tacit.cleanroom.room.mechanism import noise_stddev, noised_answer
from tacit.cleanroom.room.payment import (
    budget_line,
    budget_refusal,
    can_pay,
    charge_release,
    confirm_sole_copy,
    renew_store_token,
)
from tacit.cleanroom.room.quotas import ReleaseCounter
from tacit.cleanroom.room.store import AuditLog, RoomLedger, RoomStore
from tacit.cleanroom.room.sums import (
    LabelLookup,
    LabelsQuery,
    Query,
    Request,
    SlabStream,
    StatisticQuery,
    StepQuery,
    check_begin,
    check_labels,
    check_statistic,
    check_step,
    refuse_closed,
    refuse_stranger,
)
from tacit.display import brief
from tacit.errors import BadInput, RoomError, RoomRefused
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.randomness import Source

ROOM_VERSION = "3"  # 1 did not know Begin, 2 no blocks by rows
ENTRIES_AT_ONCE = 1000


@dataclass(frozen=True)
class RoomRelease:
    """What leaves the room as the answer to a query. `noise_stddev` is 0 where no noise was added."""

    values: NDArray[Any]
    noise_stddev: float
    receipt: AuditReceipt


class Room:
    """Labels of one party, behind an agreement. Threads may share it.

    Guarantee:  `terms.statement()` for each record's labels, by all that leaves under the terms in force and
                whatever one party makes of them alone, against a platform that sends what it likes, adapts and
                asks for ever. What left before both signed for fresh draws, if anything did, adds to it: the
                ledger's limit, `payment.agreed_budget`, is for all that ever leaves. By mode:
                AGGREGATE  sums, with any loss, over labels flipped once: pure epsilon, any number of times.
                RELEASE    the flipped labels themselves: pure epsilon, the same flips.
                NOISED     sums over true labels, clipped and noised; each record in at most K of them:
                           (epsilon, delta), or pure epsilon with Laplace noise.
                STATISTIC  one noised sum of labels times cells and features for each record:
                           (epsilon, delta).
                Metrics are counts of flipped labels, and free, in the first two; in the others they are
                noised sums, and count. For one table of labels, a refusal depends on no label; it changes
                nothing but the audit log, and no label has had an effect on it. Another table under the same
                version is refused as changed, which tells the platform that it is another.
    Neighbours: replace label, for one record: its labels of all tasks. Which records have labels in the table,
                beyond those that differ, is the same in both.
    Assumes:    `secret` is 32 uniform bytes that never leave; the store and the ledger keep what they have
                acknowledged, and the ledger is neither copied nor put back to an older state (of copies of a
                store, old ones among them, one at most goes on: `payment.confirm_sole_copy`); labels of one
                window and version do not change (a changed table is refused). `entropy` never gives two
                stores the same id. A call is held to the dates at its beginning, `now`: one that began in
                time may end after the terms have expired. What the room learns of the platform, and the time
                that it takes, are not covered.
    Source:     by part: `labels.flipped_labels`, `mechanism.add_noise`, `mechanism.step_sensitivity`,
                `payment.release_name`.
    """

    def __init__(
        self,
        agreement: Agreement,
        table: LabelTable,
        *,
        store: RoomStore,
        ledger: RoomLedger,
        secret: bytes,
        signing_key: PrivateKey,
        entropy: Source,
        now: int,
        watch_joined: Callable[[str, JoinShare], None] = lambda _run, _share: None,
    ) -> None:
        if len(secret) != SECRET_BYTES:
            raise BadInput(f"expected a secret of {SECRET_BYTES} bytes, got {len(secret)}")
        self._table, self._store, self._ledger, self._secret = table, store, ledger, secret
        self._signing_key, self._entropy = signing_key, entropy
        self._log = AuditLog(store, signing_key)
        self._paid: set[str] = set()  # releases that this process has seen paid
        self._watch_joined = watch_joined
        self._joined: dict[str, JoinShare] = {}  # by run
        self._noting = threading.Lock()
        self._open = self._taken_up(agreement, now)

    def __repr__(self) -> str:
        return brief(self, store=self._store)

    @property
    def terms(self) -> Terms:
        """What is in force."""
        return self._open.terms

    def amend(self, agreement: Agreement, *, now: int) -> None:
        """Take up an agreement that continues the one in force here."""
        self._open = self._taken_up(agreement, now)

    def describe(self, *, peer: str, now: int) -> RoomDescription:
        """The terms, what is left of the budget, and where the audit log stands."""
        terms = self._open.terms
        with self._refusing("describe", None, peer, now):
            refuse_stranger(terms, peer)
        account = self._ledger.account(budget_line(terms))
        if account is None:
            raise RoomError("expected a ledger with the line of this collaboration, got one without")
        left, used, releases = account.remaining.budget, account.used.budget, terms.releases_per_record
        remaining = RemainingBudget(left.epsilon, left.delta, used.epsilon, used.delta, releases)
        return RoomDescription(terms, remaining, self._log.head(), ROOM_VERSION)

    def step(self, request: StepRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> StepAnswer:
        """The sum over the batch of slope times derivative: over flipped labels, or clipped and noised."""
        active = self._open
        with self._refusing("step", request, peer, now):
            check_step(request, active.terms, peer, now)
            codec = codec_named(request.codec, dense_sequences=active.terms.dense_sequences)
            width = active.record_join.token_bytes
            stream = SlabStream(
                request, slabs, lambda data: decode_slab(data, request.layout, codec, width), active.record_join
            )
            released = self._release(active, StepQuery(request, stream, active.terms), now)
        return StepAnswer(released.values, request.rows, released.noise_stddev, released.receipt)

    def statistic(
        self, request: StatisticRequest, slabs: Iterable[bytes], *, peer: str, now: int
    ) -> StatisticAnswer:
        """Labels times cells and features, noised; or a metric: positives by cell."""
        active = self._open
        with self._refusing("statistic", request, peer, now):
            check_statistic(request, active.terms, peer, now)
            width = active.record_join.token_bytes
            stream = SlabStream(
                request, slabs, lambda data: decode_statistic_slab(data, request, width), active.record_join
            )
            released = self._release(active, StatisticQuery(request, stream, active.terms), now)
        return StatisticAnswer(released.values, released.noise_stddev, released.receipt)

    def labels(self, request: LabelsRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> LabelsAnswer:
        """The flipped label of each record, in order."""
        active = self._open
        with self._refusing("labels", request, peer, now):
            check_labels(request, active.terms, peer, now)
            width = active.record_join.token_bytes
            stream = SlabStream(request, slabs, lambda data: decode_token_slab(data, width), active.record_join)
            released = self._release(active, LabelsQuery(request, stream), now)
        return LabelsAnswer(released.values, released.receipt)

    def begin(self, request: BeginRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> BeginAnswer:
        """Set releases of these records aside for a run, all or none; see `quotas`."""
        active = self._open
        with self._refusing("begin", request, peer, now):
            check_begin(request, active.terms, peer, now)
            width, most = active.record_join.token_bytes, active.terms.releases_per_record
            stream = SlabStream(request, slabs, lambda data: decode_token_slab(data, width), active.record_join)
            records = np.concatenate([records for _, records in stream])
            with self._store.transaction() as transaction:
                active.refuse_replaced(transaction)
                quotas.reserve_quota(transaction, active.release, request, records, most, now)
                told = {"peer": peer, "request": request.digest, "run": request.run, "rows": request.rows}
                receipt = self._log.write(transaction, "begin", now, {**told, "releases": request.releases})
        return BeginAnswer(request.releases, receipt)

    def exchange(self, points: bytes | None, *, peer: str, now: int) -> bytes:
        """Private set intersection: without points, the room's; with the platform's answer to them, nothing.

        The first answer stays: another one would give every label a second name, and a second flip.
        """
        active = self._open
        with self._refusing("exchange", None, peer, now):
            refuse_stranger(active.terms, peer)
            refuse_closed(active.terms, now)
            most = active.terms.most_ids
            if most is None:
                raise RoomRefused(RoomRefusal.NOT_AGREED, "records are joined by tokens")
            if points is None:
                with self._store.transaction() as transaction:
                    active.refuse_replaced(transaction)
                    active.register_labels(transaction)  # the points that leave now are those of these records
                    if transaction.get(f"offered/{active.release}") is None:
                        transaction.put(f"offered/{active.release}", b"")
                        self._log.write(
                            transaction, "offer", now, {"peer": peer, "release": active.release, "points": most}
                        )
                return active.offer.points.tobytes()
            match_points(active.offer.places, parse_points(points, most), most)  # refuses what is not an answer
            with self._store.transaction() as transaction:
                active.refuse_replaced(transaction)
                active.register_labels(transaction)
                known = transaction.get(active.exchange_key)
                if known is not None and known != points:
                    raise RoomRefused(RoomRefusal.CONFLICT, "points were exchanged before, and were others")
                if known is None:
                    transaction.put(active.exchange_key, points)
                    told = {"peer": peer, "release": active.release, "points": most}
                    self._log.write(transaction, "exchange", now, told)
        return b""

    def joined(self) -> dict[str, JoinShare]:
        """By run, since this process began, how many of the records asked about have a label in the table. For
        the room's operator: it goes into no answer, no refusal, no store and no entry of the audit log."""
        with self._noting:
            return dict(self._joined)

    def audit(self, after: int, *, peer: str) -> list[AuditEntry]:
        """The audit log's entries after a sequence number, at most a thousand at a time."""
        refuse_stranger(self._open.terms, peer)
        return self._store.entries(max(after, 0), ENTRIES_AT_ONCE)

    def _taken_up(self, agreement: Agreement, now: int) -> ActiveTerms:
        active = activate_terms(agreement, self._table, self._secret)
        if public_key(self._signing_key) != active.terms.room_key:
            raise BadInput("expected the signing key that the agreement names for the room, got another")
        with self._store.transaction() as transaction:
            self._store_id = store_identity(transaction, self._entropy)
            if adopt_agreement(active, transaction, self._ledger, self._store_id):
                told = {
                    "terms": active.terms.digest,
                    "steps": len(agreement.steps),
                    "mode": str(active.terms.mode),
                }
                self._log.write(transaction, "terms", now, told)
        # A copy is better noticed now than later.
        confirm_sole_copy(active.terms, self._store, self._ledger, self._store_id)
        return active

    def _release(self, active: ActiveTerms, query: Query, now: int) -> RoomRelease:
        """Answer a query: over flipped labels, any number of times; over true ones, noised and counted.

        What was counted before leaves again as it was, without a look at labels.
        """
        counter = self._counter(active, query)
        labels_of = self._label_lookup(active, query, counter)
        values: NDArray[Any] | None
        if counter is None:
            values, stddev = query.compute(labels_of), 0.0
        elif counter.was_counted:
            for _, records in query.stream:
                counter.before_labels(query.stream.digest, records)
            values, stddev = None, noise_stddev(counter.query.sensitivity(), active.terms)
        else:
            sums = counter.query.compute(labels_of)
            reach = counter.query.sensitivity()
            values, stddev = noised_answer(sums, reach, active.terms, self._secret, query.stream.digest)
        answer, receipt = self._settle(active, query, counter, values, now)
        return RoomRelease(answer, stddev, receipt)

    def _counter(self, active: ActiveTerms, query: Query) -> ReleaseCounter | None:
        """What counts the answer: flips are drawn once and may leave any number of times, so nothing does."""
        if active.terms.mode.flips:
            return None
        assert not isinstance(query, LabelsQuery), "`check_labels` refuses it in other modes"
        return ReleaseCounter(query, active, self._store)

    def _label_lookup(self, active: ActiveTerms, query: Query, counter: ReleaseCounter | None) -> LabelLookup:
        """How labels may be read under these terms. Of a slab, no label is read before all that can be checked
        of it was; what only a later one shows (a record twice, too few rows) refuses all, and nothing leaves.
        """
        if active.release not in self._paid and not can_pay(active.terms, self._ledger, self._store_id):
            raise budget_refusal()
        table, task = active.joined_labels(self._store), query.request.task

        def labels_of(records: Records) -> NDArray[np.uint8]:
            if counter is None:
                return flipped_labels(table, records, task, active.terms, self._secret)
            counter.before_labels(query.stream.digest, records)
            return table.look_up(records, task)

        return labels_of

    def _settle(
        self,
        active: ActiveTerms,
        query: Query,
        counter: ReleaseCounter | None,
        values: NDArray[Any] | None,
        now: int,
    ) -> tuple[NDArray[Any], AuditReceipt]:
        """Register, count, pay and log a release, in one transaction. The answer leaves only after it.

        Where one is kept, `values` is None, or was computed while another call made the one that is.
        """
        request, answer = query.request, None if values is None else values.astype(query.dtype)
        asked, found = query.request.rows, active.joined_labels(self._store).count_found(query.stream.records)
        with self._store.transaction() as transaction:
            active.refuse_replaced(transaction)
            active.register_labels(transaction)
            counted = False
            if counter is not None:
                spelled, counted = counter.count(transaction, query.stream.records, answer)
                answer = np.frombuffer(spelled, query.dtype)
            assert answer is not None, "it was computed, or is kept"
            if active.release not in self._paid:
                # In the ledger's own transaction, before this one ends: a crash in between has paid for
                # nothing, but nothing leaves unpaid.
                charge_release(active.terms, self._ledger, self._store_id, active.draws_digest(transaction))
            if counted:
                renew_store_token(transaction, active.release)
            paid = transaction.get(f"paid/{active.release}") is None
            if paid:
                transaction.put(f"paid/{active.release}", str(active.terms.budget).encode())
            told = {
                "peer": active.terms.platform,
                "request": request.digest,
                "rows": request.rows,
                "task": request.task,
                "mode": str(active.terms.mode),
                "charged": str(active.terms.budget) if paid else "nothing",
                "counted": counted,
                "answer": answer_hash(answer),
            }
            receipt = self._log.write(transaction, query.kind, now, told)
        if counter is not None:
            confirm_sole_copy(active.terms, self._store, self._ledger, self._store_id)
        self._paid.add(active.release)
        with self._noting:
            before = self._joined.get(request.run, JoinShare(0, 0))
            now_joined = JoinShare(before.asked + asked, before.found + found)
            self._joined[request.run] = now_joined
        self._watch_joined(request.run, now_joined)
        return answer, receipt

    @contextmanager
    def _refusing(
        self, what: str, request: Request | BeginRequest | None, peer: str, now: int
    ) -> Iterator[None]:
        """Write refusals down on their way out."""
        try:
            yield
        except RoomRefused as refusal:
            told = {"what": what} if request is None else {"what": what, "request": request.digest}
            self._log.write_refusal(refusal.reason, now, peer, told)
            raise
