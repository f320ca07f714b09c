"""The model that was pre-trained on the advertisers who share: made once for each log, kept beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.studies.cleanroom import setting
from tacit.studies.cleanroom.setting import Work
from tacit.studies.digests import TRAINING, digest
from tacit.studies.logs import Ready, StudyLog
from tacit.studies.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.cleanroom.model.examples import Examples
    from tacit.cleanroom.model.network import ConversionModel
    from tacit.privacy.calibration import Memory

LEARNING = ("cleanroom/model", "cleanroom/wire", "studies/cleanroom/bases", "studies/cleanroom/setting")


@dataclass(frozen=True)
class Pretraining:
    """Simulated, from a seed, as all of a study is."""

    log: StudyLog
    work: Work
    seed: int
    rooms = LEARNING

    def measure(self, ready: Ready, memory: Memory) -> Record:
        del memory  # nothing is calibrated here
        began = time.perf_counter()
        base_of(ready, self.work, self.seed)
        return {"seconds": round(time.perf_counter() - began, 1)}


def base_of(ready: Ready, work: Work, seed: int) -> ConversionModel:
    """The pre-trained model, made if it is not there yet."""
    from tacit.cleanroom.model.learning import pretrain
    from tacit.cleanroom.model.network import ConversionModel

    path = _path(ready, work, seed)
    if not path.exists():
        sharing = Split.of(ready).sharing
        model = ConversionModel(sharing.settings(), seed=seed)
        pretrain(model, sharing, settings=setting.pretraining(work, seed))
        model.save(path)
    return ConversionModel.load(path)


def _path(ready: Ready, work: Work, seed: int) -> Path:
    folder = ready.columns.folder
    named = digest(f"{work.pretraining_batch} {seed}", rooms=(*TRAINING, *LEARNING))
    return folder.with_name(f"{folder.name}.base-{named}.safetensors")


@dataclass(frozen=True, eq=False)
class Split:
    """The log's rows by what they are for."""

    sharing: Examples  # of the training rows, those whose labels the platform has
    tuned: Examples  # of the training rows, the sensitive advertiser's
    test: Examples  # of the test rows, the sensitive advertiser's
    others: Examples  # of the test rows, all others
    truth: NDArray[np.float64]  # the probability of a conversion, for `test`

    @classmethod
    def of(cls, ready: Ready) -> Split:
        from tacit.cleanroom.model.examples import advertiser_key, examples_of

        assert ready.truth is not None, "the log is always made up"
        every = ready.columns.parts()
        train, test = examples_of(ready.columns, every["train"]), examples_of(ready.columns, every["test"])
        sensitive = advertiser_key(setting.SENSITIVE)
        own, others = train.advertiser == sensitive, test.advertiser != sensitive
        truth = every["test"].of(ready.truth)
        return cls(
            train.select(~own),
            train.select(own),
            test.select(~others),
            test.select(others),
            truth[~others],
        )
