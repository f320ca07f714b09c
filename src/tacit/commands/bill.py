"""`tacit bill`: what advertisers owe and why; a folder for the auditor, and the auditor's own check of it."""

from __future__ import annotations

import argparse
import shlex
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.output import (
    Subparsers,
    add_action,
    add_json_flag,
    extra_installed,
    print_json,
    print_table,
)
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.commands.bill_output import Itemised
    from tacit.store.billing_ads import SqlAdStore

SHOWN_AT_MOST = 1_000  # lines of one invoice in a terminal; files get all
NO_LIMIT = "none"

ABOUT = """\
What the ad server charged, and whether it was right to. Charges come from devices' reports by way of the proxy,
one per impression, at the public price of the menu that it was chosen from.

Operators of the ad server read and close invoices, and raise budgets; the service may run meanwhile. Auditors
check an exported folder on their own machine, with the public keys of parties.toml and nothing else."""

EXAMPLES = """\
examples:
  tacit bill status server.toml                        what campaigns were charged, and what is on no invoice
  tacit bill invoices server.toml --close              put all of that on invoices, one per advertiser
  tacit bill invoices server.toml --page bill.html     every invoice, line by line, as a page
  tacit bill budget server.toml 3 50000000             campaign 3 may cost 50 in all; what was held is charged
  tacit bill export server.toml --out audit            all that charges rest on, for an auditor
  tacit bill verify audit --parties parties.toml       derive every invoice again, without any secret

SETTINGS are the ad server's: a server's, with a table [billing]."""

EXPORT = """\
Write everything that charges rest on to a folder for an auditor: countersigned directories, menus, batches as
the proxy signed them, receipts, what opens each charge, campaigns and invoices. It has no key, no address and
no request, and is as of one moment, while the service goes on.

Give it to auditors alone, and never to the proxy: the proxy knows who sent each report, and would learn from it
what was shown to whom."""

VERIFY = """\
Derive every invoice again from an exported folder, and say exactly what does not hold: signatures of both
parties, one root of menus per epoch, every token, every opening, price and campaign, tokens charged twice,
accepted reports that were not charged, receipts, lines and totals. Nothing secret is needed.

Public keys come from parties.toml, which you should have from both parties, and not from the folder's sender.
--statements are the proxy's own, as it gives them for an epoch (GET /billing/epochs/EPOCH/batches), one file
behind the other: with them, batches that the ad server left out are found. --receipts are those that the ad
server gave to the proxy (GET /billing/epochs/EPOCH/receipts): with them, charges that it now denies are found.

exit code 0: everything holds; 1: here is what does not; 2: there is no such folder."""

INVOICES = """\
List invoices line by line: campaign, context, which entry of its menu was shown, price, impressions, total, and
why the price is what it is. Amounts are in currency units, to the micro; in --json and --csv in whole micros.

--close first closes one per advertiser, with every charge that is on none; what comes later goes on the next.
It is one transaction on the store, whether the service runs or not."""

STATUS = """\
What each campaign may cost, was charged, is held because its money ran out, and owes on no invoice yet. Read
from the store: the service need not run."""

BUDGET = """\
Give a campaign another budget: what it may be charged in all, in whole micros, or none for no limit. Charges
that were held because its money had run out are made as far as the new budget goes, the oldest first. Its next
menus are offered again from the next epoch on."""


def add_parser(commands: Subparsers) -> None:
    top = commands.add_parser(
        "bill",
        help="invoices, budgets, and a check of both that needs no secret",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = top.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = partial(add_action, actions, EXAMPLES)

    export = action("export", "write a folder for the auditor", EXPORT)
    _add_settings(export)
    export.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="the folder to make")
    _add_overwrite(export, "replace a folder that an export wrote before")
    add_json_flag(export)
    export.set_defaults(run=run_export)

    verify = action("verify", "derive every invoice again from such a folder", VERIFY)
    verify.add_argument("folder", type=Path, metavar="FOLDER", help="what `tacit bill export` wrote")
    verify.add_argument(
        "--parties", required=True, type=Path, metavar="FILE", help="parties.toml: public keys of both parties"
    )
    verify.add_argument("--statements", type=Path, metavar="FILE", help="the proxy's own statements of batches")
    verify.add_argument("--receipts", type=Path, metavar="FILE", help="the receipts that the proxy was given")
    add_json_flag(verify)
    verify.set_defaults(run=run_verify)

    invoices = action("invoices", "list invoices line by line, and close new ones", INVOICES)
    _add_settings(invoices)
    invoices.add_argument("--close", action="store_true", help="first put all open charges on new invoices")
    invoices.add_argument("--invoice", type=int, metavar="NUMBER", help="only the invoice of this number")
    invoices.add_argument("--csv", type=Path, metavar="FILE", help="write all lines to a file")
    invoices.add_argument("--page", type=Path, metavar="FILE", help="write a page to print or send, in HTML")
    _add_overwrite(invoices, "replace files that are there")
    add_json_flag(invoices)
    invoices.set_defaults(run=run_invoices)

    status = action("status", "what campaigns were charged, hold and owe", STATUS)
    _add_settings(status)
    add_json_flag(status)
    status.set_defaults(run=run_status)

    budget = action("budget", "give a campaign another budget", BUDGET)
    _add_settings(budget)
    budget.add_argument("campaign", type=int, metavar="CAMPAIGN", help="its number")
    budget.add_argument("micros", metavar="MICROS", help=f"what it may cost in all, or {NO_LIMIT}")
    add_json_flag(budget)
    budget.set_defaults(run=run_budget)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("settings", type=Path, metavar="SETTINGS", help="the ad server's settings, in TOML")


def _add_overwrite(parser: argparse.ArgumentParser, does: str) -> None:
    parser.add_argument("--overwrite", action="store_true", help=does)


def run_export(args: argparse.Namespace) -> int:
    from tacit.bill.audit.export import export_folder
    from tacit.commands.bill_output import plural
    from tacit.commands.output import spinner
    from tacit.files import check_writable

    check_writable("--out", args.out)
    store = open_ad_store(args.settings)
    with spinner("exporting"):
        written = export_folder(store, args.out, now=int(time.time()), overwrite=args.overwrite)
    if args.json:
        print_json(written.as_json())
        return 0
    held = f"{plural(written.reports, 'report')} in {plural(written.batches, 'batch', 'batches')}"
    print(
        f"wrote {held} and {plural(written.invoices, 'invoice')} to {args.out}: for auditors, never the proxy"
    )
    beside = args.settings.parent / "parties.toml"
    parties = beside if beside.is_file() else "parties.toml"
    print(f"next: tacit bill verify {shlex.quote(str(args.out))} --parties {shlex.quote(str(parties))}")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    from tacit.bill.audit.verification import verify_folder

    server, proxy = _signing_keys(args.parties)
    report = verify_folder(args.folder, server, proxy, statements=args.statements, receipts=args.receipts)
    if args.json:
        print_json(report.as_json())
        return 0 if report.holds else 1
    from tacit.bill.audit.findings import LIMITS
    from tacit.commands.bill_output import AUDIT_COLUMNS, AUDIT_NUMBERS, audit_lines, audit_rows, plural

    if report.invoices:
        print_table("Invoices", AUDIT_COLUMNS, audit_rows(report), numbers=AUDIT_NUMBERS)
    print("\n".join(audit_lines(report)))
    for finding in report.findings:
        print(f"! {finding}")
    if more := report.found - len(report.findings):
        print(f"! and {more:,} more")
    print("what no folder shows:")
    print("\n".join(f"- {limit}" for limit in LIMITS))
    verdict = "everything holds: each invoice follows from what was signed"
    print(verdict if report.holds else f"this does not hold: {plural(report.found, 'finding')}")
    return 0 if report.holds else 1


def run_invoices(args: argparse.Namespace) -> int:
    from tacit.bill.accounts import invoice_as_json, itemise_invoice, items_as_csv
    from tacit.commands.bill_output import invoice_page
    from tacit.files import PRIVATE_MODE, write_atomically

    if args.close and args.invoice is not None:
        raise BadInput("--invoice: expected no number beside --close, which closes new ones, got one")
    for option in ("csv", "page"):
        check_place(f"--{option}", getattr(args, option), overwrite=args.overwrite)
    store = open_ad_store(args.settings)
    closed = store.close_invoices(int(time.time())) if args.close else ()
    chosen = [each for each in store.invoices() if args.invoice in (None, each.number)]
    if args.invoice is not None and not chosen:
        raise BadInput(f"--invoice: expected the number of an invoice, got {args.invoice}")
    invoices: list[Itemised] = [(invoice, itemise_invoice(invoice, store)) for invoice in chosen]
    if args.csv is not None:
        write_atomically(args.csv.resolve(), items_as_csv(invoices), mode=PRIVATE_MODE)
    if args.page is not None:
        write_atomically(args.page.resolve(), invoice_page(invoices).encode(), mode=PRIVATE_MODE)
    if args.json:
        told = [invoice_as_json(invoice, items) for invoice, items in invoices]
        print_json({"closed": [each.number for each in closed], "invoices": told})
        return 0
    if args.close:
        numbers = ", ".join(str(each.number) for each in closed)
        print(f"closed invoices {numbers}" if closed else "no charge was on no invoice: none was closed")
    for option in ("csv", "page"):
        if getattr(args, option) is not None:
            print(f"wrote {getattr(args, option)}")
    if args.csv is None and args.page is None:
        _print_invoices(invoices)
    return 0


def _print_invoices(invoices: list[Itemised]) -> None:
    from tacit.commands.bill_output import ITEM_COLUMNS, ITEM_NUMBERS, invoice_title, item_row

    if not invoices:
        print("no invoice was closed yet: --close closes one per advertiser")
    for invoice, items in invoices:
        rows = [item_row(item) for item in items[:SHOWN_AT_MOST]]
        print_table(invoice_title(invoice), ITEM_COLUMNS, rows, numbers=ITEM_NUMBERS)
        if len(items) > SHOWN_AT_MOST:
            print(f"and {len(items) - SHOWN_AT_MOST:,} more lines: --csv FILE has all")


def run_status(args: argparse.Namespace) -> int:
    from tacit.bill.accounts import read_accounts
    from tacit.commands.bill_output import ACCOUNT_COLUMNS, ACCOUNT_NUMBERS, account_rows, plural

    accounts = read_accounts(open_ad_store(args.settings))
    if args.json:
        print_json(accounts.as_json())
        return 0
    shown = f"{plural(accounts.impressions, 'impression')}, {accounts.nothing_shown:,} of nothing shown"
    title = f"Charges so far: {shown}, {plural(accounts.invoices, 'invoice')}"
    print_table(title, ACCOUNT_COLUMNS, account_rows(accounts), numbers=ACCOUNT_NUMBERS)
    return 0


def run_budget(args: argparse.Namespace) -> int:
    from tacit.bill.accounts import set_budget, show_micros
    from tacit.deliver.campaigns.store import MACHINE, Author
    from tacit.store.campaigns import SqlCampaignStore

    budget = None if args.micros == NO_LIMIT else _micros(args.micros)
    store = open_ad_store(args.settings)
    held = store.held_micros().get(args.campaign, 0)
    SqlCampaignStore(store.database).set_budget(args.campaign, budget, Author(MACHINE, int(time.time())))
    campaign = set_budget(store, args.campaign, budget)  # of a market's file, or as it is now
    left = store.held_micros().get(args.campaign, 0)
    released = max(held - left, 0)
    if args.json:
        print_json({**asdict(campaign), "held_micros": left, "released_micros": released})
        return 0
    limit = "no limit" if budget is None else f"a budget of {show_micros(budget)}"
    print(f"campaign {campaign.campaign} ({campaign.advertiser}) has {limit}")
    sums = show_micros(campaign.charged_micros), show_micros(released), show_micros(left)
    print(f"charged {sums[0]} in all, of which {sums[1]} had been held until now; {sums[2]} is still held")
    return 0


def _micros(spelled: str) -> int:
    try:
        micros = int(spelled)
    except ValueError:
        micros = -1
    if not 0 <= micros <= 2**53:
        raise BadInput(
            f"MICROS: expected a whole number of micros up to 2^53, or {NO_LIMIT}, got {spelled[:40]!r}"
        )
    return micros


def check_place(name: str, file: Path | None, *, overwrite: bool) -> None:
    from tacit.files import check_writable

    if file is None:
        return
    if file.exists() and not (overwrite and file.is_file()):
        raise BadInput(f"{name}: expected a new file, got {file}, which exists; say --overwrite")
    check_writable(name, file)


def open_ad_store(path: Path) -> SqlAdStore:
    """The ad server's store, which must be there: one that is made here would be empty, and nobody's."""
    with extra_installed():
        from tacit.services.settings import load_settings
        from tacit.services.signatures import Party
    from tacit.store.billing_ads import SqlAdStore

    billing = load_settings(path, Party.SERVER).billing
    if billing is None:
        raise BadInput(f"{path}: expected a table [billing], which makes a server an ad server, got none")
    if "://" not in billing.store and not Path(billing.store).exists():
        raise BadInput(
            f"{path}: billing.store: expected the store of an ad server at {billing.store}, got none: the "
            "service makes it when it starts"
        )
    return SqlAdStore.open(billing.store)


def _signing_keys(path: Path) -> tuple[bytes, bytes]:
    with extra_installed():
        from tacit.services.settings import load_parties

    parties = load_parties(path)
    for name, party in (("server", parties.server), ("proxy", parties.proxy)):
        if party.signing_key is None:
            raise BadInput(f"{path}: {name}.signing_key: expected the key that it signs by, got no such key")
    assert parties.server.signing_key is not None
    assert parties.proxy.signing_key is not None
    return parties.server.signing_key, parties.proxy.signing_key
