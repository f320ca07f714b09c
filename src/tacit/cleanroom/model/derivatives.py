"""Per-row derivatives of a logit in an adapter: one pass forward, one back, nothing larger than activations.

For a linear layer y = W x the derivative of a logit in W is delta x^T, with delta the logit's derivative in y;
a layer that a row passes at several positions has the sum over them. With W + B A that gives delta (A x)^T for
B and (B^T delta) x^T for A. The derivative in a value's change is that in all vectors that have it.
A row's logit depends on no other row, so one backward pass of the sum of all logits has every row's own delta.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.arrays import Floats32
from tacit.cleanroom.model.adapters import (
    FIELDS,
    VALUE_ROWS,
    AdapterGate,
    GatedLinear,
    LayerActivations,
    ValueRows,
)
from tacit.cleanroom.model.examples import Batch
from tacit.cleanroom.model.layers import Packing
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.protocol.derivatives import BlockDerivatives, Factors
from tacit.cleanroom.protocol.layout import ParameterBlock
from tacit.cleanroom.protocol.row_derivatives import ExampleDerivatives, RowDerivatives
from tacit.errors import BadInput


def adapter_derivatives(
    model: ConversionModel, batch: Batch, task: str, adapter: str
) -> tuple[Floats32, dict[str, ExampleDerivatives]]:
    """Logits (n,) of rows of the adapter's advertiser, and their derivatives in each of its matrices."""
    chosen = model.adapter(adapter)
    if model.known_task(task) not in chosen.tasks:
        raise BadInput(f"adapter {adapter}: expected a task among {', '.join(chosen.tasks)}, got {task!r}")
    if not batch.of_one_advertiser(chosen.advertiser):
        raise BadInput(f"adapter {adapter}: expected rows of its advertiser only, got others among them")
    logits, passed, vectors = _layer_passes(model, batch, task, tuple(chosen.pairs))
    found: dict[str, ExampleDerivatives] = {}
    blocks = {block.name: block for block in chosen.layout.blocks}
    with torch.no_grad():
        for path, pair in chosen.pairs.items():
            a, b = blocks[f"{path}.A"], blocks[f"{path}.B"]
            inputs, deltas, counts = passed[path]
            found[a.name] = _factors(a, deltas @ pair.b, inputs, counts)
            found[b.name] = _factors(b, deltas, inputs @ pair.a.T, counts)
    if chosen.value_rows is not None:
        found[VALUE_ROWS] = _touched_values(blocks[VALUE_ROWS], chosen.value_rows, vectors)
    return logits, found


LayerPass = tuple[Tensor, Tensor, NDArray[np.int32]]
"""Inputs (pairs, inputs), deltas (pairs, outputs), and how many pairs each row has (n,)."""


def _layer_passes(
    model: ConversionModel, batch: Batch, task: str, layers: tuple[str, ...]
) -> tuple[Floats32, dict[str, LayerPass], LayerActivations]:
    """What entered each layer, and the derivative of each row's logit in what it gave, row by row; of the
    fields' vectors, the rows of their table and that derivative."""
    seen: dict[str, LayerActivations] = {}
    packing = model.packing(batch)
    with torch.enable_grad():
        logits = model.task_logits(batch, task, packing, AdapterGate(model.gate(batch, packing).routes, seen))
        read = [path for path in layers if path in seen]  # not the towers of other tasks
        *deltas, of_fields = torch.autograd.grad(
            logits.sum(), [*(seen[path].outputs for path in read), seen[FIELDS].outputs]
        )
    order = None if packing is None else packing.by_row()
    gated = model.gated_layers(model.settings.tasks)
    passed = {
        path: _by_row(gated[path], seen[path].inputs.detach(), delta, packing, order)
        for path, delta in zip(read, deltas, strict=True)
    }
    for path in layers:
        if path not in passed:
            passed[path] = _zero_pass(gated[path], len(batch))
    return logits.detach().numpy(), passed, LayerActivations(seen[FIELDS].inputs, of_fields)


def _touched_values(block: ParameterBlock, values: ValueRows, vectors: LayerActivations) -> RowDerivatives:
    """A value's change is added to its vector: the derivative in the one is that in the other."""
    return RowDerivatives.of_touched(block, values.slots[vectors.inputs].numpy(), vectors.outputs.numpy())


def _by_row(
    layer: GatedLinear, inputs: Tensor, deltas: Tensor, packing: Packing | None, order: Tensor | None
) -> LayerPass:
    if layer.per_token and packing is not None and order is not None:
        return inputs[order], deltas[order], packing.filled.sum(1).numpy().astype(np.int32)
    counts = np.full(len(inputs), layer.positions, np.int32)
    return inputs.reshape(-1, layer.inputs), deltas.reshape(-1, layer.outputs), counts


def _zero_pass(layer: GatedLinear, rows: int) -> LayerPass:
    """A layer that the task's logit does not pass: no derivative."""
    counts = np.full(rows, layer.positions, np.int32)
    lines = rows * layer.positions
    return torch.zeros(lines, layer.inputs), torch.zeros(lines, layer.outputs), counts


def _factors(block: ParameterBlock, left: Tensor, right: Tensor, counts: NDArray[np.int32]) -> BlockDerivatives:
    pairs = Factors(left.contiguous().numpy(), right.contiguous().numpy(), counts)
    return BlockDerivatives.of_factors(block, pairs)
