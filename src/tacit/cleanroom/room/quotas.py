"""Quotas of releases: what a run sets aside when it begins, and the counter of releases per record.

A run names its records and how often it will release each of them. All of that is counted at once, or the run
is refused before it has begun; its steps then use what is its own. Of runs that compete the first one ends, and
the others leave without cost. What a run did not use is free again once the room's operator hands it back; the
run itself may come back for it while it is there. A run that never said that it begins is counted step by step,
from what no run has set aside. Whatever can be refused is refused before a label is read.

Guarantee:  no record is released more than `most` times, whoever begins, abandons or goes on with what: what is
            set aside is counted when it is, and what is handed back is what no step has used and none will.
Neighbours: as of the releases that are counted. Nothing here depends on labels.
Assumes:    the store's transactions are what they say.
Source:     `ReleaseCounter`, which asks here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol.encoding import RoomRefusal, canonical_json
from tacit.cleanroom.protocol.requests import BeginRequest
from tacit.cleanroom.room.active_terms import ActiveTerms
from tacit.cleanroom.room.labels import Records
from tacit.cleanroom.room.store import ReadTransaction, RoomStore, StoredAnswer, WriteTransaction
from tacit.cleanroom.room.sums import NoisyQuery, StepQuery
from tacit.errors import BadInput, RoomRefused

MOST_RUNS = 1000
"""That begin under one release: their names are kept for good."""
QUOTAS_SHOWN = 3


@dataclass(frozen=True)
class RunQuota:
    """A run that has begun: for how many records, how many releases of each, and whether it holds them."""

    content: str  # a digest of what it said when it began
    rows: int
    releases: int
    begun: int  # the second
    handed_back: bool = False


def run_quotas(view: ReadTransaction, release: str) -> dict[str, RunQuota]:
    """All runs that ever began under this release, by name, in their order."""
    found = view.get(_key(release))
    return {} if found is None else {name: RunQuota(**each) for name, each in json.loads(found).items()}


def reserve_quota(
    transaction: WriteTransaction, release: str, request: BeginRequest, records: Records, most: int, now: int
) -> None:
    """Set aside what the run needs, or refuse: then the transaction is given up.

    Asked for again it changes nothing; after it was handed back, it takes what the run has not used.
    """
    known = run_quotas(transaction, release)
    content = hashlib.sha256(
        canonical_json([request.training, request.releases]) + records.tobytes()
    ).hexdigest()
    found = known.get(request.run)
    if found is not None and found.content != content:
        raise RoomRefused(
            RoomRefusal.CONFLICT, f"run {request.run} began as another one: name this one otherwise"
        )
    if found is not None and not found.handed_back:
        return
    if found is None and len(known) >= MOST_RUNS:
        raise RoomRefused(RoomRefusal.OVERSIZED, f"expected at most {MOST_RUNS} runs under these terms")
    left = most - transaction.most_used(release, records)
    if not transaction.reserve_quota(release, request.run, records, request.releases, most):
        raise _does_not_fit(request, left, most, known)
    _keep(transaction, release, {**known, request.run: RunQuota(content, request.rows, request.releases, now)})


def _does_not_fit(request: BeginRequest, left: int, most: int, known: dict[str, RunQuota]) -> RoomRefused:
    """Which runs hold how many, and what is left. All of these names are the platform's own."""
    holding = [f"{name} holds {run.releases}" for name, run in known.items() if not run.handed_back]
    shown = ", ".join(holding[-QUOTAS_SHOWN:]) or "the others are used"
    needs = f"run {request.run} needs {request.releases} releases of each record"
    return RoomRefused(RoomRefusal.RECORD_EXHAUSTED, f"{needs}, {left} of {most} are left; {shown}")


def return_quota(transaction: WriteTransaction, release: str, run: str) -> int:
    """Free what the run has set aside and not used: how many releases of single records that is."""
    known = run_quotas(transaction, release)
    if run not in known:
        raise BadInput(f"expected the name of a run that began here, got {run!r}")
    if known[run].handed_back:
        return 0
    _keep(transaction, release, {**known, run: replace(known[run], handed_back=True)})
    return transaction.return_quota(release, run)


def _keep(transaction: WriteTransaction, release: str, known: dict[str, RunQuota]) -> None:
    transaction.put(_key(release), json.dumps({name: vars(each) for name, each in known.items()}).encode())


def _key(release: str) -> str:
    return f"runs/{release}"


DIGEST_BYTES = 32
MOST_KEPT_BYTES = 2**34
"""Of answers, for one release: 10,000 steps of an adapter with 400,000 parameters. A platform can name records
that nobody has, and be answered as often as it has names, so counts of releases bound nothing here."""

Answer = NDArray[Any]


class ReleaseCounter:
    """A release of true labels under its run and number, as far as its slabs have come.

    Ask `before_labels` for every slab: a record that has no release left, and a known run and number with other
    content, are refused there. Both can change until the end, so `count` decides again, for good.

    What `was_counted` has an answer, which is kept and given again: labels are read for it no more. Computed
    again, by another processor or library, a sum may round otherwise, and noise that is drawn from the sum
    would not be the same; whether it is would depend on labels.
    """

    def __init__(self, query: NoisyQuery, active: ActiveTerms, store: RoomStore) -> None:
        self.query, request = query, query.request
        self._release, self._most, self._store = active.release, active.terms.releases_per_record, store
        self._run, self._number = f"{query.kind} {request.run}", request.number
        # Of a run whose steps may have releases of their own.
        self._name = request.run if isinstance(query, StepQuery) else None
        self._asked: list[bytes] = []  # a digest of all that came, after each slab
        size = query.entries * np.dtype(query.dtype).itemsize
        with store.reading() as view:
            self._known = view.get_answer(self._release, self._run, self._number)
            if self._known is None and self._bytes_kept(view) + size > MOST_KEPT_BYTES:
                said = f"the room keeps at most {MOST_KEPT_BYTES} bytes of answers under these terms"
                raise RoomRefused(RoomRefusal.OVERSIZED, f"{said}: agree on a new version")

    @property
    def was_counted(self) -> bool:
        """Whether this run and number have an answer."""
        return self._known is not None

    def before_labels(self, asked: bytes, records: Records) -> None:
        """Refuse a slab; `asked` is the digest of all that came, with it."""
        start = len(self._asked) * DIGEST_BYTES
        self._asked.append(asked)
        if self._known is not None:  # it was counted, and is not again
            if self._known.asked[start : start + DIGEST_BYTES] != asked:
                raise RoomRefused(RoomRefusal.CONFLICT)
            return
        with self._store.reading() as view:
            run = self._find_run(view)
            if self._has_left(view, run, records):
                return
            # Perhaps by this very request, whose first call was answered meanwhile.
            self._known = view.get_answer(self._release, self._run, self._number)
        if self._known is None or not self._known.asked.startswith(b"".join(self._asked)):
            raise self._exhausted_error(run)

    def count(
        self, transaction: WriteTransaction, records: Records, answer: Answer | None
    ) -> tuple[bytes, bool]:
        """What leaves, in bytes, and whether it was counted now: once for each run, number and record.

        `answer` is None where labels were not read, since one is kept.
        """
        asked = b"".join(self._asked)
        known = transaction.get_answer(self._release, self._run, self._number)
        if known is None:
            assert answer is not None, "only what was counted comes without one"
            run = self._find_run(transaction)
            if not self._count_release(transaction, run, records):
                raise self._exhausted_error(run)
            known = StoredAnswer(asked, answer.tobytes())
            transaction.put_answer(self._release, self._run, self._number, known)
            transaction.put(self._bytes_key, str(self._bytes_kept(transaction) + len(known.answer)).encode())
            return known.answer, True
        if known.asked != asked:
            raise RoomRefused(RoomRefusal.CONFLICT)
        return known.answer, False

    def _find_run(self, view: ReadTransaction) -> RunQuota | None:
        return None if self._name is None else run_quotas(view, self._release).get(self._name)

    def _has_left(self, view: ReadTransaction, run: RunQuota | None, records: Records) -> bool:
        if run is None or self._name is None:
            return view.has_releases_left(self._release, records, self._most)
        return view.has_quota(self._release, self._name, records)

    def _count_release(self, transaction: WriteTransaction, run: RunQuota | None, records: Records) -> bool:
        if run is None or self._name is None:
            return transaction.count(self._release, records, self._most)
        return transaction.use_quota(self._release, self._name, records)

    def _exhausted_error(self, run: RunQuota | None) -> RoomRefused:
        if run is None:
            return RoomRefused(RoomRefusal.RECORD_EXHAUSTED)
        happened = "was handed back: begin it again" if run.handed_back else "is used, or was of other records"
        return RoomRefused(RoomRefusal.RECORD_EXHAUSTED, f"what run {self._name} set aside {happened}")

    @property
    def _bytes_key(self) -> str:
        return f"bytes/{self._release}"

    def _bytes_kept(self, view: ReadTransaction) -> int:
        return int(view.get(self._bytes_key) or 0)
