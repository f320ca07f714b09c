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

    from tacit.bill.charges_file import ChargesFile
    from tacit.deliver.auction.blocks import AuctionBlock
    from tacit.deliver.auction.config import ChargesConfig, SimulationConfig
    from tacit.deliver.auction.market import Arm, MarketResults

    Stream = Callable[[], Iterator[AuctionBlock]]

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
  mechanism = "trunc"               # planned: private best m of public best k; spread = 1.0 is its prior
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
    from tacit.commands.simulate_output import RepeatedAuctions, notes
    from tacit.deliver.auction.config import build_arms, load_simulation
    from tacit.deliver.auction.logs import AuctionLog
    from tacit.deliver.auction.market import measure
    from tacit.errors import BadInput

    config = load_simulation(args.config)
    market = config.market
    if config.charges is not None:
        log = market.path if isinstance(market, AuctionLog) else None
        _check_place(config.charges, Path(args.config), log, overwrite=args.overwrite)
    stream = _auctions(config, args.config)
    total, unit = (
        (market.count_rows(), "rows") if isinstance(market, AuctionLog) else (market.auctions, "auctions")
    )
    arms, seen = build_arms(config), RepeatedAuctions()
    with progress_bar(f"{total:,} {unit}", total) as done:
        results = measure(_report_blocks(seen.watch(stream()), unit, done), arms)
    if results.auctions < 2:
        raise BadInput(f"{args.config}: expected at least two auctions for intervals, got {results.auctions}")
    written = _charges(config, stream, arms, total, unit)
    said = notes(config, results, seen)
    for note in said:
        print(f"tacit simulate: note: {note}", file=sys.stderr)
    if args.json:
        print_json({**_as_json(config, results, written), "notes": said})
    else:
        _print(config, results, written)
    return 0


def _auctions(config: SimulationConfig, path: str) -> Stream:
    """All auctions once, the same ones each time it is asked: those of the log, or made up."""
    from tacit.config import error_prefix
    from tacit.data.generators.markets import Campaigns, Market
    from tacit.deliver.auction.config import GeneratedMarket
    from tacit.deliver.auction.logs import generated_blocks

    market = config.market
    if not isinstance(market, GeneratedMarket):
        return market.blocks
    law = {"display": Market.taobao_like, "search": Market.search_like}[market.kind]()
    with error_prefix(path), error_prefix("market"):
        campaigns = Campaigns(market.campaigns, market.popularity, market.seed)
    return lambda: generated_blocks(law.auctions(market.auctions, market.seed), campaigns.numbers)


def _check_place(asked: ChargesConfig, config: Path, log: Path | None, *, overwrite: bool) -> None:
    """Refuse, before any work, a file that is not ours to write: an input, one that is there, or no place."""
    from tacit.bill.charges_file import draft_of
    from tacit.errors import BadInput
    from tacit.files import check_writable, explain_os_error

    file = asked.file
    for what, other in (("the configuration", config), ("the market's own log", log)):
        if other is not None and file.exists() and other.exists() and file.samefile(other):
            raise BadInput(f"{FILE_KEY}: expected a new file, got {file}, which is {what}")
    if file.exists() and not (overwrite and file.is_file()):
        raise BadInput(f"{FILE_KEY}: expected a new file, got {file}, which exists; say --overwrite")
    check_writable(FILE_KEY, file)
    if not file.parent.is_dir():
        raise BadInput(
            f"{FILE_KEY}: expected a place in a folder that exists, got {file}: make {file.parent} first"
        )
    try:  # some folders that say yes take no files
        with draft_of(file).open("xb"):
            pass
        draft_of(file).unlink()
    except FileExistsError:
        pass  # left by a run that was killed; it will be replaced
    except OSError as problem:
        raise BadInput(
            f"{FILE_KEY}: expected a place that can be written, got {explain_os_error(problem)}"
        ) from None


def _report_blocks(
    blocks: Iterable[AuctionBlock], unit: str, done: Callable[[int], None]
) -> Iterator[AuctionBlock]:
    """The same blocks, with word of how far they are."""
    seen = 0
    for block in blocks:
        yield block
        seen += block.public.count if unit == "auctions" else len(block.public.bid_micros)
        done(seen)


def _charges(
    config: SimulationConfig, stream: Stream, arms: dict[str, Arm], total: int, unit: str
) -> ChargesFile | None:
    import pyarrow as pa

    from tacit.bill.charges_file import write_charges
    from tacit.deliver.auction.logs import AuctionLog
    from tacit.deliver.auction.market import show_block
    from tacit.entropy import Entropy, Simulation

    asked = config.charges
    if asked is None:
        return None
    words = Entropy().words if asked.seed is None else Simulation(f"simulated choices {asked.seed}").words
    ids = config.market.auction_type() if isinstance(config.market, AuctionLog) else pa.int64()
    with progress_bar(f"charges of {total:,} {unit}", total) as done:
        blocks = _report_blocks(stream(), unit, done)
        shown = (show_block(block, arms[asked.chooser], words) for block in blocks)
        return write_charges(shown, asked.file, ids)


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
    from tacit.commands.simulate_output import LARGEST_BILLS, market_title
    from tacit.deliver.auction.choices import NON_PERSONALISED

    record: dict[str, Any] = {
        "market": market_title(config, results),
        "auctions": results.auctions,
        "choices": [results.record(arm, NON_PERSONALISED) for arm in results.arms],
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
