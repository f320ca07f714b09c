"""Figures 11 and 12: candidates per auction, and how far device and server differ on click rates.

Two studies; in the second, more of the server's rates are mixed into the device's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit_lab.studies.choice.lifts import interval_around, write_outcome
from tacit_lab.studies.choice.markets import (
    OF_REQUESTS,
    PAPER,
    SEEDS,
    StudyMarket,
    data_words,
    mix_rates,
    study_markets,
)
from tacit_lab.studies.choice.mixing import ALPHAS
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import interval_within

R17 = Claim("R17", "figure 11, appendix H", "about 4 candidates on average in the display log", "4")

CANDIDATES_NAME = "choice-candidates"
PUBLISHED, WITHIN = 4, 0.5
SET_BY_GENERATOR = "synthetic: set by the generator"
CANDIDATE_TICKS = (1, 2, 3, 5, 10, 20, 40)


def run_candidates(asked: StudyRequest) -> StudyOutcome:
    """Figure 11: how many candidates auctions have."""
    began = time.monotonic()
    found = study_markets(asked)
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
    return write_outcome(
        CANDIDATES_NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"auctions": {market.name: market.count for market in found}},
        table=table,
        columns=("market", "mean", "median", "10 or more, %", "most"),
        rows=rows,
        panels=panels,
        axes=Axes("candidates", "auctions with at most so many, %", CANDIDATE_TICKS, share_y=True),
    )


def judge_candidates(kept: ResultFiles) -> list[Finding]:
    findings = []
    for market, auctions in kept.settings["parameters"]["auctions"].items():
        if market == "search-like":
            continue
        rows: Sequence[Mapping[str, Any]] = [row for row in kept.rows if row["market"] == market]
        sizes = np.array([row["candidates"] for row in rows])
        shares = np.diff([0.0, *(row["share_at_most"] for row in rows)])
        mean = float(sizes @ shares)
        found = interval_around(mean, math.sqrt(float((sizes - mean) ** 2 @ shares) / auctions))
        made_up = bool(kept.settings["synthetic"])
        findings.append(
            Finding(
                R17,
                f"the mean is within {WITHIN} of {PUBLISHED}, 95% over auctions, in a log that was not made up",
                words(found),
                None if made_up else interval_within(found, PUBLISHED - WITHIN, PUBLISHED + WITHIN),
                where=market,
                why=SET_BY_GENERATOR if made_up else "",
            )
        )
    return findings


CANDIDATES_STUDY = Study(
    CANDIDATES_NAME,
    "Candidates an auction",
    PAPER,
    "figure 11",
    (R17,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 1.0},
    SEEDS,
    run_candidates,
    judge_candidates,
    inputs=OF_REQUESTS,
)


R19 = Claim(
    "R19",
    "appendix H",
    "the device's click rates differ from the server's more than twice as much in display ads as in search ads",
    "> 2x in the median",
)

GAPS_NAME = "choice-gaps"
TIMES = 2  # the published median is "more than 100% higher"
QUANTILES = np.linspace(0.02, 0.98, 25)
GAP_TICKS = (0.0001, 0.001, 0.01, 0.1)


def run_gaps(asked: StudyRequest) -> StudyOutcome:
    """Figure 12: how far the device's click rates are from the server's, with more of the server's mixed in."""
    began = time.monotonic()
    found = study_markets(asked)
    panels, table, rows = [], [], []
    for market in found:
        lines = []
        for alpha in ALPHAS:
            gaps = _gaps(mix_rates(market, alpha))
            at = np.maximum(np.quantile(gaps, QUANTILES), GAP_TICKS[0] / 10)
            lines.append(Series(f"alpha {alpha:g}", at, 100 * QUANTILES, mechanism=Mechanism.RR))
            table += [
                {"market": market.name, "alpha": alpha, "share_below": share, "gap": gap}
                for share, gap in zip(QUANTILES.tolist(), at.tolist(), strict=True)
            ]
            rows.append((market.name, f"{alpha:g}", f"{np.median(gaps):.4f}", f"{np.quantile(gaps, 0.9):.4f}"))
        panels.append(Panel(market.name, lines))
    return write_outcome(
        GAPS_NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"alphas": list(ALPHAS)},
        table=table,
        columns=("market", "alpha", "median gap", "9 of 10 below"),
        rows=rows,
        panels=panels,
        axes=Axes("|device - server| click probability", "candidates with less, %", GAP_TICKS, share_y=True),
    )


def _gaps(market: StudyMarket) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([np.abs(b.private.click - b.public.rates.click) for b in market.blocks])


def judge_gaps(kept: ResultFiles) -> list[Finding]:
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
    return [Finding(R19, rule, seen, None, why=SET_BY_GENERATOR)]


GAPS_STUDY = Study(
    GAPS_NAME,
    "What only the device knows of clicks",
    PAPER,
    "figure 12, appendix H",
    (R19,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 1.0},
    SEEDS,
    run_gaps,
    judge_gaps,
    inputs=OF_REQUESTS,
)
