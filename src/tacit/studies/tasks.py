"""Many independent measurements: each done once, kept on disk by its digest, spread over processes.

A task is a frozen value whose fields say all that its figures depend on. A record is written whole or not at
all, so whoever is interrupted goes on where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tacit.studies.digests import TRAINING, digest, room_of, spelled
from tacit.studies.logs import Ready, StudyLog, folder_of, is_whole, make, opened
from tacit.studies.processes import Item, spread
from tacit.studies.records import Record, Records
from tacit.studies.study import Track, untracked

if TYPE_CHECKING:
    from tacit.privacy.calibration import Memory


class Task(Protocol):
    """One measurement. One whose figures hang on the code of more rooms than training's names them: `rooms`."""

    @property
    def log(self) -> StudyLog: ...

    def measure(self, ready: Ready, memory: Memory) -> Record:
        """The figures, from the prepared log; `memory` remembers calibrations across tasks."""
        ...


def run_all(
    tasks: Sequence[Task], cache: Path, *, processes: int = 2, track: Track = untracked, label: str = "training"
) -> list[Record]:
    """A record for each task, in order. With one process everything happens in this one."""
    # Names are fixed here and now: a process that starts later must not look elsewhere if code was edited.
    folders = {log: folder_of(log, cache) for log in dict.fromkeys(task.log for task in tasks)}
    names = [_name(task, folders[task.log]) for task in tasks]
    logs = [(log, folder) for log, folder in folders.items() if not is_whole(folder)]
    _each(_make, logs, processes, track, "preparing logs")
    records, answers = _records(cache), cache / "answers.sqlite"
    missing = {
        name: (task, folders[task.log], records, name, answers)
        for name, task in zip(names, tasks, strict=True)
        if records.of(name) is None
    }
    _each(_measure, list(missing.values()), processes, track, label)
    return [_found(records, name) for name in names]


def record_path(task: Task, cache: Path) -> Path:
    """Where a task's record is, or will be."""
    return _records(cache).path(_name(task, folder_of(task.log, cache)))


def _records(cache: Path) -> Records:
    return Records(cache / "records")


def _name(task: Task, folder: Path) -> str:
    """Of the task, its log as it is now (the folder's name says it), and the code that measures."""
    rooms = (*TRAINING, *getattr(task, "rooms", ()), *room_of(task))
    return digest(spelled(task), folder.name, rooms=rooms)


def _found(records: Records, name: str) -> Record:
    record = records.of(name)
    assert record is not None, "it was there, or was made just now"
    return record


def _make(asked: tuple[StudyLog, Path]) -> None:
    make(*asked)


def _measure(asked: tuple[Task, Path, Records, str, Path]) -> None:
    from tacit.store.answers import RememberedAnswers

    task, folder, records, name, answers = asked
    records.keep(name, task.measure(opened(folder), RememberedAnswers(answers)))


def _each(
    work: Callable[[Item], None], items: Sequence[Item], processes: int, track: Track, label: str
) -> None:
    for done, _ in enumerate(spread(work, items, processes), start=1):
        track(label, done, len(items))
