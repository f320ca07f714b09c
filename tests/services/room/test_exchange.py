"""An exchange of points is read only as far as it may go: who calls is asked before anything is read."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit.cleanroom.in_process import room_in_process
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.entropy import Simulation
from tacit.services.room.service import RoomParty, RoomService
from tacit.services.room.settings import RoomPace
from tests.support.room_fakes import Echo

PLATFORM = {"x509_common_name": [b"platform"], "x509_subject_alternative_name": [b"platform"]}
MEGABYTE = bytes(2**20)


class Endless:
    """A call of somebody who goes on sending; counts what is read of it, and keeps what the caller is told."""

    def __init__(self, certificate: dict[str, list[bytes]]) -> None:
        self._certificate = certificate
        self.read_so_far, self.told = 0, ""

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._certificate

    async def read(self) -> bytes:
        self.read_so_far += 1
        assert self.read_so_far < 50, "nobody stops the stream"
        return MEGABYTE

    async def abort(self, _code: object, details: str) -> None:
        self.told = json.loads(details)["reason"]


def exchanged(room: RoomParty, certificate: dict[str, list[bytes]], now: int = 5) -> Endless:
    async def handle() -> Endless:
        service, call = RoomService(room, clock=lambda: now, pace=RoomPace()), Endless(certificate)
        handler = service.service(SimpleNamespace(method="/tacit.Room/Exchange"))
        await handler.stream_stream(None, call)
        service.close()
        return call

    return asyncio.run(handle())


def test_nothing_of_a_stranger_is_read() -> None:
    call = exchanged(Echo(), {})
    assert (call.told, call.read_so_far) == (RoomRefusal.FOREIGN, 0)


def test_of_the_platform_no_more_than_an_answer_has() -> None:
    call = exchanged(Echo(), PLATFORM)
    assert call.told == RoomRefusal.OVERSIZED
    assert call.read_so_far <= 2 + 1 + 1  # two megabytes, the one too many, and one that was on its way


@pytest.mark.parametrize(
    ("agreed", "now", "reason"),
    [
        ({}, 5, RoomRefusal.NOT_AGREED),  # records are joined by tokens
        ({"join": "psi", "most_ids": 300}, 9, RoomRefusal.EXPIRED),
        ({"join": "psi", "most_ids": 300, "begins": 7}, 5, RoomRefusal.NOT_YET_VALID),
    ],
)
def test_of_a_closed_room_or_one_without_exchange_nothing(
    agreed: dict[str, Any], now: int, reason: RoomRefusal
) -> None:
    tokens, labels = np.arange(16, dtype=np.uint8)[None], np.ones((1, 1), np.uint8)
    held = room_in_process(tokens, labels, source=Simulation("held"), now=4, **agreed)
    call = exchanged(held.room, PLATFORM, now)
    assert (call.told, call.read_so_far) == (reason, 0)
