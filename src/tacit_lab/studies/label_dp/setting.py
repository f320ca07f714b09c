"""What the label-DP studies share: the log, the models, how they learn, and how much work a scale is.

An arm is a way to train on flipped labels, as a value; arms are measured over the same seeds, and written to
the files that a study leaves.

Learning was tuned on made-up logs of seeds 901 and 902, which no study reports: for the model without
privacy first, then for noisy labels (user and impression, epsilon 1 to 16), which came out with the same
settings. What mattered most is Adam's epsilon: where it is large, rows of rare values take small steps, and
their noise is not learnt (AUC loss without privacy .246 against .262 with the usual 1e-8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.units import Cap, CapChoice, Split, Unit, UnitKind
from tacit.train.labels.mechanism import Correction
from tacit_lab.studies import report
from tacit_lab.studies.logs import Hashed, ReadyLog, StudyLog, is_made_up
from tacit_lab.studies.plotting import Mechanism, Panel, Series
from tacit_lab.studies.published import has_file, published_file
from tacit_lab.studies.runs import Record, TrainingTask, mean, run_tasks, words
from tacit_lab.studies.semi_sensitive.recipe import (
    PUBLISHED_LOGS,
    PUBLISHED_NETWORK,
    PUBLISHED_SEARCH,
    SEARCH_LOG,
)
from tacit_lab.studies.study import StudyInputs, StudyOutcome, StudyRequest, StudyScale

if TYPE_CHECKING:
    from tacit.privacy.calibration import CalibrationMemory
    from tacit.train.methods import TrainingMethod
    from tacit.train.models.model import Architecture
    from tacit.train.settings import Learning

PAPER = "Ghazi, Evaluation of Label DP (Randomized Response) Mechanisms on Binary Conversion Models"
LOG_NAME = "criteo-attribution"
# 36% are clicks.
ROWS = {StudyScale.TOY: 12_000, StudyScale.SMALL: 1_100_000, StudyScale.FULL: 16_468_027}
BINS = {StudyScale.TOY: 1_000, StudyScale.SMALL: 80_000, StudyScale.FULL: 80_000}
EPSILONS = {
    StudyScale.TOY: (1, 3, 4, 16),
    StudyScale.SMALL: (1, 4, 8, 16),
    StudyScale.FULL: (1, 2, 3, 4, 8, 16),
}
CAPS = {StudyScale.TOY: (1, 2), StudyScale.SMALL: (1, 2, 4), StudyScale.FULL: (1, 2, 4, 8)}
SEEDS = {StudyScale.TOY: 2, StudyScale.SMALL: 6, StudyScale.FULL: 3}
FM, NETWORK = "fm", "network"
PER_USER = "examples_per_user"


def inputs(small: float, full: float) -> StudyInputs:
    """What of published files a study can take, with its minutes on millions of clicks."""
    minutes = {StudyScale.TOY: 1.0, StudyScale.SMALL: small, StudyScale.FULL: full}
    return StudyInputs((LOG_NAME, PUBLISHED_LOGS[SEARCH_LOG]), minutes=minutes, key="user")


def on_search(asked: StudyRequest) -> bool:
    """Whether the log is the published search log, for want of the attribution log."""
    return (
        asked.data is not None
        and not has_file(asked.data, LOG_NAME)
        and has_file(asked.data, PUBLISHED_LOGS[SEARCH_LOG])
    )


def study_log(asked: StudyRequest, seed: int) -> StudyLog:
    """The log of one seed: a world of its own, or the published file. The search log takes its user for
    sensitive; a unit by user is for whoever states that the key is public."""
    hashed = Hashed(BINS[asked.scale])
    if on_search(asked):
        assert asked.data is not None
        if "user" not in asked.public_keys:
            raise BadInput(
                f"expected --public-key user for privacy units on {PUBLISHED_LOGS[SEARCH_LOG]}, whose user is "
                "sensitive, got none: say so if anybody may know which clicks are of one user"
            )
        file = published_file(asked.data, PUBLISHED_LOGS[SEARCH_LOG])
        hashed = Hashed(100_000) if asked.scale is not StudyScale.TOY else hashed
        return StudyLog(
            PUBLISHED_LOGS[SEARCH_LOG], 0, 0, None, hashed, Hashed(1), file, public_keys=asked.public_keys
        )
    if asked.data is not None:
        file = published_file(asked.data, LOG_NAME)
        return StudyLog(LOG_NAME, 0, 0, public=hashed, sensitive=Hashed(1), file=file)
    return StudyLog(LOG_NAME, ROWS[asked.scale], seed, public=hashed, sensitive=Hashed(1))


def log_files(asked: StudyRequest) -> list[Path] | None:
    """The published file, if that is the log."""
    return [file] if (file := study_log(asked, 1).file) else None


def is_synthetic(asked: StudyRequest) -> bool:
    """Whether the log was made up, a published file's place notwithstanding."""
    return is_made_up(asked, log_files(asked))


def data_words(asked: StudyRequest) -> str:
    if on_search(asked):
        return f"search log, {study_log(asked, 1).file.name}"  # type: ignore[union-attr]
    if asked.data is not None:
        return "Criteo-Attribution-like file" if is_synthetic(asked) else "Criteo Attribution as published"
    return f"Criteo-Attribution-like, {ROWS[asked.scale] * 0.3612 / 1000:,.0f}k clicks"


def architecture(name: str) -> Architecture:
    from tacit.train.models.architectures import Mlp
    from tacit.train.models.factorization_machine import FactorizationMachine

    # The paper's network: embeddings of 8, hidden layers of 128 and 64.
    return FactorizationMachine(16) if name == FM else Mlp(8, (), (128, 64))


def learning(name: str, *, large: bool = False) -> Learning:
    """How a model learns, from true labels and from noisy ones; from millions of published clicks as the
    semi-sensitive studies do."""
    from tacit.train.settings import Learning
    from tacit.train.sgd.optimizers import Adam, Decay

    if large:
        return (PUBLISHED_SEARCH if name == FM else PUBLISHED_NETWORK).labels

    epochs, rate, penalty = (4, 0.02, 1e-4) if name == FM else (2, 0.01, 1e-3)
    return Learning(epochs, 4096, rate, Decay.COSINE, Adam(epsilon=2e-4), penalty)


MOST = 12  # examples; users with more are counted together
KINDS = ("user", "user-advertiser", "user-publisher")


@dataclass(frozen=True)
class UnitSizes:
    """Counts the units that have 1, 2, ... training examples. Keys alone are read."""

    log: StudyLog

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        from tacit.privacy.allocation import unit_ids
        from tacit.privacy.units import Unit
        from tacit.train.examples import Examples

        del memory
        train = Examples.of(ready.columns, "train")
        columns = {name: train.key(name) for name in train.keys}
        record: Record = {"examples": len(train)}
        for kind in KINDS:
            if not set(UnitKind(kind).key_columns) <= set(columns):
                continue  # the published log has no publisher
            units = unit_ids(Unit(UnitKind(kind)), columns, public=train.public_keys)
            sizes = np.unique(units, return_counts=True)[1]
            counted = np.bincount(np.minimum(sizes, MOST), minlength=MOST + 1)
            record |= {f"{kind} {count}": int(counted[count]) for count in range(1, MOST + 1)}
            record |= {f"{kind} mean": float(sizes.mean()), f"{kind} largest": int(sizes.max())}
        return record


FIGURES = ("auc_loss", "log_loss", "calibration_ratio")
PERCENT = "relative_auc_loss_percent"  # against the same model without privacy, at the same seed


@dataclass(frozen=True)
class LabelDpArm:
    """Randomized response for a unit with a cap, at an epsilon; epsilon None is training without privacy."""

    unit: UnitKind = UnitKind.IMPRESSION
    epsilon: float | None = None
    cap: int = 1
    split: Split = Split.BY_COUNT
    choice: CapChoice = CapChoice.FIRST
    correction: Correction = Correction.FORWARD
    model: str = FM

    def __post_init__(self) -> None:
        if self.cap == 1:  # one row has all of epsilon, however it is shared
            object.__setattr__(self, "split", Split.BY_CAP)

    def method(self, *, large: bool = False) -> TrainingMethod:
        from tacit.train.labels.randomizers import FlipLabels
        from tacit.train.methods import LabelDp, Plain
        from tacit.train.models.model import Part

        course = learning(self.model, large=large)
        if self.epsilon is None:
            return Plain(course, Part.TRUNCATED if large else Part.WHOLE)
        cap = Cap(self.cap, self.choice, self.split)
        return LabelDp(self.epsilon, Unit(self.unit), cap, FlipLabels(correction=self.correction), course)

    def training(self, asked: StudyRequest, seed: int) -> TrainingTask:
        method = self.method(large=on_search(asked))
        return TrainingTask(study_log(asked, seed), architecture(self.model), method, seed)

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
    def of_row(cls, row: Mapping[str, Any]) -> LabelDpArm:
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
class LabelDpMeasurements:
    """A record for each arm and seed, in their order, and for the arms' models without privacy too."""

    arms: tuple[LabelDpArm, ...]
    seeds: tuple[int, ...]
    by_arm: Mapping[LabelDpArm, Sequence[Record]]

    @classmethod
    def of(cls, asked: StudyRequest, arms: Iterable[LabelDpArm]) -> LabelDpMeasurements:
        """Do what is not done yet."""
        wanted = tuple(dict.fromkeys(arms))
        every = [*(LabelDpArm(model=model) for model in dict.fromkeys(arm.model for arm in wanted)), *wanted]
        seeds = tuple(range(1, asked.seeds + 1))
        tasks = [arm.training(asked, seed) for seed in seeds for arm in every]
        found = run_tasks(tasks, asked.cache, processes=asked.processes, progress=asked.progress)
        return cls(wanted, seeds, {arm: found[place :: len(every)] for place, arm in enumerate(every)})

    @classmethod
    def read(cls, rows: Iterable[Mapping[str, Any]]) -> LabelDpMeasurements:
        """From the rows that `rows` gave."""
        found: dict[LabelDpArm, dict[int, Record]] = {}
        for row in rows:
            found.setdefault(LabelDpArm.of_row(row), {})[row["seed"]] = dict(row)
        seeds = tuple(sorted({seed for by_seed in found.values() for seed in by_seed}))
        by_arm = {arm: [by_seed[seed] for seed in seeds] for arm, by_seed in found.items()}
        return cls(tuple(arm for arm in by_arm if arm.epsilon is not None), seeds, by_arm)

    def mean(self, arm: LabelDpArm, figure: str) -> float:
        return float(np.mean([record[figure] for record in self.by_arm[arm]]))

    def percent(self, arm: LabelDpArm) -> Floats:
        """By seed: 100 (AUC loss / that of the same model without privacy - 1), both on the same rows."""
        plain = self.by_arm[LabelDpArm(model=arm.model)]
        pairs = zip(self.by_arm[arm], plain, strict=True)
        return np.array([100 * (record["auc_loss"] / without["auc_loss"] - 1) for record, without in pairs])

    def best(self, arms: Iterable[LabelDpArm]) -> LabelDpArm:
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


RELATION = "replace label"
Y_LABEL = "AUC loss against non-private, %"
HEADER = (
    "model", "unit", "epsilon", "cap", "split", "choice", "correction", "AUC loss against non-private, %",
    "predicted / observed", "log loss",
)  # fmt: skip


def loss_line(name: str, measured: LabelDpMeasurements, arms: Sequence[LabelDpArm]) -> Series:
    """One line over epsilon; the band is the interval over seeds."""
    found = [mean(measured.percent(arm)) for arm in arms]
    return Series(
        name,
        [float(arm.epsilon or 0) for arm in arms],
        [each.value for each in found],
        [each.low for each in found],
        [each.high for each in found],
        Mechanism.RR,
    )


def published_series(epsilon: float, *percents: float) -> Series:
    """Figures that the paper prints."""
    at = [epsilon] * len(percents)
    return Series("published", at, percents, mechanism=Mechanism.RR, published=True)


def write_outcome(
    name: str,
    asked: StudyRequest,
    measured: LabelDpMeasurements,
    *,
    began: float,
    unit: str,
    panels: Sequence[Panel] = (),
    draw: Callable[[Path, str], object] | None = None,
    shown: Sequence[LabelDpArm] | None = None,
    share_y: bool = True,
) -> StudyOutcome:
    """Write the study's files; `shown` are the arms that people see in a table, all of them if None."""
    ticks = sorted({float(x) for panel in panels for each in panel.series for x in each.columns[0]})
    models = dict.fromkeys(arm.model for arm in measured.arms)
    return report.write_outcome(
        name,
        asked,
        unit=unit,
        relation=RELATION,
        began=began,
        data=data_words(asked),
        parameters={
            **({"rows": ROWS[asked.scale]} if asked.data is None else {}),
            "public": repr(study_log(asked, 1).public),
            "learning": {model: repr(learning(model, large=on_search(asked))) for model in models},
            **_clicks_per_user(asked),
        },
        table=measured.rows(),
        columns=HEADER,
        rows=[_row(measured, arm) for arm in (measured.arms if shown is None else shown)],
        panels=panels,
        axes=report.Axes("epsilon", Y_LABEL, ticks, share_y),
        draw=draw,
        used=log_files(asked),
    )


def _clicks_per_user(asked: StudyRequest) -> dict[str, float]:
    """Of a published log: where most users have one click, a promise for users is one for clicks."""
    if asked.data is None:
        return {}
    (record,) = run_tasks([UnitSizes(study_log(asked, 1))], asked.cache, label="counting")
    return {PER_USER: round(float(record["user mean"]), 3)}


def _row(measured: LabelDpMeasurements, arm: LabelDpArm) -> tuple[str, ...]:
    return (
        arm.model,
        str(arm.unit),
        "none" if arm.epsilon is None else f"{arm.epsilon:g}",
        str(arm.cap),
        str(arm.split),
        str(arm.choice),
        str(arm.correction),
        words(mean(measured.percent(arm))),
        f"{measured.mean(arm, 'calibration_ratio'):.3f}",
        f"{measured.mean(arm, 'log_loss'):.4f}",
    )
