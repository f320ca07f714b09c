"""Long mixed calls on the durable stores have the answers that the stores in memory give."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from gather_store_places import DIGEST, OTHER, Stores, a_job, report, word
from ledger_places import Place
from tacit.errors import Refused
from tacit.gather.proxy.store import NewReport, Phase
from tacit.gather.server.store import Phase as ServerPhase
from tacit.gather.simulate.memory import MemoryProxyStore, MemoryServerStore

Call = tuple[str, tuple[Any, ...]]


def outcome(store: Any, call: Call) -> Any:
    name, arguments = call
    try:
        found = getattr(store, name)(*arguments)
    except Refused as problem:
        return problem.reason
    return sorted(found) if isinstance(found, Iterator) else found


def proxy_calls(draw: random.Random) -> Iterator[Call]:
    """Calls of every kind on two rounds, with names from a small space so that they collide."""
    for _ in range(110):
        digest = draw.choice([DIGEST, DIGEST, OTHER])
        kind = draw.random()
        if kind < 0.35:
            batch: list[NewReport] = []
            for _ in range(draw.randrange(1, 6)):
                number = draw.randrange(60)
                device = number if draw.random() < 0.8 else draw.randrange(60)
                batch.append(report(number, device=device, digest=digest))
            yield "add_reports", (batch,)
        elif kind < 0.5:
            yield "begin_job", (digest, draw.randrange(1, 4))
        elif kind < 0.7:
            verdicts = bytes(draw.choice([0, 0, 0, 9]) for _ in range(draw.randrange(1, 4)))
            yield "finish_job", (digest, draw.randrange(6), verdicts, b"total")
        elif kind < 0.97:
            name = draw.choice(["unanswered_job", "waiting", "accepted_ids", "accepted_count", "totals"])
            yield name, (digest,)
        else:
            yield "keep_share", (OTHER, b"hash", b"share")


def server_calls(draw: random.Random) -> Iterator[Call]:
    for _ in range(36):
        digest = draw.choice([DIGEST, DIGEST, OTHER])
        if draw.random() < 0.97:
            ids = draw.sample(range(200), draw.randrange(6))
            yield "keep_job", (digest, *a_job(draw.randrange(30), ids, [draw.choice([0, 0, 8]) for _ in ids]))
            yield "seen", (digest, [word(draw.randrange(200)) for _ in range(5)])
            yield draw.choice(["accepted_ids", "accepted_count", "totals"]), (digest,)
            yield "job", (digest, draw.randrange(30))
        else:
            yield "keep_result", (OTHER, b"hash", b"result")


@pytest.mark.parametrize(("place", "seed"), [("sqlite", 0), ("sqlite", 1), ("postgres", 2)], indirect=["place"])
@pytest.mark.parametrize("party", ["proxy", "server"])
def test_the_same_calls_have_the_same_answers_as_in_memory(place: Place, party: str, seed: int) -> None:
    stores = Stores(place)
    memory: Any = MemoryProxyStore() if party == "proxy" else MemoryServerStore()
    store = getattr(stores, party)()
    for each in (memory, store):
        each.open_round(DIGEST, "clicks", 0, b"body")
        each.open_round(OTHER, "clicks", 1, b"other body")
    draw = random.Random(f"{party} {seed}")
    answers = []
    for number, call in enumerate(proxy_calls(draw) if party == "proxy" else server_calls(draw)):
        if number == 80:  # late, so that much has happened before
            phase = Phase.CLOSED if party == "proxy" else ServerPhase.AGREED
            for each in (memory, store):
                each.set_phase(OTHER, phase, only_from=frozenset({"open"}))
        expected = outcome(memory, call)
        assert outcome(store, call) == expected, f"call {number}: {call[0]}"
        answers.append(str(expected))
    assert len(set(answers)) > 30, "the calls are about something"
    stores.close()
