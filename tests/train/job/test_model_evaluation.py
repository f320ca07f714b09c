"""A saved model measured from Python: by folders, exactly or on flips that any ledger pays for."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.errors import BadInput, UnknownLine
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Line
from tacit.privacy.units import Cap, Relation, Unit, UnitKind
from tacit.train import Evaluation, Examples, FlipSettings, ModelsOnRows, evaluate_model
from tacit.train.evaluation.measures import auc
from tacit.train.job.model_evaluation import AGREED, EXACT, EXACT_FEATURES, MADE_UP
from tacit.train.models.model import Part
from tacit.train.models.saving import load, save
from tests.support.training_logs import called_synthetic, prepared, written


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, a model of it, and the same without what it knows of sensitive features."""
    place = tmp_path_factory.mktemp("evaluate")
    prepared(place)
    said = {"data": "log", "out": "good", "model": {"name": "logistic"}, "privacy": {"method": "plain"}}
    config = written(place / "good.toml", {**said, "descent": {"epochs": 4, "batch": 32, "rate": 0.05}})
    assert main(["train", str(config), "--json"]) == 0
    save(place / "public", replace(load(place / "good"), part=Part.TRUNCATED))
    return place


def test_exact_figures_are_those_of_the_model_and_say_what_they_give_away(place: Path) -> None:
    found = evaluate_model(place / "good", place / "log")
    examples = Examples.of(Columns.open(place / "log"), "test")
    assert isinstance(found.evaluation, Evaluation)
    assert found.evaluation.auc.value == pytest.approx(
        auc(examples.labels, load(place / "good").predict(examples))
    )
    assert found.notes == (EXACT, EXACT_FEATURES)
    assert found.reliability is None
    public = evaluate_model(place / "public", place / "log", labels_are_public=True, reliability=True)
    assert public.notes == (AGREED,)
    assert public.reliability is not None
    assert sum(each.rows for each in public.reliability) == len(examples)


def test_no_note_speaks_of_a_command_line(place: Path) -> None:
    for part in ("test", "everything"):
        assert "--" not in " ".join(evaluate_model(place / "good", place / "log", part=part).notes)


def test_flips_are_planned_priced_and_paid_for_once(place: Path, tmp_path: Path) -> None:
    flips = FlipSettings(3, scope="shop", secret=tmp_path / "flips.secret")
    planned = ModelsOnRows.open(place / "public", place / "log").plan(flips=flips)
    assert planned.cost is not None
    assert float(planned.cost.budget.epsilon) == 3
    ledger = MemoryLedger()
    with pytest.raises(UnknownLine):
        planned.measure(ledger)
    line = Line("shop", Unit(UnitKind.IMPRESSION), Relation.REPLACE_LABEL)
    ledger.grant(line, Budget.of(3, 0))
    assert planned.measure(ledger).notes[0].endswith("ledger: reserved")
    again = evaluate_model(place / "good", place / "log", flips=flips, ledger=ledger, baseline=place / "public")
    assert "paid for before" in again.notes[0]
    assert isinstance(again.evaluation, Evaluation)
    assert again.evaluation.auc_difference is not None
    account = ledger.account(line)
    assert account is not None
    assert float(account.used.budget.epsilon) == 3


def test_made_up_labels_need_no_ledger(place: Path, tmp_path: Path) -> None:
    log = called_synthetic(Path(shutil.copytree(place / "log", tmp_path / "log")))
    assert evaluate_model(place / "good", log).notes[0] == MADE_UP
    assert "about nobody" in evaluate_model(place / "good", log, flips=FlipSettings(3)).notes[0]


def test_what_is_refused(place: Path, tmp_path: Path) -> None:
    secret = tmp_path / "flips.secret"
    with pytest.raises(BadInput, match=r"epsilon: expected 0\.0001 to 1000, got 1001"):
        FlipSettings(1001)
    with pytest.raises(BadInput, match="cap: expected only with a unit of several rows"):
        FlipSettings(1, cap=Cap(2))
    for settings, expected in (
        (FlipSettings(3, secret=secret), "flips.scope: expected one"),
        (FlipSettings(3, scope="shop"), "flips.secret: expected one"),
    ):
        with pytest.raises(BadInput, match=expected):
            evaluate_model(place / "good", place / "log", flips=settings)
    both = FlipSettings(3, scope="shop", secret=secret)
    with pytest.raises(BadInput, match="expected a ledger that pays for flips of people's labels"):
        evaluate_model(place / "good", place / "log", flips=both)
    with pytest.raises(BadInput, match="labels_are_public: expected only with the true labels"):
        evaluate_model(place / "good", place / "log", flips=both, labels_are_public=True)
    with pytest.raises(BadInput, match="ledger: expected one only with flips"):
        evaluate_model(place / "good", place / "log", ledger=MemoryLedger())
    assert not secret.exists()
