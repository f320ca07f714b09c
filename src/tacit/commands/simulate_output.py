"""What `tacit simulate` says: titles, cells of its tables, the bill, and notes.

Notes are what a reader should know though it was no reason to refuse, one line each.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tacit.bill.charges_file import CampaignBill, ChargesFile
from tacit.deliver.auction.blocks import AuctionBlock
from tacit.deliver.auction.choices import GREEDY, NON_PERSONALISED
from tacit.deliver.auction.config import GeneratedMarket, SimulationConfig
from tacit.deliver.auction.logs import MICROS
from tacit.deliver.auction.market import MarketResults
from tacit.deliver.auction.metrics import KINDS, REACH

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
        many, falls = plural(market.campaigns, "synthetic campaign"), market.popularity
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
    """Over the non-personalised choice; empty where that has nothing."""
    if not results.mean(NON_PERSONALISED, metric):
        return ""
    gained, error = results.lift(arm, NON_PERSONALISED, metric)
    percent = round(100 * gained, 2) + 0.0  # no -0.00
    return f"{percent:+.2f} ± {100 * REACH * error:.2f}"


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
