"""Trainings with their labels, and figures of them seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.studies.records import Record
from tacit.studies.study import Asked
from tacit.studies.tasks import Task, run_all
from tacit.train.evaluation.estimates import Measured
from tacit.train.evaluation.seeds import over_seeds, paired_seeds

Floats = NDArray[np.float64]
Labels = Mapping[str, Any]

LOPSIDED = 0.25  # of half its width, from the middle of an interval


@dataclass(frozen=True)
class Labelled:
    """A task and what a table says of it; `labels` has the seed among them."""

    labels: Labels
    task: Task


class Runs:
    """Records with labels. Whatever is asked of them comes seed by seed, in the order of the seeds.

    `files` are the published files that they were measured on, if any.
    """

    def __init__(self, rows: Sequence[Record], files: Sequence[Path] = ()) -> None:
        self.rows, self.files = rows, files

    @classmethod
    def of(cls, labelled: Sequence[Labelled], asked: Asked, label: str) -> Runs:
        """Do what is not done yet. A group of labels may come twice; its record is the same."""
        tasks = [each.task for each in labelled]
        records = run_all(tasks, asked.cache, processes=asked.processes, track=asked.track, label=label)
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


def mean(figures: Floats) -> Measured:
    """The mean over seeds with its interval; of one seed, that one without."""
    if len(figures) < 2:
        return Measured(float(figures[0]), float(figures[0]), float(figures[0]), 0.0)
    return over_seeds(figures)


def difference(a: Floats, b: Floats) -> Measured:
    """The mean of a - b at the same seeds; of one seed, its difference, and no end to the interval."""
    if len(a) < 2:
        return Measured(float(a[0] - b[0]), -np.inf, np.inf, 0.0)
    return paired_seeds(a, b)


def words(measured: Measured, digits: int = 2) -> str:
    """A mean with half the width of its interval, 3.52 ± .31; or with both ends, where it is so far from the
    middle that half the width would say that the interval ends where it does not."""
    reach = (measured.high - measured.low) / 2
    if reach == 0 or not np.isfinite(reach):
        return f"{measured.value:.{digits}f}"
    if abs(measured.value - (measured.low + measured.high) / 2) > LOPSIDED * reach:
        return f"{measured.value:.{digits}f} [{measured.low:.{digits}f}, {measured.high:.{digits}f}]"
    return f"{measured.value:.{digits}f} ± {reach:.{digits}f}"
