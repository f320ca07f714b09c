"""Whole simulated runs: over known rows, for studies, or over people's own events by the parties' own code.

`SimulatedCount` sums what devices would answer and adds published noise. `count_on_devices` goes through
every level of a run with real clients, proxy and server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Integers
from tacit.errors import BadInput
from tacit.gather.client.contributions import Contributions, Event, answer_question
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.estimate.plan import RunPlan
from tacit.gather.estimate.published_noise import PublishedNoise
from tacit.gather.estimate.top_down import GatherTask, RoundCounts, gather_counts
from tacit.gather.protocol.credentials import DEVICE_BYTES, issue_device_key
from tacit.gather.protocol.promises import Contribution
from tacit.gather.protocol.rounds import Question
from tacit.gather.proxy.party import Proxy, drive
from tacit.gather.server.party import Server
from tacit.gather.simulate.population import CLOSES, OPENS, SKEW, SimulationKeys
from tacit.gather.simulate.rounds import PartyStores
from tacit.privacy.randomness import Source, WordSource
from tacit.schema.contexts.hierarchy import Levels
from tacit.schema.contexts.nodes import ColumnValues, ContextNodes
from tacit.schema.counts import Counts


@dataclass(frozen=True, eq=False)
class SimulatedResult:
    """What a round over known rows released."""

    values: Integers
    noise_variance: float
    count: int


@dataclass(frozen=True, eq=False)
class SimulatedCount:
    """Answers questions as all devices together would. Make it with `of`, which chooses their events."""

    nodes: ContextNodes  # that questions speak of
    context: Mapping[str, ColumnValues]  # of the chosen rows, by attribute
    device: Integers  # (chosen rows,)
    ad: Integers
    clicked: NDArray[np.bool_]
    devices: int
    plan: RunPlan
    entropy: Source

    @classmethod
    def of(
        cls,
        nodes: ContextNodes,
        context: Mapping[str, ColumnValues],
        device: ArrayLike,
        ad: ArrayLike,
        clicked: ArrayLike,
        *,
        devices: int,
        plan: RunPlan,
        entropy: Source,
    ) -> SimulatedCount:
        """Each row an impression on one of `devices`, 0 and up; those without any answer too."""
        owner = np.asarray(device, np.int64)
        if len(owner) and not 0 <= owner.min() <= owner.max() < devices:
            raise BadInput(f"expected devices from 0 to {devices - 1}, got others")
        kept = np.flatnonzero(choose_rows(owner, plan.contribution.events, entropy.words))
        columns = {
            name: column[kept] if isinstance(column, np.ndarray) else [column[row] for row in kept.tolist()]
            for name, column in context.items()
        }
        ads, clicks = np.asarray(ad, np.int64)[kept], np.asarray(clicked).astype(np.bool_)[kept]
        return cls(nodes, columns, owner[kept], ads, clicks, devices, plan, entropy)

    def exact(self, question: Question) -> Integers:
        """(cells,) the sum of all answers, without noise."""
        node = self.nodes.locate(question.levels, self.context).astype(np.int64)
        return clipped_counts(
            question, self.device, node, self.ad, self.clicked, contribution=self.plan.contribution
        )

    def __call__(self, question: Question) -> SimulatedResult:
        noise = PublishedNoise.of(self.plan.noise, self.devices)
        values = self.exact(question) + noise.sample(question.cells, self.entropy.words)
        return SimulatedResult(values, self.plan.noise.published_variance(self.devices), self.devices)


def choose_rows(device: Integers, most: int, words: WordSource) -> NDArray[np.bool_]:
    """(rows,) a uniform choice of at most `most` rows of each device."""
    rows, kept = len(device), np.zeros(len(device), np.bool_)
    expect.whole("most", most, at_least=1)
    order = np.lexsort((words(rows), device))
    first = np.r_[True, np.diff(device[order]) != 0] if rows else kept
    starts = np.flatnonzero(first)
    place = np.arange(rows) - np.repeat(starts, np.diff(np.r_[starts, rows]))
    kept[order[place < most]] = True
    return kept


def clipped_counts(
    question: Question,
    device: Integers,
    node: Integers,
    ad: Integers,
    clicked: NDArray[np.bool_],
    *,
    contribution: Contribution,
) -> Integers:
    """(cells,) the sum over devices of their answers, each cell of each cut to `contribution.most`.

    `node` is each row's at the question's level, -1 where it is unknown. Rows beyond a device's choice must be
    left out already.
    """
    place = np.minimum(np.searchsorted(question.nodes, node), len(question.nodes) - 1)
    asked = question.nodes[place] == node
    place, owner, clicks, ad = place[asked], device[asked], clicked[asked], ad[asked]
    ads = int(max(question.ad.max(initial=0), ad.max(initial=0))) + 1
    keys = question.entry_node * ads + question.ad
    entry = np.searchsorted(keys, place * ads + ad)
    listed = np.zeros(len(entry), np.bool_)
    if len(keys):
        listed = keys[np.minimum(entry, len(keys) - 1)] == place * ads + ad
    cell = len(question.nodes) + entry[listed] + np.where(clicks[listed], 0, question.entries)
    cells, owners = np.r_[place, cell], np.r_[owner, owner[listed]]
    pairs, times = np.unique(owners * question.cells + cells, return_counts=True)
    cut = np.minimum(times, contribution.most)
    counts = np.zeros(question.cells, np.int64)
    np.add.at(counts, pairs % question.cells, cut)
    return counts


AT_ONCE = 500  # uploads that the proxy takes in one go
HOUR = CLOSES - OPENS


def count_on_devices(
    name: str,
    nodes: ContextNodes,
    ads: int,
    run: RunPlan,
    events: Sequence[Sequence[Event]],
    books: PartyStores,
    source: Source,
    *,
    scope: str,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Counts:
    """Noisy counts of all devices' events, `events[n]` being those of device n; ledgers must have been granted.

    The promise is that of `run`, as far as `source` is an `Entropy`: with a seed it is a study, and none.
    `progress` hears how many reports of how many were made; a run may end earlier, where nothing has support.
    """
    expect.kind("nodes", nodes, ContextNodes)
    expect.kind("run", run, RunPlan)
    expect.kind("books", books, PartyStores)
    expect.having("source", source, "fit_for_release", "an Entropy or a Simulation")
    expect.several("events", events)
    keys, simulated = SimulationKeys.draw(source), not source.fit_for_release
    proxy = Proxy(
        keys.proxy,
        books.proxy_store,
        books.proxy_ledger,
        enrolment_secret=keys.enrolment_secret,
        check_key=keys.check_key,
    )
    server = Server(keys.server, books.server_store, books.server_ledger, check_key=keys.check_key)
    task = GatherTask(name, len(events), 1, scope, keys.proxy.public, keys.server.public, SKEW)
    names = [n.to_bytes(DEVICE_BYTES) for n in range(len(events))]
    memories = [MemoryDeviceStore() for _ in events]
    reporters = [
        Reporter(
            device,
            issue_device_key(keys.enrolment_secret, device),
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

    def count(question: Question) -> RoundCounts:
        nonlocal level
        opens = OPENS + level * (HOUR + SKEW + 1)
        round_ = task.round(run, question, level=level, opens=opens, closes=opens + HOUR)
        proxy.open_round(round_)
        server.open_round(round_)
        for first in range(0, len(events), AT_ONCE):
            uploads = []
            for n in range(first, min(first + AT_ONCE, len(events))):
                chosen = Contributions.once(name, events[n], run.contribution.events, source, memories[n])
                values = answer_question(question, chosen, node_of, run.contribution.most)
                uploads.append(reporters[n].upload(round_, values))
            proxy.take(uploads, opens)
            progress(level * len(events) + first + len(uploads), run.levels * len(events))
        after = round_.closes + round_.skew
        drive(proxy, _InProcessLink(server, after), round_.digest, after)
        level += 1
        return server.result(round_.digest, after)

    return gather_counts(nodes, ads, run, count).counts


class _InProcessLink:
    """The way to a server in this process, at one moment."""

    def __init__(self, server: Server, now: int) -> None:
        self._server, self._now = server, now

    def job(self, body: bytes) -> bytes:
        return self._server.job(body, self._now)

    def agree(self, body: bytes) -> bytes:
        return self._server.agree(body, self._now)

    def share(self, body: bytes) -> bytes:
        return self._server.share(body, self._now)
