"""Models on disk, by name, and their predictions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tacit import files
from tacit.data.splits import RowSet
from tacit.errors import BadInput
from tacit.privacy.releases import FlippedLabels
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.train.models.architectures import Mlp, architecture_settings, make_architecture
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.model import Architecture, Part, predict
from tacit.train.models.saving import SavedModel, load, save
from tacit.train.targets import Head
from tests.support.saved_models import ARCHITECTURES, small_encoder, small_log, small_saved


@pytest.mark.parametrize("shape", ARCHITECTURES, ids=str)
def test_a_model_comes_back_as_it_was(shape: Architecture, tmp_path: Path) -> None:
    statement = PrivacyStatement.of(
        [FlippedLabels(Fraction(3, 4))], unit=Unit(UnitKind.IMPRESSION), relation=Relation.REPLACE_LABEL
    ).as_json()
    settings = {"rate": 0.1, "rows": (1, 2), "by": {10: "ten", 9: "nine"}}
    saved = small_saved(shape, statement=statement, method="flips", settings=settings, synthetic=True)
    save(tmp_path / "model", saved)
    found = load(tmp_path / "model")
    assert found.model.architecture == shape
    assert found.model.sizes == saved.model.sizes
    for ours, theirs in ((saved.model.tables, found.model.tables), (saved.model.dense, found.model.dense)):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_array_equal(array, theirs[name])
            assert theirs[name].flags.writeable
    assert (found.head, found.part, found.method, found.synthetic) == (Head.LOGISTIC, Part.WHOLE, "flips", True)
    assert found.settings == {"rate": 0.1, "rows": [1, 2], "by": {"10": "ten", "9": "nine"}}
    assert found.statement == json.loads(json.dumps(statement))
    assert found.encoder == saved.encoder
    log = small_log(saved.encoder)
    np.testing.assert_array_equal(found.predict(log), saved.predict(log))


def test_no_promise_is_said(tmp_path: Path) -> None:
    save(tmp_path / "model", small_saved(LogisticRegression()))
    record = json.loads((tmp_path / "model" / "statement.json").read_text())
    assert record["promised"] is False
    assert record["words"].startswith("no privacy promised")
    assert load(tmp_path / "model").statement is None


def test_a_truncated_model_predicts_without_what_it_never_learned(tmp_path: Path) -> None:
    saved = small_saved(ARCHITECTURES[0], part=Part.TRUNCATED, head=Head.POISSON)
    save(tmp_path / "model", saved)
    found, log = load(tmp_path / "model"), small_log(saved.encoder)
    others = replace(log, sensitive=log.sensitive[::-1])
    np.testing.assert_array_equal(found.predict(log), found.predict(others))
    assert np.any(found.predict(log) != predict(found.model, log, Part.WHOLE, Head.POISSON))


def change_record(folder: Path, **changes: Any) -> None:
    """A record with a digest that fits, as another version or another program would write it."""
    record = json.loads((folder / "model.json").read_text()) | changes
    record = {key: value for key, value in record.items() if key != "digest" and value is not None}
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(record | {"digest": digest}))


def change_weights(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder / "weights.safetensors"
    save_file(change(load_file(path)), path)
    record = json.loads((folder / "model.json").read_text())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    change_record(folder, files=record["files"] | {path.name: digest})


def torn(name: str) -> Callable[[Path], None]:
    def tear(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])

    return tear


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return edit


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "model.json").unlink(), "expected a saved model here"),
        (lambda folder: (folder / "weights.safetensors").unlink(), "got none or a changed one"),
        (lambda folder: (folder / "statement.json").unlink(), "got none or a changed one"),
        (lambda folder: (folder / "encoder.json").unlink(), "expected an encoder here"),
        (torn("model.json"), "expected JSON"),
        (torn("weights.safetensors"), "weights.safetensors: expected the file that was saved"),
        (torn("statement.json"), "statement.json: expected the file that was saved"),
        (edited("model.json", '"plain"', '"private"'), "one that was changed"),
        (edited("statement.json", "no privacy", "all privacy"), "a changed one"),
        (edited("model.json", '"version": 1', '"version": 2'), "expected version 1, got 2"),
        (lambda folder: change_record(folder, version=7), "expected version 1, got 7"),
        (
            lambda folder: change_record(folder, architecture={"name": "tree", "settings": {}}),
            "expected an architecture named fm, logistic, mlp, fnn, din, field-fm, beside-statistic, got",
        ),
        (
            lambda folder: change_record(folder, architecture={"name": "mlp", "settings": {"depth": 3}}),
            "expected dim, public_layers, common_layers, start, got 'depth'",
        ),
        (lambda folder: change_record(folder, head="tail"), "expected Head to be one of"),
        (lambda folder: change_record(folder, head=None), "got one without 'head'"),
        (
            lambda folder: change_record(folder, sizes={"rows": 1}),
            "expected a model, got one with a value of another kind",
        ),
        (lambda folder: change_record(folder, files=[]), "got none or a changed one"),
        (lambda folder: change_record(folder, encoder_digest="0" * 64), "saved with, got another one"),
        (lambda folder: small_encoder(3, 4).save(folder), "saved with, got another one"),
        (
            lambda folder: change_weights(folder, lambda a: a | {"dense.output.bias": np.zeros(2, np.float32)}),
            "expected dense.output.bias as float32 of shape (1,), got float32 of shape (2,)",
        ),
        (
            lambda folder: change_weights(folder, lambda a: a | {"dense.output.bias": np.zeros(1)}),
            "got float64 of shape (1,)",
        ),
        (
            lambda folder: change_weights(folder, lambda a: dict(list(a.items())[:-1])),
            "expected dense.common.0.bias, dense",
        ),
    ],
)
def test_what_was_spoiled_is_refused_in_one_line(
    spoil: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    save(folder, small_saved(ARCHITECTURES[0]))
    load(folder)
    spoil(folder)
    with pytest.raises(BadInput, match=re.escape(says)) as refusal:
        load(folder)
    assert "\n" not in str(refusal.value)


def test_weights_that_are_none_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(folder, small_saved(ARCHITECTURES[0]))
    (folder / "weights.safetensors").write_bytes(b"no weights")
    record = json.loads((folder / "model.json").read_text())
    digest = hashlib.sha256(b"no weights").hexdigest()
    change_record(folder, files=record["files"] | {"weights.safetensors": digest})
    with pytest.raises(BadInput, match="expected weights, got something else"):
        load(folder)


def test_only_a_model_is_overwritten_and_only_when_asked(tmp_path: Path) -> None:
    first, second = (small_saved(LogisticRegression(), method=method) for method in ("first", "second"))
    save(tmp_path / "model", first)
    with pytest.raises(BadInput, match="which exists"):
        save(tmp_path / "model", second)
    assert load(tmp_path / "model").method == "first"
    save(tmp_path / "model", second, overwrite=True)
    assert load(tmp_path / "model").method == "second"
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="something else"):
        save(tmp_path / "model", first, overwrite=True)
    (tmp_path / "mine").mkdir()
    with pytest.raises(BadInput, match="something else"):
        save(tmp_path / "mine", first, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "model"]  # nothing hidden is left


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "model", small_saved(LogisticRegression(), method="first"))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "sync_to_disk", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path / "model", small_saved(LogisticRegression(), method="second"), overwrite=True)
    assert load(tmp_path / "model").method == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for others in ({"settings": {"rate": float("nan")}}, {"settings": {"at": object()}}):
        with pytest.raises(BadInput, match="expected settings that JSON can hold"):
            save(tmp_path / "model", small_saved(LogisticRegression(), **others))
    with pytest.raises(BadInput, match="expected a statement that JSON can hold"):
        save(tmp_path / "model", small_saved(LogisticRegression(), statement={"epsilon": float("inf")}))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="expected an encoder of Sizes"):
        SavedModel(small_saved(LogisticRegression()).model, Head.LOGISTIC, small_encoder(2, 2), None, "plain")


def test_examples_of_another_encoder_are_refused() -> None:
    saved = small_saved(LogisticRegression())
    with pytest.raises(BadInput, match="expected examples of the model's encoder"):
        saved.predict(replace(small_log(saved.encoder), encoder_digest=""))


@pytest.mark.parametrize("shape", ARCHITECTURES, ids=str)
@pytest.mark.parametrize("part", Part)
def test_predictions_are_means_of_scores_in_any_batches(shape: Architecture, part: Part) -> None:
    saved = small_saved(shape)
    log = small_log(saved.encoder)
    some = replace(log, at=RowSet(np.array([7, 3, 3, 40], np.int64)))
    whole = predict(saved.model, log, part, Head.POISSON)
    scores = saved.model.forward(saved.model.ids(log, np.arange(50), part), part).scores
    np.testing.assert_allclose(whole, np.exp(scores), rtol=1e-5)
    np.testing.assert_allclose(predict(saved.model, log, part, Head.POISSON, batch=7), whole, rtol=1e-5)
    np.testing.assert_allclose(predict(saved.model, some, part, Head.POISSON), whole[[7, 3, 3, 40]], rtol=1e-5)
    assert predict(saved.model, replace(log, at=RowSet(slice(4, 4))), part, Head.LOGISTIC).shape == (0,)


def test_predictions_refuse_other_shapes() -> None:
    saved = small_saved(LogisticRegression())
    log = small_log(saved.encoder)
    other = replace(log, sizes=replace(log.sizes, sensitive_rows=6))
    with pytest.raises(BadInput, match="expected examples of Sizes"):
        predict(saved.model, other, Part.WHOLE, Head.LOGISTIC)
    predict(saved.model, other, Part.TRUNCATED, Head.LOGISTIC)  # the sensitive side is not read
    with pytest.raises(BadInput, match="batch"):
        predict(saved.model, log, Part.WHOLE, Head.LOGISTIC, batch=0)


def test_architectures_by_name() -> None:
    assert make_architecture("fm", {"dim": 8}) == FactorizationMachine(dim=8)
    assert make_architecture("logistic", {}) == LogisticRegression()
    assert make_architecture("mlp", {"common_layers": [128, 64], "dim": 8}) == Mlp(
        dim=8, common_layers=(128, 64)
    )
    for shape in ARCHITECTURES:
        assert make_architecture(shape.name, architecture_settings(shape)) == shape
    with pytest.raises(
        BadInput, match=r"expected an architecture named fm, .*, field-fm, beside-statistic, got 'svm'"
    ):
        make_architecture("svm", {})
    with pytest.raises(BadInput, match="architecture fm: expected dim, start, got 'name'"):
        make_architecture("fm", {"name": "mlp"})
    with pytest.raises(BadInput, match="architecture logistic: expected no settings, got 'dim'"):
        make_architecture("logistic", {"dim": 2})
    with pytest.raises(BadInput, match="expected dim"):
        make_architecture("mlp", {"dim": "wide"})
