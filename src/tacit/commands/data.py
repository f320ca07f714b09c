"""`tacit data`: lists, describes, generates and prepares ad logs; its tables and records."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.data_output import print_comparison, print_description, print_prepared
from tacit.commands.output import Subparsers, add_action, add_json_flag, print_json, print_table, progress_bar
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.data.logs.definition import Log

ROWS_TO_DESCRIBE = 100_000
ROWS_TO_COMPARE = 1_000_000
PREPARE = """\
Read a log exactly as it was published (plain or compressed text, or Parquet), encode it, and write
memory-mapped columns that training opens without reading them.

  tacit data prepare criteo-display train.txt --out display
  tacit data prepare taobao folder/ --out taobao
  tacit data prepare my.csv --schema my.toml --out mine

Features become whole numbers by hashing into fixed bins (the default; it learns nothing from the data), or by a
vocabulary (--vocabulary 16). A vocabulary of sensitive values needs a public domain in the schema, or a private
selection that the ledger pays for: --select-epsilon 1 --select-delta 1e-7 --ledger L --scope clicks.
An encoder made before is applied unchanged with --encoder FOLDER.

A key that the log takes for sensitive cannot name privacy units. Where anybody may know which rows are of one
user, say so: --public-key user. The column is a key then, and a feature no longer."""
DESCRIBE = """\
Print what a log looks like beside the published figures: of a file, or without one of a made-up log.

  tacit data describe criteo-display train.txt
  tacit data describe criteo-attribution --rows 200000

The figures are exact, and memory does not grow with the file. They are for the owner of the data; publishing
one is a release, with a price."""
COMPARE = """\
How far a made-up log is from a real one: the figures of both side by side, and what each field tells about
the label, as its AUC alone in as many rows of each.

  tacit data compare criteo-search CriteoSearchData --rows 1000000

The figures are exact; they are for the owner of the data."""
GENERATE = """\
Make up a log from a stated model (docs/generators.md), calibrated to the published figures. The same seed
gives the same rows, and a longer log begins with the rows of a shorter one (but for criteo-attribution,
whose rows always fill its 30.9 days, and taobao, which has as many people as its rows call for).

  tacit data generate criteo-display --rows 1000000 --out display.parquet
  tacit data generate criteo-attribution --rows 100000 --out clicks.tsv.gz     the layout of the published file
  tacit data generate taobao --rows 100000 --out taobao/                      a folder of tables"""


def add_parser(commands: Subparsers) -> None:
    data = commands.add_parser(
        "data",
        help="list, describe, generate and prepare ad logs",
        description="Published ad logs, made-up ones like them, and columns that training reads.",
    )
    actions = data.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser(
        "list",
        help="the logs that tacit knows, or the columns of one",
        description="The logs that tacit knows.",
    )
    listing.add_argument("name", nargs="?", metavar="NAME", help="print this log's columns and rules")
    add_json_flag(listing)
    listing.set_defaults(run=run_list)

    describe = add_action(actions, None, "describe", "statistics beside the published ones", DESCRIBE)
    describe.add_argument("name", metavar="NAME|PATH", help="a log's name; a path with --schema")
    describe.add_argument("path", metavar="PATH", nargs="?", help="the file or folder; none: make one up")
    describe.add_argument("--schema", metavar="TOML", help="the columns of a log of your own")
    describe.add_argument(
        "--rows", type=int, default=ROWS_TO_DESCRIBE, help="rows to make up (default: %(default)s)"
    )
    describe.add_argument("--seed", type=int, default=1, help="seed of the made-up log (default: %(default)s)")
    _add_reading(describe)
    add_json_flag(describe)
    describe.set_defaults(run=run_describe)

    compare = add_action(actions, None, "compare", "a file beside a made-up log like it", COMPARE)
    compare.add_argument("name", metavar="NAME", help="a log's name; see tacit data list")
    compare.add_argument("path", metavar="PATH", help="the published file or folder")
    compare.add_argument(
        "--rows", type=int, default=ROWS_TO_COMPARE, help="rows to make up (default: %(default)s)"
    )
    compare.add_argument("--seed", type=int, default=1, help="seed of the made-up log (default: %(default)s)")
    _add_reading(compare)
    add_json_flag(compare)
    compare.set_defaults(run=run_compare, schema=None)

    generate = add_action(actions, None, "generate", "a calibrated synthetic log of any size", GENERATE)
    generate.add_argument("name", metavar="NAME", help="a log's name; see tacit data list")
    generate.add_argument("--rows", type=int, required=True, metavar="N", help="rows to make up")
    generate.add_argument("--out", type=Path, required=True, metavar="PATH", help="a file; for taobao a folder")
    generate.add_argument("--seed", type=int, default=1, help="seed of all draws (default: %(default)s)")
    generate.add_argument(
        "--truth", type=Path, metavar="PATH", help="also write the true probabilities, for studies"
    )
    generate.add_argument(
        "--rare-signal",
        type=float,
        metavar="X",
        help="how much signal is in fields of many values (0: no more than in others)",
    )
    generate.add_argument(
        "--format", choices=("parquet", "published"), help="of the file (default: by its name)"
    )
    _add_overwrite(generate)
    add_json_flag(generate)
    generate.set_defaults(run=run_generate)

    prepare = add_action(actions, None, "prepare", "encode a log into memory-mapped columns", PREPARE)
    prepare.add_argument("name", metavar="NAME|PATH", help="a log's name; a path with --schema")
    prepare.add_argument("path", metavar="PATH", nargs="?", help="the file or folder")
    prepare.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the columns")
    prepare.add_argument("--schema", metavar="TOML", help="the columns of a log of your own")
    prepare.add_argument(
        "--public-bins", type=int, metavar="N", help="rows of the public table (default: the log's)"
    )
    prepare.add_argument(
        "--sensitive-bins", type=int, metavar="N", help="rows of the sensitive one (default: the log's)"
    )
    prepare.add_argument(
        "--vocabulary", type=int, metavar="T", help="list public values that occur at least T times"
    )
    prepare.add_argument(
        "--sensitive-vocabulary", action="store_true", help="list sensitive values too; see above"
    )
    prepare.add_argument("--select-epsilon", metavar="E", help="epsilon of the private selection")
    prepare.add_argument("--select-delta", metavar="D", help="delta of the private selection")
    prepare.add_argument(
        "--select-threshold", type=int, default=0, metavar="T", help="list values above about T rows"
    )
    prepare.add_argument("--select-key", metavar="NAME", help="its name in the ledger (default: that of --out)")
    prepare.add_argument("--ledger", metavar="PATH_OR_URL", help="the ledger that pays for the selection")
    prepare.add_argument("--witness", metavar="PATH", help="the ledger's witness, where it is not beside it")
    prepare.add_argument("--scope", help="the ledger's name for these people's data")
    prepare.add_argument("--encoder", type=Path, metavar="FOLDER", help="apply this encoder unchanged")
    prepare.add_argument(
        "--public-key",
        action="append",
        default=[],
        metavar="KEY",
        help="you state that this key (user, publisher, advertiser, time) is public; may come several times",
    )
    prepare.add_argument(
        "--delays",
        action="store_true",
        help="also keep seconds to conversion, for labels that are reported twice",
    )
    prepare.add_argument("--split", choices=("chronological", "random", "by-user"), help="default: the log's")
    prepare.add_argument(
        "--shares", metavar="S,S,...", help="shares of train, validation and test, or of train and test"
    )
    prepare.add_argument("--split-seed", type=int, default=0, help="seed of a random split (default: 0)")
    _add_reading(prepare)
    _add_overwrite(prepare)
    add_json_flag(prepare)
    prepare.set_defaults(run=run_prepare)


def run_list(args: argparse.Namespace) -> int:
    from tacit.data.logs.definition import LOG_NAMES, find_log

    if args.name is None:
        logs = [find_log(name) for name in LOG_NAMES]
        if args.json:
            print_json([log.as_json() for log in logs])
        else:
            print_table("Logs", ("name", "what it is"), [(log.name, log.title) for log in logs])
        return 0
    log = find_log(args.name)
    if args.json:
        print_json({**log.as_json(), "columns": [column.as_json() for column in log.schema.columns]})
    else:
        print(f"{log.title}\n{log.about}\n\n{log.schema}\n\nsplit: {log.split}")
    return 0


def run_describe(args: argparse.Namespace) -> int:
    from tacit.data.description import describe, with_delay_columns
    from tacit.data.reading.reader import LogReader
    from tacit.data.synthetic import write_made_up

    log, path = _log_and_path(args, path_needed=False)
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "log"
            with progress_bar("making up rows", args.rows) as progress:
                write_made_up(args.name, args.rows, args.seed, path, progress)
        reader = LogReader(with_delay_columns(log), path, bad_rows_limit=args.max_bad_rows)
        with progress_bar("describing", reader.bytes) as progress:
            description = describe(reader, progress)
    if args.json:
        print_json(description.as_json())
    else:
        print_description(description)
    return 0


def run_compare(args: argparse.Namespace) -> int:
    from tacit.data.comparison import compare_logs
    from tacit.data.description import with_delay_columns
    from tacit.data.reading.reader import LogReader
    from tacit.data.synthetic import write_made_up

    log, path = _log_and_path(args, path_needed=True)
    file = LogReader(with_delay_columns(log), path, bad_rows_limit=args.max_bad_rows)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "log"
        with progress_bar("making up rows", args.rows) as progress:
            write_made_up(args.name, args.rows, args.seed, place, progress)
        with progress_bar("describing", file.bytes) as progress:
            made_up = LogReader(with_delay_columns(log), place)
            found = compare_logs(made_up, file, rows=args.rows, progress=progress)
    if args.json:
        print_json(found.as_json())
    else:
        print_comparison(found)
    return 0


def run_generate(args: argparse.Namespace) -> int:
    from tacit.data.generators.worlds import world
    from tacit.data.logs.definition import find_log
    from tacit.data.synthetic import Format, LogDestination, write_log

    log = find_log(args.name)
    made = world(args.name, args.seed, rows=args.rows, rare_signal=args.rare_signal)
    destination = LogDestination.at(args.out, args.format, truth=args.truth, overwrite=args.overwrite)
    settings = {"seed": args.seed, "rare_signal": args.rare_signal}
    with progress_bar("generating", args.rows) as progress:
        write_log(made, args.rows, log.layouts[0], destination, settings, progress)
    record = {"log": log.name, "rows": args.rows, "seed": args.seed, "out": str(args.out), "synthetic": True}
    if args.json:
        print_json(record)
    else:
        layout = "Parquet" if destination.format is Format.PARQUET else "text, in the published layout"
        print(f"{args.out}: {args.rows:,} synthetic rows of {log.name}, seed {args.seed}, as {layout}")
    return 0


def run_prepare(args: argparse.Namespace) -> int:
    from tacit.commands.data_encoder import choose_encoder, choose_split
    from tacit.data.columns import check_destination
    from tacit.data.description import with_delay_columns
    from tacit.data.preparation import prepare
    from tacit.data.reading.reader import LogReader

    log, path = _log_and_path(args, path_needed=True)
    if args.public_key:
        log = log.with_public_keys(args.public_key)
    # Whatever can be refused is refused here, before a selection is paid for.
    split = choose_split(args, log)
    check_destination(args.out, overwrite=args.overwrite)
    if args.delays and log.delay is None:
        raise BadInput(
            f"expected a log that tells delays with --delays, got {log.name}: a column may have that role"
        )
    reader = LogReader(with_delay_columns(log) if args.delays else log, path, bad_rows_limit=args.max_bad_rows)
    with choose_encoder(args, log, path) as encoder, progress_bar("preparing", reader.bytes) as progress:
        prepared = prepare(reader, encoder, args.out, split=split, overwrite=args.overwrite, progress=progress)
    if args.json:
        print_json(prepared.as_json())
    else:
        print_prepared(prepared)
    return 0


def _add_reading(parser: argparse.ArgumentParser) -> None:
    """How a file is read."""
    from tacit.data.reading.bad_rows import DEFAULT_LIMIT

    parser.add_argument(
        "--encoding", metavar="NAME", help="encoding of a text file: utf-8 (default), latin-1 or windows-1252"
    )
    parser.add_argument(
        "--max-bad-rows",
        type=int,
        default=DEFAULT_LIMIT,
        metavar="N",
        help="refuse the file if more rows than this cannot be read (default: %(default)s)",
    )


def _add_overwrite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--overwrite", action="store_true", help="replace what is there, once the new one is whole"
    )


def _log_and_path(args: argparse.Namespace, *, path_needed: bool) -> tuple[Log, Any]:
    from tacit.data.logs import definition
    from tacit.data.logs.definition import find_log
    from tacit.data.reading.layout import Encoding
    from tacit.errors import BadInput

    if args.schema is not None:
        if args.path is not None:
            raise BadInput(f"expected one path with --schema, got {args.name} and {args.path}")
        log, path = definition.load_log(args.schema), args.name
    else:
        log, path = find_log(args.name), args.path
        if path is None and path_needed:
            raise BadInput(f"expected the path of the file after {args.name}, got none")
    if args.encoding is not None:
        log = log.with_encoding(Encoding.named("--encoding", args.encoding))
    return log, path
