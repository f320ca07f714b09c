"""The logs that studies train on: made up, or published files; generated and encoded once, then kept.

log = StudyLog("display-small", rows=500_000, seed=1)
ready = prepared(log, out / "cache")        # ready.columns, and ready.truth where the log was made up
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.studies.digests import digest, spelled
from tacit.studies.encodings import Frequent, Hashed, Public, Sensitive, encoder

if TYPE_CHECKING:
    from tacit.data.columns import Columns
    from tacit.data.generators.generated import World
    from tacit.data.log import Log

ROOMS = ("data", "schema", "kernels", "studies/logs", "studies/encodings")  # whose code decides what a log is
CONVERSIONS = {"conversions-value": "value", "conversions-lowrank": "lowrank"}  # what sets advertisers apart
OFTEN = 0.03  # of clicks that convert there: enough to learn from in a study's few rows
LOG_OF_WORLD = {"search-small": "criteo-search", **dict.fromkeys(CONVERSIONS, "conversions")}
ENDINGS = (".parquet", ".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


@dataclass(frozen=True)
class StudyLog:
    """A log and its encoding. `rare_signal` None is the world's own; `file` names a published file instead of a
    world, and then `rows` and `seed` say nothing about the data."""

    name: str
    rows: int
    seed: int
    rare_signal: float | None = None
    public: Public = field(default_factory=Frequent)
    sensitive: Sensitive = field(default_factory=lambda: Hashed(50_000))
    file: Path | None = None


@dataclass(frozen=True)
class Ready:
    """A prepared log, and the true probability of each row's label where it is known."""

    columns: Columns
    truth: NDArray[np.float64] | None  # (rows of the columns,)


def prepared(log: StudyLog, cache: Path) -> Ready:
    """The log, made if it is not there yet."""
    folder = folder_of(log, cache)
    if not is_whole(folder):
        make(log, folder)
    return opened(folder)


def folder_of(log: StudyLog, cache: Path) -> Path:
    """Where the log is, or will be: its name has all that decides its content, the code included."""
    state = ""
    if log.file is not None:
        found = log.file.stat()
        state = f"{found.st_size} {found.st_mtime_ns}"
    return cache / "logs" / f"{log.name}-{digest(spelled(log), state, rooms=ROOMS)}"


def is_whole(folder: Path) -> bool:
    return (folder / "columns.json").exists()


def opened(folder: Path) -> Ready:
    """A log that was made before."""
    from tacit.data.columns import Columns

    truth = _truth(folder)
    return Ready(Columns.open(folder), np.load(truth) if truth.exists() else None)


def published_file(data: Path, name: str) -> Path:
    """The file of a log in a folder of published files: NAME.csv, NAME.tsv.gz, NAME.parquet and so on."""
    for ending in ENDINGS:
        if (data / f"{name}{ending}").is_file():
            return data / f"{name}{ending}"
    raise BadInput(f"expected {name}.csv, .tsv, .txt (or .gz) or .parquet in {data}, got none of them")


def make(log: StudyLog, folder: Path) -> None:
    """Encode the log into `folder`, where nothing is seen before all of it is there."""
    from tacit.data.preparing import prepare
    from tacit.data.reading.stream import LogReader

    folder.parent.mkdir(parents=True, exist_ok=True)
    described = _described(log)
    building = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    rows = log.file or _rows(log, described, folder.parent)
    reader = LogReader(described, rows)
    columns = prepare(reader, encoder(reader, log.public, log.sensitive), building).columns
    if log.file is None:
        # The truth first: a log that is there has all of it.
        unfinished = _truth(building)
        np.save(unfinished, _probabilities(rows)[columns["row"]])
        unfinished.replace(_truth(folder))
    try:
        building.rename(folder)
    except OSError:  # somebody else was faster
        if not is_whole(folder):
            raise
        shutil.rmtree(building)


def _rows(log: StudyLog, described: Log, folder: Path) -> Path:
    """The rows of the made-up world, drawn once for all of their encodings."""
    from tacit.data.writing import Destination, write

    world = f"{log.rows} {log.seed} {log.rare_signal}"
    rows = folder / f"{log.name}-{digest(log.name, world, rooms=ROOMS)}.parquet"
    if not rows.exists():
        stem = f".{rows.stem}.{uuid.uuid4().hex}"
        unfinished, truth = rows.with_name(f"{stem}.parquet"), rows.with_name(f"{stem}.truth.parquet")
        destination = Destination.at(unfinished, truth=truth)
        write(_world(log), log.rows, described.layouts[0], destination, {"seed": log.seed})
        truth.replace(_truth_of_rows(rows))
        unfinished.replace(rows)
    return rows


def _probabilities(rows: Path) -> NDArray[np.float64]:
    import pyarrow.parquet as pq

    probabilities: NDArray[np.float64] = pq.read_table(_truth_of_rows(rows)).column("probability").to_numpy()
    return probabilities


def _world(log: StudyLog) -> World:
    from tacit.data.generators.conversions import ConversionsWorld
    from tacit.data.generators.criteo_search import SearchWorld
    from tacit.data.generators.worlds import world

    if log.name in CONVERSIONS:
        return ConversionsWorld(log.seed, world=CONVERSIONS[log.name], conversion_rate=OFTEN)
    if log.name == "search-small":
        dials = {} if log.rare_signal is None else {"rare_signal": log.rare_signal}
        return SearchWorld.small(log.seed, **dials)
    return world(log.name, log.seed, rows=log.rows, rare_signal=log.rare_signal)


def _described(log: StudyLog) -> Log:
    from tacit.data.logs import named

    return named(LOG_OF_WORLD.get(log.name, log.name))


def _truth(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.truth.npy")


def _truth_of_rows(rows: Path) -> Path:
    return rows.with_name(f"{rows.stem}.truth.parquet")
