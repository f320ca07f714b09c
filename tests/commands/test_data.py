"""`tacit data`: every action from the command line, its JSON, and its refusals in one line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.data.encoding import vocabulary
from tacit.data.logs.definition import LOG_NAMES
from tacit.store.ledger import LedgerStore

ROWS = "2000"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What the command says with --json, which has to succeed."""
    assert main(["data", *arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a refusal."""
    assert main(["data", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    return said.err


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and the mark that says it is made up."""
    folder = tmp_path_factory.mktemp("display")
    path = str(folder / "display.tsv")
    assert main(["data", "generate", "criteo-display", "--rows", ROWS, "--out", path]) == 0
    return folder


@pytest.fixture
def display(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    capsys.readouterr()  # what was said when it was made
    return str(tmp_path / "display.tsv")


def test_list_names_every_log_and_shows_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert [log["name"] for log in told(capsys, "list")] == list(LOG_NAMES)
    assert main(["data", "list"]) == 0
    page = capsys.readouterr().out
    assert all(name in page for name in LOG_NAMES)
    assert main(["data", "list", "criteo-search"]) == 0
    page = capsys.readouterr().out
    assert "it tells the label" in page
    columns = {column["name"]: column for column in told(capsys, "list", "criteo-search")["columns"]}
    assert columns["user_id"]["roles"] == ["sensitive", "user"]
    assert columns["product_price"]["roles"] == ["left-out"]


@pytest.mark.parametrize("name", LOG_NAMES)
def test_generate_prepare_and_describe_each_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path, out = str(tmp_path / "log"), str(tmp_path / "columns")
    generated = told(capsys, "generate", name, "--rows", ROWS, "--seed", "3", "--out", path)
    assert generated["rows"] == int(ROWS)
    prepared = told(capsys, "prepare", name, path, "--out", out)
    assert prepared["synthetic"] is True
    assert prepared["rows"] + prepared["rows_passed_over"] + prepared["bad_rows"]["count"] == int(ROWS)
    columns = Columns.open(out)
    assert columns.rows == prepared["rows"]
    assert prepared["positive_rate"] == pytest.approx(float(np.mean(columns.label)))
    assert sum(prepared["parts"].values()) == columns.rows
    described = told(capsys, "describe", name, path)
    figures = {figure["name"]: figure["value"] for figure in described["figures"]}
    assert figures["rows"] == columns.rows
    assert figures["positive rate"] == pytest.approx(prepared["positive_rate"])


@pytest.mark.parametrize("name", ["display-small", "taobao"])  # one file, and a folder of tables
def test_a_log_is_described_without_a_file(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["data", "describe", name, "--rows", "500"]) == 0
    assert "synthetic" in capsys.readouterr().out


def test_prepare_says_what_it_did(display: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Path(display).open("a") as file:
        file.write("1\tnot enough\n")
    assert main(["data", "prepare", "criteo-display", display, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "2,000 rows of criteo-display" in said  # somebody added a row: it is not called made up any more
    assert "20 public fields, table of 100,000 rows" in said
    assert "chronological parts: train 1,600, validation 200, test 200" in said
    assert "line 2001: expected 40 fields, got 2" in said


def test_prepare_counts_nan_and_calls_no_number_a_positive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN is read as missing, on purpose; but whoever wrote it may not have meant to."""
    columns = {"site": ("public", "category"), "paid": ("sensitive", "real"), "bought": ("label", "whole")}
    (tmp_path / "shop.toml").write_text(
        'name = "shop"\n'
        + "".join(
            f'[columns.{name}]\nrole = "{role}"\nkind = "{kind}"\n' for name, (role, kind) in columns.items()
        )
    )
    (tmp_path / "shop.csv").write_text("site,paid,bought\na,1.5,3\nb,nan,-2\nc,,0\nd,NaN,1\n")
    command = ["data", "prepare", str(tmp_path / "shop.csv"), "--schema", str(tmp_path / "shop.toml"), "--out"]
    assert main([*command, str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "paid is NaN in 2 rows, and read as missing there" in said
    assert "% positive" not in said
    assert "label (a whole number) above 0 in 50.00%" in said
    assert "1 public field, table" in said
    assert main([*command, str(tmp_path / "again"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["not_numbers"], record["label_kind"]) == ({"paid": 2}, "whole")
    ids = Columns.open(tmp_path / "out").sensitive[:, 0]
    assert ids[1] == ids[2] == ids[3] != ids[0], "one code for all that is missing"


def test_bad_rows_over_the_limit_are_refused_and_nothing_is_written(
    display: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Path(display).read_text().splitlines()
    lines[6] = lines[6].replace("\t", "\tsecret", 1)  # I1 of line 7
    Path(display).write_text("\n".join(lines) + "\n")
    before = sorted(tmp_path.iterdir())
    out = str(tmp_path / "out")
    said = refused(capsys, "prepare", "criteo-display", display, "--out", out, "--max-bad-rows", "0")
    assert "line 7, column I1: expected a whole number" in said
    assert "secret" not in said
    assert sorted(tmp_path.iterdir()) == before


def test_an_encoder_is_applied_unchanged(
    display: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = told(
        capsys, "prepare", "criteo-display", display, "--out", str(tmp_path / "a"), "--vocabulary", "4",
        "--sensitive-bins", "77",
    )  # fmt: skip
    assert first["table_rows"]["sensitive"] == 77
    half = tmp_path / "half.tsv"
    half.write_text("\n".join(Path(display).read_text().splitlines()[1000:]) + "\n")
    encoder = ["--encoder", str(tmp_path / "a")]
    again = told(capsys, "prepare", "criteo-display", str(half), "--out", str(tmp_path / "b"), *encoder)
    assert again["encoder"] == first["encoder"]
    a, b = Columns.open(tmp_path / "a"), Columns.open(tmp_path / "b")
    np.testing.assert_array_equal(a.public[1000:], b.public)
    np.testing.assert_array_equal(a.sensitive[1000:], b.sensitive)


@pytest.fixture
def ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = str(tmp_path / "ledger.sqlite")
    grant = ["ledger", "grant", "--ledger", path, "--scope", "clicks", "--unit", "impression"]
    assert main([*grant, "--relation", "replace-one", "--epsilon", "3", "--delta", "1e-5"]) == 0
    capsys.readouterr()
    return path


SELECT = ["--sensitive-vocabulary", "--select-epsilon", "2", "--select-delta", "1e-6", "--scope", "clicks"]


def test_a_private_vocabulary_is_paid_for_once(
    display: str, ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "columns")
    prepared = told(capsys, "prepare", "criteo-display", display, "--out", out, "--ledger", ledger, *SELECT)
    assert 0 < prepared["table_rows"]["sensitive"] < 5000
    assert spent_and_reserved(ledger) == (2, 0)
    again = ["prepare", "criteo-display", display, "--out", out, "--overwrite", "--ledger", ledger, *SELECT]
    said = refused(capsys, *again)
    assert "got clicks/vocabulary/columns: a selection was begun under it" in said
    other = [*again, "--select-key", "another"]
    assert "budget exceeded" in refused(capsys, *other)


def test_of_two_selections_at_once_one_is_made(
    display: str,
    ledger: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second begins while the first one draws; the ledger has what the first one made."""
    honest, drawn = vocabulary.sensitive_vocabulary, "tacit.data.encoding.learned_encoding.sensitive_vocabulary"
    codes: list[int] = []
    command = ["data", "prepare", "criteo-display", display, "--ledger", ledger, *SELECT, "--select-key", "one"]

    def drawing(*arguments: Any) -> Any:
        monkeypatch.setattr(drawn, honest)
        codes.append(main([*command, "--out", str(tmp_path / "second")]))
        return honest(*arguments)

    monkeypatch.setattr(drawn, drawing)
    assert main([*command, "--out", str(tmp_path / "first")]) == 0
    assert codes == [2]
    assert "a selection was begun under it" in capsys.readouterr().err
    assert not (tmp_path / "second").exists()
    manifest = json.loads((tmp_path / "first" / "columns.json").read_text())
    (made,) = LedgerStore.open_existing(ledger).verify().ledger.reservations.values()
    assert made.release == manifest["encoder"]
    assert spent_and_reserved(ledger) == (2, 0)


def spent_and_reserved(ledger: str) -> tuple[float, float]:
    (account,) = LedgerStore.open_existing(ledger).verify().ledger.accounts.values()
    return float(account.spent.budget.epsilon), float(account.reserved.budget.epsilon)


def test_what_can_be_refused_is_refused_before_it_is_paid_for(
    display: str, ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare = ["prepare", "criteo-display", display, "--ledger", ledger, *SELECT]
    (tmp_path / "there").mkdir()
    assert "which exists" in refused(capsys, *prepare, "--out", str(tmp_path / "there"))
    new = ["--out", str(tmp_path / "columns")]
    assert "expected bins" in refused(capsys, *prepare, *new, "--public-bins", "0")
    assert "expected threshold" in refused(capsys, *prepare, *new, "--vocabulary", "0")
    with Path(display).open("a") as file:
        file.write("bad\n")
    assert "line 2001" in refused(capsys, *prepare, *new, "--max-bad-rows", "0")
    assert spent_and_reserved(ledger) == (0, 0)
    told(capsys, *prepare, *new)
    assert spent_and_reserved(ledger) == (2, 0)


def test_a_selection_that_was_interrupted_says_that_it_stays_reserved(
    display: str,
    ledger: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.data.preparation.ColumnsWriter.finish", interrupted)
    prepare = ["data", "prepare", "criteo-display", display, "--ledger", ledger, *SELECT]
    assert main([*prepare, "--out", str(tmp_path / "columns")]) == 130
    said = capsys.readouterr().err
    assert "stays reserved in the ledger as clicks/vocabulary/columns" in said
    assert said.endswith("tacit data: interrupted\n")
    assert spent_and_reserved(ledger) == (0, 2)


def test_a_split_of_ones_own_is_checked_before_anything_is_paid(
    ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.toml").write_text(
        '[split]\nway = "by-user"\nshares = { train = 1 }\n'
        '[columns.town]\nrole = "sensitive"\n[columns.y]\nrole = "label"\nkind = "flag"\n'
    )
    (tmp_path / "own.csv").write_text("town,y\n" + "north,1\n" * 500)
    prepare = ["prepare", str(tmp_path / "own.csv"), "--schema", str(tmp_path / "own.toml")]
    paid = ["--ledger", ledger, *SELECT, "--out", str(tmp_path / "columns")]
    assert "expected a user column" in refused(capsys, *prepare, *paid)
    assert spent_and_reserved(ledger) == (0, 0)


def test_a_selection_that_failed_half_way_stays_reserved(
    display: str,
    ledger: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("tacit.data.preparation.ColumnsWriter.finish", full_disk)
    prepare = ["prepare", "criteo-display", display, "--ledger", ledger, *SELECT]
    said = refused(capsys, *prepare, "--out", str(tmp_path / "columns"))
    assert "no space left" in said
    assert "stays reserved in the ledger as clicks/vocabulary/columns" in said
    assert spent_and_reserved(ledger) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["describe", "criteo-displya"], "expected a log named criteo-attribution,"),
        (["prepare", "criteo-display", "--out", "x"], "expected the path of the file after criteo-display"),
        (
            ["prepare", "criteo-display", __file__, "--out", "x", "--delays"],
            "expected a log that tells delays with --delays, got criteo-display",
        ),
        (
            ["prepare", "criteo-display", "nowhere.tsv", "--out", "x"],
            "expected a file or folder at nowhere",
        ),
        (["prepare", "a.csv", "b.csv", "--schema", "s.toml", "--out", "x"], "expected one path with --schema"),
        (
            ["prepare", "a.csv", "--schema", "s.toml", "--out", "x"],
            "s.toml: expected a schema here, got no such file",
        ),
        (["generate", "visits", "--rows", "0", "--out", "x"], "expected rows to be a whole number >= 1"),
        (["generate", "visits", "--rows", "9", "--seed", "-1", "--out", "x"], "expected seed"),
        (["generate", "visits", "--rows", "9", "--rare-signal", "1", "--out", "x"], "expected rare_signal for"),
        (
            ["generate", "conversions", "--rows", "9", "--out", "x.csv"],
            "sequence_topic: expected Parquet",
        ),
        (["list", "nothing"], "expected a log named"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert problem in refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--sensitive-vocabulary"], "expected a domain in the schema, or --select-epsilon"),
        ([*SELECT], "expected a domain in the schema, or --ledger"),
        (["--select-epsilon", "1"], "got no vocabulary to select"),
        (["--ledger", "l"], "got no vocabulary to select"),
        (["--vocabulary", "3", "--public-bins", "9"], "expected --public-bins or --vocabulary"),
        (["--encoder", "e", "--vocabulary", "3"], "expected --encoder alone"),
        (["--encoder", "e", "--ledger", "l"], "expected --encoder alone"),
        (["--encoder", "nowhere"], "expected an encoder here"),
        (["--shares", "0.9"], "expected two or three shares"),
        (["--shares", "0.9,0.2"], "shares that add up to 1"),
        (["--public-bins", "0"], "expected bins"),
        (["--vocabulary", "0"], "expected threshold"),
        (["--max-bad-rows", "-1"], "limit of bad rows"),
        (["--split", "by-user"], "expected a user column"),
    ],
)
def test_options_that_cannot_be_meant(
    options: list[str], problem: str, display: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in refused(
        capsys, "prepare", "criteo-display", display, "--out", str(tmp_path / "x"), *options
    )
    assert not (tmp_path / "x").exists()


def test_a_sensitive_user_splits_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "search.parquet")
    told(capsys, "generate", "criteo-search", "--rows", "100", "--out", path)
    out = str(tmp_path / "columns")
    assert "sensitive" in refused(capsys, "prepare", "criteo-search", path, "--out", out, "--split", "by-user")
    stated = ("--split", "by-user", "--public-key", "user")
    made = told(capsys, "prepare", "criteo-search", path, "--out", out, *stated)
    assert made["fields"]["sensitive"] == ["device_type", "audience_id"]
    assert "user" in Columns.open(Path(out)).public_keys
    other = str(tmp_path / "other")
    said = refused(capsys, "prepare", "criteo-search", path, "--out", other, "--public-key", "publisher")
    assert "expected public keys among its sensitive ones (user), got publisher" in said


def test_an_existing_folder_is_kept_unless_asked(
    display: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "columns")
    told(capsys, "prepare", "criteo-display", display, "--out", out)
    assert "which exists" in refused(capsys, "prepare", "criteo-display", display, "--out", out)
    told(capsys, "prepare", "criteo-display", display, "--out", out, "--overwrite", "--split", "random")
    assert Columns.open(out).split.way == "random"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_nothing_half_written(tmp_path: Path, stop: signal.Signals) -> None:
    out = tmp_path / "log.parquet"
    command = [sys.executable, "-m", "tacit.cli", "data", "generate", "display-small", "--rows", "20000000"]
    child = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.glob(".*/*.parquet")), "nothing was begun"
    child.send_signal(stop)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said == "tacit data: interrupted\n"
    assert list(tmp_path.iterdir()) == []
