"""Logs that studies train on: made up or published, generated and encoded once, then kept.

    log = StudyLog("display-small", rows=500_000, seed=1)
    folder = log_folder(log, out / "cache")
    if not is_whole(folder):
        build_log(log, folder)
    ready = open_log(folder)                    # ready.columns, and ready.truth where the log was made up

`Hashed`, `Frequent`, `KnownDomain` and `Selected` say how values are encoded, as values that can be written
down. `is_made_up` says whether what a study ran on was made up, by the marks that made-up data carries:
files may be made up, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput
from tacit.files import draft_path
from tacit_lab.studies.digests import digest, spell_out
from tacit_lab.studies.published import ENDINGS
from tacit_lab.studies.study import StudyRequest

if TYPE_CHECKING:
    from tacit.data.columns import Columns
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.vocabulary import Vocabulary
    from tacit.data.generators.worlds import LogWorld
    from tacit.data.logs.definition import Log
    from tacit.data.reading.reader import LogReader


@dataclass(frozen=True)
class Hashed:
    """Fixed bins: nothing is learned from the data."""

    bins: int


@dataclass(frozen=True)
class Frequent:
    """Public values that came at least `threshold` times; the others share one row per field."""

    threshold: int = 1


@dataclass(frozen=True)
class KnownDomain:
    """The values that the made-up world has: sensitive values, but a list of them that anybody may have.

    With `most`, the likeliest `most` of each field, by the world's own law; the others share one row per field.
    """

    most: int | None = None


@dataclass(frozen=True)
class Selected:
    """Sensitive values whose counts are above `threshold`, selected under DP and paid for by the training."""

    threshold: int
    epsilon: expect.Number
    delta: expect.Number


Public = Hashed | Frequent
Sensitive = Hashed | KnownDomain | Selected


def encoder(reader: LogReader, public: Public, sensitive: Sensitive) -> Encoder:
    """The encoder of a log. Selected values are drawn anew at each call, from the cryptographic stream."""
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.vocabulary import (
        Hashing,
        Side,
        VocabularySelection,
        columns_to_select,
        count_column_values,
        public_vocabulary,
        sensitive_vocabulary,
    )
    from tacit.entropy import Entropy
    from tacit.privacy.budget import Budget
    from tacit.schema.columns import Role

    schema = reader.log.schema
    wanted = list(schema.columns_with(Role.PUBLIC)) if isinstance(public, Frequent) else []
    if isinstance(sensitive, Selected):
        wanted += columns_to_select(schema)
    tallies = count_column_values(reader, wanted) if wanted else {}
    public_side: Side = (
        Hashing(public.bins)
        if isinstance(public, Hashed)
        else public_vocabulary(schema, tallies, public.threshold)
    )
    if isinstance(sensitive, Hashed):
        return Encoder.of(schema, public_side, Hashing(sensitive.bins))
    if isinstance(sensitive, KnownDomain):
        return Encoder.of(schema, public_side, _known_vocabulary(reader.log.name, sensitive.most))
    budget = Budget.of(sensitive.epsilon, sensitive.delta)
    selection = VocabularySelection.for_budget(budget, len(columns_to_select(schema)), sensitive.threshold)
    listed = sensitive_vocabulary(schema, tallies, selection, Entropy())
    return Encoder.of(schema, public_side, listed, selection)


def _known_vocabulary(log: str, most: int | None) -> Vocabulary:
    """The small display world names the values of a field by their ranks, likeliest first."""
    from tacit.data.encoding.fingerprints import value_fingerprints
    from tacit.data.encoding.vocabulary import Vocabulary
    from tacit.data.generators.criteo_display import SMALL
    from tacit.data.generators.fields import lower_hex8
    from tacit.data.logs.display_small import SENSITIVE

    if log != SMALL.name:
        raise BadInput(f"expected log {SMALL.name} for a known domain of sensitive values, got {log}")
    listed = {}
    for salt, each in enumerate(SMALL.fields):
        if each.name in SENSITIVE:
            ranks = np.arange(min(each.law.values, most or each.law.values))
            listed[each.name] = np.unique(value_fingerprints(each.name, lower_hex8(ranks, salt).to_pylist()))
    return Vocabulary(tuple(listed), tuple(listed.values()))


PACKAGES = ("data", "schema", "kernels", "tacit_lab/studies/logs")  # whose code decides what a log is
CONVERSIONS = {"conversions-value": "value", "conversions-lowrank": "lowrank"}  # what sets advertisers apart
OFTEN = 0.03  # of clicks that convert there: enough to learn from in a study's few rows
LOG_OF_WORLD = {"search-small": "criteo-search", **dict.fromkeys(CONVERSIONS, "conversions")}


@dataclass(frozen=True)
class StudyLog:
    """A log and its encoding. `rare_signal` None is the world's own; `file` names a published file instead of a
    world, and then `rows` and `seed` say nothing about the data. `public_keys` are those that whoever runs the
    study states to be public; with `delays` seconds to conversion are kept."""

    name: str
    rows: int
    seed: int
    rare_signal: float | None = None
    public: Public = field(default_factory=Frequent)
    sensitive: Sensitive = field(default_factory=lambda: Hashed(50_000))
    file: Path | None = None
    public_keys: tuple[str, ...] = ()
    delays: bool = False


@dataclass(frozen=True)
class ReadyLog:
    """A prepared log, and the true probability of each row's label where it is known."""

    columns: Columns
    truth: NDArray[np.float64] | None  # (rows of the columns,)


def log_folder(log: StudyLog, cache: Path) -> Path:
    """Where the log is, or will be: its name has all that decides its content, the code included."""
    state = ""
    if log.file is not None:
        found = log.file.stat()
        state = f"{found.st_size} {found.st_mtime_ns}"
    return cache / "logs" / f"{log.name}-{digest(spell_out(log), state, packages=PACKAGES)}"


def is_whole(folder: Path) -> bool:
    return (folder / "columns.json").exists()


def open_log(folder: Path) -> ReadyLog:
    """A log that was made before."""
    from tacit.data.columns import Columns

    truth = _truth(folder)
    return ReadyLog(Columns.open(folder), np.load(truth) if truth.exists() else None)


def build_log(log: StudyLog, folder: Path) -> None:
    """Encode the log into `folder`, where nothing is seen before all of it is there."""
    from tacit.data.preparation import prepare
    from tacit.data.reading.reader import LogReader

    folder.parent.mkdir(parents=True, exist_ok=True)
    described = _log_definition(log)
    building = draft_path(folder)
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
    from tacit.data.synthetic import LogDestination, write_log

    world = f"{log.rows} {log.seed} {log.rare_signal}"
    rows = folder / f"{log.name}-{digest(log.name, world, packages=PACKAGES)}.parquet"
    if not rows.exists():
        stem = draft_path(rows.with_suffix("")).name
        unfinished, truth = rows.with_name(f"{stem}.parquet"), rows.with_name(f"{stem}.truth.parquet")
        destination = LogDestination.at(unfinished, truth=truth)
        write_log(_world(log), log.rows, described.layouts[0], destination, {"seed": log.seed})
        truth.replace(_truth_of_rows(rows))
        unfinished.replace(rows)
    return rows


def _probabilities(rows: Path) -> NDArray[np.float64]:
    import pyarrow.parquet as pq

    probabilities: NDArray[np.float64] = pq.read_table(_truth_of_rows(rows)).column("probability").to_numpy()
    return probabilities


def _world(log: StudyLog) -> LogWorld:
    from tacit.data.generators.conversions import ConversionsWorld
    from tacit.data.generators.criteo_search import SearchWorld
    from tacit.data.generators.worlds import world

    if log.name in CONVERSIONS:
        return ConversionsWorld(log.seed, world=CONVERSIONS[log.name], conversion_rate=OFTEN)
    if log.name == "search-small":
        dials = {} if log.rare_signal is None else {"rare_signal": log.rare_signal}
        return SearchWorld.small(log.seed, **dials)
    return world(log.name, log.seed, rows=log.rows, rare_signal=log.rare_signal)


def _log_definition(log: StudyLog) -> Log:
    from tacit.data.description import with_delay_columns
    from tacit.data.logs.definition import find_log

    found = find_log(LOG_OF_WORLD.get(log.name, log.name)).with_public_keys(log.public_keys)
    return with_delay_columns(found) if log.delays else found


def _truth(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.truth.npy")


def _truth_of_rows(rows: Path) -> Path:
    return rows.with_name(f"{rows.stem}.truth.parquet")


def is_made_up(asked: StudyRequest, used: Sequence[Path] | None = None) -> bool:
    """Without files of its own a study makes its data up. Else all that it used must carry the mark: files, or
    folders of prepared columns; where a study does not say what it used, all data in the folder."""
    if asked.data is None:
        return True
    found = _data_in(asked.data) if used is None else used
    return bool(found) and all(_is_marked(place) for place in found)


def _data_in(folder: Path) -> list[Path]:
    return [place for place in folder.iterdir() if place.name.endswith(ENDINGS) or _is_prepared(place)]


def _is_marked(place: Path) -> bool:
    from tacit.data.columns import Columns
    from tacit.data.synthetic import is_synthetic

    return Columns.open(place).synthetic if _is_prepared(place) else is_synthetic(place)


def _is_prepared(place: Path) -> bool:
    from tacit.data.columns import MANIFEST

    return (place / MANIFEST).is_file()
