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
from tacit.services.room.keys import CertificateAuthority, CertifiedKey, name_on_certificate
from tacit.services.room.remote_room import RemoteRoom
from tacit.services.room.service import SERVER_OPTIONS, RoomParty, RoomService
from tacit.services.room.settings import LinkPatience, RoomPace, TlsIdentity

SOON = LinkPatience(call_seconds=10, again_seconds=1)
NOW = int(time.time())


def identities(
    authority: CertificateAuthority, *, platform: str = "platform", room: str = "room"
) -> dict[str, TlsIdentity]:
    """What each party shows."""

    def identity(certified: CertifiedKey) -> TlsIdentity:
        name = name_on_certificate("certificate", certified.certificate)
        return TlsIdentity(name, authority.own.certificate, certified.certificate, certified.private_key)

    return {"room": identity(authority.room(room)), "platform": identity(authority.platform(platform))}


@contextmanager
def listening(
    room: RoomParty,
    identity: TlsIdentity,
    *,
    pace: RoomPace | None = None,
    now: int = NOW,
    address: str = "127.0.0.1:0",
    grace: float = 0,
) -> Iterator[str]:
    """The address of a server that runs in a thread until the block ends."""
    told: dict[str, Any] = {}
    loop = asyncio.new_event_loop()

    async def start() -> None:
        told["service"] = RoomService(room, clock=lambda: now, pace=pace or RoomPace())
        told["server"] = grpc.aio.server(handlers=[told["service"]], options=SERVER_OPTIONS)
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


def remote(
    address: str, identity: TlsIdentity, *, room: str = "room", patience: LinkPatience = SOON
) -> RemoteRoom:
    return RemoteRoom(address, room, identity, patience=patience)


def channel(address: str, identity: TlsIdentity | None, **options: Any) -> grpc.Channel:
    """A client that keeps to no rule of ours."""
    credentials = (
        grpc.ssl_channel_credentials(identity.authority, identity.private_key, identity.certificate)
        if identity is not None and identity.private_key
        else grpc.ssl_channel_credentials(identity.authority if identity else None)
    )
    chosen = {"grpc.ssl_target_name_override": "room", "grpc.max_send_message_length": -1, **options}
    return grpc.secure_channel(address, credentials, options=list(chosen.items()))


def without_certificate(identity: TlsIdentity) -> TlsIdentity:
    return replace(identity, private_key=b"", certificate=b"")


def all_keys(folder: Path) -> list[keys.KeyFile]:
    return keys.write_keys(folder, platform="platform", room="room", now=NOW, entropy=Entropy())
