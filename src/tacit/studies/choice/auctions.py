"""Figure 9: six single auctions, by the expected private score of what is chosen, over epsilon.

Verdicts are over all auctions of a size, with one clipping bound for the market. They hang on it: with a bound
from the median score of the auctions of 10 or more alone, clipped SNM did not win there at any low epsilon.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.deliver.auction.market import Results, private_scores
from tacit.deliver.auction.offers import offer
from tacit.deliver.auction.rules import Rules
from tacit.privacy.choice.choice import Choice
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.ranked import TopChoice
from tacit.privacy.choice.scores import Clipped, Scaled
from tacit.studies.choice.contestants import EPSILONS, RR, WIDE, Contestant, clipped, contest, scaled
from tacit.studies.choice.lifts import above, said
from tacit.studies.choice.parts import of_sizes
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import PAPER, SEEDS, StudyMarket, data_words, markets
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "choice-auctions"
CONTESTANTS = (RR, scaled(Noise.GUMBEL), clipped(WIDE, Noise.GUMBEL, "SNM clipped"))
SIZES = {"3 candidates": (3, 3), "10 or more": (10, 10**6)}
KINDS = ("any", "public misleads", "public suffices")
VERY_LOW = (0.5, 1)
Floats = NDArray[np.float64]


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    market = markets(asked)[0]
    panels, table, findings = [], [], []
    for words, sizes in SIZES.items():
        part = of_sizes(market, *sizes)
        for title, public, private in samples(part, words):
            lines, ends = _lines(market, public, private)
            panels.append(Panel(title, [*lines, *ends]))
            for each in lines:
                x, y, _, _ = each.columns
                table += [
                    {"auction": title, "mechanism": each.name, "epsilon": e, "mean_score": value}
                    for e, value in zip(x.tolist(), y.tolist(), strict=True)
                ]
        findings.append(_judged(contest(part, CONTESTANTS, EPSILONS), words, part.count))
    rows = [
        (row["auction"], row["mechanism"], f"{row['epsilon']:g}", f"{row['mean_score']:.3f}")
        for row in table
        if row["epsilon"] in (1, 5)
    ]
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words([market]),
        parameters={"epsilons": list(EPSILONS), "clipping_bound": WIDE, "noise": "gumbel"},
        table=table,
        columns=("auction", "mechanism", "epsilon", "mean score / best"),
        rows=rows,
        findings=findings,
        panels=panels,
        axes=Axes("epsilon", "expected private score, best = 1", EPSILONS),
    )


def samples(market: StudyMarket, words: str) -> list[tuple[str, Floats, Floats]]:
    """The first auction, one whose public best is privately in the worse half, one where it is best."""
    block = market.blocks[0]
    offers = offer(block.public, Rules())
    scores = private_scores(block, offers)
    found: dict[str, tuple[str, Floats, Floats]] = {}
    used: set[int] = set()  # no auction twice
    for at in range(offers.count):
        place = slice(int(offers.offsets[at]), int(offers.offsets[at + 1]))
        private = scores[place]
        misleads = bool((private > private[0]).sum() >= len(private) / 2)
        for kind, fits in zip(KINDS, (True, misleads, bool(np.argmax(private) == 0)), strict=True):
            if fits and kind not in found and at not in used:
                used.add(at)
                title = f"{words}: {kind} (no. {offers.names.of(at)})"
                found[kind] = (title, offers.score[place], private)
    return [found[kind] for kind in KINDS if kind in found]


def _lines(market: StudyMarket, public: Floats, private: Floats) -> tuple[list[Series], list[Series]]:
    best = float(private.max())
    lines = [
        Series(each.name, EPSILONS, _values(market, each, public, private) / best, mechanism=each.look)
        for each in CONTESTANTS
    ]
    span = [min(EPSILONS), max(EPSILONS)]
    ends = {"greedy, no privacy": 1.0, "non-personalised": float(private[0]) / best}
    grey = [Series(name, span, [y] * 2, mechanism=Mechanism.NON_PRIVATE) for name, y in ends.items()]
    return lines, grey


def _values(market: StudyMarket, contestant: Contestant, public: Floats, private: Floats) -> Floats:
    """The expected private score at every epsilon, by the exact law."""
    count = len(private)

    def law(epsilon: float) -> Choice:
        if contestant is RR:
            return TopChoice.for_epsilon(epsilon, count, count, 1)
        if contestant is CONTESTANTS[1]:
            return NoisyMax.nominal(Noise.GUMBEL, Scaled(count), epsilon)
        rule = Clipped(tuple(public.tolist()), WIDE * market.unit_micros)
        return NoisyMax.nominal(Noise.GUMBEL, rule, epsilon)

    return np.array([float(law(epsilon).pmf(private) @ private) for epsilon in EPSILONS])


def _judged(results: Results, words: str, auctions: int) -> Finding:
    rr, _, wide = CONTESTANTS
    if words == "3 candidates":
        verdict = every(
            above(results, rr.at(e), each.at(e), "welfare") for e in EPSILONS for each in CONTESTANTS[1:]
        )
        claim = "with 3 candidates RR is best at every epsilon"
        rule = "its mean score is above both variants of SNM (Gumbel) at every epsilon"
    else:
        found = [above(results, wide.at(e), rr.at(e), "welfare") for e in VERY_LOW]
        verdict = True if True in found else (None if None in found else False)
        claim = "with 10 candidates or more clipped SNM can win at very low epsilon"
        rule = f"its mean score is above RR's at an epsilon of {' or '.join(f'{e:g}' for e in VERY_LOW)}"
    return Finding(
        "R12",
        claim,
        f"{rule}, 95% over all {auctions:,} such auctions",
        f"score at 1: {said(results, _names(1), 'welfare')}",
        verdict,
    )


def _names(epsilon: float) -> Sequence[str]:
    return [each.at(epsilon) for each in CONTESTANTS]


STUDY = Study(
    NAME,
    "Six single auctions over epsilon",
    PAPER,
    "figure 9",
    ("R12",),
    {Scale.TOY: 0.1, Scale.SMALL: 0.2, Scale.FULL: 2.0},
    SEEDS,
    run,
)
