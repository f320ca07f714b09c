"""Serving: what the ad server's public endpoints cost beside a bare endpoint that answers the same bytes.

The ad server runs as `tacit serve ads`, on one core; the load comes from this process, on another. The bare
endpoint is of the same framework, behind the same HTTP protocol, on the same core, and takes turns with it: the
ratio is what our own work leaves of the framework's throughput.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import quote

from tacit_lab.bench.billing_parties import NODE, AskedServer
from tacit_lab.bench.measurement import Measurement, SuiteProgress, processor_model
from tacit_lab.bench.serving_load import BareServer, LoadFigures, Target, fetch, load, on_cores_apart

THROUGHPUT_BAR, LATENCY_BAR, MEMORY_BAR = 0.5, 3.0, 1.1
KEPT_HEADERS = ("content-type", "etag", "cache-control", "expires", "access-control-allow-origin")


@dataclass(frozen=True)
class ServingScale:
    """How much of everything; tests take less."""

    turns: int = 7
    requests: int = 4_000  # in one turn
    connections: int = 16
    paced: int = 4_000  # requests in one turn at half load
    memory_requests: int = 100_000


FULL = ServingScale()


def run(progress: SuiteProgress, scale: ServingScale = FULL) -> list[Measurement]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        asked = stack.enter_context(AskedServer(folder))
        request = menu_request()
        headers, body = fetch(asked.port, request)
        kept = [(name, headers[name]) for name in KEPT_HEADERS if name in headers]
        bare = stack.enter_context(BareServer(folder, kept, body))
        ours = Target(asked.port, request, asked.process)
        peer = Target(bare.port, request, bare.process)
        stack.enter_context(on_cores_apart(ours, peer))
        parts: list[Callable[[], list[Measurement]]] = [
            partial(beside_bare, "menus", ours, peer, scale, f"GET /menus, {len(body):,} bytes"),
            partial(memory, "menus", ours, scale),
        ]
        return [measurement for part in progress(parts, "serving") for measurement in part()]


def menu_request() -> bytes:
    """For the public lane's menu of a context of the trial's market."""
    context = "&".join(
        f"context={level}:{quote(value)}" for level, value in zip(NODE.levels, NODE.values, strict=True)
    )
    return f"GET /menus?{context} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode()


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
