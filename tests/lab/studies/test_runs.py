"""Finished work has a name that nothing else has, and work is spread over processes that behave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import BadInput
from tacit.privacy.calibration import CalibrationMemory
from tacit.privacy.units import CapChoice, UnitKind
from tacit.train.methods import Plain
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit_lab.studies import digests
from tacit_lab.studies.digests import digest, package_of, spell_out
from tacit_lab.studies.logs import ReadyLog, StudyLog, log_folder
from tacit_lab.studies.processes import map_in_processes
from tacit_lab.studies.runs import Records, TrainingTask, record_name
from tacit_lab.studies.sweep.runs import SweepRun
from tests.support.repository import ROOT

# Names


@dataclass(frozen=True, eq=False)
class WithPrior:
    """A task with an array, as a public prior would be, and with something that its repr leaves out."""

    log: StudyLog
    prior: np.ndarray[Any, Any]
    hidden: int = field(default=0, repr=False)

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> dict[str, Any]:
        del ready, memory
        return {"sum": float(self.prior.sum())}


LOG = StudyLog("display-small", 1_500, 7)


def test_long_arrays_that_differ_in_the_middle_have_two_names(tmp_path: Path) -> None:
    prior = np.zeros(5_000)
    other = prior.copy()
    other[2_500] = 1
    assert repr(prior) == repr(other), "NumPy shortens both"
    tasks = [WithPrior(LOG, prior), WithPrior(LOG, other), WithPrior(LOG, prior, hidden=1)]
    assert len({record_name(task, tmp_path) for task in tasks}) == 3
    assert record_name(tasks[0], tmp_path) == record_name(WithPrior(LOG, prior.copy()), tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        [None, "None", 0, 0.0, False, "0", b"0", Fraction(0), Decimal(0), np.zeros(()), [0], (0,), {0}, {0: 0}],
        [0.1, np.nextafter(0.1, 1), np.float32(0.1)],
        [np.zeros(2), np.zeros(3), np.zeros((2, 1)), np.zeros(2, np.float32), np.zeros(2, np.int64)],
        [UnitKind.USER, CapChoice.FIRST, "user", Path("user")],
        [("a", "b"), ("a, str 'b'",), (("a",), "b"), ("b", "a")],
        [{"a": 1, "b": 2}, {"a": 2, "b": 1}],
    ],
    ids=str,
)
def test_different_values_are_spelled_differently(values: list[Any]) -> None:
    for one, other in combinations(values, 2):
        assert spell_out(one) != spell_out(other), f"{one!r} and {other!r}"


def test_equal_values_are_spelled_alike() -> None:
    assert spell_out({"a": 1, "b": 2}) == spell_out({"b": 2, "a": 1})
    assert spell_out({"a", "b", "c"}) == spell_out({"c", "b", "a"})
    turned = np.arange(6).reshape(2, 3)
    assert spell_out(turned) == spell_out(np.asfortranarray(turned))


@pytest.mark.parametrize(
    "value",
    [object(), print, (1, object()), np.array([object()])],
    ids=["object", "function", "tuple", "array"],
)
def test_what_cannot_be_spelled_out_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="expected settings that can be spelled out"):
        spell_out(value)


def test_changed_code_changes_the_names_of_trainings_and_of_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every package that decides figures, and the module of the task itself."""
    training = TrainingTask(LOG, FactorizationMachine(2), Plain(), 1)
    run = SweepRun("{}", "place", "test", 1, "data")
    asked: list[tuple[str, ...]] = []

    def code(packages: tuple[str, ...]) -> str:
        asked.append(packages)
        return "now"

    monkeypatch.setattr(digests, "code_digest", code)
    before = record_name(training, log_folder(training.log, tmp_path)), run.digest
    assert {"train", "kernels", "privacy", "data", "tacit_lab/studies/runs"} <= set(asked[-2])
    assert {"train", "kernels", "privacy", "data", "tacit_lab/studies/sweep/runs"} <= set(asked[-1])
    monkeypatch.setattr(digests, "code_digest", lambda packages: "edited" if "train" in packages else "now")
    after = record_name(training, log_folder(training.log, tmp_path)), run.digest
    assert not set(before) & set(after)


def test_code_is_read_and_packages_that_are_not_there_are_no_packages() -> None:
    assert package_of(LOG) == ("tacit_lab/studies/logs",)
    assert package_of(3) == ()
    assert digest("a", packages=("entropy",)) != digest("a", packages=("expect",))
    assert digest("a", "b", packages=()) != digest("ab", packages=())
    with pytest.raises(FileNotFoundError):
        digest("a", packages=("no-such-package",))


# Records


def test_a_record_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(tmp_path / "records")
    assert records.of("a") is None
    records.keep("a", {"loss": 0.5, "refused": None})
    assert records.of("a") == {"loss": 0.5, "refused": None}
    for torn in ('{"loss', "[]", ""):
        records.path("b").write_text(torn)
        assert records.of("b") is None

    def full(_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        records.keep("a", {"loss": 0.7})
    assert records.of("a") == {"loss": 0.5, "refused": None}


# Processes


LOADED_BEFORE = """
import sys
import numpy  # before any worker can say how many threads it wants
import scipy.linalg
sys.path.insert(0, {root!r})
from tests.support.process_work import blas_threads
from tacit_lab.studies.processes import map_in_processes
if __name__ == "__main__":
    print(max(found for _, found in map_in_processes(blas_threads, [1, 2], 2)), flush=True)
"""


def at_two_threads(code: str, folder: Path) -> str:
    """A script's words, run as where somebody asks for two threads."""
    script = folder / "script.py"
    script.write_text(code.format(root=str(ROOT)))
    settings = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")}
    made = subprocess.run(
        [sys.executable, str(script)], env=settings, capture_output=True, text=True, check=True
    )
    return made.stdout.strip()


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists() or (os.cpu_count() or 1) < 2, reason="needs /proc and 2 cores"
)
def test_workers_have_one_thread_even_where_a_script_has_loaded_numpy_before(tmp_path: Path) -> None:
    alone = LOADED_BEFORE.replace("[1, 2], 2)", "[1, 2], 1)")
    assert at_two_threads(alone, tmp_path) == "2", "else this test shows nothing"
    assert at_two_threads(LOADED_BEFORE, tmp_path) == "1"


KILLED = """
import sys
sys.path.insert(0, {root!r})
from tests.support.process_work import Waiting
from pathlib import Path
from tacit_lab.studies.logs import Hashed, StudyLog
from tacit_lab.studies.runs import run_tasks
if __name__ == "__main__":
    folder = Path({folder!r})
    log = StudyLog("display-small", 300, 7, public=Hashed(10), sensitive=Hashed(10))
    run_tasks([Waiting(log, folder, number) for number in (1, 2)], folder, processes=2)
"""


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_killed_study_leaves_no_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(KILLED.format(root=str(ROOT), folder=str(tmp_path)))
    study = subprocess.Popen([sys.executable, str(script)])
    noted = [tmp_path / f"worker-{number}" for number in (1, 2)]
    until(lambda: all(place.exists() and place.read_text() for place in noted))
    workers = [int(place.read_text()) for place in noted]
    assert all(alive(worker) for worker in workers)
    assert study.pid not in workers
    study.send_signal(signal.SIGKILL)
    study.wait()
    until(lambda: not any(alive(worker) for worker in workers), 20)


def test_results_come_with_their_items_and_problems_come_through() -> None:
    assert dict(map_in_processes(abs, [-3, -2, -1], 2)) == {-3: 3, -2: 2, -1: 1}
    assert dict(map_in_processes(abs, [-3], 2)) == {-3: 3}
    assert list(map_in_processes(abs, [], 2)) == []
    with pytest.raises(json.JSONDecodeError):
        list(map_in_processes(json.loads, ["1", "{"], 2))
