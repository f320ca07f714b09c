"""Chromium without a window, and parties of a test that it reaches over the loopback interface."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import uvicorn

from tacit.services.signatures import Party
from tests.support.ads_services import AdsWorld
from tests.support.billing_services import SERVER_HOST
from tests.support.page_worlds import DemonstrationWorld

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip


def _missing() -> str:
    """What keeps browser tests from running here; empty: nothing."""
    if CHROMIUM is None:
        return "there is no chromium here (apt-get install chromium)"
    if importlib.util.find_spec("playwright") is None:
        return "Playwright, which drives it, is not installed (pip install playwright)"
    return ""


MISSING = _missing()
needs_chromium = pytest.mark.skipif(bool(MISSING), reason=f"NOT TRIED IN A BROWSER: {MISSING}")


@contextmanager
def a_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(world: AdsWorld) -> Iterator[str]:
    """Where the ad server of a world answers over HTTP, in the world's own loop."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(world.app(SERVER_HOST), lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    running = asyncio.run_coroutine_threadsafe(server._serve([listening]), world.loop)
    world.wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        running.result(10)


@contextmanager
def served_parties(world: DemonstrationWorld) -> Iterator[str]:
    """Where the ad server of a demonstration answers over HTTP; its proxy does too, at its own address."""
    loop, servers, running = world._loop.loop, [], []
    for port, app in world._apps.items():
        listening = socket.create_server(("127.0.0.1", port))
        servers.append(uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, ws="none")))
        running.append(asyncio.run_coroutine_threadsafe(servers[-1]._serve([listening]), loop))
    world.wait_until(lambda: all(each.started for each in servers))
    try:
        yield world.urls[Party.SERVER]
    finally:
        for each in servers:
            each.should_exit = True
        for ended in running:
            ended.result(10)
