"""One way to tune the pre-trained model for the sensitive advertiser, through a room in this process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.studies.cleanroom import setting
from tacit.studies.cleanroom.bases import LEARNING, Split, base_of
from tacit.studies.cleanroom.setting import ALL, NONE, SENSITIVE, TASK, Arm, Work
from tacit.studies.logs import Ready, StudyLog
from tacit.studies.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.cleanroom.in_process import HeldRoom
    from tacit.cleanroom.model.network import ConversionModel
    from tacit.cleanroom.wire.blocks import Layout
    from tacit.privacy.calibration import Memory

NAME = "tuned"


@dataclass(frozen=True)
class Tuning:
    """Simulated, from a seed: nothing of it is ever released. Measured on test clicks of that advertiser."""

    log: StudyLog
    arm: Arm
    work: Work
    seed: int
    rooms = (*LEARNING, "cleanroom/platform", "cleanroom/room", "cleanroom/in_process")

    def measure(self, ready: Ready, memory: Memory) -> Record:
        del memory  # the room's own noise is calibrated in milliseconds
        split, model = Split.of(ready), base_of(ready, self.work, self.seed)
        whole = sum(each.numel() for each in model.parameters())
        began = time.perf_counter()
        logits, told = self._tuned(model, split)
        return {
            **_quality(split, logits),
            "parameters": whole + (told["trained_parameters"] if isinstance(self.arm.tuned, int) else 0),
            "seconds": round(time.perf_counter() - began, 1),
            **told,
        }

    def _tuned(self, model: ConversionModel, split: Split) -> tuple[NDArray[np.floating], Record]:
        """Logits for the test clicks, and what it took."""
        from tacit.cleanroom.model.examples import advertiser_key
        from tacit.cleanroom.model.learning import predict, tune_all
        from tacit.cleanroom.platform.statistic import fit_statistic
        from tacit.cleanroom.platform.training import train_adapter

        arm, tuned = self.arm, split.tuned
        if arm.tuned == NONE:
            return predict(model, split.test, TASK), _told()
        if arm.tuned == ALL:
            tune_all(model, tuned, TASK, tuned.labels(TASK), setting.tuning_all(self.work, self.seed))
            return predict(model, split.test, TASK), _told(sum(each.numel() for each in model.parameters()))
        before = predict(model, split.others, TASK)
        adapter = model.add_adapter(NAME, advertiser_key(SENSITIVE), int(arm.tuned), seed=self.seed)
        tokens, link = self._room(split)
        if arm.mode == "statistic":
            fitted = fit_statistic(model, NAME, tuned, tokens, link, task=TASK, run=NAME)
            model.remove_adapter(NAME)
            sent = (fitted.bytes_sent + fitted.bytes_received) / len(tuned)
            return fitted.head.logits(model, split.test), _told(len(fitted.sums), sent)
        plan = setting.plan(arm, self.work, self.seed)
        trained = train_adapter(model, NAME, tuned, tokens, link, plan, run=NAME)
        changed = int((predict(model, split.others, TASK) != before).sum())
        sent = trained.bytes_sent / trained.examples
        dense = _qsgd_bytes(adapter.layout, tokens.shape[1])
        return predict(model, split.test, TASK), _told(adapter.layout.parameters, sent, changed, dense)

    def _room(self, split: Split) -> tuple[NDArray[np.uint8], HeldRoom]:
        from tacit.cleanroom.in_process import room_in_process
        from tacit.cleanroom.wire.tokens import token_key, tokens
        from tacit.entropy import Simulation

        source = Simulation(f"room {self.seed}")
        named = tokens(split.tuned.records, token_key(source.bytes(32), NAME))
        labels = split.tuned.labels(TASK)[:, None]
        link = room_in_process(named, labels, source=source, **setting.terms(self.arm))
        return named, link


def _told(
    parameters: int = 0, bytes_an_example: float = 0.0, changed: int = 0, qsgd_bytes: float = 0.0
) -> dict[str, Any]:
    return {
        "trained_parameters": parameters,
        "bytes_an_example": bytes_an_example,
        "dense_qsgd_8_bytes": qsgd_bytes,
        "others_changed": changed,
    }


def _qsgd_bytes(layout: Layout, token_bytes: int) -> float:
    """What an example would be with its derivatives written out, 8 bits a number; headers not counted."""
    from tacit.cleanroom.wire.codec import codec_named
    from tacit.cleanroom.wire.slabs import LOGIT_BYTES

    codec = codec_named("qsgd-8")
    return token_bytes + LOGIT_BYTES + sum(codec.size(block, block.positions) for block in layout.blocks)


def _quality(split: Split, logits: NDArray[np.floating]) -> dict[str, float]:
    """Expected figures under the true probabilities, free of the labels' noise."""
    import numpy as np
    from scipy.special import expit

    from tacit.train.evaluation import auc, measures
    from tacit.train.evaluation.outcomes import Outcomes

    outcomes, predicted = Outcomes.of_probabilities(split.truth), expit(logits.astype(np.float64))
    return {
        "auc": auc.value(outcomes, predicted),
        "log_loss": measures.log_loss(outcomes, predicted).value,
        "calibration_ratio": measures.calibration_ratio(outcomes, predicted).value,
    }
