"""Figure 12: how far the device's click rates are from the server's, with more of the server's mixed in."""

from __future__ import annotations

import time

import numpy as np

from tacit.studies.choice.mixing import ALPHAS
from tacit.studies.choice.parts import mixed
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, StudyMarket, data_words, markets
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "choice-gaps"
TIMES = 2  # the published median is "more than 100% higher"
QUANTILES = np.linspace(0.02, 0.98, 25)
TICKS = (0.0001, 0.001, 0.01, 0.1)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    panels, table, rows = [], [], []
    medians: dict[str, float] = {}
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
        medians[market.name] = float(np.median(_gaps(market)))
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
        findings=[_judged(medians)],
        panels=panels,
        axes=Axes("|device - server| click probability", "candidates with less, %", TICKS, share_y=True),
    )


def _gaps(market: StudyMarket) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([np.abs(b.private.click - b.public.rates.click) for b in market.blocks])


def _judged(medians: dict[str, float]) -> Finding:
    words = "the median gap of display ads is more than twice that of search ads"
    rule = (
        f"the median |device - server| is more than {TIMES} times as large; made-up markets were made to differ"
    )
    if {"display-like", "search-like"} - medians.keys():
        return Finding("R19", words, rule, "one market only", None)
    display, search = medians["display-like"], medians["search-like"]
    seen = f"{display:.4f} against {search:.4f}"
    return Finding("R19", words, rule, seen, display > TIMES * search)


STUDY = Study(
    NAME,
    "What only the device knows of clicks",
    PAPER,
    "figure 12, appendix H",
    ("R19",),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 1.0},
    SEEDS,
    run,
)
