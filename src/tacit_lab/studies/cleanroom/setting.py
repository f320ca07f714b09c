"""What the clean-room studies share: the log, how the model learns, what an arm is, and the pre-trained
model.

The log has eight advertisers who share their conversions and one who does not, a quarter of all clicks.
World "value" gives that one effects of its own for single values, which only new embeddings can follow; in
world "lowrank" a few directions tell it apart. Learning rates and the batches of small scale are those of
trials on seeds 901 and 902, which no study reports. The model that was pre-trained on the advertisers who
share is made once for each log and kept beside it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit_lab.studies.digests import TRAINING, digest
from tacit_lab.studies.logs import ReadyLog, StudyLog
from tacit_lab.studies.runs import Record
from tacit_lab.studies.study import StudyRequest, StudyScale

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.cleanroom.model.examples import ConversionExamples
    from tacit.cleanroom.model.learning import LearnSettings
    from tacit.cleanroom.model.network import ConversionModel
    from tacit.cleanroom.platform.steps import AdapterPlan
    from tacit.privacy.calibration import CalibrationMemory

PAPER = "Li et al., Privacy Preserving Conversion Modeling in Data Clean Room (RecSys 2024)"
OURS = "beside Li et al."
VALUE, LOWRANK = "conversions-value", "conversions-lowrank"
SENSITIVE = 8  # the advertiser that does not share
TASK = "conversion"
SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 3, StudyScale.FULL: 5}
NO_PRIVACY = 40.0  # an epsilon at which one label in 10^17 is flipped: the same path, and none of the noise

DELTA = "1e-6"
EPOCHS = 2
RATE, RATES = 1e-3, {1: 5e-3}  # by rank
NOISED_RATE, NOISED_BATCH = 1.0, 1024

ALL, NONE = "everything", "nothing"  # in place of a rank


@dataclass(frozen=True)
class ScaleWork:
    """How much a scale is. Fewer rows learn in smaller batches, or there would be too few steps."""

    rows: int  # a quarter is the sensitive advertiser's
    pretraining_batch: int = 2048
    batch: int = 1024


WORK = {
    StudyScale.TOY: ScaleWork(9_000),
    StudyScale.SMALL: ScaleWork(140_000, 512, 288),
    StudyScale.FULL: ScaleWork(2_400_000),
}


def study_log(asked: StudyRequest, seed: int, world: str = VALUE) -> StudyLog:
    asked.refuse_data("no published log has this form")
    return StudyLog(world, WORK[asked.scale].rows, seed)


def data_words(asked: StudyRequest, world: str = VALUE) -> str:
    sensitive = WORK[asked.scale].rows // 4 // 1000
    kind = {VALUE: "own effects of values", LOWRANK: "low-rank differences"}[world]
    return f"conversions log with {kind}, {sensitive}k clicks of the sensitive advertiser"


def pretraining(work: ScaleWork, seed: int) -> LearnSettings:
    from tacit.cleanroom.model.learning import LearnSettings

    return LearnSettings(epochs=2, batch=work.pretraining_batch, learning_rate=2e-3, one_cycle=True, seed=seed)


def tuning_all(work: ScaleWork, seed: int) -> LearnSettings:
    from tacit.cleanroom.model.learning import FULL_TUNING

    return replace(FULL_TUNING, batch=work.batch, seed=seed)


@dataclass(frozen=True)
class TuningArm:
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
    def read(cls, row: Mapping[str, Any]) -> TuningArm:
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


def room_terms(arm: TuningArm) -> dict[str, Any]:
    """What the room agreed to, as far as it is not by default."""
    told: dict[str, Any] = {"mode": arm.mode, "epsilon": arm.epsilon, "codecs": (arm.codec,)}
    if arm.mode in ("noised", "statistic"):
        told["delta"] = DELTA
    if arm.mode == "noised":
        told["releases_per_record"] = arm.releases
    return told


def adapter_plan(arm: TuningArm, work: ScaleWork, seed: int) -> AdapterPlan:
    from tacit.cleanroom.platform.steps import AdapterPlan, Optimizer
    from tacit.cleanroom.protocol.losses import Loss

    if arm.mode == "noised":  # plain descent: Adam would turn noise into steps of full length
        return AdapterPlan(
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
    return AdapterPlan(TASK, Loss(arm.loss), arm.codec, work.batch, EPOCHS, rate, seed=seed)


LEARNING = ("cleanroom/model", "cleanroom/protocol", "tacit_lab/studies/cleanroom/setting")


@dataclass(frozen=True)
class Pretraining:
    """Simulated, from a seed, as all of a study is."""

    log: StudyLog
    work: ScaleWork
    seed: int
    packages = LEARNING

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        del memory  # nothing is calibrated here
        began = time.perf_counter()
        pretrained_model(ready, self.work, self.seed)
        return {"seconds": round(time.perf_counter() - began, 1)}


def pretrained_model(ready: ReadyLog, work: ScaleWork, seed: int) -> ConversionModel:
    """The pre-trained model, made if it is not there yet."""
    from tacit.cleanroom.model.learning import pretrain
    from tacit.cleanroom.model.network import ConversionModel

    path = _path(ready, work, seed)
    if not path.exists():
        sharing = AdvertiserSplit.of(ready).sharing
        model = ConversionModel(sharing.settings(), seed=seed)
        pretrain(model, sharing, settings=pretraining(work, seed))
        model.save(path)
    return ConversionModel.load(path)


def _path(ready: ReadyLog, work: ScaleWork, seed: int) -> Path:
    folder = ready.columns.folder
    named = digest(f"{work.pretraining_batch} {seed}", packages=(*TRAINING, *LEARNING))
    return folder.with_name(f"{folder.name}.base-{named}.safetensors")


@dataclass(frozen=True, eq=False)
class AdvertiserSplit:
    """The log's rows by what they are for."""

    sharing: ConversionExamples  # of the training rows, those whose labels the platform has
    tuned: ConversionExamples  # of the training rows, the sensitive advertiser's
    test: ConversionExamples  # of the test rows, the sensitive advertiser's
    others: ConversionExamples  # of the test rows, all others
    truth: NDArray[np.float64]  # the probability of a conversion, for `test`

    @classmethod
    def of(cls, ready: ReadyLog) -> AdvertiserSplit:
        from tacit.cleanroom.model.examples import advertiser_key, examples_from_log

        assert ready.truth is not None, "the log is always made up"
        every = ready.columns.parts()
        train, test = (
            examples_from_log(ready.columns, every["train"]),
            examples_from_log(ready.columns, every["test"]),
        )
        sensitive = advertiser_key(SENSITIVE)
        own, others = train.advertiser == sensitive, test.advertiser != sensitive
        truth = every["test"].of(ready.truth)
        return cls(
            train.select(~own),
            train.select(own),
            test.select(~others),
            test.select(others),
            truth[~others],
        )
