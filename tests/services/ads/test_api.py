"""Operations for access keys: without one nobody gets anywhere, what is wrong is said, OpenAPI tells of all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from tacit.deliver.campaigns.access import AccessRole
from tacit.errors import BadInput
from tacit.services.ads.api import NUMBER, ApiCall, ApiRoute, json_answer
from tacit.services.background import AppPart
from tests.support.ads_services import AdsWorld


def echo(call: ApiCall) -> Response:
    if call.body == {"bad": True}:
        raise BadInput("bad: expected better, got this")
    return json_answer({"path": call.path, "query": call.query, "body": call.body, "by": call.author.key_id})


HURRY = threading.Event()


def wait(_call: ApiCall) -> Response:
    assert HURRY.wait(30)
    return json_answer({})


ROUTES = [
    ApiRoute("GET", "/wait", "Take long", wait),
    ApiRoute("GET", "/try/{number}", "Look", echo, parts={"number": NUMBER}, query={"after": NUMBER}),
    ApiRoute(
        "PUT", "/try/{number}", "Change", echo, parts={"number": NUMBER}, body={"type": "object"}, most_bytes=99
    ),
]  # fmt: skip


class ApiWorld(AdsWorld):
    def more_parts(self) -> list[AppPart]:
        parts = super().more_parts()
        return [*parts, AppPart(routes=self.running.api.routes(ROUTES))]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorld]:
    made = ApiWorld(Path(tmp_path_factory.mktemp("api")))
    yield made
    made.end()


@pytest.fixture(scope="module")
def key(world: ApiWorld) -> str:
    return world.key(AccessRole.VIEWER)


def test_a_handler_gets_numbers_and_who_asks(world: ApiWorld, key: str) -> None:
    found = world.get("/try/7?after=3", key)
    assert found.json() == {"path": {"number": 7}, "query": {"after": 3}, "body": None, "by": key.split("_")[1]}
    assert found.headers["cache-control"] == "no-store"
    assert world.ask("PUT", "/try/7", key, json={"a": 1}).json()["body"] == {"a": 1}
    assert world.ask("HEAD", "/try/7", key).status_code == 200


def test_without_a_key_nobody_gets_as_far_as_a_body(world: ApiWorld) -> None:
    found = world.ask("PUT", "/try/7", json={"a": "x" * 1000})
    assert (found.status_code, found.json()["type"]) == (401, "tacit:campaign-unauthenticated")
    assert found.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/try/seven", {}, 404),
        ("GET", "/try/07", {}, 404),
        ("GET", "/try/-1", {}, 404),
        ("GET", "/try/99999999999999999999", {}, 404),
        ("GET", "/try/7?before=3", {}, 400),
        ("GET", "/try/7?after=x", {}, 400),
        ("PUT", "/try/7", {"content": b"{}", "headers": {"content-type": "text/plain"}}, 415),
        ("PUT", "/try/7", {"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ("PUT", "/try/7", {"json": {"bad": True}}, 400),
        ("PUT", "/try/7", {"json": {"long": "x" * 100}}, 413),
        ("DELETE", "/try/7", {}, 405),
    ],
)
def test_what_is_wrong_is_said(
    world: ApiWorld, key: str, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    found = world.ask(method, path, key, **more)
    assert found.status_code == status
    assert found.headers["content-type"] == "application/problem+json"
    if more.get("json") == {"bad": True}:
        assert found.json()["detail"] == "bad: expected better, got this"


def test_who_asks_for_what_takes_long_holds_up_nobody_else(world: ApiWorld, key: str) -> None:
    world.wait_for_epoch()
    with ThreadPoolExecutor(50) as slow:
        asked = [slow.submit(world.get, "/wait", key) for _ in range(50)]
        try:
            assert world.get("/try/7", world.key(AccessRole.VIEWER)).status_code == 200
            world.show(1)
            assert world.operator().status()["epochs"]
        finally:
            HURRY.set()
        assert {each.result().status_code for each in asked} == {200}


def test_openapi_has_every_operation(world: ApiWorld) -> None:
    said = world.get("/openapi.json").json()
    assert said["openapi"] == "3.1.0"
    assert set(said["paths"]["/try/{number}"]) == {"get", "put"}
    assert said["paths"]["/try/{number}"]["put"]["requestBody"]["required"] is True
    assert {"400", "401", "413", "200"} <= set(said["paths"]["/try/{number}"]["put"]["responses"])
