"""Figures of a simulated market in words and as records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.commands.simulate_config import Generated, SimulationConfig
from tacit.deliver.auction.choices import NON_PERSONALISED
from tacit.deliver.auction.logs import MICROS
from tacit.deliver.auction.market import Results
from tacit.deliver.auction.metrics import KINDS, REACH

if TYPE_CHECKING:
    from tacit.commands.simulate_charges import Owed, Written

ROUNDING = 1e-9  # of a mean: intervals below it are the rounding of doubles
PER_THOUSAND = 1_000 / MICROS
LARGEST = 10
"""Campaigns that the bill has a line for; the others are one line."""

CAPTIONS = {metric: (kind.caption, "per 1,000" if kind.money else "%") for metric, kind in KINDS.items()}


def title(config: SimulationConfig, results: Results) -> str:
    market, rules = config.market, config.rules
    where = f"synthetic, like {market.kind} ads" if isinstance(market, Generated) else market.path.name
    return f"{where}: {counted(results.auctions, 'auction')}, {rules.price}, gamma {rules.cutoff:g}"


def bill(
    config: SimulationConfig, written: Written
) -> tuple[str, tuple[str, ...], list[tuple[str, str, str, str]]]:
    """Who owes most, as a table: its title, its columns (all but the first are numbers) and its rows."""
    market, owed = config.market, written.owed
    made_up = ""
    if isinstance(market, Generated):
        many, falls = counted(market.campaigns.count, "synthetic campaign"), market.campaigns.popularity
        made_up = f"; {many}, drawn by weights 1 / rank^{falls:g}"
    columns = ("campaign", "impressions", "if all fall due", "mean price")
    rest, whole = owed[LARGEST:], sum(each.impressions for each in owed)
    rows = [(str(each.campaign), *_sums([each])) for each in owed[:LARGEST]]
    if rest:
        rows.append((f"{counted(len(rest), 'other')}", *_sums(rest)))
    rows.append(("all", *_sums(owed)))
    return f"the bill: {counted(whole, 'impression')}, in currency units{made_up}", columns, rows


def _sums(owed: Sequence[Owed]) -> tuple[str, str, str]:
    shown, micros = sum(each.impressions for each in owed), sum(each.total_micros for each in owed)
    return f"{shown:,}", f"{micros / MICROS:,.2f}", f"{micros / MICROS / max(shown, 1):,.2f}"


def counted(number: int, thing: str) -> str:
    """A number of things: 1 campaign, 2,000 campaigns."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def spent(results: Results, arm: str) -> str:
    most = results.most_epsilon[arm]
    if math.isinf(most):
        return "no privacy"
    return f"{most:.4g} asked" if arm in results.measured_only else f"{most:.4g}"


def footer(results: Results) -> str:
    """What the tables mean by ± and by ε."""
    said = "± is half of a 95% interval. ε is what one choice may tell; choices of one person add up."
    if results.measured_only:
        said += "\nAsked: for measuring only, and no bound on what a choice tells."
    return said


def mean_cell(results: Results, arm: str, metric: str) -> str:
    unit = _unit(metric)
    value, reach = results.mean(arm, metric) * unit, REACH * results.standard_error(arm, metric) * unit
    if reach < ROUNDING * abs(value):
        reach = 0.0
    return f"{value:,.4g} ± {reach:.2g}" if abs(value) < 10_000 else f"{value:,.0f} ± {reach:,.0f}"


def lift_cell(results: Results, arm: str, metric: str) -> str:
    found = lift(results, arm, metric)
    if found is None:
        return ""
    percent = round(100 * found[0], 2) + 0.0  # no -0.00
    return f"{percent:+.2f} ± {100 * REACH * found[1]:.2f}"


def lift(results: Results, arm: str, metric: str) -> tuple[float, float] | None:
    """Over the non-personalised choice, with its standard error; none where that has nothing."""
    if not results.mean(NON_PERSONALISED, metric):
        return None
    return results.lift(arm, NON_PERSONALISED, metric)


def as_record(results: Results, arm: str) -> dict[str, Any]:
    """CTR as a share; money in micros an auction; an epsilon that has no bound is null, and one that is for
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
