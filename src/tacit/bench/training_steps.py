"""Our own contestants: training steps exactly as a run takes them, from the sample to the moved weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data.columns import Columns
from tacit.data.generators.worlds import world
from tacit.data.logs import named
from tacit.data.preparing import hashing_encoder, prepare
from tacit.data.reading.stream import LogReader
from tacit.data.splits import Rows
from tacit.data.writing import Destination, write
from tacit.entropy import Entropy, Simulation
from tacit.train.examples import Examples, Ids
from tacit.train.models.model import Architecture, Part
from tacit.train.sgd.descent import Clipping, Descent, NoiseForm, Settings
from tacit.train.sgd.optimizers import Optimizer, Sgd
from tacit.train.sgd.sampling import poisson_sample
from tacit.train.targets import Floats, Targets

LOG = "criteo-display"
CLIPPING = Clipping(clip_norm=5.0, noise_multiplier=0.6)
RATE = 0.001
READY_BATCHES = 4


@dataclass(frozen=True)
class Scale:
    """How large everything is. Half of the table rows are public, half sensitive."""

    log_rows: int = 1_000_000
    table_rows: int = 1_000_000
    batch: int = 16384
    mlp_batch: int = 4096
    mlp_width: int = 598
    batches: tuple[int, ...] = (1024, 4096, 16384, 65536)
    logs: tuple[int, ...] = (100_000, 400_000, 1_000_000, 4_000_000)
    rounds: int = 15
    slow_every: int = 6  # rounds: a contestant that takes seconds gets three turns

    @property
    def described(self) -> str:
        return f"{self.log_rows:,} synthetic {LOG} rows, {self.table_rows:,} table rows"


@dataclass(frozen=True)
class Workload:
    examples: Examples
    targets: Targets

    @classmethod
    def of(cls, examples: Examples) -> Workload:
        return cls(examples, Targets(examples.labels.astype(np.float32)))

    @classmethod
    def open(cls, folder: Path) -> Workload:
        return cls.of(Examples.of(Columns.open(folder)))


def make_log(scale: Scale, folder: Path) -> None:
    """Make the log up and prepare it as anybody would, hashed into the tables' rows."""
    log, bins = named(LOG), scale.table_rows // 2
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "log.parquet"
        made = world(LOG, seed=1, rows=scale.log_rows)
        write(made, scale.log_rows, log.layouts[0], Destination.at(file), {})
        prepare(LogReader(log, file), hashing_encoder(log, bins, bins), folder)


def repeated(examples: Examples, least: int, rows: int, folder: Path) -> Examples:
    """A log of `rows` rows, memory-mapped like any other, that says its first `least` again and again.

    Batches of the same size from any of them are alike, so that only the length of the log differs.
    """
    times = -(-rows // least)

    def mapped(name: str, column: Ids) -> Ids:
        path = folder / f"{name}-{rows}.npy"
        out = np.lib.format.open_memmap(
            path, mode="w+", dtype=column.dtype, shape=(times * least, column.shape[1])
        )
        for again in range(times):
            out[again * least : (again + 1) * least] = column[:least]
        out.flush()
        read: Ids = np.load(path, mmap_mode="r")
        return read

    return replace(
        examples,
        public=mapped("public", examples.public),
        sensitive=mapped("sensitive", examples.sensitive),
        label=np.tile(examples.labels[:least], times),
        at=Rows(slice(0, rows)),
        keys={},
    )


def our_step(
    work: Workload,
    architecture: Architecture,
    batch: int,
    *,
    optimizer: Optimizer | None = None,
    clipping: Clipping | None = None,
    noise_form: NoiseForm = NoiseForm.AUTO,
) -> Callable[[], None]:
    """A Poisson sample of so many on average, read from the log, and a step. Noise is what a release takes."""
    examples, source = work.examples, Entropy()
    model = architecture.build(examples.sizes, Simulation(1).normal)
    settings = Settings(Part.WHOLE, optimizer or Sgd(), float(batch), clipping, noise_form)
    descent = Descent(model, settings, source)
    share = min(1.0, batch / len(examples))

    def step() -> None:
        places = poisson_sample(len(examples), share, source.words)
        descent.step(examples, work.targets, places, RATE)

    return step


def ready_batches(work: Workload, batch: int) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """For peers: a few batches of exactly this size, over and over, with ids into one table of both sides."""
    draw, examples = np.random.default_rng(1), work.examples
    batches = []
    for _ in range(READY_BATCHES):
        places = np.sort(draw.choice(len(examples), min(batch, len(examples)), replace=False))
        rows = examples.rows(places)
        sides = (examples.public[rows], examples.sensitive[rows] + np.int32(examples.sizes.public_rows))
        batches.append((np.concatenate(sides, axis=1).astype(np.int64), work.targets.values[places]))
    return cycle(batches)
