"""Tuning of the pre-trained model for the sensitive advertiser in many ways, over all seeds; its table.

One way goes through a room in this process. What each arm gains over the model as it was pre-trained, by
the same seeds, is measured once, and read again from the table that was left: verdicts come from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tacit.arrays import Floats
from tacit_lab.studies import report
from tacit_lab.studies.cleanroom import setting
from tacit_lab.studies.cleanroom.setting import (
    ALL,
    LEARNING,
    NO_PRIVACY,
    NONE,
    SENSITIVE,
    TASK,
    AdvertiserSplit,
    Pretraining,
    ScaleWork,
    TuningArm,
    pretrained_model,
)
from tacit_lab.studies.logs import ReadyLog, StudyLog
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.report import Axes, mean_line
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import LabelledTask, Record, Runs, mean, run_tasks, words
from tacit_lab.studies.study import StudyOutcome, StudyRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.cleanroom.in_process import InProcessRoom
    from tacit.cleanroom.model.network import ConversionModel
    from tacit.cleanroom.protocol.layout import ParameterLayout
    from tacit.privacy.calibration import CalibrationMemory

ADAPTER = "tuned"


@dataclass(frozen=True)
class TuningTask:
    """Simulated, from a seed: nothing of it is ever released. Measured on test clicks of that advertiser."""

    log: StudyLog
    arm: TuningArm
    work: ScaleWork
    seed: int
    packages = (*LEARNING, "cleanroom/platform", "cleanroom/room", "cleanroom/in_process")

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        del memory  # the room's own noise is calibrated in milliseconds
        split, model = AdvertiserSplit.of(ready), pretrained_model(ready, self.work, self.seed)
        whole = sum(each.numel() for each in model.parameters())
        began = time.perf_counter()
        logits, told = self._tune(model, split)
        return {
            **_quality(split, logits),
            "parameters": whole + (told["trained_parameters"] if isinstance(self.arm.tuned, int) else 0),
            "seconds": round(time.perf_counter() - began, 1),
            **told,
        }

    def _tune(self, model: ConversionModel, split: AdvertiserSplit) -> tuple[NDArray[np.floating], Record]:
        """Logits for the test clicks, and what it took."""
        from tacit.cleanroom.model.examples import advertiser_key
        from tacit.cleanroom.model.learning import predict, tune_all
        from tacit.cleanroom.platform.statistic import fit_statistic
        from tacit.cleanroom.platform.training import train_adapter

        arm, tuned = self.arm, split.tuned
        if arm.tuned == NONE:
            return predict(model, split.test, TASK), _cost_record()
        if arm.tuned == ALL:
            tune_all(model, tuned, TASK, tuned.labels(TASK), setting.tuning_all(self.work, self.seed))
            return predict(model, split.test, TASK), _cost_record(
                sum(each.numel() for each in model.parameters())
            )
        before = predict(model, split.others, TASK)
        adapter = model.add_adapter(ADAPTER, advertiser_key(SENSITIVE), int(arm.tuned), seed=self.seed)
        tokens, link = self._room(split)
        if arm.mode == "statistic":
            fitted = fit_statistic(model, ADAPTER, tuned, tokens, link, task=TASK, run=ADAPTER)
            model.remove_adapter(ADAPTER)
            sent = (fitted.bytes_sent + fitted.bytes_received) / len(tuned)
            return fitted.head.logits(model, split.test), _cost_record(len(fitted.sums), sent)
        plan = setting.adapter_plan(arm, self.work, self.seed)
        trained = train_adapter(model, ADAPTER, tuned, tokens, link, plan, run=ADAPTER)
        changed = int((predict(model, split.others, TASK) != before).sum())
        sent = trained.bytes_sent / trained.examples
        dense = _qsgd_bytes(adapter.layout, tokens.shape[1])
        return predict(model, split.test, TASK), _cost_record(adapter.layout.parameters, sent, changed, dense)

    def _room(self, split: AdvertiserSplit) -> tuple[NDArray[np.uint8], InProcessRoom]:
        from tacit.cleanroom.in_process import room_in_process
        from tacit.cleanroom.protocol.tokens import token_key, tokens
        from tacit.entropy import Simulation

        source = Simulation(f"room {self.seed}")
        named = tokens(split.tuned.records, token_key(source.bytes(32), ADAPTER))
        labels = split.tuned.labels(TASK)[:, None]
        link = room_in_process(named, labels, source=source, **setting.room_terms(self.arm))
        return named, link


def _cost_record(
    parameters: int = 0, bytes_an_example: float = 0.0, changed: int = 0, qsgd_bytes: float = 0.0
) -> dict[str, Any]:
    return {
        "trained_parameters": parameters,
        "bytes_an_example": bytes_an_example,
        "dense_qsgd_8_bytes": qsgd_bytes,
        "others_changed": changed,
    }


def _qsgd_bytes(layout: ParameterLayout, token_bytes: int) -> float:
    """What an example would be with its derivatives written out, 8 bits per number; headers not counted."""
    from tacit.cleanroom.protocol.codecs import codec_named
    from tacit.cleanroom.protocol.slabs import LOGIT_BYTES

    codec = codec_named("qsgd-8")
    return token_bytes + LOGIT_BYTES + sum(codec.size(block, block.positions) for block in layout.blocks)


def _quality(split: AdvertiserSplit, logits: NDArray[np.floating]) -> dict[str, float]:
    """Expected figures under the true probabilities, free of the labels' noise."""
    import numpy as np
    from scipy.special import expit

    from tacit.train.evaluation import measures
    from tacit.train.evaluation.measures import Outcomes

    outcomes, predicted = Outcomes.of_probabilities(split.truth), expit(logits.astype(np.float64))
    return {
        "auc": measures.auc_value(outcomes, predicted),
        "log_loss": measures.log_loss(outcomes, predicted).value,
        "calibration_ratio": measures.calibration_ratio(outcomes, predicted).value,
    }


class TuningMeasurements:
    """Figures by arm, one for each seed; the pre-trained model is always among the arms."""

    def __init__(self, arms: Sequence[TuningArm], runs: Runs) -> None:
        self.arms, self._runs = arms, runs

    @classmethod
    def of(cls, asked: StudyRequest, arms: Iterable[TuningArm]) -> TuningMeasurements:
        """Do what is not done yet: the bases first, which the arms start from."""
        wanted = list(dict.fromkeys(arms))
        every = list(dict.fromkeys([*(TuningArm(NONE, world=arm.world) for arm in wanted), *wanted]))
        seeds = range(1, asked.seeds + 1)
        work = setting.WORK[asked.scale]
        logs = {(arm.world, seed): setting.study_log(asked, seed, arm.world) for arm in every for seed in seeds}
        bases = [Pretraining(log, work, seed) for (_, seed), log in logs.items()]
        run_tasks(bases, asked.cache, processes=asked.processes, progress=asked.progress, label="pre-training")
        labelled = [
            LabelledTask({**asdict(arm), "seed": seed}, TuningTask(logs[arm.world, seed], arm, work, seed))
            for seed in seeds
            for arm in every
        ]
        return cls(every, Runs.of(labelled, asked, "tuning"))

    @classmethod
    def of_table(cls, kept: ResultFiles) -> TuningMeasurements:
        """From a study's table."""
        rows = [(TuningArm.read(row), row) for row in kept.rows]
        arms = list(dict.fromkeys(arm for arm, _ in rows))
        return cls(arms, Runs([{**row, **asdict(arm)} for arm, row in rows]))

    def figures(self, arm: TuningArm, figure: str) -> Floats:
        return self._runs.figures(figure, **asdict(arm))

    def gain(self, arm: TuningArm) -> Floats:
        """By how many percent the AUC is above that of the pre-trained model."""
        return 100 * (self.figures(arm, "auc") / self.figures(TuningArm(NONE, world=arm.world), "auc") - 1)

    def change(self, arm: TuningArm, beside: TuningArm) -> Floats:
        """By how many percent the AUC is above that of another arm."""
        return 100 * (self.figures(arm, "auc") / self.figures(beside, "auc") - 1)

    def table(self) -> list[dict[str, Any]]:
        """A row for each arm and seed, with the gain among them."""
        rows = []
        for arm in self.arms:
            gains = self.gain(arm)
            found = [row for row in self._runs.rows if all(row[k] == v for k, v in asdict(arm).items())]
            rows += [{**row, "gain_percent": float(gain)} for row, gain in zip(found, gains, strict=True)]
        return rows


COLUMNS = (
    "tuned", "world", "epsilon", "loss", "codec", "mode", "AUC gain, %", "predicted / observed",
    "bytes an example", "trained parameters", "of all",
)  # fmt: skip


def _row(measured: TuningMeasurements, arm: TuningArm) -> tuple[str, ...]:
    """For people: an arm, with intervals over seeds."""

    def average(figure: str) -> float:
        return float(measured.figures(arm, figure).mean())

    return (
        str(arm.tuned),
        "low rank" if arm.world == setting.LOWRANK else "value",
        "none" if arm.epsilon == NO_PRIVACY else f"{arm.epsilon:g}",
        "" if arm.tuned == NONE else arm.loss,
        arm.codec if isinstance(arm.tuned, int) and arm.mode in ("aggregate", "noised") else "",
        "" if arm.tuned == NONE else f"{arm.mode}{', projected' * arm.project}",
        words(mean(measured.gain(arm))),
        words(mean(measured.figures(arm, "calibration_ratio"))),
        f"{average('bytes_an_example'):,.0f}",
        f"{average('trained_parameters'):,.0f}",
        f"{average('trained_parameters') / average('parameters'):.1%}",
    )


def gain_line(
    name: str,
    measured: TuningMeasurements,
    arms: Sequence[TuningArm],
    at: Sequence[float],
    mechanism: Mechanism = Mechanism.OURS,
) -> Series:
    return mean_line(name, at, [measured.gain(arm) for arm in arms], mechanism)


def write_outcome(
    name: str,
    asked: StudyRequest,
    *,
    began: float,
    measured: TuningMeasurements,
    panels: Sequence[Panel],
    axes: Axes,
) -> StudyOutcome:
    work = setting.WORK[asked.scale]
    worlds = dict.fromkeys(arm.world for arm in measured.arms)
    return report.write_outcome(
        name,
        asked,
        unit="click",
        relation="replace label",
        began=began,
        data="; ".join(setting.data_words(asked, world) for world in worlds),
        parameters={
            "rows": work.rows,
            "pre-training": repr(setting.pretraining(work, seed=1)),
            "tuning everything": repr(setting.tuning_all(work, seed=1)),
            "tuning adapters": repr(setting.adapter_plan(TuningArm(), work, seed=1)),
        },
        table=measured.table(),
        columns=COLUMNS,
        rows=[_row(measured, arm) for arm in measured.arms],
        panels=panels,
        axes=axes,
    )
