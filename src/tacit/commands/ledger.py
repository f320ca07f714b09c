"""`tacit ledger`: what was promised, what is spent, and what is left.

For other commands: where the ledger is not there, or has no line for what is asked, they say the exact command
that grants one.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit import expect
from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table
from tacit.errors import LedgerError, LedgerRolledBack, UnknownLine

if TYPE_CHECKING:
    from tacit.privacy.ledger.guarantee import Guarantee
    from tacit.privacy.ledger.lines import Series
    from tacit.store.ledger import LedgerStore
    from tacit.train.config import LedgerSettings

DEFAULT_LEDGER = "tacit-ledger.sqlite"

ABOUT = """\
The privacy ledger: one line per scope, unit, relation and window, each with a limit that can never be passed.
A release is reserved on its line before it is made, and committed once it has left."""

EXAMPLES = """\
examples:
  tacit ledger grant --scope clicks --unit user --relation replace-one --epsilon 4 --delta 1e-6
      open a line for all time
  tacit ledger grant --scope clicks --unit user --relation replace-one --epsilon 1 --window-days 7
      every week of impressions gets epsilon 1 of its own
  tacit ledger show
  tacit ledger verify --ledger postgresql+psycopg://tacit@db/ads --witness /var/lib/tacit/ads.witness

Names of scopes, keys and purposes are kept for ever and shown to everybody who may read the ledger: never put a
person's data into them."""

HAND_OVER = """\
Let another run claim what a lost one holds. A reservation leads to one release: the run that took it up holds
it, and copies of that run, or older checkpoints of it, are refused. When the machine that held it is gone for
good, this frees the reservation, and the next run that asks for it (from an older checkpoint, say) goes on,
alone. It is refused once a model was made.

If the lost run is not lost after all, it is refused from then on, unless it is the first to ask. What you risk
is what somebody may have taken from that machine by hand: a checkpoint of the lost run and the model of the one
that goes on are together more than was paid for. The ledger keeps a note that you did it."""

ACCEPT = """\
Take a ledger as complete although its witness is missing, torn, or has seen entries that the ledger lacks.

The witness is a small file that remembers the last entry. When the two disagree, the ledger was most likely
restored from an older copy, and what was spent since then is missing from it. First look for a later copy.
If you accept, that spending is forgotten: people whose data was released may lose more privacy than was
promised to them. The ledger keeps a note that you did."""


def add_parser(commands: Subparsers) -> None:
    top = commands.add_parser(
        "ledger",
        help="grant privacy budgets, and show what is spent, reserved and left",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = top.add_subparsers(dest="action", metavar="ACTION", required=True)

    show = actions.add_parser("show", help="list the lines", description="List every line with its totals.")
    _add_place(show)
    show.set_defaults(run=run_show)

    grant = actions.add_parser(
        "grant",
        help="open a line, or every window's line, with a limit",
        description="Open a line with a limit, or give it another one (never below what it has used). With\n"
        "--window-days and no --window, every window gets its own line when it first spends.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_place(grant)
    grant.add_argument("--scope", required=True, help="the dataset or purpose that releases add up within")
    grant.add_argument(
        "--unit",
        required=True,
        help="who is protected: impression, user, user-publisher, user-advertiser or device",
    )
    grant.add_argument("--relation", required=True, help="add-remove, replace-one, replace-label or zero-out")
    grant.add_argument("--epsilon", required=True, help="the most epsilon that may be spent")
    grant.add_argument("--delta", default="0", help="the most delta that may be spent (default: 0)")
    grant.add_argument(
        "--window-days", type=int, help="length of the unit's time window in days; without it: all time"
    )
    grant.add_argument(
        "--window-origin", type=int, default=0, help="second at which window 0 begins (default: 0)"
    )
    grant.add_argument("--window", type=int, help="the index of one window; without it: each of them")
    grant.add_argument("--ad-tech", help="the ad-tech that the promise is limited to; without it: all together")
    grant.set_defaults(run=run_grant)

    settle = actions.add_parser(
        "settle",
        help="say what became of a reservation whose run died",
        description="Settle a reservation that its run left open (see `tacit ledger show`). If you do not know "
        "whether the release left, it left: --never-left gives back budget that may have been used, and is "
        "refused where the ledger knows the release as made.",
    )
    settle.add_argument("key", metavar="KEY", help="the reservation's key")
    outcome = settle.add_mutually_exclusive_group(required=True)
    outcome.add_argument("--left", action="store_true", help="the release was made: spend what was reserved")
    outcome.add_argument(
        "--never-left", action="store_true", help="nothing was released, nor ever will be: give it back"
    )
    _add_place(settle)
    settle.set_defaults(run=run_settle)

    hand_over = actions.add_parser(
        "hand-over",
        help="let another run go on in the place of one that is lost",
        description=HAND_OVER,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    hand_over.add_argument("keys", nargs="+", metavar="KEY", help="the reservation's keys: all of one release")
    hand_over.add_argument(
        "--machine-lost", action="store_true", required=True, help="the run that held them will never go on"
    )
    _add_place(hand_over)
    hand_over.set_defaults(run=run_hand_over)

    accept = actions.add_parser(
        "accept",
        help="take a ledger as complete without its witness",
        description=ACCEPT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_place(accept)
    accept.set_defaults(run=run_accept)

    verify = actions.add_parser(
        "verify",
        help="recompute the chain and the totals",
        description="Recompute every hash and every total from the entries. Exit code 1 if anything is off.",
    )
    _add_place(verify)
    verify.set_defaults(run=run_verify)


def run_show(args: argparse.Namespace) -> int:
    from tacit.store.ledger import LedgerStore

    shown = LedgerStore.open_existing(args.ledger, witness=args.witness).verify().as_json()
    if args.json:
        print_json(shown)
        return 0
    place = ("scope", "unit", "relation", "window")
    amounts = ("limit", "spent", "reserved", "remaining")
    print_table(
        "Privacy ledger: (ε, δ) by line",
        (*place, *amounts, "entries"),
        [_cells(line, (*place, *amounts, "entries")) for line in shown["lines"]],
        numbers=(*amounts, "entries"),
    )
    if shown["renewals"]:
        rows = [_cells(renewal, (*place, "limit")) for renewal in shown["renewals"]]
        print_table("Each window that opens gets", (*place, "limit"), rows, numbers=("limit",))
    if shown["unsettled"]:
        columns = ("key", "purpose", *place, "reserved", "stage")
        rows = [_cells(reservation, columns) for reservation in shown["unsettled"]]
        title = "Reserved and not settled: commit what has left, abort only what never did"
        print_table(title, columns, rows, numbers=("reserved",))
    return 0


def run_grant(args: argparse.Namespace) -> int:
    from tacit.privacy.budget import Budget
    from tacit.privacy.ledger.chain import place_record
    from tacit.store.ledger import LedgerStore

    series = _series(args)
    limit = Budget.of(args.epsilon, args.delta)
    each = series.unit.window is not None and args.window is None
    line = None if each else series.line(args.window)
    store = LedgerStore.open(args.ledger, witness=args.witness)
    if line is None:
        granted = store.renew(series, limit).limit
        where = f"each window of {series}"
    else:
        granted = store.grant(line, limit).limit
        where = f"line {line}"
    if args.json:
        place = place_record(series, "each" if line is None else line.window)
        print_json({**place, "limit": granted.as_json()})
    else:
        print(f"granted {granted} on {where}")
    return 0


def run_settle(args: argparse.Namespace) -> int:
    from tacit.store.ledger import LedgerStore

    store = LedgerStore.open_existing(args.ledger, witness=args.witness)
    settle = store.commit if args.left else store.abort
    settled = settle(args.key, certain=True)
    if args.json:
        print_json({"key": settled.key, "state": str(settled.state), "amount": settled.amount.as_json()})
    else:
        print(f"{settled.state} {settled.key}: {settled.amount} on line {settled.line}")
    return 0


def run_hand_over(args: argparse.Namespace) -> int:
    from tacit.store.ledger import LedgerStore

    freed = LedgerStore.open_existing(args.ledger, witness=args.witness).hand_over(args.keys)
    if args.json:
        print_json({"keys": args.keys, "freed": [not each.resumed for each in freed]})
    for each in () if args.json else freed:
        happened = "nobody holds it" if each.resumed else "handed over: the next run that claims it goes on"
        print(f"{each.key}: {happened}")
    return 0


def run_accept(args: argparse.Namespace) -> int:
    from tacit.store.ledger import LedgerStore

    head = LedgerStore.accept(args.ledger, witness=args.witness)
    if args.json:
        print_json({"entries": head.sequence, "hash": head.hash})
    else:
        print(f"accepted: the ledger ends at entry {head.sequence}, and the witness now says so too")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    from tacit.errors import LedgerCorrupt, LedgerRolledBack
    from tacit.store.ledger import LedgerStore

    try:
        head = LedgerStore.open_existing(args.ledger, witness=args.witness).verify().head
    except (LedgerCorrupt, LedgerRolledBack) as problem:
        if args.json:
            print_json({"holds": False, "problem": str(problem)})
        else:
            print(f"tacit ledger: {expect.without_passwords(str(problem))}", file=sys.stderr)
        return 1
    if args.json:
        print_json({"holds": True, "entries": head.sequence, "hash": head.hash})
    else:
        print(f"the ledger holds: {head.sequence} entries, last hash {head.hash}")
    return 0


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ledger",
        metavar="PATH_OR_URL",
        default=DEFAULT_LEDGER,
        help=f"a SQLite file or postgresql+psycopg://... (default: {DEFAULT_LEDGER})",
    )
    parser.add_argument(
        "--witness",
        metavar="PATH",
        help="the file that remembers the last entry (default: beside a SQLite file, with .witness; "
        "required for PostgreSQL)",
    )
    add_json_flag(parser)


def _series(args: argparse.Namespace) -> Series:
    from tacit.errors import BadInput
    from tacit.privacy.ledger.lines import Series
    from tacit.privacy.units import Relation, Unit, UnitKind, Window

    if args.window is not None and args.window_days is None:
        raise BadInput(f"expected --window-days with --window, got --window {args.window} alone")
    window = None if args.window_days is None else Window.days(args.window_days, origin=args.window_origin)
    return Series(args.scope, Unit(UnitKind(args.unit), window, args.ad_tech), Relation(args.relation))


def _cells(record: dict[str, Any], columns: tuple[str, ...]) -> list[str]:
    values = ["all time" if record[column] is None else record[column] for column in columns]
    # 15 digits: an amount in whole parts is shown as it is, never rounded in our favour.
    return [
        f"{value['epsilon']:.15g}, {value['delta']:.15g}" if isinstance(value, dict) else str(value)
        for value in values
    ]


DAY = 86_400


@dataclass(frozen=True)
class Asker:
    """How whoever asks calls a ledger's place, and how one may do without a ledger."""

    place: str
    instead: str | None = None


def open_paying_ledger(ledger: LedgerSettings, cost: Guarantee, asker: Asker) -> LedgerStore:
    """The ledger that pays; where there is none, how to begin one with room for this."""
    from tacit.store.database import ledger_database
    from tacit.store.ledger import LedgerStore

    assert ledger.path is not None, "nobody pays without a ledger"
    try:
        return LedgerStore.open_existing(ledger.path, witness=ledger.witness)
    except LedgerRolledBack:
        raise
    except LedgerError:
        place = ledger_database(ledger.path)
        if place.exists():
            raise
        instead = "" if asker.instead is None else f"; {asker.instead}"
        raise LedgerError(
            f"{asker.place}: there is no ledger at {place.name}{instead}; begin one with room for this with: "
            f"{grant_command(ledger, cost)}"
        ) from None


@contextmanager
def suggest_grant(command: str) -> Iterator[None]:
    """A line that nobody has granted anything on is said with the command that does."""
    try:
        yield
    except UnknownLine as problem:
        raise UnknownLine(
            f"{str(problem).removesuffix('; grant one first')}; grant one with: {command}"
        ) from None


def grant_command(ledger: LedgerSettings, cost: Guarantee) -> str:
    """The command that grants as much as this costs, which is the least that pays for it."""
    from tacit.privacy.budget import format_rounded_up
    from tacit.store.database import ledger_database

    assert ledger.path is not None, "nobody pays without a ledger"
    unit, budget = cost.unit, cost.budget
    words = ["tacit", "ledger", "grant", "--ledger", ledger_database(ledger.path).name]  # without a password
    words += ["--witness", ledger.witness] if ledger.witness is not None else []
    words += ["--scope", str(ledger.scope), "--unit", str(unit.kind)]
    words += ["--relation", str(ledger.relation or cost.relation)]
    words += ["--epsilon", format_rounded_up(float(budget.epsilon))]
    words += ["--delta", format_rounded_up(float(budget.delta), 3)] if budget.delta else []
    if unit.window is not None:
        words += ["--window-days", str(unit.window.seconds // DAY)]
        words += ["--window-origin", str(unit.window.origin)] if unit.window.origin else []
    words += ["--ad-tech", unit.ad_tech] if unit.ad_tech is not None else []
    return shlex.join(words)
