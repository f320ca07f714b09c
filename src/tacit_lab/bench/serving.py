"""Serving: what the ad server's public endpoints cost beside a bare endpoint that answers the same bytes.

The ad server runs as `tacit serve ads`, on one core; the load comes from this process, on another. The bare
endpoint is of the same framework, behind the same HTTP protocol, on the same core, and takes turns with it: the
ratio is what our own work leaves of the framework's throughput.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from tacit.errors import BillError
from tacit_lab.bench.billing_parties import NODE, AskedServer
from tacit_lab.bench.measurement import Measurement, SuiteProgress, processor_model
from tacit_lab.bench.serving_load import BareServer, LoadFigures, Target, fetch, load, on_cores_apart
from tacit_lab.bench.serving_menus import LARGE, MarketScale, rebuilding

DISTINCT = 256  # requests for bids, of as many people and pages
EXPECTED = {"menus": [b"entries"], "openrtb": [b"seatbid"], "openrtb_client": [b"seatbid", b"mechanism"]}
THROUGHPUT_BAR, LATENCY_BAR, MEMORY_BAR = 0.5, 3.0, 1.1
KEPT_HEADERS = (
    "content-type",
    "x-openrtb-version",
    "etag",
    "cache-control",
    "expires",
    "access-control-allow-origin",
)


@dataclass(frozen=True)
class ServingScale:
    """How much of everything; tests take less."""

    turns: int = 7
    requests: int = 4_000  # in one turn
    connections: int = 16
    paced: int = 4_000  # requests in one turn at half load
    memory_requests: int = 100_000
    market: MarketScale = LARGE


FULL = ServingScale()


def run(progress: SuiteProgress, scale: ServingScale = FULL) -> list[Measurement]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        asked = stack.enter_context(AskedServer(folder))
        requests = {
            "menus": [menu_request()],
            "openrtb": [bid_request(folder, number) for number in range(DISTINCT)],
            "openrtb_client": [client_request(folder, number) for number in range(DISTINCT)],
        }
        words = {
            "menus": "GET /menus",
            "openrtb": "POST /openrtb/bid of {:,} bytes",
            "openrtb_client": "POST /openrtb/bid of {:,} bytes, packed, with the client and consent: two menus",
        }
        parts: list[Callable[[], list[Measurement]]] = []
        for name, several in requests.items():
            headers, body = fetch(asked.port, several[0])
            kept = [(header, headers[header]) for header in KEPT_HEADERS if header in headers]
            bare = stack.enter_context(BareServer(folder, kept, body))
            ours = Target(asked.port, several, asked.process)
            peer = Target(bare.port, several, bare.process)
            for expected in EXPECTED[name]:
                if expected not in body:
                    raise BillError(f"expected {expected.decode()} from the ad server, got none")
            what = f"{words[name].format(len(several[0]))}, answered by {len(body):,} bytes"
            parts.append(partial(on_own_cores, ours, peer, partial(beside_bare, name, ours, peer, scale, what)))
            parts.append(partial(on_own_cores, ours, peer, partial(memory, name, ours, scale)))
        parts.append(partial(rebuilding, scale.market))
        return [measurement for part in progress(parts, "serving") for measurement in part()]


def on_own_cores(ours: Target, bare: Target, measure: Callable[[], list[Measurement]]) -> list[Measurement]:
    with on_cores_apart(ours, bare):
        return measure()


def menu_request() -> bytes:
    """For the public lane's menu of a context of the trial's market."""
    context = "&".join(
        f"context={level}:{quote(value)}" for level, value in zip(NODE.levels, NODE.values, strict=True)
    )
    return f"GET /menus?{context} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode()


def bid_request(folder: Path, number: int) -> bytes:
    """Of the trial's exchange, for a banner in that context, with what exchanges say besides; by its number one
    of several people and pages."""
    return _post_bid(folder, json.dumps(_bid_record(number)).encode())


def client_request(folder: Path, number: int) -> bytes:
    """The same of a page with the device's client, whose person agreed; packed."""
    said = _bid_record(number)
    said["imp"][0]["ext"]["tacit"] = {"version": 1}
    said["regs"]["gpp"] = "DBABTA~1YNN"
    return _post_bid(folder, gzip.compress(json.dumps(said).encode(), 6, mtime=0), "Content-Encoding: gzip\r\n")


def _bid_record(number: int) -> dict[str, Any]:
    return {
        "id": f"80ce30c53c16e6ede735f123ef6e32361bfc{number:04x}", "at": 1, "tmax": 250, "cur": ["USD"],
        "imp": [
            {
                "id": "1", "tagid": "news/top", "secure": 1, "bidfloor": 3.5, "bidfloorcur": "USD",
                "banner": {"format": [{"w": 728, "h": 90}, {"w": 300, "h": 250}], "topframe": 0, "pos": 1},
                "ext": {"gpid": "/1234/news/top", "prebid": {"bidder": {"tacit": {"placement": "7"}}}},
            }
        ],
        "site": {
            "id": "102855", "domain": "news.example", "cat": ["IAB8"],
            "page": f"https://news.example/food/{number:04x}",
            "ref": "https://search.example/", "publisher": {"id": "8953", "name": "News"},
        },
        "device": {
            "ua": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150",
            "ip": "203.0.113.7", "devicetype": 2, "language": "en", "dnt": 0, "lmt": 0,
            "geo": {"country": "USA", "region": "NO", "city": "Northport", "lat": 37.7, "lon": -122.4},
        },
        "user": {
            "id": f"u-{number:04x}", "buyeruid": f"b-{number:04x}",
            "eids": [{"source": "id.example", "uids": [{"id": "x"}]}],
        },
        "source": {"tid": "t-1", "fd": 1, "ext": {"schain": {"ver": "1.0", "complete": 1, "nodes": []}}},
        "regs": {"gdpr": 0, "gpp": "DBABBg~1YNN", "gpp_sid": [6]},
        "bcat": ["IAB25", "IAB7-39", "IAB23"], "badv": ["rival.example", "other.example"],
    }  # fmt: skip


def _post_bid(folder: Path, body: bytes, more: str = "") -> bytes:
    key = (folder / "exchange.secret").read_text().strip()
    head = (
        f"POST /openrtb/bid HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nX-OpenRTB-Version: 2.6\r\n{more}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(frozen=True)
class Turn:
    """Both in one turn: as fast as each can, and at half the rate that ours came to."""

    ours: LoadFigures
    bare: LoadFigures
    ours_paced: LoadFigures
    bare_paced: LoadFigures


def beside_bare(name: str, ours: Target, bare: Target, scale: ServingScale, what: str) -> list[Measurement]:
    """Throughput by processor time, and the 99th percentile of answers at half load, beside the bare one's."""
    turns = [one_turn(ours, bare, scale) for _ in range(1 + scale.turns)][1:]
    per_request = {
        "ours": [each.ours.processor / each.ours.requests for each in turns],
        "bare": [each.bare.processor / each.bare.requests for each in turns],
    }
    ratio = median(
        _share(theirs, own) for own, theirs in zip(per_request["ours"], per_request["bare"], strict=True)
    )
    slower = median(each.ours_paced.percentile(0.99) / each.bare_paced.percentile(0.99) for each in turns)
    rates = {
        "ours": median(each.ours.requests / each.ours.wall for each in turns),
        "bare": median(each.bare.requests / each.bare.wall for each in turns),
    }
    where = (
        f"{what}; {scale.connections} connections over loopback, the service on one core, the load on another; "
        f"bare: one endpoint of Starlette behind the same protocol, the same bytes; medians of {scale.turns} "
        f"interleaved turns on {processor_model()}"
    )
    costs = ", ".join(
        f"{who} {1e6 * median(per_request[who]):.0f} us of the processor, {rates[who]:,.0f} requests a second"
        for who in per_request
    )
    waits = ", ".join(
        f"{who} {1000 * median(each):.2f} ms"
        for who, each in (
            ("ours", [each.ours_paced.percentile(0.99) for each in turns]),
            ("bare", [each.bare_paced.percentile(0.99) for each in turns]),
        )
    )
    return [
        Measurement(f"{name}_vs_bare", ratio, "x", THROUGHPUT_BAR, True, f"{costs}; {where}"),
        Measurement(f"{name}_wall_vs_bare", rates["ours"] / rates["bare"], "x", None, True, where),
        Measurement(
            f"{name}_p99_vs_bare", slower, "x", LATENCY_BAR, False,
            f"both at half the rate that ours came to, from when a request was due: {waits}; {where}",
        ),
    ]  # fmt: skip


def one_turn(ours: Target, bare: Target, scale: ServingScale) -> Turn:
    fast = [load(target, scale.requests, scale.connections) for target in (bare, ours)]
    rate = fast[1].requests / fast[1].wall / 2
    paced = [load(target, scale.paced, scale.connections, rate) for target in (bare, ours)]
    return Turn(ours=fast[1], bare=fast[0], ours_paced=paced[1], bare_paced=paced[0])


def _share(part: float, whole: float) -> float:
    """Zero where so little was done that the system's clock saw none of it."""
    return part / whole if whole else 0.0


def memory(name: str, target: Target, scale: ServingScale) -> list[Measurement]:
    """What the service's process holds after so many requests, in times of what it held before them."""
    before = target.resident_bytes()
    load(target, scale.memory_requests, scale.connections)
    after = target.resident_bytes()
    settings = (
        f"resident memory of the ad server's process: {before / 1e6:.1f} MB, and {after / 1e6:.1f} MB after "
        f"{scale.memory_requests:,} requests"
    )
    return [Measurement(f"{name}_memory_rise", after / before, "x", MEMORY_BAR, False, settings)]
