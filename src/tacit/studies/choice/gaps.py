"""Figure 12: how far the device's click rates are from the server's, with more of the server's mixed in."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.studies.choice.candidates import SET
from tacit.studies.choice.mixing import ALPHAS
from tacit.studies.choice.parts import mixed
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, StudyMarket, data_words, markets
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.results import Kept
from tacit.studies.study import Asked, Claim, Finding, Outcome, Scale, Study

R19 = Claim(
    "R19",
    "appendix H",
    "the device's click rates differ from the server's more than twice as much in display ads as in search ads",
    "> 2x in the median",
)

NAME = "choice-gaps"
TIMES = 2  # the published median is "more than 100% higher"
QUANTILES = np.linspace(0.02, 0.98, 25)
TICKS = (0.0001, 0.001, 0.01, 0.1)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    panels, table, rows = [], [], []
    for market in found:
        lines = []
        for alpha in ALPHAS:
            gaps = _gaps(mixed(market, alpha))
            at = np.maximum(np.quantile(gaps, QUANTILES), TICKS[0] / 10)
            lines.append(Series(f"alpha {alpha:g}", at, 100 * QUANTILES, mechanism=Mechanism.RR))
            table += [
                {"market": market.name, "alpha": alpha, "share_below": share, "gap": gap}
                for share, gap in zip(QUANTILES.tolist(), at.tolist(), strict=True)
            ]
            rows.append((market.name, f"{alpha:g}", f"{np.median(gaps):.4f}", f"{np.quantile(gaps, 0.9):.4f}"))
        panels.append(Panel(market.name, lines))
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"alphas": list(ALPHAS)},
        table=table,
        columns=("market", "alpha", "median gap", "9 of 10 below"),
        rows=rows,
        panels=panels,
        axes=Axes("|device - server| click probability", "candidates with less, %", TICKS, share_y=True),
    )


def _gaps(market: StudyMarket) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([np.abs(b.private.click - b.public.rates.click) for b in market.blocks])


def judge(kept: Kept) -> list[Finding]:
    """Both markets are made up: how much only the device knows is a dial of each."""
    rule = f"the median |device - server| is more than {TIMES} times as large, in logs that were not made up"
    rows: Sequence[Mapping[str, Any]] = kept.rows
    medians = {
        row["market"]: row["gap"]
        for row in rows
        if row["alpha"] == ALPHAS[0] and math.isclose(row["share_below"], 0.5)
    }
    if {"display-like", "search-like"} - medians.keys():
        return [Finding(R19, rule, "one market only", None)]
    display, search = medians["display-like"], medians["search-like"]
    seen = f"{display:.4f} against {search:.4f}, {display / search:.1f} times"
    return [Finding(R19, rule, seen, None, why=SET)]


STUDY = Study(
    NAME,
    "What only the device knows of clicks",
    PAPER,
    "figure 12, appendix H",
    (R19,),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 1.0},
    SEEDS,
    run,
    judge,
)
