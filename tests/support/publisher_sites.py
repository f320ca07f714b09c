"""A publisher's site on this machine, and what a browser keeps and asks when it visits it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class _Files(SimpleHTTPRequestHandler):
    policy = ""

    def end_headers(self) -> None:
        self.send_header("content-security-policy", self.policy)
        self.send_header("cache-control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """In silence."""


@contextmanager
def a_site(folder: Path, policy: str) -> Iterator[str]:
    """Where a folder is served, with a content security policy beside which nothing is allowed."""
    handler = type("SiteFiles", (_Files,), {"policy": f"default-src 'none'; {policy}"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def a_visit(browser: Browser, site: str, proxy: str) -> Iterator[tuple[Page, list[str]]]:
    """A reader's first visit: its page, and what was asked of the proxy so far. Nothing may go wrong in it,
    nobody else be asked, and no cookie or storage but IndexedDB be used."""
    context = browser.new_context()
    page, asked, wrong, to_proxy = context.new_page(), list[str](), list[str](), list[str]()

    def note(method: str, url: str) -> None:
        asked.append(url)
        if url.startswith(proxy):
            to_proxy.append(f"{method} {url.removeprefix(proxy)}")

    context.on("request", lambda request: note(request.method, request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.goto(site)
    yield page, to_proxy
    local = (f"{site}/", f"{proxy}/billing/", "data:", "blob:", "about:")
    assert [url for url in asked if not url.startswith(local)] == []
    assert wrong == []
    assert context.cookies() == []
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
    context.close()


def stored_rows(page: Page) -> list[dict[str, Any]]:
    """The rows of all databases of a page's origin."""
    found: list[dict[str, Any]] = page.evaluate("""async () => {
      const answered = request => new Promise(done => { request.onsuccess = () => done(request.result); });
      const found = [];
      for (const { name } of await indexedDB.databases()) {
        const database = await answered(indexedDB.open(name));
        const rows = await answered(database.transaction('rows').objectStore('rows').getAll());
        found.push(...rows.map(({ key, state, epsilonMicros }) => ({ key, state, epsilonMicros })));
        database.close();
      }
      return found;
    }""")
    return found


def wait_for_reports(page: Page, to_proxy: list[str], count: int) -> None:
    """Until so many reports have left."""
    for _ in range(200):
        if sum(each.startswith("PUT /billing/reports/") for each in to_proxy) >= count:
            return
        page.wait_for_timeout(50)
    raise AssertionError("it was never reported")
