"""`tacit ads report`: what an advertiser's campaigns showed and cost, and why; as a table, or as a file."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.ads_campaigns import add_place, http_desk_of
from tacit.commands.bill import check_place, open_ad_store
from tacit.commands.output import print_json, print_table

if TYPE_CHECKING:
    from tacit.services.ads.reports import ReportForm

ABOUT = """\
What an advertiser's campaigns showed and cost from one day until before another (UTC), and why: impressions and
spend exactly, as devices reported them; clicks, conversions and rates from released statistics, with intervals
that include their noise. Every figure says what it promises. Charges belong to the day on which their epoch
opened, however late they came, and to the invoice that was closed next; what is held is shown beside, and in no
sum.

Amounts are in currency units, to the micro; in --json and files in whole micros. --out writes a file whose form
follows from its ending: .csv, .parquet, .html (a page) or .json. With SETTINGS it reads the store, whether the
service runs or not; without, it asks the ad server, and an advertiser's key needs no --advertiser."""

COLUMNS = ("impressions", "spend", "held", "clicks", "rate, %", "95% interval, %")
CONVERSIONS = ("conversions", "rate, %", "95% interval, %")


def add_report(action: Callable[[str, str, str], argparse.ArgumentParser]) -> None:
    """The action of `tacit ads`."""
    parser = action("report", "impressions, spend, reasons and rates of an advertiser", ABOUT)
    parser.add_argument("--advertiser", metavar="NAME", help="whose report (default: the key's own)")
    parser.add_argument("--from", dest="first", metavar="DAY", help="the first day; default: 30 before --until")
    parser.add_argument("--until", metavar="DAY", help="the first day that is not in it; default: tomorrow")
    parser.add_argument(
        "--by", choices=("campaign", "context", "day", "line"), default="campaign", help="what a row is"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write .csv, .parquet, .html or .json")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    add_place(parser)
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    from tacit.errors import BadInput
    from tacit.files import PRIVATE_MODE, parse_json, write_atomically

    check_place("--out", args.out, overwrite=args.overwrite)
    with http_desk_of(args) as desk:
        from tacit.services.ads.reports import ReportForm, report_period

        period = report_period({"from": args.first, "until": args.until}, int(time.time()))
        forms = {f".{form.ending}": form for form in ReportForm}
        if args.out is not None and args.out.suffix not in forms:
            raise BadInput(f"--out: expected a file that ends in {', '.join(forms)}, got {args.out.name}")
        wanted = {ReportForm.JSON} if args.json or args.out is None else set()
        wanted |= set() if args.out is None else {forms[args.out.suffix]}
        if desk is None:
            found = _from_store(args, *period, wanted)
        else:
            said = {"advertiser": args.advertiser, "from": args.first, "until": args.until, "by": args.by}
            found = {form: desk.report(form=str(form), **said) for form in wanted}
    if args.out is not None:
        write_atomically(args.out.resolve(), found[forms[args.out.suffix]], mode=PRIVATE_MODE)
    if args.json:
        print_json(parse_json(found[ReportForm.JSON]))
    elif args.out is not None:
        print(f"wrote {args.out}")
    else:
        _print_report(parse_json(found[ReportForm.JSON]))
    return 0


def _from_store(
    args: argparse.Namespace, begin: int, end: int, wanted: Iterable[ReportForm]
) -> dict[ReportForm, bytes]:
    """The report in these forms, from the store of the ad server's settings."""
    from tacit.deliver.server.advertiser_report import Grouping
    from tacit.errors import BadInput
    from tacit.services.ads.reports import make_report, write_report
    from tacit.store.campaigns import SqlCampaignStore
    from tacit.store.versions import SqlVersionStore

    store = open_ad_store(args.settings)
    campaigns = SqlCampaignStore(store.database)
    known = {each.advertiser for each in store.campaigns()}
    if args.advertiser is None or (
        args.advertiser not in known and campaigns.advertiser(args.advertiser) is None
    ):
        got = "none" if args.advertiser is None else repr(args.advertiser)
        raise BadInput(f"--advertiser: expected one of {', '.join(sorted(known)[:8])}, got {got}")
    versions = SqlVersionStore(store.database)
    report = make_report(store.database, campaigns, versions, args.advertiser, begin, end)
    return {form: write_report(report, Grouping(args.by), form) for form in wanted}


def _print_report(report: dict[str, Any]) -> None:
    from tacit.bill.accounts import show_micros
    from tacit.deliver.server.advertiser_report import Promise

    whole, days = report["total"], f"{report['from']} until before {report['until']}"
    rows = [*map(_row, report["rows"]), _row(whole)]
    print_table(f"{report['advertiser']}, {days}", (report["by"], *COLUMNS), rows, numbers=COLUMNS)
    print(f"impressions, spend, held: {Promise(**whole['impressions']['statement'])}")
    if (statement := _statement(whole["clicks"])) is not None:
        print(f"clicks, rates: {Promise(**statement)}")
    if (statement := _statement(whole["conversions"])) is not None:
        found = [(each["label"], *_rate_cells(each["conversions"])) for each in (*report["rows"], whole)]
        print_table("Conversions", (report["by"], *CONVERSIONS), found, numbers=CONVERSIONS)
        print(f"conversions, rates: {Promise(**statement)}")
    for each in report["invoices"]:
        where = "on no invoice yet" if each["invoice"] is None else f"on invoice {each['invoice']}"
        print(f"{where}: {each['impressions']:,} impressions for {show_micros(each['spend_micros'])}")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    from tacit.bill.accounts import show_micros

    money = [show_micros(row[name]["value"]) for name in ("spend_micros", "held_micros")]
    return row["label"], f"{row['impressions']['value']:,}", *money, *_rate_cells(row["clicks"])


def _statement(figures: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = (figures if "withheld" in figures else figures["hits"])["statement"]
    return found


def _rate_cells(figures: dict[str, Any]) -> tuple[str, str, str]:
    """Hits, their rate and its interval, or why there are none."""
    if "withheld" in figures:
        return figures["withheld"], "", ""
    rate = figures["rate"]
    ends = f"{100 * rate['low']:.2f} to {100 * rate['high']:.2f}"
    return f"{figures['hits']['value']:,}", f"{100 * rate['value']:.2f}", ends
