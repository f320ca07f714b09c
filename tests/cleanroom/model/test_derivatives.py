"""Derivatives of each row's logit, held to automatic differentiation one row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.model.examples import Batch
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.protocol.derivatives import BlockDerivatives
from tacit.cleanroom.protocol.losses import Loss, slopes
from tacit.cleanroom.protocol.row_derivatives import ExampleDerivatives, RowDerivatives
from tacit.errors import BadInput
from tests.support.cleanroom_models import ARCHITECTURES, a_batch, small_model, some_rows, trained

EACH = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)
ROWS = 7


def one_by_one(
    model: ConversionModel, batch: Batch, task: str, matrices: list[Any]
) -> list[np.ndarray[Any, Any]]:
    """For each matrix (n, rows * cols): the slow definition."""
    found: list[list[np.ndarray[Any, Any]]] = [[] for _ in matrices]
    for row in range(len(batch)):
        logit = model.logits(batch.rows(torch.tensor([row])), task).sum()
        for at, gradient in enumerate(torch.autograd.grad(logit, matrices, allow_unused=True)):
            zero = torch.zeros_like(matrices[at])
            found[at].append((zero if gradient is None else gradient).flatten().numpy())
    return [np.stack(each) for each in found]


def assert_same(found: Mapping[str, ExampleDerivatives], expected: dict[str, np.ndarray[Any, Any]]) -> None:
    assert list(found) == list(expected)
    for name, each in found.items():
        error = np.linalg.norm(each.as_dense() - expected[name])
        assert error <= 1e-5 * np.linalg.norm(expected[name]) + 1e-9, name


@EACH
@pytest.mark.parametrize("rank", [1, 4, 32])
def test_they_equal_automatic_differentiation_row_by_row(architecture: dict[str, Any], rank: int) -> None:
    model = small_model(**architecture)
    adapter = trained(model.add_adapter("one", 0, rank, seed=1))
    batch = a_batch(model, ROWS)
    logits, found = adapter_derivatives(model, batch, "conversion", "one")
    assert np.array_equal(logits, model.logits(batch, "conversion").detach().numpy())
    expected = one_by_one(model, batch, "conversion", adapter.parameters)
    names = [block.name for block in adapter.layout.blocks]
    assert all(np.abs(each).max() > 0 for each in expected)
    assert_same(found, dict(zip(names, expected, strict=True)))
    assert tuple(each.block for each in found.values()) == adapter.layout.blocks


@EACH
def test_the_aggregate_is_the_gradient_of_the_mean_loss(architecture: dict[str, Any]) -> None:
    model = small_model(**architecture)
    adapter = trained(model.add_adapter("one", 0, 4, seed=1))
    batch = a_batch(model, 200)
    labels = np.random.default_rng(1).integers(0, 2, 200)
    logits, found = adapter_derivatives(model, batch, "conversion", "one")
    weights = slopes(logits, labels, Loss.RAW, None) / 200
    loss = F.binary_cross_entropy_with_logits(
        model.logits(batch, "conversion"), torch.from_numpy(labels.astype(np.float32))
    )
    expected = torch.cat([each.flatten() for each in torch.autograd.grad(loss, adapter.parameters)]).numpy()
    aggregate = adapter.layout.join({name: each.weighted_sum(weights) for name, each in found.items()})
    assert np.linalg.norm(aggregate - expected) <= 1e-5 * np.linalg.norm(expected)


def test_a_fresh_adapter_has_derivatives_in_b_only() -> None:
    model = small_model()
    model.add_adapter("one", 0, 2, seed=1)
    _, found = adapter_derivatives(model, a_batch(model, ROWS), "conversion", "one")
    for name, each in found.items():
        assert (np.abs(each.as_dense()).max() > 0) == name.endswith(".B")


def test_padding_is_left_out() -> None:
    model = small_model(sequence_layers=2)
    trained(model.add_adapter("one", 0, 2, seed=1))
    batch = a_batch(model, 30)
    logits, found = adapter_derivatives(model, batch, "conversion", "one")
    for name, each in found.items():
        expected = batch.lengths.numpy() + 1 if each.block.positions > 1 else np.ones(30)
        assert isinstance(each, BlockDerivatives)
        assert each.factors.counts.tolist() == expected.tolist(), name  # with the ad's own token
    beyond = batch.sequences.clone()
    beyond[torch.arange(5) >= batch.lengths.unsqueeze(1)] = 3
    other = Batch(batch.fields, batch.numbers, beyond, batch.lengths, batch.advertiser)
    same_logits, same = adapter_derivatives(model, other, "conversion", "one")
    assert np.array_equal(logits, same_logits)
    for name, each in found.items():
        again = same[name]
        assert isinstance(each, BlockDerivatives)
        assert isinstance(again, BlockDerivatives)
        assert np.array_equal(each.factors.left, again.factors.left)
        assert np.array_equal(each.factors.right, again.factors.right)


def test_the_pairs_of_a_row_are_its_own() -> None:
    """Rows in another order give the same pairs in that order."""
    model = small_model()
    trained(model.add_adapter("one", 0, 2, seed=1))
    batch = a_batch(model, 12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    _, found = adapter_derivatives(model, batch, "conversion", "one")
    _, moved = adapter_derivatives(model, batch.rows(order), "conversion", "one")
    for name, each in found.items():
        np.testing.assert_allclose(moved[name].as_dense(), each.as_dense()[order.numpy()], rtol=1e-4, atol=1e-6)


def test_the_towers_of_other_tasks_get_zeros() -> None:
    model = small_model()
    trained(model.add_adapter("one", 0, 2, seed=1, tasks=("conversion", "cart")))
    _, found = adapter_derivatives(model, a_batch(model, ROWS), "cart", "one")
    for name, each in found.items():
        assert (np.abs(each.as_dense()).max() == 0) == name.startswith("towers.conversion")


def test_nothing_is_left_behind_and_frozen_models_serve_too() -> None:
    model = small_model()
    adapter = trained(model.add_adapter("one", 0, 2, seed=1))
    trained(model.add_adapter("two", 1, 2, seed=2))
    batch = a_batch(model, ROWS)
    before, values = model.digest, adapter.values
    with torch.no_grad():
        logits, found = adapter_derivatives(model, batch, "conversion", "one")
    assert model.digest == before
    assert np.array_equal(adapter.values, values)
    assert all(parameter.grad is None for parameter in [*model.parameters(), *adapter.parameters])
    for parameter in [*model.parameters(), *adapter.parameters]:
        parameter.requires_grad_(False)
    same_logits, same = adapter_derivatives(model, batch, "conversion", "one")
    assert np.array_equal(logits, same_logits)
    assert all(np.array_equal(same[name].as_dense(), each.as_dense()) for name, each in found.items())


def test_rows_of_others_and_unknown_names_are_refused() -> None:
    model = small_model()
    model.add_adapter("one", 0, 2, seed=1)
    mixed = a_batch(model, 20, advertisers=2)
    with pytest.raises(BadInput, match="adapter one: expected rows of its advertiser only"):
        adapter_derivatives(model, mixed, "conversion", "one")
    batch = a_batch(model, 5)
    with pytest.raises(BadInput, match="task among conversion, got 'cart'"):
        adapter_derivatives(model, batch, "cart", "one")
    with pytest.raises(BadInput, match="task among conversion, cart"):
        adapter_derivatives(model, batch, "clicks", "one")
    with pytest.raises(BadInput, match="adapter among one"):
        adapter_derivatives(model, batch, "conversion", "two")


@EACH
@pytest.mark.parametrize("rank", [0, 3])
def test_rows_of_values_equal_automatic_differentiation(architecture: dict[str, Any], rank: int) -> None:
    """The dense derivative in the whole change, example by example, is the slow twin of the rows that are sent.
    With one table for all fields an example may have a value twice: the two are added up."""
    model = small_model(**architecture)
    rows = some_rows(model.settings, 40)
    adapter = trained(model.add_adapter("one", 0, rank, seed=1, values=rows.select(slice(0, 20))))
    batch = rows.batch(slice(15, 22))  # some values are not among those of the first twenty
    logits, found = adapter_derivatives(model, batch, "conversion", "one")
    assert np.array_equal(logits, model.logits(batch, "conversion").detach().numpy())
    names = [block.name for block in adapter.layout.blocks]
    expected = one_by_one(model, batch, "conversion", adapter.parameters)
    assert_same(found, dict(zip(names, expected, strict=True)))
    touched = found["fields.rows"]
    assert isinstance(touched, RowDerivatives)
    norms = (expected[-1].astype(np.float64) ** 2).sum(axis=1)
    assert touched.squared_norms() == pytest.approx(norms, rel=1e-4)
    if architecture.get("shared"):
        fields = np.sort(rows.fields[15:22], axis=1)
        assert (fields[:, 1:] == fields[:, :-1]).any(), "an example has a value twice"
