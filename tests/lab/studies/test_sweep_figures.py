"""What a sweep shows: intervals only where seeds allow them and within what a figure can be, and which k."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tacit.cli import main
from tacit_lab.studies.sweep import frontier
from tacit_lab.studies.sweep.frontier import BestPoint, TriedPoint
from tacit_lab.studies.sweep.grid import parse_sweep
from tests.support.training_logs import called_synthetic, prepared, written

BASE: dict[str, Any] = {
    "data": "log",
    "model": {"name": "logistic"},
    "privacy": {"method": "hybrid", "delta": 1e-5},
    "labels": {"epochs": 1, "batch": 64},
    "descent": {"epochs": 1, "batch": 64},
}


def tried(
    *losses: float, k: float | None = None, lists: Mapping[str, Any] = MappingProxyType({})
) -> TriedPoint:
    sweep = parse_sweep({**BASE, "sweep": {"epsilon": [1], **lists}}, Path("somewhere/sweep.toml"))
    records = [{"auc_loss": loss, "log_loss": loss, "calibration_ratio": loss} for loss in losses]
    return TriedPoint(sweep.points[0], records, k)


def test_few_seeds_have_no_interval() -> None:
    for losses in [(0.3,), (0.3, 0.2), (0.3, 0.2, 0.4)]:
        few = tried(*losses)
        assert few.figure("auc_loss").low == few.figure("auc_loss").high == few.figure("auc_loss").value
        assert few.figure_json("auc_loss") | {"value": 0} == {
            "value": 0,
            "low": None,
            "high": None,
            "level": None,
        }
        assert frontier._line(few.line, False, [few]).low is None
    enough = tried(0.3, 0.2, 0.4, 0.3)
    found = enough.figure("auc_loss")
    assert 0 < found.low < 0.2 < found.value < 0.4 < found.high < 1
    assert enough.figure_json("auc_loss")["level"] == 0.95
    assert frontier._line(enough.line, False, [enough]).low == [found.low]


def test_intervals_stay_within_what_a_figure_can_be() -> None:
    wide = tried(0.0, 0.9, 0.05, 1.0)
    auc = wide.figure("auc_loss")
    assert (auc.low, auc.high) == (0, 1)
    assert wide.figure("log_loss").low == 0
    assert wide.figure("log_loss").high > 1, "which log loss may be"


@pytest.mark.parametrize(
    ("lists", "k", "words"),
    [
        ({}, 0.375, "k 0.375 (auto)"),
        ({"k": ["auto"]}, 0.375, "k 0.375 (auto)"),
        ({"k": [0.25]}, 0.25, "k 0.25"),
        ({"method": ["dp-sgd"]}, None, ""),
    ],
)
def test_the_hybrid_says_which_k(lists: dict[str, Any], k: float | None, words: str) -> None:
    point = tried(0.3, k=k, lists=lists)
    assert point.other_settings == words
    assert BestPoint(point, 1).as_json()["k"] == k


def test_a_sweep_of_two_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called_synthetic(prepared(tmp_path))
    config = written(tmp_path / "sweep.toml", {**BASE, "sweep": {"epsilon": [8], "seeds": 2}})
    capsys.readouterr()
    assert main(["sweep", str(config), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "2 seeds each; 2 seeds: no interval (from 4 on)" in said
    assert "(auto)" in said
    assert "±" not in said
    with (tmp_path / "sweep-sweep" / "sweep-frontier.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["low"], row["high"]) == ("", "")
    assert row["settings"].endswith("(auto)")
    assert "2 seeds: no interval" in (tmp_path / "sweep-sweep" / "sweep-frontier.svg").read_text()
    assert main(["sweep", str(config), "--jobs", "1", "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)["frontier"]
    assert (best["auc_loss"]["low"], best["seeds"]) == (None, 2)
    assert f"k {best['k']:.3g} (auto)" == row["settings"]
