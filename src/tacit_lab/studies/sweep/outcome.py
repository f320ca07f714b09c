"""A whole sweep: every run is measured or found on disk, and what came of its points is written.

A sweep is a study: its runs are simulated from seeds and its figures are exact.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.data.columns import Columns
from tacit.errors import BadInput
from tacit.train.config import TrainingConfig
from tacit.train.examples import Examples
from tacit.train.job.planned_training import flip_key, method_from_config
from tacit.train.methods import Hybrid
from tacit_lab.studies.sweep.frontier import TriedPoint, write_sweep
from tacit_lab.studies.sweep.grid import Sweep, settings_words
from tacit_lab.studies.sweep.runs import (
    REFUSED,
    Engine,
    Record,
    SweepRecords,
    SweepRun,
    map_with_engine,
)

SweepProgress = Callable[[int, int], None]
"""How many runs are done, of how many; told first with what was on disk."""


@dataclass(frozen=True, eq=False)
class SweepOutcome:
    """The points whose runs all worked; the others in words, each with its first refusal; and the files."""

    tried: Sequence[TriedPoint]
    refused: Sequence[tuple[str, str]]
    files: Sequence[Path]


def run_sweep(
    sweep: Sweep,
    place: Path,
    columns: Columns,
    *,
    engine: Engine,
    jobs: int,
    out: Path,
    now: int,
    command: str,
    progress: SweepProgress = lambda _done, _of: None,
) -> SweepOutcome:
    """Train with every point and seed, at most `jobs` at a time, and write tables and figure to `out`.

    `place` is the configuration's file, to which its paths are relative; `command` is named in what is written.
    """
    runs = sweep_runs(sweep, place, columns)
    records, began = SweepRecords(out / "records"), time.monotonic()
    found = _measure(runs, records, engine, jobs, progress)
    tried, refused = _tried_points(sweep, runs, found, _LabelShares(columns, now))
    if not tried:
        raise BadInput(f"expected at least one run that works, got refusals only, the first: {refused[0][1]}")
    files = write_sweep(
        out,
        sweep,
        tried,
        data=f"{columns.manifest.get('log')}, {columns.rows:,} rows",
        synthetic=columns.synthetic,
        command=command,
        minutes=(time.monotonic() - began) / 60,
    )
    return SweepOutcome(tried, refused, files)


def sweep_runs(sweep: Sweep, place: Path, columns: Columns) -> list[SweepRun]:
    """All runs, point by point and seed by seed."""
    if not columns.synthetic and not sweep.nothing_promised:
        raise BadInput(
            'sweep.promise: expected "nothing" on data that is not made up, got no such key: a sweep promises '
            "nothing to the people in it; tacit train makes single releases that a ledger pays for"
        )
    part = _held_out_part(sweep, columns)
    data = hashlib.sha256(json.dumps(columns.manifest, sort_keys=True, default=str).encode()).hexdigest()
    return [
        SweepRun(point.spelled, str(place.resolve()), part, seed, data, sweep.nothing_promised)
        for point in sweep.points
        for seed in range(1, sweep.seeds + 1)
    ]


def _held_out_part(sweep: Sweep, columns: Columns) -> str:
    """The part of the log that runs are measured on."""
    parts = columns.part_sizes()
    part = sweep.part or ("validation" if "validation" in parts else "test")
    if part not in parts or not parts[part]:
        raise BadInput(f"sweep.part: expected a part with rows, one of {', '.join(parts)}, got {part!r}")
    if part == sweep.points[0].config.part:
        raise BadInput(f"sweep.part: expected another part than is trained on, got {part!r} for both")
    return part


def _measure(
    runs: Sequence[SweepRun], records: SweepRecords, engine: Engine, jobs: int, progress: SweepProgress
) -> Mapping[SweepRun, Record]:
    """Every run's record; what is on disk already is not done again."""
    found = {each: record for each in runs if (record := records.of(each)) is not None}
    missing = [each for each in runs if each not in found]
    progress(len(found), len(runs))
    for each, record in map_with_engine(engine, SweepRun.measure, missing, jobs):
        records.keep(each, record)
        found[each] = record
        progress(len(found), len(runs))
    return found


class _LabelShares:
    """How much of epsilon the Hybrid gives to labels: as it was told, or as it chooses for this log."""

    def __init__(self, columns: Columns, now: int) -> None:
        self._columns, self._now = columns, now
        self._examples: Examples | None = None

    def of(self, config: TrainingConfig) -> float | None:
        if config.privacy.method != "hybrid":
            return None
        if self._examples is None:
            self._examples = Examples.of(self._columns, config.part)
        method = method_from_config(config, flip_key("", self._columns, config.part), now=self._now)
        assert isinstance(method, Hybrid)
        return method.share(self._examples)


def _tried_points(
    sweep: Sweep, runs: Sequence[SweepRun], found: Mapping[SweepRun, Record], shares: _LabelShares
) -> tuple[list[TriedPoint], list[tuple[str, str]]]:
    """The points whose runs all worked; the others in words, with the first refusal."""
    tried, refused = [], []
    for at, point in enumerate(sweep.points):
        records = [found[each] for each in runs[at * sweep.seeds : (at + 1) * sweep.seeds]]
        problems = [record[REFUSED] for record in records if REFUSED in record]
        if problems:
            refused.append((settings_words(point.settings), str(problems[0])))
        else:
            tried.append(TriedPoint(point, records, shares.of(point.config)))
    return tried, refused
