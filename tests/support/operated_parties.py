"""Both parties' apps as `launch` makes them from settings, each alone here: the other party does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from tacit.entropy import Entropy
from tacit.services import billing_launch, launch, trial
from tacit.services.settings import PartySettings, load_settings
from tacit.services.signatures import Party
from tests.support.billing_services import FewKeys
from tests.support.service_processes import free_ports
from tests.support.service_worlds import Loop, an_answer

HERE = ("127.0.0.1", 50_000)
ELSEWHERE = ("192.0.2.7", 50_000)


def write_settings(folder: Path, **more: str) -> dict[Party, Path]:
    """Settings of both parties, with more lines at their end, by party."""
    proxy_port, server_port = free_ports(2)
    trial.write_trial(folder, proxy_port=proxy_port, server_port=server_port, entropy=Entropy(), billing=True)
    paths = {party: folder / f"{party}.toml" for party in (Party.PROXY, Party.SERVER)}
    for party, path in paths.items():
        path.write_text(path.read_text() + more.get(str(party), ""))
    return paths


def settings_of(folder: Path, party: Party, more: str = "") -> PartySettings:
    return load_settings(write_settings(folder, **{str(party): more})[party], party)


class Called(httpx.BaseTransport):
    """Hands every request to one app, as it comes from `caller`."""

    def __init__(self, loop: Loop, app: Starlette, caller: tuple[str, int]) -> None:
        self._loop, self._app, self.caller = loop, app, caller

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._loop.run(self._sent(request))

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=self.caller)
        response = await transport.handle_async_request(request)
        return an_answer(response.status_code, await response.aread(), response.headers)


@contextmanager
def called(app: Starlette, caller: tuple[str, int] = HERE) -> Iterator[httpx.Client]:
    """The app with its background work, and somebody who calls it."""
    loop, living = Loop(), app.router.lifespan_context(app)
    loop.run(living.__aenter__())
    try:
        with httpx.Client(transport=Called(loop, app, caller), base_url="http://party.test") as client:
            yield client
    finally:
        loop.run(living.__aexit__(None, None, None))
        loop.end()


@contextmanager
def running(
    settings: PartySettings, monkeypatch: pytest.MonkeyPatch, caller: tuple[str, int] = HERE
) -> Iterator[httpx.Client]:
    """The party of these settings; its token keys are a few that were drawn before."""
    monkeypatch.setattr(billing_launch, "KeyMaker", FewKeys)
    with called(launch.APPS[settings.party](settings), caller) as client:
        yield client
