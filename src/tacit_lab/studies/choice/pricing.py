"""Prices: what they do to both sides by what they know (figures 2 and 6), and what bidders gain by shading.

Two studies. The first has prices made without private data, or without any click model; the choice is
greedy and all candidates are sent, so that who wins is the same under every price. The second has bids
below the truth, by price rule and choice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.arrays import Floats
from tacit.data.generators.markets import Market
from tacit.deliver.auction.blocks import AuctionBlock, Rates, make_offers
from tacit.deliver.auction.choices import NON_PERSONALISED, ChoiceRule, Greedy, NonPersonalised
from tacit.deliver.auction.incentives import BidShading, measure_shading
from tacit.deliver.auction.logs import MICROS, generated_blocks
from tacit.deliver.auction.market import Arm, MarketResults, private_scores
from tacit.deliver.auction.metrics import METRICS, REACH, MetricTotals, metric_values
from tacit.deliver.protocol.prices import BillingEvent, FirstPrice, PriceRule, Rules, SecondPrice
from tacit.kernels.choices import expected
from tacit_lab.studies.choice.contestants import RR, SCALED, planned_trunc
from tacit_lab.studies.choice.lifts import (
    TITLES,
    LiftRow,
    Lifts,
    Pair,
    interval_around,
    records,
    write_outcome,
)
from tacit_lab.studies.choice.markets import (
    OF_REQUESTS,
    OURS,
    PAPER,
    SEEDS,
    StudyMarket,
    data_words,
    study_markets,
)
from tacit_lab.studies.plotting import Bars, Mechanism, Panel, Series, bar_figure
from tacit_lab.studies.report import Axes, seeds_of
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

R1 = Claim("R1", "figures 2, 6", "pricing without private data raises revenue and lowers surplus")
R2 = Claim("R2", "figures 2, 6", "an uninformed click model raises prices further")

PRICING_NAME = "choice-pricing"
DEVICE, SERVER, NOTHING = "device", "server", "uninformed"
MODELS = (DEVICE, SERVER, NOTHING)
SHOWN = ("revenue", "surplus")
PAIRS: tuple[Pair, ...] = ((DEVICE, SERVER), (NOTHING, SERVER), (SERVER, NOTHING))  # besides over the device's


def run_pricing(asked: StudyRequest) -> StudyOutcome:
    """Figures 2 and 6: what prices made without private data, or without any click model, do to both sides."""
    began = time.monotonic()
    found = study_markets(asked)
    table, rows, bars = [], [], []
    for at, market in enumerate(found):
        asked.progress(f"{PRICING_NAME}: {market.name}", at, len(found))
        heights: dict[str, list[float]] = {metric: [] for metric in SHOWN}
        for charged in BillingEvent:
            labels = {"market": market.name, "charged": str(charged)}
            arms: list[tuple[str, LiftRow]] = [(model, {}) for model in MODELS]
            measured = records(_measure_market(market, charged), labels, arms, PAIRS, SHOWN, over=DEVICE)
            table += measured
            lifts = Lifts.of(measured)
            for model in MODELS:
                cells = [words(lifts.lift(model, metric, over=DEVICE)) for metric in SHOWN]
                rows.append((market.name, f"per {charged}", model, *cells))
            for metric, tall in heights.items():
                tall += [100 + lifts.lift(model, metric, over=DEVICE).value for model in MODELS[1:]]
        labels_of_bars = [f"{model}\n{charged}" for charged in BillingEvent for model in MODELS[1:]]
        bars += [
            Bars(f"{TITLES[metric]}, {market.name}", labels_of_bars, tall) for metric, tall in heights.items()
        ]

    def draw(path: Path, subtitle: str) -> object:
        return bar_figure(
            bars,
            subtitle=f"{subtitle}. Greedy choice, no privacy",
            x_label="whose click rates make the price, and what is charged",
            y_label="% of that at prices by the device's rates",
            path=path,
        )

    return write_outcome(
        PRICING_NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"models": list(MODELS), "reserve_micros": 0},
        table=table,
        columns=("market", "charged", "priced by", "revenue +%", "surplus +%"),
        rows=rows,
        draw=draw,
    )


def _measure_market(market: StudyMarket, charged: BillingEvent) -> MarketResults:
    """One arm per price model. Each has its own public half: measured apart, and joined by auction."""
    arm = Arm(Greedy(), Rules(SecondPrice(charged)))
    average = float(np.mean(np.concatenate([block.public.rates.click for block in market.blocks])))
    joined = MetricTotals(len(METRICS) * len(MODELS))
    for block in market.blocks:
        joined.add(np.concatenate([_by_auction(block, arm, model, average) for model in MODELS], axis=1))
    return MarketResults(MODELS, joined, dict.fromkeys(MODELS, float("inf")))


def _by_auction(block: AuctionBlock, arm: Arm, model: str, average: float) -> Floats:
    known = {
        DEVICE: block.private,
        SERVER: block.public.rates,
        NOTHING: Rates(np.full_like(block.private.click, average)),
    }[model]
    priced = replace(block, public=replace(block.public, rates=known))
    offers = make_offers(priced.public, arm.rules)
    law = arm.choice.pmf(offers, private_scores(priced, offers))
    return expected(offers.offsets, law, metric_values(priced, offers))


def judge_pricing(kept: ResultFiles) -> list[Finding]:
    findings = []
    for (market, charged), lifts in Lifts.by(kept, "market", "charged").items():
        for claim, model, over in ((R1, SERVER, DEVICE), (R2, NOTHING, SERVER)):
            revenue, surplus = (lifts.lift(model, metric, over=over) for metric in SHOWN)
            findings.append(
                Finding(
                    claim,
                    f"revenue above and surplus below those at prices by the {over}'s rates, 95% over auctions",
                    f"{model} over {over}: revenue {words(revenue)}%, surplus {words(surplus)}%",
                    every([lifts.above(model, over, "revenue"), lifts.above(over, model, "surplus")]),
                    where=f"{market}, per {charged}",
                )
            )
    return findings


PRICING_STUDY = Study(
    PRICING_NAME,
    "Revenue and surplus by what prices know",
    PAPER,
    "figures 2, 6",
    (R1, R2),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 2.0},
    SEEDS,
    run_pricing,
    judge_pricing,
    inputs=OF_REQUESTS,
)


T7 = Claim(
    "T7",
    "appendix A's price rule",
    "second price on the public ranking is truthful without personalisation, and is not under a private choice",
)

SHADING_NAME = "choice-shading"
FACTORS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3)
AUCTIONS = {StudyScale.TOY: 50, StudyScale.SMALL: 2_000, StudyScale.FULL: 16_000}
EPSILON = 5
PER_THOUSAND = 1_000 / MICROS
SECOND = "second price"
PRICES: dict[str, PriceRule] = {
    SECOND: SecondPrice(BillingEvent.CLICK),
    "first price": FirstPrice(BillingEvent.CLICK),
}


def run_shading(asked: StudyRequest) -> StudyOutcome:
    """What a bidder gains by bidding below the truth, by price rule and choice."""
    asked.refuse_data("values of bidders are known only where they are made up")
    began = time.monotonic()
    market = StudyMarket("display-like", 0.9, tuple(_blocks(asked)))
    contestants = (RR, SCALED, planned_trunc((EPSILON,)))
    choices: dict[str, ChoiceRule] = {
        NON_PERSONALISED: NonPersonalised(),
        **{each.at(EPSILON): each.make(market, EPSILON) for each in contestants},
    }
    looks = {NON_PERSONALISED: Mechanism.NON_PRIVATE, **{each.at(EPSILON): each.look for each in contestants}}
    found: dict[tuple[str, str], BidShading] = {}
    for price, rule in PRICES.items():
        for name, choice in choices.items():
            asked.progress(f"{SHADING_NAME}: {price}, {name}", len(found), len(PRICES) * len(choices))
            arm = Arm(choice, Rules(rule))
            found[price, name] = pool_blocks([measure_shading(block, arm, FACTORS) for block in market.blocks])
    panels = [
        Panel(price.capitalize(), [_line(found[price, name], name, looks[name]) for name in choices])
        for price in PRICES
    ]
    return write_outcome(
        SHADING_NAME,
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


def _blocks(asked: StudyRequest) -> Iterator[AuctionBlock]:
    """As many auctions of each seed."""
    for seed in seeds_of(asked):
        yield from generated_blocks(Market.taobao_like().auctions(AUCTIONS[asked.scale], seed))


def pool_blocks(several: Sequence[BidShading]) -> BidShading:
    """Those of all blocks, by their bidders."""
    bidders = np.array([each.bidders for each in several])
    weight = bidders / bidders.sum()
    return BidShading(
        several[0].factors,
        weight @ np.stack([each.surplus for each in several]),
        weight @ np.stack([each.gain for each in several]),
        np.sqrt(weight**2 @ np.stack([each.standard_error**2 for each in several])),
        int(bidders.sum()),
    )


def _line(each: BidShading, name: str, look: Mechanism) -> Series:
    y, reach = PER_THOUSAND * each.gain, PER_THOUSAND * REACH * each.standard_error
    return Series(name, each.factors, y, y - reach, y + reach, mechanism=look)


def best_words(each: BidShading) -> str:
    """The best factor; where it is the first or last that was tried, the best of all may lie beyond."""
    best = each.best_factor
    return f"{best:g}{', an end of the grid' if best in (each.factors[0], each.factors[-1]) else ''}"


def _share(each: BidShading) -> str:
    """Of the truthful surplus; at first price that is nothing, and nothing is said."""
    return f"{100 * each.regret:.2f}" if np.isfinite(each.regret) else ""


def judge_shading(kept: ResultFiles) -> list[Finding]:
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for row in kept.rows:
        if row["price"] == SECOND:
            curves.setdefault(str(row["choice"]), []).append(row)
    return [judge_choice(choice, rows) for choice, rows in curves.items()]


def judge_choice(choice: str, rows: Sequence[Mapping[str, Any]]) -> Finding:
    factors, surplus, gain, error = (
        np.array([row[column] for row in rows]) for column in ("factor", "surplus", "gain", "standard_error")
    )
    each = BidShading(tuple(factors.tolist()), surplus, gain, error, bidders=0)
    best = int(np.argmax(gain))
    gained = interval_around(PER_THOUSAND * float(gain[best]), PER_THOUSAND * float(error[best]))
    second, truthful = _gains(each), choice == NON_PERSONALISED
    return Finding(
        T7,
        f"{'no' if truthful else 'some'} factor gains over the truthful bid, 95% over auctions",
        f"best factor {best_words(each)}: {words(gained, 1)} per 1,000 bids, {_share(each)}% of the surplus",
        None if second is None else second != truthful,
        where=choice,
        why="a theorem: only a bug could fail it" if truthful else "",
    )


def _gains(each: BidShading) -> bool | None:
    reach = REACH * each.standard_error
    if (each.gain - reach > 0).any():
        return True
    return False if (each.gain + reach <= 0).all() else None


SHADING_STUDY = Study(
    SHADING_NAME,
    "What bidders gain by shading",
    OURS,
    "beyond appendix A",
    (T7,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 10.0},
    SEEDS,
    run_shading,
    judge_shading,
)
