"""A whole run over people's own events, by the parties' own code: every level of it, from devices to counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tacit.gather.client.answering import answer
from tacit.gather.client.contributions import Contributions, Event
from tacit.gather.client.memory import MemoryDevice
from tacit.gather.client.reporting import Reporter
from tacit.gather.estimate.planning import RunPlan
from tacit.gather.estimate.rounds import Task
from tacit.gather.estimate.top_down import Counted, gather_counts
from tacit.gather.proxy.driving import drive
from tacit.gather.proxy.party import Proxy
from tacit.gather.server.party import Server
from tacit.gather.simulate.setting import CLOSES, OPENS, SKEW, Keys
from tacit.gather.simulate.world import Books
from tacit.gather.wire.credentials import DEVICE_BYTES, issue
from tacit.gather.wire.questions import Question
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.statistics import Counts

AT_ONCE = 500  # uploads that the proxy takes in one go
HOUR = CLOSES - OPENS


def count_on_devices(
    name: str,
    nodes: ContextNodes,
    ads: int,
    run: RunPlan,
    events: Sequence[Sequence[Event]],
    books: Books,
    source: Source,
    *,
    scope: str,
    told: Callable[[int, int], None] = lambda _done, _total: None,
) -> Counts:
    """Noisy counts of all devices' events, `events[n]` being those of device n; ledgers must have been granted.

    The promise is that of `run`, as far as `source` is an `Entropy`: with a seed it is a study, and none.
    `told` hears how many reports of how many were made; a run may end earlier, where nothing has support.
    """
    keys, simulated = Keys.drawn(source), not source.fit_for_release
    proxy = Proxy(
        keys.proxy,
        books.proxy_store,
        books.proxy_ledger,
        enrolment_secret=keys.enrolment_secret,
        check_key=keys.check_key,
    )
    server = Server(keys.server, books.server_store, books.server_ledger, check_key=keys.check_key)
    task = Task(name, len(events), 1, scope, keys.proxy.public, keys.server.public, SKEW)
    names = [n.to_bytes(DEVICE_BYTES) for n in range(len(events))]
    memories = [MemoryDevice() for _ in events]
    reporters = [
        Reporter(
            device,
            issue(keys.enrolment_secret, device),
            source,
            memory,
            proxy_key=keys.proxy.public,
            server_key=keys.server.public,
            simulated=simulated,
        )
        for device, memory in zip(names, memories, strict=True)
    ]
    attributes = [attribute.name for attribute in nodes.hierarchy.attributes]

    @cache
    def node_of(levels: Levels, context: tuple[Any, ...]) -> int:
        columns = {attribute: [value] for attribute, value in zip(attributes, context, strict=True)}
        return int(nodes.locate(levels, columns)[0])

    level = 0

    def count(question: Question) -> Counted:
        nonlocal level
        opens = OPENS + level * (HOUR + SKEW + 1)
        round_ = task.round(run, question, level=level, opens=opens, closes=opens + HOUR)
        proxy.open_round(round_)
        server.open_round(round_)
        for first in range(0, len(events), AT_ONCE):
            uploads = []
            for n in range(first, min(first + AT_ONCE, len(events))):
                chosen = Contributions.once(name, events[n], run.contribution.events, source, memories[n])
                values = answer(question, chosen, node_of, run.contribution.most)
                uploads.append(reporters[n].upload(round_, values))
            proxy.take(uploads, opens)
            told(level * len(events) + first + len(uploads), run.levels * len(events))
        after = round_.closes + round_.skew
        drive(proxy, _Here(server, after), round_.digest, after)
        level += 1
        return server.result(round_.digest, after)

    return gather_counts(nodes, ads, run, count).counts


class _Here:
    """The way to a server in this process, at one moment."""

    def __init__(self, server: Server, now: int) -> None:
        self._server, self._now = server, now

    def job(self, body: bytes) -> bytes:
        return self._server.job(body, self._now)

    def agree(self, body: bytes) -> bytes:
        return self._server.agree(body, self._now)

    def share(self, body: bytes) -> bytes:
        return self._server.share(body, self._now)
