"""A room that decides nothing: it reads what comes and says how much it was. For tests of the network alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from tacit.cleanroom.protocol.answers import (
    AuditReceipt,
    BeginAnswer,
    LabelsAnswer,
    RemainingBudget,
    RoomDescription,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.protocol.audit_log import AuditEntry, next_entry
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.cleanroom.protocol.losses import Loss
from tacit.cleanroom.protocol.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest
from tacit.cleanroom.protocol.terms import Terms
from tacit.errors import RoomRefused
from tacit.privacy.ledger.chain import START

RECEIPT = AuditReceipt(1, "a" * 64, bytes(64))
TERMS = Terms(
    name="spring",
    platform="platform",
    room="room",
    platform_key="0" * 64,
    room_key="1" * 64,
    begins=0,
    expires=9,
)
OFFERED = b"offer" * 400_000  # points of the room: 2 MB, so an answer has as many
LAYOUT = ParameterLayout((ParameterBlock("tower", 512, 1024),))  # an answer of 2 MB: more than one chunk


def a_request(run: str = "first", number: int = 0, layout: ParameterLayout = LAYOUT) -> StepRequest:
    return StepRequest("b" * 64, run, number, "conversion", Loss.RAW, "fp32", 7, layout)


class Echo:
    """Answers a step with the number of bytes that came; refuses everybody but the platform."""

    def __init__(self, before: Callable[[int], None] = lambda _: None) -> None:
        self._before, self.calls, self.finished = before, 0, 0
        self._lock = threading.Lock()

    def _enter(self, peer: str) -> None:
        with self._lock:
            self.calls += 1
        if peer != TERMS.platform:
            raise RoomRefused(RoomRefusal.FOREIGN)
        self._before(self.calls)

    def describe(self, *, peer: str, now: int) -> RoomDescription:
        self._enter(peer)
        assert now > 0
        return RoomDescription(
            TERMS, RemainingBudget(Fraction(1, 3), Fraction(0), Fraction(8, 3), Fraction(0), 1), RECEIPT, "1"
        )

    def step(self, request: StepRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> StepAnswer:
        self._enter(peer)
        assert now > 0
        sizes = [len(each) for each in slabs]
        with self._lock:
            self.finished += 1
        answer = np.zeros(request.layout.parameters, np.float32)
        answer[:3] = (len(sizes), sum(sizes), time.monotonic() % 1)
        return StepAnswer(answer, request.rows, 0.0, RECEIPT)

    def statistic(
        self, request: StatisticRequest, slabs: Iterable[bytes], *, peer: str, now: int
    ) -> StatisticAnswer:
        self._enter(peer)
        assert now > 0
        sums = np.full(request.cells + request.features, float(sum(map(len, slabs))))
        return StatisticAnswer(sums, 1.5, RECEIPT)

    def labels(self, request: LabelsRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> LabelsAnswer:
        self._enter(peer)
        assert now > 0
        assert list(slabs)
        return LabelsAnswer(np.arange(request.rows).astype(np.uint8) % 2, RECEIPT)

    def begin(self, request: BeginRequest, slabs: Iterable[bytes], *, peer: str, now: int) -> BeginAnswer:
        self._enter(peer)
        assert now > 0
        assert list(slabs)
        return BeginAnswer(request.releases, RECEIPT)

    def exchange(self, points: bytes | None, *, peer: str, now: int) -> bytes:
        self._enter(peer)
        assert now > 0
        return OFFERED if points is None else points[::-1]

    def audit(self, after: int, *, peer: str) -> list[AuditEntry]:
        self._enter(peer)
        entries: list[AuditEntry] = []
        for number in range(2000):
            entries.append(
                next_entry(entries[-1].head if entries else START, {"kind": "step", "n": "x" * (number % 700)})
            )
        return entries[after:]
