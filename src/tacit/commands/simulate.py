"""`tacit simulate`: what private choice would cost and bring in a market of your own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import Subparsers, add_json_flag, print_json, print_table, progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.commands.simulate_config import SimulationConfig
    from tacit.commands.simulate_output import ChargesFile
    from tacit.deliver.auction.blocks import AuctionBlock
    from tacit.deliver.auction.market import Arm, MarketResults

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
  mechanism = "trunc"               # planned: private best m of public best k; spread = 0.3 is its prior
  epsilon = [1, 5]

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
    from tacit.commands.simulate_config import LoggedMarket, load_simulation
    from tacit.commands.simulate_market import build_arms, count_rows, stream_auctions
    from tacit.commands.simulate_output import RepeatedAuctions, check_charges_place, notes
    from tacit.deliver.auction.market import measure
    from tacit.errors import BadInput

    config = load_simulation(args.config)
    if config.charges is not None:
        log = config.market.path if isinstance(config.market, LoggedMarket) else None
        check_charges_place(config.charges, Path(args.config), log, overwrite=args.overwrite)
    total, unit = count_rows(config)
    arms, seen = build_arms(config), RepeatedAuctions()
    with progress_bar(f"{total:,} {unit}", total) as done:
        results = measure(_report_blocks(seen.watch(stream_auctions(config)), unit, done), arms)
    if results.auctions < 2:
        raise BadInput(f"{args.config}: expected at least two auctions for intervals, got {results.auctions}")
    written = _charges(config, arms, total, unit)
    said = notes(config, results, seen)
    for note in said:
        print(f"tacit simulate: note: {note}", file=sys.stderr)
    if args.json:
        print_json({**_as_json(config, results, written), "notes": said})
    else:
        _print(config, results, written)
    return 0


def _report_blocks(
    blocks: Iterable[AuctionBlock], unit: str, done: Callable[[int], None]
) -> Iterator[AuctionBlock]:
    """The same blocks, with word of how far they are."""
    seen = 0
    for block in blocks:
        yield block
        seen += block.public.count if unit == "auctions" else len(block.public.bid_micros)
        done(seen)


def _charges(config: SimulationConfig, arms: dict[str, Arm], total: int, unit: str) -> ChargesFile | None:
    from tacit.commands.simulate_market import stream_auctions
    from tacit.commands.simulate_output import auction_type, write_charges
    from tacit.entropy import Entropy, Simulation

    asked = config.charges
    if asked is None:
        return None
    words = Entropy().words if asked.seed is None else Simulation(f"simulated choices {asked.seed}").words
    with progress_bar(f"charges of {total:,} {unit}", total) as done:
        blocks = _report_blocks(stream_auctions(config), unit, done)
        return write_charges(blocks, arms[asked.chooser], words, asked.file, auction_type(config))


def _print(config: SimulationConfig, results: MarketResults, written: ChargesFile | None) -> None:
    from tacit.commands import simulate_output as said
    from tacit.commands.simulate_output import CAPTIONS, lift_cell, mean_cell, plural, show_epsilon

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
    if written is not None:
        name, columns, rows = said.bill(config, written)
        print_table(name, columns, rows, numbers=columns[1:])
        print(
            f"{plural(written.lines, 'charge')} to {plural(written.campaigns, 'campaign')}, "
            f"{written.total_micros:,} micros if all fall due: {written.file}"
        )


def _as_json(config: SimulationConfig, results: MarketResults, written: ChargesFile | None) -> dict[str, Any]:
    from tacit.commands.simulate_output import LARGEST_BILLS, choice_record, market_title

    record: dict[str, Any] = {
        "market": market_title(config, results),
        "auctions": results.auctions,
        "choices": [choice_record(results, arm) for arm in results.arms],
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
