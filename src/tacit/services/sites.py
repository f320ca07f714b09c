"""Sites of plain files, over GET: pages, stylesheets, ES modules and figures, as they lie in a folder.

Nothing is built, and nothing comes from elsewhere. What is served is what was found in the folder, by its path
there: no path of a request is ever looked up on a disk. Files are read when the service starts, or, where they
are being worked on, again when somebody asks; a browser asks for each again by its ETag.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tacit.services.endpoints import Endpoint

MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
PAGE = "index.html"
FRESH_SECONDS = 1.0
GUARDS = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""Headers of every file, beside the content security policy that its site says."""


@dataclass(frozen=True)
class SiteFile:
    """A file as it is sent."""

    body: bytes
    media: str
    etag: str

    @classmethod
    def of(cls, body: bytes, media: str) -> SiteFile:
        return cls(body, media, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def answer(self, request: Request, headers: Mapping[str, str]) -> Response:
        """Whole, or to who has it already without a body."""
        sent = {**headers, "etag": self.etag}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=sent)
        return Response(self.body, headers=sent, media_type=self.media)


Site = Mapping[str, SiteFile]
"""Files by their path in a folder."""


def load_folder(folder: Traversable, suffixes: Collection[str] = tuple(MEDIA)) -> dict[str, SiteFile]:
    """All files of a folder that a site may have; those with other endings stay unread."""
    return dict(_walk(folder, "", suffixes))


def _walk(folder: Traversable, before: str, suffixes: Collection[str]) -> list[tuple[str, SiteFile]]:
    found = []
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path, suffix = f"{before}{each.name}", f".{each.name.rpartition('.')[2]}"
        if each.is_dir():
            found += _walk(each, f"{path}/", suffixes)
        elif suffix in suffixes:
            found.append((path, SiteFile.of(each.read_bytes(), MEDIA[suffix])))
    return found


class FreshSite:
    """A site whose files are read again when somebody asks, at most once per second: what is changed in the
    folder is there when a page is loaded again."""

    def __init__(self, load: Callable[[], Site]) -> None:
        self._load, self._looked = load, float("-inf")
        self._site: Site = {}

    def __call__(self) -> Site:
        now = time.monotonic()
        if now - self._looked >= FRESH_SECONDS:
            self._site, self._looked = self._load(), now
        return self._site


def site_endpoint(site: Callable[[], Site], headers: Mapping[str, str]) -> Endpoint:
    """Answers by the part `path` of a route's path; without it, or where it is empty, by the page."""

    async def answer(request: Request) -> Response:
        found = site().get(request.path_params.get("path", PAGE) or PAGE)
        if found is None:
            raise HTTPException(404, "there is no such file")
        return found.answer(request, headers)

    return answer


def policy_words(**directives: str) -> str:
    """A content security policy that allows what is said, and nothing else: `script_src="'self'"`."""
    told = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"}
    told |= {name.replace("_", "-"): words for name, words in directives.items()}
    return "; ".join(f"{name} {words}".strip() for name, words in told.items())
