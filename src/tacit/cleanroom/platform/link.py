"""Link to a room: what the platform may ask of it, be it in the same process or behind a network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tacit.cleanroom.protocol.answers import (
    BeginAnswer,
    LabelsAnswer,
    RoomDescription,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.protocol.audit_log import AuditEntry
from tacit.cleanroom.protocol.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest


class RoomLink(Protocol):
    """Every call may raise `RoomRefused`, after which nothing has changed in the room.

    Slabs can be iterated again and are then the very same bytes, so that a link may repeat a call whose answer
    was lost: the room counts a repeated call once.
    """

    def describe(self) -> RoomDescription: ...
    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer: ...
    def statistic(self, request: StatisticRequest, slabs: Iterable[bytes]) -> StatisticAnswer: ...
    def labels(self, request: LabelsRequest, slabs: Iterable[bytes]) -> LabelsAnswer: ...
    def begin(self, request: BeginRequest, slabs: Iterable[bytes]) -> BeginAnswer: ...
    def exchange(self, points: bytes | None) -> bytes: ...
    def audit(self, after: int) -> list[AuditEntry]: ...
