"""Tables 1 and 2: how small an adapter and its derivatives may be, by what they keep of the gain in AUC.

Two studies: adapters of several ranks beside tuning all parameters (C1, C2, C8, T19), and what fewer bytes per
derivative cost, the paper's codecs beside ours (C6, T21, T26). Codecs are trained with at rank 8: written out,
the derivatives of one run at rank 32 would be some 70 GB. How many bytes they would be is known without writing
them, so at rank 32 our codec is trained with and the paper's is counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tacit.arrays import Floats
from tacit_lab.studies.cleanroom.setting import ALL, LOWRANK, NONE, PAPER, SEEDS, VALUE, TuningArm
from tacit_lab.studies.cleanroom.tuning import TuningMeasurements, write_outcome
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import mean, words
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale
from tacit_lab.studies.verdicts import below, between, every, say

RANKS_NAME = "cleanroom-ranks"
C1 = Claim(
    "C1", "table 1", "rank 32, 1% of all parameters, keeps about 95% of the gain of tuning everything",
    "+3.44 of +3.63% of AUC",
)  # fmt: skip
C2 = Claim("C2", "table 1", "rank 1 keeps most of the gain of tuning everything", "+3.02 of +3.63% of AUC")
C8 = Claim("C8", "appendix A.2", "an adapter leaves other advertisers' predictions as they were", "claim")
T19 = Claim(
    "T19", "tuning everything",
    "where advertisers differ by low-rank changes alone, rank 32 keeps about 95% of the gain",
)  # fmt: skip
RANKS = (1, 32, 64)
# No figure was published for these.
LOWRANK_RANKS = {StudyScale.TOY: (1, 32), StudyScale.SMALL: (1, 32), StudyScale.FULL: RANKS}
PUBLISHED_GAIN = {1: 3.02, 32: 3.44, 64: 3.48}
PUBLISHED_GAIN_OF_ALL = 3.63
ABOUT_95, MOST = 0.90, 0.5
TITLES = {VALUE: "Own effects of single values", LOWRANK: "Differences of low rank"}


def run_ranks(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    ranks = {VALUE: RANKS, LOWRANK: LOWRANK_RANKS[asked.scale]}
    adapters = [TuningArm(rank, world=world) for world, each in ranks.items() for rank in each]
    measured = TuningMeasurements.of(asked, [*adapters, *(TuningArm(ALL, world=world) for world in ranks)])
    at = [float(rank) for rank in RANKS]
    published = [PUBLISHED_GAIN[rank] / PUBLISHED_GAIN_OF_ALL for rank in RANKS]
    panels = [
        Panel(
            TITLES[world],
            [
                mean_line("adapters", each, [gain_share(measured, world, rank) for rank in each]),
                Series("all parameters", at, [1.0] * len(at), mechanism=Mechanism.NON_PRIVATE),
                Series("published", at, published, published=True),
            ],
        )
        for world, each in ranks.items()
    ]
    return write_outcome(
        RANKS_NAME,
        asked,
        began=began,
        measured=measured,
        panels=panels,
        axes=Axes("rank", "share of the gain that tuning everything brings", ticks=at, share_y=True),
    )


def judge_ranks(kept: ResultFiles) -> Sequence[Finding]:
    measured = TuningMeasurements.of_table(kept)
    return [
        _share(C1, measured, VALUE, 32, ABOUT_95),
        _share(T19, measured, LOWRANK, 32, ABOUT_95),
        _share(C2, measured, VALUE, 1, MOST),
        _judge_untouched(measured),
    ]


def gain_share(measured: TuningMeasurements, world: str, rank: int) -> Floats:
    """Of the gain that tuning everything brings, what an adapter of this rank keeps, seed by seed."""
    return measured.gain(TuningArm(rank, world=world)) / measured.gain(TuningArm(ALL, world=world))


def _share(claim: Claim, measured: TuningMeasurements, world: str, rank: int, bar: float) -> Finding:
    kept, gain = gain_share(measured, world, rank), measured.gain(TuningArm(ALL, world=world))
    adapter = TuningArm(rank, world=world)
    of_all = measured.figures(adapter, "trained_parameters") / measured.figures(adapter, "parameters")
    return Finding(
        claim,
        f"the share kept is above {bar:.0%}, whole interval over seeds; fails where none of it is",
        f"{say('share', kept)} {say('of a gain of', gain)}%, by {of_all.mean():.1%} of the parameters",
        below(0 * kept + bar, kept),
        where=TITLES[world].lower(),
    )


def _judge_untouched(measured: TuningMeasurements) -> Finding:
    changed = [
        float(measured.figures(arm, "others_changed").sum())
        for arm in measured.arms
        if arm.tuned not in (ALL, NONE)
    ]
    return Finding(
        C8,
        "in every run, every bit of every prediction for every test click of another advertiser is the same "
        "with the adapter as without",
        f"{sum(changed):.0f} predictions changed, {len(changed)} adapters",
        every(each == 0 for each in changed),
        why="by construction: only a bug could fail it",
    )


RANKS_STUDY = Study(
    RANKS_NAME, "Adapters of several ranks beside tuning everything", PAPER, "table 1", (C1, C2, C8, T19),
    {StudyScale.TOY: 0.5, StudyScale.SMALL: 2.3, StudyScale.FULL: 80}, SEEDS, run_ranks, judge_ranks,
)  # fmt: skip


CODECS_NAME = "cleanroom-codecs"
C6 = Claim("C6", "table 2", "8-bit QSGD and BF16 derivatives cost about .6% of AUC", "-.61, -.67%")
T21 = Claim("T21", "factored fp32", "int8 factors cost hardly any AUC")
T26 = Claim(
    "T26", "table 2, 8-bit QSGD of dense derivatives",
    "derivatives as two int8 factors take a tenth of the bytes of dense 8-bit ones, at hardly any AUC",
)  # fmt: skip
DENSE = ("fp32-dense", "bf16-dense", "qsgd-8")
BESIDE = {StudyScale.FULL: ("top-10",)}  # named by the paper, without a figure
FACTORED = ("fp32", "int8")
PUBLISHED_LOSS = {"qsgd-8": 0.61, "bf16-dense": 0.67}  # published, percent of AUC
FACTOR, HARDLY, TENTH = 2.0, 0.1, 10.0
CODEC_RANK, PAPERS_RANK = 8, 32


def codec_arm(codec: str, rank: int = CODEC_RANK) -> TuningArm:
    return TuningArm(rank, codec=codec)


def run_codecs(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    dense = (*DENSE, *BESIDE.get(asked.scale, ()))
    larger = [codec_arm(codec, PAPERS_RANK) for codec in FACTORED]
    measured = TuningMeasurements.of(asked, [*map(codec_arm, (*dense, *FACTORED)), *larger])
    series = [
        _points("written out", Mechanism.RR, measured, dense),
        _points("factored", Mechanism.OURS, measured, FACTORED),
        Series(
            "published",
            [_bytes(measured, codec_arm(codec)) for codec in PUBLISHED_LOSS],
            list(PUBLISHED_LOSS.values()),
            mechanism=Mechanism.RR,
            published=True,
        ),
    ]
    return write_outcome(
        CODECS_NAME,
        asked,
        began=began,
        measured=measured,
        panels=[Panel(f"AUC lost against fp32 at rank {CODEC_RANK}, %", series)],
        axes=Axes("bytes an example", "", ticks=[3e3, 1e4, 3e4, 1e5]),
    )


def _points(name: str, mechanism: Mechanism, measured: TuningMeasurements, codecs: Sequence[str]) -> Series:
    lost = [mean(-measured.change(codec_arm(codec), codec_arm("fp32"))) for codec in codecs]
    size = [_bytes(measured, codec_arm(codec)) for codec in codecs]
    return Series(
        name,
        size,
        [each.value for each in lost],
        [each.low for each in lost],
        [each.high for each in lost],
        mechanism,
    )


def _bytes(measured: TuningMeasurements, arm: TuningArm, figure: str = "bytes_an_example") -> float:
    return float(measured.figures(arm, figure).mean())


def judge_codecs(kept: ResultFiles) -> Sequence[Finding]:
    measured = TuningMeasurements.of_table(kept)
    factored = [_judge_factored(measured, rank) for rank in (PAPERS_RANK, CODEC_RANK)]
    return [_codec_costs(measured), _hardly(measured), *factored]


def _codec_costs(measured: TuningMeasurements) -> Finding:
    found = {codec: measured.change(codec_arm(codec), codec_arm("fp32-dense")) for codec in PUBLISHED_LOSS}
    return Finding(
        C6,
        f"the mean over seeds is within a factor of {FACTOR:g} of .61% (QSGD) and .67% (BF16), by the whole "
        "interval; fails where none of it is",
        ", ".join(f"{codec} {words(mean(change), 3)}%" for codec, change in found.items()),
        every(between(-found[codec], bar / FACTOR, bar * FACTOR) for codec, bar in PUBLISHED_LOSS.items()),
        where=f"rank {CODEC_RANK}",
    )


def _hardly(measured: TuningMeasurements) -> Finding:
    lost = -measured.change(codec_arm("int8"), codec_arm("fp32"))
    fewer = _bytes(measured, codec_arm("fp32-dense")) / _bytes(measured, codec_arm("int8"))
    return Finding(
        T21,
        f"less than {HARDLY}% of AUC is lost against fp32, whole interval over seeds",
        f"{words(mean(lost), 3)}% lost, {fewer:.0f} times fewer bytes than dense fp32",
        below(lost, 0 * lost + HARDLY),
        where=f"rank {CODEC_RANK}",
    )


def _judge_factored(measured: TuningMeasurements, rank: int) -> Finding:
    ours = codec_arm("int8", rank)
    lost = -measured.change(ours, codec_arm("fp32", rank))
    dense, factored = _bytes(measured, ours, "dense_qsgd_8_bytes"), _bytes(measured, ours)
    return Finding(
        T26,
        f"at least {TENTH:g} times fewer bytes an example than dense 8-bit QSGD, and less than {HARDLY}% of "
        "AUC lost against fp32, whole interval over seeds",
        f"{dense / factored:.1f} times fewer ({dense:,.0f} to {factored:,.0f}), {words(mean(lost), 3)}% lost",
        every([dense / factored >= TENTH, below(lost, 0 * lost + HARDLY)]),
        where=f"rank {rank}",
    )


CODECS_STUDY = Study(
    CODECS_NAME, "What compressing derivatives costs", PAPER, "table 2", (C6, T21, T26),
    {StudyScale.TOY: 0.5, StudyScale.SMALL: 2.3, StudyScale.FULL: 80}, SEEDS, run_codecs, judge_codecs,
)  # fmt: skip
