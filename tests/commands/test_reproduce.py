"""`tacit reproduce`: one study or all of them, whatever becomes of one."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tacit
import tacit_lab.studies.book as books
from tacit.cli import main
from tacit.errors import BadInput
from tacit_lab.studies import registry
from tacit_lab.studies.study import StudyInputs, StudyScale
from tests.support.tiny_studies import Tiny
from tests.support.tiny_studies import tiny as tiny  # a fixture


def test_verdicts_are_printed_for_people_and_machines(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tiny.out)]
    assert main(["reproduce", "choice-tiny", "gather-tiny", "--json", *out]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [(record["study"], record["name"], record["holds"]) for record in records] == [
        ("choice-tiny", "R1", True),
        ("choice-tiny", "R1", False),
        ("choice-tiny", "R1", None),
        ("choice-tiny", "T1", True),
        ("gather-tiny", "R2", True),
    ]
    assert all(record.keys() >= {"value", "bar", "files", "note", "verdict"} for record in records)
    asked = tiny.first.runs[0]
    assert (asked.scale, asked.seeds, asked.out, asked.processes) == (StudyScale.SMALL, 2, tiny.out, 2)
    again = ["reproduce", "choice-tiny", "--scale", "toy", "--seeds", "3", "--processes", "1", *out]
    assert main(again) == 0
    told = capsys.readouterr().out
    assert "R1 undecided (toy scale decides nothing): prices rise (market 0)" in told
    assert "rule: gain above 0" in told
    assert "synthetic" in told
    assert "nothing has changed" not in told
    asked = tiny.first.runs[-1]
    assert (asked.scale, asked.seeds, asked.processes) == (StudyScale.TOY, 3, 1)
    assert main(again) == 0
    assert "kept from before: nothing has changed" in capsys.readouterr().out
    assert len(tiny.first.runs) == 2
    assert not (tiny.out / "index.html").exists(), "the book is of all"


def test_all_has_a_line_for_each_and_a_book(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "all", "--out", str(tiny.out)]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    took = r"\d+ s \(\d+ s so far\)"
    assert re.fullmatch(rf"study 1 of 2: choice-tiny, {took}; R1 fails on 1 of 3; T1 holds", lines[0])
    assert re.fullmatch(rf"study 2 of 2: gather-tiny, {took}; R2 holds", lines[1])
    assert f"the book: {tiny.out / 'index.html'}" in lines
    assert main(command) == 0
    assert "study 1 of 2: choice-tiny, kept, nothing changed" in capsys.readouterr().out


def test_all_on_files_does_what_these_allow_and_names_the_rest(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "visits.csv").write_text("a\n")
    (logs / "visits_jakarta.csv").write_text("a\n")
    cities = {"": ("visits",), "jakarta": ("visits_jakarta",), "paris": ("visits_paris",)}
    inputs = StudyInputs(("visits",), cities, {StudyScale.SMALL: 90.0})
    tiny.studies["gather-tiny"] = replace(tiny.studies["gather-tiny"], inputs=inputs)
    fish = replace(tiny.studies["choice-tiny"], name="other-tiny", inputs=StudyInputs(("fish",)))
    tiny.studies["other-tiny"] = fish
    registry.STUDIES["other-tiny"] = ""
    tiny.first.fails = BadInput("expected no --data for this study, got logs: it makes its own up")
    command = ["reproduce", "all", "--data", str(logs), "--out", str(tiny.out)]
    assert main(command) == 0, "what no file allows is no failure"
    out, err = capsys.readouterr()
    first, *others = err.splitlines()
    assert first.startswith(
        f"tacit reproduce: 2 studies that {logs} may allow, about 90 min at small scale on two cores, less "
    )
    assert others == [
        f"tacit reproduce: other-tiny is not for these files: it needs fish, which {logs} has not",
        f"tacit reproduce: choice-tiny is not for these files: {tiny.first.fails}",
    ]
    assert [(asked.city, asked.out) for asked in tiny.second.runs] == [
        ("", tiny.out),
        ("jakarta", tiny.out / "jakarta"),
    ]
    assert "study 2 of 2, Jakarta: gather-tiny" in out
    record = json.loads((tiny.out / "jakarta" / "gather-tiny.json").read_text())
    assert record["data"] == "Jakarta: a log of 9 rows"
    assert (tiny.out / "jakarta" / "index.html").exists()
    assert main(command) == 0
    assert len(tiny.second.runs) == 2, "done once for each city"
    capsys.readouterr()
    assert main(["claims", "R2", "--json", "--results", str(tiny.out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["data"][:7], each["synthetic"]) for each in found] == [("a log o", False), ("Jakarta", False)]
    tiny.second.fails = BadInput("expected whole rows, got half of them")
    assert main([*command, "--seeds", "3"]) == 1, "a file that is there and cannot be read is a failure"


@pytest.mark.parametrize("problem", [BadInput("expected no --data, got some"), ZeroDivisionError("a bug")])
def test_a_study_that_cannot_run_loses_nothing_of_the_others(
    problem: Exception, tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.first.fails = problem
    assert main(["reproduce", "all", "--out", str(tiny.out)]) == 1
    out, err = capsys.readouterr()
    assert "study 2 of 2: gather-tiny, " in out
    assert err.splitlines()[-1] == (
        f"tacit reproduce: choice-tiny has no new results: {type(problem).__name__}: {problem}"
    )
    assert ("Traceback" in err) == isinstance(problem, ZeroDivisionError), "a refusal explains itself"
    assert 'id="gather-tiny-r2"' in (tiny.out / "index.html").read_text()


def test_a_study_that_fails_is_told_before_the_book_and_marked_in_it(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "all", "--out", str(tiny.out)]
    assert main(command) == 0
    place = tiny.out / "index.html"
    assert "this time" not in place.read_text(encoding="utf-8")
    tiny.first.fails = BadInput("expected more, got less")
    assert main([*command, "--scale", "full"]) == 1
    html = place.read_text(encoding="utf-8")
    earlier = (
        "Not made again this time: BadInput: expected more, got less. These are results of an earlier run."
    )
    assert html.count(earlier) == 1
    assert html.index('id="choice-tiny"') < html.index(earlier) < html.index('id="gather-tiny"')
    capsys.readouterr()

    def no_room(*_: object) -> None:
        raise OSError("no room for a book")

    monkeypatch.setattr(books, "write_book", no_room)
    assert main([*command, "--scale", "full"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-2] == "tacit reproduce: choice-tiny has no new results: BadInput: expected more, got less"
    assert told[-1] == "tacit reproduce: no room for a book"


def test_old_results_that_cannot_be_read_are_made_again(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "choice-tiny", "--out", str(tiny.out)]
    for spoilt, content in (("json", b"[]"), ("json", b"{}"), ("csv", b"\xfc"), ("svg", b""), ("png", b"cut")):
        if tiny.first.runs:
            (tiny.out / f"choice-tiny.{spoilt}").write_bytes(content)
        assert main(command) == 0
        told = capsys.readouterr()
        assert "kept from before" not in told.out
        assert not told.err
        assert main(command) == 0
        assert "kept from before" in capsys.readouterr().out


def test_machines_are_told_where_the_book_is(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.study("gather-tiny").outcome(tiny.asked())
    assert main(["reproduce", "--book", "--json", "--out", str(tiny.out)]) == 0
    assert json.loads(capsys.readouterr().out) == {"book": str(tiny.out / "index.html")}


@pytest.mark.slow
def test_the_locale_is_of_no_matter(tmp_path: Path) -> None:
    """Texts are UTF-8 where the system's own are not, and there is an epsilon in most."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "tacit.cli", "reproduce"]
    for more in (["gather-noise", "--scale", "toy", "--processes", "1"], ["--book"]):
        made = subprocess.run(
            [*command, *more, "--out", str(tmp_path)], env={**os.environ, **plain}, capture_output=True
        )
        assert made.returncode == 0, made.stderr.decode()
        assert not made.stderr


@pytest.mark.parametrize(
    "place", ["tacit_lab/studies/**/*.py", "tacit/pages/*.py", "tacit/commands/quickstart.py"]
)
def test_every_text_is_read_and_written_as_utf8(place: str) -> None:
    found = sorted(Path(tacit.__file__).parents[1].glob(place))
    assert found
    lacking = [
        f"{each.name}:{call.lineno}"
        for each in found
        for call in ast.walk(ast.parse(each.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in ("read_text", "write_text")
        or (call.func.attr == "open" and {ast.unparse(mode) for mode in call.args} & {"'r'", "'w'", "'a'"})
        if "encoding" not in {each.arg for each in call.keywords}
    ]
    assert not lacking


def test_the_book_alone_runs_nothing(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.study("gather-tiny").outcome(tiny.asked())
    assert main(["reproduce", "--book", "--out", str(tiny.out)]) == 0
    assert capsys.readouterr().out == f"{tiny.out / 'index.html'}\n"
    assert len(tiny.second.runs) == 1
    assert not tiny.first.runs


def test_the_list_says_claims_and_time(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    told = capsys.readouterr().out
    assert "Laro et al. 2023, Randomized algorithms" in told
    assert "Beyond Hardt and Nath 2012" in told
    assert "R1 T1" in told
    assert told.endswith("2 studies: about < 1 min at small and < 1 min at full scale, on two cores\n")
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["claims"]) for each in listed] == [
        ("choice-tiny", ["R1", "T1"]),
        ("gather-tiny", ["R2"]),
    ]
    assert tiny.first.runs == []


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["no-such-study"],
        ["choice-tiny", "--data", "nothing"],
        ["choice-tiny", "--seeds", "0"],
        ["choice-tiny", "--seeds", "1001"],
        ["all", "--seeds", str(10**30)],
        ["all", "--processes", "0"],
        ["choice-tiny", "--processes", "257"],
        ["choice-tiny", "--book"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused_in_one_line_before_anything_runs(
    wrong: list[str], tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *wrong, "--out", str(tiny.out)]) == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith("tacit reproduce: expected")
    assert refusal.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_book_of_no_folder_is_refused(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--book", "--out", str(tiny.out)]) == 2
    assert "--out: expected a folder that tacit reproduce made" in capsys.readouterr().err


def test_help_says_what_data_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    assert "three folders: taobao" in capsys.readouterr().out
