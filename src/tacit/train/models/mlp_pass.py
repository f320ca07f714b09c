"""One microbatch through the two-tower network, with one backward pass that serves both norms and sums.

The gradient of a linear layer's weights for example i is the outer product of d_i, the gradient of its output,
and a_i, its input. So its squared norm is |d_i|^2 |a_i|^2, and a weighted sum over the batch is one product of
matrices. The d_i are computed once, for a unit of score, and scaled afterwards: no example's gradient is ever
formed (norms: Goodfellow, arXiv:1510.01799; one backward pass: Bu et al., arXiv:2210.00038).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.kernels import training as kernels
from tacit.train.examples import Ids
from tacit.train.models.grouped_norms import grouped_squared_norms
from tacit.train.models.model import Part, Sums, TableIds
from tacit.train.models.repeated_rows import squared_norms_by_row, squares
from tacit.train.targets import Floats

PUBLIC, SENSITIVE = "public", "sensitive"


@dataclass(frozen=True)
class Layer:
    """A linear layer and what came into it: the public tower, and the sensitive one where they meet."""

    name: str
    weight: torch.Tensor  # (width, inputs)
    bias: torch.Tensor  # (width,)
    inputs: tuple[torch.Tensor, ...]  # each (batch, its inputs)

    @classmethod
    def of(cls, dense: Mapping[str, Floats], name: str, inputs: tuple[torch.Tensor, ...]) -> Layer:
        weight, bias = (torch.from_numpy(dense[f"{name}.{kind}"]) for kind in ("weight", "bias"))
        return cls(name, weight, bias, inputs)

    def blocks(self, weight: torch.Tensor) -> list[torch.Tensor]:
        """The columns of `weight` that meet each input; those of an input that is left out are in none."""
        starts = np.cumsum([0, *(part.shape[1] for part in self.inputs)]).tolist()
        return [weight[:, start:end] for start, end in pairwise(starts)]

    def output(self) -> torch.Tensor:
        result = _empty(len(self.inputs[0]), len(self.bias)).copy_(self.bias)  # (batch, width)
        for block, part in zip(self.blocks(self.weight), self.inputs, strict=True):
            result.addmm_(part, block.T)
        return result


@dataclass(frozen=True)
class Backward:
    """Gradients, by example, of the trained layers' outputs and of the embeddings read from trained tables."""

    layers: list[tuple[Layer, torch.Tensor]]  # (batch, width)
    embeddings: dict[str, torch.Tensor]  # (batch, fields * dim)


class MlpPass:
    """Keeps what came into each layer; `scores` are (batch,)."""

    def __init__(
        self,
        tables: Mapping[str, Floats],
        dense: Mapping[str, Floats],
        public_layers: tuple[str, ...],
        common_layers: tuple[str, ...],
        ids: TableIds,
        part: Part,
    ) -> None:
        self._ids, self._part, self._joined = ids, part, len(public_layers)
        self._layers: list[Layer] = []
        self._unit: Backward | None = None
        hidden = _embeddings(tables[PUBLIC], ids[PUBLIC])
        for name in public_layers:
            self._layers.append(Layer.of(dense, name, (hidden,)))
            hidden = self._layers[-1].output().relu_()
        inputs: tuple[torch.Tensor, ...] = (hidden,)
        if part is not Part.TRUNCATED:
            inputs = (hidden, _embeddings(tables[SENSITIVE], ids[SENSITIVE]))
        for name in common_layers:
            self._layers.append(Layer.of(dense, name, inputs))
            hidden = self._layers[-1].output()
            inputs = (hidden.relu_() if name != common_layers[-1] else hidden,)
        self.scores: Floats = hidden[:, 0].numpy().copy()  # contiguous

    def squared_norms(self, residual: Floats) -> Floats:
        unit, total = self._unit_backward(), torch.zeros(len(self.scores))
        for layer, gradient in unit.layers:
            inputs = 1 + sum(squares(part) for part in layer.inputs)  # one for the bias
            total += squares(gradient) * inputs
        for table, gradient in unit.embeddings.items():
            total += squared_norms_by_row(self._ids[table], gradient)
        norms: Floats = residual * residual * total.numpy()
        return norms

    def squared_norms_grouped(self, residual: Floats, groups: NDArray[np.int64]) -> Floats:
        """|sum over a group's examples of residual_i * d score_i / d trained parameters|^2, for each group.

        Groups are numbered from 0; `groups` says to which one each example belongs.
        """
        unit = self._unit_backward()
        return grouped_squared_norms(
            residual,
            groups,
            linear=[(gradient, torch.cat(layer.inputs, dim=1)) for layer, gradient in unit.layers],
            embedded=[(self._ids[table], gradient) for table, gradient in unit.embeddings.items()],
        )

    def accumulate(self, coefficients: Floats, into: Sums) -> None:
        scale = torch.tensor(coefficients, dtype=torch.float32)[:, None]  # (batch, 1)
        # Where nobody asked for norms, to scale at the top is cheaper. Else each layer is scaled by itself, in
        # memory that is free again at once.
        backward = self._unit or self._backward(scale)
        for layer, gradient in backward.layers:
            scaled = gradient if self._unit is None else gradient * scale
            weight = torch.from_numpy(into.dense[f"{layer.name}.weight"])
            for block, part in zip(layer.blocks(weight), layer.inputs, strict=True):
                block.addmm_(scaled.T, part)
            torch.from_numpy(into.dense[f"{layer.name}.bias"]).add_(scaled.sum(dim=0))
        for table, gradient in backward.embeddings.items():
            scaled = gradient if self._unit is None else gradient * scale
            ids, sums = self._ids[table], into.tables[table]
            kernels.add_rows(sums, ids, scaled.numpy().reshape(*ids.shape, sums.shape[1]))

    def _unit_backward(self) -> Backward:
        if self._unit is None:
            self._unit = self._backward(torch.ones(len(self.scores), 1))
        return self._unit

    def _backward(self, gradient: torch.Tensor) -> Backward:
        """From the gradient of the score, (batch, 1), down to the lowest layer that is trained."""
        lowest = self._joined if self._part is Part.SENSITIVE else 0
        layers, embeddings = [], {}
        for place in reversed(range(lowest, len(self._layers))):
            layer = self._layers[place]
            layers.append((layer, gradient))
            main, *sensitive = layer.blocks(layer.weight)
            for block in sensitive:
                embeddings[SENSITIVE] = gradient @ block
            if place > lowest:
                below = torch.mm(gradient, main, out=_empty(len(gradient), main.shape[1]))
                # The input is what a ReLU gave: where it is 0, nothing passes.
                gradient = torch.ops.aten.threshold_backward(below, layer.inputs[0], 0, grad_input=below)
            elif self._part is not Part.SENSITIVE:
                embeddings[PUBLIC] = gradient @ main
        return Backward(layers, embeddings)


def _empty(batch: int, width: int) -> torch.Tensor:
    """Rows that begin 64 bytes apart, or a multiple: products into others took a third longer."""
    return torch.empty(batch, -(-width // 16) * 16)[:, :width]


def _embeddings(table: Floats, ids: Ids) -> torch.Tensor:
    taken = np.empty((*ids.shape, table.shape[1]), np.float32)  # (batch, fields, dim)
    kernels.take_rows(table, ids, taken)
    return torch.from_numpy(taken).view(len(ids), ids.shape[1] * table.shape[1])
