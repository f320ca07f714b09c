"""Exported models against our own predictions, in another runtime."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from tacit.arrays import Floats32
from tacit.errors import BadInput
from tacit.train.examples import Examples
from tacit.train.models import onnx_export
from tacit.train.models.factorization_machine import LogisticRegression
from tacit.train.models.model import Architecture, Part, predict
from tacit.train.models.onnx_export import export_onnx
from tacit.train.targets import Head
from tests.support.saved_models import ARCHITECTURES, small_encoder, small_log, small_saved


def run(path: Path, log: Examples, count: int | None = None) -> Floats32:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    sides = {"public": log.public, "sensitive": log.sensitive}
    given = {wanted.name: sides[wanted.name][:count] for wanted in session.get_inputs()}
    found: Floats32 = session.run(None, given)[0]
    return found


@pytest.mark.parametrize("shape", ARCHITECTURES, ids=str)
@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("head", Head)
def test_another_runtime_predicts_the_same(shape: Architecture, part: Part, head: Head, tmp_path: Path) -> None:
    saved = small_saved(shape, head=head)
    log = small_log(saved.encoder)
    export_onnx(saved, tmp_path / "model.onnx", part=part)
    built = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(built, full_check=True)
    assert [entry.version for entry in built.opset_import] == [onnx_export.OPSET]
    assert [entry.name for entry in built.graph.output] == [
        "probability" if head is Head.LOGISTIC else "prediction"
    ]
    expected = predict(saved.model, log, part, head)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", log), expected, rtol=1e-5, atol=1e-6)
    assert run(tmp_path / "model.onnx", log, count=0).shape == (0,)


@pytest.mark.parametrize("shape", ARCHITECTURES, ids=str)
def test_a_truncated_export_holds_nothing_sensitive(shape: Architecture, tmp_path: Path) -> None:
    saved = small_saved(shape, part=Part.TRUNCATED)
    mark = np.float32(123.456)
    for name, table in saved.model.tables.items():
        table[{"sensitive": 0, "table": saved.model.sizes.public_rows}.get(name, len(table)) :] = mark
    export_onnx(saved, tmp_path / "model.onnx")  # the part that was trained
    export_onnx(saved, tmp_path / "whole.onnx", part=Part.WHOLE)
    assert mark.tobytes() not in (tmp_path / "model.onnx").read_bytes()
    assert mark.tobytes() in (tmp_path / "whole.onnx").read_bytes()
    assert [entry.name for entry in onnx.load(tmp_path / "model.onnx").graph.input] == ["public"]


@pytest.mark.parametrize("shape", ARCHITECTURES, ids=str)
def test_a_log_of_one_side(shape: Architecture, tmp_path: Path) -> None:
    saved = small_saved(shape, small_encoder(4, 0))
    log = small_log(saved.encoder)
    export_onnx(saved, tmp_path / "public.onnx")
    expected = predict(saved.model, log, Part.WHOLE, Head.LOGISTIC)
    np.testing.assert_allclose(run(tmp_path / "public.onnx", log), expected, rtol=1e-5)
    hidden = small_saved(shape, small_encoder(0, 3))
    with pytest.raises(BadInput, match="expected at least one field"):
        export_onnx(hidden, tmp_path / "nothing.onnx", part=Part.TRUNCATED)


@pytest.mark.parametrize("statement", [None, {"epsilon": 2.5, "unit": "impression"}])
def test_the_statement_travels_along(statement: dict[str, object] | None, tmp_path: Path) -> None:
    saved = small_saved(LogisticRegression(), statement=statement, synthetic=True)
    export_onnx(saved, tmp_path / "model.onnx")
    metadata = {entry.key: entry.value for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert metadata["tacit.encoder_digest"] == saved.encoder.digest
    assert metadata["tacit.synthetic"] == "true"
    promise = metadata["tacit.privacy_statement"]
    assert promise.startswith("no privacy promised") if statement is None else json.loads(promise) == statement


def test_files_are_replaced_only_when_asked(tmp_path: Path) -> None:
    saved = small_saved(LogisticRegression())
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(BadInput, match="which exists"):
        export_onnx(saved, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "mine"
    export_onnx(saved, tmp_path / "model.onnx", overwrite=True)
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"))
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_refusals_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = small_saved(LogisticRegression())
    monkeypatch.setattr(onnx_export, "LARGEST_BYTES", 10)
    with pytest.raises(BadInput, match="expected at most 10 bytes"):
        export_onnx(saved, tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(BadInput, match=r"pip install 'tacit\[export\]'"):
        export_onnx(saved, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
