"""Figure 11: how many candidates auctions have."""

from __future__ import annotations

import time

import numpy as np

from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, data_words, markets
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study

NAME = "choice-candidates"
PUBLISHED, WITHIN = 4, 0.5
TICKS = (1, 2, 3, 5, 10, 20, 40)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    panels, table, rows, findings = [], [], [], []
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
        if market.name != "search-like":
            findings.append(
                Finding(
                    "R17",
                    f"about {PUBLISHED} candidates on average in the display log ({market.name})",
                    f"the mean is within {WITHIN} of {PUBLISHED}; a made-up market was made to be so",
                    f"{mean:.2f}",
                    abs(mean - PUBLISHED) <= WITHIN,
                )
            )
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={},
        table=table,
        columns=("market", "mean", "median", "10 or more, %", "most"),
        rows=rows,
        findings=findings,
        panels=panels,
        axes=Axes("candidates", "auctions with at most so many, %", TICKS, share_y=True),
    )


STUDY = Study(
    NAME,
    "Candidates an auction",
    PAPER,
    "figure 11",
    ("R17",),
    {Scale.TOY: 0.1, Scale.SMALL: 0.1, Scale.FULL: 1.0},
    SEEDS,
    run,
)
