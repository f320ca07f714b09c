"""Both services, in one process: strangers, wrong secrets, and somebody in between who changes or repeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from service_worlds import (
    CLOSES,
    OPERATOR,
    PROXY_URL,
    SERVER_URL,
    SKEW,
    World,
    a_world,
    an_answer,
    counts_of,
    reason,
    settle,
)
from tacit.gather.wire.refusals import Refusal
from tacit.services.announcing import Announced
from tacit.services.linking import HttpLink, LinkFailed, result_of
from tacit.services.signing import Party


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
        world.operator(secret=bytes(32)).open_round(Announced(world.round))
    with pytest.raises(LinkFailed):
        HttpLink(world.calls(Party.PROXY, Party.SERVER, bytes(32))).job(b"")
    with pytest.raises(LinkFailed):  # the operator's secret is no proxy's
        HttpLink(world.calls(Party.PROXY, Party.SERVER, OPERATOR)).job(b"")
    assert world.server_store.rounds() == []
    assert reason(lambda: HttpLink(world.calls(Party.PROXY, Party.SERVER)).job(b"")) is Refusal.MALFORMED


def test_a_request_that_was_changed_or_repeated_is_refused(world: World) -> None:
    link, seen = HttpLink(world.calls(Party.PROXY, Party.SERVER)), []

    def changing(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        return send(httpx.Request(request.method, request.url, headers=request.headers, content=b"changed"))

    def repeating(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        answer = send(request)
        seen.append(send(request).status_code)
        return answer

    world.network.meddle = changing
    assert reason(lambda: link.job(b"as it was")) is Refusal.UNAUTHENTICATED
    world.network.meddle = repeating
    assert reason(lambda: link.job(b"as it was")) is Refusal.MALFORMED
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
    assert world.proxy_store.waiting(world.round.digest) == 10
    world.network.meddle = lambda request, send: send(request)
    settle(world)
    np.testing.assert_array_equal(
        result_of(world.client, SERVER_URL, world.round.digest).values, sum(map(counts_of, range(10)))
    )
