"""Many independent measurements: each done once, kept on disk by its digest, spread over processes.

A task is a frozen value whose `repr` says all that its figures depend on. A record is written whole or not at
all, so whoever is interrupted goes on where they were.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tacit.studies.digests import digest
from tacit.studies.logs import Ready, StudyLog, folder_of, is_whole, make, opened
from tacit.studies.study import Track, untracked

if TYPE_CHECKING:
    from tacit.privacy.calibration import Memory

Record = dict[str, Any]  # flat: names to numbers, texts or None
ROOMS = ("data", "schema", "kernels", "train", "entropy", "privacy", "studies/training")


class Task(Protocol):
    @property
    def log(self) -> StudyLog: ...

    def measure(self, ready: Ready, memory: Memory) -> Record:
        """The figures, from the prepared log; `memory` remembers calibrations across tasks."""
        ...


def run_all(
    tasks: Sequence[Task], cache: Path, *, processes: int = 2, track: Track = untracked, label: str = "training"
) -> list[Record]:
    """A record for each task, in order. With one process everything happens in this one."""
    # Places are fixed here and now: a process that starts later must not look elsewhere if code was edited.
    folders = {log: folder_of(log, cache) for log in dict.fromkeys(task.log for task in tasks)}
    places = {task: record_path(task, cache) for task in tasks}
    logs = [(log, folder) for log, folder in folders.items() if not is_whole(folder)]
    _each(make, logs, processes, track, "preparing logs")
    missing = [(task, folders[task.log], place) for task, place in places.items() if not place.exists()]
    answers = cache / "answers.sqlite"
    _each(_measure, [(*each, answers) for each in missing], processes, track, label)
    return [json.loads(places[task].read_text()) for task in tasks]


def record_path(task: Task, cache: Path) -> Path:
    """Where a task's record is, or will be."""
    return cache / "records" / f"{digest(repr(task), rooms=ROOMS)}.json"


def _measure(task: Task, folder: Path, place: Path, answers: Path) -> None:
    from tacit.store.answers import RememberedAnswers

    record = task.measure(opened(folder), RememberedAnswers(answers))
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    unfinished.replace(place)


def _each(
    work: Callable[..., None],
    arguments: Sequence[tuple[Any, ...]],
    processes: int,
    track: Track,
    label: str,
) -> None:
    for done, _ in enumerate(_spread(work, arguments, processes), start=1):
        track(label, done, len(arguments))


def _spread(work: Callable[..., None], arguments: Sequence[tuple[Any, ...]], processes: int) -> Iterator[None]:
    if processes == 1 or len(arguments) < 2:
        for each in arguments:
            work(*each)
            yield
        return
    # Not forked: threads of this process may hold locks that a copy of it would wait for.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=_alone_on_a_core) as pool:
        under_way = [pool.submit(work, *each) for each in arguments]
        try:
            for finished in as_completed(under_way):
                finished.result()
                yield
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _alone_on_a_core() -> None:
    """Each process has one thread: two that share two cores would get in each other's way."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.putenv(name, "1")  # read by libraries that are loaded from now on
