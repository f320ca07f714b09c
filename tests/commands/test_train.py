"""`tacit train` and `tacit explain`: paid once, whatever happens on the way; refusals cost nothing."""

from __future__ import annotations

import json
import re
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.releases import FlippedLabels
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind, Window
from tacit.train.examples import Examples
from tacit.train.job import run
from tacit.train.job.checkpoints import checkpoint_folder
from tacit.train.models.device_export import device_bytes
from tacit.train.models.model import Part
from tacit.train.models.onnx_export import export_onnx
from tacit.train.models.saving import load
from tacit.train.statistic.method import NoisyStatistic
from tacit.train.statistic.release import StatisticPrior
from tests.support.training_logs import (
    DESCENT,
    LABELS,
    LEDGER,
    Told,
    called_synthetic,
    dp_sgd,
    granted,
    label_dp,
    prepared,
    refused,
    reservations,
    spent,
    told,
    written,
)
from tests.support.training_logs import home as home  # a fixture, as the next two
from tests.support.training_logs import log as log
from tests.support.training_logs import place as place


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_private_model_is_paid_for_and_says_so(place: Path, capsys: Told) -> None:
    config = dp_sgd(place)
    record = told(capsys, "train", config)
    assert (record["method"], record["examples"]) == ("dp-sgd", 476)
    assert record["steps"] == record["phases"][0]["steps"] == 16
    assert record["paid"] == "reserved"
    statement = record["statement"]
    assert 3.9 < statement["epsilon"] <= 4
    (paid,) = reservations(place).values()
    assert (paid.key, str(paid.state)) == ("model-1", "committed")
    assert float(paid.amount.budget.epsilon) == 4
    saved = load(place / "model")
    assert saved.statement is not None
    assert saved.statement["epsilon"] == statement["epsilon"]
    assert not checkpoint_folder(place / "model").exists()
    assert main(["explain", str(place / "model")]) == 0
    page = capsys.readouterr().out
    assert "differentially private per impression" in page
    assert "model-1" in page
    assert "spends budget" in page


def test_the_page_comes_before_the_training(place: Path, capsys: Told) -> None:
    assert main(["train", str(dp_sgd(place))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fm by dp-sgd: 476 examples of")
    assert "memory    about" in lines[1]
    assert "noise multiplier" in lines[2]
    assert "default   descent.rate = " in lines[3]
    assert "1e-05)-DP per impression, replace-one neighbours" in lines[4]
    assert "warning   476 examples are too few" in lines[5]
    assert "warning   predictions will not be recalibrated: gradients are clipped to 1" in lines[6]
    assert lines[7].strip() == "ledger    shop (impression, replace-one), all time, as model-1"
    assert "trained in" in lines[8]


def test_a_dry_run_says_what_was_chosen_and_why(place: Path, capsys: Told) -> None:
    config = dp_sgd(place, descent={"batch": 60})
    record = told(capsys, "train", config, "--dry-run")
    keys = ["epochs", "clip_norm", "recalibrate", "optimizer", "rate"]
    assert [default["key"] for default in record["defaults"]] == [f"descent.{key}" for key in keys]
    assert all(default["because"] for default in record["defaults"])
    assert record["defaults"][0]["value"] == pytest.approx(720 * 60 / 476)
    assert record["calibration"] is None
    assert main(["train", str(config), "--dry-run"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "default   " in line]
    assert len(lines) == len(keys)
    assert (
        lines[0]
        == "default   descent.epochs = 90.76, because 720 steps let a weight go where its examples want it"
    )
    hybrid = {"method": "hybrid", "epsilon": 4, "delta": 1e-5}
    config = dp_sgd(place, privacy=hybrid, ledger={**LEDGER, "key": "k", "secret": "s"})
    chosen = told(capsys, "train", config, "--dry-run")["defaults"]
    (share,) = [default["value"] for default in chosen if default["key"] == "privacy.k"]
    assert 0.1 < share < 0.3  # of a statistic: 476 records of few values outweigh its noise
    config = dp_sgd(place, privacy={**hybrid, "epsilon": 0.001}, ledger={**LEDGER, "key": "k"})
    chosen = told(capsys, "train", config, "--dry-run")["defaults"]
    assert [default["value"] for default in chosen if default["key"] == "privacy.k"] == [0.0]


def test_how_far_off_predictions_were_is_said_once(place: Path, capsys: Told) -> None:
    assert main(["train", str(dp_sgd(place, descent={"epochs": 4, "batch": 60}))]) == 0
    said = capsys.readouterr()
    assert said.err.count("calibrated  ") == 1
    assert "predictions are not" in said.err or "of what was observed" in said.err
    assert "not be recalibrated" not in said.out


def test_how_far_off_predictions_were_stays_with_the_model(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For machines, in the saved model, on its page; a run that goes on when it is made finds it there."""
    config = dp_sgd(place, descent={"epochs": 4, "batch": 60})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run, "put_in_place", full)
        assert main(["train", str(config)]) == 2
    capsys.readouterr()
    assert main(["train", str(config), "--resume", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["calibrated"]
    assert set(found) == {"predicted", "spread", "slope", "shift", "is_close", "words"}
    assert found["is_close"] is False, "there are 476 examples"
    assert "WARNING" in found["words"]
    assert load(place / "model").settings["calibrated"] == found
    explained = told(capsys, "explain", place / "model")
    assert explained["settings"]["calibrated"] == found
    assert main(["explain", str(place / "model")]) == 0
    assert f"Calibration: {found['words']}." in " ".join(capsys.readouterr().out.split())
    said = {"data": "log", "out": "plain", "model": {"name": "logistic"}, "privacy": {"method": "plain"}}
    assert told(capsys, "train", written(place / "plain.toml", said))["calibrated"] is None
    assert main(["explain", str(place / "plain")]) == 0
    assert "Calibration" not in capsys.readouterr().out


def test_a_dry_run_and_an_explanation_change_nothing(place: Path, capsys: Told) -> None:
    said: dict[str, Any] = {"method": "hybrid", "epsilon": 4, "delta": 1e-5, "k": 0.5}
    config = dp_sgd(place, privacy=said, labels=LABELS, ledger={**LEDGER, "key": "k", "secret": "s"})
    before = files(place)
    record = told(capsys, "train", config, "--dry-run")
    assert record["room"] == "there is room"
    assert [phase["name"] for phase in record["phases"]] == ["labels", "dp-sgd"]
    assert told(capsys, "explain", config)["statement"] == record["statement"]
    assert main(["explain", str(config)]) == 0
    page = capsys.readouterr().out
    assert "not begun. Nothing is spent." in page
    assert "What would be promised" in page
    assert "What would be released is (" in page
    assert files(place) == before


def test_a_second_training_on_the_same_noisy_labels_is_free(place: Path, capsys: Told) -> None:
    assert told(capsys, "train", label_dp(place))["paid"] == "reserved"
    assert (place / "flips.secret").stat().st_mode & 0o777 == 0o600
    again = told(capsys, "train", label_dp(place, "other", labels={**LABELS, "correction": "unbiased"}))
    assert again["paid"] == "paid for before: the same noisy labels, read again"
    assert spent(place) == 2
    # Another epsilon, version or secret means other flips.
    told(capsys, "train", label_dp(place, "third", privacy={"method": "label-dp", "epsilon": 1}))
    assert spent(place) == 3
    told(capsys, "train", label_dp(place, "fourth", labels={**LABELS, "version": 1}))
    assert spent(place) == 5
    (place / "flips.secret").unlink()
    told(capsys, "train", label_dp(place, "fifth"))
    assert spent(place) == 7


def test_labels_that_changed_are_not_read_through_old_flips(place: Path, capsys: Told) -> None:
    told(capsys, "train", label_dp(place))
    labels = np.load(place / "log" / "label.npy")
    np.save(place / "log" / "label.npy", 1 - labels)
    said = refused(capsys, "train", label_dp(place, "other"))
    assert "labels.version: expected a higher one for labels that have changed" in said
    assert not (place / "other").exists()
    assert not checkpoint_folder(place / "other").exists()
    told(capsys, "train", label_dp(place, "other", labels={**LABELS, "version": 1}))
    assert spent(place) == 4


def test_noisy_labels_may_be_paid_on_the_wider_line(place: Path, capsys: Told) -> None:
    ledger = {**LEDGER, "secret": "flips.secret", "relation": "replace-one"}
    record = told(capsys, "train", label_dp(place, ledger=ledger))
    assert record["ledger"]["lines"] == ["shop (impression, replace-one), all time"]


def test_each_time_window_pays_for_itself(place: Path, capsys: Told) -> None:
    arguments = ["--scope", "shop", "--unit", "user", "--relation", "replace-label", "--epsilon", "2"]
    ledger = ["--ledger", str(place / "ledger.sqlite"), "--window-days", "1", "--json"]
    assert main(["ledger", "grant", *arguments, *ledger]) == 0
    capsys.readouterr()
    said = {
        "method": "label-dp",
        "epsilon": 2,
        "unit": "user",
        "window_days": 1,
        "cap": 2,
        "cap_choice": "random",
    }
    record = told(capsys, "train", label_dp(place, privacy=said))
    assert len(record["ledger"]["keys"]) == 7  # 600 rows, one every 1000 seconds
    assert spent(place) == 14
    assert "user per 1 day" in load(place / "model").statement["unit"]  # type: ignore[index]


def test_a_plain_model_promises_nothing_and_needs_no_ledger(place: Path, capsys: Told) -> None:
    said = {"data": "log", "out": "model", "model": {"name": "logistic"}, "privacy": {"method": "plain"}}
    config = written(place / "plain.toml", said)
    assert main(["train", str(config)]) == 0
    assert "promise   nothing: the model may tell" in capsys.readouterr().out
    assert load(place / "model").statement is None
    assert main(["explain", str(place / "model")]) == 0
    assert "No privacy is promised" in capsys.readouterr().out


def test_a_simulated_run_is_a_study(place: Path, capsys: Told) -> None:
    said: dict[str, Any] = {"ledger": {}, "run": {"simulated": 7}, "out": "a"}
    assert "run.simulated: expected made-up data" in refused(capsys, "train", dp_sgd(place, **said))
    called_synthetic(place / "log")
    record = told(capsys, "train", dp_sgd(place, **said))
    assert (record["statement"], record["simulated"]) == (None, 7)
    told(capsys, "train", dp_sgd(place, **said | {"out": "b"}))
    told(capsys, "train", dp_sgd(place, **said | {"out": "c", "run": {"simulated": 8}}))
    a, b, c = (load(place / name) for name in "abc")
    np.testing.assert_array_equal(a.model.tables["table"], b.model.tables["table"])
    assert np.any(a.model.tables["table"] != c.model.tables["table"])
    assert a.method == "dp-sgd (simulated, not private)"
    assert a.statement is None
    assert main(["explain", str(place / "a")]) == 0
    assert "Simulated, not private" in capsys.readouterr().out
    assert spent(place) == 0


def statistic(place: Path, **changes: Any) -> Path:
    said: dict[str, Any] = {
        "data": "log", "out": "model",
        "privacy": {"method": "statistic", "epsilon": 2, "delta": 1e-5, "unit": "user"},
        "statistic": {"rank": 2, "rate": 0.4}, "ledger": {**LEDGER, "key": "statistic-1"},
    }  # fmt: skip
    return written(place / "statistic.toml", said | changes)


def test_one_noisy_statistic_is_a_method_like_the_others(place: Path, capsys: Told) -> None:
    granted(place / "ledger.sqlite", "replace-label", "2", unit="user")
    capsys.readouterr()
    record = told(capsys, "train", statistic(place))
    assert "cells in" in record["statistic"]
    assert record["statement"]["relation"] == "replace-label"
    assert float(reservations(place)["statistic-1"].amount.budget.epsilon) == 2
    assert "under which a release was made" in refused(capsys, "train", statistic(place, out="other"))
    assert load(place / "model").part is Part.TRUNCATED
    assert main(["explain", str(place / "model")]) == 0
    assert "one Gaussian statistic" in capsys.readouterr().out


def test_the_saved_statistic_predicts_what_was_fitted(place: Path, capsys: Told) -> None:
    called_synthetic(place / "log")
    told(capsys, "train", statistic(place, ledger={}, run={"simulated": 3}))
    examples = Examples.of(Columns.open(place / "log"), "train")
    ids = np.asarray(examples.at.of(examples.public))
    method = NoisyStatistic(rank=2, prior=StatisticPrior(rate=0.4))
    keys = {"user": examples.key("user")}
    unit = Unit(UnitKind.USER)
    plan = method.plan(ids, keys, public=examples.public_keys, unit=unit, epsilon=2, delta=1e-5)
    released = method.release(plan, examples.labels, Simulation("run 3"), simulated=True)
    expected = method.fit(released, ids, Simulation("start 3")).predict_proba(ids)
    saved = load(place / "model")
    np.testing.assert_allclose(saved.predict(examples), expected, rtol=1e-4)
    assert np.ptp(expected) > 0.01
    with pytest.raises(BadInput, match="expected an fm, logistic or mlp to export, got field-fm"):
        export_onnx(saved, place / "model.onnx")


def test_a_model_for_devices_is_written_beside_it(place: Path, capsys: Told) -> None:
    called_synthetic(place / "log")
    for make, name in ((dp_sgd, "a"), (statistic, "b")):
        config = make(place, out=name, ledger={}, run={"simulated": 3}, export={"device": f"{name}.tacit"})
        told(capsys, "train", config)
        assert (place / f"{name}.tacit").read_bytes() == device_bytes(load(place / name))


def test_a_release_never_comes_out_twice_the_same(place: Path, capsys: Told) -> None:
    called_synthetic(place / "log")
    for out in ("a", "b"):
        told(capsys, "train", dp_sgd(place, out=out, ledger={}))
    a, b = (load(place / name).model.tables["table"] for name in "ab")
    assert np.all(a != b)


def test_what_is_refused_costs_nothing_and_changes_nothing(place: Path, capsys: Told) -> None:
    privacy = {"method": "dp-sgd", "epsilon": 4, "delta": 1e-5}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"descent": {**DESCENT, "epoch": 3}}, "descent.epoch: .*did you mean 'epochs'"),
        ({"data": "nowhere"}, "expected a prepared log here"),
        ({"part": "trian"}, "expected a part named train, test, got 'trian'"),
        ({"privacy": {**privacy, "epsilon": 9}}, "budget exceeded on line shop .*; nothing was spent"),
        ({"privacy": {**privacy, "unit": "user-publisher"}}, "expected a column 'publisher' for unit"),
        ({"privacy": {**privacy, "unit": "user"}}, "no budget was granted on line shop .user, replace-one"),
        ({"ledger": {**LEDGER, "path": "none.sqlite", "key": "k"}}, "there is no ledger at"),
        ({"ledger": LEDGER}, "ledger.key: expected a name for this release"),
        ({"ledger": {}}, "ledger.path: expected the ledger that pays for dp-sgd"),
        ({"run": {"mlflow": "x"}}, r"run.mlflow: expected mlflow, got none: pip install 'tacit\[track\]'"),
    ]
    before = files(place)
    for changes, expected in cases:
        config = dp_sgd(place, **changes)
        said = refused(capsys, "train", config)
        assert re.search(expected, said), said
        config.unlink()
        assert files(place) == before, changes


def test_a_log_without_what_it_takes_is_refused(place: Path, tmp_path: Path, capsys: Told) -> None:
    strange = prepared(tmp_path / "strange", labels=4)
    capsys.readouterr()
    assert "column label: expected 0 or 1" in refused(capsys, "train", dp_sgd(place, data=str(strange)))
    manifest = json.loads((place / "log" / "columns.json").read_text())
    for name in ("label", "user"):
        arrays = {key: value for key, value in manifest["arrays"].items() if key != name}
        (place / "log" / "columns.json").write_text(json.dumps({**manifest, "arrays": arrays}))
        said = refused(
            capsys, "train", label_dp(place, privacy={"method": "label-dp", "epsilon": 1, "unit": "user"})
        )
        assert ("expected a label column" if name == "label" else "expected a column 'user'") in said
    assert spent(place) == 0
    assert not (place / "model").exists()
    assert not (place / "flips.secret").exists()


def test_an_epsilon_that_cannot_be_met_is_refused(place: Path, tmp_path: Path, capsys: Told) -> None:
    """By an encoder that has spent more already, or because labels would tell nothing."""
    log = prepared(tmp_path / "selected", select=("2", "1e-6", str(place / "ledger.sqlite")))
    capsys.readouterr()
    low = {"method": "dp-sgd", "epsilon": 1, "delta": 1e-5}
    said = refused(capsys, "train", dp_sgd(place, data=str(log), privacy=low))
    assert "expected some noise to reach epsilon=1, got none: what is released beside it" in said
    tiny = {"method": "label-dp", "epsilon": 1e-4}
    assert "noisy labels would tell nothing" in refused(capsys, "train", label_dp(place, privacy=tiny))
    assert spent(place) == 2
    assert not (place / "model").exists()


def test_a_folder_that_exists_is_kept(place: Path, capsys: Told) -> None:
    (place / "model").mkdir()
    (place / "model" / "thesis.txt").write_text("years of work")
    assert "which exists; say --overwrite" in refused(capsys, "train", dp_sgd(place))
    assert "holds something else" in refused(capsys, "train", dp_sgd(place), "--overwrite")
    assert spent(place) == 0
    shutil.rmtree(place / "model")
    told(capsys, "train", dp_sgd(place))
    first = load(place / "model").model.tables["table"]
    assert "which exists" in refused(capsys, "train", dp_sgd(place, key="model-2"))
    told(capsys, "train", dp_sgd(place, key="model-2"), "--overwrite")
    assert np.any(load(place / "model").model.tables["table"] != first)
    assert spent(place) == 8


def test_one_key_is_one_release(place: Path, capsys: Told) -> None:
    told(capsys, "train", dp_sgd(place))
    said = refused(capsys, "train", dp_sgd(place, out="other"))
    assert "got model-1, under which a release was made; name another" in said
    said = refused(
        capsys, "train", dp_sgd(place, out="other", privacy={"method": "dp-sgd", "epsilon": 3, "delta": 1e-5})
    )
    assert "key 'model-1' was used before" in said
    assert not (place / "other").exists()
    assert not checkpoint_folder(place / "other").exists()
    assert spent(place) == 4


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_secret_is_for_its_owner_alone(place: Path, capsys: Told, mode: int) -> None:
    (place / "flips.secret").write_bytes(bytes(32 if mode == 0o644 else 31))
    (place / "flips.secret").chmod(mode)
    expected = "(chmod 600), got mode 644" if mode == 0o644 else "expected 32 bytes in"
    assert expected in refused(capsys, "train", label_dp(place))
    assert spent(place) == 0


def test_help_teaches(capsys: Told) -> None:
    for command in ("train", "evaluate", "explain"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert len(capsys.readouterr().out) > 500
    assert main(["train", "--example", "label-dp"]) == 0
    assert 'method = "label-dp"' in capsys.readouterr().out
    assert "--example dp-sgd prints one" in refused(capsys, "train")


@pytest.mark.parametrize(
    "unit",
    [
        Unit(UnitKind.IMPRESSION),
        Unit(UnitKind.USER, Window.days(1)),
        Unit(UnitKind.USER_ADVERTISER, Window(90), "an exchange"),
    ],
    ids=str,
)
def test_a_stored_statement_is_said_in_the_same_words(unit: Unit) -> None:
    release = FlippedLabels(Fraction(3, 4))
    statement = PrivacyStatement.of([release], unit=unit, relation=Relation.REPLACE_LABEL)
    stored = json.loads(json.dumps(statement.as_json()))
    assert PrivacyStatement.from_json(stored).as_text() == statement.as_text()


def test_explain_names_what_it_can_explain(place: Path, capsys: Told) -> None:
    assert main(["explain", str(place / "log")]) == 0
    page = capsys.readouterr().out
    assert "Sensitive: age; and the label." in page
    assert "Promises can be made per impression, user." in page
    assert "keep it like the log it came from" in " ".join(page.split())
    assert told(capsys, "explain", place / "log")["unit_keys"] == {"time": "public", "user": "public"}
    assert "got none of them" in refused(capsys, "explain", place / "nothing")
