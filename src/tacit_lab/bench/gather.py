"""Gather: what a report costs each party beside opening its seal, with a proof and without; a whole round.

Devices, proxy and server take turns on the same reports, and so do the seals alone. `python -m
tacit_lab.bench.gather` measures the memory that one number of devices takes.

No peer takes part. Neither Prio3's reference nor Janus (Rust) could be installed from Python's package
index by name, and `prio` there is a wrapper of 2018 around Mozilla's first libprio, with objects built for
Python 3.6.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from tacit.entropy import Entropy
from tacit.gather.client.reporter import MemoryDeviceStore, Reporter
from tacit.gather.protocol.credentials import PartyRole, issue_device_key
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.messages import JobReply
from tacit.gather.protocol.rounds import Round, report_binding
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.gather.protocol.uploads import Upload, upload_size
from tacit.gather.proxy.party import Proxy
from tacit.gather.server.party import Server
from tacit.gather.simulate.population import Population, SimulationKeys, round_for_population
from tacit.gather.simulate.rounds import PartyStores, RoundOutcome, SimulatedRound
from tacit.memory_ledger import MemoryLedger
from tacit.sealing import SEAL_OVERHEAD
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit_lab.bench.measurement import Measurement, SuiteProgress, UnitCost, process_kilobytes, processor_model

Answer = TypeVar("Answer")


class GatherSetup:
    """Both parties on disk, and devices enough for every turn: no report comes twice."""

    def __init__(
        self, folder: Path, round: Round, population: Population, keys: SimulationKeys, at_a_time: int
    ) -> None:
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
    def make(cls, folder: Path, reports: int, cells: int, turns: int, *, proof: bool) -> GatherSetup:
        inside = folder / ("proven" if proof else "plain")
        inside.mkdir()
        keys = SimulationKeys.draw(Entropy())
        population = Population(reports * (turns + 1), cells, at_a_time=reports)  # one turn to warm up
        return cls(
            inside, round_for_population(population, keys, epsilon=1.0, proof=proof), population, keys, reports
        )

    def turn(self) -> dict[str, UnitCost]:
        """One turn of everybody, in the order in which reports travel."""
        block = self._population.block(self._next)
        self._next += 1
        values = [block.values(row) for row in range(len(block))]
        reporters = [
            Reporter(
                device,
                issue_device_key(self._keys.enrolment_secret, device),
                self._entropy,
                MemoryDeviceStore(),
                proxy_key=self._keys.proxy.public,
                server_key=self._keys.server.public,
            )
            for device in map(block.device, range(len(block)))
        ]
        cost: dict[str, UnitCost] = {}

        def time_work(name: str, work: Callable[[], Answer]) -> Answer:
            wall, processor = time.perf_counter(), time.process_time()
            answer = work()
            spent = UnitCost(time.process_time() - processor, time.perf_counter() - wall)
            before = cost.get(name, UnitCost(0.0, 0.0))
            cost[name] = UnitCost(before.processor + spent.processor, before.wall + spent.wall)
            return answer

        data = time_work(
            "device",
            lambda: [each.upload(self.round, value) for each, value in zip(reporters, values, strict=True)],
        )
        uploads = [Upload.from_bytes(each) for each in data]
        bindings = [report_binding(self.round.digest, each.report_id) for each in uploads]
        proxy_parts = [(each.sealed_proxy, bound) for each, bound in zip(uploads, bindings, strict=True)]
        server_parts = [(each.sealed_server, bound) for each, bound in zip(uploads, bindings, strict=True)]

        time_work(
            "proxy seal",
            lambda: [self._keys.proxy.open(s, role=PartyRole.PROXY, binding=b) for s, b in proxy_parts],
        )
        body = time_work("proxy", lambda: self._to_job(data))
        time_work(
            "server seal",
            lambda: [self._keys.server.open(s, role=PartyRole.SERVER, binding=b) for s, b in server_parts],
        )
        reply = time_work("server", lambda: self.server.job(body, self.round.opens))
        time_work("proxy", lambda: self.proxy.take_reply(reply))
        assert set(JobReply.from_bytes(reply).verdicts) == {MessageVerdict.ACCEPTED}
        return {
            name: UnitCost(each.processor / len(data), each.wall / len(data)) for name, each in cost.items()
        }

    def _to_job(self, data: list[bytes]) -> bytes:
        answers = self.proxy.take(data, self.round.opens)
        assert set(answers) == {MessageVerdict.ACCEPTED}
        job = self.proxy.next_job(self.round.digest, most=self._at_a_time)
        assert job is not None
        return job.to_bytes()

    def close(self) -> None:
        self._proxy_store.close()
        self._server_store.close()


GatherTurns = list[dict[str, UnitCost]]


def take_gather_turns(setups: Mapping[bool, GatherSetup], turns: int) -> dict[bool, GatherTurns]:
    """What each turn took, in turns that alternate between the setups; the first of each is not counted."""
    taken: dict[bool, GatherTurns] = {key: [] for key in setups}
    for turn in range(turns + 1):
        for key, setup in setups.items():
            cost = setup.turn()
            if turn:
                taken[key].append(cost)
    for setup in setups.values():
        setup.close()
    return taken


def medians(turns: GatherTurns) -> dict[str, UnitCost]:
    return {
        name: UnitCost(
            median(each[name].processor for each in turns), median(each[name].wall for each in turns)
        )
        for name in turns[0]
    }


def ratio(turns: GatherTurns, one: str, other: str) -> UnitCost:
    """The median over turns of what one took in times of the other, which ran right beside it."""
    return UnitCost(
        median(each[one].processor / each[other].processor for each in turns),
        median(each[one].wall / each[other].wall for each in turns),
    )


TIMES = 4
MOST_RISE = 1.1
"""Of the peak, from some devices to four times as many: 1 is none."""


def memory(devices: int, cells: int) -> list[Measurement]:
    """The most that a process grew by over a whole round, both parties in it, with stores on disk."""
    few, many = (_in_a_process(count, cells) for count in (devices, TIMES * devices))
    settings = (
        f"peak growth of a process that makes, takes, judges and sums reports of {cells:,} counts, with both "
        f"parties and SQLite in it: {devices:,} devices {few / 1e6:.1f} MB, {TIMES * devices:,} devices "
        f"{many / 1e6:.1f} MB"
    )
    return [
        Measurement(f"memory_rise_at_{TIMES}_times_the_devices", many / few, "x", MOST_RISE, False, settings)
    ]


def peak_growth(folder: Path, devices: int, cells: int) -> int:
    """By this process itself, in bytes; it should have done nothing else."""
    keys, population = SimulationKeys.draw(Entropy()), Population(devices, cells)
    round = round_for_population(population, keys, epsilon=1.0)
    ledgers = MemoryLedger(), MemoryLedger()
    for ledger in ledgers:
        ledger.grant(round.line, round.cost)
    books = PartyStores(
        SqlProxyStore.open(folder / "proxy.sqlite"), SqlServerStore.open(folder / "server.sqlite"), *ledgers
    )
    world = SimulatedRound(round, population, keys, books, clock=time.process_time)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = process_kilobytes("VmRSS")
    found = world.run()
    assert found.accepted == devices
    return 1024 * (process_kilobytes("VmHWM") - before)


def _in_a_process(devices: int, cells: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tacit_lab.bench.gather", folder, str(devices), str(cells)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


SEAL_BAR = 2.0  # times the cost of opening a party's seal
UPLOAD_BAR, SERVER_PART_BAR = 8300, 80  # bytes, at 1000 counts
PROOF_BAR_MS = 172 / 50
"""A fiftieth of what a report of 1000 counts took a helper of the IETF's Python reference of Prio3, in a trial
of ours on another day. Its package cannot be installed by name, so it is not measured beside."""
ROUND_BAR_SECONDS = 60.0


@dataclass(frozen=True)
class GatherScale:
    """How much of everything; tests take less."""

    cells: int = 1000
    reports: int = 500
    turns: int = 25
    memory_devices: int = 3_000
    round_devices: int = 100_000
    processes: int = 2


FULL = GatherScale()


def run(progress: SuiteProgress, scale: GatherScale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = [
        partial(sizes, scale),
        partial(reports, scale),
        partial(memory, scale.memory_devices, scale.cells),
    ]
    measured = [measurement for part in progress(parts, "gather") for measurement in part()]
    return measured + whole_round(scale, progress)


def sizes(scale: GatherScale) -> list[Measurement]:
    """What a device sends, and how much of it is the server's."""
    keys, population = SimulationKeys.draw(Entropy()), Population(scale.reports, scale.cells)
    measured = []
    for proof in (False, True):
        round = round_for_population(population, keys, epsilon=1.0, proof=proof)
        form, suffix = sharing_scheme(round), "_proof" if proof else ""
        settings = f"{scale.cells:,} counts in {round.group}, {_with(proof)}; exact sizes"
        bar = None if proof else UPLOAD_BAR
        measured += [
            Measurement(f"upload{suffix}_bytes", upload_size(round), "bytes", bar, False, settings),
            Measurement(
                f"server_part{suffix}_bytes",
                form.server_bytes + SEAL_OVERHEAD,
                "bytes",
                SERVER_PART_BAR,
                False,
                settings,
            ),
        ]
    return measured


def reports(scale: GatherScale) -> list[Measurement]:
    """Each party's whole work for a report, with its durable store, beside opening its seal alone."""
    with tempfile.TemporaryDirectory() as folder:
        setups = {
            proof: GatherSetup.make(Path(folder), scale.reports, scale.cells, scale.turns, proof=proof)
            for proof in (False, True)
        }
        turns = take_gather_turns(setups, scale.turns)
    plain, proven = medians(turns[False]), medians(turns[True])
    settings = (
        f"{scale.cells:,} counts a report, {scale.reports:,} at a time, SQLite with a commit to disk for each "
        f"step; processor microseconds a report (wall), plain: {_list_costs(plain)}; with a proof: "
        f"{_list_costs(proven)}; 1 thread of {processor_model()}, medians of {scale.turns} interleaved turns"
    )
    measured = []
    for party in ("proxy", "server"):
        found = ratio(turns[False], party, f"{party} seal")
        measured += [
            Measurement(f"{party}_vs_seal", found.processor, "x", SEAL_BAR, False, settings),
            Measurement(f"{party}_vs_seal_wall", found.wall, "x", settings=settings),
        ]
    for party in ("device", "proxy", "server"):
        bar = None if party == "device" else PROOF_BAR_MS
        value = 1000 * proven[party].processor
        measured += [
            Measurement(f"{party}_proof_ms", value, "ms", bar, False, settings),
            Measurement(
                f"{party}_proof_vs_plain",
                proven[party].processor / plain[party].processor,
                "x",
                settings=settings,
            ),
        ]
    return measured


def whole_round(scale: GatherScale, progress: SuiteProgress) -> list[Measurement]:
    """Devices by the thousand from the first upload to the release, in memory, none extrapolated."""
    keys, population = SimulationKeys.draw(Entropy()), Population(scale.round_devices, scale.cells)
    round = round_for_population(population, keys, epsilon=1.0)
    began = time.perf_counter()
    world = SimulatedRound(round, population, keys, PartyStores.in_memory(round), clock=time.process_time)
    found = _finish_round(world, population, scale.processes, progress)
    seconds = time.perf_counter() - began
    assert found.accepted == scale.round_devices
    assert found.released is not None
    each = ", ".join(
        f"{name} {1e6 * getattr(found.seconds, name) / scale.round_devices:.0f}"
        for name in ("devices", "proxy", "server")
    )
    settings = (
        f"{scale.round_devices:,} devices, {scale.cells:,} counts each, every upload sealed, opened, judged "
        f"and added; stores in memory, {scale.processes} processes; processor microseconds a device: {each}"
    )
    return [
        Measurement(f"round_{scale.round_devices}_seconds", seconds, "s", ROUND_BAR_SECONDS, False, settings)
    ]


def _finish_round(
    world: SimulatedRound, population: Population, processes: int, progress: SuiteProgress
) -> RoundOutcome:
    steps = world.steps(processes)
    for _ in progress(range(population.blocks), f"gather: {population.devices:,} devices"):
        next(steps)
    try:
        next(steps)
    except StopIteration as end:
        found: RoundOutcome = end.value
        return found
    raise AssertionError("expected as many steps as blocks")


def _list_costs(found: dict[str, UnitCost]) -> str:
    return ", ".join(
        f"{name} {1e6 * each.processor:.0f} ({1e6 * each.wall:.0f})" for name, each in found.items()
    )


def _with(proof: bool) -> str:
    return "with a proof" if proof else "no proof"


if __name__ == "__main__":
    print(peak_growth(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
