"""`tacit bench`: our work beside its peers', in one run, as ratios held to a bar."""

from __future__ import annotations

import argparse
import importlib
import math

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, track_progress
from tacit_lab.bench.measurement import ON_REQUEST, SUITES, USUAL, Measurement

ABOUT = """\
Measure tacit beside its peers, other libraries that do the same work: all take turns in one run, so that a
busy machine slows all of them alike, and what is reported is mostly ratios. Peers come with the extra: pip
install 'tacit[bench]'."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure speeds beside other libraries, as ratios in one run",
        description=ABOUT,
        epilog="A bar is what a measurement must reach. exit code 0: every bar is held; 1: one is not.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        type=_suite,
        help=f"{', '.join(SUITES)}; default all but {', '.join(ON_REQUEST)}",
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder of published samples; the benchmark `defaults` needs it"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def _suite(name: str) -> str:
    if name not in SUITES:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(SUITES)}, got {name!r}")
    return name


def run(args: argparse.Namespace) -> int:
    measurements: list[Measurement] = []
    for name in args.names or USUAL:
        suite = importlib.import_module(f"tacit_lab.bench.{name}")
        samples = (args.data,) if name in ON_REQUEST else ()
        measurements += suite.run(track_progress, *samples)
    missed = [m for m in measurements if m.holds is False]
    if args.json:
        print_json([m.as_json() for m in measurements])
        return 1 if missed else 0
    notes = list(dict.fromkeys(m.settings for m in measurements if m.settings))
    print_table(
        "measured in this run",
        ("measurement", "value", "unit", "bar", "verdict", "note"),
        [
            (
                m.name,
                "none" if math.isnan(m.value) else f"{m.value:.4g}",
                m.unit,
                "" if m.bar is None else f"{'≥' if m.at_least else '≤'} {m.bar:g}",
                {True: "holds", False: "MISSED", None: ""}[m.holds],
                str(notes.index(m.settings) + 1) if m.settings else "",
            )
            for m in measurements
        ],
        numbers=("value", "bar", "note"),
    )
    for number, note in enumerate(notes, start=1):
        print(f"{number:>3}  {note}")
    return 1 if missed else 0
