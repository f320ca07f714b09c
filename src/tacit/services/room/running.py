"""From room.toml to a room that listens: stores opened, labels read, calls answered until asked to end."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import grpc

from tacit.cleanroom.room.labels import LabelTable
from tacit.cleanroom.room.labels_file import read_labels
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.wire.agreement import Terms
from tacit.cleanroom.wire.signing import private_key
from tacit.cleanroom.wire.tokens import token_key
from tacit.entropy import Entropy
from tacit.errors import BadInput, TacitError
from tacit.services.one_line import log_lines
from tacit.services.reading import naming
from tacit.services.room import files
from tacit.services.room.files import read_agreement
from tacit.services.room.looking import verified
from tacit.services.room.pace import Pace
from tacit.services.room.serving import LOG, OPTIONS, Party, RoomService
from tacit.services.room.settings import Identity, RoomSettings
from tacit.store.ledger import LedgerStore
from tacit.store.room import SqlRoomStore


def clock() -> int:
    return int(time.time())


def open_room(settings: RoomSettings) -> Room:
    """The room of these settings: its labels read, its stores opened, its agreement taken up."""
    agreement = read_agreement("agreement.file", settings.agreement)
    with naming("agreement.file"):
        terms = agreement.in_force
    if settings.identity.name != terms.room:
        raise BadInput(
            f"tls.certificate: expected that of the agreement's room, {terms.room}, got that of "
            f"{settings.identity.name}"
        )
    if (why := terms.why_closed(now := clock())) is not None:
        raise BadInput(f"agreement.file: expected an agreement that holds now, got one {why}")
    table = _labels(settings, terms)
    with naming("store.room"):
        store = SqlRoomStore.open(settings.store, witness=_made_room_for(settings.room_witness))
        verified(store)  # nothing is added to a log that does not hold
    with naming("store.ledger"):
        ledger = LedgerStore.open(settings.ledger, witness=_made_room_for(settings.ledger_witness))
    with naming("agreement.file"):
        return Room(
            agreement,
            table,
            store=store,
            ledger=ledger,
            secret=settings.secret,
            signing_key=private_key(settings.signing),
            entropy=Entropy(),
            now=now,
        )


def _labels(settings: RoomSettings, terms: Terms) -> LabelTable:
    key = token_key(settings.token_secret, terms.name)
    try:
        return read_labels(settings.labels, settings.id_column, terms.tasks, key)
    except TacitError as trouble:  # it names the column, which for ids is a setting, too
        is_about_ids = re.search(rf"column {re.escape(settings.id_column)}( in |:)", str(trouble))
        raise BadInput(f"labels.{'id' if is_about_ids else 'file'}: {trouble}") from None


def _made_room_for(witness: Path | None) -> Path | None:
    if witness is not None:
        witness.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return witness


def serve(settings: RoomSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    log_lines(LOG)
    address = f"{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}"
    with alone(settings.store):
        room = open_room(settings)

        def say(place: str) -> None:
            print(f"tacit room: {room.terms.room} listens on {place} for {room.terms.platform}", flush=True)

        asyncio.run(listen(room, settings.identity, address, pace=settings.pace, started=say))


async def listen(
    room: Party, identity: Identity, address: str, *, pace: Pace, started: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; calls under way are answered first, within `finish_seconds`."""
    service = RoomService(room, clock=clock, pace=pace)
    server = grpc.aio.server(handlers=[service], options=OPTIONS)
    credentials = grpc.ssl_server_credentials(
        [(identity.private_key, identity.certificate)],
        root_certificates=identity.authority,
        require_client_auth=True,
    )
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError:
        raise BadInput(f"listen: expected a free place to listen on, got {address}") from None
    asked_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, asked_to_end.set)
    try:
        await server.start()
        started(f"{address.rpartition(':')[0]}:{port}")
        await asked_to_end.wait()
        await server.stop(pace.finish_seconds)
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
        await asyncio.to_thread(service.close)  # a worker that still reads needs this loop to hear of the end


def alone(store: Path) -> AbstractContextManager[None]:
    """One process a store: the room holds what is released in memory while it decides."""
    taken = f"expected a store that nobody else serves, got {store}, which another room runs on"
    return files.alone(Path(f"{store}.serving"), "store.room", taken)
