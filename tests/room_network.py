"""A room behind real gRPC and TLS in this process: keys, a server in a thread, and clients of every kind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import grpc

from tacit.entropy import Entropy
from tacit.services.room import keys
from tacit.services.room.calling import RemoteRoom
from tacit.services.room.certificates import Authority, Certified, name_on
from tacit.services.room.pace import Pace, Patience
from tacit.services.room.serving import OPTIONS, Party, RoomService
from tacit.services.room.settings import Identity

SOON = Patience(call_seconds=10, again_seconds=1)
NOW = int(time.time())


def identities(authority: Authority, *, platform: str = "platform", room: str = "room") -> dict[str, Identity]:
    """What each party shows."""

    def identity(certified: Certified) -> Identity:
        name = name_on("certificate", certified.certificate)
        return Identity(name, authority.own.certificate, certified.certificate, certified.private_key)

    return {"room": identity(authority.room(room)), "platform": identity(authority.platform(platform))}


@contextmanager
def listening(
    room: Party,
    identity: Identity,
    *,
    pace: Pace | None = None,
    now: int = NOW,
    address: str = "127.0.0.1:0",
    grace: float = 0,
) -> Iterator[str]:
    """The address of a server that runs in a thread until the block ends."""
    told: dict[str, Any] = {}
    loop = asyncio.new_event_loop()

    async def start() -> None:
        told["service"] = RoomService(room, clock=lambda: now, pace=pace or Pace())
        told["server"] = grpc.aio.server(handlers=[told["service"]], options=OPTIONS)
        credentials = grpc.ssl_server_credentials(
            [(identity.private_key, identity.certificate)],
            root_certificates=identity.authority,
            require_client_auth=True,
        )
        told["port"] = told["server"].add_secure_port(address, credentials)
        await told["server"].start()

    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        yield f"127.0.0.1:{told['port']}"
    finally:
        asyncio.run_coroutine_threadsafe(told["server"].stop(grace), loop).result(10)
        told["service"].close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def remote(address: str, identity: Identity, *, room: str = "room", patience: Patience = SOON) -> RemoteRoom:
    return RemoteRoom(address, room, identity, patience=patience)


def channel(address: str, identity: Identity | None, **options: Any) -> grpc.Channel:
    """A client that keeps to no rule of ours."""
    credentials = (
        grpc.ssl_channel_credentials(identity.authority, identity.private_key, identity.certificate)
        if identity is not None and identity.private_key
        else grpc.ssl_channel_credentials(identity.authority if identity else None)
    )
    chosen = {"grpc.ssl_target_name_override": "room", "grpc.max_send_message_length": -1, **options}
    return grpc.secure_channel(address, credentials, options=list(chosen.items()))


def without_certificate(identity: Identity) -> Identity:
    return replace(identity, private_key=b"", certificate=b"")


def all_keys(folder: Path) -> list[keys.KeyFile]:
    return keys.write(folder, platform="platform", room="room", now=NOW, entropy=Entropy())
