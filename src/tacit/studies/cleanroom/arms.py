"""All seeds of many arms: what each gains over the model as it was pre-trained, by the same seeds.

Measured once, and read again from the table that was left: verdicts come from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from tacit.studies.cleanroom import setting
from tacit.studies.cleanroom.bases import Pretraining
from tacit.studies.cleanroom.setting import NONE, Arm
from tacit.studies.cleanroom.tuning import Tuning
from tacit.studies.results import Kept
from tacit.studies.runs import Floats, Labelled, Runs
from tacit.studies.study import Asked
from tacit.studies.tasks import run_all


class Measurements:
    """Figures by arm, one for each seed; the pre-trained model is always among the arms."""

    def __init__(self, arms: Sequence[Arm], runs: Runs) -> None:
        self.arms, self._runs = arms, runs

    @classmethod
    def of(cls, asked: Asked, arms: Iterable[Arm]) -> Measurements:
        """Do what is not done yet: the bases first, which the arms start from."""
        wanted = list(dict.fromkeys(arms))
        every = list(dict.fromkeys([*(Arm(NONE, world=arm.world) for arm in wanted), *wanted]))
        seeds = range(1, asked.seeds + 1)
        work = setting.WORK[asked.scale]
        logs = {(arm.world, seed): setting.log(asked, seed, arm.world) for arm in every for seed in seeds}
        bases = [Pretraining(log, work, seed) for (_, seed), log in logs.items()]
        run_all(bases, asked.cache, processes=asked.processes, track=asked.track, label="pre-training")
        labelled = [
            Labelled({**asdict(arm), "seed": seed}, Tuning(logs[arm.world, seed], arm, work, seed))
            for seed in seeds
            for arm in every
        ]
        return cls(every, Runs.of(labelled, asked, "tuning"))

    @classmethod
    def kept(cls, kept: Kept) -> Measurements:
        """From a study's table."""
        rows = [(Arm.read(row), row) for row in kept.rows]
        arms = list(dict.fromkeys(arm for arm, _ in rows))
        return cls(arms, Runs([{**row, **asdict(arm)} for arm, row in rows]))

    def figures(self, arm: Arm, figure: str) -> Floats:
        return self._runs.figures(figure, **asdict(arm))

    def gain(self, arm: Arm) -> Floats:
        """By how many percent the AUC is above that of the pre-trained model."""
        return 100 * (self.figures(arm, "auc") / self.figures(Arm(NONE, world=arm.world), "auc") - 1)

    def change(self, arm: Arm, beside: Arm) -> Floats:
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
