"""Limits of the public edge: exchanges by their key, wrong keys and requests for menus by address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import BadInput
from tacit.services.ads.access import AddressBuckets, PacedEndpoint
from tacit.services.ads.openrtb import BidEndpoint
from tacit.services.ads.parts import RunningAds
from tacit.services.billing_settings import MENUS_PER_ADDRESS, AdServerSettings
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tests.support.openrtb_samples import WEB, ExchangeWorld
from tests.support.operated_parties import write_settings

HERE, THERE = "198.51.100.7", "203.0.113.9"
BODY = json.dumps(WEB).encode()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExchangeWorld]:
    made = ExchangeWorld(tmp_path_factory.mktemp("limits"))
    try:
        yield made
    finally:
        made.end()


class Edge:
    """An endpoint that is asked without a client in between, from whatever address, on ticks of ours."""

    def __init__(self, world: ExchangeWorld) -> None:
        self._world, self.ticks = world, 0.0

    def endpoint(self, requests_per_second: int = 0, failures: int = 0) -> BidEndpoint:
        settings = self._world.running.settings.openrtb
        assert settings is not None
        (trial,) = settings.exchanges
        settings = replace(settings, exchanges=(replace(trial, requests_per_second=requests_per_second),))
        bidder = self._world.endpoint()._bidder
        return BidEndpoint(settings, bidder, timer=lambda: self.ticks, failures_per_address=failures)

    def ask(self, endpoint: Any, host: str = HERE, key: str = "") -> tuple[int, dict[bytes, bytes]]:
        """The status and headers of one answer."""
        sent = [(b"authorization", f"Bearer {key or self._world.secret}".encode())]
        scope = {
            "type": "http", "method": "POST", "path": "/", "path_params": {}, "query_string": b"",
            "headers": sent, "client": (host, 4711),
        }  # fmt: skip
        told: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": BODY}

        async def send(message: Any) -> None:
            told.append(message)

        asyncio.run_coroutine_threadsafe(endpoint(scope, receive, send), self._world.loop).result(10)
        return told[0]["status"], dict(told[0]["headers"])


def outcomes(endpoint: BidEndpoint) -> dict[str, float]:
    (family,) = endpoint.answered.collect()
    return {
        each.labels["outcome"]: each.value
        for each in family.samples
        if each.name.endswith("_total") and each.value
    }


def test_an_exchange_asks_so_often_in_a_second_and_then_comes_again(world: ExchangeWorld) -> None:
    edge = Edge(world)
    endpoint = edge.endpoint(requests_per_second=3)
    assert [edge.ask(endpoint)[0] for _ in range(5)] == [200, 200, 200, 429, 429]
    status, headers = edge.ask(endpoint, THERE)  # whichever of its machines asks
    assert (status, headers[b"retry-after"], headers[b"content-length"]) == (429, b"1", b"0")
    assert b"connection" not in headers  # its body was read: the connection goes on
    assert outcomes(endpoint) == {"bid": 3, "throttled": 3}
    edge.ticks = 0.34  # a third of a second is one more
    assert [edge.ask(endpoint)[0] for _ in range(2)] == [200, 429]
    edge.ticks = 60.0  # and no more than a second's worth is ever saved up
    assert [edge.ask(endpoint)[0] for _ in range(4)] == [200, 200, 200, 429]


def test_without_the_key_there_is_no_limit(world: ExchangeWorld) -> None:
    edge = Edge(world)
    endpoint = edge.endpoint()
    assert {edge.ask(endpoint)[0] for _ in range(200)} == {200}


def test_an_address_comes_only_so_often_with_keys_that_do_not_hold(world: ExchangeWorld) -> None:
    edge = Edge(world)
    endpoint = edge.endpoint(failures=2)
    wrong = "00" * 32
    assert [edge.ask(endpoint)[0] for _ in range(5)] == [200] * 5
    assert [edge.ask(endpoint, key=wrong)[0] for _ in range(3)] == [401, 401, 429]
    status, headers = edge.ask(endpoint)  # or guesses could go on until one is right
    assert (status, headers[b"retry-after"], headers[b"connection"]) == (429, b"30", b"close")
    assert edge.ask(endpoint, THERE)[0] == 200
    edge.ticks = 31.0
    assert edge.ask(endpoint)[0] == 200
    assert {edge.ask(endpoint, "127.0.0.1", wrong)[0] for _ in range(9)} == {401}
    unlimited = edge.endpoint()
    assert {edge.ask(unlimited, key=wrong)[0] for _ in range(9)} == {401}


def test_menus_and_packs_count_together_by_address(world: ExchangeWorld) -> None:
    edge, asked = Edge(world), []

    async def menus(scope: Any, _receive: Any, send: Any) -> None:
        asked.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    buckets = AddressBuckets(3, lambda: edge.ticks)
    first, second = PacedEndpoint(menus, buckets), PacedEndpoint(menus, buckets)
    assert [edge.ask(each)[0] for each in (first, second, first, second, first)] == [200] * 3 + [429] * 2
    assert edge.ask(first)[1][b"retry-after"] == b"20"
    assert [edge.ask(first, f"2001:db8::{number}")[0] for number in range(1, 5)] == [200] * 3 + [429]
    assert edge.ask(first, "2001:db8:0:1::1")[0] == 200
    assert {edge.ask(first, "127.0.0.1")[0] for _ in range(9)} == {200}
    edge.ticks = 20.0
    assert [edge.ask(first)[0], edge.ask(second)[0]] == [200, 429]
    assert asked.count(HERE) == 4


def limited(running: RunningAds, per_minute: int) -> RunningAds:
    billing = running.settings.billing
    assert isinstance(billing, AdServerSettings)
    settings = replace(running.settings, billing=replace(billing, menus_per_address=per_minute))
    return replace(running, settings=settings)


def test_the_app_has_the_limit_of_its_settings_and_none_costs_nothing(world: ExchangeWorld) -> None:
    running = world.running
    assert running.limits.menus_per_address == MENUS_PER_ADDRESS == 6_000
    assert isinstance(running.paced(running.board), PacedEndpoint)
    assert limited(running, 0).paced(running.board) is running.board
    edge, few = Edge(world), limited(running, 1)
    assert [edge.ask(few.paced(running.board))[0] for _ in range(2)] == [400, 429]  # no context, and too often


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("requests_per_second = -1", "expected openrtb.exchange 1.requests_per_second to be a whole number"),
        ('requests_per_second = "many"', "openrtb.exchange 1.requests_per_second"),
    ],
)
def test_what_is_no_limit_is_refused(tmp_path: Path, table: str, said: str) -> None:
    path = write_settings(tmp_path)[Party.SERVER]
    path.write_text(path.read_text().replace('name = "trial"', f'name = "trial"\n{table}'))
    with pytest.raises(BadInput, match=said):
        load_settings(path, Party.SERVER)


def test_behind_a_reverse_proxy_nothing_goes_by_address(tmp_path: Path) -> None:
    path = write_settings(tmp_path)[Party.SERVER]
    plain = path.read_text()
    path.write_text(plain.replace("[listen]", "[listen]\nbehind_tls = true"))
    billing = load_settings(path, Party.SERVER).billing
    assert isinstance(billing, AdServerSettings)
    assert (billing.menus_per_address, billing.failures_per_address) == (0, 0)
    path.write_text(path.read_text().replace("[billing]", "[billing]\nmenus_per_address = 10"))
    with pytest.raises(BadInput, match=r"billing\.menus_per_address: expected 0 with behind_tls = true"):
        load_settings(path, Party.SERVER)
