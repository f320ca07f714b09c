"""Strangers, liars and the slow: each is refused in clear words, and the room goes on serving."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from threading import Event

import grpc
import pytest

from tacit.cleanroom.protocol.encoding import MOST_MESSAGE_BYTES, RoomRefusal
from tacit.errors import RoomError, RoomRefused
from tacit.services.room.keys import CertificateAuthority
from tacit.services.room.settings import RoomPace, TlsIdentity
from tests.support.room_fakes import TERMS, Echo, a_request
from tests.support.room_network import NOW, SOON, channel, identities, listening, remote, without_certificate

PACE = RoomPace(streams_most=4, steps_most=2, stall_seconds=1, call_seconds=2)
STEP = "/tacit.Room/Step"


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority("trial", now=NOW)


@pytest.fixture(scope="module")
def parties(authority: CertificateAuthority) -> dict[str, TlsIdentity]:
    return identities(authority)


@pytest.fixture(scope="module")
def room() -> Echo:
    return Echo()


@pytest.fixture(scope="module")
def address(room: Echo, parties: dict[str, TlsIdentity]) -> Iterator[str]:
    with listening(room, parties["room"], pace=PACE) as place:
        yield place


@pytest.fixture(autouse=True)
def _goes_on_serving(parties: dict[str, TlsIdentity], address: str) -> Iterator[None]:
    yield
    with remote(address, parties["platform"]) as link:
        assert link.step(a_request(), [b"abc"]).sum[1] == 3


def status(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as trouble:
        call()
    return trouble.value.code(), trouble.value.details() or ""


def test_a_certificate_of_a_foreign_authority(
    parties: dict[str, TlsIdentity], room: Echo, address: str
) -> None:
    stranger = identities(CertificateAuthority("other", now=NOW))["platform"]
    before = room.calls
    shown = replace(stranger, authority=parties["platform"].authority)
    with remote(address, shown) as link, pytest.raises(RoomError, match="expected a room that answers"):
        link.describe()
    assert room.calls == before


def test_no_certificate_at_all(parties: dict[str, TlsIdentity], room: Echo, address: str) -> None:
    before = room.calls
    with channel(address, without_certificate(parties["platform"])) as made:
        code, _ = status(lambda: list(made.stream_stream(STEP)(iter([b"{}"]), timeout=3)))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert room.calls == before


@pytest.mark.parametrize("name", ["platform2", "other.example"])
def test_the_right_authority_and_another_name(authority: CertificateAuthority, address: str, name: str) -> None:
    other = identities(authority, platform=name)["platform"]
    with remote(address, other) as link, pytest.raises(RoomRefused) as refused:
        link.step(a_request(), [b"x"])
    assert refused.value.reason is RoomRefusal.FOREIGN


def test_the_rooms_own_certificate_is_no_clients(
    parties: dict[str, TlsIdentity], room: Echo, address: str
) -> None:
    """It is good for a server only: whoever takes it cannot call with it."""
    before = room.calls
    with channel(address, parties["room"]) as made:
        code, _ = status(lambda: list(made.stream_stream(STEP)(iter([b"{}"]), timeout=3)))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert room.calls == before


def test_a_platform_does_not_talk_to_another_room(
    authority: CertificateAuthority, parties: dict[str, TlsIdentity]
) -> None:
    """The right authority, and a room of another name: nothing is sent to it, and nobody waits for it."""
    for impostor in (
        identities(authority, room="other-room")["room"],
        identities(CertificateAuthority("other", now=NOW))["room"],
        parties["platform"],  # a client's certificate is no server's
    ):
        taken = Echo()
        shown = replace(impostor, authority=parties["room"].authority)
        with listening(taken, shown) as place, remote(place, parties["platform"]) as link:
            began = time.monotonic()
            with pytest.raises(RoomError):
                link.step(a_request(), [b"secret" * 1000])
            assert time.monotonic() - began < SOON.again_seconds + 2
        assert taken.calls == 0


def test_an_expired_certificate() -> None:
    both, room = identities(CertificateAuthority("trial", now=NOW - 40 * 86_400, days=30)), Echo()
    with listening(room, both["room"]) as place, remote(place, both["platform"]) as link:
        with pytest.raises(RoomError):
            link.describe()
        assert room.calls == 0


def test_an_oversized_message(parties: dict[str, TlsIdentity], address: str) -> None:
    with channel(address, parties["platform"]) as made:
        stream = [a_request().to_bytes(), bytes(MOST_MESSAGE_BYTES + 1)]
        code, said = status(lambda: list(made.stream_stream(STEP)(iter(stream), timeout=5)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in said.lower()


def test_an_oversized_message_is_refused_before_it_is_sent(
    parties: dict[str, TlsIdentity], address: str
) -> None:
    with remote(address, parties["platform"]) as link, pytest.raises(RoomRefused) as refused:
        link.step(a_request(), [bytes(MOST_MESSAGE_BYTES + 1)])
    assert refused.value.reason is RoomRefusal.OVERSIZED


@pytest.mark.parametrize(
    "stream",
    [
        [],
        [b""],
        [b"{}"],
        [b"\x00\xff" * 500],
        [b"[" * 100_000],
        [b'{"after":1}'],
        [a_request().to_bytes()[:-1]],
        [a_request().to_bytes() + b" "],
        [a_request().to_bytes().replace(b'"step"', b'"labels"')],
    ],
    ids=range(9),
)
@pytest.mark.parametrize("method", ["Step", "Statistic", "Labels", "Begin"])
def test_garbage_for_a_request(
    parties: dict[str, TlsIdentity], address: str, method: str, stream: list[bytes]
) -> None:
    with channel(address, parties["platform"]) as made:
        call = made.stream_stream(f"/tacit.Room/{method}")
        code, said = status(lambda: list(call(iter(stream), timeout=5)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert RoomRefusal.MALFORMED in said


@pytest.mark.parametrize(
    "stream",
    [
        [], [b""], [b"[]"], [b'{"after":true}'], [b'{"after":"1"}'], [b'{"after":-1}'],
        [b'{"after":9223372036854775808}'], [b"1" * 9999],
    ],
)  # fmt: skip
def test_garbage_for_the_audit(parties: dict[str, TlsIdentity], address: str, stream: list[bytes]) -> None:
    with channel(address, parties["platform"]) as made:
        code, said = status(lambda: list(made.stream_stream("/tacit.Room/Audit")(iter(stream), timeout=5)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert RoomRefusal.MALFORMED in said


def test_an_unknown_method(parties: dict[str, TlsIdentity], address: str) -> None:
    with channel(address, parties["platform"]) as made:
        for method in ("/tacit.Room/Dump", "/tacit.Room/", "/other.Service/Step"):
            code, _ = status(lambda method=method: list(made.stream_stream(method)(iter([b""]), timeout=5)))  # type: ignore[misc]
            assert code is grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_tls_and_no_http2(parties: dict[str, TlsIdentity], address: str) -> None:
    host, port = address.split(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"\x16\x03\x01\xff\xff" + bytes(5000)):
        with socket.create_connection((host, int(port)), timeout=5) as stranger, suppress(OSError):
            stranger.sendall(garbage)
            assert stranger.recv(10) is not None
    context = ssl.create_default_context(cadata=parties["platform"].authority.decode())
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), timeout=5) as plain,
        suppress(OSError),
        context.wrap_socket(plain) as stranger,  # in TLS 1.3 a client learns only later that it is refused
    ):
        stranger.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(1000))
        assert not stranger.recv(10)


def test_a_stream_that_stands_still(parties: dict[str, TlsIdentity], room: Echo, address: str) -> None:
    finished, ended = room.finished, Event()

    def stalling() -> Iterator[bytes]:
        yield a_request().to_bytes()
        yield b"some"
        ended.wait(10)

    with channel(address, parties["platform"]) as made:
        began = time.monotonic()
        code, said = status(lambda: list(made.stream_stream(STEP)(stalling(), timeout=8)))
        ended.set()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "stood still" in said
    assert time.monotonic() - began < PACE.stall_seconds + 2
    assert room.finished == finished


def test_a_stream_that_drips_for_ever(parties: dict[str, TlsIdentity], room: Echo, address: str) -> None:
    """Each message comes in time; the call as a whole does not."""
    finished, ended = room.finished, Event()

    def dripping() -> Iterator[bytes]:
        yield a_request().to_bytes()
        while not ended.wait(0.3):
            yield b"x"

    with channel(address, parties["platform"]) as made:
        began = time.monotonic()
        code, _ = status(lambda: list(made.stream_stream(STEP)(dripping(), timeout=9)))
        ended.set()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < PACE.call_seconds + 2
    assert room.finished == finished


@pytest.mark.parametrize("slabs", [[], [b"some"], [b"some"] * 30])
def test_a_stream_that_is_cut_off(
    parties: dict[str, TlsIdentity], room: Echo, address: str, slabs: list[bytes]
) -> None:
    """It ends in good order as far as gRPC knows, without the mark of its end."""
    finished = room.finished
    with channel(address, parties["platform"]) as made:
        stream = [a_request().to_bytes(), *slabs]
        code, said = status(lambda: list(made.stream_stream(STEP)(iter(stream), timeout=5)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "cut off" in said
    assert room.finished == finished


def test_a_caller_who_goes_in_the_middle(parties: dict[str, TlsIdentity], room: Echo, address: str) -> None:
    """Nothing is decided for who has gone: an end that never came is not taken for the end of the stream."""
    finished, sent, ended = room.finished, Event(), Event()

    def going() -> Iterator[bytes]:
        yield a_request().to_bytes()
        yield b"some"
        sent.set()
        ended.wait(10)

    for _ in range(4):
        with channel(address, parties["platform"]) as made:
            call = made.stream_stream(STEP)(going(), timeout=8)
            assert sent.wait(5)
            call.cancel()
        sent.clear()
    ended.set()
    time.sleep(0.2)
    assert room.finished == finished


def test_fifty_streams_at_once(parties: dict[str, TlsIdentity], address: str) -> None:
    """Four are open, the others are told to come again; the four that stall are ended, and places are free."""
    ended = Event()

    def stalling() -> Iterator[bytes]:
        yield a_request().to_bytes()
        ended.wait(10)

    with channel(address, parties["platform"]) as made:
        calls = [made.stream_stream(STEP)(stalling(), timeout=9) for _ in range(50)]
        seen = [status(lambda call=call: list(call)) for call in calls]  # type: ignore[misc]
        ended.set()
    busy = [said for code, said in seen if code is grpc.StatusCode.UNAVAILABLE]
    stalled = [said for code, said in seen if code is grpc.StatusCode.DEADLINE_EXCEEDED]
    assert len(busy) + len(stalled) == 50
    assert len(stalled) == PACE.streams_most
    assert all("come again" in said for said in busy)


def test_whoever_is_told_to_come_again_does(parties: dict[str, TlsIdentity], address: str) -> None:
    ended = Event()

    def stalling() -> Iterator[bytes]:
        yield a_request().to_bytes()
        ended.wait(10)

    with channel(address, parties["platform"]) as made:
        held = [made.stream_stream(STEP)(stalling(), timeout=9) for _ in range(PACE.streams_most)]
        time.sleep(0.2)
        patience = replace(SOON, again_seconds=8)
        with remote(address, parties["platform"], patience=patience) as link:
            assert link.step(a_request(), [b"abc"]).sum[1] == 3
            assert link.describe().terms == TERMS
            assert link.tries > 2
        ended.set()
        assert len(held) == PACE.streams_most  # a call that nobody holds is given up
