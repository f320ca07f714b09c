"""Bid requests as exchanges of several kinds spell them, an ad server that answers them, and a schema.

The samples are made up after the shapes that are usual: a header bidding server's web banner, an app's
exchange, video alone, and what each says of consent. `RESPONSE` is the response of OpenRTB 2.6 as JSON Schema,
by the specification's tables; no object has other keys, so that nothing is sent by accident.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

from tacit.bill.server.notices import NoticeKey
from tacit.deliver.campaigns.campaign import AdCampaign
from tacit.deliver.campaigns.creatives import check_creative
from tacit.deliver.campaigns.store import MACHINE, Advertiser, Author, CampaignStore
from tacit.entropy import Entropy
from tacit.services import trial
from tacit.services.ads.openrtb import BidEndpoint
from tacit.services.ads.openrtb_ads import AdShelf
from tacit.services.ads.openrtb_bidder import Bidder
from tacit.services.background import AppPart
from tacit.services.settings import read_secret_file
from tests.support.ad_campaigns import campaign_record, image_record, png, text_record
from tests.support.ads_services import AdsWorld

ADVERTISERS = {1: "Bean & Leaf", 2: "Long Run Shoes", 3: "Two Wheels", 4: "Tea House"}
CATEGORIES = {1: ["IAB8-5"], 2: ["IAB17-32"], 3: ["IAB17"], 4: []}
BUDGETS = {1: 50_000_000, 2: 80_000_000, 3: None, 4: None}
VENDOR = 755

# A person's own: none of it may be found anywhere but in what was sent.
MARKS = {
    "address": "203.0.113.77", "device": "6D92078A-8246-4BA4-AE5B-76104861E7DC", "person": "person-f00dcafe",
    "page": "https://news.example/health/private-page?session=s3cr3t", "agent": "Mozilla/5.0 (marked agent)",
}  # fmt: skip

WEB: dict[str, Any] = {
    "id": "80ce30c53c16e6ede735f123ef6e32361bfc7b22",
    "at": 1,
    "tmax": 10_000,  # a busy machine must not decide a test
    "cur": ["USD"],
    "imp": [
        {
            "id": "1", "tagid": "news/top", "secure": 1, "bidfloor": 3.5, "bidfloorcur": "USD",
            "banner": {"format": [{"w": 728, "h": 90}, {"w": 300, "h": 250}], "topframe": 0, "pos": 1},
            "ext": {"gpid": "/1234/news/top", "prebid": {"bidder": {"tacit": {"placement": "7"}}}},
        }
    ],
    "site": {
        "id": "102855", "domain": "news.example", "cat": ["IAB8"], "page": MARKS["page"],
        "publisher": {"id": "8953", "name": "News", "domain": "news.example"}, "content": {"language": "en"},
    },
    "device": {
        "ua": MARKS["agent"], "ip": MARKS["address"], "devicetype": 2, "language": "en", "dnt": 0, "lmt": 0,
        "geo": {"country": "USA", "region": "NO", "city": "Northport", "lat": 37.7, "lon": -122.4, "type": 2},
        "sua": {"browsers": [{"brand": "Chromium", "version": ["150"]}], "mobile": 0},
    },
    "user": {"id": MARKS["person"], "eids": [{"source": "id.example", "uids": [{"id": "x"}]}]},
    "source": {"tid": "t-1", "fd": 1, "ext": {"schain": {"ver": "1.0", "complete": 1, "nodes": []}}},
    "bcat": ["IAB25", "IAB7-39"],
    "badv": ["rival.example"],
    "ext": {"prebid": {"targeting": {"includewinners": True}}},
}  # fmt: skip

APP: dict[str, Any] = {
    "id": "IxexyLDIIk",
    "at": 2,
    "tmax": 10_000,
    "test": 0,
    "imp": [
        {
            "id": "a1", "instl": 0, "displaymanager": "sdk", "displaymanagerver": "4.1", "bidfloor": 0.8,
            "banner": {"w": 320, "h": 50, "btype": [4], "battr": [14], "api": [3], "mimes": ["text/html"]},
        }
    ],
    "app": {
        "id": "agltb3B1Yi", "name": "Runs", "bundle": "com.example.runs", "cat": ["IAB17-32"], "ver": "1.0.2",
        "storeurl": "https://apps.example/runs", "publisher": {"id": "agltb3B", "name": "Runs"},
    },
    "device": {
        "ua": MARKS["agent"], "ip": MARKS["address"], "ifa": MARKS["device"], "os": "iOS", "osv": "18.1",
        "devicetype": 4, "connectiontype": 3, "lmt": 0, "geo": {"country": "USA", "region": "SO", "type": 1},
    },
    "user": {"id": MARKS["person"], "yob": 1980, "gender": "F"},
}  # fmt: skip

VIDEO: dict[str, Any] = {
    **WEB,
    "id": "1234567893",
    "imp": [
        {
            "id": "1",
            "video": {"w": 640, "h": 480, "mimes": ["video/mp4"], "protocols": [2, 3], "minduration": 5},
        }
    ],
}


def sample(of: dict[str, Any] = WEB, **changes: Any) -> dict[str, Any]:
    """A copy with other keys at its top."""
    return {**copy.deepcopy(of), **changes}


def with_imp(of: dict[str, Any] = WEB, **changes: Any) -> dict[str, Any]:
    """A copy whose one impression has other keys."""
    made = copy.deepcopy(of)
    made["imp"][0] |= changes
    return made


def _object(properties: dict[str, Any], *needed: str) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(needed), "additionalProperties": False,
    }  # fmt: skip


def _list(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number", "minimum": 0}
FLAG = {"enum": [0, 1]}
EXTENSION = {"type": "object"}
BID = _object(
    {
        "id": TEXT, "impid": TEXT, "price": NUMBER, "nurl": TEXT, "burl": TEXT, "lurl": TEXT, "adm": TEXT,
        "adid": TEXT, "adomain": _list(TEXT), "bundle": TEXT, "iurl": TEXT, "cid": TEXT, "crid": TEXT,
        "tactic": TEXT, "cattax": WHOLE, "cat": _list(TEXT), "attr": _list(WHOLE), "apis": _list(WHOLE),
        "api": WHOLE, "protocol": WHOLE, "qagmediarating": WHOLE, "language": TEXT, "langb": TEXT,
        "dealid": TEXT, "w": WHOLE, "h": WHOLE, "wratio": WHOLE, "hratio": WHOLE, "exp": WHOLE, "dur": WHOLE,
        "mtype": {"enum": [1, 2, 3, 4]}, "slotinpod": WHOLE, "ext": EXTENSION,
    },
    "id", "impid", "price",
)  # fmt: skip
SEAT_BID = _object({"bid": _list(BID, 1), "seat": TEXT, "group": FLAG, "ext": EXTENSION}, "bid")
RESPONSE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        {
            "id": TEXT, "seatbid": _list(SEAT_BID, 1), "bidid": TEXT,
            "cur": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "customdata": TEXT, "nbr": WHOLE, "ext": EXTENSION,
        },
        "id",
    ),
}  # fmt: skip
CHECK = jsonschema_rs.validator_for(RESPONSE)


class ExchangeWorld(AdsWorld):
    """An ad server with creatives, and the exchange of its trial settings."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.secret = read_secret_file("secret", folder / "trial" / "exchange.secret").hex()
        self.headers = {
            "authorization": f"Bearer {self.secret}",
            "x-openrtb-version": "2.6",
            "accept-encoding": "identity",
        }
        self.put_ads()
        self.wait_for_epoch()

    def more_parts(self) -> list[AppPart]:
        """With an id in the list of vendors."""
        folder = self.folder / "trial"
        if not folder.exists():
            trial.write_trial(folder, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
            settings = folder / "server.toml"
            settings.write_text(
                settings.read_text().replace('currency = "USD"', f'currency = "USD"\nvendor = {VENDOR}')
            )
        return super().more_parts()

    def endpoint(
        self,
        store: CampaignStore | None = None,
        timer: Callable[[], float] = time.monotonic,
        *,
        clients: bool = True,
    ) -> BidEndpoint:
        """Another one beside that of the app, on another store or clock, or for another kind of exchange."""
        running, settings = self.running, self.running.settings.openrtb
        assert settings is not None
        (trial,) = settings.exchanges
        settings = replace(settings, exchanges=(replace(trial, clients=clients),))
        shelf = AdShelf(running.campaigns if store is None else store, running.clock)
        key = NoticeKey.derive(running.settings.secrets["sealing"])
        bidder = Bidder(settings, running.board, shelf, key, clock=running.clock, draw=running.entropy.bytes)
        return BidEndpoint(settings, bidder, timer=timer)

    def ask_all(
        self, endpoint: BidEndpoint, bodies: Iterable[bytes], **headers: str
    ) -> list[tuple[int, bytes]]:
        """Status and body of each answer of an endpoint, without a client in between."""
        sent = [(name.encode(), value.encode()) for name, value in {**self.headers, **headers}.items()]

        async def ask(body: bytes) -> tuple[int, bytes]:
            told: list[Any] = []
            scope = {"type": "http", "method": "POST", "path_params": {}, "headers": sent}

            async def receive() -> Any:
                return {"type": "http.request", "body": body}

            async def send(message: Any) -> None:
                told.append(message)

            await endpoint(scope, receive, send)
            return told[0]["status"], told[1]["body"]

        async def work() -> list[tuple[int, bytes]]:
            return [await ask(body) for body in bodies]

        return self._loop.run(work())

    def raw(self, body: bytes, **headers: str) -> tuple[httpx.Headers, bytes]:
        """An answer as it is sent, not unpacked."""
        url = "http://server.test/openrtb/bid"
        request = httpx.Request("POST", url, content=body, headers={**self.headers, **headers})

        async def send() -> tuple[httpx.Headers, bytes]:
            answer = await httpx.ASGITransport(self._apps["server.test"]).handle_async_request(request)
            return answer.headers, b"".join([piece async for piece in answer.aiter_raw()])

        return self._loop.run(send())

    def put_ads(self) -> None:
        """Campaigns of the trial's market: the first has an image and a text, the others a text each."""
        by = Author(MACHINE, self.now)
        store = self.running.campaigns
        for number, name in ADVERTISERS.items():
            store.put_advertiser(Advertiser(name), by)
            record = campaign_record(number, name, categories=CATEGORIES[number], budget_micros=BUDGETS[number])
            store.add_campaign(AdCampaign.from_json(record), by)
            address = f"https://www.{name.split()[0].lower()}.example/from?ad={number}"
            texts = text_record(title=f"{name}: ${{AUCTION_PRICE}}", text="Now <b>open</b>", address=address)
            store.add_creative(*check_creative(texts, number, lambda html, _: html), by)
        image = image_record(png(300, 250), address="https://www.bean.example/roast", title='"Roast" & more')
        store.add_creative(*check_creative(image, 1, lambda html, _: html), by)

    def bid(self, request: Any, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        if isinstance(request, bytes):
            headers.setdefault("content-type", "application/json")
            return self.client.post("http://server.test/openrtb/bid", content=request, headers=headers, **more)
        return self.client.post("http://server.test/openrtb/bid", json=request, headers=headers, **more)

    def bids(self, request: Any) -> list[dict[str, Any]]:
        """The bids of a response that is one of OpenRTB; none where there is no bid."""
        answer = self.bid(request)
        assert answer.status_code == 200, answer.status_code
        said: dict[str, Any] = answer.json()
        CHECK.validate(said)
        assert said["id"] == request["id"]
        return [bid for seat in said.get("seatbid", []) for bid in seat["bid"]]

    def no_bid(self, request: Any) -> int:
        """The reason that is given for no bid."""
        said = self.bid(request).json()
        CHECK.validate(said)
        assert said.keys() == {"id", "nbr"}, said
        return int(said["nbr"])

    def notify(self, address: str, method: str = "GET", more: str = "") -> int:
        assert address.startswith("http://127.0.0.1:8472/openrtb/notice/")
        path = address.removeprefix("http://127.0.0.1:8472")
        return self.client.request(method, f"http://server.test{path}{more}").status_code
