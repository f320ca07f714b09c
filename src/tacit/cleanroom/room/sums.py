"""Queries, the questions that a room answers from a stream of slabs, and the checks that come before them.

Checks are decided from the terms alone, before anything of a request is read. Sums take bounded memory: the
sum, one slab, and the records so far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.encoding import MOST_MESSAGE_BYTES, RoomRefusal
from tacit.cleanroom.protocol.losses import Loss, slopes
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.requests import (
    BeginRequest,
    LabelsRequest,
    Purpose,
    StatisticRequest,
    StepRequest,
)
from tacit.cleanroom.protocol.slabs import Slab, StatisticSlab, TokenSlab
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.active_terms import RecordJoin
from tacit.cleanroom.room.labels import Records, has_repeats
from tacit.cleanroom.room.mechanism import (
    STATISTIC_GRID,
    GridSensitivity,
    clip_factors,
    statistic_sensitivity,
    step_sensitivity,
)
from tacit.errors import RoomRefused

MOST_ROWS = 2**22
"""In one request. Sums stay exact on their grid, and the records of a request take at most 64 MB."""

LabelLookup = Callable[[Records], NDArray[np.uint8]]
Request = StepRequest | StatisticRequest | LabelsRequest


class HasTokens(Protocol):
    @property
    def first(self) -> int: ...
    @property
    def tokens(self) -> NDArray[np.uint8]: ...


SomeSlab = TypeVar("SomeSlab", bound=HasTokens)


class SlabStream(Generic[SomeSlab]):
    """The slabs of one request, checked as they come. Once all have come, `records` and `digest` are whole."""

    def __init__(
        self,
        request: Request | BeginRequest,
        slabs: Iterable[bytes],
        decode: Callable[[bytes], SomeSlab],
        joining: RecordJoin,
    ) -> None:
        self._rows, self._slabs, self._decode, self._joining = request.rows, slabs, decode, joining
        self._asked = hashlib.sha256(request.to_bytes())
        self._records: list[Records] = []
        self.slabs, self.largest, self.several = 0, 0, False  # as `mechanism.step_sensitivity` wants to know

    def __iter__(self) -> Iterator[tuple[SomeSlab, Records]]:
        came = 0
        for data in self._slabs:
            if len(data) > MOST_MESSAGE_BYTES:
                raise RoomRefused(
                    RoomRefusal.OVERSIZED, f"expected slabs of at most {MOST_MESSAGE_BYTES} bytes"
                )
            self._asked.update(hashlib.sha256(data).digest())
            slab = self._decode(data)
            count = len(slab.tokens)
            if count == 0 or slab.first != came or came + count > self._rows:
                raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected {self._rows} rows in order, got others")
            records = self._joining.records(slab.tokens)
            if has_repeats(records):
                raise RoomRefused(RoomRefusal.REPEATED_RECORD)
            came += count
            self.slabs += 1
            if isinstance(slab, Slab):
                self.largest, self.several = max(self.largest, slab.most_products), self.several or slab.several
            self._records.append(records.copy())  # a view would keep the whole slab
            yield slab, records
        if came != self._rows:
            raise RoomRefused(RoomRefusal.WRONG_SHAPE, f"expected {self._rows} rows, got {came}")
        if has_repeats(self.records):
            raise RoomRefused(RoomRefusal.REPEATED_RECORD)

    @property
    def records(self) -> Records:
        """All that came, (rows, 16)."""
        return np.concatenate(self._records)

    @property
    def digest(self) -> bytes:
        """A digest of the request and every byte of its slabs."""
        return self._asked.digest()


@dataclass(frozen=True)
class StepQuery:
    """A question for one step's sum: over rows, the loss's slope times the derivative."""

    request: StepRequest
    stream: SlabStream[Slab]
    terms: Terms

    kind: ClassVar[str] = "step"
    dtype: ClassVar[type[np.number[Any]]] = np.float32

    @property
    def entries(self) -> int:
        return self.request.layout.parameters

    def compute(self, labels_of: LabelLookup) -> Floats:
        """The sum, flat; reads the stream. Clipped, and all in float64, in mode NOISED."""
        terms, layout = self.terms, self.request.layout
        clips = terms.mode is Mode.NOISED
        total = np.zeros(layout.parameters)
        parts = layout.split(total)
        for slab, records in self.stream:
            if clips:  # both refuse, where they do, before a label is read
                self.sensitivity()
                shares = clip_factors(slab.blocks, terms.clip_norm, terms.noise)
            weights = slopes(slab.logits, labels_of(records), self.request.loss, None if clips else terms.keep)
            if clips:
                weights *= shares
            for block in layout.blocks:
                dtype = np.float64 if clips else np.float32
                parts[block.name] += slab.blocks[block.name].weighted_sum(weights, dtype=dtype)
        return total

    def sensitivity(self) -> GridSensitivity:
        """How far one record's labels can move the sum of what has come so far."""
        came = {"slabs": self.stream.slabs, "largest": self.stream.largest}
        request, several = self.request, self.stream.several
        return step_sensitivity(self.terms, request.layout, request.rows, **came, several=several)


@dataclass(frozen=True)
class StatisticQuery:
    """A question for labels times (cells, features), or for a metric: positives by cell.

    Where the answer is to be noised, one whose sensitivity is refused cannot be made: no slab is read.
    """

    request: StatisticRequest
    stream: SlabStream[StatisticSlab]
    terms: Terms

    dtype: ClassVar[type[np.number[Any]]] = np.float64

    def __post_init__(self) -> None:
        if not self.terms.mode.flips:
            self.sensitivity()

    @property
    def kind(self) -> str:
        return str(self.request.purpose)

    @property
    def entries(self) -> int:
        return self.request.cells + self.request.features

    def compute(self, labels_of: LabelLookup) -> Floats:
        """The sums, flat: multiples of the grid, and exact; reads the stream.

        Features are clipped to a norm of 1, then cut to the grid towards zero, so that no norm grows.
        """
        request = self.request
        positives = np.zeros(request.cells)
        sums = np.zeros(request.features)
        for slab, records in self.stream:
            labels = labels_of(records).astype(np.float64)
            in_cells = np.repeat(labels, request.indices)
            positives += np.bincount(slab.cells.reshape(-1), in_cells, minlength=request.cells)
            sums += labels @ _clip_features(slab.features)
        weight = np.floor(request.cell_weight / STATISTIC_GRID) * STATISTIC_GRID
        return np.concatenate([positives * weight, sums])

    def sensitivity(self) -> GridSensitivity:
        """How far one record's labels can move the sums."""
        return statistic_sensitivity(self.terms, self.request)


@dataclass(frozen=True)
class LabelsQuery:
    """A question for the label of each row. It has no sensitivity: labels leave one by one only flipped."""

    request: LabelsRequest
    stream: SlabStream[TokenSlab]

    kind: ClassVar[str] = "labels"
    dtype: ClassVar[type[np.number[Any]]] = np.uint8

    @property
    def entries(self) -> int:
        return self.request.rows

    def compute(self, labels_of: LabelLookup) -> NDArray[np.uint8]:
        """The label of each row, in the order of the stream, which is read."""
        return np.concatenate([labels_of(records) for _, records in self.stream])


NoisyQuery = StepQuery | StatisticQuery
"""Questions that may be answered from true labels, with noise, and counted."""
Query = NoisyQuery | LabelsQuery
"""A question as the room answers it: `kind` is its word in the audit log and in counts, `compute` reads the
stream, once, and `entries` values of `dtype` are what leaves."""


def _clip_features(features: NDArray[np.float32]) -> Floats:
    wide = features.astype(np.float64)
    # Squares are exact. Adding up n of them, in any order, errs by less than n 2^-53 of the sum (Higham, as in
    # `mechanism`); the root, the product and the division below by a few more.
    up = 1 + (features.shape[1] + 16) * 2.0**-52
    norms = np.sqrt(np.vecdot(wide, wide)) * up
    wide /= np.maximum(norms, 1.0)[:, None]
    cut: Floats = np.trunc(wide / STATISTIC_GRID) * STATISTIC_GRID
    return cut


MOST_PARAMETERS = 2**24
"""In one step: their sum takes 128 MB."""


def check_step(request: StepRequest, terms: Terms, peer: str, now: int) -> None:
    _check(request, terms, peer, now, allowed=terms.mode in (Mode.AGGREGATE, Mode.NOISED))
    if request.layout.parameters > MOST_PARAMETERS:
        raise RoomRefused(RoomRefusal.OVERSIZED, f"expected at most {MOST_PARAMETERS} parameters")
    if request.codec not in terms.codecs:
        raise RoomRefused(RoomRefusal.NOT_AGREED, f"expected codec to be one of {', '.join(terms.codecs)}")
    if request.layout.by_rows and not codec_named(request.codec).sends_rows:
        raise RoomRefused(RoomRefusal.NOT_AGREED, f"codec {request.codec} does not send blocks by rows")
    if terms.mode is Mode.NOISED and request.loss is not Loss.RAW:
        raise RoomRefused(RoomRefusal.NOT_AGREED, f"expected loss {Loss.RAW} in mode {terms.mode}")


def check_statistic(request: StatisticRequest, terms: Terms, peer: str, now: int) -> None:
    is_metric = request.purpose is Purpose.METRIC
    _check(request, terms, peer, now, allowed=is_metric or terms.mode is Mode.STATISTIC)
    if is_metric and not terms.metrics:
        raise RoomRefused(RoomRefusal.NOT_AGREED, "metrics are switched off")


def check_labels(request: LabelsRequest, terms: Terms, peer: str, now: int) -> None:
    _check(request, terms, peer, now, allowed=terms.mode is Mode.RELEASE)


def check_begin(request: BeginRequest, terms: Terms, peer: str, now: int) -> None:
    _check(request, terms, peer, now, allowed=terms.mode is Mode.NOISED)
    if request.releases > (most := terms.releases_per_record):
        raise RoomRefused(RoomRefusal.NOT_AGREED, f"expected at most the agreed {most} releases of a record")


def refuse_stranger(terms: Terms, peer: str) -> None:
    if peer != terms.platform:
        raise RoomRefused(RoomRefusal.FOREIGN)


def refuse_closed(terms: Terms, now: int) -> None:
    if now < terms.begins:
        raise RoomRefused(RoomRefusal.NOT_YET_VALID)
    if now >= terms.expires:
        raise RoomRefused(RoomRefusal.EXPIRED)


def _check(request: Request | BeginRequest, terms: Terms, peer: str, now: int, *, allowed: bool) -> None:
    refuse_stranger(terms, peer)
    if request.agreement != terms.digest:
        raise RoomRefused(RoomRefusal.UNKNOWN_AGREEMENT, "other terms are in force")
    refuse_closed(terms, now)
    if not allowed:
        raise RoomRefused(RoomRefusal.NOT_AGREED, f"mode {terms.mode} does not answer this")
    if request.task not in terms.tasks:
        raise RoomRefused(RoomRefusal.UNKNOWN_TASK, f"expected task to be one of {', '.join(terms.tasks)}")
    if request.rows < terms.smallest_batch:
        raise RoomRefused(RoomRefusal.TOO_SMALL_BATCH, f"expected at least {terms.smallest_batch} rows")
    if request.rows > MOST_ROWS:
        raise RoomRefused(RoomRefusal.OVERSIZED, f"expected at most {MOST_ROWS} rows in one request")
