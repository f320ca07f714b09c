"""`tacit simulate`: what private choice would cost and bring in a market of your own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, stage_bars
from tacit.config import error_prefix

if TYPE_CHECKING:
    from tacit.bill.charges_file import ChargesFile
    from tacit.deliver.auction.simulation import SimulatedMarket

FILE_KEY = "charges.file"

ABOUT = """\
Run a market through private choices: auctions from a Parquet log or made up, ranked and priced by public data,
chosen by devices that know more. Clicks, advertisers' surplus, revenue and welfare per auction are exact
expectations over the choice, with 95% intervals over auctions (over users, where the log names them), beside
the two ends: greedy (no privacy) and non-personalised (nothing private is read). The log streams: it may be
larger than memory.

A simulation reads private columns and promises nothing: its figures are for whoever may see the log."""

EPILOG = """\
an example:

  [market]
  log = "auctions.parquet"          # or: generated = "display" (or "search"), auctions = 20000, seed = 1,
                                    # campaigns = 200, popularity = 1.0 (weights 1 / rank^1)

  [columns]                         # rows of an auction lie together
  auction = "auction_id"
  campaign = "campaign"             # whole numbers >= 0; needed for charges
  bid = "bid"                       # currency units
  bid_kind = "bid_kind"             # click, conversion or impression; or for all: bids_for = "click" (default)
  click = "public_ctr"              # without the person's data: ranks and prices
  private_click = "device_ctr"      # with it: only chooses
  user = "user"                     # optional, whole numbers

  [auction]
  price = "second"                  # or first
  charged = "click"                 # what a bid is for, conversions too; or impression
  reserve_micros = 0                # the least public score per impression
  gamma = 1.0                       # sent to the device: public scores >= best x (1 - gamma)

  [[choice]]
  mechanism = "trunc"               # planned: private best m of public best k
  epsilon = [1, 5]
  prior = "learnt"                  # from simulated reports of earlier auctions; or "assumed", or spread = 1.0

  [[choice]]
  mechanism = "rr"                  # kept, top; others: gumbel, exponential, laplace (clip, calibrated)
  epsilon = 5
  gamma = 0.8

  [charges]                         # optional: choices drawn once, one line per impression
  file = "charges.parquet"          # or .csv; a file that is there is replaced with --overwrite only
  choice = "trunc at 5"             # greedy would be everybody's best ads: it needs not_private = true

Unknown keys are refused. Money is printed in currency units per 1,000 auctions."""


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "simulate",
        help="simulate auctions with private choices, from a log or made up",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", help="a TOML file as below")
    parser.add_argument("--overwrite", action="store_true", help="replace a file of charges that is there")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tacit.bill.charges_file import expect_place, write_charges
    from tacit.data.generators.markets import made_up_auctions
    from tacit.deliver.auction.config import load_simulation
    from tacit.deliver.auction.logs import AuctionLog
    from tacit.deliver.auction.simulation import run_simulation

    config = load_simulation(args.config)
    asked, market = config.charges, config.market
    if asked is not None:
        log = market.path if isinstance(market, AuctionLog) else None
        inputs = {"the configuration": Path(args.config), "the market's own log": log}
        expect_place(FILE_KEY, asked.file, inputs, overwrite=args.overwrite)
    with stage_bars() as progress, error_prefix(args.config):
        found = run_simulation(config, made_up_auctions, progress=progress)
        written = None
        if asked is not None:
            written = write_charges(found.shown(progress), asked.file, found.auction_type)
    for note in found.notes:
        print(f"tacit simulate: note: {note}", file=sys.stderr)
    if args.json:
        print_json({**_as_json(found, written), "notes": list(found.notes)})
    else:
        _print(found, written)
    return 0


def _print(found: SimulatedMarket, written: ChargesFile | None) -> None:
    from tacit.commands import simulate_output as said
    from tacit.commands.simulate_output import CAPTIONS, lift_cell, mean_cell, plural, show_epsilon

    config, results = found.config, found.results
    print_table(
        said.market_title(config, results),
        ("choice", "most ε", *(f"{name}, {unit}" for name, unit in CAPTIONS.values())),
        [
            (arm, show_epsilon(results, arm), *(mean_cell(results, arm, metric) for metric in CAPTIONS))
            for arm in results.arms
        ],
        numbers=[f"{name}, {unit}" for name, unit in CAPTIONS.values()],
    )
    print_table(
        "over the non-personalised choice, %",
        ("choice", *(name for name, _ in CAPTIONS.values())),
        [(arm, *(lift_cell(results, arm, metric) for metric in CAPTIONS)) for arm in results.arms[1:]],
        numbers=[name for name, _ in CAPTIONS.values()],
    )
    print(said.table_footer(results))
    if found.planned:
        name, columns, rows = said.planned_table(found.planned)
        print()
        print_table(name, columns, rows, numbers=columns[1:-1])
        print("\n".join(said.prior_lines(found.planned)))
    if written is not None:
        name, columns, rows = said.bill(config, written)
        print_table(name, columns, rows, numbers=columns[1:])
        print(
            f"{plural(written.lines, 'charge')} to {plural(written.campaigns, 'campaign')}, "
            f"{written.total_micros:,} micros if all fall due: {written.file}"
        )


def _as_json(found: SimulatedMarket, written: ChargesFile | None) -> dict[str, Any]:
    from tacit.commands.simulate_output import LARGEST_BILLS, market_title, planned_records
    from tacit.deliver.auction.choices import NON_PERSONALISED

    config, results = found.config, found.results
    record: dict[str, Any] = {
        "market": market_title(config, results),
        "auctions": results.auctions,
        "choices": [results.record(arm, NON_PERSONALISED) for arm in results.arms],
        "planned": planned_records(found.planned),
    }
    if written is not None:
        record["charges"] = {
            "file": str(written.file),
            "lines": written.lines,
            "campaigns": written.campaigns,
            "total_micros": written.total_micros,
            "largest": [
                {
                    "campaign": each.campaign,
                    "impressions": each.impressions,
                    "total_micros": each.total_micros,
                    "mean_price_micros": each.mean_price_micros,
                }
                for each in written.owed[:LARGEST_BILLS]
            ],
        }
    return record
