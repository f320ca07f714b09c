"""Pages of any origin may call what devices call, and read every answer; nothing else is open to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from tacit.gather.protocol.rounds import Round
from tests.support.billing_services import PROXY_HOST, SERVER_HOST
from tests.support.service_worlds import PROXY_URL, SERVER_URL
from tests.support.statistics_worlds import StatisticsWorld

ORIGIN = {"origin": "https://publisher.example"}
FOR_PAGES = {
    PROXY_HOST: {
        ("GET", "/billing/head"),
        ("POST", "/billing/offers"),
        ("GET", "/billing/packs/{menu}"),
        ("PUT", "/billing/reports/{nonce}"),
        ("GET", "/billing/reports/{nonce}"),
        ("GET", "/billing/epochs/{epoch}/cohorts"),
        ("GET", "/rounds"),
        ("GET", "/rounds/{digest}"),
        ("PUT", "/rounds/{digest}/reports/{report_id}"),
    },
    SERVER_HOST: {("GET", "/menus"), ("GET", "/packs/{menu_id}")},
}
FILES = ("/openapi.json", "/device/")  # the same for everybody: what the API is, what a device runs
URLS = {PROXY_HOST: PROXY_URL, SERVER_HOST: SERVER_URL}
ALLOWED, METHODS = "access-control-allow-origin", "access-control-allow-methods"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatisticsWorld]:
    made = StatisticsWorld(tmp_path_factory.mktemp("origins"))
    try:
        made.wait_for_epoch()
        made.rounds.look()
        yield made
    finally:
        made.end()


def ask(world: StatisticsWorld, host: str, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {**ORIGIN, **more.pop("headers", {})}
    return world.client.request(method, f"{URLS[host]}{path}", headers=headers, **more)


def routes(world: StatisticsWorld, host: str) -> Iterator[tuple[str, str]]:
    """Every method and path of a party's app."""

    def walk(some: Any, before: str) -> Iterator[tuple[str, str]]:
        for route in some:
            path = before + getattr(route, "path", "")
            if isinstance(route, Route):
                yield from ((method, path) for method in sorted(route.methods or ()))
            else:
                yield from walk(getattr(route, "routes", None) or (), path)

    return walk(world._apps[host].routes, "")


@pytest.mark.parametrize("host", FOR_PAGES)
def test_what_devices_call_is_open_to_pages_and_nothing_else_is(world: StatisticsWorld, host: str) -> None:
    paths = {path for _, path in FOR_PAGES[host]}
    seen = set()
    for method, path in routes(world, host):
        answer = ask(world, host, method, re.sub(r"\{[^}]*\}", "0", path))
        own = "GET" if method == "HEAD" else method
        opened = (own, path) in FOR_PAGES[host] or (method == "OPTIONS" and path in paths)
        if not path.startswith(FILES):
            told = answer.headers.get_list(ALLOWED)
            assert told == (["*"] if opened else []), f"{method} {path}: {answer.status_code}"
        assert "access-control-allow-credentials" not in answer.headers
        seen.add((own, path))
    assert FOR_PAGES[host] <= seen
    assert len(seen) > len(FOR_PAGES[host]) + 3


@pytest.mark.parametrize("host", FOR_PAGES)
def test_a_preflight_is_answered_where_a_page_may_call_with_the_methods_that_it_may(
    world: StatisticsWorld, host: str
) -> None:
    for path in {path for _, path in FOR_PAGES[host]}:
        asked = {"access-control-request-method": "PUT", "access-control-request-headers": "content-type"}
        answer = ask(world, host, "OPTIONS", re.sub(r"\{[^}]*\}", "0", path), headers=asked)
        assert (answer.status_code, answer.content) == (204, b"")
        allowed = {method for method, each in FOR_PAGES[host] if each == path}
        assert set(answer.headers[METHODS].split(", ")) == allowed
        assert answer.headers["access-control-allow-headers"] == "content-type"
        assert answer.headers["access-control-max-age"] == "86400"
        assert answer.headers[ALLOWED] == "*"


@pytest.mark.parametrize(
    "path",
    ["/billing/directories", "/billing/epochs/1/batches", "/billing/epochs/1/receipts", "/link", "/metrics",
     "/healthz", "/readyz", "/rounds/0/status", "/nothing"],
)  # fmt: skip
def test_no_preflight_is_answered_elsewhere(world: StatisticsWorld, path: str) -> None:
    answer = ask(world, PROXY_HOST, "OPTIONS", path, headers={"access-control-request-method": "POST"})
    assert answer.status_code in (404, 405)
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_opening_a_round_is_for_the_server_alone(world: StatisticsWorld) -> None:
    answer = ask(world, PROXY_HOST, "POST", "/rounds", content=b"round")
    assert answer.status_code == 401
    assert ALLOWED not in answer.headers
    asked = ask(world, PROXY_HOST, "OPTIONS", "/rounds", headers={"access-control-request-method": "POST"})
    assert asked.headers[METHODS] == "GET"


def test_good_answers_can_be_read(world: StatisticsWorld) -> None:
    for path in ("/billing/head", "/rounds", f"/billing/epochs/{world.keeper.heads()[0].epoch}/cohorts"):
        answer = ask(world, PROXY_HOST, "GET", path)
        assert (answer.status_code, answer.headers.get_list(ALLOWED)) == (200, ["*"])
    digest = Round.from_bytes(world.proxy_rounds.rounds()[0].body).digest
    answer = ask(world, PROXY_HOST, "GET", f"/rounds/{digest.hex()}")
    assert (answer.status_code, answer.headers.get_list(ALLOWED)) == (200, ["*"])


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/billing/offers", b"what no ad server opens", 422),
        ("POST", "/billing/offers", bytes(1_000_000), 413),
        ("PUT", f"/billing/reports/{'0' * 64}", b"short", 400),
        ("GET", "/billing/reports/zz", b"", 400),
        ("GET", f"/billing/reports/{'0' * 64}", b"", 404),
        ("GET", f"/billing/packs/{'0' * 64}", b"", 404),
        ("GET", "/billing/epochs/never/cohorts", b"", 400),
        ("GET", f"/rounds/{'0' * 64}", b"", 404),
        ("PUT", f"/rounds/{'0' * 64}/reports/{'0' * 32}", b"upload", 404),
    ],
)
def test_refusals_can_be_read(
    world: StatisticsWorld, method: str, path: str, content: bytes, status: int
) -> None:
    answer = ask(world, PROXY_HOST, method, path, content=content)
    assert answer.status_code == status, answer.text
    assert answer.headers.get_list(ALLOWED) == ["*"]


def test_failures_can_be_read(world: StatisticsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("a private value")

    monkeypatch.setattr("tacit.services.proxy_intake.Intake.open_rounds", fail)
    answer = ask(world, PROXY_HOST, "GET", "/rounds")
    assert (answer.status_code, answer.headers.get_list(ALLOWED)) == (500, ["*"])
    assert "private" not in answer.text


def test_the_ad_servers_public_answers_can_be_read(world: StatisticsWorld) -> None:
    for path, status in (
        ("/menus?context=1:North&context=1:Food", 200),
        ("/menus?context=1:Nowhere&context=1:Food", 404),
        ("/menus?nothing", 400),
        (f"/packs/{'0' * 64}", 404),
    ):
        answer = ask(world, SERVER_HOST, "GET", path)
        assert (answer.status_code, answer.headers.get_list(ALLOWED)) == (status, ["*"]), path
    for path in ("/ads/campaigns", "/ads/account"):
        assert ALLOWED not in ask(world, SERVER_HOST, "GET", path).headers


def test_requests_are_counted_by_their_routes_as_before(world: StatisticsWorld) -> None:
    ask(world, PROXY_HOST, "GET", "/billing/head")
    ask(world, PROXY_HOST, "OPTIONS", "/billing/head")
    text = world._apps[PROXY_HOST].state.operations.metrics.text().decode()
    counted = [line for line in text.splitlines() if "/billing/head" in line and "_total" in line]
    assert any('method="GET"' in line and 'route="/billing/head"' in line for line in counted), counted
    assert any('method="OPTIONS"' in line and 'route="/billing/head"' in line for line in counted), counted
