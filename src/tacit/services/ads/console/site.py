"""The console's own files, over GET: a page, a stylesheet and ES modules, as they lie in `web`.

Nothing is built, and nothing comes from elsewhere. The page may load what this server has and nothing else,
runs no script and no style that stands in the page, and turns no text into markup (trusted types). All files
are read when the service starts; a browser asks for each again by its ETag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE = "index.html"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@dataclass(frozen=True)
class SiteFile:
    """A file as it is sent."""

    body: bytes
    media: str
    etag: str


def load_site() -> dict[str, SiteFile]:
    """All files of `web`, by their path in it."""
    return dict(_walk(files(__package__) / "web", ""))


def _walk(folder: Traversable, before: str) -> list[tuple[str, SiteFile]]:
    found = []
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path, suffix = f"{before}{each.name}", f".{each.name.rpartition('.')[2]}"
        if each.is_dir():
            found += _walk(each, f"{path}/")
        elif suffix in MEDIA:
            body = each.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found.append((path, SiteFile(body, MEDIA[suffix], etag)))
    return found


def site_routes(site: Mapping[str, SiteFile]) -> list[Route]:
    """The page at /console, and what it is made of below."""

    async def answer(request: Request) -> Response:
        found = site.get(request.path_params.get("path", PAGE) or PAGE)
        if found is None:
            raise HTTPException(404, "there is no such file")
        headers = {**HEADERS, "etag": found.etag}
        if found.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.body, headers=headers, media_type=found.media)

    return [Route("/console", answer, methods=["GET"]), Route("/console/{path:path}", answer, methods=["GET"])]
