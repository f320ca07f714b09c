"""What the clean-room studies share: the log, the model, how it learns, and how much work a scale is.

The log has eight advertisers who share their conversions and one who does not, a quarter of all clicks. World
"value" gives that one effects of its own for single values, which only new embeddings can follow; in world
"lowrank" a few directions tell it apart. Learning rates and the batches of small scale are those of trials on
seeds 901 and 902, which no study reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tacit.studies.logs import StudyLog
from tacit.studies.study import Asked, Scale

if TYPE_CHECKING:
    from tacit.cleanroom.model.learning import LearnSettings
    from tacit.cleanroom.platform.plans import Plan

PAPER = "Li et al., Privacy Preserving Conversion Modeling in Data Clean Room (RecSys 2024)"
OURS = "beside Li et al."
VALUE, LOWRANK = "conversions-value", "conversions-lowrank"
SENSITIVE = 8  # the advertiser that does not share
TASK = "conversion"
SEEDS = {Scale.TOY: 1, Scale.SMALL: 3, Scale.FULL: 5}
NO_PRIVACY = 40.0  # an epsilon at which one label in 10^17 is flipped: the same path, and none of the noise

DELTA = "1e-6"
EPOCHS = 2
RATE, RATES = 1e-3, {1: 5e-3}  # by rank
NOISED_RATE, NOISED_BATCH = 1.0, 1024

ALL, NONE = "everything", "nothing"  # in place of a rank


@dataclass(frozen=True)
class Work:
    """How much a scale is. Fewer rows learn in smaller batches, or there would be too few steps."""

    rows: int  # a quarter is the sensitive advertiser's
    pretraining_batch: int = 2048
    batch: int = 1024


WORK = {Scale.TOY: Work(9_000), Scale.SMALL: Work(140_000, 512, 288), Scale.FULL: Work(2_400_000)}


def log(asked: Asked, seed: int, world: str = VALUE) -> StudyLog:
    asked.refuse_data("no published log has this form")
    return StudyLog(world, WORK[asked.scale].rows, seed)


def data_words(asked: Asked, world: str = VALUE) -> str:
    sensitive = WORK[asked.scale].rows // 4 // 1000
    kind = {VALUE: "own effects of values", LOWRANK: "low-rank differences"}[world]
    return f"conversions log with {kind}, {sensitive}k clicks of the sensitive advertiser"


def pretraining(work: Work, seed: int) -> LearnSettings:
    from tacit.cleanroom.model.learning import LearnSettings

    return LearnSettings(epochs=2, batch=work.pretraining_batch, learning_rate=2e-3, one_cycle=True, seed=seed)


def tuning_all(work: Work, seed: int) -> LearnSettings:
    from tacit.cleanroom.model.learning import FULL_TUNING

    return replace(FULL_TUNING, batch=work.batch, seed=seed)


@dataclass(frozen=True)
class Arm:
    """One way to tune: what is trained, from which labels, through which codec.

    `tuned` is a rank, ALL or NONE; `mode` one of the room's; `loss` raw, forward or unbiased.
    """

    tuned: int | str = 32
    epsilon: float = NO_PRIVACY
    loss: str = "raw"
    codec: str = "fp32"
    mode: str = "aggregate"
    world: str = VALUE
    releases: int = 1
    project: bool = False

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Arm:
        """From a row of a table, where a column that has a word in it is all words."""
        tuned = str(row["tuned"])
        return cls(
            int(tuned) if tuned.isdecimal() else tuned,
            float(row["epsilon"]),
            row["loss"],
            row["codec"],
            row["mode"],
            row["world"],
            int(row["releases"]),
            str(row["project"]) == "True",
        )


def terms(arm: Arm) -> dict[str, Any]:
    """What the room agreed to, as far as it is not by default."""
    told: dict[str, Any] = {"mode": arm.mode, "epsilon": arm.epsilon, "codecs": (arm.codec,)}
    if arm.mode in ("noised", "statistic"):
        told["delta"] = DELTA
    if arm.mode == "noised":
        told["releases_per_record"] = arm.releases
    return told


def plan(arm: Arm, work: Work, seed: int) -> Plan:
    from tacit.cleanroom.platform.descending import Optimizer
    from tacit.cleanroom.platform.plans import Plan
    from tacit.cleanroom.wire.losses import Loss

    if arm.mode == "noised":  # plain descent: Adam would turn noise into steps of full length
        return Plan(
            task=TASK,
            loss=Loss.RAW,
            codec=arm.codec,
            batch=NOISED_BATCH,
            epochs=arm.releases,
            learning_rate=NOISED_RATE,
            one_cycle=False,
            optimizer=Optimizer.SGD,
            seed=seed,
            project=arm.project,
        )
    rate = RATES.get(arm.tuned, RATE) if isinstance(arm.tuned, int) else RATE
    return Plan(TASK, Loss(arm.loss), arm.codec, work.batch, EPOCHS, rate, seed=seed)
