"""Table 2, compression: what fewer bytes a derivative cost in AUC, the paper's codecs beside ours; C6.

At rank 8: written out, the derivatives of one run at rank 32 would be some 70 GB.
"""

from __future__ import annotations

import time

from tacit.studies.cleanroom.arms import Measurements
from tacit.studies.cleanroom.report import outcome
from tacit.studies.cleanroom.setting import PAPER, SEEDS, Arm
from tacit.studies.plotting import Mechanism, Panel, Series
from tacit.studies.report import Axes
from tacit.studies.runs import mean, words
from tacit.studies.study import Asked, Finding, Outcome, Scale, Study
from tacit.studies.verdicts import FEWEST_SEEDS, below

NAME = "cleanroom-codecs"
DENSE = ("fp32-dense", "bf16-dense", "qsgd-8", "top-10")
FACTORED = ("fp32", "int8")
LOST = {"qsgd-8": 0.61, "bf16-dense": 0.67}  # published, percent of AUC
FACTOR, HARDLY = 2.0, 0.1
RANK = 8


def through(codec: str) -> Arm:
    return Arm(RANK, codec=codec)


def run(asked: Asked) -> Outcome:
    began = time.monotonic()
    arms = {codec: through(codec) for codec in (*DENSE, *FACTORED)}
    measured = Measurements.of(asked, arms.values())
    series = [_points(kind, measured, arms, codecs) for kind, codecs in (("dense", DENSE), ("ours", FACTORED))]
    return outcome(
        NAME,
        asked,
        began=began,
        measured=measured,
        findings=[_costs(measured), _hardly(measured)],
        panels=[Panel("AUC lost against fp32, %", series)],
        axes=Axes("bytes an example", "", ticks=[3e3, 1e4, 3e4, 1e5]),
    )


def _points(kind: str, measured: Measurements, arms: dict[str, Arm], codecs: tuple[str, ...]) -> Series:
    lost = [mean(-measured.change(arms[codec], through("fp32"))) for codec in codecs]
    size = [float(measured.figures(arms[codec], "bytes_an_example").mean()) for codec in codecs]
    order = sorted(range(len(codecs)), key=size.__getitem__)
    return Series(
        {"dense": "written out", "ours": "factored"}[kind],
        [size[at] for at in order],
        [lost[at].value for at in order],
        [lost[at].low for at in order],
        [lost[at].high for at in order],
        Mechanism.OURS if kind == "ours" else Mechanism.RR,
    )


def _costs(measured: Measurements) -> Finding:
    found = {codec: measured.change(through(codec), through("fp32-dense")) for codec in LOST}
    near = [bar / FACTOR <= -float(found[codec].mean()) <= bar * FACTOR for codec, bar in LOST.items()]
    enough = len(found["qsgd-8"]) >= FEWEST_SEEDS
    return Finding(
        "C6",
        "8-bit QSGD and BF16 cost about .6% of AUC",
        f"the mean over seeds is within a factor of {FACTOR:g} of .61% (QSGD) and .67% (BF16)",
        ", ".join(f"{codec} {words(mean(change), 3)}%" for codec, change in found.items()),
        all(near) if enough else None,
    )


def _hardly(measured: Measurements) -> Finding:
    lost = -measured.change(through("int8"), through("fp32"))
    dense, ours = (
        float(measured.figures(through(codec), "bytes_an_example").mean()) for codec in ("fp32-dense", "int8")
    )
    return Finding(
        "T21",
        "factored int8 derivatives cost hardly any AUC",
        f"less than {HARDLY}% of AUC is lost against fp32, whole interval over seeds",
        f"{words(mean(lost), 3)}% lost, {dense / ours:.0f} times fewer bytes than dense fp32",
        below(lost, 0 * lost + HARDLY),
    )


STUDY = Study(
    NAME, "What compressing derivatives costs", PAPER, "table 2", ("C6", "T21"),
    {Scale.TOY: 0.5, Scale.SMALL: 8, Scale.FULL: 80}, SEEDS, run,
)  # fmt: skip
