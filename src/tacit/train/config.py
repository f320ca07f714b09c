"""A training configuration as frozen values, and which keys each method reads.

Settings that move the guarantee stand apart from those that change speed or quality only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.units import Cap, Relation, Unit
from tacit.train.labels.mechanism import LabelMechanism
from tacit.train.labels.windows import ReportingWindows
from tacit.train.models.model import Architecture
from tacit.train.settings import Learning, PrivateLearning, Speed
from tacit.train.statistic.method import NoisyStatistic

METHODS = ("plain", "label-dp", "dp-sgd", "hybrid", "statistic", "auto")
AUTO = frozenset({"auto"})  # label DP, by flips or by a statistic: `method_choice`
DP_SGD_METHODS = frozenset({"dp-sgd", "hybrid"})
FLIP_METHODS = frozenset({"label-dp", "hybrid"})
SGD_METHODS = frozenset({"plain", "dp-sgd", "hybrid"})
STATISTIC_METHODS = frozenset({"statistic"})
PRIVATE_METHODS = DP_SGD_METHODS | FLIP_METHODS | STATISTIC_METHODS | AUTO
ALL_METHODS = frozenset(METHODS)
STEP_METHODS = ALL_METHODS - STATISTIC_METHODS

OPTIMIZER_KEYS = ("momentum", "beta1", "beta2", "optimizer_epsilon")
LEARNING_KEYS = ("epochs", "batch", "rate", "decay", "penalty", "optimizer", *OPTIMIZER_KEYS)

KEYS: dict[str, dict[str, frozenset[str]]] = {
    "privacy": {
        "method": ALL_METHODS,
        "epsilon": PRIVATE_METHODS,
        "delta": DP_SGD_METHODS | STATISTIC_METHODS | AUTO,
        "unit": PRIVATE_METHODS,
        "window_days": PRIVATE_METHODS,
        "window_origin": PRIVATE_METHODS,
        "ad_tech": PRIVATE_METHODS,
        "cap": FLIP_METHODS,
        "cap_choice": FLIP_METHODS,
        "split": FLIP_METHODS,
        "k": frozenset({"hybrid"}),
        "public_tower": frozenset({"hybrid"}),
    },
    "labels": {
        **dict.fromkeys(("mechanism", "prior_rate"), FLIP_METHODS),
        **dict.fromkeys(("correction", "version", *LEARNING_KEYS), FLIP_METHODS | AUTO),
        **dict.fromkeys(("values", "edges", "prior", "low", "high", "head"), frozenset({"label-dp"})),
        **dict.fromkeys(("report_days", "shares", "arrived", "as_of"), frozenset({"label-dp"})),
    },
    "descent": {
        **dict.fromkeys(LEARNING_KEYS, SGD_METHODS),
        **dict.fromkeys(("clip_norm", "start_rate", "recalibrate"), DP_SGD_METHODS),
    },
    "speed": {"microbatch": STEP_METHODS, "noise": DP_SGD_METHODS},
    "statistic": dict.fromkeys(
        ("rank", "clip_norm", "most_pairs", "rate"), STATISTIC_METHODS | AUTO | {"hybrid"}
    ),
    "run": {"simulated": ALL_METHODS, "tensorboard": STEP_METHODS, "mlflow": STEP_METHODS},
    "ledger": {
        **dict.fromkeys(("path", "witness", "scope", "relation"), PRIVATE_METHODS),
        "key": DP_SGD_METHODS | STATISTIC_METHODS | AUTO,
        "secret": FLIP_METHODS | AUTO,
    },
    "checkpoint": dict.fromkeys(("every_steps", "every_minutes"), STEP_METHODS),
    "export": {"onnx": STEP_METHODS, "device": ALL_METHODS},
}


def keys_for(table: str) -> tuple[str, ...]:
    return tuple(KEYS[table])


def refuse_ignored(table: str, record: Mapping[str, Any], method: str) -> None:
    """A key that the method does not read would promise or tune nothing, so it is refused."""
    for key in record:
        readers = KEYS[table].get(key)
        if readers is not None and method not in readers:
            words = ", ".join(name for name in METHODS if name in readers)
            raise BadInput(f"{table}.{key}: expected only with method {words}, got it with {method}")


@dataclass(frozen=True)
class PrivacySettings:
    """What moves the guarantee. `epsilon` and `delta` are None where the method has none."""

    method: str
    unit: Unit
    cap: Cap
    epsilon: expect.Number | None = None
    delta: expect.Number | None = None
    k: float | Literal["auto"] = "auto"
    frozen: bool = False
    tells: bool = False  # the Hybrid tells a statistic of labels, and flips none

    @property
    def flips_labels(self) -> bool:
        return self.method == "label-dp" or (self.method == "hybrid" and self.k != 0 and not self.tells)

    @property
    def is_private(self) -> bool:
        return self.method in PRIVATE_METHODS


@dataclass(frozen=True)
class LabelSettings:
    """How labels are made noisy, and how a model learns from them. `version` rises when labels change."""

    mechanism: LabelMechanism
    spelled: str  # all that decides the law of a report, apart from epsilon
    learning: Learning
    version: int = 0
    windows: ReportingWindows | None = None  # where a label is reported several times
    as_of: int | None = None  # in seconds; None: now
    words: str | None = None  # how labels are reported, for people, where it is not one flip of 0 or 1


@dataclass(frozen=True)
class LedgerSettings:
    """Who pays. `key` names one release; label DP has none, because flips are drawn once and read for ever."""

    path: str | None = None
    witness: str | None = None
    scope: str | None = None
    relation: Relation | None = None
    key: str | None = None
    secret: Path | None = None


@dataclass(frozen=True)
class CheckpointSettings:
    """How often a checkpoint is kept; whichever comes first."""

    every_steps: int | None = None
    every_minutes: float | None = 10.0


@dataclass(frozen=True)
class RunSettings:
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
    privacy: PrivacySettings
    labels: LabelSettings
    plain: Learning
    descent: PrivateLearning
    statistic: NoisyStatistic
    speed: Speed
    ledger: LedgerSettings
    keeping: CheckpointSettings
    run: RunSettings
    onnx: Path | None
    device: Path | None
    said: Mapping[str, Any] = field(repr=False)  # the file's own words, by table

    @property
    def exports(self) -> dict[str, Path | None]:
        """Files that the model is also written to, by their key."""
        return {"onnx": self.onnx, "device": self.device}

    @property
    def digest(self) -> str:
        """Of all that a run depends on: with another one, a checkpoint is of another training."""
        apart = ("checkpoint", "export")
        rest = {key: value for key, value in self.said.items() if key not in apart}
        rest["run"] = self.run.simulated
        return hashlib.sha256(json.dumps(rest, sort_keys=True, default=str).encode()).hexdigest()
