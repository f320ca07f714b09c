"""`tacit ledger` from the outside: exit codes, one clear line, and figures for people and machines."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.commands import ledger
from tacit.errors import LedgerError, LedgerRolledBack, ReservationTaken, TacitError
from tests.support.ledger_places import COST, LINE, WEEKS, Place, begun, pay

GRANT = ["grant", "--scope", "clicks", "--unit", "user", "--relation", "replace-one"]


def call(*words: str) -> int:
    top = argparse.ArgumentParser(prog="tacit")
    ledger.add_parser(top.add_subparsers())
    args = top.parse_args(["ledger", *words])
    return int(args.run(args))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert call("show", "--json", *words) == 0
    return json.loads(capsys.readouterr().out)


def test_from_grant_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*GRANT, "--epsilon", "4", "--delta", "1e-6") == 0
    assert "granted (ε = 4, δ = 1e-06) on line clicks (user, replace-one), all time" in capsys.readouterr().out
    assert call(*GRANT, "--epsilon", "1", "--window-days", "7") == 0
    assert call(*GRANT, "--epsilon", "2", "--window-days", "7", "--window", "12", "--json") == 0
    everything = shown(capsys)
    assert [(line["unit"], line["window"], line["limit"]["epsilon"]) for line in everything["lines"]] == [
        ("user", None, 4.0),
        ("user per 7 days", 12, 2.0),
    ]
    assert everything["renewals"][0]["limit"] == {"epsilon": 1.0, "delta": 0.0}


def test_show_tells_what_is_spent_reserved_and_left(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    store = begun(place)
    pay(store, "model-1")
    store.reserve("model-2", LINE, COST, "try again")
    store.renew(WEEKS, COST)
    where = ("--ledger", place.where, "--witness", str(place.witness))
    everything = shown(capsys, *where)
    assert everything["lines"] == [
        {
            "scope": "clicks",
            "unit": "user",
            "relation": "replace-one",
            "window": None,
            "limit": {"epsilon": 1.0, "delta": 1e-6},
            "spent": {"epsilon": 0.2, "delta": 1e-8},
            "reserved": {"epsilon": 0.2, "delta": 1e-8},
            "remaining": {"epsilon": 0.6, "delta": 9.8e-7},
            "entries": 4,
        }
    ]
    assert [(kept["key"], kept["purpose"]) for kept in everything["unsettled"]] == [("model-2", "try again")]
    assert call("show", *where) == 0
    table = capsys.readouterr().out
    for part in ("replace-one", "all time", "0.6, 9.8e-07", "model-2", "user per 7 days", "each"):
        assert part in table


def test_a_missing_ledger_is_an_error_and_stays_missing(tmp_path: Path) -> None:
    for action in ("show", "verify", "accept"):
        with pytest.raises(LedgerError, match="there is no ledger at tacit-ledger"):
            call(action)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        [*GRANT, "--epsilon", "0"],
        [*GRANT, "--epsilon", "-1"],
        [*GRANT, "--epsilon", "nan"],
        [*GRANT, "--epsilon", "inf"],
        [*GRANT, "--epsilon", "1", "--delta", "1"],
        [*GRANT, "--epsilon", "1", "--window", "3"],
        [*GRANT, "--epsilon", "1", "--window-days", "0"],
        [*GRANT[:4], "usher", *GRANT[5:], "--epsilon", "1"],
        [*GRANT[:6], "replace-all", "--epsilon", "1"],
        ["show", "--ledger", "mysql://x/y"],
        ["show", "--ledger", "postgresql://x/y"],
    ],
)
def test_bad_input_leaves_no_ledger_behind(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="expected"):
        call(*words)
    assert list(tmp_path.iterdir()) == []


def test_verify_and_accept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(*GRANT, "--epsilon", "4")
    assert call("verify") == 0
    assert "the ledger holds: 1 entries" in capsys.readouterr().out
    (tmp_path / "tacit-ledger.sqlite.witness").unlink()
    assert call("verify") == 1
    assert "tacit ledger accept" in capsys.readouterr().err
    assert call("verify", "--json") == 1
    assert json.loads(capsys.readouterr().out)["holds"] is False
    with pytest.raises(LedgerRolledBack):
        call("show")
    assert call("accept") == 0
    assert call("verify", "--json") == 0


def test_accept_says_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        call("accept", "--help")
    assert done.value.code == 0
    assert "that spending is forgotten" in capsys.readouterr().out


def test_hand_over_and_settle(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    store, where = begun(place), ("--ledger", place.where, "--witness", str(place.witness))
    for key in ("model-1", "model-2"):
        store.reserve(key, LINE, COST, "a test")
    store.claim("model-1", "lost")
    assert [each["stage"] for each in shown(capsys, *where)["unsettled"]] == ["claimed", "reserved"]
    with pytest.raises(SystemExit):
        call("hand-over", "model-1", *where)  # nobody says so without saying why
    capsys.readouterr()
    assert call("hand-over", "model-1", "model-2", "--machine-lost", *where) == 0
    assert capsys.readouterr().out.splitlines() == [
        "model-1: handed over: the next run that claims it goes on",
        "model-2: nobody holds it",
    ]
    store.claim("model-1", "next")
    store.make("model-1", "next", "digest")
    with pytest.raises(ReservationTaken, match="has made its release"):
        call("hand-over", "model-1", "--machine-lost", *where)
    assert shown(capsys, *where)["unsettled"][0]["stage"] == "made"
    store.claim("model-2", "run")
    assert call("settle", "model-1", "--left", *where) == 0
    assert call("settle", "model-2", "--never-left", *where) == 0
    assert shown(capsys, *where)["unsettled"] == []
    with pytest.raises(SystemExit) as done:
        call("hand-over", "--help")
    assert done.value.code == 0
    assert "What you risk" in capsys.readouterr().out


def test_the_grammar_needs_nothing_heavy() -> None:
    script = (
        "import sys, tacit.commands.ledger; print(sorted({'numpy', 'sqlalchemy', 'rich'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
