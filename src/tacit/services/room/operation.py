"""Operation of a clean room: started from room.toml, and its store read for its operator.

A room opens its stores, reads its labels, and answers until asked to end. Its store can be read, and what a
run did not use handed back, whether or not the room is running.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import grpc

from tacit.cleanroom.protocol.audit_log import verify_log
from tacit.cleanroom.protocol.signatures import private_key
from tacit.cleanroom.protocol.terms import Terms
from tacit.cleanroom.protocol.tokens import token_key
from tacit.cleanroom.room import quotas
from tacit.cleanroom.room.active_terms import JoinShare
from tacit.cleanroom.room.labels import LabelTable, read_labels
from tacit.cleanroom.room.party import Room
from tacit.cleanroom.room.payment import release_name
from tacit.cleanroom.room.quotas import RunQuota
from tacit.cleanroom.room.store import AuditLog
from tacit.config import blame_key
from tacit.entropy import Entropy
from tacit.errors import BadInput, TacitError
from tacit.files import hold_lock
from tacit.privacy.ledger.chain import START, ChainHead
from tacit.services.log import configure_logging
from tacit.services.room.agreement_file import read_agreement
from tacit.services.room.service import LOG, SERVER_OPTIONS, RoomParty, RoomService
from tacit.services.room.settings import RoomPace, RoomSettings, TlsIdentity
from tacit.store.ledger import LedgerStore
from tacit.store.room import SqlRoomStore

ENTRIES_PER_PORTION = 1000


def verify_stored_log(store: SqlRoomStore) -> ChainHead:
    """The head of the store's audit log, checked from its beginning in portions; raises AuditBroken."""
    head = START
    while portion := store.entries(head.sequence, ENTRIES_PER_PORTION):
        head = verify_log(portion, after=head)
    return head


def held_runs(settings: RoomSettings) -> dict[str, RunQuota]:
    """The runs that began under the terms in force, by name."""
    release = release_name(read_agreement("agreement.file", settings.agreement).in_force)
    if not settings.store.exists():
        return {}
    with open_store(settings) as store, store.reading() as view:
        return quotas.run_quotas(view, release)


def hand_back_run(settings: RoomSettings, run: str, now: int) -> int:
    """Free what a run has set aside and not used, and write it to the audit log; the room may be running."""
    release = release_name(read_agreement("agreement.file", settings.agreement).in_force)
    unknown = BadInput(f"run: expected one that began here, got {run!r}")
    if not settings.store.exists():
        raise unknown
    with open_store(settings) as store, store.transaction() as transaction:
        if run not in quotas.run_quotas(transaction, release):
            raise unknown
        given = quotas.return_quota(transaction, release, run)
        told = {"run": run, "release": release, "releases": given}
        AuditLog(store, private_key(settings.signing)).write(transaction, "hand back", now, told)
    return given


def open_store(settings: RoomSettings) -> AbstractContextManager[SqlRoomStore]:
    """The room's store, closed at the end; the room may be running on it."""
    return closing(SqlRoomStore.open(settings.store, witness=settings.room_witness))


def clock() -> int:
    return int(time.time())


class JoinLog:
    """Says in the room's own log how many of a run's records its table has: at first, and at each doubling."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}

    def __call__(self, run: str, share: JoinShare) -> None:
        if share.asked < 2 * self._said.get(run, 0):
            return
        self._said[run] = share.asked
        line = "%s: %d of %d records asked about are in the table (%.1f%%)"
        said = (run, share.found, share.asked, 100 * share.share)
        if share.found:
            LOG.info(line, *said)
        else:
            LOG.warning(f"{line}: do both parties name records by the same ids and the same token key?", *said)


def open_room(settings: RoomSettings) -> Room:
    """The room of these settings: its labels read, its stores opened, its agreement taken up."""
    agreement = read_agreement("agreement.file", settings.agreement)
    with blame_key("agreement.file"):
        terms = agreement.in_force
    if settings.identity.name != terms.room:
        raise BadInput(
            f"tls.certificate: expected that of the agreement's room, {terms.room}, got that of "
            f"{settings.identity.name}"
        )
    if (why := terms.why_closed(now := clock())) is not None:
        raise BadInput(f"agreement.file: expected an agreement that holds now, got one {why}")
    table = _read_labels(settings, terms)
    with blame_key("store.room"):
        store = SqlRoomStore.open(settings.store, witness=_make_witness_folder(settings.room_witness))
        verify_stored_log(store)  # nothing is added to a log that does not hold
    with blame_key("store.ledger"):
        ledger = LedgerStore.open(settings.ledger, witness=_make_witness_folder(settings.ledger_witness))
    with blame_key("agreement.file"):
        return Room(
            agreement,
            table,
            store=store,
            ledger=ledger,
            secret=settings.secret,
            signing_key=private_key(settings.signing),
            entropy=Entropy(),
            now=now,
            watch_joined=JoinLog(),
        )


def _read_labels(settings: RoomSettings, terms: Terms) -> LabelTable:
    key = token_key(settings.token_secret, terms.name)
    try:
        return read_labels(settings.labels, settings.id_column, terms.tasks, key)
    except TacitError as trouble:  # it names the column, which for ids is a setting, too
        is_about_ids = re.search(rf"column {re.escape(settings.id_column)}( in |:)", str(trouble))
        raise BadInput(f"labels.{'id' if is_about_ids else 'file'}: {trouble}") from None


def _make_witness_folder(witness: Path | None) -> Path | None:
    if witness is not None:
        witness.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return witness


def run_room(settings: RoomSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    configure_logging(LOG)
    address = f"{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}"
    with lock_store(settings.store):
        room = open_room(settings)

        def say(place: str) -> None:
            print(f"tacit room: {room.terms.room} listens on {place} for {room.terms.platform}", flush=True)

        asyncio.run(listen(room, settings.identity, address, pace=settings.pace, started=say))


async def listen(
    room: RoomParty, identity: TlsIdentity, address: str, *, pace: RoomPace, started: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; calls under way are answered first, within `finish_seconds`."""
    service = RoomService(room, clock=clock, pace=pace)
    server = grpc.aio.server(handlers=[service], options=SERVER_OPTIONS)
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


def lock_store(store: Path) -> AbstractContextManager[None]:
    """One process per store: the room holds what is released in memory while it decides."""
    taken = f"expected a store that nobody else serves, got {store}, which another room runs on"
    return hold_lock(Path(f"{store}.serving"), "store.room", taken, make_folder=True)
