"""The serving suite at toy size: a real ad server and a bare endpoint are asked, and figures come out whole."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tacit_lab.bench import serving
from tacit_lab.bench.measurement import Item
from tacit_lab.bench.serving_load import BareServer, LoadFigures, Target, fetch, load
from tacit_lab.bench.serving_menus import MarketScale

TOY_MARKET = MarketScale(regions=3, topics=2, cities=2, campaigns=40, impressions=2_000, rounds=1, keys=1)
TOY = serving.ServingScale(
    turns=1, requests=60, connections=4, paced=40, memory_requests=100, market=TOY_MARKET
)
EDGES = ("menus", "openrtb", "openrtb_client")
GET = b"GET /any?thing=1 HTTP/1.1\r\nHost: x\r\n\r\n"


def plain(items: Sequence[Item], label: str) -> Iterable[Item]:  # noqa: ARG001
    return items


@pytest.mark.slow
def test_the_suite_runs_and_names_every_bar() -> None:
    cores = os.sched_getaffinity(0)
    measured = {m.name: m for m in serving.run(plain, TOY)}
    bars = {
        **{f"{name}_vs_bare": 0.5 for name in EDGES}, **{f"{name}_wall_vs_bare": None for name in EDGES},
        **{f"{name}_p99_vs_bare": 3.0 for name in EDGES}, **{f"{name}_memory_rise": 1.1 for name in EDGES},
        "menus_rebuild_seconds": 10.0, "menus_rebuild_processor_seconds": 10.0, "menus_change_seconds": 1.0,
        "menus_change_processor_seconds": 1.0, "menus_rebuild_growth": None,
        "menus_rebuild_below_processor_seconds": None, "menus_token_keys_processor_seconds": None,
    }  # fmt: skip
    assert {name: each.bar for name, each in measured.items()} == bars
    assert all(each.value >= 0 for each in measured.values()), "so little is done that speeds say nothing here"
    assert os.sched_getaffinity(0) == cores


def test_the_bare_endpoint_answers_what_it_was_given(tmp_path: Path) -> None:
    kept = {"etag": '"1"', "content-type": "application/json"}
    body = json.dumps({"menu": "é"}).encode()
    with BareServer(tmp_path, kept.items(), body) as bare:
        headers, found = fetch(bare.port, GET)
        assert found == body
        assert kept.items() <= headers.items()
        figures = [load(Target(bare.port, [GET], bare.process), 50, 3, rate) for rate in (None, 5_000.0)]
        assert [each.requests for each in figures] == [len(each.latencies) for each in figures] == [50, 50]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            "expected an answer of 200 or 204, got 503",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", "more bytes than it has"),
        (b"", "got an end"),
    ],
    ids=["refused", "too much", "closed"],
)
def test_what_is_no_whole_answer_is_not_counted_as_one(answer: bytes, problem: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(1_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises((ValueError, ConnectionError), match=problem):
                load(Target(listening.getsockname()[1], [GET], os.getpid()), 5, 1)
        finally:
            thread.join()


def test_percentiles_are_of_the_sorted_times() -> None:
    figures = LoadFigures(100, 1.0, 1.0, tuple(range(100)))
    assert [figures.percentile(share) for share in (0.0, 0.5, 0.99, 1.0)] == [0, 50, 99, 99]
