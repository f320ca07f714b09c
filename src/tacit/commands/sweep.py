"""`tacit sweep`: many trainings from one configuration, and the best for each epsilon."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, progress_bar
from tacit.files import check_folder

if TYPE_CHECKING:
    from tacit_lab.studies.sweep.frontier import BestPoint, TriedPoint
    from tacit_lab.studies.sweep.report import SweepReport

NUMBERS = ("epsilon", "AUC loss", "log loss", "predicted / observed", "among")

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
  seeds = 4                                # runs per setting; from 4 on there are intervals
  part = "validation"                      # where runs are measured (default: validation, else test)

[run], [checkpoint], [export] and out are for tacit train and say nothing here.
exit code 0: every run is done; 1: some were refused, and are named."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "sweep",
        help="train with many settings, and show the best for each epsilon",
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
    from tacit.config import error_prefix
    from tacit.data.columns import Columns
    from tacit.train.config_file import read_config
    from tacit_lab.studies.figure_style import expect_matplotlib
    from tacit_lab.studies.sweep import runs as engines
    from tacit_lab.studies.sweep.frontier import composed_cost
    from tacit_lab.studies.sweep.grid import parse_sweep
    from tacit_lab.studies.sweep.outcome import run_sweep
    from tacit_lab.studies.sweep.report import SweepReport

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
    with _progress() as progress:
        done = run_sweep(
            sweep, place, columns,
            engine=engine, jobs=jobs, out=out, now=int(time.time()), command=f"tacit sweep {args.config}",
            progress=progress,
        )  # fmt: skip
    told = SweepReport(sweep, done.tried, done.refused, costs, columns.synthetic, done.files)
    if args.json:
        print_json(told.as_json())
    else:
        _print(told)
    return 1 if done.refused else 0


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar for all runs; where some were done before, a line says so."""
    with ExitStack() as shown:
        bar: Callable[[int], None] | None = None

        def told(done: int, runs: int) -> None:
            nonlocal bar
            if bar is None:
                if 0 < done < runs:
                    print(f"going on: {done} of {runs} runs are done", file=sys.stderr)
                bar = shown.enter_context(progress_bar(f"{runs} runs", runs))
            bar(done)

        yield told


def _print(report: SweepReport) -> None:
    from tacit_lab.studies.sweep.frontier import FEWEST_SEEDS

    seeds = f"{report.sweep.seeds} seed{'' if report.sweep.seeds == 1 else 's'}"
    without = "" if report.tried[0].has_interval else f"; {seeds}: no interval (from {FEWEST_SEEDS} on)"
    print_table(
        f"the best of {len(report.tried)} settings, {seeds} each{without}",
        ("unit", "epsilon", "method", "model", "settings", *NUMBERS[1:]),
        [_row(each) for each in report.best],
        numbers=NUMBERS,
    )
    for settings, problem in report.refused:
        print(f"refused: {settings}: {problem}")
    print(report.note)
    print(f"Written: {', '.join(str(path) for path in report.files)}")


def _row(best: BestPoint) -> tuple[str, ...]:
    unit, epsilon = best.tried.place
    method, model = best.tried.line
    return (
        unit or "nobody",
        f"{epsilon:g}" if epsilon else "none",
        method,
        model,
        best.tried.other_settings,
        _figure(best.tried),
        f"{best.tried.figure('log_loss').value:.4f}",
        f"{best.tried.figure('calibration_ratio').value:.3f}",
        str(best.among),
    )


def _figure(tried: TriedPoint) -> str:
    loss = tried.figure("auc_loss")
    return f"{loss.value:.4f}" + (f" [{loss.low:.4f}, {loss.high:.4f}]" if tried.has_interval else "")
