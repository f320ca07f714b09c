"""`tacit evaluate`: figures with intervals, beside a baseline, and what measuring them costs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.errors import BadInput
from tacit.store.ledger import LedgerStore
from tacit.train.evaluation import measures
from tacit.train.evaluation.measures import auc
from tacit.train.examples import Examples
from tacit.train.job.payment import Payment
from tacit.train.models.model import Part
from tacit.train.models.saving import load, save
from tests.support.training_logs import called_synthetic, granted, prepared, written

Told = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, and models of it: one that has learned something, the same without what it knows of sensitive
    features, and one that has learned nothing."""
    place = tmp_path_factory.mktemp("evaluate")
    prepared(place)
    for out, rate in (("good", 0.05), ("idle", 1e-9)):
        said = {"data": "log", "out": out, "model": {"name": "logistic"}, "privacy": {"method": "plain"}}
        config = written(place / f"{out}.toml", {**said, "descent": {"epochs": 4, "batch": 32, "rate": rate}})
        assert main(["train", str(config), "--json"]) == 0
    save(place / "public", replace(load(place / "good"), part=Part.TRUNCATED))
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, capsys: Told) -> Path:
    capsys.readouterr()
    return Path(shutil.copytree(made, tmp_path / "place"))


def told(capsys: Told, place: Path, *arguments: str, model: str = "good") -> Any:
    command = ["evaluate", str(place / model), str(place / "log"), *arguments, "--json"]
    assert main(command) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: Told, place: Path, *arguments: str, model: str = "good") -> str:
    assert main(["evaluate", str(place / model), str(place / "log"), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    return said.err


def noisy(place: Path, epsilon: str = "3") -> list[str]:
    return [
        "--labels", "noisy", "--epsilon", epsilon, "--ledger", str(place / "ledger.sqlite"), "--scope", "shop",
        "--secret", str(place / "flips.secret"),
    ]  # fmt: skip


def spent(place: Path) -> float:
    history = LedgerStore.open_existing(place / "ledger.sqlite").verify()
    return sum(float(account.used.budget.epsilon) for account in history.ledger.accounts.values())


def test_figures_are_those_of_the_model(place: Path, capsys: Told) -> None:
    record = told(capsys, place)
    examples = Examples.of(Columns.open(place / "log"), "test")
    expected = auc(examples.labels, load(place / "good").predict(examples))
    assert record["auc_loss"]["value"] == pytest.approx(1 - expected)
    assert record["auc_loss"]["low"] < record["auc_loss"]["value"] < record["auc_loss"]["high"]
    assert record["rows"] == len(examples)
    assert record["clusters"] == len(np.unique(examples.key("user")))
    assert set(record) >= {"log_loss", "calibration_ratio"}
    assert "relative_auc_loss_percent" not in record


def test_a_baseline_is_compared_on_the_same_rows(place: Path, capsys: Told) -> None:
    record = told(capsys, place, "--baseline", str(place / "idle"))
    assert record["relative_auc_loss_percent"]["value"] < 0
    backwards = told(capsys, place, "--baseline", str(place / "good"), model="idle")
    assert backwards["auc_difference"]["value"] == pytest.approx(-record["auc_difference"]["value"])
    assert main(["evaluate", str(place / "good"), str(place / "log"), "--baseline", str(place / "idle")]) == 0
    page = capsys.readouterr().out
    assert "AUC loss against baseline, %" in page
    assert "(plain) on 124 rows of" in page


def test_the_reliability_table(place: Path, capsys: Told) -> None:
    bins = told(capsys, place, "--calibration")["calibration"]
    assert sum(each["rows"] for each in bins) == 124
    assert main(["evaluate", str(place / "good"), str(place / "log"), "--calibration"]) == 0
    assert "Predicted against observed" in capsys.readouterr().out


def test_exact_figures_of_private_labels_are_called_a_release(place: Path, capsys: Told) -> None:
    assert any("is a release that nobody has paid for" in note for note in told(capsys, place)["notes"])
    agreed = told(capsys, place, "--labels-are-public")["notes"]
    assert agreed[0] == "the labels were said to be public, or agreed for measuring"
    trained_on = told(capsys, place, "--part", "train", "--labels-are-public")["notes"]
    assert any("trained on train" in note for note in trained_on)
    called_synthetic(place / "log")
    assert told(capsys, place)["notes"][0] == "the labels are made up: these figures are about nobody"


FEATURES = "exact figures are a release about those features too"


def test_exact_figures_of_sensitive_features_are_called_a_release_too(place: Path, capsys: Told) -> None:
    for arguments in ([], ["--labels-are-public"], ["--labels-are-public", "--calibration"]):
        assert FEATURES in told(capsys, place, *arguments)["notes"][1]
    assert main(["evaluate", str(place / "good"), str(place / "log"), "--labels-are-public"]) == 0
    assert FEATURES in " ".join(capsys.readouterr().out.split())
    manifest = json.loads((place / "log" / "columns.json").read_text())
    said = {"data": "log", "out": "truncated", "model": {"name": "logistic"}}
    said |= {"privacy": {"method": "label-dp", "epsilon": 1}, "ledger": {"secret": "other.secret"}}
    called_synthetic(place / "log")
    assert main(["train", str(written(place / "public.toml", said)), "--json"]) == 0
    (place / "log" / "columns.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    public = told(capsys, place, "--labels-are-public", model="truncated")["notes"]
    assert not any(FEATURES in note for note in public)
    beside = told(capsys, place, "--labels-are-public", "--baseline", str(place / "good"), model="truncated")
    assert FEATURES in beside["notes"][1]


def test_noisy_labels_are_paid_for_on_the_line_that_was_asked_for(place: Path, capsys: Told) -> None:
    granted(place / "ledger.sqlite", "replace-one", "5", delta="0")
    capsys.readouterr()
    assert "no budget was granted on line shop (impression, replace-label)" in refused(
        capsys, place, *noisy(place), model="public"
    )
    told(capsys, place, *noisy(place), "--relation", "replace-one", model="public")
    assert spent(place) == 3
    assert "expected --labels noisy with --relation" in refused(capsys, place, "--relation", "replace-one")


def alone(place: Path) -> int:
    """A test row that a public value singles out; its sensitive bin is what an attacker is after."""
    public = np.load(place / "log" / "public.npy")
    row = int(Examples.of(Columns.open(place / "log"), "test").rows(np.arange(1))[0])
    unused = set(range(load(place / "good").model.sizes.public_rows)) - set(public.ravel().tolist())
    public[row] = min(unused)
    np.save(place / "log" / "public.npy", public)
    return row


def crafted(place: Path, row: int, bins: range) -> None:
    """A model that scores this row highest, and higher still if its sensitive bin is among these."""
    saved = load(place / "good")
    table, public = saved.model.tables["table"], saved.model.sizes.public_rows
    table[:], saved.model.dense["bias"][:] = 0, 0
    table[np.load(place / "log" / "public.npy")[row, 0], 0] = 5
    table[public + bins.start : public + bins.stop, 0] = 1
    save(place / "crafted", saved, overwrite=True)


def found_bin(capsys: Told, place: Path, row: int, *arguments: str) -> int:
    """By halves: each evaluation tells whether the row's sensitive bin is among those that a model marks."""
    first, past = 0, load(place / "good").model.sizes.sensitive_rows
    while past - first > 1:
        middle = (first + past) // 2
        crafted(place, row, range(first, middle))
        record = told(capsys, place, *noisy(place), "--calibration", *arguments, model="crafted")
        inside = record["calibration"][-1]["highest"] > 1 / (1 + np.exp(-5.5))
        first, past = (first, middle) if inside else (middle, past)
    return first


@pytest.mark.parametrize("lines", [("replace-one",), ("replace-one", "replace-label")])
def test_a_line_that_protects_features_pays_for_no_model_that_reads_them(
    place: Path, capsys: Told, lines: tuple[str, ...]
) -> None:
    """After one payment, figures over the same flips are free; of crafted models they would find a row's
    sensitive value by halves, exactly. So would they on a line of labels beside it."""
    for line in lines:
        granted(place / "ledger.sqlite", line, "5", delta="0")
    row = alone(place)
    capsys.readouterr()
    if lines == ("replace-one",):
        told(capsys, place, *noisy(place), "--relation", "replace-one", model="public")
        assert spent(place) == 3
    crafted(place, row, range(5))
    said = refused(capsys, place, *noisy(place), "--relation", lines[-1], model="crafted")
    assert "crafted: expected a model that reads public features alone" in said
    assert "got one that reads age" in said
    beside = ["--relation", lines[-1], "--baseline", str(place / "crafted")]
    said = refused(capsys, place, *noisy(place), *beside, model="public")
    assert "crafted: expected a model that reads public features alone" in said
    assert len(state(place)) == (1 if lines == ("replace-one",) else 0)


def test_on_a_line_of_labels_alone_features_are_not_protected(place: Path, capsys: Told) -> None:
    """What the refusals are for: here the attack works, as the note says."""
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    row = alone(place)
    capsys.readouterr()
    assert found_bin(capsys, place, row) == np.load(place / "log" / "sensitive.npy")[row, 0]
    record = told(capsys, place, *noisy(place), model="crafted")
    assert "for labels alone" in record["notes"][1]


def test_changed_labels_are_not_measured_from_a_second_ledger(place: Path, capsys: Told) -> None:
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    granted(place / "second.sqlite", "replace-label", "5", delta="0")
    capsys.readouterr()
    told(capsys, place, *noisy(place))
    np.save(place / "log" / "label.npy", 1 - np.load(place / "log" / "label.npy"))
    (place / "second.sqlite").rename(place / "ledger.sqlite")
    (place / "second.sqlite.witness").rename(place / "ledger.sqlite.witness")
    assert "labels that have changed" in refused(capsys, place, *noisy(place))
    assert spent(place) == 0


def test_noisy_labels_are_paid_for_once(place: Path, capsys: Told) -> None:
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    capsys.readouterr()
    secret = place / "flips.secret"
    secret.write_bytes(bytes(range(32)))  # so that the flips are the same in every run of this test
    secret.chmod(0o600)
    first = told(capsys, place, *noisy(place))
    assert first["measured_on"] == "flipped labels"
    assert first["notes"][0].endswith("ledger: reserved")
    assert "for labels alone" in first["notes"][1]
    again = told(capsys, place, *noisy(place))
    assert again["notes"][0].endswith("paid for before: the same noisy labels, read again")
    assert again["auc_loss"] == first["auc_loss"]
    assert told(capsys, place, *noisy(place), model="idle")["rows"] == 124
    assert spent(place) == 3
    # The intervals know of the flips: they are wider, and hold the exact figure here.
    exact = told(capsys, place)["auc_loss"]
    assert first["auc_loss"]["high"] - first["auc_loss"]["low"] > exact["high"] - exact["low"]
    assert first["auc_loss"]["low"] < exact["value"] < first["auc_loss"]["high"]
    assert "budget exceeded" in refused(capsys, place, *noisy(place, "4"))
    np.save(place / "log" / "label.npy", 1 - np.load(place / "log" / "label.npy"))
    assert "labels that have changed" in refused(capsys, place, *noisy(place))
    assert spent(place) == 3


def paid(place: Path, capsys: Told) -> dict[str, Any]:
    """Flips of epsilon 3 out of 5, paid for; the secret is the same in every run of a test."""
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    (place / "flips.secret").write_bytes(bytes(range(32)))
    (place / "flips.secret").chmod(0o600)
    capsys.readouterr()
    return dict(told(capsys, place, *noisy(place), model="public"))


def test_a_copied_folder_measures_on_the_same_flips(place: Path, capsys: Told, tmp_path: Path) -> None:
    first = paid(place, capsys)
    copy = Path(shutil.copytree(place, tmp_path / "copy"))
    (copy / "ledger.sqlite").unlink()
    ledger = ["--ledger", str(place / "ledger.sqlite")]
    again = told(capsys, copy, *noisy(copy), *ledger, model="public")
    assert (again["auc_loss"], again["log_loss"]) == (first["auc_loss"], first["log_loss"])
    assert spent(place) == 3


def test_another_secret_is_another_release(place: Path, capsys: Told) -> None:
    paid(place, capsys)
    other = [*noisy(place), "--secret", str(place / "other.secret")]
    assert "budget exceeded" in refused(capsys, place, *other, model="public")
    (place / "flips.secret").write_bytes(bytes(32))  # replaced where it was
    assert "budget exceeded" in refused(capsys, place, *noisy(place), model="public")
    assert spent(place) == 3


def swapped(place: Path, *, other_labels: bool) -> None:
    """The log in another order: two of its test rows changed places, with the same or with other labels."""
    rows = Examples.of(Columns.open(place / "log"), "test").rows(np.arange(124))
    labels = np.load(place / "log" / "label.npy")
    first = rows[0]
    (second,) = [row for row in rows[1:] if (labels[row] != labels[first]) == other_labels][:1]
    for name in ("public", "sensitive", "label", "user", "time"):
        column = np.load(place / "log" / f"{name}.npy")
        column[[first, second]] = column[[second, first]]
        np.save(place / "log" / f"{name}.npy", column)


@pytest.mark.parametrize("other_labels", [False, True])
def test_another_order_of_rows_is_another_release(place: Path, capsys: Told, other_labels: bool) -> None:
    """Flips hang on a row's place: in another order, the same people would be flipped once more."""
    paid(place, capsys)
    swapped(place, other_labels=other_labels)
    assert "labels that have changed since" in refused(capsys, place, *noisy(place), model="public")
    assert spent(place) == 3


def test_some_of_the_rows_are_another_release(place: Path, capsys: Told) -> None:
    paid(place, capsys)
    lines = (place / "shop.csv").read_text().splitlines()
    (place / "shop.csv").write_text("\n".join(lines[:300]) + "\n")
    command = ["data", "prepare", str(place / "shop.csv"), "--schema", str(place / "shop.toml")]
    command += ["--out", str(place / "log"), "--overwrite", "--encoder", str(place / "good"), "--json"]
    assert main(command) == 0
    capsys.readouterr()
    assert "budget exceeded" in refused(capsys, place, *noisy(place), model="public")
    assert "budget exceeded" in refused(capsys, place, *noisy(place), "--part", "train", model="public")
    assert spent(place) == 3


def test_copies_that_begin_at_once_with_other_labels_do_not_both_flip(
    place: Path, capsys: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked into their own register and found nothing; the ledger decides."""
    copy = Path(shutil.copytree(place, tmp_path / "copy"))
    for each in (place, copy):
        (each / "flips.secret").write_bytes(bytes(range(32)))
        (each / "flips.secret").chmod(0o600)
    np.save(copy / "log" / "label.npy", 1 - np.load(copy / "log" / "label.npy"))
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    capsys.readouterr()
    reserve, ledger = Payment.reserve, ["--ledger", str(place / "ledger.sqlite")]

    def racing(payment: Payment, *given: Any) -> str:
        monkeypatch.setattr(Payment, "reserve", reserve)
        told(capsys, copy, *noisy(copy), *ledger, model="public")
        return reserve(payment, *given)

    monkeypatch.setattr(Payment, "reserve", racing)
    assert "labels that have changed since" in refused(capsys, place, *noisy(place), model="public")
    assert spent(place) == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--part", "tset"], "expected a part named train, test, got 'tset'"),
        (["--epsilon", "1"], "expected --labels noisy with --epsilon, got --labels true"),
        (["--labels", "noisy"], "expected --epsilon for noisy labels, got none"),
        (["--labels", "noisy", "--epsilon", "1"], "expected --ledger to pay for noisy labels, got none"),
        (["--labels", "noisy", "--labels-are-public"], "expected --labels true with --labels-are-public"),
        (["--baseline", "nowhere"], "nowhere: expected a saved model here"),
    ],
)
def test_what_is_refused(place: Path, capsys: Told, arguments: list[str], expected: str) -> None:
    assert expected in refused(capsys, place, *arguments)


def state(place: Path) -> list[str]:
    history = LedgerStore.open_existing(place / "ledger.sqlite").verify()
    return [str(each.state) for each in history.ledger.reservations.values()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--epsilon", "1001"], "--epsilon: expected 0.0001 to 1000, got 1001: nothing would be promised"),
        (["--epsilon", "1e400"], "got a number of more than 300 digits: nothing would be promised"),
        (["--epsilon", "0.3"], "expected flips that leave room for an interval, got 124 of them"),
        (["--epsilon", "3", "--unit", "usr"], "--unit: expected UnitKind to be one of impression, user"),
        (["--epsilon", "3", "--cap", "2"], "--cap: expected only with a unit of several rows"),
        (["--epsilon", "3", "--version", "-1"], "expected --version to be a whole number >= 0, got -1"),
        (["--epsilon", "3", "--ledger", "none.sqlite"], "--ledger: there is no ledger at none.sqlite"),
    ],
)
def test_noisy_labels_are_refused_before_they_are_paid_for(
    place: Path, capsys: Told, arguments: list[str], expected: str
) -> None:
    granted(place / "ledger.sqlite", "replace-label", "5000", delta="0")
    capsys.readouterr()
    said = refused(capsys, place, *noisy(place), *arguments)
    assert expected in said
    assert "[run]" not in said, "which is for tacit train"
    assert state(place) == []
    assert not (place / "flips.secret").exists()


def test_two_rows_of_one_user_have_no_interval(place: Path, capsys: Told) -> None:
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    capsys.readouterr()
    users = np.load(place / "log" / "user.npy")
    np.save(place / "log" / "user.npy", np.full_like(users, users[0]))
    said = refused(capsys, place, *noisy(place))
    assert "expected at least two users for an interval, got 1; nothing was spent" in said
    assert state(place) == []


def test_what_only_the_flips_can_tell_is_said_with_the_ledger(place: Path, capsys: Told) -> None:
    """Labels that are all 0 are seen only once they are flipped, and then they are paid for."""
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    capsys.readouterr()
    np.save(place / "log" / "label.npy", np.zeros_like(np.load(place / "log" / "label.npy")))
    said = refused(capsys, place, *noisy(place))
    assert "expected positives to stand out from the flips" in said
    assert "(the flips are paid for in the ledger, as shop/labels/" in said
    assert "to measure on them again is free)" in said
    assert state(place) == ["committed"]
    refused(capsys, place, *noisy(place))
    assert spent(place) == 3


def test_a_failure_between_reserving_and_committing_can_be_taken_up(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    capsys.readouterr()

    def failing(_: object) -> None:
        raise OSError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(Payment, "commit", failing)
        said = refused(capsys, place, *noisy(place))
    assert "no disk (what the flips cost stays reserved in the ledger as shop/labels/" in said
    assert state(place) == ["reserved"]
    assert told(capsys, place, *noisy(place))["notes"][0].endswith("reserved before: the same noisy labels")
    assert state(place) == ["committed"]
    assert spent(place) == 3


def test_a_comparison_that_fails_says_that_the_flips_are_paid_for(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(place / "ledger.sqlite", "replace-label", "5", delta="0")
    capsys.readouterr()

    def failing(*_: object) -> None:
        raise BadInput("expected a baseline whose AUC loss stands out, got less")

    monkeypatch.setattr(measures, "relative_auc_loss_percent", failing)
    said = refused(capsys, place, *noisy(place), "--baseline", str(place / "idle"))
    assert "got less (the flips are paid for in the ledger, as shop/labels/" in said
    assert state(place) == ["committed"]
    exact = refused(capsys, place, "--baseline", str(place / "idle"))
    assert "ledger" not in exact


def test_a_model_of_another_encoder_is_refused(place: Path, capsys: Told) -> None:
    csv, schema = str(place / "shop.csv"), str(place / "shop.toml")
    shutil.rmtree(place / "log")
    command = ["data", "prepare", csv, "--schema", schema, "--out", str(place / "log"), "--public-bins", "41"]
    assert main([*command, "--json"]) == 0
    capsys.readouterr()
    said = refused(capsys, place)
    assert "expected a model of the encoder that" in said
    assert "got another" in said
    command = ["data", "prepare", csv, "--schema", schema, "--out", str(place / "log"), "--overwrite"]
    assert main([*command, "--encoder", str(place / "good"), "--json"]) == 0  # a model carries its encoder
    capsys.readouterr()
    assert told(capsys, place)["rows"] == 124
