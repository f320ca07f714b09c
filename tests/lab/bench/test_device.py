"""The device suite at toy size, in a real browser where there is one; what is missing is said."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tacit.errors import BadInput
from tacit.services.page.device_files import PREBID, read_client
from tacit_lab.bench import device
from tacit_lab.bench.device_page import (
    Bundler,
    Task,
    missing_browser,
    tasks_between,
    write_market,
)
from tacit_lab.bench.measurement import Item

TOY = device.DeviceScale(candidates=6, ads=2, turns=3, token_rounds=1, choices=200)
FOUND = Bundler.found()
MISSING = missing_browser()
needs_bundler = pytest.mark.skipif(bool(FOUND.missing), reason=f"NOT COMPARED: {FOUND.missing}")
BARS = {
    "client_bytes": 12_288, "client_bytes_bare": None, "client_bytes_minified": None, "adapter_bytes": 3_072,
    "token_code_size": 5.0, "main_thread_task": 5.0, "main_thread_task_wall": None, "main_thread_ad": None,
    "main_thread_task_opening": None, "worker_turn": 15.0, "worker_turn_p95": None,
    "worker_turn_processor": None,
    "blind_finalize_vs_blindrsa": 20.0, "choices_match": 1e-6,
}  # fmt: skip


def plain(items: Sequence[Item], label: str) -> Iterable[Item]:  # noqa: ARG001
    return items


@pytest.mark.skipif(bool(MISSING), reason=f"NOT TRIED IN A BROWSER: {MISSING}")
@needs_bundler
@pytest.mark.slow
def test_the_suite_runs_and_names_every_bar() -> None:
    measured = {each.name: each for each in device.run(plain, TOY)}
    assert {name: each.bar for name, each in measured.items()} == BARS
    assert all(each.value > 0 for each in measured.values()), "so little is done that speeds say nothing here"
    assert measured["choices_match"].holds
    assert measured["token_code_size"].holds
    sizes = [measured[f"client_bytes{kind}"].value for kind in ("", "_bare", "_minified")]
    assert sizes == sorted(sizes, reverse=True)
    assert measured["worker_turn"].value <= measured["worker_turn_p95"].value


def test_what_is_missing_is_said_and_bytes_are_measured_without_it(tmp_path: Path) -> None:
    bundler = Bundler(tmp_path)
    measured = {each.name: each for each in device.run(plain, TOY, bundler, "there is no browser")}
    absent = {name for name, each in measured.items() if math.isnan(each.value)}
    in_browser = {"main_thread_task", "worker_turn", "blind_finalize_vs_blindrsa", "choices_match"}
    assert absent == in_browser | {"client_bytes_minified", "token_code_size"}
    for name in absent:
        why = "there is no browser" if name in in_browser else bundler.missing
        assert measured[name].settings == f"not measured: {why}"
        assert measured[name].holds is None
    assert "esbuild and @cloudflare/blindrsa-ts" in bundler.missing
    assert measured["client_bytes_written"].value > measured["client_bytes"].value > 1_000
    assert measured["adapter_bytes"].value > 500


@pytest.mark.parametrize(
    ("counts", "words", "holds"),
    [
        ([500, 250, 250], [2, 1, 1], True),
        ([530, 240, 230], [2, 1, 1], True),
        ([400, 300, 300], [2, 1, 1], False),
        ([500, 250, 249, 1], [2, 1, 1, 0], False),
        ([334, 333, 333], [2, 1, 1], False),
        ([500, 497, 2, 1], [500, 498, 1, 1], True),
        ([500, 460, 20, 20], [500, 498, 1, 1], True),
        ([400, 397, 100, 103], [500, 498, 1, 1], False),
    ],
)
def test_a_law_that_is_not_kept_is_told(counts: list[int], words: list[int], holds: bool) -> None:
    assert (device.chi_square_tail(counts, words) >= device.FALSE_ALARM) == holds


def test_the_tail_is_that_of_chi_square() -> None:
    """Of two cells: the square of a normal. 1.96 deviations are left by one in twenty."""
    drawn = 10_000
    away = round(1.959964 * math.sqrt(drawn) / 2)
    found = device.chi_square_tail([drawn // 2 + away, drawn // 2 - away], [1, 1])
    assert found == pytest.approx(0.05, abs=2e-4)
    with pytest.raises(BadInput, match="enough"):
        device.chi_square_tail([3, 3], [1, 1])


def test_tasks_are_those_of_one_thread_between_its_marks() -> None:
    def event(name: str, at: int, length: int, thread: int = 1, **more: int) -> dict[str, object]:
        return {"name": name, "ts": at, "dur": length, "pid": 7, "tid": thread, **more}

    task, begun, ended = "ThreadControllerImpl::RunTask", {"tdur": 1_000}, {"tdur": 500}
    events = [
        event(task, 0, 90, tdur=90),
        event(task, 95, 2_000, **begun),
        event("begin", 100, 0),
        event(task, 2_200, 9_000, thread=2),
        event("another", 2_300, 9_000),
        event(task, 2_400, 600, **ended),
        event(task, 3_100, 300),
        event("end", 3_200, 0),
        event(task, 3_500, 9_000),
    ]
    assert tasks_between(events, "begin", "end") == [Task(2.0, 1.0), Task(0.6, 0.5), Task(0.3, 0.3)]
    with pytest.raises(BadInput, match="the marks begin and never"):
        tasks_between(events, "begin", "never")


@needs_bundler
def test_the_client_without_comments_is_the_same_client(tmp_path: Path) -> None:
    for commented in (True, False):
        folder = tmp_path / str(commented)
        (folder / PREBID).mkdir(parents=True)
        for name, source in read_client(commented=commented).items():
            (folder / name).write_bytes(source)
    assert FOUND.whole_client(tmp_path / "False") == FOUND.whole_client(tmp_path / "True")
    adapters = [(tmp_path / each / PREBID / "bids.js").read_bytes() for each in ("False", "True")]
    assert len(adapters[0]) < len(adapters[1])


def test_the_market_has_as_many_candidates_as_are_asked_for(tmp_path: Path) -> None:
    write_market(tmp_path / "market", 20)
    assert (tmp_path / "market" / "campaigns.toml").read_text().count("[[campaign]]") == 20
    said = (tmp_path / "market" / "market.toml").read_text()
    assert "candidates = 20 " in said
    assert "epoch_seconds = 86_400 " in said
