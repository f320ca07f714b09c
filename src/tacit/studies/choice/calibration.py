"""What the comparison of figure 3 becomes where noisy max really spends the epsilon that RR spends."""

from __future__ import annotations

import time

from tacit.deliver.auction.market import Results
from tacit.privacy.choice.noise import Noise
from tacit.studies.choice.contestants import EPSILONS, RR, Contestant, contest, scaled
from tacit.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    above,
    arms_over,
    cells,
    panels_over,
    records,
    said,
)
from tacit.studies.choice.report import Axes, outcome
from tacit.studies.choice.setting import OURS, SEEDS, data_words, markets
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import every

NAME = "choice-calibration"
HIGH = 6
PAIRS = {
    noise: (scaled(noise, f"{noise}, nominal"), scaled(noise, f"{noise}, exact", calibrated=True))
    for noise in (Noise.EXPONENTIAL, Noise.GUMBEL)
}
EVERYBODY: tuple[Contestant, ...] = (RR, *(each for pair in PAIRS.values() for each in pair))
SHOWN = ("clicks", "welfare")


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    found = markets(asked)
    panels, table, rows, findings = [], [], [], []
    for at, market in enumerate(found):
        asked.track(f"{NAME}: {market.name}", at, len(found))
        results = contest(market, EVERYBODY, EPSILONS)
        panels += panels_over(results, EVERYBODY, EPSILONS, SHOWN, market.name)
        table += records(results, {"market": market.name}, arms_over(EVERYBODY, EPSILONS))
        rows += [(market.name, each.at(5), *cells(results, each.at(5))) for each in EVERYBODY]
        findings += _judged(results, market.name)
    return outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"epsilons": list(EPSILONS), "scores": "scaled"},
        table=table,
        columns=("market", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        findings=findings,
        panels=panels,
        axes=Axes("epsilon", LIFT_LABEL, EPSILONS),
    )


def _judged(results: Results, market: str) -> list[Finding]:
    nominal, exact = PAIRS[Noise.EXPONENTIAL]
    named = [RR.at(HIGH), nominal.at(HIGH), exact.at(HIGH)]
    return [
        Finding(
            "T3",
            f"with its noise calibrated exactly, SNM is better at the same epsilon ({market})",
            "scaled scores, both noises: CTR and welfare above those at the nominal rate at every epsilon, 95%",
            f"at {HIGH}: CTR {said(results, named[1:], 'clicks')}; "
            f"welfare {said(results, named[1:], 'welfare')}",
            every(
                above(results, better.at(e), worse.at(e), metric)
                for worse, better in PAIRS.values()
                for e in EPSILONS
                for metric in SHOWN
            ),
        ),
        Finding(
            "T4",
            f"RR still beats SNM at higher epsilon where both spend the same ({market})",
            f"at epsilon {HIGH} CTR and welfare of RR are above those of exact SNM (exponential, scaled), 95%",
            f"CTR: {said(results, named, 'clicks')}; welfare: {said(results, named, 'welfare')}",
            every(above(results, named[0], named[2], metric) for metric in SHOWN),
        ),
    ]


STUDY = Study(
    NAME,
    "RR and SNM where both spend the same epsilon",
    OURS,
    "beyond figure 3",
    ("T3", "T4"),
    {Scale.TOY: 0.2, Scale.SMALL: 0.5, Scale.FULL: 10.0},
    SEEDS,
    run,
)
