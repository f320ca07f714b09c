"""The room as a party: it answers what the agreement allows, and refuses the rest before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.room import holding
from tacit.cleanroom.room.aggregating import (
    Arriving,
    LabelsOf,
    Request,
    labels_in_order,
    reach_of_sum,
    statistic_sums,
    step_sum,
)
from tacit.cleanroom.room.auditing import AuditLog
from tacit.cleanroom.room.checking import (
    check_begin,
    check_labels,
    check_statistic,
    check_step,
    refuse_closed,
    refuse_stranger,
)
from tacit.cleanroom.room.counting import can_pay, charge, confirm, line_of, renew, unpaid
from tacit.cleanroom.room.flips import flipped
from tacit.cleanroom.room.joining import points_of
from tacit.cleanroom.room.labels import LabelTable, Records
from tacit.cleanroom.room.noising import (
    Doubles,
    Reach,
    noise_source,
    noise_stddev,
    noised,
    on_grid,
    reach_of_statistic,
)
from tacit.cleanroom.room.opening import Opened, identity, opened, take_up
from tacit.cleanroom.room.releasing import Counting
from tacit.cleanroom.room.store import Ledger, RoomStore
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.amending import Agreement
from tacit.cleanroom.wire.answers import (
    Begun,
    Description,
    LabelsAnswer,
    Receipt,
    Remaining,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.wire.audit_log import Entry, hash_of
from tacit.cleanroom.wire.codec import codec_named
from tacit.cleanroom.wire.intersection import matched
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest
from tacit.cleanroom.wire.signing import PrivateKey, public_key
from tacit.cleanroom.wire.slabs import decode_slab, decode_statistic_slab, decode_token_slab
from tacit.errors import BadInput, RoomError, RoomRefused
from tacit.privacy.mechanisms.memoised import SECRET_BYTES
from tacit.privacy.randomness import Source

ROOM_VERSION = "2"  # 1 did not know Begin
ENTRIES_AT_ONCE = 1000


class Room:
    """Labels of one party, behind an agreement. Threads may share it.

    Guarantee:  `terms.statement()` for each record's labels, by all that leaves under the terms in force and
                whatever one party makes of them alone, against a platform that sends what it likes, adapts and
                asks for ever. What left before both signed for fresh draws, if anything did, adds to it: the
                ledger's limit, `granting.agreed_budget`, is for all that ever leaves. By mode:
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
                store, old ones among them, one at most goes on: `counting.confirm`); labels of one window and
                version do not change (a changed table is refused). `entropy` never gives two stores the same
                id. A call is held to the dates at its beginning, `now`: one that began in time may end after
                the terms have expired. What the room learns of the platform, and the time that it takes, are
                not covered.
    Source:     by part: `flips.flipped`, `noising.noised`, `noising.reach_of_step`, `counting.release_name`.
    """

    def __init__(
        self,
        agreement: Agreement,
        table: LabelTable,
        *,
        store: RoomStore,
        ledger: Ledger,
        secret: bytes,
        signing_key: PrivateKey,
        entropy: Source,
        now: int,
    ) -> None:
        if len(secret) != SECRET_BYTES:
            raise BadInput(f"expected a secret of {SECRET_BYTES} bytes, got {len(secret)}")
        self._table, self._store, self._ledger, self._secret = table, store, ledger, secret
        self._signing_key, self._entropy = signing_key, entropy
        self._log = AuditLog(store, signing_key)
        self._paid: set[str] = set()  # releases that this process has seen paid
        self._open = self._taken_up(agreement, now)

    @property
    def terms(self) -> Terms:
        """What is in force."""
        return self._open.terms

    def amend(self, agreement: Agreement, *, now: int) -> None:
        """Take up an agreement that continues the one in force here."""
        self._open = self._taken_up(agreement, now)

    def describe(self, *, peer: str, now: int) -> Description:
        """The terms, what is left of the budget, and where the audit log stands."""
        terms = self._open.terms
        with self._refusing("describe", None, peer, now):
            refuse_stranger(terms, peer)
        account = self._ledger.account(line_of(terms))
        if account is None:
            raise RoomError("expected a ledger with the line of this collaboration, got one without")
        left, used, releases = account.remaining.budget, account.used.budget, terms.releases_per_record
        remaining = Remaining(left.epsilon, left.delta, used.epsilon, used.delta, releases)
        return Description(terms, remaining, self._log.head(), ROOM_VERSION)

    def step(self, request: StepRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> StepAnswer:
        """The sum over the batch of slope times derivative: over flipped labels, or clipped and noised."""
        at = self._open
        with self._refusing("step", request, peer, now):
            check_step(request, at.terms, peer, now)
            codec = codec_named(request.codec, dense_sequences=at.terms.dense_sequences)
            width = at.joining.token_bytes
            arriving = Arriving(
                request, slabs, lambda data: decode_slab(data, request.layout, codec, width), at.joining
            )
            answer, stddev, receipt = self._released(
                "step", at, request, arriving, request.layout.parameters, np.float32, now,
                sums=lambda labels_of: step_sum(request, arriving, labels_of, at.terms),
                reach=lambda: reach_of_sum(request, arriving, at.terms),
            )  # fmt: skip
        return StepAnswer(answer, request.rows, stddev, receipt)

    def statistic(
        self, request: StatisticRequest, slabs: Iterable[bytes], *, peer: str, now: int
    ) -> StatisticAnswer:
        """Labels times cells and features, noised; or a metric: positives by cell."""
        at = self._open
        with self._refusing("statistic", request, peer, now):
            check_statistic(request, at.terms, peer, now)
            width = at.joining.token_bytes
            arriving = Arriving(
                request, slabs, lambda data: decode_statistic_slab(data, request, width), at.joining
            )
            reach = None if at.terms.mode.flips else reach_of_statistic(at.terms, request)
            answer, stddev, receipt = self._released(
                str(request.purpose), at, request, arriving, request.cells + request.features, np.float64, now,
                sums=lambda labels_of: statistic_sums(request, arriving, labels_of),
                reach=lambda: reach,
            )  # fmt: skip
        return StatisticAnswer(answer, stddev, receipt)

    def labels(self, request: LabelsRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> LabelsAnswer:
        """The flipped label of each record, in order."""
        at = self._open
        with self._refusing("labels", request, peer, now):
            check_labels(request, at.terms, peer, now)
            width = at.joining.token_bytes
            arriving = Arriving(request, slabs, lambda data: decode_token_slab(data, width), at.joining)
            answer = labels_in_order(arriving, self._labels_of(at, request, arriving, None))
            answer, receipt = self._settled("labels", at, request, arriving, None, answer, np.uint8, now)
        return LabelsAnswer(answer, receipt)

    def begin(self, request: BeginRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> Begun:
        """Set releases of these records aside for a run, all or none; see `holding`."""
        at = self._open
        with self._refusing("begin", request, peer, now):
            check_begin(request, at.terms, peer, now)
            width, most = at.joining.token_bytes, at.terms.releases_per_record
            arriving = Arriving(request, slabs, lambda data: decode_token_slab(data, width), at.joining)
            records = np.concatenate([records for _, records in arriving])
            with self._store.transaction() as kept:
                at.refuse_replaced(kept)
                holding.begin(kept, at.release, request, records, most, now)
                told = {"peer": peer, "request": request.digest, "run": request.run, "rows": request.rows}
                receipt = self._log.write(kept, "begin", now, {**told, "releases": request.releases})
        return Begun(request.releases, receipt)

    def exchange(self, points: bytes | None, *, peer: str, now: int) -> bytes:
        """Private set intersection: without points, the room's; with the platform's answer to them, nothing.

        The first answer stays: another one would give every label a second name, and a second flip.
        """
        at = self._open
        with self._refusing("exchange", None, peer, now):
            refuse_stranger(at.terms, peer)
            refuse_closed(at.terms, now)
            most = at.terms.most_ids
            if most is None:
                raise RoomRefused(Refusal.NOT_AGREED, "records are joined by tokens")
            if points is None:
                with self._store.transaction() as kept:
                    at.refuse_replaced(kept)
                    at.register_labels(kept)  # the points that leave now are those of these records
                    if kept.find(f"offered/{at.release}") is None:
                        kept.keep(f"offered/{at.release}", b"")
                        self._log.write(
                            kept, "offer", now, {"peer": peer, "release": at.release, "points": most}
                        )
                return at.offer.points.tobytes()
            matched(at.offer.places, points_of(points, most), most)  # refuses what is not an answer
            with self._store.transaction() as kept:
                at.refuse_replaced(kept)
                at.register_labels(kept)
                known = kept.find(at.exchange_key)
                if known is not None and known != points:
                    raise RoomRefused(Refusal.CONFLICT, "points were exchanged before, and were others")
                if known is None:
                    kept.keep(at.exchange_key, points)
                    told = {"peer": peer, "release": at.release, "points": most}
                    self._log.write(kept, "exchange", now, told)
        return b""

    def audit(self, after: int, *, peer: str) -> list[Entry]:
        """The audit log's entries after a sequence number, at most a thousand at a time."""
        refuse_stranger(self._open.terms, peer)
        return self._store.entries(max(after, 0), ENTRIES_AT_ONCE)

    def _taken_up(self, agreement: Agreement, now: int) -> Opened:
        at = opened(agreement, self._table, self._secret)
        if public_key(self._signing_key) != at.terms.room_key:
            raise BadInput("expected the signing key that the agreement names for the room, got another")
        with self._store.transaction() as kept:
            self._store_id = identity(kept, self._entropy)
            if take_up(at, kept, self._ledger, self._store_id):
                told = {"terms": at.terms.digest, "steps": len(agreement.steps), "mode": str(at.terms.mode)}
                self._log.write(kept, "terms", now, told)
        confirm(at.terms, self._store, self._ledger, self._store_id)  # a copy is better noticed now than later
        return at

    def _released(
        self,
        kind: str,
        at: Opened,
        request: StepRequest | StatisticRequest,
        arriving: Arriving[Any],
        entries: int,
        dtype: type[np.floating[Any]],
        now: int,
        *,
        sums: Callable[[LabelsOf], Doubles],
        reach: Callable[[], Reach | None],
    ) -> tuple[NDArray[Any], float, Receipt]:
        """What leaves, its noise's deviation, and the receipt: over flipped labels, any number of times; over
        true ones, noised and counted. What was counted before leaves again as it was, without a look at labels.
        """
        size = entries * np.dtype(dtype).itemsize
        counting = None if at.terms.mode.flips else Counting(kind, at, request, self._store, size)
        labels_of = self._labels_of(at, request, arriving, counting)
        answer, stddev = None, 0.0
        if counting is not None and counting.was_counted:
            for _, records in arriving:
                counting.before_labels(arriving.asked, records)
        else:
            answer = sums(labels_of)
        found = None if counting is None else reach()
        if found is not None:
            stddev = noise_stddev(found, at.terms)
        if found is not None and answer is not None:
            snapped = on_grid(answer, found.grid)
            answer = noised(snapped, found, at.terms, noise_source(self._secret, arriving.asked, snapped))
        made = None if answer is None else answer.astype(dtype)
        left, receipt = self._settled(kind, at, request, arriving, counting, made, dtype, now)
        return left, stddev, receipt

    def _labels_of(
        self, at: Opened, request: Request, arriving: Arriving[Any], counting: Counting | None
    ) -> LabelsOf:
        """How labels may be read under these terms; no label is read before all that can be checked was."""
        if at.release not in self._paid and not can_pay(at.terms, self._ledger, self._store_id):
            raise unpaid()
        table = at.joined(self._store)

        def labels_of(records: Records) -> NDArray[np.uint8]:
            if counting is None:
                return flipped(table, records, request.task, at.terms, self._secret)
            counting.before_labels(arriving.asked, records)
            return table.look_up(records, request.task)

        return labels_of

    def _settled(
        self,
        kind: str,
        at: Opened,
        request: Request,
        arriving: Arriving[Any],
        counting: Counting | None,
        answer: NDArray[Any] | None,
        dtype: type[np.number[Any]],
        now: int,
    ) -> tuple[NDArray[Any], Receipt]:
        """Register, count, pay and log a release, in one transaction. The answer leaves only after it.

        Where one is kept, `answer` is None, or was computed while another call made the one that is.
        """
        with self._store.transaction() as kept:
            at.refuse_replaced(kept)
            at.register_labels(kept)
            counted = False
            if counting is not None:
                spelled, counted = counting.count(kept, arriving.records, answer)
                answer = np.frombuffer(spelled, dtype)
            assert answer is not None, "it was computed, or is kept"
            if at.release not in self._paid:
                # In the ledger's own transaction, before this one ends: a crash in between has paid for
                # nothing, but nothing leaves unpaid.
                charge(at.terms, self._ledger, self._store_id, at.drawn_from(kept))
            if counted:
                renew(kept, at.release)
            paid = kept.find(f"paid/{at.release}") is None
            if paid:
                kept.keep(f"paid/{at.release}", str(at.terms.budget).encode())
            told = {
                "peer": at.terms.platform,
                "request": request.digest,
                "rows": request.rows,
                "task": request.task,
                "mode": str(at.terms.mode),
                "charged": str(at.terms.budget) if paid else "nothing",
                "counted": counted,
                "answer": hash_of(answer),
            }
            receipt = self._log.write(kept, kind, now, told)
        if counting is not None:
            confirm(at.terms, self._store, self._ledger, self._store_id)
        self._paid.add(at.release)
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
            self._log.refused(refusal.reason, now, peer, told)
            raise
