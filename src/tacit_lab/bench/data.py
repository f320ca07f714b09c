"""Data: preparing a file beside merely reading it, making logs up beside writing them, opening columns.

The Criteo Display file is made up here, in the published layout: nobody needs the real one to measure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from tacit.data.columns import Columns
from tacit.data.generators.worlds import world
from tacit.data.logs.definition import LOG_NAMES, find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.data.synthetic import LogDestination, write_log
from tacit_lab.bench.measurement import Measurement, SuiteProgress, interleaved_seconds

ROWS = 1_000_000
TIMES_LARGER = 4
ROUNDS, OPENINGS = 5, 21
LOG = "criteo-display"


def run(progress: SuiteProgress) -> list[Measurement]:
    measured = []
    for name in progress(LOG_NAMES, "making logs up"):
        measured.append(generation(name))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        parts: list[Callable[[Path], list[Measurement]]] = [published_file, preparation, memory, opening]
        for part in progress(parts, "preparing"):
            measured.extend(part(place))
    return measured


def generation(name: str) -> Measurement:
    """From nothing to batches, the world's own set-up included, against writing those batches as Parquet."""
    start = time.perf_counter()
    batches = [generated.batch for generated in world(name, seed=1, rows=ROWS).batches(ROWS)]
    generated_at = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        writing_at = time.perf_counter()
        with pq.ParquetWriter(Path(folder) / "log.parquet", batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        written_at = time.perf_counter()
    ratio = (generated_at - start) / (written_at - writing_at)
    settings = f"{ROWS:,} synthetic rows in {generated_at - start:.1f} s, one run"
    return Measurement(f"generate_{name.replace('-', '_')}_vs_parquet_write", ratio, "x", 30, False, settings)


def published_file(folder: Path) -> list[Measurement]:
    """The file that the other parts read: synthetic rows as text, and beside it several times as many."""
    destination = LogDestination.at(folder / "train.txt")
    start = time.perf_counter()
    write_log(world(LOG, seed=1), ROWS, find_log(LOG).layouts[0], destination, {})
    seconds = time.perf_counter() - start
    with (folder / "larger.txt").open("wb") as larger:
        for _ in range(TIMES_LARGER):
            with (folder / "train.txt").open("rb") as once:
                shutil.copyfileobj(once, larger)
    size = (folder / "train.txt").stat().st_size / 1e6
    settings = f"{ROWS:,} synthetic rows, {size:.0f} MB"
    return [Measurement("generate_published_text_seconds", seconds, "s", settings=settings)]


def preparation(folder: Path) -> list[Measurement]:
    """Parse, check, encode and write, against pyarrow's reader with its defaults (all cores for both)."""
    log, path = find_log(LOG), folder / "train.txt"
    names = list(log.layouts[0].columns)

    def prepare_again() -> None:
        prepare(LogReader(log, path), hashing_encoder(log), folder / "columns", overwrite=True)

    def merely_read() -> pa.Table:
        return csv.read_csv(
            path, csv.ReadOptions(column_names=names), csv.ParseOptions(delimiter="\t", quote_char=False)
        )

    seconds = interleaved_seconds({"prepare": prepare_again, "read": merely_read}, ROUNDS)
    settings = (
        f"{ROWS:,} synthetic rows; prepare {seconds['prepare']:.2f} s, pyarrow {seconds['read']:.2f} s; "
        f"{os.cpu_count()} cores, median of {ROUNDS} interleaved rounds"
    )
    ratio = seconds["prepare"] / seconds["read"]
    return [Measurement("prepare_display_vs_pyarrow_read", ratio, "x", 3, False, settings)]


def memory(folder: Path) -> list[Measurement]:
    """The most that a process of its own ever held, for the file and for one several times as large."""
    peaks = [_peak_megabytes(folder / name, folder / "peak") for name in ("train.txt", "larger.txt")]
    larger = f"{TIMES_LARGER * ROWS:,} rows {peaks[1]:.0f} MB"
    settings = f"peak of the process: {ROWS:,} rows {peaks[0]:.0f} MB, {larger}"
    return [Measurement("prepare_memory_growth", peaks[1] / peaks[0], "x", 1.15, False, settings)]


def opening(folder: Path) -> list[Measurement]:
    """Open the columns and every array of them."""
    measured = []
    for rows, name in ((ROWS, "columns"), (TIMES_LARGER * ROWS, "peak")):
        seconds = [_seconds(partial(_open_all, folder / name)) for _ in range(OPENINGS)]
        settings = f"{rows:,} rows, median of {OPENINGS}, slowest {1000 * max(seconds):.1f} ms"
        milliseconds = 1000 * median(seconds)
        measured.append(Measurement(f"open_columns_{rows}_rows", milliseconds, "ms", 50, False, settings))
    return measured


def _open_all(folder: Path) -> None:
    columns = Columns.open(folder)
    for name in columns.manifest["arrays"]:
        columns[name]


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _peak_megabytes(path: Path, out: Path) -> float:
    """By the process itself: what the kernel tells a parent of its child includes the parent's own peak."""
    arguments = ["data", "prepare", LOG, str(path), "--out", str(out), "--overwrite", "--json"]
    script = (
        "import sys; from pathlib import Path; from tacit.cli import main; code = main(sys.argv[1:]); "
        "print(Path('/proc/self/status').read_text(), file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", script, *arguments]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    (peak,) = (line.split()[1] for line in child.stderr.splitlines() if line.startswith("VmHWM:"))
    return int(peak) / 1024
