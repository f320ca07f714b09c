"""What a request must be before anything of it is read on: decided from the terms alone."""

from __future__ import annotations

from tacit.cleanroom.room.aggregating import MOST_ROWS, Request
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.losses import Loss
from tacit.cleanroom.wire.modes import Mode
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import BeginRequest, LabelsRequest, Purpose, StatisticRequest, StepRequest
from tacit.errors import RoomRefused

MOST_PARAMETERS = 2**24
"""In one step: their sum takes 128 MB."""


def check_step(request: StepRequest, terms: Terms, peer: str, now: int) -> None:
    _check(request, terms, peer, now, allowed=terms.mode in (Mode.AGGREGATE, Mode.NOISED))
    if request.layout.parameters > MOST_PARAMETERS:
        raise RoomRefused(Refusal.OVERSIZED, f"expected at most {MOST_PARAMETERS} parameters")
    if request.codec not in terms.codecs:
        raise RoomRefused(Refusal.NOT_AGREED, f"expected codec to be one of {', '.join(terms.codecs)}")
    if terms.mode is Mode.NOISED and request.loss is not Loss.RAW:
        raise RoomRefused(Refusal.NOT_AGREED, f"expected loss {Loss.RAW} in mode {terms.mode}")


def check_statistic(request: StatisticRequest, terms: Terms, peer: str, now: int) -> None:
    is_metric = request.purpose is Purpose.METRIC
    _check(request, terms, peer, now, allowed=is_metric or terms.mode is Mode.STATISTIC)
    if is_metric and not terms.metrics:
        raise RoomRefused(Refusal.NOT_AGREED, "metrics are switched off")


def check_labels(request: LabelsRequest, terms: Terms, peer: str, now: int) -> None:
    _check(request, terms, peer, now, allowed=terms.mode is Mode.RELEASE)


def check_begin(request: BeginRequest, terms: Terms, peer: str, now: int) -> None:
    _check(request, terms, peer, now, allowed=terms.mode is Mode.NOISED)
    if request.releases > (most := terms.releases_per_record):
        raise RoomRefused(Refusal.NOT_AGREED, f"expected at most the agreed {most} releases of a record")


def refuse_stranger(terms: Terms, peer: str) -> None:
    if peer != terms.platform:
        raise RoomRefused(Refusal.FOREIGN)


def refuse_closed(terms: Terms, now: int) -> None:
    if now < terms.begins:
        raise RoomRefused(Refusal.NOT_YET_VALID)
    if now >= terms.expires:
        raise RoomRefused(Refusal.EXPIRED)


def _check(request: Request | BeginRequest, terms: Terms, peer: str, now: int, *, allowed: bool) -> None:
    refuse_stranger(terms, peer)
    if request.agreement != terms.digest:
        raise RoomRefused(Refusal.UNKNOWN_AGREEMENT, "other terms are in force")
    refuse_closed(terms, now)
    if not allowed:
        raise RoomRefused(Refusal.NOT_AGREED, f"mode {terms.mode} does not answer this")
    if request.task not in terms.tasks:
        raise RoomRefused(Refusal.UNKNOWN_TASK, f"expected task to be one of {', '.join(terms.tasks)}")
    if request.rows < terms.smallest_batch:
        raise RoomRefused(Refusal.TOO_SMALL_BATCH, f"expected at least {terms.smallest_batch} rows")
    if request.rows > MOST_ROWS:
        raise RoomRefused(Refusal.OVERSIZED, f"expected at most {MOST_ROWS} rows in one request")
