"""Both services, in one process: strangers, wrong secrets, and somebody in between who changes or repeats."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgpack
import numpy as np
import pytest

from tacit.errors import GatherError
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.services import http_clients
from tacit.services.http_clients import HttpLink, LinkFailed
from tacit.services.rounds import AnnouncedRound
from tacit.services.signatures import Party
from tests.support.service_worlds import (
    CLOSES,
    OPERATOR,
    PROXY_URL,
    SERVER_URL,
    SKEW,
    World,
    a_world,
    an_answer,
    counts_of,
    fetch_result,
    reason,
    settle,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path) as made:
        yield made


@pytest.mark.parametrize("path", ["/jobs", "/agreements", "/shares", "/rounds"])
def test_strangers_are_refused_before_they_are_read(world: World, path: str) -> None:
    world.open()
    for url in (SERVER_URL, PROXY_URL) if path == "/rounds" else (SERVER_URL,):
        response = world.client.post(url + path, content=b"a guess")
        assert (response.status_code, response.json()["type"]) == (401, "tacit:unauthenticated")
        assert response.headers["connection"] == "close"
        assert "tacit-signature" not in response.headers


def test_wrong_secrets_open_nothing(world: World) -> None:
    with pytest.raises(LinkFailed, match="compare the secrets"):
        world.operator(secret=bytes(32)).open_round(AnnouncedRound(world.round))
    with pytest.raises(LinkFailed):
        HttpLink(world.calls(Party.PROXY, Party.SERVER, bytes(32))).job(b"")
    with pytest.raises(LinkFailed):  # the operator's secret is no proxy's
        HttpLink(world.calls(Party.PROXY, Party.SERVER, OPERATOR)).job(b"")
    assert world.server_store.rounds() == []
    assert reason(lambda: HttpLink(world.calls(Party.PROXY, Party.SERVER)).job(b"")) is MessageVerdict.MALFORMED


def test_a_request_that_was_changed_or_repeated_is_refused(world: World) -> None:
    link, seen = HttpLink(world.calls(Party.PROXY, Party.SERVER)), []

    def changing(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        return send(httpx.Request(request.method, request.url, headers=request.headers, content=b"changed"))

    def repeating(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        answer = send(request)
        seen.append(send(request).status_code)
        return answer

    world.network.meddle = changing
    assert reason(lambda: link.job(b"as it was")) is MessageVerdict.UNAUTHENTICATED
    world.network.meddle = repeating
    assert reason(lambda: link.job(b"as it was")) is MessageVerdict.MALFORMED
    assert seen == [401]
    world.network.meddle = lambda request, send: send(request)
    real, world.now = world.now, world.now
    calls = world.calls(Party.PROXY, Party.SERVER)
    calls._clock = lambda: real - 61
    with pytest.raises(LinkFailed):
        HttpLink(calls).job(b"stale")


def test_an_answer_that_was_changed_is_no_answer(world: World) -> None:
    """Above all "too few", which would end a round for good."""
    world.open()
    for number in range(10):
        world.device(number).report(world.round, counts_of(number))
    forged = json.dumps({"type": "tacit:too-few", "count": 0, "smallest": 5}).encode()
    tampered = []

    def tampering(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        answer = send(request)
        if request.url.host != "server.test" or request.method != "POST":
            return answer
        body = answer.read()
        tampered.append(request.url.path)
        match len(tampered) % 3:
            case 0:
                return an_answer(410, forged, answer.headers)
            case 1:
                return an_answer(answer.status_code, body[:-1] + bytes([body[-1] ^ 1]), answer.headers)
        return an_answer(202, body, answer.headers)

    world.network.meddle = tampering
    world.now = CLOSES + SKEW
    world.wait_until(lambda: len(tampered) >= 6)
    assert set(tampered) == {"/jobs"}  # nothing of it was believed: the first step is tried again and again
    assert world.proxy_store.waiting_count(world.round.digest) == 10
    world.network.meddle = lambda request, send: send(request)
    settle(world)
    np.testing.assert_array_equal(
        fetch_result(world.client, SERVER_URL, world.round.digest).values, sum(map(counts_of, range(10)))
    )


def test_what_is_no_devices_never_waits_nor_reaches_the_store(tmp_path: Path) -> None:
    """Uploads wait a long time here to be stored together: a stranger is answered at once all the same."""
    with a_world(tmp_path, commit_wait_ms=60_000) as world:
        world.open()
        touched: list[int] = []

        def touching(reports: Any) -> Any:
            touched.append(len(reports))

        world.proxy_store.add_reports = touching  # type: ignore[method-assign]
        body = world.device(1)._reporter.upload(world.round, counts_of(1))
        report = msgpack.unpackb(body)[3].hex()
        place = f"{PROXY_URL}/rounds/{world.round.digest.hex()}/reports/{report}"
        for forged in (body[:-1] + bytes([body[-1] ^ 1]), body[:80] + bytes([body[80] ^ 1]) + body[81:]):
            answer = world.client.put(place, content=forged)
            assert (answer.status_code, answer.json()["type"]) == (403, "tacit:forged")
        assert not touched


def test_uploads_that_wait_take_no_more_than_their_room(tmp_path: Path) -> None:
    """Bytes count, not uploads, and from when they arrive: what does not fit is told to come again."""
    with a_world(tmp_path, held_bytes_most=1_000) as world:
        world.open()
        bodies = [world.device(number)._reporter.upload(world.round, counts_of(number)) for number in range(6)]
        fit = 1_000 // len(bodies[0])
        assert 0 < fit < len(bodies)
        app, add, go_on = world._apps["proxy.test"], world.proxy_store.add_reports, threading.Event()

        def waiting(reports: Any) -> Any:
            assert go_on.wait(10)
            return add(reports)

        world.proxy_store.add_reports = waiting  # type: ignore[method-assign]

        async def put_all() -> tuple[set[asyncio.Task[httpx.Response]], list[httpx.Response]]:
            """Those that were sent away while the others wait, and then all."""
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PROXY_URL) as client:
                path = f"/rounds/{world.round.digest.hex()}/reports/"
                puts = [
                    asyncio.create_task(client.put(path + msgpack.unpackb(body)[3].hex(), content=body))
                    for body in bodies
                ]
                done: set[asyncio.Task[httpx.Response]] = set()
                while len(done) < len(bodies) - fit:
                    done, _ = await asyncio.wait(puts, return_when=asyncio.FIRST_COMPLETED)
                go_on.set()
                return done, await asyncio.gather(*puts)

        away, answers = world._loop.run(put_all())
        assert {each.result().status_code for each in away} == {503}
        assert sorted(each.status_code for each in answers) == [201] * fit + [503] * (len(bodies) - fit)
        busy = next(each for each in answers if each.status_code == 503)
        assert (busy.json()["type"], busy.headers["retry-after"]) == ("tacit:busy", "1")
        # All that was held is let go, also by those that were sent away: there is room again.
        for body in bodies:
            path = f"{PROXY_URL}/rounds/{world.round.digest.hex()}/reports/{msgpack.unpackb(body)[3].hex()}"
            assert world.client.put(path, content=body).status_code == 201
        assert world.proxy_store.waiting_count(world.round.digest) == len(bodies)


DEEP = b"[" * 100_000
BEYOND = [
    DEEP,
    b'{"type":"tacit:too-few","count":1e999,"smallest":1}',
    b'{"type":"tacit:wrong-time","now":1e999}',
]


@pytest.mark.parametrize("body", BEYOND, ids=["deep", "count", "now"])
def test_an_answer_beyond_all_measure_is_an_answer_like_any_other(body: bytes) -> None:
    assert http_clients._title(http_clients.HttpAnswer(502, {}, body)) == "status 502"
    assert http_clients._time_told(http_clients.HttpAnswer(401, {}, body)) is None
    assert isinstance(http_clients.error_from_problem(body), GatherError)


@pytest.mark.parametrize("body", [DEEP, b"[1]", b'[{"task": "t"}]', b"1"], ids=["deep", "other", "part", "one"])
def test_a_list_of_rounds_that_is_none_is_refused(
    world: World, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_clients.SignedClient, "get", lambda *_: body)
    with pytest.raises(GatherError, match="expected a list of rounds"):
        world.operator().digest_of("t", 0)
