"""Figures 2 and 6: what prices made without private data, or without any click model, do to both sides.

The choice is greedy and all candidates are sent, so that who wins is the same under every price.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tacit.deliver.auction.candidates import AuctionBlock, Floats, Rates
from tacit.deliver.auction.choices import Greedy
from tacit.deliver.auction.market import Arm, Results, private_scores
from tacit.deliver.auction.metrics import METRICS, Totals, values_of
from tacit.deliver.auction.offers import offer
from tacit.deliver.auction.rules import Charged, Rules, SecondPrice
from tacit.kernels.choices import expected
from tacit.studies.choice.lifts import Lifts, Pair, Record, records
from tacit.studies.choice.lines import TITLES
from tacit.studies.choice.report import outcome
from tacit.studies.choice.setting import PAPER, SEEDS, StudyMarket, data_words, markets
from tacit.studies.plotting import Bars, bar_figure
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

R1 = Claim("R1", "figures 2, 6", "pricing without private data raises revenue and lowers surplus")
R2 = Claim("R2", "figures 2, 6", "an uninformed click model raises prices further")

NAME = "choice-pricing"
DEVICE, SERVER, NOTHING = "device", "server", "uninformed"
MODELS = (DEVICE, SERVER, NOTHING)
SHOWN = ("revenue", "surplus")
PAIRS: tuple[Pair, ...] = ((DEVICE, SERVER), (NOTHING, SERVER), (SERVER, NOTHING))  # besides over the device's


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    table, rows, bars = [], [], []
    for at, market in enumerate(found):
        asked.track(f"{NAME}: {market.name}", at, len(found))
        heights: dict[str, list[float]] = {metric: [] for metric in SHOWN}
        for charged in Charged:
            labels = {"market": market.name, "charged": str(charged)}
            arms: list[tuple[str, Record]] = [(model, {}) for model in MODELS]
            measured = records(_measured(market, charged), labels, arms, PAIRS, SHOWN, over=DEVICE)
            table += measured
            lifts = Lifts.of(measured)
            for model in MODELS:
                cells = [words(lifts.lift(model, metric, over=DEVICE)) for metric in SHOWN]
                rows.append((market.name, f"per {charged}", model, *cells))
            for metric, tall in heights.items():
                tall += [100 + lifts.lift(model, metric, over=DEVICE).value for model in MODELS[1:]]
        labels_of_bars = [f"{model}\n{charged}" for charged in Charged for model in MODELS[1:]]
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

    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"models": list(MODELS), "reserve_micros": 0},
        table=table,
        columns=("market", "charged", "priced by", "revenue +%", "surplus +%"),
        rows=rows,
        draw=draw,
    )


def _measured(market: StudyMarket, charged: Charged) -> Results:
    """One arm a price model. Each has its own public half: measured apart, and joined by auction."""
    arm = Arm(Greedy(), Rules(SecondPrice(charged)))
    average = float(np.mean(np.concatenate([block.public.rates.click for block in market.blocks])))
    joined = Totals(len(METRICS) * len(MODELS))
    for block in market.blocks:
        joined.add(np.concatenate([_by_auction(block, arm, model, average) for model in MODELS], axis=1))
    return Results(MODELS, joined, dict.fromkeys(MODELS, float("inf")))


def _by_auction(block: AuctionBlock, arm: Arm, model: str, average: float) -> Floats:
    known = {
        DEVICE: block.private,
        SERVER: block.public.rates,
        NOTHING: Rates(np.full_like(block.private.click, average)),
    }[model]
    priced = replace(block, public=replace(block.public, rates=known))
    offers = offer(priced.public, arm.rules)
    law = arm.choice.pmf(offers, private_scores(priced, offers))
    return expected(offers.offsets, law, values_of(priced, offers))


def judge(kept: Kept) -> list[Finding]:
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


STUDY = Study(
    NAME,
    "Revenue and surplus by what prices know",
    PAPER,
    "figures 2, 6",
    (R1, R2),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 2.0},
    SEEDS,
    run,
    judge,
)
