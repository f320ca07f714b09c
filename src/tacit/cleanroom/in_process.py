"""A room in the same process as the platform: for trials, studies, attacks and tests. What crosses is bytes.

link = room_in_process(tokens, labels, source=Simulation("study"), mode=Mode.NOISED, epsilon=3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.answers import (
    BeginAnswer,
    LabelsAnswer,
    RoomDescription,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.protocol.audit_log import AuditEntry
from tacit.cleanroom.protocol.modes import Mode, NoiseLaw, Signer
from tacit.cleanroom.protocol.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest
from tacit.cleanroom.protocol.signatures import new_key, public_key
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.store import MemoryRoomStore, RoomLedger
from tacit.errors import BadInput
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.randomness import Source

USUAL_DELTA = Fraction(1, 10**6)


@dataclass(frozen=True, eq=False)
class InProcessRoom:
    """A `protocol.requests.RoomLink` to a room that is held here. `peer` is the platform's name, as its
    certificate would say; `clock` gives whole Unix seconds.

    Requests and answers pass through their spelling, so that what a network would refuse is refused here too.
    """

    room: Room
    peer: str
    clock: Callable[[], int]

    def describe(self) -> RoomDescription:
        return RoomDescription.from_bytes(self.room.describe(peer=self.peer, now=self.clock()).to_bytes())

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        asked = StepRequest.from_bytes(request.to_bytes())
        answer = self.room.step(asked, slabs, peer=self.peer, now=self.clock())
        return StepAnswer.from_chunks(answer.to_chunks(), request)

    def statistic(self, request: StatisticRequest, slabs: Iterable[bytes]) -> StatisticAnswer:
        asked = StatisticRequest.from_bytes(request.to_bytes())
        answer = self.room.statistic(asked, slabs, peer=self.peer, now=self.clock())
        return StatisticAnswer.from_chunks(answer.to_chunks(), request)

    def labels(self, request: LabelsRequest, slabs: Iterable[bytes]) -> LabelsAnswer:
        asked = LabelsRequest.from_bytes(request.to_bytes())
        answer = self.room.labels(asked, slabs, peer=self.peer, now=self.clock())
        return LabelsAnswer.from_chunks(answer.to_chunks(), request)

    def begin(self, request: BeginRequest, slabs: Iterable[bytes]) -> BeginAnswer:
        asked = BeginRequest.from_bytes(request.to_bytes())
        return BeginAnswer.from_bytes(
            self.room.begin(asked, slabs, peer=self.peer, now=self.clock()).to_bytes()
        )

    def exchange(self, points: bytes | None) -> bytes:
        return self.room.exchange(points, peer=self.peer, now=self.clock())

    def audit(self, after: int) -> list[AuditEntry]:
        return self.room.audit(after, peer=self.peer)


def room_in_process(
    tokens: NDArray[np.uint8] | LabelTable,
    labels: NDArray[np.integer] | None = None,
    *,
    source: Source,
    now: int = 1_000,
    ledger: RoomLedger | None = None,
    **terms: Any,
) -> InProcessRoom:
    """A fresh room with these labels, (n, tasks), by token, (n, 16), or with a table of them, as
    `labels_of_frame` makes one, whose tasks are then agreed; `terms` are those of the agreement.

    Keys and the room's secret come from `source`, and both parties sign. Nothing is kept beyond the process,
    unless a `ledger` is handed in: what was released is forgotten with it, so a second room over the same
    labels is a second release.
    """
    platform_key, room_key = new_key(source), new_key(source)
    flips = Mode(terms.get("mode", Mode.AGGREGATE)).flips
    pure = flips or NoiseLaw(terms.get("noise", NoiseLaw.GAUSSIAN)) is NoiseLaw.LAPLACE
    usual: dict[str, Any] = {
        "name": "trial",
        "platform": "platform",
        "room": "room",
        "platform_key": public_key(platform_key),
        "room_key": public_key(room_key),
        "begins": 0,
        "expires": 2 * now,
        "delta": Fraction(0) if pure else USUAL_DELTA,
    }
    if isinstance(tokens, LabelTable):
        usual["tasks"] = tokens.tasks
    agreed = Terms(**(usual | terms))
    if isinstance(tokens, LabelTable):
        table = tokens
    elif labels is None:
        raise BadInput("expected labels beside the tokens, or a table of both, got tokens alone")
    else:
        table = LabelTable.of(tokens, labels, agreed.tasks)
    room = Room(
        Agreement.propose(agreed).sign(Signer.PLATFORM, platform_key).sign(Signer.ROOM, room_key),
        table,
        store=MemoryRoomStore(),
        ledger=MemoryLedger() if ledger is None else ledger,
        secret=source.bytes(SECRET_BYTES),
        signing_key=room_key,
        entropy=source,
        now=now,
    )
    return InProcessRoom(room, agreed.platform, lambda: now)
