"""Both parties of a demonstration in one process, as `launch` makes them from a trial's settings.

with a_demonstration(folder) as world:
    world.show(5, ("Northport", "Coffee"), address="203.0.113.7")
    world.get("/demonstration/ledger").json()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.journal import MemoryJournal
from tacit.deliver.device.outcomes import ShownAd
from tacit.deliver.device.settings import DeviceSettings
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.entropy import Entropy, Simulation
from tacit.services import billing_launch, launch, trial
from tacit.services.billing_clients import HttpAdChannel
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tacit.services.visits import read_place
from tests.support.billing_services import FewKeys, liking
from tests.support.service_processes import free_ports
from tests.support.service_worlds import Loop, an_answer

COHORT = 3


class ByPort(httpx.BaseTransport):
    """Hands requests to the apps by port, as they come from an address."""

    def __init__(self, loop: Loop, apps: dict[int, Starlette], address: str) -> None:
        self._loop, self._apps, self._address = loop, apps, address

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        app = self._apps.get(request.url.port or 0)
        if app is None:
            raise httpx.ConnectError("nobody listens", request=request)
        return self._loop.run(self._sent(app, request))

    async def _sent(self, app: Starlette, request: httpx.Request) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(self._address, 50_000))
        response = await transport.handle_async_request(request)
        return an_answer(response.status_code, await response.aread(), response.headers)


class DemonstrationWorld:
    """An ad server and a proxy with made-up campaigns, in a folder of their own; cohorts are small, and batches
    leave at once."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, change: Callable[[Path], None]) -> None:
        ports = free_ports(2)
        trial.write_trial(folder, proxy_port=ports[0], server_port=ports[1], entropy=Entropy(), billing=True)
        replace_in(folder / "market.toml", "smallest_cohort = 5 ", f"smallest_cohort = {COHORT} ")
        replace_in(folder / "proxy.toml", "hold_seconds = 2 ", "hold_seconds = 0 ")
        change(folder)
        self.folder, self._loop = folder, Loop()
        self._apps: dict[int, Starlette] = {}
        self._living: list[Any] = []
        patch.setattr(billing_launch, "KeyMaker", FewKeys)
        for module in (launch, billing_launch):
            patch.setattr(module, "open_client", lambda *_: self.client("192.0.2.200"))
        self.urls = {}
        for party, port in ((Party.PROXY, ports[0]), (Party.SERVER, ports[1])):
            self.urls[party] = f"http://127.0.0.1:{port}"
            app = launch.APPS[party](load_settings(folder / f"{party}.toml", party))
            living = app.router.lifespan_context(app)
            self._loop.run(living.__aenter__())
            self._apps[port] = app
            self._living.append(living)
        self.place = read_place(folder)

    def client(self, address: str = "127.0.0.1") -> httpx.Client:
        return httpx.Client(transport=ByPort(self._loop, self._apps, address))

    def ask(self, method: str, path: str, *, of: Party = Party.SERVER, **more: Any) -> httpx.Response:
        return self.client().request(method, f"{self.urls[of]}{path}", **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("GET", path, **more)

    def seen(self, of: Party) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/demonstration/seen", of=of).json()
        return found

    def show(self, count: int, context: tuple[str, ...], address: str, **settings: Any) -> list[ShownAd]:
        """So many devices show an ad each, from an address, and report it."""
        channel = HttpAdChannel(
            self.client(address), self.urls[Party.PROXY], entropy=Simulation("pauses"), sleep=lambda _: None,
            attempts=1,
        )  # fmt: skip
        given = DeviceSettings(self.place.hierarchy, DisclosureLevel((1, 1)), **{"consent": True, **settings})
        shown = []
        for number in range(count):
            device = AdDevice(
                given, self.place.keys, MemoryJournal(), channel, Simulation(f"{context} {number}"),
                simulated=True,
            )  # fmt: skip
            shown.append(device.show(context, liking, launch.clock()))
            assert device.send_reports(launch.clock()).acked == 1
        return shown

    def wait_until(self, done: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not done():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.02)

    def wait_for_epoch(self) -> None:
        self.wait_until(lambda: self.get("/billing/head", of=Party.PROXY).status_code == 200)

    def end(self) -> None:
        for living in reversed(self._living):
            self._loop.run(living.__aexit__(None, None, None))
        self._loop.end()


def replace_in(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text, before
    path.write_text(text.replace(before, after))


@contextmanager
def a_demonstration(
    folder: Path, change: Callable[[Path], None] = lambda _: None
) -> Iterator[DemonstrationWorld]:
    """Both parties, from the trial's files as `change` leaves them; with an epoch that is open."""
    with pytest.MonkeyPatch.context() as patch:
        world = DemonstrationWorld(folder, patch, change)
        try:
            world.wait_for_epoch()
            yield world
        finally:
            world.end()
