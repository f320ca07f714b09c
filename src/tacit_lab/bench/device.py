"""Device: what the client for browsers weighs, what it costs a page and a worker, whether it draws by law.

Both parties run as `tacit serve` starts them, with a market of many candidates; Chromium without a window loads
the client from the ad server. Times of the page's own thread are the processor's, from the browser's trace.
Those of a worker's turn, in which it waits for its database, and of tokens, ours and the peer's in turns, are
the wall clock's. Without a browser bytes alone are measured; without esbuild and the peer, no ratio.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from scipy.special import gammaincc

from tacit.errors import BadInput
from tacit.services.page.device_files import PREBID, read_client
from tacit_lab.bench.device_page import (
    PEER,
    BenchPage,
    Bundler,
    Task,
    bench_page,
    missing_browser,
    tasks_between,
    zipped_bytes,
)
from tacit_lab.bench.measurement import Measurement, SuiteProgress, processor_model

ADAPTER = "tacitBidAdapter.js"
CLIENT_BYTES_BAR, ADAPTER_BYTES_BAR = 12 * 1024, 3 * 1024
TASK_BAR, TURN_BAR = 5.0, 15.0  # milliseconds
TOKEN_BAR, TOKEN_SIZE_BAR = 20.0, 5.0
FALSE_ALARM = 1e-6
LEAST_EXPECTED = 5.0  # choices of a candidate, for the law of chi-square
WORDS = 2**64
TURN, TURNED = "tacit-bench-turn-{}", "tacit-bench-turned-{}"  # marks of device_steps.js
OPEN, SHOW, END = "tacit-bench-open", "tacit-bench-show", "tacit-bench-end"


@dataclass(frozen=True)
class DeviceScale:
    """How much of everything; tests take less."""

    candidates: int = 20
    ads: int = 30
    turns: int = 50
    token_rounds: int = 60
    choices: int = 1_000


FULL = DeviceScale()


def run(
    progress: SuiteProgress,
    scale: DeviceScale = FULL,
    bundler: Bundler | None = None,
    missing: str | None = None,
) -> list[Measurement]:
    """`bundler` and `missing` are where the peer is looked for and what keeps it from a browser; by default as
    they are found here."""
    bundler = Bundler.found() if bundler is None else bundler
    missing = missing_browser() if missing is None else missing
    parts: list[Callable[[], list[Measurement]]] = [
        partial(client_sizes, bundler),
        partial(token_size, bundler),
    ]
    if missing:
        names = ("main_thread_task", "worker_turn", "blind_finalize_vs_blindrsa", "choices_match")
        parts.append(lambda: [_not_measured(name, missing) for name in names])
        return [measurement for part in progress(parts, "device") for measurement in part()]
    with tempfile.TemporaryDirectory() as folder:
        peer = b"" if bundler.missing else bundler.peer_tokens()
        with bench_page(Path(folder) / "market", scale.candidates, peer) as page:
            parts += [
                partial(main_thread, page, scale),
                partial(worker_turns, page, scale),
                partial(token_turns, page, scale, bundler),
                partial(choices, page, scale),
            ]
            return [measurement for part in progress(parts, "device") for measurement in part()]


def _not_measured(name: str, why: str, unit: str = "") -> Measurement:
    return Measurement(name, math.nan, unit, settings=f"not measured: {why}")


def _where() -> str:
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return f"in Chromium on {processor_model()}, whose cores had {busy:.1f} times as much work as they can do"


def client_sizes(bundler: Bundler) -> list[Measurement]:
    """Bytes of the client as it is served, and of what else could be made of it."""
    served, written = read_client(), read_client(commented=True)
    own = [name for name in sorted(served) if "/" not in name]
    sizes = [zipped_bytes(b"".join(files[name] for name in own)) for files in (served, written)]
    about = f"all {len(own)} modules of the client in one, packed by gzip -9"
    found = [
        Measurement(
            "client_bytes", sizes[0], "bytes", CLIENT_BYTES_BAR, False, f"{about}, as an ad server serves them"
        ),
        Measurement("client_bytes_written", sizes[1], "bytes", settings=f"{about}, as they are written"),
    ]
    name = "client_bytes_minified"
    if bundler.missing:
        found.append(_not_measured(name, bundler.missing, "bytes"))
    else:
        small = zipped_bytes(bundler.whole_client())
        found.append(
            Measurement(name, small, "bytes", settings=f"{about}, as esbuild bundles and minifies them")
        )
    words = f"{ADAPTER}, which Prebid is built with, packed by gzip -9, as it is written"
    size = zipped_bytes(written[f"{PREBID}/{ADAPTER}"])
    return [*found, Measurement("adapter_bytes", size, "bytes", ADAPTER_BYTES_BAR, False, words)]


def token_size(bundler: Bundler) -> list[Measurement]:
    name = "token_code_size"
    if bundler.missing:
        return [_not_measured(name, bundler.missing, "x")]
    own, peers = zipped_bytes(bundler.own_tokens()), zipped_bytes(bundler.peer_tokens())
    settings = (
        "what blinds and finalizes a token, with all that it needs, as esbuild bundles and minifies it, packed "
        f"by gzip -9: {PEER} {peers:,} bytes, ours {own:,}"
    )
    return [Measurement(name, peers / own, "x", TOKEN_SIZE_BAR, True, settings)]


def main_thread(page: BenchPage, scale: DeviceScale) -> list[Measurement]:
    """The longest task of the page's own thread, in the browser's trace, while the client shows ads."""
    found, events = page.trace("showAds", scale.ads)
    _check_private(found, scale.candidates, scale.ads)
    opening, showing = tasks_between(events, OPEN, SHOW), tasks_between(events, SHOW, END)
    what = (
        f"of the page's own thread, by the browser's trace, {{}}: {scale.ads} private ads in an element, one "
        f"after the other, from {scale.candidates} candidates; {_where()}"
    )
    timed = what.format("processor time (the wall clock has others' work in it)")
    wall, each_ad = max(each.wall for each in showing), sum(each.processor for each in showing) / scale.ads
    before = f"the longest while the client opens and fetches its menu, before: {timed}"
    return [
        Measurement("main_thread_task", _longest(showing), "ms", TASK_BAR, False, f"the longest task {timed}"),
        Measurement(
            "main_thread_task_wall", wall, "ms", settings=f"the longest task {what.format('wall clock')}"
        ),
        Measurement("main_thread_ad", each_ad, "ms", settings=f"all tasks together, for one ad: {timed}"),
        Measurement("main_thread_task_opening", _longest(opening), "ms", settings=before),
    ]


def _longest(tasks: Sequence[Task]) -> float:
    return max(each.processor for each in tasks)


def _check_private(found: dict[str, Any], candidates: int, ads: int) -> None:
    """Whether what was measured is what was meant."""
    if found["candidates"] != candidates or found["lanes"] != ["personal"] * ads:
        raise BadInput(
            f"expected {ads} private choices from {candidates} candidates, got "
            f"{found['lanes'].count('personal')} from {found['candidates']}"
        )


def worker_turns(page: BenchPage, scale: DeviceScale) -> list[Measurement]:
    """From a token that is there to a report that is kept, in a worker, its database included."""
    found = page.take("inWorker", "takeTurns", scale.turns)
    _check_private(found, scale.candidates, scale.turns)
    times = sorted(found["times"])
    settings = (
        f"a turn in a worker whose token is there: choosing from {scale.candidates} candidates, confirming, "
        f"making and keeping the report; IndexedDB included, the network not; wall clock, {scale.turns} turns, "
        f"{_where()}"
    )
    late = times[math.ceil(0.95 * len(times)) - 1]
    _, events = page.trace("inWorker", "takeTurns", scale.turns)
    own = [
        sum(each.processor for each in tasks_between(events, TURN.format(turn), TURNED.format(turn)))
        for turn in range(scale.turns)
    ]
    alone = (
        "the same again, the worker's own thread alone, by the browser's trace, processor time; database and "
        f"WebCrypto work in others; {_where()}"
    )
    return [
        Measurement("worker_turn", median(times), "ms", TURN_BAR, False, settings),
        Measurement("worker_turn_p95", late, "ms", settings=settings),
        Measurement("worker_turn_processor", median(own), "ms", settings=alone),
    ]


def token_turns(page: BenchPage, scale: DeviceScale, bundler: Bundler) -> list[Measurement]:
    """Tokens by ours and by the peer, one after the other in the same page."""
    name = "blind_finalize_vs_blindrsa"
    if bundler.missing:
        return [_not_measured(name, bundler.missing, "x")]
    found = page.take("takeTokenTurns", scale.token_rounds)
    ours, theirs = median(found["ours"]), median(found["theirs"])
    settings = (
        "drawing, blinding and finalizing a token of RSA-2048 (RFC 9474, SHA-384, PSS, randomized), checks "
        f"included; wall-clock medians of {scale.token_rounds} interleaved turns in one page: {PEER} "
        f"{theirs:.1f} ms, ours {ours:.2f} ms; {_where()}"
    )
    return [Measurement(name, theirs / ours, "x", TOKEN_BAR, True, settings)]


def choices(page: BenchPage, scale: DeviceScale) -> list[Measurement]:
    """Choices by the device's own draws, beside the exact law of the same plan and profile."""
    found = page.take("inWorker", "countChoices", scale.choices)
    words = [int(each) for each in found["words"]]
    if sum(words) != WORDS or sum(found["counts"]) != scale.choices:
        raise BadInput("expected all words and all choices to be of a candidate, got others")
    chance = chi_square_tail(found["counts"], words)
    settings = (
        f"how likely counts are that far from the exact law, by chi-square: {scale.choices:,} choices in a "
        f"worker from {scale.candidates} candidates, of which the plan keeps {sum(map(bool, words))}; draws by "
        f"the law miss the bar about once in {1 / FALSE_ALARM:,.0f} runs"
    )
    return [Measurement("choices_match", chance, "p", FALSE_ALARM, True, settings)]


def chi_square_tail(counts: Sequence[int], words: Sequence[int]) -> float:
    """The chance that choices by a law of these weights are as far from what it expects, or farther; 0 where
    one was made that it never makes. Rare candidates count together.

    >>> chi_square_tail([50, 50], [1, 1]), chi_square_tail([1, 99], [0, 1])
    (1.0, 0.0)
    """
    if any(count and not weight for count, weight in zip(counts, words, strict=True)):
        return 0.0
    drawn, whole = sum(counts), sum(words)
    cells, rare = list[tuple[float, float]](), (0.0, 0.0)
    for count, weight in zip(counts, words, strict=True):
        expected = drawn * (weight / whole)
        if expected >= LEAST_EXPECTED:
            cells.append((float(count), expected))
        else:
            rare = rare[0] + count, rare[1] + expected
    if rare[1] >= LEAST_EXPECTED:
        cells.append(rare)
    elif cells and rare[1]:
        least = min(cells, key=lambda each: each[1])
        cells[cells.index(least)] = least[0] + rare[0], least[1] + rare[1]
    if len(cells) < 2:
        raise BadInput(f"expected choices enough to tell two candidates apart, got {drawn}")
    squares = sum((count - expected) ** 2 / expected for count, expected in cells)
    return float(gammaincc((len(cells) - 1) / 2, squares / 2))
