"""`tacit sweep`: many trainings from one configuration, and the best for each epsilon."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.output import Subparsers, add_json_flag, print_json, progress_bar
from tacit.errors import BadInput
from tacit.files import check_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.data.columns import Columns
    from tacit.train.config import TrainingConfig
    from tacit.train.examples import Examples
    from tacit_lab.studies.runs import Record
    from tacit_lab.studies.sweep.frontier import TriedPoint
    from tacit_lab.studies.sweep.grid import Sweep
    from tacit_lab.studies.sweep.runs import Engine, SweepRecords, SweepRun

ABOUT = """\
Train with every combination of the lists in the [sweep] table of a training configuration (see tacit train
--help), measure each on held-out rows, and show the best for each unit and epsilon. Finished runs are kept in
the output folder: a sweep that was stopped, even by kill -9, goes on with the rest.

A sweep is a study: its runs are simulated from seeds and its figures are exact, so it promises nothing to
anybody, and no ledger pays for it. It is meant for made-up data. On people's data it must be told so (promise =
"nothing"): for research logs that may be used without a promise. It says what the same runs would cost as
releases."""

EPILOG = """\
an example, beside data, [model] and [privacy] as for tacit train:

  [sweep]
  method = ["plain", "dp-sgd", "hybrid"]   # keys that a method does not read are left out for it
  epsilon = [1, 4, 8]
  k = [0.25, 0.5]
  model = ["fm", {name = "mlp", common_layers = [128, 64]}]
  descent.clip_norm = [1, 5]               # any key of [privacy], [labels], [descent], [statistic]
  seeds = 4                                # each so many times; from 4 on there are intervals
  part = "validation"                      # where runs are measured (default: validation, else test)

[run], [checkpoint], [export] and out are for tacit train and say nothing here.
exit code 0: every run is done; 1: some were refused, and are named."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "sweep",
        help="many trainings: the best for each epsilon",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", help="a training configuration with a [sweep] table")
    parser.add_argument(
        "--engine",
        default="local",
        help="local: processes of this machine; ray: a cluster, where Ray is installed (default: local)",
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each (default: 2)")
    parser.add_argument("--out", type=Path, help="folder of records, tables and figure (default: CONFIG-sweep)")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.commands.sweep_output import SweepReport
    from tacit.config import error_prefix
    from tacit.data.columns import Columns
    from tacit.train.config_file import read_config
    from tacit_lab.studies.figure_style import expect_matplotlib
    from tacit_lab.studies.sweep import runs as engines
    from tacit_lab.studies.sweep.frontier import composed_cost
    from tacit_lab.studies.sweep.grid import parse_sweep
    from tacit_lab.studies.sweep.runs import SweepRecords

    place = Path(args.config)
    jobs, engine = expect.whole("--jobs", args.jobs, at_least=1), engines.Engine(args.engine)
    with error_prefix(args.config):
        sweep = parse_sweep(read_config(place), place)
    engines.check_engine(engine)
    expect_matplotlib()
    out = args.out or place.with_name(f"{place.stem}-sweep")
    check_folder("--out", out)
    columns = Columns.open(sweep.points[0].config.data)
    costs = composed_cost(sweep.points, sweep.seeds)
    runs = _runs(sweep, place, columns)
    records = SweepRecords(out / "records")
    began = time.monotonic()
    found = _measured(runs, records, engine, jobs)
    tried, refused = _tried(sweep, runs, found, _Shares(columns))
    if not tried:
        raise BadInput(f"expected at least one run that works, got refusals only, the first: {refused[0][1]}")
    files = _leave(out, args.config, sweep, tried, columns, minutes=(time.monotonic() - began) / 60)
    told = SweepReport(sweep, tried, refused, costs, columns.synthetic, files)
    if args.json:
        print_json(told.as_json())
    else:
        told.print()
    return 1 if refused else 0


def _runs(sweep: Sweep, place: Path, columns: Columns) -> list[SweepRun]:
    """All runs, point by point and seed by seed."""
    from tacit_lab.studies.sweep.runs import SweepRun

    if not columns.synthetic and not sweep.nothing_promised:
        raise BadInput(
            'sweep.promise: expected "nothing" on data that is not made up, got no such key: a sweep promises '
            "nothing to the people in it; tacit train makes single releases that a ledger pays for"
        )
    part = _held_out(sweep, columns)
    data = hashlib.sha256(json.dumps(columns.manifest, sort_keys=True, default=str).encode()).hexdigest()
    return [
        SweepRun(point.spelled, str(place.resolve()), part, seed, data, sweep.nothing_promised)
        for point in sweep.points
        for seed in range(1, sweep.seeds + 1)
    ]


def _held_out(sweep: Sweep, columns: Columns) -> str:
    """The part of the log that runs are measured on."""
    parts = columns.part_sizes()
    part = sweep.part or ("validation" if "validation" in parts else "test")
    if part not in parts or not parts[part]:
        raise BadInput(f"sweep.part: expected a part with rows, one of {', '.join(parts)}, got {part!r}")
    if part == sweep.points[0].config.part:
        raise BadInput(f"sweep.part: expected another part than is trained on, got {part!r} for both")
    return part


def _measured(
    runs: Sequence[SweepRun], records: SweepRecords, engine: Engine, jobs: int
) -> dict[SweepRun, Record]:
    """Every run's record; what is on disk already is not done again."""
    from tacit_lab.studies.sweep.runs import SweepRun, map_with_engine

    found = {each: record for each in runs if (record := records.of(each)) is not None}
    missing = [each for each in runs if each not in found]
    if found and missing:
        print(f"going on: {len(found)} of {len(runs)} runs are done", file=sys.stderr)
    with progress_bar(f"{len(runs)} runs", len(runs)) as done:
        done(len(found))
        for each, record in map_with_engine(engine, SweepRun.measure, missing, jobs):
            records.keep(each, record)
            found[each] = record
            done(len(found))
    return found


class _Shares:
    """How much of epsilon the Hybrid gives to labels: as it was told, or as it chooses for this log."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._examples: Examples | None = None

    def of(self, config: TrainingConfig) -> float | None:
        from tacit.train.examples import Examples
        from tacit.train.job.plan import flip_key, method_from_config
        from tacit.train.methods import Hybrid

        if config.privacy.method != "hybrid":
            return None
        if self._examples is None:
            self._examples = Examples.of(self._columns, config.part)
        method = method_from_config(config, flip_key("", self._columns, config.part), now=int(time.time()))
        assert isinstance(method, Hybrid)
        return method.share(self._examples)


def _tried(
    sweep: Sweep, runs: Sequence[SweepRun], found: dict[SweepRun, Record], shares: _Shares
) -> tuple[list[TriedPoint], list[tuple[str, str]]]:
    """The points whose runs all worked; the others in words, with the first refusal."""
    from tacit_lab.studies.sweep.frontier import TriedPoint
    from tacit_lab.studies.sweep.grid import settings_words
    from tacit_lab.studies.sweep.runs import REFUSED

    tried, refused = [], []
    for at, point in enumerate(sweep.points):
        records = [found[each] for each in runs[at * sweep.seeds : (at + 1) * sweep.seeds]]
        problems = [record[REFUSED] for record in records if REFUSED in record]
        if problems:
            refused.append((settings_words(point.settings), str(problems[0])))
        else:
            tried.append(TriedPoint(point, records, shares.of(point.config)))
    return tried, refused


def _leave(
    out: Path, config: str, sweep: Sweep, tried: Sequence[TriedPoint], columns: Columns, *, minutes: float
) -> list[Path]:
    from tacit_lab.studies.sweep.frontier import write_sweep

    data = f"{columns.manifest.get('log')}, {columns.rows:,} rows"
    command = f"tacit sweep {config}"
    return write_sweep(
        out, sweep, tried, data=data, synthetic=columns.synthetic, command=command, minutes=minutes
    )
