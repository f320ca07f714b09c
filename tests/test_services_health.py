"""/healthz: what it looks at, how it says so, and that asking costs no look."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from service_worlds import CLOSES, PROXY_URL, SKEW, a_world
from tacit.errors import GatherError
from tacit.services import health as module
from tacit.services.health import Health, has_room


def said(health: Health) -> tuple[int, dict[str, Any]]:
    answer = health.answer()
    return answer.status_code, json.loads(bytes(answer.body))


def test_store_and_disk_are_vital_and_the_rest_is_not() -> None:
    wells = {"store": True, "disk": True, "ledger": True, "link": True}
    health = Health({name: (lambda name=name: wells[name]) for name in wells})  # type: ignore[misc]
    health.look()
    assert said(health) == (200, {"status": "ok", **dict.fromkeys(wells, "ok")})
    for name, status in (("store", 503), ("disk", 503), ("ledger", 200), ("link", 200)):
        wells[name] = False
        health.look()
        found = {each: "failing" if each == name else "ok" for each in wells}
        word = "failing" if status == 503 else "degraded"
        assert said(health) == (status, {"status": word, **found})
        wells[name] = True


def test_trouble_is_one_line_however_long_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    trouble = [True]

    def check() -> bool:
        if trouble:
            raise GatherError("the store at postgresql://u:s3cret@h/db could not be used")
        return True

    health = Health({"store": check})
    with caplog.at_level(logging.INFO, "tacit.services"):
        for _ in range(5):
            health.look()
        trouble.clear()
        for _ in range(5):
            health.look()
    assert len(caplog.records) == 2
    assert "store is failing: GatherError: the store at postgresql://u:***@h/db" in caplog.text
    assert "store is well again" in caplog.text


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_room(tmp_path / "proxy.sqlite")
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 2**80)
    assert not has_room(tmp_path / "proxy.sqlite")


def test_a_proxy_tells_of_its_link_and_asking_costs_no_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    with a_world(tmp_path) as world:
        world.open()
        world.stop("server.test")
        world.now = CLOSES + SKEW
        world.wait_until(lambda: world.client.get(f"{PROXY_URL}/healthz").json()["status"] == "degraded")
        assert world.client.get(f"{PROXY_URL}/healthz").json()["link"] == "failing"
        world.start_server()
        world.wait_until(lambda: world.client.get(f"{PROXY_URL}/healthz").json()["status"] == "ok")
    monkeypatch.setattr(module, "LOOK_SECONDS", 60)
    looks: list[int] = []

    def counted() -> bool:
        looks.append(1)
        return True

    with a_world(tmp_path) as world:
        world.watched["disk"] = counted
        world.start_proxy()
        for _ in range(50):
            assert world.client.get(f"{PROXY_URL}/healthz").json()["disk"] == "ok"
        assert len(looks) <= 1
