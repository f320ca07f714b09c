"""One way to train on flipped labels as a value, and what many of them cost over the same seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.units import Cap, CapChoice, Split, Unit, UnitKind
from tacit.studies.label_dp import setting
from tacit.studies.records import Record
from tacit.studies.runs import Floats
from tacit.studies.study import Asked
from tacit.studies.tasks import run_all
from tacit.studies.training import Training
from tacit.train.labels.mechanism import Correction

if TYPE_CHECKING:
    from tacit.train.methods import Method

FIGURES = ("auc_loss", "log_loss", "calibration_ratio")
PERCENT = "relative_auc_loss_percent"  # against the same model without privacy, at the same seed


@dataclass(frozen=True)
class Arm:
    """Randomized response for a unit with a cap, at an epsilon; epsilon None is training without privacy."""

    unit: UnitKind = UnitKind.IMPRESSION
    epsilon: float | None = None
    cap: int = 1
    split: Split = Split.BY_COUNT
    choice: CapChoice = CapChoice.FIRST
    correction: Correction = Correction.FORWARD
    model: str = setting.FM

    def __post_init__(self) -> None:
        if self.cap == 1:  # one row has all of epsilon, however it is shared
            object.__setattr__(self, "split", Split.BY_CAP)

    @property
    def method(self) -> Method:
        from tacit.train.labels.flips import FlipLabels
        from tacit.train.methods import LabelDp, Plain

        learning = setting.learning(self.model)
        if self.epsilon is None:
            return Plain(learning)
        cap = Cap(self.cap, self.choice, self.split)
        return LabelDp(self.epsilon, Unit(self.unit), cap, FlipLabels(correction=self.correction), learning)

    def training(self, asked: Asked, seed: int) -> Training:
        return Training(setting.log(asked, seed), setting.architecture(self.model), self.method, seed)

    @property
    def labels(self) -> dict[str, Any]:
        """What a table says of it."""
        return {
            "model": self.model,
            "unit": str(self.unit),
            "epsilon": self.epsilon,
            "cap": self.cap,
            "split": str(self.split),
            "choice": str(self.choice),
            "correction": str(self.correction),
        }

    @classmethod
    def labelled(cls, row: Mapping[str, Any]) -> Arm:
        """The arm that a row of a table is of."""
        return cls(
            UnitKind(row["unit"]),
            row["epsilon"],
            row["cap"],
            Split(row["split"]),
            CapChoice(row["choice"]),
            Correction(row["correction"]),
            row["model"],
        )


@dataclass(frozen=True, eq=False)
class Measurements:
    """A record for each arm and seed, in their order, and for the arms' models without privacy too."""

    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    by_arm: Mapping[Arm, Sequence[Record]]

    @classmethod
    def of(cls, asked: Asked, arms: Iterable[Arm]) -> Measurements:
        """Do what is not done yet."""
        wanted = tuple(dict.fromkeys(arms))
        every = [*(Arm(model=model) for model in dict.fromkeys(arm.model for arm in wanted)), *wanted]
        seeds = tuple(range(1, asked.seeds + 1))
        tasks = [arm.training(asked, seed) for seed in seeds for arm in every]
        found = run_all(tasks, asked.cache, processes=asked.processes, track=asked.track)
        return cls(wanted, seeds, {arm: found[place :: len(every)] for place, arm in enumerate(every)})

    @classmethod
    def read(cls, rows: Iterable[Mapping[str, Any]]) -> Measurements:
        """From the rows that `rows` gave."""
        found: dict[Arm, dict[int, Record]] = {}
        for row in rows:
            found.setdefault(Arm.labelled(row), {})[row["seed"]] = dict(row)
        seeds = tuple(sorted({seed for by_seed in found.values() for seed in by_seed}))
        by_arm = {arm: [by_seed[seed] for seed in seeds] for arm, by_seed in found.items()}
        return cls(tuple(arm for arm in by_arm if arm.epsilon is not None), seeds, by_arm)

    def mean(self, arm: Arm, figure: str) -> float:
        return float(np.mean([record[figure] for record in self.by_arm[arm]]))

    def percent(self, arm: Arm) -> Floats:
        """By seed: 100 (AUC loss / that of the same model without privacy - 1), both on the same rows."""
        plain = self.by_arm[Arm(model=arm.model)]
        pairs = zip(self.by_arm[arm], plain, strict=True)
        return np.array([100 * (record["auc_loss"] / without["auc_loss"] - 1) for record, without in pairs])

    def best(self, arms: Iterable[Arm]) -> Arm:
        """The one with the least mean over the seeds; of equals the first."""
        return min(arms, key=lambda arm: float(self.percent(arm).mean()))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each arm and seed, those without privacy first."""
        found = []
        for arm in sorted(self.by_arm, key=lambda arm: arm.epsilon is not None):
            for seed, record, percent in zip(self.seeds, self.by_arm[arm], self.percent(arm), strict=True):
                figures = {name: record[name] for name in FIGURES}
                found.append({**arm.labels, "seed": seed, PERCENT: float(percent), **figures})
        return found
