"""Chromium without a window, and an ad server of a test that it reaches over the loopback interface."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import uvicorn

from tests.support.ads_services import AdsWorld
from tests.support.billing_services import SERVER_HOST

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")


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
