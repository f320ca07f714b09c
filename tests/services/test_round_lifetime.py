"""Both services, in one process: what is paid before a round opens, told after it closed, and kept how long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgpack
import pytest

from tacit.entropy import Simulation
from tacit.errors import BadInput, NotYet
from tacit.gather.proxy.store import ProxyPhase
from tacit.privacy.budget import Budget
from tacit.services.http_clients import HttpUploads, LinkFailed, PublicKeys
from tacit.services.problems import NotGranted
from tacit.services.rounds import AnnouncedRound
from tests.support.service_worlds import (
    CLOSES,
    GRANTED,
    KEEP_DAYS,
    PROMISE,
    SERVER_URL,
    SKEW,
    World,
    a_world,
    an_answer,
    an_upload,
    counts_of,
    fetch_result,
    put,
    settle,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path) as made:
        yield made


@pytest.mark.parametrize("poor", ["proxy", "server"])
def test_a_round_that_cannot_be_paid_for_is_not_opened(world: World, poor: str) -> None:
    unpaid = world.a_round(scope="unpaid")
    ledgers = {"proxy": world.proxy_ledger, "server": world.server_ledger}
    for name, ledger in ledgers.items():
        if name != poor:
            ledger.grant(unpaid.line, GRANTED)
    with pytest.raises(NotGranted) as caught:
        world.open(AnnouncedRound(unpaid))
    whole_run = f"{int(PROMISE.epsilon)}", "0"
    assert (caught.value.party, caught.value.epsilon, caught.value.delta) == (poor, *whole_run)
    assert world.device(1).rounds() == []
    ledgers[poor].grant(unpaid.line, Budget.of(caught.value.epsilon))  # exactly what was said is enough
    world.open(AnnouncedRound(unpaid))
    assert [each.round for each in world.device(1).rounds()] == [unpaid]


def test_a_round_that_finds_too_little_waits_for_a_grant(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Two were opened, and there is enough for one of them."""
    first, second = (world.a_round(scope="poor", task=name) for name in ("first", "second"))
    for ledger in (world.proxy_ledger, world.server_ledger):
        ledger.grant(first.line, PROMISE.cost)
    for round in (first, second):
        world.open(AnnouncedRound(round))
        for number in range(6):
            world.device(number).report(round, counts_of(number))
    world.now = CLOSES + SKEW
    with caplog.at_level(logging.INFO, "tacit.services"):
        world.wait_until(lambda: "gather/second/0 cannot go on" in caplog.text)
    assert fetch_result(world.client, SERVER_URL, first.digest).count == 6
    for ledger in (world.proxy_ledger, world.server_ledger):
        ledger.grant(first.line, Budget.of(2 * PROMISE.epsilon))
    world.now += 60
    world.wait_until(lambda: world.proxy_store.round(second.digest).phase is ProxyPhase.RELEASED)  # type: ignore[union-attr]
    assert fetch_result(world.client, SERVER_URL, second.digest).count == 6


def test_a_report_that_is_there_is_accepted_also_after_the_round_has_closed(world: World) -> None:
    """Its answer got lost, and the device was off for a while; another's first report then is too late."""
    world.open()
    early = [an_upload(world, number) for number in range(6)]
    for body, report in early:
        assert put(world, body, report=report).status_code == 201
    late, late_report = an_upload(world, 7)
    other = world.device(1)._reporter
    world.stop("server.test")  # so that the proxy cannot settle the round: it is still open in its store
    world.now = CLOSES + SKEW
    body, report = early[0]
    assert put(world, late, report=late_report).json()["type"] == "tacit:too-late"
    assert put(world, body, report=report).status_code == 201
    changed = body[:-1] + bytes([body[-1] ^ 1])
    assert put(world, changed, report=report).json()["type"] == "tacit:forged"
    again = other.upload(world.round, counts_of(3))  # the device forgot, and sends another report
    other_id = msgpack.unpackb(again)[3].hex()
    assert put(world, again, report=other_id).json()["type"] == "tacit:too-late"
    assert world.proxy_store.waiting_count(world.round.digest) == 6
    world.start_server()
    settle(world)
    assert put(world, body, report=report).status_code == 201
    assert put(world, late, report=late_report).json()["type"] == "tacit:too-late"
    assert fetch_result(world.client, SERVER_URL, world.round.digest).count == 6


def test_the_operator_gets_signed_results(world: World) -> None:
    operator = world.operator()
    world.open()
    assert operator.digest_of("trial", 0) == world.round.digest
    assert operator.digest_of("trial", 1) is None
    with pytest.raises(NotYet):
        operator.result(world.round.digest)
    for number in range(6):
        world.device(number).report(world.round, counts_of(number))
    settle(world)
    assert operator.result(world.round.digest).count == 6

    def changing(request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        answer = send(request)
        body = answer.read()
        return an_answer(answer.status_code, body[:-1] + bytes([body[-1] ^ 1]), answer.headers)

    world.network.meddle = changing
    with pytest.raises(LinkFailed, match="expected a signed answer"):
        operator.result(world.round.digest)
    with pytest.raises(LinkFailed, match="expected a signed answer"):
        operator.digest_of("trial", 0)
    world.network.meddle = lambda request, send: send(request)
    with pytest.raises(LinkFailed, match="expected a signed answer"):  # not the operator's secret
        world.operator(bytes(32)).result(world.round.digest)
    assert world.client.get(f"{SERVER_URL}/rounds").status_code == 401


def test_settled_rounds_are_let_go_and_later_forgotten(world: World) -> None:
    world.open()
    for number in range(6):
        world.device(number).report(world.round, counts_of(number))
    settle(world)
    assert world.proxy_store.forgotten == world.server_store.forgotten == []
    reads: list[int] = []
    rounds = world.proxy_store.rounds

    def counted() -> Any:
        reads.append(1)
        return rounds()

    world.proxy_store.rounds = counted  # type: ignore[method-assign]
    world.open(AnnouncedRound(world.a_round(task="another")))
    for _ in range(20):  # looks and lists go on, and do not read the whole store for it
        world.now += 1
        world.device(1).rounds()
    assert not reads
    world.now = CLOSES + KEEP_DAYS * 86_400 + 1
    world.start_proxy()
    world.start_server()
    stores = (world.proxy_store, world.server_store)
    world.wait_until(lambda: all(world.round.digest in store.forgotten for store in stores))
    assert fetch_result(world.client, SERVER_URL, world.round.digest).count == 6


def test_devices_use_https_except_on_their_own_machine(world: World) -> None:
    reporter = world.device(1)._reporter
    keys = PublicKeys(world.round.proxy_key, world.round.server_key)
    for url in ("http://proxy.example", "http://10.0.0.1:80", "ftp://127.0.0.1"):
        with pytest.raises(BadInput, match="url: expected https://"):
            HttpUploads(world.client, url, reporter, keys, entropy=Simulation(1), sleep=lambda _: None)
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "https://proxy.example"):
        HttpUploads(world.client, url, reporter, keys, entropy=Simulation(1), sleep=lambda _: None)
