"""The command line: it teaches, it is quick, and a refusal is one line and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tacit.cli import COMMANDS, main

TACIT = [sys.executable, "-m", "tacit.cli"]
SMALL = ["--sampling-probability", "0.01", "--steps", "100", "--delta", "1e-6", "--no-cache"]
ACCOUNT = ["account", "--relation", "add-remove", "--unit", "impression", *SMALL]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TACIT, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"tacit {tacit.__version__}\n"
    page = run("--help").stdout
    assert all(command in page for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    found = run(command, "--help")
    assert found.returncode == 0
    assert len(found.stdout) > 300


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["train", "x.toml", "--foo"], "tacit train"),
        (["room", "serve", "room.toml", "--foo"], "tacit room serve"),
        (["ledger", "show", "--foo"], "tacit ledger show"),
        (["--foo", "ledger", "show"], "tacit"),
    ],
)
def test_an_unknown_option_is_told_with_the_help_of_its_command(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"{command}: unrecognized arguments: --foo (see {command} --help)\n"


def test_start_up_takes_less_than_half_a_second() -> None:
    """Processor time, and the best of a few: a busy machine may delay a start without making it slow."""
    times = []
    for _ in range(3):
        before = os.times()
        run("--help")
        after = os.times()
        spent = (after.children_user - before.children_user, after.children_system - before.children_system)
        times.append(sum(spent))
    assert min(times) < 0.5


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom tacit.cli import parser\nparser()\n"
        "heavy = {'numpy', 'scipy', 'dp_accounting', 'sqlalchemy', 'rich', 'torch'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_account_gives_both_accountants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ACCOUNT, "--noise", "1.0"]) == 0
    out = capsys.readouterr().out
    assert "per impression, add-remove neighbours, Poisson sampling" in out
    assert "epsilon by PLD" in out
    assert "epsilon by RDP" in out


def test_account_from_epsilon_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ACCOUNT, "--epsilon", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert 0.99 < record["epsilon_pld"] <= 1
    assert record["epsilon_rdp"] > record["epsilon_pld"]
    assert record["unit"] == "impression"


def test_account_for_a_whole_log(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--noise", "1", "--rows", "10000", "--batch", "100", "--epochs", "2", "--labels-epsilon", "1"]
    head = ["account", "--relation", "replace-one", "--unit", "impression", "--no-cache", "--json"]
    assert main([*head, *arguments]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["steps"] == 200
    assert record["delta"] == 1e-4
    assert record["epsilon_pld"] > 1


def test_account_without_a_renyi_bound_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["account", "--relation", "add-remove", "--unit", "user", "--records-per-unit", "2", *SMALL]
    assert main([*arguments, "--noise", "2"]) == 0
    assert "no epsilon by RDP: expected single records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noise", "0"], "expected --noise > 0, got 0.0"),
        (["--noise", "nan"], "expected --noise to be finite, got nan"),
        (["--epsilon", "-1"], "expected --epsilon > 0, got -1.0"),
        (["--noise", "1", "--labels-epsilon", "1"], "expected FlippedLabels under one of"),
        (["--noise", "1", "--epochs", "2"], "expected --steps or --epochs, got both"),
        (["--noise", "1e-320"], "expected noise_multiplier between 1e-6 and 1e12"),
        (["--noise", "1", "--delta", "1e-400"], "expected delta >= 1e-200"),
        (["--noise", "1", "--labels-epsilon", "0"], "expected --labels-epsilon > 0"),
        (["--noise", "1", "--records-per-unit", "3"], "expected --records-per-unit 1 for unit impression"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ACCOUNT, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tacit account: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_wrong_usage_is_exit_code_two() -> None:
    for arguments in ([], ["nonsense"], ["account"], ["bench", "nonsense"]):
        found = run(*arguments)
        assert found.returncode == 2
        assert found.stderr.startswith("tacit")
        assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("flags", ["--json", ""])
def test_a_closed_pipe_is_no_error(tmp_path: Path, flags: str) -> None:
    """`true` reads nothing: the pipe is closed before the first line."""
    listing = f"{' '.join(TACIT)} data list {flags} 2>{tmp_path / 'errors'}"
    command = f"{listing} | true; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True, timeout=120)
    assert found.stdout == "0\n"
    assert (tmp_path / "errors").read_text() == ""
