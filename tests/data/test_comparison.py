"""Made-up logs beside real ones: signals against plain counts, and the page's table as it was recorded."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.comparison import ALL, SHRINKAGE, SIDES, compare_logs, field_signals
from tacit.data.logs.definition import Log, load_log
from tacit.data.reading.reader import LogReader
from tacit.errors import BadInput
from tacit.schema.columns import Role
from tests.support.repository import ROOT

RECORDED = json.loads((ROOT / "docs" / "figures" / "compared_logs.json").read_text())
PAGE = (ROOT / "docs" / "generators.md").read_text()
SHOWN = {  # of each log, what stands on the page
    "criteo-search": (
        "examples a user, mean", "user: share with exactly one", "delay in hours, 50%", "delay in hours, 75%",
        "delay in hours, 90%", "partner_id", "product_id", "product_brand", "device_type", "audience_id",
        "user_id", *SIDES.values(), ALL,
    ),
    "criteo-display": ("I1", "I6", "I7", "I11", "C1", "C6", "C14", "C17", *SIDES.values(), ALL),
    "visits": ("users", "examples a user, mean", "examples a user, median", "user: share with exactly one"),
}  # fmt: skip


def few_rows(folder: Path, rows: int = 4_000) -> tuple[Log, Path, dict[str, Any]]:
    """Clicks on four sites, of which two are better; `noise` tells nothing, the sensitive `old` a bit."""
    drawn = np.random.default_rng(5)
    site, noise, old = drawn.integers(0, 4, rows), drawn.integers(0, 3, rows), drawn.integers(0, 2, rows)
    clicked = drawn.random(rows) < 0.1 + 0.3 * (site > 1) + 0.1 * old
    lines = [f"s{a},n{b},o{c},{int(d)}" for a, b, c, d in zip(site, noise, old, clicked, strict=True)]
    (folder / "log.csv").write_text("\n".join(["site,noise,old,clicked", *lines]) + "\n")
    (folder / "log.toml").write_text(
        'name = "few"\n[columns.site]\nrole = "public"\n[columns.noise]\nrole = "public"\n'
        '[columns.old]\nrole = "sensitive"\n[columns.clicked]\nrole = "label"\nkind = "flag"\n'
    )
    columns = {"site": site, "noise": noise, "old": old, "clicked": clicked}
    return load_log(folder / "log.toml"), folder / "log.csv", columns


def auc(truth: Any, score: Any) -> float:
    """Of all pairs, the slow way."""
    ahead = score[truth][:, None] - score[~truth][None]
    return float(((ahead > 0) + (ahead == 0) / 2).mean())


def test_signals_are_those_of_plain_counts(tmp_path: Path) -> None:
    log, path, columns = few_rows(tmp_path)
    found = field_signals(LogReader(log, path), rows=10_000)
    clicked, odds = columns["clicked"], {}
    rate = clicked[::2].mean()
    for name in ("site", "noise", "old"):
        values = columns[name]
        own = {
            value: (clicked[::2][values[::2] == value].sum() + SHRINKAGE * rate)
            / ((values[::2] == value).sum() + SHRINKAGE)
            for value in np.unique(values)
        }
        score = np.array([own[value] for value in values[1::2]])
        odds[name] = np.log(score / (1 - score))
        assert found[name] == pytest.approx(auc(clicked[1::2], score), abs=1e-12)
    assert found[ALL] == pytest.approx(auc(clicked[1::2], sum(odds.values())), abs=1e-12)
    assert found[SIDES[Role.SENSITIVE]] == found["old"]
    assert found[SIDES[Role.PUBLIC]] > 0.6 > 0.55 > found["noise"], "what tells something is seen"
    fewer = field_signals(LogReader(log, path), rows=1_000)
    assert fewer["site"] != found["site"], "as many rows as were asked for"


def test_a_label_that_is_always_the_same_has_no_signals(tmp_path: Path) -> None:
    log, path, _ = few_rows(tmp_path)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *(f"{line[:-1]}1" for line in lines)]) + "\n")
    assert field_signals(LogReader(log, path), rows=1_000) == {}


def test_two_logs_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    log, path, _ = few_rows(tmp_path)
    other = replace(log, name="others")
    with pytest.raises(BadInput, match="expected two files of one log, got few and others"):
        compare_logs(LogReader(log, path), LogReader(other, path), rows=100)


def test_the_command_shows_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "search.parquet")
    assert main(["data", "generate", "criteo-search", "--rows", "3000", "--seed", "2", "--out", path]) == 0
    capsys.readouterr()
    command = ["data", "compare", "criteo-search", path, "--rows", "3000"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "What each tells about the label, as AUC alone, in 3,000 rows of each" in told
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == RECORDED["criteo-search"].keys()
    rates = next(each for each in found["figures"] if each["name"] == "positive rate")
    assert rates["made_up"] == pytest.approx(0.108, abs=0.03)  # 5 standard deviations
    assert rates["made_up"] != rates["file"], "two seeds"
    assert main(["data", "compare", "criteo-search", str(tmp_path / "nothing")]) == 2


def cell(value: float) -> str:
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.removeprefix("0") if text.startswith("0.") else text


@pytest.mark.parametrize("log", SHOWN)
def test_the_page_has_the_recorded_figures(log: str) -> None:
    recorded = RECORDED[log]
    found = {each["name"]: each for each in (*recorded["figures"], *recorded["signals"])}
    for name in SHOWN[log]:
        words = name if name in {each["name"] for each in recorded["figures"]} else f"AUC of {name}"
        assert f"| {words} | {cell(found[name]['made_up'])} | {cell(found[name]['file'])} |" in PAGE


@pytest.mark.slow
def test_the_recorded_figures_are_those_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.environ.get("TACIT_DATA")
    if folder is None or not (Path(folder) / "criteo_display_10k.tsv").is_file():
        pytest.skip("TACIT_DATA is not set or has no criteo_display_10k.tsv: no sample to compare with")
    path = str(Path(folder) / "criteo_display_10k.tsv")
    assert main(["data", "compare", "criteo-display", path, "--rows", "10000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for part in ("figures", "signals"):
        for ours, theirs in zip(found[part], RECORDED["criteo-display"][part], strict=True):
            assert ours["name"] == theirs["name"]
            assert ours["file"] == pytest.approx(theirs["file"], abs=1e-4)
