"""`tacit serve plan`: the table, what to write down, JSON that makes the same menus, one line for mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.cli import main

COUNTS = """\
city,topic,count
Berlin,Coffee,90000
Berlin,Yoga,50000
Berlin,Chess,900
Paris,Coffee,40000
Paris,Yoga,300
"""


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    file = tmp_path / "counts.csv"
    file.write_text(COUNTS)
    return file


def test_the_table_says_which_epoch_and_what_to_write(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "plan", str(counts), "--epsilon", "3", "--epoch", "10", "--epoch", "60"]) == 0
    shown = capsys.readouterr().out
    assert "181,200 requests per day in 5 contexts; a menu needs 736 reports, 801 on average" in shown
    rows = [line.split() for line in shown.splitlines() if line.split()[1:2] in (["min"], ["h"])]
    assert rows[0][:4] == ["10", "min", "1", "100%"]
    assert rows[1][:5] == ["1", "h", "*", "3", "100%"]
    assert "  epoch_seconds = 3600\n  epsilon = 3\n  smallest_cohort = 736\n" in shown
    assert "a [[menu]] for each of these 3 contexts" in shown


def test_json_has_every_menu(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "plan", str(counts), "--epsilon", "3", "--epoch", "60", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    chosen = record["chosen"]
    assert [(each["levels"], each["values"], each["without"]) for each in chosen["menus"]] == [
        ([0, 0], ["Berlin", "Coffee"], []),
        ([0, 1], ["Berlin", "*"], [["Berlin", "Coffee"]]),
        ([0, 1], ["Paris", "*"], []),
    ]
    assert chosen["hidden_share"] == 1
    assert sum(each["share"] for each in chosen["levels"]) == pytest.approx(1)
    assert all(each["epsilon"] <= 1 and each["undersized"] <= 0.01 for each in chosen["menus"])
    assert record["plans"][0]["hidden_share_if_exact"] == pytest.approx(180_000 / 181_200)


def test_a_hierarchy_and_quiet_nights(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hierarchy = counts.parent / "contexts.toml"
    hierarchy.write_text(
        '[[attribute]]\nname = "city"\npaths = ["Berlin", "Paris"]\n'
        '[[attribute]]\nname = "topic"\npaths = ["Food > Coffee", "Free time > Yoga", "Free time > Chess"]\n'
        "[sequence]\nsteps = [[0, 0], [0, 1], [1, 1]]\n"
    )
    asked = ["serve", "plan", str(counts), "--hierarchy", str(hierarchy), "--epsilon", "3", "--json"]
    asked += ["--epoch", "180"]
    assert main(asked) == 0
    usual = json.loads(capsys.readouterr().out)["chosen"]["menus"]
    assert [each["values"] for each in usual] == [["Berlin", "Coffee"], ["*", "Free time"], ["Paris", "Coffee"]]
    assert main([*asked, "--quietest", "0.1", "--days", "2"]) == 0
    assert len(json.loads(capsys.readouterr().out)["chosen"]["menus"]) < len(usual)


def test_too_little_traffic_says_what_would_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "few.csv").write_text("city,count\nBerlin,600\n")
    assert main(["serve", "plan", str(tmp_path / "few.csv"), "--epsilon", "3"]) == 0
    shown = capsys.readouterr().out
    assert "all requests together make 600 reports in 1 d, and 801 are needed" in shown
    assert "what would help: --epsilon 2.7" in shown
    assert main(["serve", "plan", str(tmp_path / "few.csv"), "--epsilon", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"] is None
    assert main(["serve", "plan", str(tmp_path / "few.csv"), "--epsilon", "2.7"]) == 0
    assert "smallest_cohort" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epsilon", "none"], "expected --epsilon to be a finite number"),
        (["--epsilon", "-3"], "expected --epsilon > 0"),
        (["--epsilon", "3", "--target", "0"], "expected --target > 0"),
        (["--epsilon", "3", "--delta", "2"], "expected --delta"),
        (["--epsilon", "3", "--undersized", "0"], "expected --undersized"),
        (["--epsilon", "3", "--epoch", "0"], "expected --epoch > 0"),
        (
            ["--epsilon", "3", "--epoch", "100000"],
            "expected --epoch in minutes, whole seconds and at most 7 days",
        ),
        (["--epsilon", "3", "--quietest", "0"], "expected --quietest"),
        (["--epsilon", "3", "--per-device", "1.5"], "expected --per-device to be a whole number"),
        (["--epsilon", "3", "--days", "0"], "expected --days > 0"),
        (["--epsilon", "3", "--keep", "2"], "expected --keep"),
        (["--epsilon", "3", "--hierarchy", "nothing.toml"], "nothing.toml: expected a hierarchy of contexts"),
    ],
)
def test_mistakes_are_one_line(
    options: list[str], words: str, counts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "plan", str(counts), *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_bad_count_is_named_by_line_and_column(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts.write_text(COUNTS + "Rome,Coffee,lots\n")
    assert main(["serve", "plan", str(counts), "--epsilon", "3"]) == 2
    assert (
        "counts.csv: line 7: column count: expected a number of requests, got 'lots'" in capsys.readouterr().err
    )
