"""Figure 11: how many candidates auctions have."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.studies.choice.lifts import around
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, data_words, markets
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.results import Kept
from tacit.studies.runs import words
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study
from tacit.train.evaluation.estimates import Measured

R17 = Claim("R17", "figure 11, appendix H", "about 4 candidates on average in the display log", "4")

NAME = "choice-candidates"
PUBLISHED, WITHIN = 4, 0.5
SET = "synthetic: set by the generator"
TICKS = (1, 2, 3, 5, 10, 20, 40)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    panels, table, rows = [], [], []
    for market in found:
        sizes = np.concatenate([np.diff(block.public.offsets) for block in market.blocks])
        numbers = np.arange(1, sizes.max() + 1)
        shares = np.cumsum(np.bincount(sizes)[1:]) / len(sizes)
        line = Series("auctions", numbers, 100 * shares, mechanism=Mechanism.NON_PRIVATE, steps=True)
        panels.append(Panel(market.name, [line]))
        table += [
            {"market": market.name, "candidates": number, "share_at_most": share}
            for number, share in zip(numbers.tolist(), shares.tolist(), strict=True)
        ]
        mean, many = float(sizes.mean()), float((sizes >= 10).mean())
        rows.append(
            (market.name, f"{mean:.2f}", f"{np.median(sizes):g}", f"{100 * many:.1f}", f"{sizes.max()}")
        )
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"auctions": {market.name: market.count for market in found}},
        table=table,
        columns=("market", "mean", "median", "10 or more, %", "most"),
        rows=rows,
        panels=panels,
        axes=Axes("candidates", "auctions with at most so many, %", TICKS, share_y=True),
    )


def judge(kept: Kept) -> list[Finding]:
    findings = []
    for market, auctions in kept.settings["parameters"]["auctions"].items():
        if market == "search-like":
            continue
        rows: Sequence[Mapping[str, Any]] = [row for row in kept.rows if row["market"] == market]
        sizes = np.array([row["candidates"] for row in rows])
        shares = np.diff([0.0, *(row["share_at_most"] for row in rows)])
        mean = float(sizes @ shares)
        found = around(mean, math.sqrt(float((sizes - mean) ** 2 @ shares) / auctions))
        made_up = bool(kept.settings["synthetic"])
        findings.append(
            Finding(
                R17,
                f"the mean is within {WITHIN} of {PUBLISHED}, 95% over auctions, in a log that was not made up",
                words(found),
                None if made_up else _near(found),
                where=market,
                why=SET if made_up else "",
            )
        )
    return findings


def _near(found: Measured) -> bool | None:
    """The whole interval is, or none of it."""
    least, most = PUBLISHED - WITHIN, PUBLISHED + WITHIN
    if least <= found.low and found.high <= most:
        return True
    return False if found.high < least or found.low > most else None


STUDY = Study(
    NAME,
    "Candidates an auction",
    PAPER,
    "figure 11",
    (R17,),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 1.0},
    SEEDS,
    run,
    judge,
)
