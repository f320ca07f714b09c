"""`Classifier` and `Regressor`: estimators whose promise is stated and whose fits are paid for."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.errors import BadInput, BudgetExceeded, ReservationTaken, UnknownLine
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import Amount, Line
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.store.ledger import LedgerStore
from tacit.train import frame_model
from tacit.train.classifier import Classifier, Regressor, load
from tacit.train.examples import Examples
from tacit.train.frame_model import RolesGuessed, TuningSpends
from tacit.train.job.training_job import TrainingJob
from tacit.train.methods import LabelDp
from tacit.train.models import saving
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import Part
from tests.support.training_logs import LABELS, called_synthetic, prepared, written

# Public features and noisy labels: no accounting by PLD, and so the quickest to fit.
QUICK: Any = {"method": "label-dp", "sensitive": []}


def own_words(estimator: Any) -> dict[str, str]:
    """What scikit-learn's checks ask for and we do otherwise."""
    del estimator
    return {"check_dataframe_column_names_consistency": "it asks for a refusal of several lines; ours has one"}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [Classifier("logistic", **QUICK), Regressor("logistic", sensitive=[], low=-9, high=9)],
    expected_failed_checks=own_words,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([Classifier()], expected_failed_checks=own_words)  # type: ignore[untyped-decorator]
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_at_the_defaults(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def visits() -> pd.DataFrame:
    """Made up: two public columns, two sensitive ones, people with several rows each."""
    rng = np.random.default_rng(7)
    rows = 4000
    frame = pd.DataFrame(
        {
            "site": rng.choice(list("abcdefgh"), rows),
            "hour": rng.integers(0, 24, rows),
            "age": rng.integers(18, 80, rows),
            "spent": rng.lognormal(3, 1, rows),
            "visitor": rng.integers(0, 2000, rows),
        }
    )
    score = 2 * frame.site.isin(["a", "b"]) + 1.5 * (frame.age > 63) - 1.5
    frame["clicked"] = np.where(rng.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no")
    return frame


@pytest.fixture(scope="module")
def clicks(visits: pd.DataFrame) -> pd.DataFrame:
    """The same without the people."""
    return visits.drop(columns="visitor")


ROLES: Any = {"public": ["site", "hour"], "sensitive": ["age", "spent"]}


@pytest.fixture(scope="module")
def fitted(clicks: pd.DataFrame) -> Classifier:
    return Classifier("logistic", epsilon=4, **ROLES).fit(clicks, "clicked")


def test_a_frame_becomes_a_private_model(fitted: Classifier, clicks: pd.DataFrame) -> None:
    chances = fitted.predict_proba(clicks)
    assert list(fitted.classes_) == ["no", "yes"]
    assert chances.shape == (len(clicks), 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)
    assert roc_auc_score(clicks.clicked == "yes", chances[:, 1]) > 0.7  # the truth has .76, half of it public
    assert set(fitted.predict(clicks)) <= {"no", "yes"}
    assert fitted.statement_ is not None
    assert 3.9 < fitted.statement_.epsilon <= 4
    assert fitted.statement_.delta == 1e-5
    assert fitted.statement_.relation is Relation.REPLACE_ONE
    assert "1e-05)-differentially private per impression" in fitted.explain()
    assert "sensitive  age" in fitted.explain()


@pytest.mark.parametrize("method", ["hybrid", "dp-sgd", "label-dp", "statistic", "plain"])
def test_every_method_states_what_it_promises(visits: pd.DataFrame, method: str) -> None:
    small = visits.head(600)
    model = Classifier("logistic", method=method, epsilon=2, unit="visitor", **ROLES).fit(small, "clicked")
    assert model.predict_proba(small).shape == (600, 2)
    if method == "plain":
        assert model.statement_ is None
        assert model.explain().startswith("no privacy promised")
        return
    assert model.statement_ is not None
    assert model.statement_.unit == Unit(UnitKind.USER)
    assert model.statement_.epsilon <= 2 * (1 + 1e-12)
    assert "several records" not in model.explain()  # a visitor's rows are clipped or flipped as one
    labels_alone = method in ("label-dp", "statistic")
    assert (model.statement_.relation is Relation.REPLACE_LABEL) == labels_alone


def test_labels_alone_are_private_and_sensitive_columns_are_not_read(clicks: pd.DataFrame) -> None:
    model = Classifier("logistic", method="label-dp", random_state=1, **ROLES).fit(clicks, "clicked")
    changed = clicks.assign(age=clicks.age + 30, spent=0.0)
    np.testing.assert_array_equal(model.predict_proba(clicks), model.predict_proba(changed))


def test_a_random_state_repeats_and_promises_nothing(clicks: pd.DataFrame) -> None:
    model = Classifier("logistic", random_state=3, **ROLES, method="label-dp")
    first, second = (clone(model).fit(clicks, "clicked") for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(clicks), second.predict_proba(clicks))
    assert first.statement_ is None
    assert first.explain().startswith("No privacy promised: the noise came from a seed")


def test_every_fit_draws_anew(clicks: pd.DataFrame) -> None:
    model = Classifier("logistic", **ROLES, method="label-dp")
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), clone(model), model]
    chances = [each.fit(clicks, "clicked").predict_proba(clicks)[:, 1] for each in copies]
    chances.append(copies[0].fit(clicks, "clicked").predict_proba(clicks)[:, 1])
    assert all(not np.array_equal(one, other) for k, one in enumerate(chances) for other in chances[:k])


def test_a_pickled_model_predicts_the_same_and_holds_no_rows(fitted: Classifier, clicks: pd.DataFrame) -> None:
    row = {"site": "a-site-of-this-row-alone", "hour": 3, "age": 30, "spent": 1.5}
    fitted.score_row(row)
    sent = pickle.dumps(fitted)
    assert b"a-site-of-this-row-alone" not in sent
    back = pickle.loads(sent)
    np.testing.assert_array_equal(back.predict_proba(clicks), fitted.predict_proba(clicks))
    assert back.score_row(row) == fitted.score_row(row)


@pytest.mark.parametrize("shape", ["fm", "logistic", Mlp(4, (8,), (8,))], ids=str)
@pytest.mark.parametrize("method", ["label-dp", "plain", "statistic"])
def test_a_row_scores_as_in_a_batch(clicks: pd.DataFrame, shape: Any, method: str) -> None:
    if method == "statistic" and shape != "fm":
        pytest.skip("a statistic has one model")
    small = clicks.head(300)
    model = Classifier(shape, method=method, random_state=0, **ROLES).fit(small, "clicked")
    odd = pd.DataFrame(
        {"site": [None, "new", "a"], "hour": [3, 99, 4], "age": [40, 0, -5], "spent": [np.nan, 0, 1e9]}
    )
    frame = pd.concat([odd, small[list(odd)].head(40)], ignore_index=True)
    batch = model.predict_proba(frame)[:, 1]
    for again in range(2):  # the second time from memory
        rows = [model.score_row(row) for row in frame.astype(object).to_dict("records")]
        np.testing.assert_allclose(rows, batch, rtol=2e-5, err_msg=f"round {again}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="age"), "expected the columns of fit, .*, got others; missing: age"),
        (lambda frame: frame.assign(more=1), "got others; unseen at fit: more"),
        (lambda frame: frame.rename(columns={"age": "years"}), "unseen at fit: years; missing: age"),
        (
            lambda frame: frame[frame.columns[::-1]],
            "expected columns in the order of fit, site, .*, got another",
        ),
    ],
)
def test_other_columns_than_those_of_the_fit_are_refused_in_one_line(
    fitted: Classifier, clicks: pd.DataFrame, change: Any, words: str
) -> None:
    features = clicks.drop(columns="clicked")[[*fitted.feature_names_in_]]
    assert len(fitted.predict(features)) == len(features)
    with pytest.raises(BadInput, match=words) as refused:
        fitted.predict(change(features))
    assert "\n" not in str(refused.value)


def test_a_row_without_a_column_is_refused_by_name(fitted: Classifier) -> None:
    with pytest.raises(BadInput, match="expected a value of 'site', got a row without: did you mean 'sites'"):
        fitted.score_row({"sites": "a", "hour": 1, "age": 2, "spent": 3})
    with pytest.raises(BadInput, match="column age: expected numbers, got string"):
        fitted.score_row({"site": "a", "hour": 1, "age": "old", "spent": 3})


def test_a_saved_model_comes_back_whole(fitted: Classifier, clicks: pd.DataFrame, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert isinstance(back, Classifier)
    np.testing.assert_array_equal(back.predict_proba(clicks), fitted.predict_proba(clicks))
    assert list(back.classes_) == ["no", "yes"]
    assert back.explain() == fitted.explain()
    assert back.statement_ == fitted.statement_
    with pytest.raises(BadInput, match="exists"):
        fitted.save(tmp_path / "model")


def test_pipelines_searches_and_cross_validation(clicks: pd.DataFrame) -> None:
    model = Classifier("logistic", public=["site", "hour"], method="label-dp")
    features, clicked = clicks[["site", "hour"]], clicks.clicked
    with pytest.warns(TuningSpends, match="each fit of a search or a cross-validation is a release of its own"):
        scores = cross_val_score(model, features, clicked, cv=2)
    assert len(scores) == 2
    with pytest.warns(TuningSpends):
        search = GridSearchCV(model, {"epsilon": [0.5, 4]}, cv=2).fit(features, clicked)
    assert search.best_estimator_.statement_.epsilon in (pytest.approx(0.5), pytest.approx(4))
    pipeline = make_pipeline(FunctionTransformer(lambda frame: frame.assign(hour=frame.hour // 6)), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningSpends)  # a single fit is no search
        assert pipeline.fit(features, clicked).predict_proba(features).shape == (len(features), 2)


def test_polars_and_pandas_fit_alike(clicks: pd.DataFrame) -> None:
    models = [
        Classifier("logistic", method="label-dp", random_state=5, **ROLES).fit(frame, "clicked")
        for frame in (clicks, pl.from_pandas(clicks), pl.from_pandas(clicks).to_arrow())
    ]
    chances = [model.predict_proba(clicks) for model in models]
    np.testing.assert_array_equal(chances[0], chances[1])
    np.testing.assert_array_equal(chances[0], chances[2])


def test_guessed_roles_are_said_aloud(visits: pd.DataFrame) -> None:
    with pytest.warns(RolesGuessed, match="site, hour, age, spent, visitor: taken as sensitive") as warned:
        Classifier("logistic", method="plain").fit(visits.head(50), "clicked")
    assert "unit='visitor' would promise per person" in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RolesGuessed)
        Classifier("logistic", method="plain", unit="visitor", **ROLES).fit(visits.head(50), "clicked")


def test_a_schema_file_gives_roles(visits: pd.DataFrame, tmp_path: Path) -> None:
    place = tmp_path / "clicks.toml"
    place.write_text(
        'name = "clicks"\n[columns.site]\nrole = "public"\n[columns.age]\nrole = "sensitive"\nkind = "whole"\n'
        '[columns.visitor]\nrole = "user"\n[columns.clicked]\nrole = "label"\nkind = "flag"\n'
    )
    unit = Unit(UnitKind.USER)
    model = Classifier("logistic", method="label-dp", schema=place, unit=unit).fit(visits, "clicked")
    assert model.statement_ is not None
    assert model.statement_.unit == unit
    assert list(model.feature_names_in_) == ["site", "age"]


def test_a_fit_is_paid_for_once(clicks: pd.DataFrame, tmp_path: Path) -> None:
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    line = Line("shop", Unit(UnitKind.IMPRESSION), Relation.REPLACE_ONE)
    ledger.grant(line, Budget.of(3, "1e-5"))
    model = Classifier("logistic", epsilon=2, delta=1e-6, **ROLES)
    small = clicks.head(500)
    model.fit(small, "clicked", ledger=ledger, scope="shop", name="clicks/1")
    account = ledger.account(line)
    assert account is not None
    assert model.statement_ is not None
    assert account.spent == Amount.spending(Budget.of(2, "1e-6"))  # as asked, never less than stated
    assert model.statement_.epsilon <= 2
    before = model.predict_proba(small)
    with pytest.raises(ReservationTaken):
        model.fit(small, "clicked", ledger=ledger, scope="shop", name="clicks/1")
    with pytest.raises(BudgetExceeded, match="asked"):
        model.fit(small, "clicked", ledger=ledger, scope="shop", name="clicks/2")
    np.testing.assert_array_equal(model.predict_proba(small), before)  # a refusal loses nothing
    with pytest.raises(BadInput, match="expected a private fit to pay for, got a simulation"):
        clone(model).set_params(random_state=1).fit(small, "clicked", ledger=ledger, scope="shop", name="a")
    with pytest.raises(BadInput, match="expected a ledger to pay from, got a scope or a name"):
        model.fit(small, "clicked", scope="shop")


def test_values_within_a_range(clicks: pd.DataFrame) -> None:
    rng = np.random.default_rng(3)
    baskets = clicks.assign(items=rng.poisson(np.where(clicks.site.isin(["a", "b"]), 4, 1)))
    for count in (False, True):
        model = Regressor("logistic", low=0, high=8, count=count, epsilon=4, public=["site"], sensitive=["age"])
        model.fit(baskets[["site", "age", "items"]], "items")
        found = model.predict(pd.DataFrame({"site": ["a", "c"], "age": [1, 1]}))
        # Over 30 fits the first was 3.87 with a deviation of .18: six of these, and what the range cuts off.
        np.testing.assert_allclose(found, [4, 1], atol=1.25)
        assert model.statement_ is not None
        assert model.statement_.delta == 0


def test_the_range_of_values_is_asked_for(clicks: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="high: expected the largest value that labels may have"):
        Regressor("logistic", public=["site"]).fit(clicks[["site", "hour"]], "hour")


def test_a_missing_value_of_pandas_scores_as_in_a_batch(fitted: Classifier) -> None:
    row = {"site": "a", "hour": 3, "age": pd.NA, "spent": 1.5}
    expected = fitted.predict_proba([row])[0, 1]
    assert [fitted.score_row(row) for _ in range(2)] == [pytest.approx(expected, rel=1e-5)] * 2
    with pytest.raises(BadInput, match="expected X as rows and columns, got a Series"):
        fitted.predict_proba(pd.Series([1, 2]))


def test_a_method_and_a_model_of_the_library(clicks: pd.DataFrame) -> None:
    model = Classifier(FactorizationMachine(2), method=LabelDp(3), **ROLES).fit(clicks, "clicked")
    assert model.statement_ is not None
    assert model.statement_.epsilon == pytest.approx(3)


@pytest.mark.parametrize(
    ("settings", "label", "said"),
    [
        ({}, "click", "y: expected a column of the frame, got 'click': did you mean 'clicked'?"),
        ({"epsilon": "2"}, "clicked", "expected epsilon to be a number, got the text '2'"),
        ({"delta": "1e-6"}, "clicked", "expected delta to be a number, got the text '1e-6'"),
        ({"epsilon": -1}, "clicked", "expected epsilon"),
        ({"delta": 2}, "clicked", "expected delta"),
        (
            {"method": "dpsgd"},
            "clicked",
            "method: expected hybrid, dp-sgd, label-dp, statistic, plain, got 'dpsgd'",
        ),
        ({"model": "tree"}, "clicked", "expected an architecture named fm"),
        ({"unit": 3}, "clicked", "unit: expected a column's name, a Unit or None, got 3"),
        ({"cap": 0}, "clicked", "expected cap"),
        ({"bins": -4}, "clicked", "expected bins"),
        ({"public": "sit"}, "clicked", "public: expected columns of the frame, got 'sit'"),
        ({"public": [["site"]]}, "clicked", "public: expected a list of column names, got ['site'] in it"),
        ({"sensitive": ["age", "age"]}, "clicked", "sensitive: expected each column once, got 'age' twice"),
        ({"random_state": "a"}, "clicked", "expected random_state"),
        ({"schema": "none.toml"}, "clicked", "public: expected roles from the schema alone"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    clicks: pd.DataFrame, settings: dict[str, Any], label: str, said: str
) -> None:
    model = Classifier("logistic", **(ROLES | settings if "model" not in settings else ROLES))
    model.set_params(**settings)
    with pytest.raises(BadInput) as refusal:
        model.fit(clicks.head(50), label)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    with pytest.raises(NotFittedError):
        model.predict(clicks)


def test_labels_that_are_no_two_classes(clicks: pd.DataFrame) -> None:
    model = Classifier("logistic", **ROLES)
    with pytest.raises(BadInput, match="expected two classes in y, got one class: 'yes'"):
        model.fit(clicks.head(20), ["yes"] * 20)
    with pytest.raises(BadInput, match="expected two classes in y, got 3"):
        model.fit(clicks.head(3), ["a", "b", "c"])
    with pytest.raises(BadInput, match="expected a label in every row of y, got"):
        model.fit(clicks.head(3), [1.0, np.nan, 0.0])


def test_columns_of_another_kind_at_serving_time(fitted: Classifier, clicks: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="column age: expected numbers, got"):
        fitted.predict(clicks.assign(age="old"))
    with pytest.raises(BadInput, match="missing: age"):
        fitted.predict(clicks[["site", "hour", "spent"]])


def test_a_model_of_tacit_train_is_loaded_too(tmp_path: Path) -> None:
    log = called_synthetic(prepared(tmp_path))
    plain = {"data": "log", "out": "model", "model": {"name": "fm", "dim": 2}, "labels": LABELS}
    private = {"privacy": {"method": "label-dp", "epsilon": 2}, "run": {"simulated": 0}}
    config = written(tmp_path / "train.toml", plain | private)
    assert main(["train", str(config), "--json"]) == 0
    model = load(tmp_path / "model")
    assert isinstance(model, Classifier)
    rows = pd.read_csv(tmp_path / "shop.csv")
    expected = saving.load(tmp_path / "model").predict(Examples.of(Columns.open(log)))
    np.testing.assert_allclose(model.predict_proba(rows[["site", "age"]])[:, 1], expected, rtol=1e-6)
    assert list(model.classes_) == [0, 1]
    assert model.statement_ is None
    assert model.explain().startswith("No privacy promised: the noise came from")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "label-dp", "epsilon": 2}, "(2, 0)-differentially private per impression"),
        ({"method": "label-dp", "epsilon": 2, "random_state": 0}, "Simulated, not private. The noise of this"),
        ({"method": "plain"}, "No privacy is promised."),
        ({"method": "plain", "random_state": 0}, "Simulated, not private. This training has no noise at all"),
    ],
)
def test_tacit_explain_says_of_a_saved_frame_model_what_it_promises(
    clicks: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: Any, said: str
) -> None:
    model = Classifier("logistic", **ROLES, **settings).fit(clicks.head(400), "clicked")
    model.save(tmp_path / "model")
    assert main(["explain", str(tmp_path / "model")]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert said in page
    assert ("differentially private" in page) == (model.statement_ is not None)
    back = load(tmp_path / "model")
    assert back.explain() == model.explain()
    assert (back.statement_ is None) == (model.statement_ is None)


def test_a_whole_budget_pays_for_its_epsilon(clicks: pd.DataFrame, tmp_path: Path) -> None:
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    line = Line("shop", Unit(UnitKind.IMPRESSION), Relation.REPLACE_LABEL)
    ledger.grant(line, Budget.of(2, 0))
    model = Classifier("logistic", method="label-dp", epsilon=2, **ROLES)
    model.fit(clicks.head(200), "clicked", ledger=ledger, scope="shop", name="a")
    assert ledger.account(line).spent == Amount.spending(Budget.of(2, 0))  # type: ignore[union-attr]


def test_noisy_labels_and_features_that_a_line_protects(clicks: pd.DataFrame, tmp_path: Path) -> None:
    """A model of flips that reads sensitive features tells of these."""
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    for relation in (Relation.REPLACE_LABEL, Relation.REPLACE_ONE):
        ledger.grant(Line("shop", Unit(UnitKind.IMPRESSION), relation), Budget.of(9, "1e-5"))
    model = Classifier("logistic", method=LabelDp(2, part=Part.WHOLE), **ROLES)
    with pytest.raises(BadInput, match="expected a model that reads public features alone"):
        model.fit(clicks.head(200), "clicked", ledger=ledger, scope="shop", name="a")
    assert ledger.reservation("a") is None


def test_a_schema_and_a_unit_or_a_label_that_disagree(visits: pd.DataFrame) -> None:
    columns = (
        Column("site", {Role.PUBLIC}),
        Column("hour", {Role.USER}),
        Column("clicked", {Role.LABEL}, Kind.FLAG),
    )
    schema = LogSchema("visits", columns)
    with pytest.raises(BadInput, match="unit: expected the schema's users, got 'visitor' and a"):
        Classifier("logistic", schema=schema, unit="visitor").fit(visits, "clicked")
    with pytest.raises(BadInput, match="y: expected 'clicked', the label of the schema, got 'age'"):
        Classifier("logistic", schema=schema).fit(visits, "age")


def test_a_fit_that_is_refused_leaves_the_model_as_it_was(clicks: pd.DataFrame, tmp_path: Path) -> None:
    model = Classifier("logistic", method="label-dp", **ROLES).fit(clicks.head(300), "clicked")
    before = model.predict(clicks)
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    renamed = clicks.head(300).assign(clicked=np.where(clicks.head(300).clicked == "yes", "B", "A"))
    with pytest.raises(UnknownLine):
        model.fit(renamed, "clicked", ledger=ledger, scope="shop", name="a")
    np.testing.assert_array_equal(model.predict(clicks), before)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"speed": "fast"}, "speed: expected a Speed or None, got 'fast'"),
        ({"model": 3}, "model: expected a word or an architecture of tacit.train, got 3"),
        ({"method": 3}, "method: expected a word or a method of tacit.train, got 3"),
        ({"bins": 0}, "expected bins"),
        ({"schema": 3, "public": None, "sensitive": None}, "schema: expected the path of a log's TOML file"),
        ({"method": LabelDp(2), "unit": "hour"}, "unit: expected it within the method that was made by hand"),
    ],
)
def test_what_a_ledger_is_never_asked_for(
    clicks: pd.DataFrame, tmp_path: Path, settings: Any, said: str
) -> None:
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    ledger.grant(Line("shop", Unit(UnitKind.IMPRESSION), Relation.REPLACE_ONE), Budget.of(9, "1e-4"))
    model = Classifier("logistic", **ROLES).set_params(**settings)
    with pytest.raises(BadInput) as refusal:
        model.fit(clicks.head(200), "clicked", ledger=ledger, scope="shop", name="a")
    assert said in str(refusal.value)
    assert ledger.reservation("a") is None


def test_a_loaded_model_knows_how_it_was_asked_for(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.get_params() == fitted.get_params()


@pytest.mark.slow
def test_a_small_network_is_trained_by_one_thread_and_threads_are_put_back(
    clicks: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    seen, before = [], torch.get_num_threads()
    train = TrainingJob.train

    def watched(job: TrainingJob, *rest: Any) -> Any:
        seen.append(torch.get_num_threads())
        return train(job, *rest)

    monkeypatch.setattr(TrainingJob, "train", watched)
    torch.set_num_threads(2)
    try:
        Classifier("mlp", **ROLES, method="label-dp").fit(clicks.head(200), "clicked")
        Classifier(Mlp(2, public_layers=(), common_layers=(200,)), **ROLES, method="label-dp").fit(
            clicks.head(200), "clicked"
        )
        assert seen == [1, 2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_many_rows_are_predicted_some_at_a_time(
    fitted: Classifier, clicks: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fitted.predict_proba(clicks)
    monkeypatch.setattr(frame_model, "PREDICTED_AT_ONCE", 700)
    np.testing.assert_array_equal(fitted.predict_proba(clicks), whole)
    assert fitted.predict_proba(clicks.head(0)).shape == (0, 2)
