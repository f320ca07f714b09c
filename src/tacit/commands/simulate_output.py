"""What `tacit simulate` says: titles, cells of its tables, what planned choices keep, and the bill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit.bill.charges_file import CampaignBill, ChargesFile
from tacit.deliver.auction.choices import NON_PERSONALISED
from tacit.deliver.auction.config import GeneratedMarket, SimulationConfig
from tacit.deliver.auction.logs import MICROS
from tacit.deliver.auction.market import MarketResults
from tacit.deliver.auction.metrics import KINDS, REACH
from tacit.deliver.auction.simulation import PlannedShares
from tacit.deliver.protocol.priors import ScorePrior, prior_as_json

ROUNDING = 1e-9  # of a mean: intervals below it are the rounding of doubles
PER_THOUSAND = 1_000 / MICROS
LARGEST_BILLS = 10
"""Campaigns that the bill has a line for; the others are one line."""

CAPTIONS = {metric: (kind.caption, "per 1,000" if kind.money else "%") for metric, kind in KINDS.items()}


def market_title(config: SimulationConfig, results: MarketResults) -> str:
    market, rules = config.market, config.rules
    where = f"synthetic, like {market.kind} ads" if isinstance(market, GeneratedMarket) else market.path.name
    return f"{where}: {plural(results.auctions, 'auction')}, {rules.price}, gamma {rules.cutoff:g}"


def bill(config: SimulationConfig, written: ChargesFile) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Who owes most, as a table: its title, its columns (all but the first are numbers) and its rows."""
    market, owed = config.market, written.owed
    made_up = ""
    if isinstance(market, GeneratedMarket):
        many, falls = plural(market.campaigns, "synthetic campaign"), market.popularity
        made_up = f"; {many}, drawn by weights 1 / rank^{falls:g}"
    columns = ("campaign", "impressions", "if all fall due", "mean price")
    rest, whole = owed[LARGEST_BILLS:], sum(each.impressions for each in owed)
    rows: list[tuple[str, ...]] = [(str(each.campaign), *_sums([each])) for each in owed[:LARGEST_BILLS]]
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


def planned_table(planned: Sequence[PlannedShares]) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """What planned choices keep of the greedy gain, as a table: its title, its columns and its rows."""
    title = f"share of the greedy gain in welfare that is kept, % of {plural(planned[0].judged, 'auction')}"
    columns = ("choice", "as it ran", "by the assumed prior", "best in hindsight", "which was")
    rows = [
        (
            each.arm,
            *(_percent(share) for share in (each.kept, each.kept_assumed, each.kept_hindsight)),
            f"spread {each.hindsight.sigma:g}",
        )
        for each in planned
    ]
    return title, columns, rows


RISK = (
    "where people differ less it loses (up to 6% of the public best's score at a true spread of .1), where "
    "they differ more it leaves some"
)


def prior_lines(planned: Sequence[PlannedShares]) -> list[str]:
    """What is assumed and what that risks, and what each arm has learnt in the end."""
    said = [f"Assumed: {planned[0].assumed}; {RISK}."]
    for each in planned:
        if each.learnt is not None:
            said.append(f"{each.arm}, {short_prior(each.learnt)} (simulated reports).")
    return said


MOST_PARTS = 4
"""Laws of a learnt prior that its line names; `--json` has all."""


def short_prior(prior: ScorePrior) -> str:
    """A prior in words; of a mixture the weightiest parts."""
    words = str(prior)
    parts = words.split("; ")
    if len(parts) <= MOST_PARTS:
        return words
    return f"{'; '.join(parts[:MOST_PARTS])}; {plural(len(parts) - MOST_PARTS, 'other')}"


def planned_records(planned: Sequence[PlannedShares]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {
            "name": each.arm,
            "assumed": prior_as_json(each.assumed),
            "learnt": None if each.learnt is None else prior_as_json(each.learnt),
            "reports": each.reports,
            "share_of": "welfare",
            "auctions": each.judged,
            "kept": each.kept,
            "kept_by_assumed": each.kept_assumed,
            "kept_in_hindsight": each.kept_hindsight,
            "hindsight": prior_as_json(each.hindsight),
        }
        for each in planned
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"
