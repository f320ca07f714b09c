"""Both services, in one process: what devices, the parties and strangers are answered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgpack
import numpy as np
import pytest

from tacit.errors import BadInput, NotYet, Refused, TooFew
from tacit.gather.protocol.credentials import SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.rounds import Question
from tacit.gather.protocol.uploads import upload_size
from tacit.gather.proxy.store import ProxyPhase
from tacit.privacy.budget import Budget
from tacit.services.http_clients import LinkFailed
from tacit.services.rounds import AnnouncedRound
from tests.support.service_worlds import (
    CLOSES,
    OPENS,
    PROXY_URL,
    SERVER_URL,
    SKEW,
    World,
    a_world,
    an_answer,
    an_upload,
    counts_of,
    fetch_result,
    put,
    reason,
    settle,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path) as made:
        yield made


def result_url(world: World) -> str:
    return f"{SERVER_URL}/rounds/{world.round.digest.hex()}/result"


def test_a_round_from_its_opening_to_its_result(world: World) -> None:
    world.open()
    devices = [world.device(number) for number in range(30)]
    for number, device in enumerate(devices):
        [announced] = device.rounds()
        device.report(announced.round, counts_of(number))
    with pytest.raises(NotYet):
        fetch_result(world.client, SERVER_URL, world.round.digest)
    settle(world)
    result = fetch_result(world.client, SERVER_URL, world.round.digest)
    assert result.count == 30
    np.testing.assert_array_equal(result.values, sum(map(counts_of, range(30))))
    assert result.to_bytes() == fetch_result(world.client, SERVER_URL, world.round.digest).to_bytes()
    told = world.client.get(result_url(world)).json()
    assert (told["values"], told["count"]) == (result.values.tolist(), 30)
    status = world.client.get(f"{PROXY_URL}/rounds/{world.round.digest.hex()}/status")
    assert status.json() == {"phase": "released"}
    assert devices[0].rounds() == []
    for ledger in (world.proxy_ledger, world.server_ledger):
        account = ledger.now.accounts[world.round.line]
        assert (str(account.spent), str(account.reserved)) == (str(world.round.cost), str(Budget.NOTHING))
    well = {"status": "ok", "store": "ok", "ledger": "ok", "link": "ok"}
    for url in (PROXY_URL, SERVER_URL):
        assert world.client.get(f"{url}/healthz").json() == well


def test_not_yet_and_too_few_are_different_answers(world: World) -> None:
    world.open()
    for number in range(world.round.smallest_batch - 1):
        world.device(number).report(world.round, counts_of(number))
    early = world.client.get(result_url(world))
    assert (early.status_code, early.json()["type"]) == (409, "tacit:not-yet")
    settle(world)
    world.wait_until(lambda: world.client.get(result_url(world)).status_code != 409)
    late = world.client.get(result_url(world))
    assert (late.status_code, late.json()["type"]) == (410, "tacit:too-few")
    with pytest.raises(TooFew) as caught:
        fetch_result(world.client, SERVER_URL, world.round.digest)
    assert (caught.value.count, caught.value.smallest) == (4, 5)


def test_the_server_hears_of_too_few_even_if_it_was_away(world: World) -> None:
    world.open()
    world.stop("server.test")
    world.now = CLOSES + SKEW
    world.wait_until(lambda: world.proxy_store.rounds()[0].phase is ProxyPhase.CLOSED)
    world.start_server()
    settle(world)
    assert world.client.get(result_url(world)).status_code == 410


def test_uploads_that_arrive_together_are_stored_together(tmp_path: Path) -> None:
    with a_world(tmp_path, commit_wait_ms=100) as world:
        world.open()
        sizes: list[int] = []
        add = world.proxy_store.add_reports

        def counted(reports: Any) -> Any:
            sizes.append(len(reports))
            return add(reports)

        world.proxy_store.add_reports = counted  # type: ignore[method-assign]
        uploads = [an_upload(world, number) for number in range(40)]
        app = world._apps["proxy.test"]

        async def put_all() -> list[int]:
            import asyncio

            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PROXY_URL) as client:
                path = f"/rounds/{world.round.digest.hex()}/reports/"
                found = await asyncio.gather(*(client.put(path + name, content=body) for body, name in uploads))
            return [each.status_code for each in found]

        assert world._loop.run(put_all()) == [201] * 40
        assert sum(sizes) == 40
        assert len(sizes) <= 3


def test_a_retry_is_the_same_report(world: World) -> None:
    world.open()
    body, report = an_upload(world, 1)
    assert [put(world, body, report=report).status_code for _ in range(3)] == [201, 201, 201]
    assert world.proxy_store.waiting_count(world.round.digest) == 1


def test_what_devices_are_refused_and_how(world: World) -> None:
    world.open()
    body, report = an_upload(world, 1)
    longer = upload_size(world.round) + 1
    cases = [
        (put(world, body + b"\0", report=report), 413, "oversized"),
        (put(world, bytes(longer)), 413, "oversized"),
        (put(world, body[:-1], report=report), 400, "malformed"),
        (put(world, body), 400, "malformed"),  # another report's path
        (put(world, body, digest="00" * 32, report=report), 404, "unknown-round"),
        (put(world, body, digest="no", report=report), 404, "unknown-round"),
        (put(world, body[:-1] + bytes([body[-1] ^ 1]), report=report), 403, "forged"),
    ]
    for response, status, kind in cases:
        told = response.json()
        assert (response.status_code, told["type"], told["status"]) == (status, f"tacit:{kind}", status)
        assert response.headers["content-type"] == "application/problem+json"
    assert world.proxy_store.waiting_count(world.round.digest) == 0
    world.device(1).report(world.round, counts_of(1))
    assert reason(lambda: world.device(1).report(world.round, counts_of(2))) is MessageVerdict.DUPLICATE
    world.now = OPENS - SKEW - 1
    assert reason(lambda: world.device(2).report(world.round, counts_of(2))) is MessageVerdict.TOO_EARLY
    world.now = CLOSES + SKEW
    assert reason(lambda: world.device(2).report(world.round, counts_of(2))) is MessageVerdict.TOO_LATE
    assert world.client.get(f"{PROXY_URL}/nowhere").json()["status"] == 404
    assert world.client.delete(f"{PROXY_URL}/rounds").status_code == 405


def test_a_question_travels_with_its_round(world: World) -> None:
    question = Question((1,), np.array([3, 5]), np.array([0, 1, 2]), np.array([7, 7]))
    asking = world.a_round(task="another", question=question.digest, cells=question.cells)
    world.open(AnnouncedRound(asking, question.to_bytes()))
    [announced] = world.device(1).rounds()
    assert (announced.round, announced.question) == (asking, question.to_bytes())
    one = world.client.get(f"{PROXY_URL}/rounds/{asking.digest.hex()}").content
    assert AnnouncedRound.from_bytes(one) == announced
    other = Question((1,), np.array([3, 6]), np.array([0, 1, 2]), np.array([7, 7]))
    with pytest.raises(Refused):
        AnnouncedRound(asking, other.to_bytes())
    with pytest.raises(Refused):
        AnnouncedRound(world.round, question.to_bytes())
    world.start_proxy()
    assert world.device(1).rounds() == [announced]


def test_a_device_seals_to_nobody_it_does_not_know(world: World) -> None:
    world.open()
    eavesdropper = world.a_round(level=1, server_key=SealingKey.generate().public)
    device = world.device(1)
    both = msgpack.packb([AnnouncedRound(eavesdropper).parts, AnnouncedRound(world.round).parts])
    world.network.meddle = lambda _request, _send: an_answer(200, both)
    assert [each.round for each in device.rounds()] == [world.round]
    with pytest.raises(BadInput, match="sealed to the parties"):
        device.report(eavesdropper, counts_of(1))


def test_a_device_asks_again_with_the_very_same_bytes(world: World) -> None:
    world.open()
    sent: list[bytes] = []
    pauses: list[float] = []

    def losing(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        if request.method != "PUT":
            return send(request)
        sent.append(request.content)
        match len(sent):
            case 1:
                raise httpx.ConnectTimeout("lost on its way", request=request)
            case 2:
                return an_answer(503, b"busy")
            case 3:
                send(request)
                raise httpx.ReadTimeout("the answer was lost", request=request)
        return send(request)

    world.network.meddle = losing
    world.device(1, sleep=pauses.append).report(world.round, counts_of(1))
    assert len(sent) == 4
    assert len(set(sent)) == 1
    assert world.proxy_store.waiting_count(world.round.digest) == 1
    assert all(0.5 * bound <= pause <= bound for pause, bound in zip(pauses, (0.25, 0.5, 1), strict=True))

    def dead(request: httpx.Request, _send: object) -> httpx.Response:
        raise httpx.ConnectError("nobody there", request=request)

    world.network.meddle = dead
    with pytest.raises(LinkFailed):
        world.device(2, attempts=3).report(world.round, counts_of(2))


def test_requests_or_only_answers_are_lost_and_either_party_starts_again(world: World) -> None:
    """Every third message between the parties is lost, half of them after it was acted on."""
    count = 0

    def losing(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        nonlocal count
        if request.url.host != "server.test" or request.method != "POST":
            return send(request)
        count += 1
        if count % 3 == 1:
            if count % 2:
                send(request)
            raise httpx.ReadTimeout("lost", request=request)
        return send(request)

    world.open()
    world.network.meddle = losing
    for number in range(20):
        world.device(number).report(world.round, counts_of(number))
        if number % 7 == 6:
            world.start_proxy()
            world.start_server()
    settle(world)
    result = fetch_result(world.client, SERVER_URL, world.round.digest)
    np.testing.assert_array_equal(result.values, sum(map(counts_of, range(20))))


def test_opening_a_round_needs_both_parties_and_can_be_asked_again(world: World) -> None:
    world.stop("proxy.test")
    with pytest.raises(LinkFailed, match="the proxy does not answer it"):
        world.open()
    world.start_proxy()
    world.open()
    world.open()
    assert [each.round for each in world.device(1).rounds()] == [world.round]
    other = AnnouncedRound(world.a_round(smallest_batch=6))
    assert reason(lambda: world.open(other)) is MessageVerdict.CONFLICT


def test_logs_and_answers_hold_nothing_private(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Marked: device names, report ids, addresses. What nobody foresaw is told by its kind and place only."""
    world.open()
    marks = [number.to_bytes(16, "little").hex() for number in range(8)] + ["127.0.0.1", "secret-in-a-message"]
    with caplog.at_level(logging.DEBUG):
        for number in range(6):
            body, report = an_upload(world, number)
            marks.append(report)
            assert put(world, body, report=report).status_code == 201
            put(world, body[:-1], report=report)
            put(world, body[:-1] + bytes([body[-1] ^ 1]), report=report)
        take = world.proxy_store.add_reports

        def failing(_reports: Any) -> Any:
            raise RuntimeError("secret-in-a-message")

        world.proxy_store.add_reports = failing  # type: ignore[assignment, method-assign]
        body, report = an_upload(world, 7)
        failed = put(world, body, report=report)
        world.proxy_store.add_reports = take  # type: ignore[method-assign]
        settle(world)
    assert (failed.status_code, failed.json()["type"]) == (500, "tacit:internal")
    ours = "\n".join(
        f"{each.getMessage()} {each.exc_text or ''}"
        for each in caplog.records
        if not each.name.startswith(("httpx", "httpcore", "asyncio"))
    )
    assert "unexpected RuntimeError at" in ours
    assert not [mark for mark in [*marks, failed.text] if mark in ours]
    assert not [mark for mark in marks if mark in failed.text]


def test_a_proxy_with_many_waiting_reports_does_not_wait_for_the_end(tmp_path: Path) -> None:
    with a_world(tmp_path, job_reports=4) as world:
        world.open()
        for number in range(9):
            world.device(number).report(world.round, counts_of(number))
        world.wait_until(lambda: world.server_store.accepted_count(world.round.digest) >= 6)
        assert world.now < CLOSES
