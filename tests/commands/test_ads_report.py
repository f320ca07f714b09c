"""`tacit ads report`: tables, files and refusals, from the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tacit.cli import main
from tacit.deliver.server.advertiser_report import show_day
from tests.commands.test_bill import serve_world
from tests.support.billing_audits import NOW

PERIOD = ("--from", show_day(NOW), "--until", show_day(NOW + 86_400))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    serve_world(made)
    return made


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def run(*arguments: str, code: int = 0) -> None:
    assert main(["ads", "report", "server.toml", *arguments]) == code


def test_what_is_told_is_what_was_charged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bill", "status", "server.toml", "--json"]) == 0
    accounts = json.loads(capsys.readouterr().out)
    by_advertiser: dict[str, int] = {}
    for each in accounts["campaigns"]:
        owed = by_advertiser.get(each["advertiser"], 0)
        by_advertiser[each["advertiser"]] = owed + each["charged_micros"]
    assert len(by_advertiser) > 1
    for advertiser, micros in by_advertiser.items():
        run("--advertiser", advertiser, *PERIOD, "--json")
        told = json.loads(capsys.readouterr().out)
        assert told["total"]["spend_micros"]["value"] == micros
        for by in ("context", "day", "line"):
            run("--advertiser", advertiser, *PERIOD, "--by", by, "--json")
            rows = json.loads(capsys.readouterr().out)["rows"]
            assert sum(row["spend_micros"]["value"] for row in rows) == micros


def test_files_follow_from_their_ending(capsys: pytest.CaptureFixture[str]) -> None:
    whose = ("--advertiser", _an_advertiser(capsys), *PERIOD)
    run(*whose)
    table = capsys.readouterr().out
    assert "impressions, spend, held: (" in table
    for name in ("r.csv", "r.parquet", "r.html", "r.json"):
        run(*whose, "--out", name)
        assert capsys.readouterr().out == f"wrote {name}\n"
        assert Path(name).stat().st_mode & 0o077 == 0
    rows = list(csv.DictReader(io.StringIO(Path("r.csv").read_text())))
    assert [int(row["spend_micros"]) for row in rows] == pq.read_table("r.parquet")["spend_micros"].to_pylist()
    assert Path("r.html").read_text().startswith("<!DOCTYPE html>")
    run(*whose, "--out", "r.csv", code=2)
    run(*whose, "--out", "r.csv", "--overwrite")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--advertiser", "Nobody"), "--advertiser: expected one of"),
        (("--advertiser", "Nobody", "--from", "1970-1-1"), "from: expected a day such as"),
        (("--advertiser", "Nobody", "--out", "x.pdf"), "--out: expected a file that ends in"),
    ],
)
def test_refusals_are_one_line(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(*arguments, code=2)
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert words in told.err


def _an_advertiser(capsys: pytest.CaptureFixture[str]) -> str:
    main(["bill", "status", "server.toml", "--json"])
    return str(json.loads(capsys.readouterr().out)["campaigns"][0]["advertiser"])
