"""What is promised, in plain words, from Python: of a saved model, of a planned training, of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.cli import main
from tacit.errors import BadInput
from tacit.privacy.units import UnitKind
from tacit.train import explain_log, explain_model, explain_training, load_config, plan_training
from tacit.train.explanation import explain
from tacit.train.promise_words import NO_PROMISE_PAGE
from tests.support.training_logs import called_synthetic, prepared, written


def words(page: str) -> str:
    return " ".join(page.split())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("explain")
    called_synthetic(prepared(place))
    return place


def configured(place: Path, name: str, **tables: object) -> Path:
    said = {"data": "log", "out": name, "model": {"name": "logistic"}, **tables}
    return written(place / f"{name}.toml", said)


def test_a_model_without_a_promise_says_so(place: Path) -> None:
    config = configured(place, "plain", privacy={"method": "plain"}, descent={"epochs": 1, "batch": 64})
    assert main(["train", str(config), "--json"]) == 0
    found = explain_model(place / "plain")
    assert found.record["statement"] is None
    assert found.record["kind"] == "model"
    assert NO_PROMISE_PAGE in words(found.page)
    assert found == explain(place / "plain", plan=lambda _: pytest.fail("a model is not planned"))


def test_a_planned_training_says_what_it_would_promise(place: Path) -> None:
    privacy = {"method": "dp-sgd", "epsilon": 4, "delta": 1e-5}
    config = load_config(
        configured(place, "later", privacy=privacy, ledger={"path": "l.sqlite", "scope": "shop", "key": "one"})
    )
    planned = plan_training(config, now=0)
    found = explain_training(planned)
    assert planned.plan.statement is not None
    assert planned.plan.statement.as_text("What would be released") in found.page
    assert "not begun. Nothing is spent." in str(found)
    assert "tacit ledger show adds up" in words(found.page)
    assert not (place / "later").exists()


def test_a_log_says_for_whom_promises_can_be_made(place: Path) -> None:
    found = explain_log(place / "log")
    assert found.record["units"] == [str(UnitKind.IMPRESSION), str(UnitKind.USER)]
    assert "Promises can be made per impression, user." in found.page


def test_what_is_none_of_them_is_refused(place: Path) -> None:
    with pytest.raises(BadInput, match="expected a model, a training configuration or a prepared log"):
        explain(place, plan=lambda config: plan_training(config, now=0))
