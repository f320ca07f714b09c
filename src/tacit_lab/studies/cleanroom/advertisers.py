"""The clean room on real advertisers: adapters for partners of a search log that do not share, one by one.

With `--data` the log is the Criteo Sponsored Search extract of 219 partners, else a made-up one. What is
tuned (low-rank changes of layers, embeddings, both, everything), from which labels, in which mode and through
which codec, beside a calibration for the partner alone and a model of its own flipped labels (C1 to C6 and C8
of the paper, T71 to T74 of ours). Intervals are over partners: each counts once, whatever its size.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from tacit.arrays import Floats
from tacit_lab.studies import report
from tacit_lab.studies.cleanroom.labels import C3, C4, C5
from tacit_lab.studies.cleanroom.partners import (
    ALL,
    BOTH,
    CALIBRATION,
    NONE,
    OWN,
    VALUES,
    BaseTask,
    PartnerArm,
    PartnerTask,
    base_settings,
    partner_log,
    partner_work,
)
from tacit_lab.studies.cleanroom.setting import NO_PRIVACY, OURS
from tacit_lab.studies.cleanroom.sizes import C1, C2, C6, C8
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import ONE_SEED, Axes, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import LabelledTask, Runs, mean, run_tasks, words
from tacit_lab.studies.study import Claim, Finding, Study, StudyInputs, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import at_most, below, between, every, no_better, say, signed_gap

NAME = "cleanroom-advertisers"
T71 = Claim(
    "T71",
    "rank 32",
    "tuning embeddings gains more AUC than rank 32 of the layers, through the room at epsilon 3",
)
T72 = Claim("T72", "embeddings alone", "rank 8 of the layers beside embeddings adds nothing to their gain")
T73 = Claim(
    "T73", "a model of the advertiser's own flipped labels",
    "embeddings tuned through the room rank better than a model of the advertiser's own flipped labels",
)  # fmt: skip
T74 = Claim(
    "T74", "bias and scale from the same labels",
    "embeddings tuned through the room have a lower log loss than a calibration for the advertiser",
)  # fmt: skip

WHERE = "advertisers of a search log"
EPSILONS = (1.0, 3.0, 5.0)
RAW, FORWARD = "raw", "forward"
LORA, ONE = "32", "1"
TRUE = PartnerArm(LORA)
LOST = {RAW: (8.3, 2.1), FORWARD: (0.5, 0.2)}  # published, percent of AUC, at epsilon 3 / 5
RATIOS = {RAW: (4.0, 1.4), FORWARD: (1.0, 1.0)}
CODEC_LOSS = {"qsgd-8": 0.61, "bf16": 0.67}
ABOUT_95, MOST, FACTOR, DRIFT, CALIBRATED = 0.90, 0.5, 2.0, 0.15, 0.05
OVER = "whole interval over advertisers"


def private(tuned: str, epsilon: float, **given: Any) -> PartnerArm:
    """Through the room, by default with a loss that knows the flips and int8 derivatives."""
    return PartnerArm(tuned, epsilon, **{"loss": FORWARD, "codec": "int8", **given})


LINES: dict[str, tuple[PartnerArm, Mechanism]] = {
    "embeddings": (private(VALUES, 3.0), Mechanism.OURS),
    "rank 32": (private(LORA, 3.0), Mechanism.RR),
    "own labels alone": (private(OWN, 3.0), Mechanism.NON_PRIVATE),
    "one statistic, rank 8": (private("8", 3.0, mode="statistic", loss=RAW), Mechanism.HYBRID),
    "one statistic, embeddings": (private(VALUES, 3.0, mode="statistic", loss=RAW), Mechanism.DP_SGD),
}


def _epsilons(name: str) -> Sequence[float]:
    return EPSILONS if name in ("embeddings", "rank 32") else EPSILONS[:2]


def _arms() -> list[PartnerArm]:
    """All that is measured of each partner."""
    exact = [PartnerArm(each) for each in (NONE, ALL, LORA, "8", ONE, VALUES, BOTH)]
    codecs = [PartnerArm("8", codec=codec) for codec in ("int8", *CODEC_LOSS)]
    codecs += [PartnerArm(VALUES, codec=codec) for codec in ("int8", "bf16")]
    lines = [replace(arm, epsilon=epsilon) for name, (arm, _) in LINES.items() for epsilon in _epsilons(name)]
    flipped = [PartnerArm(LORA, epsilon, loss) for loss in (RAW, FORWARD) for epsilon in (3.0, 5.0)]
    noised = [private(each, 3.0, mode="noised", loss=RAW) for each in (ONE, VALUES)]
    others = [private(BOTH, 3.0), private("8", 3.0), private(CALIBRATION, 3.0), private(CALIBRATION, 1.0)]
    return list(dict.fromkeys([*exact, *codecs, *lines, *flipped, *noised, *others]))


class PartnerMeasurements:
    """Figures by arm, one for each partner, smallest first."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def figures(self, arm: PartnerArm, figure: str) -> Floats:
        return self._runs.figures(figure, **asdict(arm))

    def gain(self, arm: PartnerArm) -> Floats:
        """Percent of AUC over the base."""
        return 100 * (self.figures(arm, "auc") / self.figures(PartnerArm(NONE), "auc") - 1)

    def lost(self, arm: PartnerArm, than: PartnerArm) -> Floats:
        """Percent of AUC below another arm."""
        return 100 * (1 - self.figures(arm, "auc") / self.figures(than, "auc"))

    def ratio(self, arm: PartnerArm) -> Floats:
        """Predicted over observed against rank 32 of true labels: that later clicks convert otherwise than
        earlier ones is the same for both."""
        return self.figures(arm, "calibration_ratio") / self.figures(TRUE, "calibration_ratio")


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    log, work = partner_log(asked), partner_work(asked)
    (base,) = run_tasks([BaseTask(log, work)], asked.cache, processes=1, progress=asked.progress, label="base")
    arms = _arms()
    tasks = [
        LabelledTask({"seed": number + 1, **asdict(arm)}, PartnerTask(log, work, arm, number))
        for number in range(int(base["partners"]))
        for arm in arms
    ]
    runs = Runs.of(tasks, asked, "tuning for advertisers")
    measured = PartnerMeasurements(runs)
    lines = [
        mean_line(
            name,
            _epsilons(name),
            [measured.gain(replace(arm, epsilon=each)) for each in _epsilons(name)],
            mechanism,
        )
        for name, (arm, mechanism) in LINES.items()
    ]
    sales = measured.figures(PartnerArm(NONE), "sales").tolist()
    sizes = [
        Series(name, sales, measured.gain(arm).tolist(), mechanism=LINES[name][1])
        for name, arm in (("embeddings", private(VALUES, 3.0)), ("rank 32", private(LORA, 3.0)))
    ]
    partners, clicks = int(base["partners"]), int(base["clicks"])
    what = "made-up search log" if asked.data is None else "Criteo Sponsored Search, 219 partners"
    return report.write_outcome(
        NAME,
        asked,
        unit="click",
        relation="replace label",
        began=began,
        data=f"{what}: {partners} advertisers that do not share, by size; base of {clicks:,} clicks of others",
        parameters={
            "partners": partners,
            "base": repr(base_settings()),
            "interval": "over advertisers: the column seed counts them by their sales, smallest first",
            "work": repr(work),
        },
        table=runs.rows,
        columns=("tuned", "epsilon", "loss", "mode", "codec", "AUC gain, %", "predicted / observed", "log loss",
                 "bytes an example", "processor seconds"),
        rows=[_row(measured, arm) for arm in arms],
        panels=[
            Panel("AUC gain over the base, by epsilon, %", lines),
            Panel("by the advertiser's sales, epsilon 3, %", sizes),
        ],
        axes=Axes("epsilon, or sales", "AUC gain, %"),
        used=runs.files,
        seeds=ONE_SEED,
    )  # fmt: skip


def _row(measured: PartnerMeasurements, arm: PartnerArm) -> tuple[str, ...]:
    """For people: an arm, with intervals over advertisers."""

    def average(figure: str) -> float:
        return float(measured.figures(arm, figure).mean())

    return (
        arm.tuned,
        "none" if arm.epsilon == NO_PRIVACY else f"{arm.epsilon:g}",
        arm.loss,
        arm.mode,
        arm.codec,
        words(mean(measured.gain(arm))),
        words(mean(measured.ratio(arm))),
        f"{average('log_loss'):.4f}",
        f"{average('bytes_an_example'):,.0f}",
        f"{average('seconds'):.1f}",
    )


def judge(kept: ResultFiles) -> Sequence[Finding]:
    """Every rule looks at the table alone, partner by partner."""
    names = list(kept.table)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*kept.table.values(), strict=True)]
    for row in rows:
        row["tuned"] = str(row["tuned"])  # a rank is a word here
    measured = PartnerMeasurements(Runs(rows))
    embeddings, layers = private(VALUES, 3.0), private(LORA, 3.0)
    own, calibration = private(OWN, 3.0), private(CALIBRATION, 3.0)
    log_losses = [measured.figures(arm, "log_loss") for arm in (embeddings, calibration)]
    return [
        _kept(C1, measured, LORA, ABOUT_95),
        _kept(C2, measured, ONE, MOST),
        _raw_loss(measured),
        _raw_ratio(measured),
        _debiased(measured),
        _codecs(measured),
        _untouched(rows),
        Finding(
            T71, f"its gain in AUC is above that of rank 32 through the room, both at epsilon 3, {OVER}",
            signed_gap(measured.gain(embeddings), measured.gain(layers)) + "% at epsilon 3",
            below(measured.gain(layers), measured.gain(embeddings)), where=WHERE,
        ),
        Finding(
            T72, f"the gain of both is not above that of embeddings alone at epsilon 3, {OVER}",
            signed_gap(measured.gain(private(BOTH, 3.0)), measured.gain(embeddings)) + "%",
            no_better(-measured.gain(private(BOTH, 3.0)), -measured.gain(embeddings)), where=WHERE,
        ),
        Finding(
            T73, f"its AUC is above that of a logistic regression over all fields at epsilon 3, {OVER}",
            signed_gap(measured.gain(embeddings), measured.gain(own)) + "%",
            below(measured.gain(own), measured.gain(embeddings)), where=WHERE,
        ),
        Finding(
            T74, f"its log loss is below that of bias and scale at epsilon 3, {OVER}",
            signed_gap(log_losses[0], log_losses[1], 4),
            below(log_losses[0], log_losses[1]), where=WHERE,
        ),
    ]  # fmt: skip


def _kept(claim: Claim, measured: PartnerMeasurements, rank: str, bar: float) -> Finding:
    """Of a sum over partners: a share of one partner's gain has no bound where that gain is near nothing."""
    whole, part = measured.gain(PartnerArm(ALL)), measured.gain(PartnerArm(rank))
    return Finding(
        claim,
        f"its mean gain is above {bar:.0%} of that of tuning everything, {OVER}; fails where none of it is",
        f"{say('gain', part)} of {words(mean(whole))}%, {part.mean() / whole.mean():.0%}",
        below(bar * whole, part),
        where=WHERE,
    )


def _losses(measured: PartnerMeasurements, loss: str) -> list[Floats]:
    return [measured.lost(PartnerArm(LORA, epsilon, loss), TRUE) for epsilon in (3.0, 5.0)]


def _ratios(measured: PartnerMeasurements, loss: str) -> list[Floats]:
    return [measured.ratio(PartnerArm(LORA, epsilon, loss)) for epsilon in (3.0, 5.0)]


def _listed(figures: Sequence[Floats]) -> str:
    return " / ".join(words(mean(each)) for each in figures)


def _raw_loss(measured: PartnerMeasurements) -> Finding:
    found = _losses(measured, RAW)
    return Finding(
        C3,
        f"what rank 32 loses is within a factor of {FACTOR:g} of both, {OVER}; fails where none of it is",
        f"AUC lost {_listed(found)}% at epsilon 3 / 5",
        every(between(each, bar / FACTOR, bar * FACTOR) for each, bar in zip(found, LOST[RAW], strict=True)),
        where=WHERE,
    )


def _raw_ratio(measured: PartnerMeasurements) -> Finding:
    found = _ratios(measured, RAW)
    return Finding(
        C4,
        f"against rank 32 of true labels it is within {DRIFT:.0%} of both, {OVER}; fails where none of it is",
        f"predicted / observed {_listed(found)} at epsilon 3 / 5",
        every(between(each / bar - 1, -DRIFT, DRIFT) for each, bar in zip(found, RATIOS[RAW], strict=True)),
        where=WHERE,
    )


def _debiased(measured: PartnerMeasurements) -> Finding:
    ratios, lost = _ratios(measured, FORWARD), _losses(measured, FORWARD)
    verdicts = [between(each - 1, -CALIBRATED, CALIBRATED) for each in ratios]
    verdicts += [at_most(each, bar * FACTOR) for each, bar in zip(lost, LOST[FORWARD], strict=True)]
    return Finding(
        C5,
        f"against rank 32 of true labels it is within {CALIBRATED:.0%} of 1, and at most {FACTOR:g} times that "
        f"is lost, {OVER}; fails where none of it is",
        f"predicted / observed {_listed(ratios)}; AUC lost {_listed(lost)}% at epsilon 3 / 5",
        every(verdicts),
        where=WHERE,
    )


def _codecs(measured: PartnerMeasurements) -> Finding:
    lost = {codec: measured.lost(PartnerArm("8", codec=codec), PartnerArm("8")) for codec in CODEC_LOSS}
    return Finding(
        C6,
        f"what rank 8 loses is within a factor of {FACTOR:g} of .61% (QSGD) and .67% (BF16), {OVER}; fails "
        "where none of it is",
        ", ".join(f"{codec} {words(mean(-each), 3)}%" for codec, each in lost.items()),
        every(between(lost[codec], bar / FACTOR, bar * FACTOR) for codec, bar in CODEC_LOSS.items()),
        where=WHERE,
    )


def _untouched(rows: Sequence[dict[str, Any]]) -> Finding:
    """As they are written: no adapter may have changed one, whatever it tuned."""
    changed = sum(int(row["others_changed"]) for row in rows)
    return Finding(
        C8,
        "in every run, every bit of every prediction for 2,000 clicks of other advertisers is the same with "
        "the adapter as without",
        f"{changed} predictions changed, {len(rows)} runs",
        changed == 0,
        where=WHERE,
        why="by construction: only a bug could fail it" if changed == 0 else "",
    )


STUDY = Study(
    NAME, "Adapters for advertisers that do not share", OURS, "beside tables 1, 2 and A1",
    (C1, C2, C3, C4, C5, C6, C8, T71, T72, T73, T74),
    {StudyScale.TOY: 0.5, StudyScale.SMALL: 32, StudyScale.FULL: 60},
    {StudyScale.TOY: 1, StudyScale.SMALL: 1, StudyScale.FULL: 1}, run, judge,
    StudyInputs(
        ("criteo-search",), minutes={StudyScale.SMALL: 32, StudyScale.FULL: 60}, least=50_000_000, alone=True
    ),
)  # fmt: skip
