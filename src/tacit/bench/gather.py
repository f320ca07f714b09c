"""Gather: what a report costs each party beside opening its seal, with a proof and without; a whole round.

No peer takes part. Neither Prio3's reference nor Janus (Rust) could be installed from Python's package index by
name, and `prio` there is a wrapper of 2018 around Mozilla's first libprio, with objects built for Python 3.6.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tacit.bench.deliver import processor
from tacit.bench.gather_memory import memory
from tacit.bench.gather_turns import Cost, Setup, medians, ratio, taken_turns
from tacit.bench.measurement import Measurement, Track
from tacit.entropy import Entropy
from tacit.gather.simulate.memory import MemoryLedger, MemoryProxyStore, MemoryServerStore
from tacit.gather.simulate.outcome import Simulated
from tacit.gather.simulate.population import Population
from tacit.gather.simulate.setting import Keys, round_for
from tacit.gather.simulate.world import Books, World
from tacit.gather.wire.forms import form_of
from tacit.gather.wire.sealing import SEAL_OVERHEAD
from tacit.gather.wire.uploads import upload_bytes

SEAL_BAR = 2.0  # times the cost of opening a party's seal
UPLOAD_BAR, SERVER_PART_BAR = 8300, 80  # bytes, at 1000 counts
PROOF_BAR_MS = 172 / 50
"""A fiftieth of what a report of 1000 counts took a helper of the IETF's Python reference of Prio3, in a trial
of ours on another day. Its package cannot be installed by name, so it is not measured beside."""
ROUND_BAR_SECONDS = 60.0


@dataclass(frozen=True)
class Scale:
    """How much of everything; tests take less."""

    cells: int = 1000
    reports: int = 500
    turns: int = 25
    memory_devices: int = 3_000
    round_devices: int = 100_000
    processes: int = 2


FULL = Scale()


def run(track: Track, scale: Scale = FULL) -> list[Measurement]:
    parts: list[Callable[[], list[Measurement]]] = [
        partial(sizes, scale),
        partial(reports, scale),
        partial(memory, scale.memory_devices, scale.cells),
    ]
    measured = [measurement for part in track(parts, "gather") for measurement in part()]
    return measured + whole_round(scale, track)


def sizes(scale: Scale) -> list[Measurement]:
    """What a device sends, and how much of it is the server's."""
    keys, population = Keys.drawn(Entropy()), Population(scale.reports, scale.cells)
    measured = []
    for proof in (False, True):
        round = round_for(population, keys, epsilon=1.0, proof=proof)
        form, suffix = form_of(round), "_proof" if proof else ""
        settings = f"{scale.cells:,} counts in {round.group}, {_with(proof)}; exact sizes"
        bar = None if proof else UPLOAD_BAR
        measured += [
            Measurement(f"upload{suffix}_bytes", upload_bytes(round), "bytes", bar, False, settings),
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


def reports(scale: Scale) -> list[Measurement]:
    """Each party's whole work for a report, with its durable store, beside opening its seal alone."""
    with tempfile.TemporaryDirectory() as folder:
        setups = {
            proof: Setup.made(Path(folder), scale.reports, scale.cells, scale.turns, proof=proof)
            for proof in (False, True)
        }
        turns = taken_turns(setups, scale.turns)
    plain, proven = medians(turns[False]), medians(turns[True])
    settings = (
        f"{scale.cells:,} counts a report, {scale.reports:,} at a time, SQLite with a commit to disk for each "
        f"step; processor microseconds a report (wall), plain: {_listed(plain)}; with a proof: "
        f"{_listed(proven)}; 1 thread of {processor()}, medians of {scale.turns} interleaved turns"
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


def whole_round(scale: Scale, track: Track) -> list[Measurement]:
    """So many devices from the first upload to the release, in memory, none extrapolated."""
    keys, population = Keys.drawn(Entropy()), Population(scale.round_devices, scale.cells)
    round = round_for(population, keys, epsilon=1.0)
    ledgers = MemoryLedger(), MemoryLedger()
    for ledger in ledgers:
        ledger.grant(round.line, round.cost)
    began = time.perf_counter()
    world = World(
        round,
        population,
        keys,
        Books(MemoryProxyStore(), MemoryServerStore(), *ledgers),
        clock=time.process_time,
    )
    found = _finished(world, population, scale.processes, track)
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


def _finished(world: World, population: Population, processes: int, track: Track) -> Simulated:
    steps = world.steps(processes)
    for _ in track(range(population.blocks), f"gather: {population.devices:,} devices"):
        next(steps)
    try:
        next(steps)
    except StopIteration as end:
        found: Simulated = end.value
        return found
    raise AssertionError("expected as many steps as blocks")


def _listed(found: dict[str, Cost]) -> str:
    return ", ".join(
        f"{name} {1e6 * each.processor:.0f} ({1e6 * each.wall:.0f})" for name, each in found.items()
    )


def _with(proof: bool) -> str:
    return "with a proof" if proof else "no proof"
