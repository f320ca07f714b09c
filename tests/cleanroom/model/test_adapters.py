"""Adapters: gated to the bit, independent of each other, and bound to their base."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tacit.cleanroom.model.learning import LearnSettings, tune_adapter
from tacit.cleanroom.model.network import ConversionModel, read_weights
from tacit.errors import BadInput
from tests.support.cleanroom_models import ARCHITECTURES, a_batch, small_model, some_rows, trained

EACH = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)


@EACH
def test_rows_of_other_advertisers_keep_every_bit(architecture: dict[str, Any]) -> None:
    model = small_model(**architecture)
    for rows, seed in ((2, 1), (33, 2), (257, 3)):
        batch = a_batch(model, rows, seed=seed, advertisers=5)
        before = model(batch)
        for number in (1, 3):
            model.add_adapter(f"of {number}", number, 2, seed=number, tasks=("conversion", "cart"))
        assert all(torch.equal(model(batch)[task], before[task]) for task in before)  # B = 0
        for name in ("of 1", "of 3"):
            trained(model.adapter(name))
        after = model(batch)
        touched = (batch.advertiser == 1) | (batch.advertiser == 3)
        for task in before:
            assert torch.equal(after[task][~touched], before[task][~touched])
            changed = after[task][touched] != before[task][touched]
            assert changed.float().mean() >= 0.5 or rows == 2  # a row whose tower is silent stays as it is
        for name in ("of 1", "of 3"):
            model.remove_adapter(name)
        assert all(torch.equal(model(batch)[task], before[task]) for task in before)


@EACH
def test_adapters_do_not_touch_each_other(architecture: dict[str, Any]) -> None:
    model = small_model(**architecture)
    batch = a_batch(model, 120, advertisers=4)
    trained(model.add_adapter("one", 1, 3, seed=1))
    alone = model.logits(batch, "conversion").detach()
    trained(model.add_adapter("two", 2, 1, seed=2), seed=9)
    both = model.logits(batch, "conversion").detach()
    assert torch.equal(both[batch.advertiser != 2], alone[batch.advertiser != 2])
    with torch.no_grad():
        for matrix in model.adapter("two").parameters:
            matrix.fill_(torch.nan)  # nothing worse than this can happen to it
    broken = model.logits(batch, "conversion").detach()
    assert torch.equal(broken[batch.advertiser != 2], alone[batch.advertiser != 2])
    assert torch.all(torch.isnan(broken[batch.advertiser == 2]))


def test_training_one_changes_nothing_else() -> None:
    model = small_model()
    for advertiser in range(3):
        trained(model.add_adapter(f"of {advertiser}", advertiser, 2, seed=advertiser), seed=advertiser)
    mixed = a_batch(model, 200, advertisers=5)
    base, logits = model.digest, model(mixed)
    others = {name: model.adapter_values(name) for name in ("of 0", "of 2")}
    first = model.adapter_values("of 1")
    examples = some_rows(model.settings, 300, advertisers=3).of_advertiser(1)
    tune_adapter(
        model, "of 1", examples, "conversion", examples.labels("conversion"), LearnSettings(2, 32, 1e-2)
    )
    assert model.digest == base
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(np.array_equal(model.adapter_values(name), values) for name, values in others.items())
    assert np.count_nonzero(model.adapter_values("of 1") != first) > 0.9 * len(first)
    rest = mixed.advertiser != 1
    for task, found in model(mixed).items():
        assert torch.equal(found[rest], logits[task][rest])
        assert not torch.equal(found[~rest], logits[task][~rest])


@EACH
@pytest.mark.parametrize("rank", [1, 3, 20])
def test_an_adapter_is_a_change_of_the_weights(architecture: dict[str, Any], rank: int) -> None:
    model = small_model(**architecture)
    batch = a_batch(model, 60)
    merged = copy.deepcopy(model)
    adapter = trained(model.add_adapter("one", 0, rank, seed=1))
    layers = merged.gated_layers(["conversion"])
    assert layers.keys() == adapter.pairs.keys()
    with torch.no_grad():
        for path, pair in adapter.pairs.items():
            layers[path].base.weight.add_(pair.b @ pair.a)
    expected = merged.logits(batch, "conversion")
    torch.testing.assert_close(model.logits(batch, "conversion"), expected, rtol=1e-4, atol=1e-5)


def test_which_layers_are_adapted_and_how_they_are_laid_out() -> None:
    model = small_model(sequence_layers=2)
    adapter = model.add_adapter("one", 0, 2, seed=1, tasks=("cart",))
    shapes = {
        block.name: (block.rows, block.cols, block.positions) for block in model.adapter_layout("one").blocks
    }
    assert shapes["sequence.layers.0.qkv.A"] == (2, 8, 6)
    assert shapes["sequence.last.qkv.B"] == (24, 2, 6)
    assert shapes["interactions.1.bitwise.widen.A"] == (2, 3, 1)
    assert shapes["interactions.1.vectorwise.compress.B"] == (28, 2, 1)
    assert shapes["towers.cart.output.B"] == (1, 2, 1)
    assert not any(name.startswith("towers.conversion") for name in shapes)
    values = model.adapter_values("one")
    parts = adapter.layout.split(values)
    for name, part in parts.items():
        assert (part == 0).all() == name.endswith(".B")
    # 112 numbers of variance 1: outside (.5, 1.7) with chance below 1e-5, by chi-square.
    first = parts["interactions.0.bitwise.narrow.A"] * np.sqrt(28)
    assert 0.5 < (first**2).mean() < 1.7
    model.set_adapter_values("one", values + 1)
    assert np.array_equal(model.adapter_values("one"), values + 1)
    again = small_model(sequence_layers=2).add_adapter("other", 5, 2, seed=1, tasks=("cart",))
    assert np.array_equal(again.values, values)


def test_an_adapter_of_one_tower_leaves_the_others_as_they_are() -> None:
    model = small_model()
    adapter = model.add_adapter("one", 0, 2, seed=1)
    batch = a_batch(model, 20)
    before = model(batch)
    with torch.no_grad():
        for path, pair in adapter.pairs.items():
            if path.startswith("towers."):
                pair.b.fill_(0.3)
    after = model(batch)
    assert torch.equal(after["cart"], before["cart"])
    assert not torch.equal(after["conversion"], before["conversion"])


def test_what_cannot_be_an_adapter_is_refused() -> None:
    model = small_model()
    model.add_adapter("one", 7, 2, seed=1)
    for name, advertiser, rank, problem in (
        ("one", 8, 2, "new name"),
        ("two", 7, 2, "advertiser without one"),
        ("", 8, 2, "a name"),
        ("two", 8, 0, "rank"),
        ("two", 8, True, "rank"),
        ("two", "8", 1, "advertiser"),
        ("two", 2**63, 1, "64 signed bits"),
        ("two", 8, 2**40, "rows of block"),
        ("two", 8, 2**26, "at most"),
    ):
        with pytest.raises(BadInput, match=problem):
            model.add_adapter(name, advertiser, rank, seed=1)
    with pytest.raises(BadInput, match="task among"):
        model.add_adapter("two", 8, 1, seed=1, tasks=("clicks",))
    with pytest.raises(BadInput, match="adapter among one, got 'two'"):
        model.remove_adapter("two")
    size = model.adapter_layout("one").parameters
    with pytest.raises(BadInput, match=f"expected {size} values"):
        model.set_adapter_values("one", np.zeros(size + 1, np.float32))
    with pytest.raises(BadInput, match="finite"):
        model.set_adapter_values("one", np.full(size, np.inf, np.float32))
    with pytest.raises(BadInput, match="adapter among one, got"):
        model.adapter("two")
    assert np.all(np.isfinite(model.adapter_values("one")))


def test_an_adapter_comes_back_from_its_file_to_its_own_base_only(tmp_path: Path) -> None:
    model, path = small_model(), tmp_path / "one.safetensors"
    trained(model.add_adapter("one", -(2**62), 4, seed=1, tasks=("cart", "conversion")))
    model.save_adapter("one", path, statement={"epsilon": "3"})
    model.save(tmp_path / "base.safetensors")
    back = ConversionModel.load(tmp_path / "base.safetensors")
    loaded = back.load_adapter(path)
    assert (loaded.name, loaded.advertiser, loaded.rank) == ("one", -(2**62), 4)
    assert loaded.tasks == ("cart", "conversion")
    assert loaded.layout == model.adapter_layout("one")
    assert np.array_equal(loaded.values, model.adapter_values("one"))
    assert read_weights(path, "an adapter")[0]["statement"] == {"epsilon": "3"}
    with pytest.raises(BadInput, match="new name"):
        back.load_adapter(path)
    for other in (small_model(seed=2), small_model(bitwise="mlp")):
        with pytest.raises(BadInput, match="adapter of this model, got one of another"):
            other.load_adapter(path)
        with pytest.raises(BadInput, match="adapter among none, got"):
            other.adapter("one")
    with torch.no_grad():
        back.norm.bias[0] += 1e-6  # a base that learned on is another base
    back.remove_adapter("one")
    with pytest.raises(BadInput, match="one of another"):
        back.load_adapter(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(BadInput, match="changed"):
        model.load_adapter(path)


@EACH
@pytest.mark.parametrize("rank", [0, 2])
def test_changed_embeddings_touch_no_other_advertiser(architecture: dict[str, Any], rank: int) -> None:
    """C8 for rows of the table: the values are shared by all, their changes are one advertiser's own."""
    model = small_model(**architecture)
    rows = some_rows(model.settings, 257, advertisers=5)
    batch = rows.batch(slice(None))
    before = model(batch)
    for number in (1, 3):
        model.add_adapter(f"of {number}", number, rank, seed=number, values=rows.of_advertiser(number))
    assert all(torch.equal(model(batch)[task], before[task]) for task in before)  # no change yet
    for name in ("of 1", "of 3"):
        trained(model.adapter(name))
    after = model(batch)
    touched = (batch.advertiser == 1) | (batch.advertiser == 3)
    for task in before:
        assert torch.equal(after[task][~touched], before[task][~touched])
        assert (after[task][touched] != before[task][touched]).float().mean() >= 0.5
    with torch.no_grad():
        for matrix in model.adapter("of 3").parameters:
            matrix.fill_(torch.nan)
    broken = model(batch)
    for task in before:
        assert torch.equal(broken[task][batch.advertiser != 3], after[task][batch.advertiser != 3])


def test_a_change_of_values_is_a_change_of_the_table() -> None:
    model = small_model()
    rows = some_rows(model.settings, 60)
    adapter = trained(model.add_adapter("one", 0, seed=1, values=rows.select(slice(0, 30))))
    assert adapter.rank == 0
    assert adapter.value_rows is not None
    merged = copy.deepcopy(model)
    merged.remove_adapter("one")
    with torch.no_grad():
        merged.fields.table[adapter.value_rows.places] += adapter.value_rows.change
    batch = rows.batch(slice(None))  # values that the first thirty do not have keep their vectors
    expected = merged.logits(batch, "conversion")
    torch.testing.assert_close(model.logits(batch, "conversion"), expected, rtol=1e-5, atol=1e-6)


def test_changed_embeddings_are_saved_with_their_places(tmp_path: Path) -> None:
    model = small_model()
    rows = some_rows(model.settings, 50)
    adapter = trained(model.add_adapter("one", 0, 2, seed=1, values=rows))
    expected = model.logits(rows.batch(slice(None)), "conversion")
    model.save_adapter("one", tmp_path / "one.safetensors")
    model.remove_adapter("one")
    found = model.load_adapter(tmp_path / "one.safetensors")
    assert found.value_rows is not None
    assert adapter.value_rows is not None
    assert np.array_equal(found.value_rows.places, adapter.value_rows.places)
    assert torch.equal(model.logits(rows.batch(slice(None)), "conversion"), expected)
    with pytest.raises(BadInput, match="rank"):
        model.add_adapter("two", 1, 0, seed=1)
