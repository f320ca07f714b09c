"""What devices ask of a party, for devices in browsers: pages of any origin may ask, and read the answers.

A device in a browser is part of a publisher's page, and the proxy is somebody else's: a browser hands answers
over only where they say that it may, and asks before it puts a report (the preflight of the Fetch standard).
Nothing of this grants more than any program has that is no browser: devices are told apart by nothing but what
they send, and no cookie or password is looked at.

It holds route by route. What stands between the parties, what is for operators and what needs a key is for no
page, also where its path is a device's too (`POST /rounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.services.problems import CatchAllMiddleware

ANY_ORIGIN = b"access-control-allow-origin", b"*"
PREFLIGHT_SECONDS = 86_400  # for which a browser need not ask again


class AnyOriginMiddleware:
    """Says of every answer of a route, refusals among them, that pages of any origin may read it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def open_to_all(message: Message) -> None:
            if message["type"] == "http.response.start" and ANY_ORIGIN not in message["headers"]:
                message = {**message, "headers": [*message["headers"], ANY_ORIGIN]}
            await send(message)

        await self._app(scope, receive, open_to_all)


def page_routes(path: str, **endpoints: Callable[..., Any]) -> list[Route]:
    """The routes of a path, by method, that pages of any origin may call, and the answer to their preflight.

    What nobody foresaw is answered within, so that a browser can read that, too.
    """
    opened = [Middleware(AnyOriginMiddleware), Middleware(CatchAllMiddleware)]
    headers = {
        "access-control-allow-methods": ", ".join(sorted(endpoints)),
        "access-control-allow-headers": "content-type",
        "access-control-max-age": str(PREFLIGHT_SECONDS),
    }

    async def preflight(_request: Request) -> Response:
        return Response(status_code=204, headers=headers)

    routes = [Route(path, each, methods=[method], middleware=opened) for method, each in endpoints.items()]
    return [*routes, Route(path, preflight, methods=["OPTIONS"], middleware=opened)]
