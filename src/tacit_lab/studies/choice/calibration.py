"""What the comparison of figure 3 becomes where noisy max really spends the epsilon that RR spends."""

from __future__ import annotations

import time

from tacit.privacy.choice.noise import Noise
from tacit_lab.studies.choice.contestants import EPSILONS, RR, ChoiceContestant, run_contest, scaled_snm
from tacit_lab.studies.choice.lifts import (
    LIFT_LABEL,
    METRICS,
    Lifts,
    Pair,
    arms_over,
    panels_over,
    records,
    write_outcome,
)
from tacit_lab.studies.choice.markets import OF_REQUESTS, OURS, SEEDS, data_words, study_markets
from tacit_lab.studies.report import Axes
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import every

T3 = Claim("T3", "SNM at its nominal rate", "calibrated exactly, SNM is better at the same epsilon")
T4 = Claim("T4", "SNM, calibrated", "RR still beats SNM at higher epsilon where both spend the same")

NAME = "choice-calibration"
HIGH = 6
NOISES = {
    noise: (scaled_snm(noise, f"{noise}, nominal"), scaled_snm(noise, f"{noise}, exact", calibrated=True))
    for noise in (Noise.EXPONENTIAL, Noise.GUMBEL)
}
EVERYBODY: tuple[ChoiceContestant, ...] = (RR, *(each for pair in NOISES.values() for each in pair))
SHOWN = ("clicks", "welfare")
PAIRS: tuple[Pair, ...] = (
    *((exact.at(e), nominal.at(e)) for nominal, exact in NOISES.values() for e in EPSILONS),
    (RR.at(HIGH), NOISES[Noise.EXPONENTIAL][1].at(HIGH)),
)


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    found = study_markets(asked)
    panels, table, rows = [], [], []
    for at, market in enumerate(found):
        asked.progress(f"{NAME}: {market.name}", at, len(found))
        results = run_contest(market, EVERYBODY, EPSILONS)
        measured = records(results, {"market": market.name}, arms_over(EVERYBODY, EPSILONS), PAIRS)
        table += measured
        lifts = Lifts.of(measured)
        panels += panels_over(lifts, EVERYBODY, EPSILONS, SHOWN, market.name)
        rows += [(market.name, each.at(5), *lifts.cells(each.at(5))) for each in EVERYBODY]
    return write_outcome(
        NAME,
        asked,
        began=began,
        data=data_words(found),
        parameters={"epsilons": list(EPSILONS), "scores": "scaled"},
        table=table,
        columns=("market", "choice", *(f"{name} +%" for name in METRICS.values())),
        rows=rows,
        panels=panels,
        axes=Axes("epsilon", LIFT_LABEL, EPSILONS),
    )


def judge(kept: ResultFiles) -> list[Finding]:
    return [
        each for (market,), lifts in Lifts.by(kept, "market").items() for each in judge_market(lifts, market)
    ]


def judge_market(lifts: Lifts, market: str) -> list[Finding]:
    nominal, exact = (each.at(HIGH) for each in NOISES[Noise.EXPONENTIAL])

    def lift_words(arm: str, over: str) -> str:
        return ", ".join(f"{METRICS[metric]} {words(lifts.lift(arm, metric, over=over))}%" for metric in SHOWN)

    return [
        Finding(
            T3,
            "scaled scores, both noises: CTR and welfare above those at the nominal rate at every epsilon, 95%",
            f"exponential at {HIGH}: {lift_words(exact, nominal)} over nominal",
            every(
                lifts.above(better.at(e), worse.at(e), metric)
                for worse, better in NOISES.values()
                for e in EPSILONS
                for metric in SHOWN
            ),
            where=market,
        ),
        Finding(
            T4,
            f"at epsilon {HIGH} CTR and welfare of RR are above those of exact SNM (exponential, scaled), 95%",
            f"RR over exact SNM: {lift_words(RR.at(HIGH), exact)}",
            every(lifts.above(RR.at(HIGH), exact, metric) for metric in SHOWN),
            where=market,
        ),
    ]


STUDY = Study(
    NAME,
    "RR and SNM where both spend the same epsilon",
    OURS,
    "beyond figure 3",
    (T3, T4),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.1, StudyScale.FULL: 10.0},
    SEEDS,
    run,
    judge,
    inputs=OF_REQUESTS,
)
