"""What a bidder gains by bidding below the truth, by price rule and choice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.data.generators.markets import Market
from tacit.deliver.auction.candidates import AuctionBlock
from tacit.deliver.auction.choices import NON_PERSONALISED, ChoiceRule, NonPersonalised
from tacit.deliver.auction.logs import MICROS, generated_blocks
from tacit.deliver.auction.market import Arm
from tacit.deliver.auction.metrics import REACH
from tacit.deliver.auction.rules import Charged, FirstPrice, PriceRule, Rules, SecondPrice
from tacit.deliver.incentives import Shading, shading
from tacit.studies.choice.contestants import RR, SCALED, planned
from tacit.studies.choice.lifts import around
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import OURS, SEEDS, StudyMarket
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import seeds_of
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study

T7 = Claim(
    "T7",
    "appendix A's price rule",
    "second price on the public ranking is truthful without personalisation, and is not under a private choice",
)

NAME = "choice-shading"
FACTORS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3)
AUCTIONS = {Scale.TOY: 50, Scale.SMALL: 2_000, Scale.FULL: 16_000}
EPSILON = 5
PER_THOUSAND = 1_000 / MICROS
SECOND = "second price"
PRICES: dict[str, PriceRule] = {
    SECOND: SecondPrice(Charged.CLICK),
    "first price": FirstPrice(Charged.CLICK),
}


def run(asked: Asked) -> Outcome:
    asked.refuse_data("values of bidders are known only where they are made up")
    began = time.monotonic()
    market = StudyMarket("display-like", 0.9, tuple(_blocks(asked)))
    contestants = (RR, SCALED, planned((EPSILON,)))
    choices: dict[str, ChoiceRule] = {
        NON_PERSONALISED: NonPersonalised(),
        **{each.at(EPSILON): each.make(market, EPSILON) for each in contestants},
    }
    looks = {NON_PERSONALISED: Mechanism.NON_PRIVATE, **{each.at(EPSILON): each.look for each in contestants}}
    found: dict[tuple[str, str], Shading] = {}
    for price, rule in PRICES.items():
        for name, choice in choices.items():
            asked.track(f"{NAME}: {price}, {name}", len(found), len(PRICES) * len(choices))
            arm = Arm(choice, Rules(rule))
            found[price, name] = together([shading(block, arm, FACTORS) for block in market.blocks])
    panels = [
        Panel(price.capitalize(), [_line(found[price, name], name, looks[name]) for name in choices])
        for price in PRICES
    ]
    return outcome(
        NAME,
        asked,
        began=began,
        data=f"display-like ({market.count:,} auctions)",
        parameters={"factors": list(FACTORS), "epsilon": EPSILON},
        table=[
            {"price": price, "choice": name, "factor": factor, "surplus": s, "gain": g, "standard_error": e}
            for (price, name), each in found.items()
            for factor, s, g, e in zip(each.factors, each.surplus, each.gain, each.standard_error, strict=True)
        ],
        columns=("price", "choice", "best factor", "most gained per 1,000 bids", "% of truthful surplus"),
        rows=[
            (price, name, best_words(each), f"{PER_THOUSAND * each.gain.max():,.1f}", _share(each))
            for (price, name), each in found.items()
        ],
        panels=panels,
        axes=Axes("bid / value", "gain over the truth per 1,000 bids"),
    )


def _blocks(asked: Asked) -> Iterator[AuctionBlock]:
    """As many auctions of each seed."""
    for seed in seeds_of(asked):
        yield from generated_blocks(Market.taobao_like().auctions(AUCTIONS[asked.scale], seed))


def together(several: Sequence[Shading]) -> Shading:
    """Those of all blocks, by their bidders."""
    bidders = np.array([each.bidders for each in several])
    weight = bidders / bidders.sum()
    return Shading(
        several[0].factors,
        weight @ np.stack([each.surplus for each in several]),
        weight @ np.stack([each.gain for each in several]),
        np.sqrt(weight**2 @ np.stack([each.standard_error**2 for each in several])),
        int(bidders.sum()),
    )


def _line(each: Shading, name: str, look: Mechanism) -> Series:
    y, reach = PER_THOUSAND * each.gain, PER_THOUSAND * REACH * each.standard_error
    return Series(name, each.factors, y, y - reach, y + reach, mechanism=look)


def best_words(each: Shading) -> str:
    """The best factor; where it is the first or last that was tried, the best of all may lie beyond."""
    best = each.best_factor
    return f"{best:g}{', an end of the grid' if best in (each.factors[0], each.factors[-1]) else ''}"


def _share(each: Shading) -> str:
    """Of the truthful surplus; at first price that is nothing, and nothing is said."""
    return f"{100 * each.regret:.2f}" if np.isfinite(each.regret) else ""


def judge(kept: Kept) -> list[Finding]:
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for row in kept.rows:
        if row["price"] == SECOND:
            curves.setdefault(str(row["choice"]), []).append(row)
    return [judged(choice, rows) for choice, rows in curves.items()]


def judged(choice: str, rows: Sequence[Mapping[str, Any]]) -> Finding:
    factors, surplus, gain, error = (
        np.array([row[column] for row in rows]) for column in ("factor", "surplus", "gain", "standard_error")
    )
    each = Shading(tuple(factors.tolist()), surplus, gain, error, bidders=0)
    best = int(np.argmax(gain))
    gained = around(PER_THOUSAND * float(gain[best]), PER_THOUSAND * float(error[best]))
    second, truthful = _gains(each), choice == NON_PERSONALISED
    return Finding(
        T7,
        f"{'no' if truthful else 'some'} factor gains over the truthful bid, 95% over auctions",
        f"best factor {best_words(each)}: {words(gained, 1)} per 1,000 bids, {_share(each)}% of the surplus",
        None if second is None else second != truthful,
        where=choice,
        why="a theorem: only a bug could fail it" if truthful else "",
    )


def _gains(each: Shading) -> bool | None:
    reach = REACH * each.standard_error
    if (each.gain - reach > 0).any():
        return True
    return False if (each.gain + reach <= 0).all() else None


STUDY = Study(
    NAME,
    "What bidders gain by shading",
    OURS,
    "beyond appendix A",
    (T7,),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 10.0},
    SEEDS,
    run,
    judge,
)
