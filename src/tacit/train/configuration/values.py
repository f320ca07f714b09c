"""What a configuration file says, as frozen values; settings that move the guarantee stand apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tacit import expect
from tacit.privacy.relations import Relation
from tacit.privacy.units import Cap, Unit
from tacit.train.configuration.keys import RELEASING
from tacit.train.labels.mechanism import LabelMechanism
from tacit.train.models.model import Architecture
from tacit.train.settings import Learning, PrivateLearning, Speed
from tacit.train.statistic import NoisyStatistic


@dataclass(frozen=True)
class Privacy:
    """What moves the guarantee. `epsilon` and `delta` are None where the method has none."""

    method: str
    unit: Unit
    cap: Cap
    epsilon: expect.Number | None = None
    delta: expect.Number | None = None
    k: float | Literal["auto"] = "auto"
    frozen: bool = False

    @property
    def flips_labels(self) -> bool:
        return self.method in ("label-dp", "hybrid") and self.k != 0

    @property
    def is_private(self) -> bool:
        return self.method in RELEASING


@dataclass(frozen=True)
class Labels:
    """How labels are made noisy, and how a model learns from them. `version` rises when labels change."""

    mechanism: LabelMechanism
    spelled: str  # all that decides the law of a report, apart from epsilon
    learning: Learning
    version: int = 0


@dataclass(frozen=True)
class LedgerPlace:
    """Who pays. `key` names one release; label DP has none, because flips are drawn once and read for ever."""

    path: str | None = None
    witness: str | None = None
    scope: str | None = None
    relation: Relation | None = None
    key: str | None = None
    secret: Path | None = None


@dataclass(frozen=True)
class Keeping:
    """How often a checkpoint is kept; whichever comes first."""

    every_steps: int | None = None
    every_minutes: float | None = 10.0


@dataclass(frozen=True)
class Watching:
    """`simulated` is the seed of a study; without one the run is for real."""

    simulated: int | None = None
    tensorboard: Path | None = None
    mlflow: str | None = None


@dataclass(frozen=True)
class TrainingConfig:
    """One training, checked as far as it can be without looking at the data."""

    place: Path
    data: Path
    part: str
    out: Path
    model: Architecture
    privacy: Privacy
    labels: Labels
    plain: Learning
    descent: PrivateLearning
    statistic: NoisyStatistic
    speed: Speed
    ledger: LedgerPlace
    keeping: Keeping
    run: Watching
    onnx: Path | None
    said: Mapping[str, Any] = field(repr=False)  # the file's own words, by table

    @property
    def digest(self) -> str:
        """Of all that a run depends on: with another one, a checkpoint is of another training."""
        apart = ("checkpoint", "export")
        rest = {key: value for key, value in self.said.items() if key not in apart}
        rest["run"] = self.run.simulated
        return hashlib.sha256(json.dumps(rest, sort_keys=True, default=str).encode()).hexdigest()
