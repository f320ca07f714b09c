"""The platform's link to the room of its agreement, over gRPC: calls, retries, and checks of who answers.

It counts bytes, and calls again while the room restarts; the room counts a repeated call once. The room must
have the terms of the platform's own copy of the agreement and sign with their key, and its audit log must hold
every receipt that it gave.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from tacit.cleanroom.protocol.answers import (
    BeginAnswer,
    LabelsAnswer,
    RoomDescription,
    StatisticAnswer,
    StepAnswer,
)
from tacit.cleanroom.protocol.audit_log import AuditEntry, answer_hash, check_receipt, verify_log
from tacit.cleanroom.protocol.encoding import MOST_MESSAGE_BYTES
from tacit.cleanroom.protocol.requests import (
    BeginRequest,
    LabelsRequest,
    RoomLink,
    StatisticRequest,
    StepRequest,
)
from tacit.cleanroom.protocol.terms import Terms
from tacit.display import brief
from tacit.errors import AuditBroken, BadInput, RoomError
from tacit.expect import RECORD_FAULTS
from tacit.files import parse_json
from tacit.services.room.agreement_file import read_agreement
from tacit.services.room.receipts import KeptReceipt, ReceiptFile
from tacit.services.room.service import END, SERVICE, TRY_AGAIN, error_from_status, split_chunks
from tacit.services.room.settings import LinkPatience, PlatformSettings, TlsIdentity

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 5.0
# A room that is not the one that was agreed with will not become it by waiting.
FINAL_FAULTS = (
    "certificate verify failed",
    "certificate_verify_failed",
    "hostname verification",
    "no match found",
)


class RemoteRoom:
    """A `RoomLink` over gRPC. A call whose answer was lost is made again, which the room counts once."""

    def __init__(
        self,
        address: str,
        room: str,
        identity: TlsIdentity,
        *,
        patience: LinkPatience | None = None,
        received: Callable[[KeptReceipt], None] = lambda _: None,
        waiting: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._address, self._room = address, room
        self._patience, self._received, self._waiting = patience or LinkPatience(), received, waiting
        self.bytes_sent = self.bytes_received = self.tries = 0
        credentials = grpc.ssl_channel_credentials(
            identity.authority, identity.private_key, identity.certificate
        )
        self._channel = grpc.secure_channel(
            address,
            credentials,
            options=(
                ("grpc.ssl_target_name_override", room),  # the certificate must have the agreement's name
                ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
                ("grpc.keepalive_time_ms", 20_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2_000),
                ("grpc.enable_retries", 0),  # ours know what may be sent again
            ),
        )

    def __repr__(self) -> str:
        return brief(self, address=self._address, room=self._room)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> RemoteRoom:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> RoomDescription:
        return RoomDescription.from_bytes(b"".join(self._call("Describe", [])))

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        answer = StepAnswer.from_chunks(self._call("Step", slabs, first=request.to_bytes()), request)
        self._received(KeptReceipt(answer.receipt, request.digest, answer_hash(answer.sum)))
        return answer

    def statistic(self, request: StatisticRequest, slabs: Iterable[bytes]) -> StatisticAnswer:
        answer = StatisticAnswer.from_chunks(self._call("Statistic", slabs, first=request.to_bytes()), request)
        self._received(KeptReceipt(answer.receipt, request.digest, answer_hash(answer.sums)))
        return answer

    def labels(self, request: LabelsRequest, slabs: Iterable[bytes]) -> LabelsAnswer:
        answer = LabelsAnswer.from_chunks(self._call("Labels", slabs, first=request.to_bytes()), request)
        self._received(KeptReceipt(answer.receipt, request.digest, answer_hash(answer.labels)))
        return answer

    def begin(self, request: BeginRequest, slabs: Iterable[bytes]) -> BeginAnswer:
        return BeginAnswer.from_bytes(b"".join(self._call("Begin", slabs, first=request.to_bytes())))

    def exchange(self, points: bytes | None) -> bytes:
        return b"".join(self._call("Exchange", list(split_chunks(points or b""))))

    def audit(self, after: int) -> list[AuditEntry]:
        asked = json.dumps({"after": after}).encode()
        answered = self._call("Audit", [asked])
        try:
            portions = [parse_json(each) for each in answered]
            return [AuditEntry.from_json(record) for portion in portions for record in portion]
        except RECORD_FAULTS:
            raise AuditBroken("expected entries of an audit log, got something else") from None

    def _call(self, method: str, messages: Iterable[bytes], *, first: bytes | None = None) -> list[bytes]:
        """All messages of the answer; the call is made again while the room cannot be reached."""
        began, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            outgoing = _Outgoing(first, messages)
            self.tries += 1
            try:
                return self._once(method, outgoing)
            except grpc.RpcError as trouble:
                if outgoing.trouble is not None:  # it was ours: the messages could not be made
                    raise outgoing.trouble from None
                code, details = trouble.code(), trouble.details() or ""
                if code in TRY_AGAIN and _is_final(details):
                    raise RoomError(
                        f"expected the certificate of {self._room} at {self._address}, signed by "
                        f"tls.authority, got another: {_shorten(details)}"
                    ) from None
                if code not in TRY_AGAIN or not outgoing.can_come_again:
                    raise error_from_status(code, details) from None
                waited = time.monotonic() - began
                if waited + pause > self._patience.again_seconds:
                    raise RoomError(
                        f"expected a room that answers at {self._address}, got none for {waited:.0f} seconds: "
                        f"{_shorten(details)} ({_hint(details)})"
                    ) from None
                self._waiting(_shorten(details))
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _once(self, method: str, outgoing: _Outgoing) -> list[bytes]:
        made = self._channel.stream_stream(f"/{SERVICE}/{method}")
        answer = list(made(iter(outgoing), timeout=self._patience.call_seconds))
        self.bytes_sent += outgoing.bytes
        self.bytes_received += sum(map(len, answer))
        return answer


class _Outgoing:
    """Messages on their way: counts them, and keeps what went wrong in making them."""

    def __init__(self, first: bytes | None, messages: Iterable[bytes]) -> None:
        self._first, self._messages = first, messages
        self.bytes, self.trouble = 0, None  # type: int, BaseException | None
        self.can_come_again = iter(messages) is not messages

    def __iter__(self) -> Iterator[bytes]:
        try:
            if self._first is not None:
                self.bytes += len(self._first)
                yield self._first
            for message in self._messages:
                self.bytes += len(message)
                yield message
            yield END
        except GeneratorExit:
            raise
        except BaseException as trouble:
            self.trouble = trouble
            raise


def _is_final(details: str) -> bool:
    return any(words in details.lower() for words in FINAL_FAULTS)


def _hint(details: str) -> str:
    """What to look at. A handshake that one side breaks off looks like any broken connection to the other."""
    if "connection refused" in details.lower():
        return "does it run?"
    return "does it run, and does it accept our tls.certificate: signed by its tls.authority, not expired?"


def _shorten(details: str) -> str:
    """What gRPC says, without the list of all that it tried."""
    return details.splitlines()[0].rpartition("last error: ")[2][:200] if details else "it does not say why"


def terms_in_force(settings: PlatformSettings) -> Terms:
    """The terms in force in the platform's own copy of the agreement."""
    terms = read_agreement("agreement.file", settings.agreement).in_force
    if settings.identity.name != terms.platform:
        raise BadInput(
            f"tls.certificate: expected that of the agreement's platform, {terms.platform}, got that of "
            f"{settings.identity.name}"
        )
    return terms


def open_receipts(settings: PlatformSettings) -> ReceiptFile:
    steps = read_agreement("agreement.file", settings.agreement).settled_steps
    return ReceiptFile(settings.folder / "receipts.jsonl", [step.terms.room_key for step in steps])


def open_link(
    settings: PlatformSettings,
    terms: Terms,
    waiting: Callable[[str], None] = lambda _: None,
    *,
    patience: LinkPatience | None = None,
) -> RemoteRoom:
    """The room of the agreement; every receipt that it gives is kept. `waiting` hears where it is, and why."""
    return RemoteRoom(
        settings.address,
        terms.room,
        settings.identity,
        patience=patience or settings.patience,
        received=open_receipts(settings).keep,
        waiting=lambda why: waiting(f"waiting for the room at {settings.address}: {why}"),
    )


def check_description(link: RemoteRoom, terms: Terms) -> RoomDescription:
    """What the room says of itself; refuses one with other terms than ours, or that signs with another key."""
    found = link.describe()
    if found.terms.digest != terms.digest:
        raise RoomError(
            "expected a room with the terms of our copy of the agreement, got other terms: exchange the file"
        )
    check_receipt(found.head, terms.room_key)
    return found


def check_audit_log(link: RoomLink, settings: PlatformSettings) -> dict[str, Any]:
    """Read the room's whole log and check it against every receipt; raises AuditBroken."""
    receipts = open_receipts(settings).read()
    entries, after = [], 0
    while portion := link.audit(after):
        entries += portion
        after = portion[-1].sequence
    head = verify_log(entries, heads=[each.receipt for each in receipts])
    by_sequence = {entry.sequence: entry for entry in entries}
    for each in receipts:
        each.check(by_sequence.get(each.receipt.sequence))
    return {"entries": head.sequence, "receipts": len(receipts), "holds": True}
