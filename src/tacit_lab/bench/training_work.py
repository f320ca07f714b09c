"""Our side of the training suite: steps as a run takes them, growth with batch and log, noisy labels,
memory.

`python -m tacit_lab.bench.training_work` measures the memory of one case: what training holds beyond the
log, in tables.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats32, Ids
from tacit.data.columns import Columns
from tacit.data.generators.worlds import world
from tacit.data.logs.definition import find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.data.splits import RowSet
from tacit.data.synthetic import LogDestination, write_log
from tacit.entropy import Entropy, Simulation
from tacit.train.examples import Examples, Places
from tacit.train.methods import LabelDp, Plain, TrainingMethod
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import Architecture, Part
from tacit.train.settings import Learning
from tacit.train.sgd.descent import Clipping, DescentSettings, GradientDescent, NoiseForm
from tacit.train.sgd.draws import poisson_sample
from tacit.train.sgd.optimizers import OPTIMIZERS, Adam, Optimizer, Sgd
from tacit.train.steps import Run
from tacit.train.targets import Targets
from tacit_lab.bench.measurement import Contestant, Measurement, process_kilobytes, take_turns

LOG = "criteo-display"
CLIPPING = Clipping(clip_norm=5.0, noise_multiplier=0.6)
RATE = 0.001
READY_BATCHES = 4
ROWS_PER_UNIT = 2.5


@dataclass(frozen=True)
class TrainingScale:
    """How large everything is. Half of the table rows are public, half sensitive."""

    log_rows: int = 1_000_000
    table_rows: int = 1_000_000
    batch: int = 16384
    mlp_batch: int = 4096
    mlp_width: int = 598
    items: int = 50_000
    sequence: int = 32
    transformer_dim: int = 128
    transformer_batch: int = 256
    batches: tuple[int, ...] = (1024, 4096, 16384, 65536)
    logs: tuple[int, ...] = (100_000, 400_000, 1_000_000, 4_000_000)
    rounds: int = 15
    slow_every: int = 6  # rounds: a contestant that takes seconds gets three turns

    @property
    def described(self) -> str:
        return f"{self.log_rows:,} synthetic {LOG} rows, {self.table_rows:,} table rows"


@dataclass(frozen=True)
class TrainingWorkload:
    examples: Examples
    targets: Targets

    @classmethod
    def of(cls, examples: Examples) -> TrainingWorkload:
        return cls(examples, Targets(examples.labels.astype(np.float32)))

    @classmethod
    def open(cls, folder: Path) -> TrainingWorkload:
        return cls.of(Examples.of(Columns.open(folder)))


def make_log(scale: TrainingScale, folder: Path) -> None:
    """Make the log up and prepare it as anybody would, hashed into the tables' rows."""
    log, bins = find_log(LOG), scale.table_rows // 2
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "log.parquet"
        made = world(LOG, seed=1, rows=scale.log_rows)
        write_log(made, scale.log_rows, log.layouts[0], LogDestination.at(file), {})
        prepare(LogReader(log, file), hashing_encoder(log, bins, bins), folder)


def repeat_log(examples: Examples, least: int, rows: int, folder: Path) -> Examples:
    """A log of `rows` rows, memory-mapped like any other, that says its first `least` again and again.

    Batches of the same size from any of them are alike, so that only the length of the log differs.
    """
    times = -(-rows // least)

    def map_column(name: str, column: Ids) -> Ids:
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
        public=map_column("public", examples.public),
        sensitive=map_column("sensitive", examples.sensitive),
        label=np.tile(examples.labels[:least], times),
        at=RowSet(slice(0, rows)),
        keys={},
    )


def our_step(
    work: TrainingWorkload,
    architecture: Architecture,
    batch: int,
    *,
    optimizer: Optimizer | None = None,
    clipping: Clipping | None = None,
    noise_form: NoiseForm = NoiseForm.AUTO,
    units: Places | None = None,
) -> Callable[[], None]:
    """A Poisson sample of `batch` on average, read from the log, and a step. Noise is what a release takes.

    With `units` (each example's: 0, 1, ...), whole units are sampled, as likely, and clipped as one.
    """
    examples, source = work.examples, Entropy()
    model = architecture.build(examples.sizes, Simulation(1).normal)
    share = min(1.0, batch / len(examples))
    sizes = np.ones(len(examples), np.int64) if units is None else np.bincount(units)
    settings = DescentSettings(Part.WHOLE, optimizer or Sgd(), share * len(sizes), clipping, noise_form)
    descent = GradientDescent(model, settings, source)
    order, starts = None if units is None else np.argsort(units, kind="stable"), np.cumsum(sizes) - sizes

    def step() -> None:
        sample = poisson_sample(len(sizes), share, source.words)
        if order is None:
            descent.step(examples, work.targets, sample, RATE)
            return
        groups = np.repeat(np.arange(len(sample)), sizes[sample])
        first = np.cumsum(sizes[sample]) - sizes[sample]
        places = order[starts[sample][groups] + np.arange(len(groups)) - first[groups]]
        descent.step(examples, work.targets, places, RATE, groups)

    return step


def draw_units(rows: int) -> Places:
    """Made-up people, of `ROWS_PER_UNIT` rows on average, anywhere in the log: the log itself names none."""
    drawn = np.random.default_rng(1).integers(0, max(1, int(rows / ROWS_PER_UNIT)), rows)
    return np.unique(drawn, return_inverse=True)[1].astype(np.int64)


def ready_batches(work: TrainingWorkload, batch: int) -> Iterator[tuple[NDArray[np.int64], Floats32]]:
    """For peers: a few batches of exactly this size, over and over, with ids into one table of both sides."""
    draw, examples = np.random.default_rng(1), work.examples
    batches = []
    for _ in range(READY_BATCHES):
        places = np.sort(draw.choice(len(examples), min(batch, len(examples)), replace=False))
        rows = examples.rows(places)
        sides = (examples.public[rows], examples.sensitive[rows] + np.int32(examples.sizes.public_rows))
        batches.append((np.concatenate(sides, axis=1).astype(np.int64), work.targets.values[places]))
    return cycle(batches)


MOST_RISE = 1.05
"""Times of the same work differ by about this much from one run to the next."""

FM = FactorizationMachine()


def growth_with_batch(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """Private steps with lazy noise, on the same log. The larger a batch, the more examples share a row."""
    work = TrainingWorkload.open(folder)
    contestants = {batch: _private(work, batch, scale.batch) for batch in scale.batches}
    seconds = take_turns(contestants, scale.rounds)
    each = {batch: seconds[batch].processor / batch for batch in scale.batches}
    return [_rise("growth_with_batch", "batch", each, scale)]


def growth_with_log(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """The same batch from logs of different lengths, whose rows are alike: sampling goes by skips."""
    examples, least = TrainingWorkload.open(folder).examples, min(scale.logs)
    with tempfile.TemporaryDirectory() as place:
        contestants = {}
        for rows in scale.logs:
            work = TrainingWorkload.of(repeat_log(examples, least, rows, Path(place)))
            contestants[rows] = _private(work, scale.batch, scale.batch)
        seconds = take_turns(contestants, scale.rounds)
    each = {rows: seconds[rows].processor / scale.batch for rows in scale.logs}
    return [_rise("growth_with_log", "log rows", each, scale)]


def worst_rise(values: Sequence[float]) -> float:
    """The largest ratio of a later value to an earlier one; at most 1 if they never rise."""
    return max(later / earlier for earlier, later in combinations(values, 2))


def _private(work: TrainingWorkload, batch: int, least_examples: int) -> Contestant:
    steps = max(1, least_examples // batch)  # small batches take several steps a turn, for the clock's sake
    step = our_step(work, FM, batch, clipping=CLIPPING, noise_form=NoiseForm.LAZY)

    def turn() -> None:
        for _ in range(steps):
            step()

    return Contestant(turn, steps)


def _rise(name: str, by: str, each: Mapping[int, float], scale: TrainingScale) -> Measurement:
    table = ", ".join(f"{size:,}: {1e6 * seconds:.2f}" for size, seconds in each.items())
    settings = (
        f"FM of dim {FM.dim} with lazy noise, {scale.table_rows:,} table rows; processor microseconds an "
        f"example by {by}: {table}; medians of {scale.rounds} interleaved turns; the value is the worst ratio "
        "of a larger one's time to a smaller one's"
    )
    return Measurement(name, worst_rise(list(each.values())), "x", MOST_RISE, False, settings)


EPOCHS = 4
FEWER_ROUNDS = 5  # a turn is a whole training
MOST = 1.05
"""No slower, but for what differs from one run to the next."""


def label_phase(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """A whole training of the truncated model by Adam, the flips included."""
    work, secret = TrainingWorkload.open(folder), Entropy().bytes(32)
    learning = Learning(epochs=EPOCHS, batch=scale.batch, optimizer=Adam())
    methods: dict[str, TrainingMethod] = {
        "true labels": Plain(learning, Part.TRUNCATED),
        "flipped labels": LabelDp(epsilon=4, learning=learning),
    }
    contestants = {}
    for name, method in methods.items():
        model = FM.build(work.examples.sizes, Simulation(1).normal)
        run = Run(method.plan(work.examples, secret=secret), model, work.examples, Entropy(), secret)
        contestants[name] = Contestant(run.go, every=FEWER_ROUNDS)
    seconds = take_turns(contestants, scale.rounds)
    times = ", ".join(f"{name} {each.processor:.2f}" for name, each in seconds.items())
    turns = seconds["true labels"].turns
    settings = (
        f"FM of dim {FM.dim} on public features, {scale.described}, {EPOCHS} epochs by Adam, batch "
        f"{scale.batch}; processor seconds: {times}; medians of {turns} interleaved turns"
    )
    value = seconds["flipped labels"].processor / seconds["true labels"].processor
    return [Measurement("label_phase_vs_plain", value, "x", MOST, False, settings)]


TABLES = {"sgd": 2, "adam": 4}
"""Weights and gradient; for Adam also both moments."""

SLACK = 0.2
"""A fifth of a table for what is kept by row (when it was last read) and by microbatch."""

STEPS = 3


def memory(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """The most that each process grew by once the log was in memory, at batches small and large."""
    measured = []
    for optimizer, tables in TABLES.items():
        each = {batch: _in_a_process(scale, folder, optimizer, batch) for batch in scale.batches}
        found = ", ".join(f"batch {batch:,}: {value:.2f}" for batch, value in each.items())
        settings = (
            f"FM of dim 32, {scale.described}, DP, optimizer {optimizer}; peak growth of a process in tables, "
            f"weights included: {found}; bar: {tables} tables and {SLACK} for what is kept by row"
        )
        name = f"memory_{optimizer}_tables"
        measured.append(Measurement(name, max(each.values()), "tables", tables + SLACK, False, settings))
    return measured


def growth_in_tables(scale: TrainingScale, folder: Path, optimizer: str, batch: int) -> float:
    """By this process itself, which should have done nothing else."""
    work, architecture = TrainingWorkload.open(folder), FactorizationMachine()
    for column in (work.examples.public, work.examples.sensitive):
        column.sum()  # now the whole log is in memory, and counted
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = process_kilobytes("VmRSS")
    step = our_step(work, architecture, batch, optimizer=OPTIMIZERS[optimizer](), clipping=CLIPPING)
    for _ in range(STEPS):
        step()
    table_bytes = 4 * scale.table_rows * (1 + architecture.dim)
    return 1024 * (process_kilobytes("VmHWM") - before) / table_bytes


def _in_a_process(scale: TrainingScale, folder: Path, optimizer: str, batch: int) -> float:
    case = json.dumps({"table_rows": scale.table_rows, "optimizer": optimizer, "batch": batch})
    command = [sys.executable, "-m", "tacit_lab.bench.training_work", str(folder), case]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    folder, case = Path(sys.argv[1]), json.loads(sys.argv[2])
    scale = TrainingScale(table_rows=case["table_rows"])
    print(growth_in_tables(scale, folder, case["optimizer"], case["batch"]))


if __name__ == "__main__":
    main()
