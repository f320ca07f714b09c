"""What training holds beyond the log, in tables: `python -m tacit.bench.training_memory` for one case."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tacit.bench.measurement import Measurement
from tacit.bench.training_steps import CLIPPING, Scale, Workload, our_step
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.sgd.optimizers import OPTIMIZERS

TABLES = {"sgd": 2, "adam": 4}
"""Weights and gradient; for Adam also both moments."""

SLACK = 0.2
"""A fifth of a table for what is kept by row (when it was last read) and by microbatch."""

STEPS = 3


def memory(scale: Scale, folder: Path) -> list[Measurement]:
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


def growth_in_tables(scale: Scale, folder: Path, optimizer: str, batch: int) -> float:
    """By this process itself, which should have done nothing else."""
    work, architecture = Workload.open(folder), FactorizationMachine()
    for column in (work.examples.public, work.examples.sensitive):
        column.sum()  # now the whole log is in memory, and counted
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _kilobytes("VmRSS")
    step = our_step(work, architecture, batch, optimizer=OPTIMIZERS[optimizer](), clipping=CLIPPING)
    for _ in range(STEPS):
        step()
    table_bytes = 4 * scale.table_rows * (1 + architecture.dim)
    return 1024 * (_kilobytes("VmHWM") - before) / table_bytes


def _in_a_process(scale: Scale, folder: Path, optimizer: str, batch: int) -> float:
    case = json.dumps({"table_rows": scale.table_rows, "optimizer": optimizer, "batch": batch})
    command = [sys.executable, "-m", "tacit.bench.training_memory", str(folder), case]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    folder, case = Path(sys.argv[1]), json.loads(sys.argv[2])
    scale = Scale(table_rows=case["table_rows"])
    print(growth_in_tables(scale, folder, case["optimizer"], case["batch"]))


if __name__ == "__main__":
    main()
