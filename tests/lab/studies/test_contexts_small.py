"""The studies of contexts on people's own small logs: what cannot be measured is said, not drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import BadInput
from tacit_lab.studies import results
from tacit_lab.studies.contexts.bootstrap import bootstrap_interval
from tacit_lab.studies.contexts.greedy import histogram
from tacit_lab.studies.contexts.setting import trial_sources
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.study import StudyRequest, StudyScale


def own_log(folder: Path, places: Callable[[int, int], int], rows: int = 120, more: str = "") -> Path:
    """A log of six people, whose n-th visit is to the place of this number."""
    lines = ["user,time,place,category_path,latitude,longitude"]
    for at in range(rows):
        place = places(at % 6, at // 6)
        lines.append(f"u{at % 6},{at},p{place},Root{place % 2}>Kind{place % 5},{40 + place % 3 / 10},-73.9")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n" + more)
    return folder


REGULARS, DISCOVERERS = (lambda person, _: person), (lambda person, n: person + 6 * n)
SMALL_LOGS = {"first visits": REGULARS, "repeats": DISCOVERERS}


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("contexts-threshold", "first visits"),
        ("contexts-threshold", "repeats"),
        ("contexts-ads", "repeats"),
        ("contexts-disclosure", "first visits"),
        ("contexts-shrinkage", "first visits"),
        ("contexts-history", "first visits"),
        ("contexts-private", "first visits"),
        ("contexts-private", "repeats"),
    ],
)
def test_a_group_without_requests_is_left_out_and_said(name: str, lacking: str, tmp_path: Path) -> None:
    data = own_log(tmp_path, SMALL_LOGS[lacking])
    found = load_study(name).outcome(StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=data))
    assert f"114 visits, 12 of them tested, no {lacking} among them" in found.note
    listed = [*found.columns, *(cell for row in found.rows for cell in row)]
    assert not any(lacking in each or "nan" in each for each in listed)
    assert not any("nan" in finding.seen or "inf" in finding.seen for finding in found.findings)
    table = results.read_table(tmp_path / "out", name)
    assert lacking not in table["requests"]
    assert "all" in table["requests"]


def test_a_threshold_at_which_nothing_is_shown_has_no_precision(tmp_path: Path) -> None:
    asked = StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=own_log(tmp_path, DISCOVERERS))
    found = load_study("contexts-threshold").outcome(asked)
    table = results.read_table(tmp_path / "out", "contexts-threshold")
    last = {metric: value for metric, value in zip(table["metric"], table["value"], strict=True) if metric}
    assert last == {"precision": None, "coverage": 0.0}
    assert found.rows[-1] == ["0.9", "none", "0.00", "none", "0.00"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (0, "expected examples, got none among 0 rows"),
        (12, "at least 3 visits, got none"),
        (16, "expected a trace of at least 10 requests, got 8"),
    ],
)
def test_a_log_that_is_too_small_is_refused_in_one_line(rows: int, said: str, tmp_path: Path) -> None:
    data = own_log(tmp_path, REGULARS, rows)
    with pytest.raises(BadInput, match=rf"visits.csv: .*{said}"):
        trial_sources(StudyRequest(tmp_path, StudyScale.TOY, seeds=1, data=data))[0].trial()


def test_a_log_on_which_the_cut_has_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    data = own_log(tmp_path, REGULARS)
    with pytest.raises(BadInput, match=r"covers less than 0.3 and another covers more, got one without"):
        load_study("contexts-cut").outcome(StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=data))


def test_bad_rows_of_a_log_are_counted_in_the_words(tmp_path: Path) -> None:
    for bad, said in (
        ("u1,late,p1,A>B,40,-70\n", "1 bad row"),
        ("u1,9,p1,A>B,,\nu1,9,,A>B,40,-70\n", "2 bad rows"),
    ):
        data = own_log(tmp_path, REGULARS, more=bad)
        found = load_study("contexts-private").outcome(
            StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=data)
        )
        assert f"114 visits ({said} left out), 12 of them tested" in found.note


def test_the_bar_of_optimal_sets_has_no_others() -> None:
    bars = histogram("alike", [0.5, 0.96, 0.965, 0.99909, 1 - 1e-9, 1.0, 1 + 1e-16])
    assert dict(zip(bars.labels, bars.heights, strict=True)) == {
        "0.96": 2, "0.97": 1, "0.98": 0, "0.99": 0, "<1": 2, "1": 2
    }  # fmt: skip


def test_a_percentage_of_nothing_leaves_the_interval_open() -> None:
    found = bootstrap_interval(np.array([75.0, *np.linspace(-40, 100, 960), *np.full(40, np.inf)]))
    assert (found.value, found.high) == (75.0, np.inf)
    assert -40 < found.low < -30
