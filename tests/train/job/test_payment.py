"""One payment, one model, of one run; and flips of one set of labels, whichever ledger pays for them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.errors import BadInput, ReservationTaken
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.ledger.rules import ReservationState
from tacit.store.ledger import LedgerStore, Request
from tacit.train.examples import Examples
from tacit.train.job import planned_training, run
from tacit.train.job.checkpoints import Checkpoints, checkpoint_folder
from tacit.train.job.payment import Payment, TrainingLedger
from tacit.train.models.model import Part
from tacit.train.models.saving import load
from tacit.train.steps import Run
from tests.support.ledger_places import COST, LIMIT, LINE
from tests.support.training_logs import (  # fmt: skip
    DESCENT,
    LABELS,
    LEDGER,
    Told,
    called_synthetic,
    dp_sgd,
    failing,
    granted,
    label_dp,
    refused,
    reservations,
    spent,
    told,
    written,
)
from tests.support.training_logs import home as home  # a fixture, as the next two
from tests.support.training_logs import log as log
from tests.support.training_logs import place as place

CHANGED = "labels.version: expected a higher one for labels that have changed"
USER = {"method": "label-dp", "epsilon": 2, "unit": "user", "cap": 2}


def state(place: Path, key: str = "model-1") -> str:
    return str(reservations(place)[key].state)


def weights(place: Path) -> bytes:
    return (place / "weights.safetensors").read_bytes()


def second_ledger(place: Path, capsys: Told) -> dict[str, str]:
    granted(place / "second.sqlite", "replace-label", "8", delta="0")
    granted(place / "second.sqlite", "replace-one", "8")
    capsys.readouterr()
    return {**LEDGER, "path": "second.sqlite", "secret": "flips.secret"}


def change(place: Path, name: str, values: Any) -> None:
    np.save(place / "log" / f"{name}.npy", values)


def column(place: Path, name: str) -> Any:
    return np.load(place / "log" / f"{name}.npy")


def two_rows_swapped(place: Path, users: Any) -> Any:
    """As many people with as many rows each, but two rows are of each other's."""
    train = np.asarray(Examples.of(Columns.open(place / "log"), "train").key("row"))
    several = [row for row in train if (users[train] == users[row]).sum() > 1]
    one, other = several[0], next(row for row in several if users[row] != users[several[0]])
    swapped = users.copy()
    swapped[[one, other]] = users[[other, one]]
    return swapped


def test_a_second_ledger_does_not_make_changed_labels_the_same(place: Path, capsys: Told) -> None:
    told(capsys, "train", label_dp(place))
    register = (place / "flips.secret.flipped.json").read_bytes()
    ledger, labels = second_ledger(place, capsys), column(place, "label")
    change(place, "label", 1 - labels)
    assert CHANGED in refused(capsys, "train", label_dp(place, "other", ledger=ledger))
    assert CHANGED in refused(capsys, "train", label_dp(place, "other"))
    assert (place / "flips.secret.flipped.json").read_bytes() == register
    # Of another epsilon, too: with a cap it may flip some rows by the same coins.
    assert CHANGED in refused(
        capsys, "train", label_dp(place, "other", privacy={"method": "label-dp", "epsilon": 1})
    )
    change(place, "label", labels)
    assert told(capsys, "train", label_dp(place, "other", ledger=ledger))["paid"] == "reserved"


def test_flips_of_a_hybrid_are_of_one_set_of_labels(place: Path, capsys: Told) -> None:
    said: dict[str, Any] = {"privacy": {"method": "hybrid", "epsilon": 4, "delta": 1e-5, "k": 0.5}}
    said |= {"labels": LABELS, "ledger": {**LEDGER, "key": "model-1", "secret": "flips.secret"}}
    told(capsys, "train", dp_sgd(place, **said))
    change(place, "label", 1 - column(place, "label"))
    said |= {"out": "other", "ledger": {**second_ledger(place, capsys), "key": "model-1"}}
    assert CHANGED in refused(capsys, "train", dp_sgd(place, **said))
    assert not checkpoint_folder(place / "other").exists()
    said["ledger"] = {**LEDGER, "key": "model-2", "secret": "flips.secret"}  # fresh flips, of whatever labels
    told(capsys, "train", dp_sgd(place, **said))


def test_without_its_register_nothing_that_was_paid_for_is_read_again(place: Path, capsys: Told) -> None:
    told(capsys, "train", label_dp(place))
    (place / "flips.secret.flipped.json").unlink()
    said = refused(capsys, "train", label_dp(place, "other"))
    assert "ledger.secret: expected a register beside" in said
    assert not (place / "flips.secret.flipped.json").exists()


def test_rows_of_other_people_are_other_flips(place: Path, capsys: Told) -> None:
    """A log with other user ids keeps other rows and shares: more labels of a person than were paid for."""
    granted(place / "ledger.sqlite", "replace-label", "2", unit="user", delta="0")
    capsys.readouterr()
    told(capsys, "train", label_dp(place, privacy=USER))
    users = column(place, "user")
    change(place, "user", users.max() - users)  # the same people by other names
    again = told(capsys, "train", label_dp(place, "again", privacy=USER))
    assert again["paid"].startswith("paid for before")
    change(place, "user", np.roll(users, 1))
    assert "or whose rows are of other people" in refused(capsys, "train", label_dp(place, "new", privacy=USER))
    assert spent(place) == 2


@pytest.mark.parametrize("method", ["dp-sgd", "label-dp", "statistic"])
def test_a_run_goes_on_with_the_same_people_alone(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    granted(place / "ledger.sqlite", "replace-one", "4", unit="user")
    granted(place / "ledger.sqlite", "replace-label", "4", unit="user")
    capsys.readouterr()
    config = label_dp(place, privacy=USER)
    if method != "label-dp":
        said: dict[str, Any] = {"data": "log", "out": "model", "ledger": {**LEDGER, "key": "model-1"}}
        said |= {"model": {"name": "logistic"}, "descent": DESCENT} if method == "dp-sgd" else {}
        said["privacy"] = {"method": method, "epsilon": 4, "delta": 1e-5, "unit": "user"}
        config = written(place / "config.toml", said)
    with monkeypatch.context() as patch:
        patch.setattr(run, "put_in_place", failing)
        assert "try again with --resume" in refused(capsys, "train", config)
    users = column(place, "user")
    change(place, "user", two_rows_swapped(place, users))
    assert "expected a checkpoint of this configuration" in refused(capsys, "train", config, "--resume")
    change(place, "user", users)
    told(capsys, "train", config, "--resume")


def test_a_reservation_is_for_the_run_that_made_it(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # as if killed between claiming the folder and paying
        patch.setattr(Payment, "reserve", failing)
        patch.setattr(Checkpoints, "discard", Checkpoints.release)
        refused(capsys, "train", dp_sgd(place))
    assert checkpoint_folder(place / "model").exists()
    assert reservations(place) == {}
    with monkeypatch.context() as patch:
        patch.setattr(Payment, "commit", failing)
        refused(capsys, "train", dp_sgd(place, out="other"))
    assert "got model-1, under which another run has begun" in refused(
        capsys, "train", dp_sgd(place), "--resume"
    )
    assert not (place / "model").exists()
    told(capsys, "train", dp_sgd(place, out="other"), "--resume")
    assert state(place) == "committed"
    assert "under which a release was made" in refused(capsys, "train", dp_sgd(place), "--resume")
    assert told(capsys, "train", dp_sgd(place, out="x"), "--dry-run")["room"] == "reserved or paid for already"
    assert spent(place) == 4


def test_a_run_that_was_killed_before_it_paid_goes_on(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Payment, "reserve", failing)
        patch.setattr(Checkpoints, "discard", Checkpoints.release)
        refused(capsys, "train", dp_sgd(place))
    assert told(capsys, "train", dp_sgd(place), "--resume")["paid"] == "reserved"
    assert load(place / "model").settings["run"] in reservations(place)["model-1"].purpose


def test_a_model_that_was_moved_away_is_not_made_again(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Payment, "commit", failing)
        refused(capsys, "train", dp_sgd(place))
    (place / "model").rename(place / "elsewhere")
    monkeypatch.setattr(Run, "go", failing)
    said = refused(capsys, "train", dp_sgd(place), "--resume")
    assert "expected the model that this run has made, got none; put it back and try again" in said
    assert "tacit ledger settle model-1 --left" in said
    assert not (place / "model").exists()
    assert state(place) == "reserved"
    before = weights(place / "elsewhere")
    (place / "elsewhere").rename(place / "model")
    told(capsys, "train", dp_sgd(place), "--resume")
    assert weights(place / "model") == before
    assert state(place) == "committed"
    assert not checkpoint_folder(place / "model").exists()


def test_a_model_that_is_whole_is_put_in_place_and_not_made_again(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run, "put_in_place", failing)
        refused(capsys, "train", dp_sgd(place))
    assert not (place / "model").exists()
    staged = weights(checkpoint_folder(place / "model") / "model")
    monkeypatch.setattr(Run, "go", failing)
    told(capsys, "train", dp_sgd(place), "--resume")
    assert weights(place / "model") == staged
    assert state(place) == "committed"


def test_the_mark_comes_before_the_model(place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mark cannot be written nobody sees a model, and the run may go on."""
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "note_made", failing)
        refused(capsys, "train", dp_sgd(place))
    assert not (place / "model").exists()
    told(capsys, "train", dp_sgd(place), "--resume")
    assert load(place / "model").statement is not None
    assert state(place) == "committed"


def test_a_made_model_is_not_paid_by_another_run(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's file was put in the place of another, where somebody else has reserved under this key."""
    shutil.copytree(place, place / "b", ignore=shutil.ignore_patterns("b"))
    for where in (place, place / "b"):
        with monkeypatch.context() as patch:
            patch.setattr(Payment, "commit", failing)
            refused(capsys, "train", dp_sgd(where))
    for name in ("ledger.sqlite", "ledger.sqlite.witness"):
        shutil.copy(place / "b" / name, place / name)
    assert "expected what this run reserved as model-1" in refused(capsys, "train", dp_sgd(place), "--resume")
    assert state(place) == "reserved"


def test_an_open_window_is_refused_by_dp_sgd_too(place: Path, capsys: Told) -> None:
    promised = {"method": "dp-sgd", "epsilon": 4, "delta": 1e-5, "unit": "user", "window_days": 1}
    change(place, "time", column(place, "time") + 10**11)
    said = refused(capsys, "train", dp_sgd(place, privacy=promised, descent=DESCENT), "--dry-run")
    assert "expected only closed windows" in said


def test_a_delta_that_protects_nobody_is_called_so(place: Path, capsys: Told) -> None:
    promised: dict[str, Any] = {"method": "dp-sgd", "epsilon": 4, "delta": 3e-3}
    granted(place / "ledger.sqlite", "replace-one", "8", delta="1e-2")
    granted(place / "ledger.sqlite", "replace-one", "8", unit="user", delta="1e-2")
    capsys.readouterr()
    assert main(["train", str(dp_sgd(place, privacy=promised))]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(lines) == 3, "there are few examples, too, and predictions are not recalibrated"
    assert "delta 0.003 is more than 1/476 = 0.0021" in lines[1]
    assert main(["explain", str(place / "model")]) == 0
    assert "Warning: delta 0.003 is more than 1/476" in capsys.readouterr().out
    users = dp_sgd(place, "k", privacy=promised | {"unit": "user"}, out="other")
    units = len(np.unique(Examples.of(Columns.open(place / "log"), "train").key("user")))
    record = told(capsys, "train", users, "--dry-run")
    assert (record["units"], record["warning"]) == (units, None)  # fewer units, so that more is allowed
    users = dp_sgd(place, "k", privacy=promised | {"unit": "user", "delta": 9e-3}, out="other")
    assert f"more than 1/{units} = " in told(capsys, "train", users, "--dry-run")["warning"]
    assert main(["explain", str(users)]) == 0
    assert f"Warning: delta 0.009 is more than 1/{units} = " in capsys.readouterr().out
    assert told(capsys, "train", dp_sgd(place, "k", out="other"), "--dry-run")["warning"] is None


def test_explain_does_not_claim_that_lines_are_added_up(place: Path, capsys: Told) -> None:
    assert main(["explain", str(dp_sgd(place))]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "adds up what was spent on one line: one scope, unit, relation and window." in page
    assert "promises on different lines add up too, and the ledger does not do that sum" in page
    called_synthetic(place / "log")
    assert main(["explain", str(dp_sgd(place, ledger={}))]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "tacit ledger show" not in page, "there is none"
    assert "without a ledger, nobody does that sum" in page


def test_flips_do_not_pay_for_a_model_of_features_that_a_line_protects(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an architecture that reads sensitive features, and has no part without them: weights tell of them."""
    monkeypatch.setattr(planned_training, "only_part", lambda _: Part.WHOLE)
    said = refused(capsys, "train", label_dp(place))
    assert "since line shop (impression, replace-one) protects the others, got one that reads sensitive" in said
    assert reservations(place) == {}
    (place / "ledger.sqlite").unlink()
    (place / "ledger.sqlite.witness").unlink()
    granted(
        place / "ledger.sqlite", "replace-label", "8", delta="0"
    )  # nobody promised to protect features here
    granted(place / "ledger.sqlite", "replace-one", "8", scope="elsewhere")
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(LedgerStore, "verify", failing)  # which reads all that was ever written down
        record = told(capsys, "train", label_dp(place))
    assert any("which this model reads" in gap for gap in record["statement"]["not_protected"])
    granted(place / "ledger.sqlite", "replace-one", "8", unit="user", more=("--window-days", "7"))
    capsys.readouterr()
    said = refused(capsys, "train", label_dp(place, "other"))
    assert "since line shop (user per 7 days, replace-one) protects the others" in said


@pytest.mark.parametrize("kind", ["durable", "in memory"])
def test_any_ledger_that_keeps_to_the_protocol_pays(tmp_path: Path, kind: str) -> None:
    store = LedgerStore.open(tmp_path / "ledger.sqlite") if kind == "durable" else MemoryLedger()
    store.grant(LINE, LIMIT)
    ledger: TrainingLedger = store  # both, by their shape alone
    payment = Payment(ledger, (Request("model", LINE, COST, "train"),))
    mine, other = payment.of_run("mine"), payment.of_run("other")
    assert payment.check() == "there is room"
    assert mine.reserve() == "reserved"
    mine.claim("token", ())
    assert mine.reserve() == "reserved before, by the run that goes on"
    with pytest.raises(BadInput, match="another run has begun"):
        other.reserve()
    with pytest.raises(ReservationTaken):
        mine.claim("of a copy", ())
    mine.make("token", "digest")
    with pytest.raises(ReservationTaken):
        mine.make("token", "another model")
    mine.commit("token")
    known = ledger.reservation("model")
    assert known is not None
    assert (known.state, known.purpose) == (ReservationState.COMMITTED, "train, run mine")
    assert {each.scope for each in ledger.series()} == {LINE.series.scope}
    back = Payment(ledger, (Request("never made", LINE, COST, "train"),))
    back.reserve()
    back.claim("token", ())
    back.give_back("token")
    with pytest.raises(BadInput, match="a reservation was given back"):
        back.of_run("again").reserve()


def test_flips_of_several_windows_are_spent_all_or_none(tmp_path: Path) -> None:
    store = LedgerStore.open(tmp_path / "ledger.sqlite")
    store.grant(LINE, LIMIT)
    requests = tuple(Request(f"flips/{index}", LINE, COST, "flip labels") for index in range(3))
    payment = Payment(store, requests, drawn_once=True, attempt="ours")
    store.reserve_all(requests)
    store.commit("flips/0")  # as in a ledger from before it kept who made what
    store.make("flips/1", "ours", "digest")
    store.make("flips/2", "another's", "digest")
    with pytest.raises(ReservationTaken):
        payment.commit()
    known = store.reservation("flips/1")
    assert known is not None
    assert known.state is ReservationState.RESERVED
    only = replace(payment, requests=requests[:2])
    only.commit()
    assert reservations(tmp_path)["flips/1"].state is ReservationState.COMMITTED
