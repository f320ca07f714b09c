"""Devices, proxy and server take turns on the same reports; the seals alone beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from tacit.entropy import Entropy
from tacit.gather.client.memory import MemoryDevice
from tacit.gather.client.reporting import Reporter
from tacit.gather.proxy.party import Proxy
from tacit.gather.server.party import Server
from tacit.gather.simulate.memory import MemoryLedger
from tacit.gather.simulate.population import Population
from tacit.gather.simulate.setting import Keys, round_for
from tacit.gather.wire.credentials import issue
from tacit.gather.wire.jobs import JobReply
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import Round, binding
from tacit.gather.wire.sealing import Role
from tacit.gather.wire.uploads import Upload
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Cost:
    """Seconds for one report: the processor's, and those of the clock on the wall, disk included."""

    processor: float
    wall: float


class Setup:
    """Both parties on disk, and devices enough for every turn: no report comes twice."""

    def __init__(self, folder: Path, round: Round, population: Population, keys: Keys, at_a_time: int) -> None:
        self.round, self._keys, self._at_a_time = round, keys, at_a_time
        self._population, self._next = population, 0
        self._entropy = Entropy()
        self._proxy_store = SqlProxyStore.open(folder / "proxy.sqlite")
        self._server_store = SqlServerStore.open(folder / "server.sqlite")
        self.proxy = Proxy(
            keys.proxy,
            self._proxy_store,
            MemoryLedger(),
            enrolment_secret=keys.enrolment_secret,
            check_key=keys.check_key,
        )
        self.server = Server(keys.server, self._server_store, MemoryLedger(), check_key=keys.check_key)
        self.proxy.open_round(round)
        self.server.open_round(round)

    @classmethod
    def made(cls, folder: Path, reports: int, cells: int, turns: int, *, proof: bool) -> Setup:
        inside = folder / ("proven" if proof else "plain")
        inside.mkdir()
        keys = Keys.drawn(Entropy())
        population = Population(reports * (turns + 1), cells, at_a_time=reports)  # one turn to warm up
        return cls(inside, round_for(population, keys, epsilon=1.0, proof=proof), population, keys, reports)

    def turn(self) -> dict[str, Cost]:
        """One turn of everybody, in the order in which reports travel."""
        block = self._population.block(self._next)
        self._next += 1
        values = [block.values(row) for row in range(len(block))]
        reporters = [
            Reporter(
                device,
                issue(self._keys.enrolment_secret, device),
                self._entropy,
                MemoryDevice(),
                proxy_key=self._keys.proxy.public,
                server_key=self._keys.server.public,
            )
            for device in map(block.device, range(len(block)))
        ]
        cost: dict[str, Cost] = {}

        def timed(name: str, work: Callable[[], Answer]) -> Answer:
            wall, processor = time.perf_counter(), time.process_time()
            answer = work()
            spent = Cost(time.process_time() - processor, time.perf_counter() - wall)
            before = cost.get(name, Cost(0.0, 0.0))
            cost[name] = Cost(before.processor + spent.processor, before.wall + spent.wall)
            return answer

        data = timed(
            "device",
            lambda: [each.upload(self.round, value) for each, value in zip(reporters, values, strict=True)],
        )
        uploads = [Upload.from_bytes(each) for each in data]
        bindings = [binding(self.round.digest, each.report_id) for each in uploads]
        proxy_parts = [(each.sealed_proxy, bound) for each, bound in zip(uploads, bindings, strict=True)]
        server_parts = [(each.sealed_server, bound) for each, bound in zip(uploads, bindings, strict=True)]

        timed(
            "proxy seal", lambda: [self._keys.proxy.open(s, role=Role.PROXY, binding=b) for s, b in proxy_parts]
        )
        body = timed("proxy", lambda: self._to_job(data))
        timed(
            "server seal",
            lambda: [self._keys.server.open(s, role=Role.SERVER, binding=b) for s, b in server_parts],
        )
        reply = timed("server", lambda: self.server.job(body, self.round.opens))
        timed("proxy", lambda: self.proxy.job_answered(reply))
        assert set(JobReply.from_bytes(reply).verdicts) == {Refusal.ACCEPTED}
        return {name: Cost(each.processor / len(data), each.wall / len(data)) for name, each in cost.items()}

    def _to_job(self, data: list[bytes]) -> bytes:
        answers = self.proxy.take(data, self.round.opens)
        assert set(answers) == {Refusal.ACCEPTED}
        job = self.proxy.next_job(self.round.digest, most=self._at_a_time)
        assert job is not None
        return job.to_bytes()

    def close(self) -> None:
        self._proxy_store.close()
        self._server_store.close()


Turns = list[dict[str, Cost]]


def taken_turns(setups: Mapping[bool, Setup], turns: int) -> dict[bool, Turns]:
    """What each turn took, in turns that alternate between the setups; the first of each is not counted."""
    taken: dict[bool, Turns] = {key: [] for key in setups}
    for turn in range(turns + 1):
        for key, setup in setups.items():
            cost = setup.turn()
            if turn:
                taken[key].append(cost)
    for setup in setups.values():
        setup.close()
    return taken


def medians(turns: Turns) -> dict[str, Cost]:
    return {
        name: Cost(median(each[name].processor for each in turns), median(each[name].wall for each in turns))
        for name in turns[0]
    }


def ratio(turns: Turns, one: str, other: str) -> Cost:
    """The median over turns of what one took in times of the other, which ran right beside it."""
    return Cost(
        median(each[one].processor / each[other].processor for each in turns),
        median(each[one].wall / each[other].wall for each in turns),
    )
