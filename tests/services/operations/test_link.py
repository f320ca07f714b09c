"""The ad server watches its proxy by signed calls, and tells of it in /healthz, /metrics and its alerts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tacit.deliver.campaigns.access import AccessRole, make_key
from tacit.deliver.campaigns.store import MACHINE, Author
from tacit.entropy import Entropy
from tacit.errors import GatherError
from tacit.services import background
from tacit.services import server as module
from tacit.services.billing_settings import AdServerSettings
from tacit.services.http_clients import LinkFailed
from tacit.services.server import ProxyWatch
from tacit.services.settings import PartySettings
from tacit.services.signatures import Party
from tacit.store.billing_ads import SqlAdStore
from tacit.store.campaigns import SqlCampaignStore
from tests.support.operated_parties import running, settings_of
from tests.support.service_worlds import PROXY_URL, SERVER_URL, World, a_world


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (background, module):
        monkeypatch.setattr(each, "HEALTH_SECONDS", 0.02)


def health_of(world: World) -> dict[str, str]:
    found: dict[str, str] = world.client.get(f"{SERVER_URL}/healthz").json()
    return found


def test_a_server_without_its_proxy_is_degraded_and_well_again_when_it_is_back(tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        world.wait_until(lambda: health_of(world)["link"] == "ok")
        world.stop("proxy.test")
        world.wait_until(lambda: health_of(world)["link"] == "failing")
        assert health_of(world)["status"] == "degraded"
        assert world.client.get(f"{SERVER_URL}/healthz").status_code == 200
        assert world.client.get(f"{SERVER_URL}/readyz").status_code == 200  # no load balancer keeps away
        world.start_proxy()
        world.wait_until(lambda: health_of(world)["status"] == "ok")


def test_clocks_that_differ_are_a_link_that_fails_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with a_world(tmp_path) as world, caplog.at_level(logging.WARNING):
        world.wait_until(lambda: health_of(world)["link"] == "ok")
        world.proxy_now = world.now + 3_600
        world.wait_until(lambda: health_of(world)["link"] == "failing")
        world.wait_until(lambda: "does not answer: expected the clocks" in caplog.text)
    assert "the proxy's 3,600 s ahead" in caplog.text


def test_who_is_not_the_server_is_told_nothing_of_the_link(tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        assert world.client.get(f"{PROXY_URL}/link").status_code == 401


def test_a_proxy_that_refuses_is_there() -> None:
    def refuse() -> None:
        raise GatherError("no")

    def fail() -> None:
        raise LinkFailed("no answer")

    for ask, works in ((refuse, True), (fail, False)):
        watch = ProxyWatch(ask)
        assert watch.works  # nothing is known yet
        watch.look()
        assert watch.works is works


def test_metrics_and_the_console_tell_of_a_proxy_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.services.operations.app.LOOK_SECONDS", 0.02)
    settings = settings_of(tmp_path, Party.SERVER)  # where nobody listens at the proxy's address
    key = _operators_key(settings)
    with running(settings, monkeypatch) as client:
        _wait_until(lambda: client.get("/healthz").json()["link"] == "failing")
        assert client.get("/healthz").status_code == 200
        _wait_until(lambda: 'tacit_health_ok{check="link"} 0.0' in client.get("/metrics").text)
        told = client.get("/ads/console/overview", headers={"authorization": f"Bearer {key}"})
        assert _alert(told, "health-link")["runbook"] == "A lost proxy"


def _alert(told: httpx.Response, kind: str) -> dict[str, str]:
    found: list[dict[str, str]] = [each for each in told.json()["alerts"] if each["kind"] == kind]
    assert len(found) == 1
    return found[0]


def _operators_key(settings: PartySettings) -> str:
    assert isinstance(settings.billing, AdServerSettings)
    store = SqlAdStore.open(settings.billing.store, witness=settings.billing.witness)
    spelled, kept = make_key(AccessRole.OPERATOR, None, Entropy().bytes, now=int(time.time()), ends=None)
    SqlCampaignStore(store.database).add_key(kept, Author(MACHINE, int(time.time())))
    store.close()
    return spelled


def _wait_until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
