"""What `tacit simulate` leaves: a file of charges, figures in words and as records, and notes.

Charges are written block by block into one file: every line public, in whole micros. Notes are what a reader
should know though it was no reason to refuse, one line each.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tacit import files
from tacit.bill.charges import charge
from tacit.commands.simulate_config import ChargesConfig, GeneratedMarket, LoggedMarket, SimulationConfig
from tacit.deliver.auction.blocks import AuctionBlock
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.logs import MICROS, open_auction_log
from tacit.deliver.auction.market import Arm, MarketResults, show_block
from tacit.deliver.auction.metrics import KINDS, REACH
from tacit.errors import BadInput
from tacit.files import check_writable, explain_os_error
from tacit.privacy.randomness import WordSource
from tacit.schema.impressions import DUE_ON, Impressions, price_rule_words, price_setter_words

FILE_KEY = "charges.file"


@dataclass(frozen=True)
class CampaignBill:
    """What one campaign was shown, and what its lines come to if all fall due."""

    campaign: int
    impressions: int
    total_micros: int

    @property
    def mean_price_micros(self) -> float:
        return self.total_micros / self.impressions


@dataclass(frozen=True)
class ChargesFile:
    """A file of charges and what it adds up to, by campaign, the one that owes most first."""

    file: Path
    owed: tuple[CampaignBill, ...]

    @property
    def lines(self) -> int:
        return sum(each.impressions for each in self.owed)

    @property
    def campaigns(self) -> int:
        return len(self.owed)

    @property
    def total_micros(self) -> int:
        return sum(each.total_micros for each in self.owed)


def check_charges_place(asked: ChargesConfig, config: Path, log: Path | None, *, overwrite: bool) -> None:
    """Refuse, before any work, a file that is not ours to write: an input, one that is there, or no place."""
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
        with _draft_of(file).open("xb"):
            pass
        _draft_of(file).unlink()
    except FileExistsError:
        pass  # left by a run that was killed; it will be replaced
    except OSError as problem:
        raise BadInput(
            f"{FILE_KEY}: expected a place that can be written, got {explain_os_error(problem)}"
        ) from None


def write_charges(
    blocks: Iterable[AuctionBlock], arm: Arm, words: WordSource, file: Path, auction_type: pa.DataType
) -> ChargesFile:
    """Draw every choice once and write what it is charged; the file appears whole or not at all."""
    building, schema = _draft_of(file), _schema(auction_type)
    owed: dict[int, int] = {}
    times: Counter[int] = Counter()
    try:
        # Who is shown what is for the file's owner alone: made so, and then written to.
        files.open_private(building, "wb").close()
        with _writer(building, file.suffix, schema) as writer:
            for block in blocks:
                shown = show_block(block, arm, words)
                for campaign, amount in charge(shown).by_campaign.items():
                    owed[campaign] = owed.get(campaign, 0) + amount
                writer.write_table(_table(shown, schema))
                numbers, counts = np.unique(shown.campaign, return_counts=True)
                times.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        building.replace(file)
    finally:
        building.unlink(missing_ok=True)
    each = (CampaignBill(campaign, times[campaign], amount) for campaign, amount in owed.items())
    return ChargesFile(file, tuple(sorted(each, key=lambda line: (-line.total_micros, line.campaign))))


def auction_type(config: SimulationConfig) -> pa.DataType:
    """Of auction ids: as the log has them, or numbers."""
    if not isinstance(config.market, LoggedMarket):
        return pa.int64()
    with open_auction_log(config.market.path) as file:
        kind = file.schema_arrow.field(config.market.names.auction).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _schema(auction: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("auction", auction),
            ("campaign", pa.int64()),
            ("price_micros", pa.int64()),
            ("due_on", pa.string()),
            ("public_rank", pa.int64()),
            ("price_set_by", pa.string()),
            ("rule", pa.string()),
        ]
    )


def _table(shown: Impressions, schema: pa.Schema) -> pa.Table:
    assert shown.auction is not None
    setters, which = np.unique(shown.setter, return_inverse=True)
    named = pa.array([price_setter_words(setter) for setter in setters.tolist()], pa.string())
    codes = pa.array(shown.due_on)
    columns = (
        pa.array(shown.auction, schema.field("auction").type),
        shown.campaign,
        shown.price_micros,
        pa.array(DUE_ON).take(codes),
        shown.rank + 1,
        named.take(pa.array(which)),
        pa.array([price_rule_words(shown.rule, due) for due in DUE_ON]).take(codes),
    )
    return pa.table([pa.array(column) for column in columns], schema=schema)


def _draft_of(file: Path) -> Path:
    return file.with_name(f".{file.name}")


def _writer(place: Path, suffix: str, schema: pa.Schema) -> pq.ParquetWriter | pa_csv.CSVWriter:
    if suffix == ".csv":
        return pa_csv.CSVWriter(place, schema)
    return pq.ParquetWriter(place, schema)


ROUNDING = 1e-9  # of a mean: intervals below it are the rounding of doubles
PER_THOUSAND = 1_000 / MICROS
LARGEST_BILLS = 10
"""Campaigns that the bill has a line for; the others are one line."""

CAPTIONS = {metric: (kind.caption, "per 1,000" if kind.money else "%") for metric, kind in KINDS.items()}


def market_title(config: SimulationConfig, results: MarketResults) -> str:
    market, rules = config.market, config.rules
    where = f"synthetic, like {market.kind} ads" if isinstance(market, GeneratedMarket) else market.path.name
    return f"{where}: {plural(results.auctions, 'auction')}, {rules.price}, gamma {rules.cutoff:g}"


def bill(
    config: SimulationConfig, written: ChargesFile
) -> tuple[str, tuple[str, ...], list[tuple[str, str, str, str]]]:
    """Who owes most, as a table: its title, its columns (all but the first are numbers) and its rows."""
    market, owed = config.market, written.owed
    made_up = ""
    if isinstance(market, GeneratedMarket):
        many, falls = plural(market.campaigns.count, "synthetic campaign"), market.campaigns.popularity
        made_up = f"; {many}, drawn by weights 1 / rank^{falls:g}"
    columns = ("campaign", "impressions", "if all fall due", "mean price")
    rest, whole = owed[LARGEST_BILLS:], sum(each.impressions for each in owed)
    rows = [(str(each.campaign), *_sums([each])) for each in owed[:LARGEST_BILLS]]
    if rest:
        rows.append((f"{plural(len(rest), 'other')}", *_sums(rest)))
    rows.append(("all", *_sums(owed)))
    return f"the bill: {plural(whole, 'impression')}, in currency units{made_up}", columns, rows


def _sums(owed: Sequence[CampaignBill]) -> tuple[str, str, str]:
    shown, micros = sum(each.impressions for each in owed), sum(each.total_micros for each in owed)
    return f"{shown:,}", f"{micros / MICROS:,.2f}", f"{micros / MICROS / max(shown, 1):,.2f}"


def plural(number: int, thing: str) -> str:
    """A number of things: 1 campaign, 2,000 campaigns."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def show_epsilon(results: MarketResults, arm: str) -> str:
    most = results.most_epsilon[arm]
    if math.isinf(most):
        return "no privacy"
    return f"{most:.4g} asked" if arm in results.measured_only else f"{most:.4g}"


def table_footer(results: MarketResults) -> str:
    """What the tables mean by ± and by ε."""
    said = "± is half of a 95% interval. ε is what one choice may tell; choices of one person add up."
    if results.measured_only:
        said += "\nAsked: for measuring only, and no bound on what a choice tells."
    return said


def mean_cell(results: MarketResults, arm: str, metric: str) -> str:
    unit = _unit(metric)
    value, reach = results.mean(arm, metric) * unit, REACH * results.standard_error(arm, metric) * unit
    if reach < ROUNDING * abs(value):
        reach = 0.0
    return f"{value:,.4g} ± {reach:.2g}" if abs(value) < 10_000 else f"{value:,.0f} ± {reach:,.0f}"


def lift_cell(results: MarketResults, arm: str, metric: str) -> str:
    found = lift(results, arm, metric)
    if found is None:
        return ""
    percent = round(100 * found[0], 2) + 0.0  # no -0.00
    return f"{percent:+.2f} ± {100 * REACH * found[1]:.2f}"


def lift(results: MarketResults, arm: str, metric: str) -> tuple[float, float] | None:
    """Over the non-personalised choice, with its standard error; none where that has nothing."""
    if not results.mean(NON_PERSONALISED, metric):
        return None
    return results.lift(arm, NON_PERSONALISED, metric)


def choice_record(results: MarketResults, arm: str) -> dict[str, Any]:
    """CTR as a share; money in micros per auction; an epsilon that has no bound is null, and one that is for
    measuring only says so."""
    most = results.most_epsilon[arm]
    record: dict[str, Any] = {
        "name": arm,
        "epsilon": None if math.isinf(most) else most,
        "measured_only": arm in results.measured_only,
    }
    for metric, (name, _) in CAPTIONS.items():
        value, reach = results.mean(arm, metric), REACH * results.standard_error(arm, metric)
        gained = lift(results, arm, metric)
        record[name.lower()] = {
            "value": value,
            "low": value - reach,
            "high": value + reach,
            "lift": None if gained is None else gained[0],
            "lift_low": None if gained is None else gained[0] - REACH * gained[1],
            "lift_high": None if gained is None else gained[0] + REACH * gained[1],
        }
    return record


def _unit(metric: str) -> float:
    return PER_THOUSAND if KINDS[metric].money else 100.0


REMEMBERED = 2**18
"""Auction ids that are kept in mind, the latest ones: an id further back than this is not recognised."""


class RepeatedAuctions:
    """Counts auctions whose id was seen shortly before: their rows do not lie together."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.auctions = self.returned = 0
        self._remembered = remembered
        self._latest: deque[set[Any]] = deque()

    def watch(self, blocks: Iterable[AuctionBlock]) -> Iterator[AuctionBlock]:
        """The same blocks."""
        for block in blocks:
            if block.public.names.ids is not None:
                self._note(block.public.names.ids.tolist())
            yield block

    def _note(self, ids: list[Any]) -> None:
        different = set(ids)
        again: set[Any] = set()
        for earlier in self._latest:
            again |= different & earlier
        self.auctions += len(ids)
        self.returned += len(ids) - len(different) + len(again)
        self._latest.append(different)
        while len(self._latest) > 1 and sum(map(len, self._latest)) > self._remembered:
            self._latest.popleft()


def notes(config: SimulationConfig, results: MarketResults, seen: RepeatedAuctions) -> list[str]:
    found = []
    if seen.returned and not isinstance(config.market, GeneratedMarket):
        column = config.market.names.auction
        found.append(
            f"{seen.returned:,} of {plural(seen.auctions, 'auction')} have an id that came before: rows of an "
            f"auction must lie together, or each stretch counts as one; sort the log by {column}"
        )
    reserve = config.rules.reserve_micros
    if reserve and not any(results.mean(arm, "welfare") for arm in (NON_PERSONALISED, GREEDY)):
        found.append(f"nothing was shown: no public score reached auction.reserve_micros = {reserve:,}")
    if not config.choosers:
        found.append("no [[choice]] was asked for: these are the two ends alone")
    return found
