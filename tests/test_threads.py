"""Threads that wait sleep, so that a busy machine costs no more than its share, unless somebody says so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tacit import threads

SET = (threads.WAIT_POLICY, threads.SPIN_COUNT, *threads.THREAD_NUMBERS)


def found_gomp() -> Path | None:
    """The OpenMP that comes with torch: it says on stderr, when it is loaded, what it was told."""
    torch = find_spec("torch")
    places = [] if torch is None or torch.origin is None else Path(torch.origin).parent.glob("lib/libgomp*")
    return next(iter(places), None)


GOMP = found_gomp()
LOADING = """
import ctypes, sys
from tacit.cli import main
assert not {"numpy", "torch"} & set(sys.modules)
try:
    main(["--version"])
except SystemExit:
    pass
ctypes.CDLL(sys.argv[1])
"""


@pytest.mark.skipif(GOMP is None, reason="needs torch with GNU OpenMP")
@pytest.mark.parametrize(("given", "spins"), [({}, "0"), ({"GOMP_SPINCOUNT": "123"}, "123")])
def test_a_command_tells_torch_to_wait_asleep_before_it_is_loaded(given: dict[str, str], spins: str) -> None:
    outside = {name: value for name, value in os.environ.items() if name not in SET}
    told = {**outside, **given, "OMP_DISPLAY_ENV": "VERBOSE"}
    said = subprocess.run(
        [sys.executable, "-c", LOADING, str(GOMP)], env=told, capture_output=True, text=True, check=True
    ).stderr
    assert f"GOMP_SPINCOUNT = '{spins}'" in said


def test_small_models_have_few_threads_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SET:
        monkeypatch.setenv(name, "x")  # so that it is put back
        monkeypatch.delenv(name)
    threads.limit_threads(1)
    assert {os.environ[name] for name in threads.THREAD_NUMBERS} == {"1"}
    threads.limit_threads(10**6)
    assert {os.environ[name] for name in threads.THREAD_NUMBERS} == {"1"}  # said already, and it stays
    for name in threads.THREAD_NUMBERS:
        monkeypatch.delenv(name)
    threads.limit_threads(10**6)
    assert int(os.environ["OMP_NUM_THREADS"]) <= (os.cpu_count() or 1)
    monkeypatch.setenv(threads.SPIN_COUNT, "1000")
    threads.set_passive_waiting()
    assert threads.WAIT_POLICY not in os.environ


SMALL_STEPS = """
import time, torch
a = torch.randn(256, 256)
b = torch.randn(300_000)
began = time.process_time()
for _ in range(30):
    (a @ a).sum()
    torch.tanh(b).sum()
print(time.process_time() - began)
"""


def processor_seconds(**told: str) -> float:
    outside = {name: value for name, value in os.environ.items() if name not in SET}
    made = subprocess.run(
        [sys.executable, "-c", SMALL_STEPS], env={**outside, **told}, capture_output=True, text=True, check=True
    )
    return float(made.stdout)


@pytest.mark.slow
@pytest.mark.skipif(GOMP is None or (os.cpu_count() or 1) < 2, reason="needs torch and 2 cores")
def test_sleeping_threads_take_no_processor_on_a_busy_machine() -> None:
    """Beside three busy loops, which end by themselves; spinning threads are the twin that shows it."""
    cores = str(os.cpu_count())
    busy = [
        subprocess.Popen(
            [sys.executable, "-c", "import time; end = time.time() + 60\nwhile time.time() < end: 0"]
        )
        for _ in range(3)
    ]
    try:
        time.sleep(1)
        alone = processor_seconds(OMP_NUM_THREADS="1")
        asleep = processor_seconds(OMP_NUM_THREADS=cores, OMP_WAIT_POLICY="PASSIVE")
        spinning = processor_seconds(OMP_NUM_THREADS=cores, OMP_WAIT_POLICY="ACTIVE")
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert asleep < 1.6 * alone
    assert spinning > 1.3 * asleep
