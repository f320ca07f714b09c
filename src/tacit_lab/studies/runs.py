"""Runs of a study: each measurement is done once and kept, and figures are read seed by seed.

A task is a frozen value whose fields say all that its figures depend on. Its record is one small file named
by the digest of all of that, written whole or not at all, so an interrupted study continues where it
stopped. `Runs` are records with labels; `mean`, `difference` and `words` summarise figures over seeds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.files import write_atomically
from tacit.progress import Progress, no_progress
from tacit.train.evaluation.intervals import MeasuredValue, mean_difference_over_seeds, mean_over_seeds
from tacit_lab.studies.digests import TRAINING, digest, package_of, spell_out
from tacit_lab.studies.logs import ReadyLog, StudyLog, build_log, is_whole, log_folder, open_log
from tacit_lab.studies.processes import Item, map_in_processes
from tacit_lab.studies.study import StudyRequest

if TYPE_CHECKING:
    from tacit.privacy.calibration import CalibrationMemory
    from tacit.train.examples import Examples
    from tacit.train.methods import TrainingMethod
    from tacit.train.models.model import Architecture

Record = dict[str, Any]  # flat: names to numbers, texts or None
Labels = Mapping[str, Any]

LOPSIDED = 0.25  # of half its width, from the middle of an interval


class Records:
    """A folder of records. Each appears whole or not at all, so whoever makes them may be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, digest: str) -> Record | None:
        """The record of this name; None if it is not there. One that cannot be read is to be made again."""
        try:
            found = json.loads(self.path(digest).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def keep(self, digest: str, record: Record) -> None:
        write_atomically(self.path(digest), (json.dumps(record, indent=1) + "\n").encode())

    def path(self, digest: str) -> Path:
        """Where a record is, or will be."""
        return self.folder / f"{digest}.json"


class StudyTask(Protocol):
    """One measurement. Where its figures hang on more code than training's, `packages` names whose."""

    @property
    def log(self) -> StudyLog: ...

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        """The figures, from the prepared log; `memory` remembers calibrations across tasks."""
        ...


def run_tasks(
    tasks: Sequence[StudyTask],
    cache: Path,
    *,
    processes: int = 2,
    progress: Progress = no_progress,
    label: str = "training",
) -> list[Record]:
    """A record for each task, in order. With one process everything happens in this one."""
    # Names are fixed here and now: a process that starts later must not look elsewhere if code was edited.
    folders = {log: log_folder(log, cache) for log in dict.fromkeys(task.log for task in tasks)}
    names = [record_name(task, folders[task.log]) for task in tasks]
    logs = [(log, folder) for log, folder in folders.items() if not is_whole(folder)]
    _each(_build, logs, processes, progress, "preparing logs")
    records, answers = _records(cache), cache / "answers.sqlite"
    missing = {
        name: (task, folders[task.log], records, name, answers)
        for name, task in zip(names, tasks, strict=True)
        if records.of(name) is None
    }
    _each(_measure, list(missing.values()), processes, progress, label)
    return [_read_record(records, name) for name in names]


def record_name(task: StudyTask, folder: Path) -> str:
    """The name of a task's record: of the task, its log as it is now (the folder's name says it), and the code
    that measures."""
    packages = (*TRAINING, *getattr(task, "packages", ()), *package_of(task))
    return digest(spell_out(task), folder.name, packages=packages)


def _records(cache: Path) -> Records:
    return Records(cache / "records")


def _read_record(records: Records, name: str) -> Record:
    record = records.of(name)
    assert record is not None, "it was there, or was made just now"
    return record


def _build(asked: tuple[StudyLog, Path]) -> None:
    build_log(*asked)


def _measure(asked: tuple[StudyTask, Path, Records, str, Path]) -> None:
    from tacit.store.calibration_cache import CalibrationCache

    task, folder, records, name, answers = asked
    records.keep(name, task.measure(open_log(folder), CalibrationCache(answers)))


def _each(
    work: Callable[[Item], None], items: Sequence[Item], processes: int, progress: Progress, label: str
) -> None:
    for done, _ in enumerate(map_in_processes(work, items, processes), start=1):
        progress(label, done, len(items))


@dataclass(frozen=True)
class TrainingTask:
    """Simulated, from a seed: its weights are measured and dropped, and never a release.

    See `measure_predictions` for what it is measured on.
    """

    log: StudyLog
    model: Architecture
    method: TrainingMethod
    seed: int

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        from tacit.entropy import Simulation
        from tacit.train.examples import Examples
        from tacit.train.job.run import run_training
        from tacit.train.plan import PrivatePhase

        train, test = Examples.of(ready.columns, "train"), Examples.of(ready.columns, "test")
        secret = Simulation(f"secret {self.seed}").bytes(32)
        began = time.perf_counter()
        plan = self.method.plan(train, secret=secret, memory=memory)
        planned = time.perf_counter()
        outcome = run_training(plan, self.model, secret=secret, seed=self.seed)
        trained = time.perf_counter()
        predicted = outcome.predict(test)
        private = [phase for phase in plan.phases if isinstance(phase, PrivatePhase)]
        return {
            **measure_predictions(ready, test, predicted),
            "examples": len(train),
            "public_rows": train.sizes.public_rows,
            "sensitive_rows": train.sizes.sensitive_rows,
            "noise_multiplier": private[-1].clipping.noise_multiplier if private else None,
            "steps": plan.steps,
            "planning_seconds": round(planned - began, 3),
            "training_seconds": round(trained - planned, 3),
        }


def measure_predictions(ready: ReadyLog, test: Examples, predicted: NDArray[np.floating]) -> Record:
    """How good predictions for the log's test rows are.

    Where the log's true probabilities are known, figures are expected ones, free of the labels' noise. Else
    they are exact figures on test labels, which is a release of them: for published logs alone.
    """
    from tacit.train.evaluation import measures
    from tacit.train.evaluation.measures import Outcomes

    outcomes = (
        Outcomes.of_labels(test.labels)
        if ready.truth is None
        else Outcomes.of_probabilities(test.at.of(ready.truth))
    )
    return {
        "auc_loss": 1 - measures.auc_value(outcomes, predicted),
        "log_loss": measures.log_loss(outcomes, predicted).value,
        "calibration_ratio": measures.calibration_ratio(outcomes, predicted).value,
        "measured_on": str(outcomes.known),
    }


@dataclass(frozen=True)
class LabelledTask:
    """A task and what a table says of it; `labels` has the seed among them."""

    labels: Labels
    task: StudyTask


class Runs:
    """Records with labels. Whatever is asked of them comes seed by seed, in the order of the seeds.

    `files` are the published files that they were measured on, if any.
    """

    def __init__(self, rows: Sequence[Record], files: Sequence[Path] = ()) -> None:
        self.rows, self.files = rows, files

    @classmethod
    def of(cls, labelled: Sequence[LabelledTask], asked: StudyRequest, label: str) -> Runs:
        """Do what is not done yet. A group of labels may come twice; its record is the same."""
        tasks = [each.task for each in labelled]
        records = run_tasks(tasks, asked.cache, processes=asked.processes, progress=asked.progress, label=label)
        files = dict.fromkeys(task.log.file for task in tasks if task.log.file is not None)
        return cls(
            [{**each.labels, **record} for each, record in zip(labelled, records, strict=True)], [*files]
        )

    def figures(self, figure: str, **labels: Any) -> Floats:
        """One figure of the runs with these labels, one for each seed."""
        found = {
            row["seed"]: row[figure]
            for row in self.rows
            if all(row.get(name) == value for name, value in labels.items())
        }
        if not found:
            raise BadInput(f"expected runs with {labels}, got none")
        return np.array([found[seed] for seed in sorted(found)], dtype=np.float64)

    def percent_over(self, figure: str, base: Labels, **labels: Any) -> Floats:
        """By how many percent the figure is above that of the runs labelled `base`, at the same seed."""
        return 100 * (self.figures(figure, **labels) / self.figures(figure, **base) - 1)

    def table(self) -> dict[str, list[Any]]:
        """All rows by columns; a label that a row does not have is empty."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in names}


def mean(figures: Floats) -> MeasuredValue:
    """The mean over seeds with its interval; of one seed, that one without."""
    if len(figures) < 2:
        return MeasuredValue(float(figures[0]), float(figures[0]), float(figures[0]), 0.0)
    return mean_over_seeds(figures)


def difference(a: Floats, b: Floats) -> MeasuredValue:
    """The mean of a - b at the same seeds; of one seed, its difference, and no end to the interval."""
    if len(a) < 2:
        return MeasuredValue(float(a[0] - b[0]), -np.inf, np.inf, 0.0)
    return mean_difference_over_seeds(a, b)


def words(measured: MeasuredValue, digits: int = 2) -> str:
    """A mean with half the width of its interval, 3.52 ± .31; or with both ends, where it is so far from the
    middle that half the width would say that the interval ends where it does not."""
    reach = (measured.high - measured.low) / 2
    if reach == 0 or not np.isfinite(reach):
        return f"{measured.value:.{digits}f}"
    if abs(measured.value - (measured.low + measured.high) / 2) > LOPSIDED * reach:
        return f"{measured.value:.{digits}f} [{measured.low:.{digits}f}, {measured.high:.{digits}f}]"
    return f"{measured.value:.{digits}f} ± {reach:.{digits}f}"
