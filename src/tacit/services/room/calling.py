"""The platform's link to a room behind a network: counts bytes, and asks again while the room restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import grpc

from tacit.cleanroom.wire.answers import Begun, Description, LabelsAnswer, StatisticAnswer, StepAnswer
from tacit.cleanroom.wire.audit_log import Entry, hash_of
from tacit.cleanroom.wire.framing import MOST_MESSAGE_BYTES
from tacit.cleanroom.wire.requests import BeginRequest, LabelsRequest, StatisticRequest, StepRequest
from tacit.errors import AuditBroken, RoomError
from tacit.records import FAULTS, parse_record
from tacit.services.room.files import Given
from tacit.services.room.pace import Patience
from tacit.services.room.serving import SERVICE, chunks
from tacit.services.room.settings import Identity
from tacit.services.room.statuses import TRY_AGAIN, error_of
from tacit.services.room.streaming import END

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 5.0
# A room that is not the one that was agreed with will not become it by waiting.
NEVER = ("certificate verify failed", "certificate_verify_failed", "hostname verification", "no match found")

Answer = TypeVar("Answer")


class RemoteRoom:
    """A `RoomLink` over gRPC. A call whose answer was lost is made again, which the room counts once."""

    def __init__(
        self,
        address: str,
        room: str,
        identity: Identity,
        *,
        patience: Patience | None = None,
        received: Callable[[Given], None] = lambda _: None,
        waiting: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._address, self._room = address, room
        self._patience, self._received, self._waiting = patience or Patience(), received, waiting
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

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> RemoteRoom:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> Description:
        return Description.from_bytes(b"".join(self._call("Describe", [])))

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        answer = StepAnswer.from_chunks(self._call("Step", slabs, first=request.to_bytes()), request)
        self._received(Given(answer.receipt, request.digest, hash_of(answer.sum)))
        return answer

    def statistic(self, request: StatisticRequest, slabs: Iterable[bytes]) -> StatisticAnswer:
        answer = StatisticAnswer.from_chunks(self._call("Statistic", slabs, first=request.to_bytes()), request)
        self._received(Given(answer.receipt, request.digest, hash_of(answer.sums)))
        return answer

    def labels(self, request: LabelsRequest, slabs: Iterable[bytes]) -> LabelsAnswer:
        answer = LabelsAnswer.from_chunks(self._call("Labels", slabs, first=request.to_bytes()), request)
        self._received(Given(answer.receipt, request.digest, hash_of(answer.labels)))
        return answer

    def begin(self, request: BeginRequest, slabs: Iterable[bytes]) -> Begun:
        return Begun.from_bytes(b"".join(self._call("Begin", slabs, first=request.to_bytes())))

    def exchange(self, points: bytes | None) -> bytes:
        return b"".join(self._call("Exchange", list(chunks(points or b""))))

    def audit(self, after: int) -> list[Entry]:
        asked = json.dumps({"after": after}).encode()
        answered = self._call("Audit", [asked])
        try:
            portions = [parse_record(each) for each in answered]
            return [Entry.from_json(record) for portion in portions for record in portion]
        except FAULTS:
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
                        f"tls.authority, got another: {_in_short(details)}"
                    ) from None
                if code not in TRY_AGAIN or not outgoing.can_come_again:
                    raise error_of(code, details) from None
                waited = time.monotonic() - began
                if waited + pause > self._patience.again_seconds:
                    raise RoomError(
                        f"expected a room that answers at {self._address}, got none for {waited:.0f} seconds: "
                        f"{_in_short(details)} ({_perhaps(details)})"
                    ) from None
                self._waiting(_in_short(details))
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
    return any(words in details.lower() for words in NEVER)


def _perhaps(details: str) -> str:
    """What to look at. A handshake that one side breaks off looks like any broken connection to the other."""
    if "connection refused" in details.lower():
        return "does it run?"
    return "does it run, and does it accept our tls.certificate: signed by its tls.authority, not expired?"


def _in_short(details: str) -> str:
    """What gRPC says, without the list of all that it tried."""
    return details.splitlines()[0].rpartition("last error: ")[2][:200] if details else "it does not say why"
