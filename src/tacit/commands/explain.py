"""`tacit explain`: in plain words, what a model, a configuration or a log promises, and what it does not."""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit.commands.output import Subparsers, add_json_flag, print_json

ABOUT = """\
Say in plain words what is promised, to whom, and what is not.

PATH is a model (what was promised to the people it learned from), a training configuration (what would be
promised; nothing is spent), or a prepared log (what is in it, and which promises can be made about it)."""

EXAMPLES = """\
examples:
  tacit explain model
  tacit explain train.toml
  tacit explain display --json"""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "explain",
        help="what a model, a configuration or a log promises, in plain words",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a model, a configuration or a prepared log")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.commands.train import plan_with_spinner
    from tacit.train.explanation import explain

    found = explain(args.path, plan_with_spinner)
    if args.json:
        print_json(found.record)
    else:
        print(found)
    return 0
