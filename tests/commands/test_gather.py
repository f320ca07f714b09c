"""`tacit gather simulate`: a table in plain words, JSON for machines, one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.cli import main

SMALL = ["gather", "simulate", "--devices", "120", "--counts", "12", "--processes", "1"]


def test_the_table_says_what_was_refused_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--malicious", "0.5", "--noise", "users", "--law", "skellam"]) == 0
    shown = capsys.readouterr()
    assert "epsilon 1 and delta 1e-06" in shown.out
    for words in ("the device has already reported", "lies accepted", "noise left out", "yes  exactly the bad"):
        assert words in shown.out
    assert shown.err == ""


def test_json_has_the_figures_and_the_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--away", "0.2", "--malicious", "0.4", "--proof", "--epsilon", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["devices"] == 120 > found["present"] > found["accepted"] > 0
    assert found["refused_as_foreseen"] is True
    assert found["refused"]["out_of_range"] > 0
    assert found["accepted_lies"] == 0
    assert (found["epsilon"], found["relation"], found["proof"]) == (2.0, "zero-out", True)
    assert found["noise_variance_seen"] > 0
    assert found["seconds"] > 0


def test_the_noise_is_chosen_and_what_others_would_cost_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SMALL) == 0
    shown = capsys.readouterr().out
    assert "noise: discrete-laplace by servers, standard deviation 15.99, delta 0" in shown
    assert "or: discrete-gaussian by servers, standard deviation 16.92, delta 1e-06" in shown
    assert "or: discrete-laplace by users" in shown
    assert "it assumes that no device leaves its noise out" in shown
    assert main([*SMALL, "--totals-only", "--silent", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["noise"] == {"by": "users", "law": "discrete-laplace"}
    assert found["noise_options"][0]["sd"] == min(each["sd"] for each in found["noise_options"]) < 7
    assert found["refused_as_foreseen"] is True


def test_state_can_be_kept_on_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "state"
    assert main([*SMALL, "--store", str(folder)]) == 0
    assert {"proxy.sqlite", "server.sqlite"} <= {place.name for place in folder.iterdir()}
    capsys.readouterr()
    assert main([*SMALL, "--store", str(folder)]) == 2
    assert "expected an empty folder" in capsys.readouterr().err


def test_too_few_reports_are_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--away", "0.5", "--smallest-batch", "110"]) == 1
    assert "too few reports" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--proof", "--noise", "users"], "expected --noise servers with --proof"),
        (["--malicious", "1"], "expected --malicious in [0, 1)"),
        (["--away", "1"], "expected away in [0, 1)"),
        (["--epsilon", "0"], "expected --epsilon above 0 and at most 50"),
        (["--devices", "0"], "expected --devices to be at least 1"),
        (["--smallest-batch", "500"], "expected smallest_batch <= parties = 120"),
        (["--processes", "0"], "expected processes to be a whole number >= 1"),
    ],
)
def test_mistakes_are_one_line(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, *more]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == 1
