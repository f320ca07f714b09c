"""The console's files: what is served, how it is guarded, and that it needs nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from starlette.applications import Starlette

from tacit.services.ads.console.site import load_site, site_routes

SITE = load_site()
APP = Starlette(routes=site_routes(SITE))


def ask(method: str, path: str, **headers: str) -> httpx.Response:
    async def asking() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(APP), base_url="http://console.test"
        ) as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(asking())


@pytest.mark.parametrize("path", ["/console", "/console/", *(f"/console/{name}" for name in SITE)])
def test_files_are_served_with_strict_headers(path: str) -> None:
    answer = ask("GET", path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    again = ask("GET", path, **{"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert ask("HEAD", path).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_they_are_only_read(method: str) -> None:
    assert ask(method, "/console").status_code == 405
    assert ask(method, "/console/main.js").status_code == 405


@pytest.mark.parametrize(
    "path", ["nothing.js", "../site.py", "%2e%2e/site.py", "web/main.js", "views", "main.js/x"]
)
def test_nothing_else_is_there(path: str) -> None:
    assert ask("GET", f"/console/{path}").status_code == 404


def test_nothing_comes_from_elsewhere_and_no_text_becomes_markup() -> None:
    for name, file in SITE.items():
        text = file.body.decode()
        namespace = "http://www.w3.org/2000/svg"
        assert "://" not in text.replace(namespace, ""), name
        if name.endswith(".js"):
            for risky in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function("):
                assert risky not in text, (name, risky)
            for imported in re.findall(r'from "([^"]+)"', text):
                folder = name.rpartition("/")[0]
                target = imported.removeprefix("./") if imported.startswith("./") else imported[3:]
                assert (f"{folder}/{target}" if folder and imported.startswith("./") else target) in SITE
    page = SITE["index.html"].body.decode()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)
