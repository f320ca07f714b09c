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
from tacit.studies.choice.lifts import TITLES, above, lift
from tacit.studies.choice.report import outcome
from tacit.studies.choice.setting import PAPER, SEEDS, StudyMarket, data_words, markets
from tacit.studies.plotting import Bars, bar_figure
from tacit.studies.runs import words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "choice-pricing"
DEVICE, SERVER, NOTHING = "device", "server", "uninformed"
MODELS = (DEVICE, SERVER, NOTHING)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    table, rows, bars = [], [], []
    findings: list[Finding] = []
    for at, market in enumerate(found):
        asked.track(f"{NAME}: {market.name}", at, len(found))
        heights: dict[str, list[float]] = {"revenue": [], "surplus": []}
        for charged in Charged:
            results = _measured(market, charged)
            for model in MODELS:
                lifts = {metric: lift(results, model, metric, over=DEVICE) for metric in ("revenue", "surplus")}
                labels = {"market": market.name, "charged": str(charged), "priced_by": model}
                for metric, each in lifts.items():
                    mean = results.mean(model, metric)
                    row = {**labels, "metric": metric, "mean": mean, "lift_percent": each.value}
                    table.append({**row, "low": each.low, "high": each.high})
                cells = [words(each) for each in lifts.values()]
                rows.append((market.name, f"per {charged}", model, *cells))
            for metric in heights:
                heights[metric] += [
                    100 * results.mean(model, metric) / results.mean(DEVICE, metric) for model in MODELS[1:]
                ]
            findings += judged(results, f"{market.name}, charged per {charged}")
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
        findings=findings,
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


def judged(results: Results, where: str) -> list[Finding]:
    def seen(model: str, over: str) -> str:
        lifts = {metric: lift(results, model, metric, over=over) for metric in ("revenue", "surplus")}
        return f"over {over}: " + ", ".join(f"{metric} {words(each)}%" for metric, each in lifts.items())

    return [
        Finding(
            "R1",
            f"pricing without private data raises revenue and lowers surplus ({where})",
            "revenue above and surplus below those of prices by the device's rates, 95% over auctions",
            seen(SERVER, DEVICE),
            every([above(results, SERVER, DEVICE, "revenue"), above(results, DEVICE, SERVER, "surplus")]),
        ),
        Finding(
            "R2",
            f"an uninformed click model raises prices further ({where})",
            "revenue above and surplus below those of prices by the server's rates, 95% over auctions",
            seen(NOTHING, SERVER),
            every([above(results, NOTHING, SERVER, "revenue"), above(results, SERVER, NOTHING, "surplus")]),
        ),
    ]


STUDY = Study(
    NAME,
    "Revenue and surplus by what prices know",
    PAPER,
    "figures 2, 6",
    ("R1", "R2"),
    {Scale.TOY: 0.1, Scale.SMALL: 0.2, Scale.FULL: 2.0},
    SEEDS,
    run,
)
