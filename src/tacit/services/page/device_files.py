"""The device's client for browsers, over GET: its modules, and what it must know of the parties.

    GET /device/NAME.js         a module of the client, without its comments; any origin's pages may import it
    GET /device/parties.json    where the parties are, their public keys, how contexts generalise, and limits

Every ad server has them. A page that shows ads should have its own copy of the client, and of what it must know
of the parties, as a browser asks whoever has them for both, and tells an address with it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import rjsmin
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import tacit
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.config import error_prefix
from tacit.deliver.device.account import DeviceLimits
from tacit.errors import BadInput, TacitError
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, is_coarser, load_hierarchy
from tacit.services.ads.campaign_menus import has_campaign_menus, read_campaign_market
from tacit.services.background import AppPart
from tacit.services.billing_settings import AdServerSettings
from tacit.services.log import error_line
from tacit.services.market_file import read_market
from tacit.services.problems import TroubleLog
from tacit.services.settings import Parties, PartySettings, load_parties
from tacit.services.sites import GUARDS, MEDIA, FreshSite, SiteFile, policy_words, site_endpoint

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds


PREBID = "prebid"  # the folder of what only Prebid needs
CONTEXTS_FILE = "contexts.toml"  # beside a market that lists its menus
ANY_ORIGIN = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}
JSON = "application/json"
LOOK_SECONDS = 10.0


def device_folder() -> Traversable:
    """Where the client's modules lie: in the repository that this code runs from, or in the package."""
    source = Path(tacit.__file__).resolve().parents[1]
    return source.parent / "device" if source.name == "src" else files("tacit") / "device"


def read_client(*, commented: bool = False) -> dict[str, bytes]:
    """The client's modules by name, and what Prebid needs by `prebid/NAME.js`: as they are written, or without
    comments and blanks, which are a quarter of what a browser would fetch."""
    found, folder = {}, device_folder()
    for where, before in ((folder, ""), (folder / PREBID, f"{PREBID}/")):
        for each in where.iterdir() if where.is_dir() else ():
            if each.name.endswith(".js"):
                source = each.read_bytes()
                found[f"{before}{each.name}"] = source if commented else rjsmin.jsmin(source)
    return found


def load_device() -> dict[str, SiteFile]:
    """The client's modules, as they are served; what only publishers need is not."""
    modules = read_client()
    return {name: SiteFile.of(modules[name], MEDIA[".js"]) for name in sorted(modules) if "/" not in name}


def origin_of(url: str) -> str:
    """What a browser calls the origin of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class PartyFacts:
    """What a device must know of the parties, as JSON; any thread may ask. The market is read again every few
    seconds where somebody asks: what it says of contexts is what devices go by."""

    def __init__(self, running: RunningAds) -> None:
        self._running, self._lock = running, threading.Lock()
        self._parties = read_parties(running.settings)
        self._market: dict[str, Any] = {"hierarchy": None, "disclosure": None}
        self._looked, self._trouble = float("-inf"), TroubleLog("devices are told of the market again")

    @property
    def proxy_url(self) -> str:
        """Where devices reach the proxy."""
        return self._running.settings.other.url if self._parties is None else self._parties.proxy.url

    def as_json(self) -> dict[str, Any]:
        running, parties = self._running, self._parties
        server, proxy = running.server.public_keys
        openrtb = running.settings.openrtb
        return {
            "version": 1,
            "proxy": {
                "url": self.proxy_url,
                "signing": proxy.hex(),
                "sealing": None if parties is None else parties.proxy.public_key.hex(),
            },
            "server": {
                "url": None if parties is None else parties.server.url,
                "signing": server.hex(),
                "sealing": running.server.request_key.hex(),
            },
            **self._look_at_market(),
            "limits": limits_as_json(DeviceLimits()),
            "vendor": None if openrtb is None else openrtb.vendor,
            "demonstration": running.settings.is_demonstration,
            **({"currency": openrtb.currency} if running.settings.is_demonstration and openrtb else {}),
        }

    def _look_at_market(self) -> dict[str, Any]:
        """As the file says, or said before somebody began to write it anew."""
        billing = self._running.settings.billing
        assert isinstance(billing, AdServerSettings), "an ad server's"
        with self._lock:
            now, trouble = time.monotonic(), ""
            if now - self._looked >= LOOK_SECONDS:
                try:
                    self._market = market_as_json(billing.market)
                except (TacitError, OSError) as problem:
                    trouble = f"devices are not told of the market as it is now: {error_line(problem)}"
                self._looked = now
                self._trouble.tell(trouble)
            return self._market


def read_parties(settings: PartySettings) -> Parties | None:
    """The parties.toml that the settings name; refused where it has other keys than these settings."""
    billing = settings.billing
    if not isinstance(billing, AdServerSettings) or billing.parties is None:
        return None
    found, secret = load_parties(billing.parties), settings.secrets["sealing"]
    with error_prefix(f"billing.parties: {billing.parties}"):
        for name, known, own in (
            ("server.public_key", found.server.public_key, OpeningKey(secret).public),
            ("server.signing_key", found.server.signing_key, SigningKey.derive(secret).public),
            ("proxy.signing_key", found.proxy.signing_key, billing.proxy_signing_key),
        ):
            if known not in (None, own):
                raise BadInput(f"{name}: expected the key that these settings have, got another")
    return found


def limits_as_json(limits: DeviceLimits) -> dict[str, Any]:
    """In epsilons and seconds."""
    central = limits.local if limits.central is None else limits.central
    return {
        "local": float(limits.local),
        "central": float(central),
        "perChoice": float(limits.per_choice),
        "delta": float(limits.delta),
        "windowSeconds": limits.window.seconds,
    }


def market_as_json(path: Path) -> dict[str, Any]:
    """How contexts generalise, and the finest levels that menus are made for: what a device discloses."""
    hierarchy: Hierarchy | None
    if has_campaign_menus(path):
        market = read_campaign_market(path)
        levels, hierarchy = [node.levels for node in market.nodes], market.hierarchy
    else:
        levels = [menu.node.levels for menu in read_market(path).menus]
        contexts = path.parent / CONTEXTS_FILE
        hierarchy = load_hierarchy(contexts) if contexts.is_file() else None
    return {
        "hierarchy": None if hierarchy is None else hierarchy_as_json(hierarchy),
        "disclosure": {"levels": list(finest_levels(levels))},
    }


def finest_levels(levels: Sequence[Levels]) -> Levels:
    """The first that none of the others is finer than."""
    known = list(dict.fromkeys(levels))
    return next(each for each in known if not any(other != each and is_coarser(each, other) for other in known))


def device_headers(proxy_url: str) -> Mapping[str, str]:
    """Of the client's modules, of which one is run as a worker: it may reach this server and the proxy."""
    policy = policy_words(script_src="'self'", connect_src=f"'self' {origin_of(proxy_url)}")
    return {**GUARDS, **ANY_ORIGIN, "content-security-policy": policy}


def device_part(running: RunningAds) -> AppPart:
    """The client's modules and the parties, of every ad server. A demonstration reads modules again when they
    change."""
    facts = PartyFacts(running)
    fixed = {} if running.settings.is_demonstration else load_device()
    site = FreshSite(load_device) if running.settings.is_demonstration else (lambda: fixed)
    headers = device_headers(facts.proxy_url)

    def parties(request: Request) -> Response:
        body = json.dumps(facts.as_json(), separators=(",", ":"), ensure_ascii=False).encode()
        return SiteFile.of(body, JSON).answer(request, headers)

    return AppPart(
        routes=[
            Route("/device/parties.json", parties, methods=["GET"]),
            Route("/device/{path}", site_endpoint(site, headers), methods=["GET"]),
        ]
    )
