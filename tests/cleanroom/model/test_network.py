"""The conversion model: what it reads, what it must not depend on, and its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tacit.cleanroom.model.adapters import AdapterGate
from tacit.cleanroom.model.examples import Batch, advertiser_key, examples_from_log
from tacit.cleanroom.model.layers import Packing, SequenceTransformer, TransformerLayer
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.model.settings import SPEED_SETTINGS, ModelSettings
from tacit.data.columns import Columns
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import Hashing, count_column_values, public_vocabulary
from tacit.data.generators.conversions import FIELD_NAMES, FIELD_VALUES, ConversionsWorld
from tacit.data.logs.definition import find_log
from tacit.data.preparation import prepare
from tacit.data.reading.reader import LogReader
from tacit.data.synthetic import LogDestination, write_log
from tacit.errors import BadInput
from tacit.schema.columns import Role
from tests.support.cleanroom_models import ARCHITECTURES, SMALL, a_batch, small_model, some_rows

EACH = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)


def with_parts(batch: Batch, **changed: Any) -> Batch:
    names = ("fields", "numbers", "sequences", "lengths", "advertiser")
    return Batch(**{name: changed.get(name, getattr(batch, name)) for name in names})


@EACH
def test_every_task_has_a_logit_for_every_row(architecture: dict[str, Any]) -> None:
    model = small_model(**architecture)
    batch = a_batch(model, 13)
    logits = model(batch)
    assert list(logits) == ["conversion", "cart"]
    for task, found in logits.items():
        assert found.shape == (13,)
        assert torch.all(torch.isfinite(found))
        assert torch.equal(found, model.logits(batch, task))
    assert float(logits["conversion"].detach().std()) > 0


@EACH
def test_a_row_does_not_depend_on_the_rows_beside_it(architecture: dict[str, Any]) -> None:
    model = small_model(**architecture)
    batch = a_batch(model, 17)
    whole = model.logits(batch, "cart").detach()
    for row in range(17):
        alone = model.logits(batch.rows(torch.tensor([row])), "cart").detach()
        torch.testing.assert_close(alone, whole[row : row + 1], rtol=1e-4, atol=1e-5)


def test_everything_that_is_read_matters_and_padding_does_not() -> None:
    model = small_model(sequence_layers=2)
    batch = with_parts(a_batch(model, 40), lengths=torch.full((40,), 3))
    before = model.logits(batch, "conversion").detach()
    beyond = batch.sequences.clone()
    beyond[:, 3:] = (beyond[:, 3:] + 1) % 4
    assert torch.equal(model.logits(with_parts(batch, sequences=beyond), "conversion"), before)
    last = batch.sequences.clone()
    last[:, 2] = (last[:, 2] + 1) % 4
    swapped = batch.sequences[:, [1, 0, 2, 3, 4]]
    for changed in (
        {"sequences": last},
        {"sequences": swapped},
        {"lengths": batch.lengths - 1},
        {"numbers": batch.numbers + 1},
        {"fields": (batch.fields + 1) % 5},
    ):
        assert not torch.allclose(model.logits(with_parts(batch, **changed), "conversion"), before, rtol=1e-4)


def test_the_last_layer_gives_the_ads_what_a_whole_layer_would() -> None:
    model = small_model(width=12, heads=3)
    assert isinstance(model.sequence, SequenceTransformer)
    layer = model.sequence.last
    assert isinstance(layer, TransformerLayer)
    packing = Packing.of(torch.tensor([0, 5, 2, 1]), 5)
    tokens = torch.randn(len(packing.rows), 12, generator=torch.Generator().manual_seed(1))
    answer, read = layer.answer_ads(tokens, packing, AdapterGate())
    torch.testing.assert_close(answer, layer(tokens, packing, AdapterGate())[:4], rtol=1e-5, atol=1e-6)
    assert torch.equal(read, layer.before_attention(tokens))


def test_tokens_lie_where_the_packing_says() -> None:
    packing = Packing.of(torch.tensor([2, 0, 3]), 3)
    assert packing.places.tolist() == [0, 4, 8, 1, 2, 9, 10, 11]
    assert packing.rows.tolist() == [0, 1, 2, 0, 0, 2, 2, 2]
    assert packing.rows[packing.by_row()].tolist() == [0, 0, 0, 1, 2, 2, 2, 2]


def test_weights_are_a_function_of_the_seed_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    settings = ModelSettings(**SMALL)
    one, same, other = (ConversionModel(settings, seed=seed) for seed in (1, 1, 2))
    assert one.digest == same.digest != other.digest
    assert torch.equal(torch.get_rng_state(), before)


def test_the_default_model_of_the_generated_log_has_about_200_000_parameters() -> None:
    model = ConversionModel(ModelSettings(fields=FIELD_VALUES, sequence_tables=(32, 64, 4)))
    assert 180_000 < sum(parameter.numel() for parameter in model.parameters()) < 220_000


def test_the_model_for_speeds_has_adapters_of_the_expected_size() -> None:
    model = ConversionModel(SPEED_SETTINGS)
    adapter = model.add_adapter("one", 0, 32, seed=0)
    assert 1_500_000 < 4 * adapter.layout.parameters < 1_900_000  # bytes an example, dense


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"fields": ()}, "at least one of fields"),
        ({"fields": (3, 0)}, "each of fields"),
        ({"fields": "34"}, "fields as a list"),
        ({"width": 9}, "heads to divide width=9"),
        ({"bitwise": "sum"}, "Bitwise"),
        ({"tasks": ("a", "a")}, "distinct tasks"),
        ({"tasks": ("a.b",)}, "plain word"),
        ({"dim": 0}, "dim"),
        ({"hidden": -1}, "hidden"),
        ({"shared": 1}, "shared"),
        ({"fields": (2**30,)}, "at most"),
        ({"positions": 2**40}, "at most"),
        ({"tower": (2**20, 2**20)}, "at most"),
        ({"layers": 3}, "unknown key 'layers'"),
    ],
)
def test_wrong_settings_are_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        ModelSettings.from_json({**SMALL, **changed})


def test_settings_come_back_from_json() -> None:
    settings = ModelSettings(**SMALL, encoder="12ab")
    assert ModelSettings.from_json(json.loads(json.dumps(settings.as_json()))) == settings


def test_unknown_tasks_and_uneven_batches_are_refused() -> None:
    model = small_model()
    batch = a_batch(model, 3)
    with pytest.raises(BadInput, match="task among conversion, cart, got 'clicks'"):
        model.logits(batch, "clicks")
    with pytest.raises(BadInput, match="3 rows of lengths"):
        with_parts(batch, lengths=batch.lengths[:2])


@EACH
def test_a_saved_model_comes_back_bit_for_bit(architecture: dict[str, Any], tmp_path: Path) -> None:
    model = small_model(**architecture)
    path = tmp_path / "model.safetensors"
    model.save(path)
    model.save(path)  # in place of the first
    back = ConversionModel.load(path)
    batch = a_batch(model, 9)
    assert back.digest == model.digest
    assert torch.equal(back.logits(batch, "cart"), model.logits(batch, "cart"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_torn_changed_or_other_file_is_refused(tmp_path: Path) -> None:
    model, path = small_model(), tmp_path / "model.safetensors"
    model.save(path)
    whole = path.read_bytes()
    for position in [*range(0, len(whole), 61), len(whole) - 1]:
        changed = bytearray(whole)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(BadInput, match="expected"):
            ConversionModel.load(path)
    for kept in (0, 7, 200, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(BadInput, match="torn"):
            ConversionModel.load(path)
    model.add_adapter("one", 1, 2, seed=0)
    model.save_adapter("one", path)
    with pytest.raises(BadInput, match="another kind"):
        ConversionModel.load(path)
    with pytest.raises(BadInput, match="no such file"):
        ConversionModel.load(tmp_path / "nowhere")


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    model, path = small_model(), tmp_path / "model.safetensors"
    with torch.no_grad():
        model.norm.bias[0] = torch.nan
    model.save(path)
    with pytest.raises(BadInput, match="finite numbers in norm"):
        ConversionModel.load(path)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    write_log(
        ConversionsWorld(seed=2), 500, find_log("conversions").layouts[0], LogDestination.at(path), {"seed": 2}
    )
    return path


def prepared(log: Path, way: str) -> Columns:
    schema = find_log("conversions").schema
    reader = LogReader(find_log("conversions"), log)
    tallies = count_column_values(reader, schema.columns_with(Role.PUBLIC)) if way == "vocabulary" else {}
    public = public_vocabulary(schema, tallies, 2) if way == "vocabulary" else Hashing(2**20)
    encoder = Encoder.of(schema, public, Hashing(1))
    out = log.with_name(way)
    return prepare(LogReader(find_log("conversions"), log), encoder, out, overwrite=True).columns


@pytest.mark.parametrize("way", ["vocabulary", "hashing"])
def test_examples_hold_what_the_log_holds(log: Path, way: str) -> None:
    examples, raw = examples_from_log(prepared(log, way), positions=8), pq.read_table(log)
    examples.check_fit(examples.settings())
    assert examples.shared == (way == "hashing")
    assert list(examples.tasks) == ["conversion", "cart", "engaged"]
    for task in examples.tasks:
        assert examples.labels(task).tolist() == raw[task].to_pylist()
    for index, name in enumerate(FIELD_NAMES):
        assert_same_values(examples.fields[:, index], raw[name].to_pylist(), way)
    for part, name in enumerate(("topic", "item", "action")):
        lists = raw[f"sequence_{name}"].to_pylist()
        assert examples.lengths.tolist() == [min(len(each), 8) for each in lists]
        kept = [examples.sequences[row, : len(each[:8]), part] for row, each in enumerate(lists)]
        assert_same_values(np.concatenate(kept), [value for each in lists for value in each[:8]], way)
    keys = [advertiser_key(name) for name in raw["advertiser"].to_pylist()]
    assert examples.advertiser.tolist() == keys
    assert len(set(examples.records.tolist())) == 500


def assert_same_values(ids: np.ndarray[Any, Any], values: list[int], way: str) -> None:
    """One id a value and one value an id, but for the values that a vocabulary does not list (id 1)."""
    pairs = {(int(one), two) for one, two in zip(ids, values, strict=True) if way == "hashing" or one != 1}
    assert len(pairs) == len({one for one, _ in pairs}) == len({two for _, two in pairs})
    if way == "vocabulary":
        unlisted = {value for one, value in zip(ids, values, strict=True) if one == 1}
        assert all(values.count(value) < 16 for value in unlisted)


def test_some_rows_are_those_rows(log: Path) -> None:
    columns = prepared(log, "vocabulary")
    whole, part = examples_from_log(columns), columns.parts()["validation"]
    some = examples_from_log(columns, part)
    assert some.records.tolist() == part.of(whole.records).tolist()
    picked = whole.select(whole.labels("engaged") == 1)
    assert len(picked) == whole.labels("engaged").sum()
    assert set(picked.labels("engaged").tolist()) == {1}
    batch = whole.batch(np.array([4, 2]))
    assert batch.fields.tolist() == whole.fields[[4, 2]].tolist()
    assert examples_from_log(columns, [3, 1]).records.tolist() == whole.records[[3, 1]].tolist()
    own = whole.of_advertiser(advertiser_key(8))
    assert 0 < len(own) < 500
    assert set(own.advertiser.tolist()) == {advertiser_key(8)}


def test_examples_of_another_encoder_or_shape_are_refused(log: Path) -> None:
    examples = examples_from_log(prepared(log, "vocabulary"))
    settings = examples.settings()
    with pytest.raises(BadInput, match="encoder"):
        examples_from_log(prepared(log, "hashing")).check_fit(settings)
    small = ModelSettings(**SMALL)
    rows = some_rows(small, 20)
    rows.check_fit(small)
    for name, problem in (
        ("fields", "fields, column 0: expected ids"),
        ("sequences", "sequences, column 0: expected ids"),
        ("lengths", "lengths"),
    ):
        broken = some_rows(small, 20)
        getattr(broken, name)[3] = 100
        with pytest.raises(BadInput, match=problem):
            broken.check_fit(small)
    with pytest.raises(BadInput, match="2 numbers per row"):
        some_rows(ModelSettings(**{**SMALL, "numbers": 1}), 5).check_fit(small)
    with pytest.raises(BadInput, match="task among conversion, cart"):
        rows.labels("engaged")
