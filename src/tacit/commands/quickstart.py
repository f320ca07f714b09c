"""`tacit quickstart`: one simulated day end to end, a table, and a page."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, spinner, stage_bars
from tacit.errors import BadInput
from tacit.files import check_folder

if TYPE_CHECKING:
    from tacit.billed_day import BillingStores
    from tacit.store.ledger import LedgerStore

TITLE = "One day of tacit"

DEFAULT_OUT, LEDGER, PAGE = "quickstart", "day.sqlite", "index.html"
THREADS = 2  # its models are small: more threads would mostly wait for each other
LARGEST_SEED = 2**63 - 1  # kernels and torch hold it in 64 bits
ABOUT = """\
One day of tacit in a made-up town: statistics gathered from devices, click models under label DP and the
Hybrid, an adapter learnt in a clean room, candidates for generalised contexts, private choices on devices, and
exact charges; one ledger for all of it. Beside it the same day without privacy, and without personalisation.
Prints a table and leaves DIR/index.html, a page with figures, and DIR/day.sqlite, its ledger; in a minute."""
EXAMPLES = """\
examples:
  tacit quickstart
  tacit quickstart --scale 4 --seed 2 --out larger
  tacit ledger show --ledger quickstart/day.sqlite

Everything is synthetic, and drawn from the seed: the same seed gives the same day, but for some last digits on
another processor. It is a study, so it promises nothing; what each stage would promise is in the ledger. The
code is src/tacit/pipeline.py."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "quickstart",
        help="one simulated day end to end: a table and a page",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(DEFAULT_OUT),
        metavar="DIR",
        help=f"folder to write to (default: {DEFAULT_OUT})",
    )
    parser.add_argument(
        "--scale", type=int, default=1, metavar="N", help="N times the people and the log (default: 1)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the town and all draws (default: 1)"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.threads import limit_threads
    from tacit_lab.studies.figure_style import expect_matplotlib

    limit_threads(THREADS)
    scale, seed = expect.whole("scale", args.scale, at_least=1), expect.whole("seed", args.seed, at_least=0)
    if seed > LARGEST_SEED:
        raise BadInput(f"expected seed to be a whole number of at most 2^63 - 1, got {seed}")
    check_folder("--out", args.out)
    _refuse_others_page(args.out / PAGE)
    expect_matplotlib()
    if find_spec("torch") is None:
        raise BadInput("expected torch for the clean room, got none: pip install 'tacit[train]'")
    with spinner("starting"):
        from tacit.data.generators.town import Town
        from tacit.pipeline import Privacy
        from tacit_lab.studies.day.comparison import (
            COLUMNS,
            compare_days,
            comparison_json,
            comparison_table,
            summary,
        )
        from tacit_lab.studies.day.page import report
    usual = Town(seed=seed)
    town = replace(usual, people=scale * usual.people, logged=scale * usual.logged, clicks=scale * usual.clicks)
    args.out.mkdir(parents=True, exist_ok=True)
    with stage_bars() as told, _ledger(args.out) as ledger, _billing_stores() as stores:
        found = compare_days(town, Privacy(), ledger, stores, seed, told)
    page = args.out / PAGE
    page.write_text(report(found, f"tacit quickstart --scale {scale} --seed {seed}"), encoding="utf-8")
    if args.json:
        print_json(comparison_json(found))
        return 0
    print_table(f"{TITLE} (synthetic, seed {seed})", COLUMNS, comparison_table(found), numbers=COLUMNS[1:])
    print(f"{summary(found)}\nThe page: {page}")
    return 0


def _refuse_others_page(page: Path) -> None:
    """An earlier day is replaced; whatever else lies there is not ours to lose."""
    if page.exists() and TITLE.encode() not in page.read_bytes():
        raise BadInput(f"--out: expected a folder of an earlier quickstart or a new one, got another's {page}")


@contextmanager
def _billing_stores() -> Iterator[BillingStores]:
    """Of ad server and proxy, each in a file of its own for as long as the day lasts."""
    from tacit.billed_day import BillingStores
    from tacit.store.billing_ads import SqlAdStore
    from tacit.store.billing_proxy import SqlBillingProxyStore

    with TemporaryDirectory() as folder:
        ads, reports = (Path(folder) / name for name in ("ads.sqlite", "reports.sqlite"))
        yield BillingStores(SqlAdStore.open(ads), SqlBillingProxyStore.open(reports))


@contextmanager
def _ledger(out: Path) -> Iterator[LedgerStore]:
    """A new ledger, put into the folder when the day is over: another day there is another study."""
    from tacit.store.ledger import LedgerStore

    with TemporaryDirectory() as folder:
        yield LedgerStore.open(Path(folder) / LEDGER)
        for file in Path(folder).iterdir():
            shutil.copy(file, out / file.name)
