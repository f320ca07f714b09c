"""The demonstration's page as a part of both parties' apps: its files, and what it asks them.

    ad server   GET  /, /page/...                  the page, and what it is made of
                GET  /demonstration/seen           the last messages, as this party saw them, newest last
                GET  /demonstration/ledger         charges behind ?after=NUMBER, with their reasons
                GET  /demonstration/verification   the last check of all invoices
                POST /demonstration/verification   begin one
                POST /demonstration/round          {"devices": 500, ...}: a simulated round of statistics
                POST /demonstration/visits         {"phones": 16, ...}: other phones show ads and report them
    proxy       GET  /demonstration/seen           as the ad server's; for pages of the ad server

They are there where the settings say that the market is made up, and that this very machine alone is answered;
elsewhere there is nothing at these paths. What begins something is for pages of this server alone. Whoever asks
for any of it by another name than this machine's own is refused: another site may have its name lead here (DNS
rebinding), and its pages would be this server's to a browser.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.errors import BadInput
from tacit.files import parse_strict_json
from tacit.services.background import NOTHING_MORE, AppPart
from tacit.services.connection_limits import is_loopback
from tacit.services.endpoints import Endpoint, read_body
from tacit.services.page.device_files import PartyFacts, origin_of
from tacit.services.page.ledger import LARGEST_NUMBER, ChargeFeed
from tacit.services.page.other_phones import OtherPhones, VisitDials
from tacit.services.page.seen import SeenMessages
from tacit.services.page.statistics_round import RoundDemonstration, RoundDials
from tacit.services.sites import GUARDS, FreshSite, SiteFile, load_folder, policy_words, site_endpoint

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

Dials = TypeVar("Dials")
SEEN = "/demonstration/seen"
MOST_BODY_BYTES = 4_096
NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
OWN_PAGES = ("same-origin", "none")  # where a browser says that a request comes from
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.]+))(?::[0-9]{1,5})?", re.IGNORECASE)


def load_page() -> dict[str, SiteFile]:
    """All files of `web`, by their path in it."""
    folder = files(__package__) / "web"
    return load_folder(folder) if folder.is_dir() else {}


def page_headers(proxy_url: str) -> Mapping[str, str]:
    """The page runs scripts and workers of this server alone, and reaches it and the proxy. Ads are shown in
    sandboxed frames whose text the page hands over, with images that came in a pack."""
    policy = policy_words(
        script_src="'self'",
        worker_src="'self'",
        style_src="'self'",
        img_src="'self' blob: data:",
        connect_src=f"'self' {origin_of(proxy_url)}",
        frame_src="'self'",
    )
    return {**GUARDS, "content-security-policy": policy}


def page_part(running: RunningAds) -> AppPart:
    """The page at the ad server of a demonstration, and nothing elsewhere."""
    if not running.settings.is_demonstration:
        return NOTHING_MORE
    site = site_endpoint(FreshSite(load_page), page_headers(PartyFacts(running).proxy_url))
    feed, check, rounds = ChargeFeed(running), running.invoice_check, RoundDemonstration()
    others = OtherPhones(running.settings, running.clock)

    async def seen(_request: Request) -> Any:
        return [] if running.seen is None else running.seen.latest()

    async def ledger(request: Request) -> Any:
        return await asyncio.to_thread(feed.read, _number(request, "after"))

    async def verification(_request: Request) -> Any:
        return await asyncio.to_thread(check.state)

    async def verify(_request: Request) -> Any:
        return await asyncio.to_thread(check.start)

    async def round_(request: Request) -> Any:
        return await _turned(request, RoundDials.of, rounds.run, "another round is running: come again")

    async def visits(request: Request) -> Any:
        return await _turned(request, VisitDials.of, others.visit, "other phones are visiting: come again")

    return AppPart(
        routes=[
            _near_route("/", site),
            _near_route("/page/{path:path}", site),
            _near_route(SEEN, _answers(seen)),
            _near_route("/demonstration/ledger", _answers(ledger)),
            _near_route("/demonstration/verification", _answers(verification)),
            _near_route("/demonstration/verification", _answers(verify, 202), "POST"),
            _near_route("/demonstration/round", _answers(round_), "POST"),
            _near_route("/demonstration/visits", _answers(visits), "POST"),
        ]
    )


async def _turned(
    request: Request, read: Callable[[Any], Dials], run: Callable[[Dials], Any | None], busy: str
) -> Any:
    """What comes of the dials in a request's body; 409 where somebody else's are being run."""
    body = await read_body(request, MOST_BODY_BYTES)
    try:
        found = await asyncio.to_thread(run, read(parse_strict_json(body)))
    except BadInput as wrong:
        raise HTTPException(400, str(wrong)) from None
    if found is None:
        raise HTTPException(409, busy)
    return found


def proxy_page_part(seen: SeenMessages | None, server_url: str) -> AppPart:
    """What the proxy of a demonstration shows of what it saw, to pages of the ad server; None: nothing."""
    if seen is None:
        return NOTHING_MORE

    async def answer(request: Request) -> Response:
        allowed = {"access-control-allow-origin": _own_origin(request, server_url), "vary": "origin"}
        return JSONResponse(seen.latest(), headers={**NO_STORE, **allowed})

    return AppPart(routes=[_near_route(SEEN, answer)])


def _own_origin(request: Request, url: str) -> str:
    """The origin of the ad server's pages, by whichever of this machine's names a browser has them."""
    own, asking = urlsplit(url), request.headers.get("origin", "")
    is_own = asking.startswith(f"{own.scheme}://") and asking.endswith(f":{own.port}")
    return asking if is_own and _is_near(asking.removeprefix(f"{own.scheme}://")) else origin_of(url)


def _is_near(host: str) -> bool:
    """Whether a Host header is one of this machine's own names, with any port."""
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback((found[1] or found[2]).lower())


def _near_route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """Answers whoever asked for this machine by its own name, and nobody else."""

    async def answer(request: Request) -> Response:
        if not _is_near(request.headers.get("host", "")):
            raise HTTPException(403, "expected this machine's own name as the host, got another")
        return await endpoint(request)

    return Route(path, answer, methods=[method])


def _answers(read: Callable[[Request], Awaitable[Any]], status: int = 200) -> Endpoint:
    """In JSON, which nobody keeps; what another site's page asks for is refused before anything is done."""

    async def answer(request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in OWN_PAGES:
            raise HTTPException(403, "this is for pages of this server")
        return JSONResponse(await read(request), status, headers=NO_STORE)

    return answer


def _number(request: Request, name: str) -> int | None:
    spelled = request.query_params.get(name)
    if spelled is None:
        return None
    is_whole = spelled.isascii() and spelled.isdecimal() and len(spelled) <= 16
    if not is_whole or int(spelled) > LARGEST_NUMBER:
        raise HTTPException(400, f"expected {name} as a whole number, got another text")
    return int(spelled)
