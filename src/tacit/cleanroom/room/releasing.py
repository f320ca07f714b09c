"""One release on its way: what can be refused is refused before a label is read, and it is counted once."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tacit.cleanroom.room.holding import HeldRun, runs
from tacit.cleanroom.room.labels import Records
from tacit.cleanroom.room.opening import Opened
from tacit.cleanroom.room.store import Answered, Kept, Looked, RoomStore
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import StatisticRequest, StepRequest
from tacit.errors import RoomRefused

DIGEST_BYTES = 32
STEP = "step"
MOST_KEPT_BYTES = 2**34
"""Of answers, for one release: 10,000 steps of an adapter with 400,000 parameters. A platform can name records
that nobody has, and be answered as often as it has names, so counts of releases bound nothing here."""

Answer = NDArray[Any]


class Counting:
    """A release of true labels under its run and number, as far as its slabs have come.

    Ask `before_labels` for every slab: a record that has no release left, and a known run and number with other
    content, are refused there. Both can change until the end, so `count` decides again, for good.

    What `was_counted` has an answer, which is kept and given again: labels are read for it no more. Computed
    again, by another processor or library, a sum may round otherwise, and noise that is drawn from the sum
    would not be the same; whether it is would depend on labels.
    """

    def __init__(
        self, kind: str, at: Opened, request: StepRequest | StatisticRequest, store: RoomStore, size: int
    ) -> None:
        """`size`: how many bytes the answer will have."""
        self._release, self._most, self._store = at.release, at.terms.releases_per_record, store
        self._run, self._number = f"{kind} {request.run}", request.number
        self._name = (
            request.run if kind == STEP else None
        )  # of a run whose steps may have releases of their own
        self._asked: list[bytes] = []  # a digest of all that came, after each slab
        with store.reading() as looked:
            self._known = looked.answered(self._release, self._run, self._number)
            if self._known is None and self._bytes_kept(looked) + size > MOST_KEPT_BYTES:
                said = f"the room keeps at most {MOST_KEPT_BYTES} bytes of answers under these terms"
                raise RoomRefused(Refusal.OVERSIZED, f"{said}: agree on a new version")

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
                raise RoomRefused(Refusal.CONFLICT)
            return
        with self._store.reading() as looked:
            run = self._begun(looked)
            if self._has_left(looked, run, records):
                return
            # Perhaps by this very request, whose first call was answered meanwhile.
            self._known = looked.answered(self._release, self._run, self._number)
        if self._known is None or not self._known.asked.startswith(b"".join(self._asked)):
            raise self._exhausted(run)

    def count(self, kept: Kept, records: Records, answer: Answer | None) -> tuple[bytes, bool]:
        """What leaves, in bytes, and whether it was counted now: once for each run, number and record.

        `answer` is None where labels were not read, since one is kept.
        """
        asked = b"".join(self._asked)
        known = kept.answered(self._release, self._run, self._number)
        if known is None:
            assert answer is not None, "only what was counted comes without one"
            run = self._begun(kept)
            if not self._counted(kept, run, records):
                raise self._exhausted(run)
            known = Answered(asked, answer.tobytes())
            kept.remember(self._release, self._run, self._number, known)
            kept.keep(self._bytes_key, str(self._bytes_kept(kept) + len(known.answer)).encode())
            return known.answer, True
        if known.asked != asked:
            raise RoomRefused(Refusal.CONFLICT)
        return known.answer, False

    def _begun(self, looked: Looked) -> HeldRun | None:
        return None if self._name is None else runs(looked, self._release).get(self._name)

    def _has_left(self, looked: Looked, run: HeldRun | None, records: Records) -> bool:
        if run is None or self._name is None:
            return looked.has_left(self._release, records, self._most)
        return looked.holds(self._release, self._name, records)

    def _counted(self, kept: Kept, run: HeldRun | None, records: Records) -> bool:
        if run is None or self._name is None:
            return kept.count(self._release, records, self._most)
        return kept.use(self._release, self._name, records)

    def _exhausted(self, run: HeldRun | None) -> RoomRefused:
        if run is None:
            return RoomRefused(Refusal.RECORD_EXHAUSTED)
        happened = "was handed back: begin it again" if run.handed_back else "is used, or was of other records"
        return RoomRefused(Refusal.RECORD_EXHAUSTED, f"what run {self._name} set aside {happened}")

    @property
    def _bytes_key(self) -> str:
        return f"bytes/{self._release}"

    def _bytes_kept(self, looked: Looked) -> int:
        return int(looked.find(self._bytes_key) or 0)
