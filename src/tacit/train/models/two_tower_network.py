"""The two-tower network and its public form: NumPy weights that torch reads and training changes in place.

One backward pass serves both norms and sums. The gradient of a linear layer's weights for example i is the
outer product of d_i, the gradient of its output, and a_i, its input. So its squared norm is |d_i|^2 |a_i|^2,
and a weighted sum over the batch is one product of matrices. The d_i are computed once, for a unit of score,
and scaled afterwards: no example's gradient is ever formed (norms: Goodfellow, arXiv:1510.01799; one backward
pass: Bu et al., arXiv:2210.00038). `PublicNetwork` is a two-tower network whose sensitive tower has no fields
and no rows.

A table row that an example reads twice gets the sum of both gradients. Summed over a group, to clip a person as
a whole, a layer's gradient has the squared norm sum_ij <d_i, d_j> (<a_i, a_j> + 1), where the one is the bias:
in double precision, since a group's gradients may nearly cancel and what is left must not be understated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput
from tacit.kernels import training as kernels
from tacit.train.examples import Examples, Sizes
from tacit.train.models.architectures import Fnn, Mlp, expect_part
from tacit.train.models.model import Architecture, GradientSums, NormalSource, Part, TableIds

REPEATS_AT_ONCE = 4096  # examples with repeats at once: (4096, fields, fields) is the largest array
CHUNK = 4096  # examples of groups at once, or one larger group
LARGEST_GRAM = 512  # in larger groups the summed gradient is smaller than the products of all pairs


def squared_lengths(rows: torch.Tensor) -> torch.Tensor:
    """|row|^2 of each row, without an array of squares."""
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.square_()


def squared_norms_by_row(ids: Ids, gradients: torch.Tensor) -> torch.Tensor:
    """Each example's sum over the distinct rows it reads of |that row's gradient|^2.

    `ids` are (batch, fields); `gradients`, of each embedding as it was read, are (batch, fields * dim).
    """
    totals = squared_lengths(gradients)
    ordered = np.sort(ids, axis=1)
    repeating = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    for start in range(0, len(repeating), REPEATS_AT_ONCE):
        some = repeating[start : start + REPEATS_AT_ONCE]
        same = torch.from_numpy((ids[some][:, :, None] == ids[some][:, None, :]).astype(np.float32))
        places = torch.from_numpy(some)
        own = gradients[places].view(len(some), ids.shape[1], -1)  # (some, fields, dim)
        # sum over pairs f, g that read the same row of <gradient_f, gradient_g>
        totals[places] = (torch.bmm(same, own) * own).sum(dim=(1, 2))
    return totals


def grouped_squared_norms(
    residual: Floats32,
    groups: NDArray[np.int64],
    *,
    linear: Sequence[tuple[torch.Tensor, torch.Tensor]],
    embedded: Sequence[tuple[Ids, torch.Tensor]],
) -> Floats32:
    """One for each group 0, 1, ...; 0 for a number that no example has.

    `linear` holds each layer's output gradients (batch, width) and inputs (batch, inputs); `embedded` each
    table's ids (batch, fields) and the gradients of what was read (batch, fields * dim); for a unit of score.
    """
    if groups.shape != residual.shape or groups.dtype != np.int64 or (groups.size and groups.min() < 0):
        raise BadInput(
            f"expected {len(residual)} groups as int64 from 0 on, got {groups.dtype} of shape {groups.shape}"
        )
    totals = np.zeros(int(groups.max()) + 1 if groups.size else 0)
    for which, members in _chunks(groups):  # (n,), (n, size)
        places = torch.from_numpy(members)
        weights = torch.from_numpy(residual[members].astype(np.float64))[:, :, None]
        for gradients, inputs in linear:
            totals[which] += _linear(gradients[places] * weights, inputs[places].double())
        for ids, gradients in embedded:
            totals[which] += _sum_distinct_rows(ids[members], gradients[places] * weights)
    return np.maximum(totals, 0).astype(np.float32)


def _chunks(groups: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Some groups of one size at a time: their numbers, and the places of their examples (groups, size)."""
    numbers, sizes = np.unique(groups, return_counts=True)
    order = np.argsort(groups, kind="stable")
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes).tolist():
        same = np.flatnonzero(sizes == size)
        step = max(1, CHUNK // size)
        for start in range(0, len(same), step):
            some = same[start : start + step]
            yield numbers[some], order[starts[some][:, None] + np.arange(size)]


def _linear(gradients: torch.Tensor, inputs: torch.Tensor) -> NDArray[np.float64]:
    """(n, size, width) and (n, size, inputs) -> (n,)."""
    if gradients.shape[1] > LARGEST_GRAM:
        weights = torch.bmm(gradients.transpose(1, 2), inputs)  # (n, width, inputs)
        total = weights.square().sum(dim=(1, 2)) + gradients.sum(dim=1).square().sum(dim=1)
    else:
        pairs = torch.bmm(gradients, gradients.transpose(1, 2))  # (n, size, size)
        pairs *= torch.bmm(inputs, inputs.transpose(1, 2)) + 1
        total = pairs.sum(dim=(1, 2))
    squares: NDArray[np.float64] = total.numpy()
    return squares


def _sum_distinct_rows(ids: Ids, gradients: torch.Tensor) -> NDArray[np.float64]:
    """(n, size, fields) and (n, size, fields * dim) -> (n,): the sum over each group's distinct rows."""
    count, size, fields = ids.shape
    totals = np.zeros(count)
    if not ids.size:
        return totals
    group = np.repeat(np.arange(count, dtype=np.int64), size * fields)
    key = group * (int(ids.max()) + 1) + ids.reshape(-1)
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rows = gradients.numpy().reshape(count * size * fields, -1)[order]
    sums = np.add.reduceat(rows, starts, axis=0)  # (distinct group and row, dim)
    np.add.at(totals, group[order][starts], np.square(sums).sum(axis=1))
    return totals


PUBLIC, SENSITIVE = "public", "sensitive"  # tables
OUTPUT = "output"


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer and what came into it: the public tower, and the sensitive one where they meet."""

    name: str
    weight: torch.Tensor  # (width, inputs)
    bias: torch.Tensor  # (width,)
    inputs: tuple[torch.Tensor, ...]  # each (batch, its inputs)

    @classmethod
    def of(cls, dense: Mapping[str, Floats32], name: str, inputs: tuple[torch.Tensor, ...]) -> LinearLayer:
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
class BackwardPass:
    """Gradients, by example, of the trained layers' outputs and of the embeddings read from trained tables."""

    layers: list[tuple[LinearLayer, torch.Tensor]]  # (batch, width)
    embeddings: dict[str, torch.Tensor]  # (batch, fields * dim)


class MlpPass:
    """Keeps what came into each layer; `scores` are (batch,)."""

    def __init__(
        self,
        tables: Mapping[str, Floats32],
        dense: Mapping[str, Floats32],
        public_layers: tuple[str, ...],
        common_layers: tuple[str, ...],
        ids: TableIds,
        part: Part,
    ) -> None:
        self._ids, self._part, self._joined = ids, part, len(public_layers)
        self._layers: list[LinearLayer] = []
        self._unit: BackwardPass | None = None
        hidden = _embeddings(tables[PUBLIC], ids[PUBLIC])
        for name in public_layers:
            self._layers.append(LinearLayer.of(dense, name, (hidden,)))
            hidden = self._layers[-1].output().relu_()
        inputs: tuple[torch.Tensor, ...] = (hidden,)
        if part is not Part.TRUNCATED:
            inputs = (hidden, _embeddings(tables[SENSITIVE], ids[SENSITIVE]))
        for name in common_layers:
            self._layers.append(LinearLayer.of(dense, name, inputs))
            hidden = self._layers[-1].output()
            inputs = (hidden.relu_() if name != common_layers[-1] else hidden,)
        self.scores: Floats32 = hidden[:, 0].numpy().copy()  # contiguous

    def squared_norms(self, residual: Floats32) -> Floats32:
        unit, total = self._unit_backward(), torch.zeros(len(self.scores))
        for layer, gradient in unit.layers:
            inputs = 1 + sum(squared_lengths(part) for part in layer.inputs)  # one for the bias
            total += squared_lengths(gradient) * inputs
        for table, gradient in unit.embeddings.items():
            total += squared_norms_by_row(self._ids[table], gradient)
        norms: Floats32 = residual * residual * total.numpy()
        return norms

    def squared_norms_grouped(self, residual: Floats32, groups: NDArray[np.int64]) -> Floats32:
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

    def accumulate(self, coefficients: Floats32, into: GradientSums) -> None:
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

    def _unit_backward(self) -> BackwardPass:
        if self._unit is None:
            self._unit = self._backward(torch.ones(len(self.scores), 1))
        return self._unit

    def _backward(self, gradient: torch.Tensor) -> BackwardPass:
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
        return BackwardPass(layers, embeddings)


def _empty(batch: int, width: int) -> torch.Tensor:
    """Rows that begin 64 bytes apart, or a multiple: products into others took a third longer."""
    return torch.empty(batch, -(-width // 16) * 16)[:, :width]


def _embeddings(table: Floats32, ids: Ids) -> torch.Tensor:
    taken = np.empty((*ids.shape, table.shape[1]), np.float32)  # (batch, fields, dim)
    kernels.take_rows(table, ids, taken)
    return torch.from_numpy(taken).view(len(ids), ids.shape[1] * table.shape[1])


@dataclass(eq=False)
class TwoTowerNetwork:
    """Layers' weights are (width, inputs); the first common one reads the public tower, then the sensitive."""

    architecture: Architecture
    sizes: Sizes
    tables: dict[str, Floats32]  # (rows, dim) by side
    dense: dict[str, Floats32]  # public.0.weight, public.0.bias, ..., common.0.weight, ..., output.bias
    public_layers: tuple[str, ...]
    common_layers: tuple[str, ...]  # the output is the last of them
    penalised_from: int = 0

    @classmethod
    def fresh(cls, shape: Mlp, sizes: Sizes, normal: NormalSource) -> Self:
        """Embeddings N(0, start^2), layers N(0, 2 / inputs) (He et al. 2015), biases 0."""
        tables = {
            PUBLIC: normal((sizes.public_rows, shape.dim), scale=shape.start),
            SENSITIVE: normal((sizes.sensitive_rows, shape.dim), scale=shape.start),
        }
        below = (sizes.public_fields * shape.dim, *shape.public_layers)
        joined = below[-1] + sizes.sensitive_fields * shape.dim
        public = {f"public.{i}": widths for i, widths in enumerate(pairwise(below))}
        common = {f"common.{i}": widths for i, widths in enumerate(pairwise((joined, *shape.common_layers)))}
        common[OUTPUT] = ((joined, *shape.common_layers)[-1], 1)
        dense: dict[str, Floats32] = {}
        for name, (inputs, width) in {**public, **common}.items():
            dense[f"{name}.weight"] = normal((width, inputs), scale=math.sqrt(2 / max(1, inputs)))
            dense[f"{name}.bias"] = np.zeros(width, np.float32)
        return cls(shape, sizes, tables, dense, tuple(public), tuple(common))

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        ids = {PUBLIC: read_ids(PUBLIC, examples.public, rows, len(self.tables[PUBLIC]))}
        if part is not Part.TRUNCATED:
            ids[SENSITIVE] = read_ids(SENSITIVE, examples.sensitive, rows, len(self.tables[SENSITIVE]))
        return ids

    def trained_ids(self, ids: TableIds, part: Part) -> TableIds:
        return {name: np.ascontiguousarray(ids[name]) for name in self.trained_rows(part)}

    def trained_rows(self, part: Part) -> dict[str, slice]:
        unused = {Part.TRUNCATED: SENSITIVE, Part.SENSITIVE: PUBLIC}.get(part)
        return {name: slice(0, len(table)) for name, table in self.tables.items() if name != unused}

    def trained_dense(self, part: Part) -> tuple[str, ...]:
        public = () if part is Part.SENSITIVE else self.public_layers
        return tuple(f"{layer}.{kind}" for layer in public + self.common_layers for kind in ("weight", "bias"))

    def start_at(self, score: float) -> None:
        self.dense[f"{OUTPUT}.bias"][:] = score

    def rescale(self, slope: float, shift: float) -> None:
        rescale_output(self.dense, slope, shift)

    def forward(self, ids: TableIds, part: Part) -> MlpPass:
        return MlpPass(self.tables, self.dense, self.public_layers, self.common_layers, ids, part)

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats32]:
        """By torch's automatic differentiation, in double precision; the fast passes are held to it."""
        trained = self.trained_dense(part)
        dense = {name: _leaf(array, name in trained) for name, array in self.dense.items()}
        rows = {
            f"{name}[{row}]": _leaf(self.tables[name][row], name in self.trained_rows(part))
            for name in ids
            for row in sorted(set(ids[name][index].tolist()))
        }
        read = {name: [rows[f"{name}[{row}]"] for row in ids[name][index].tolist()] for name in ids}
        width = self.tables[SENSITIVE].shape[1] * self.sizes.sensitive_fields
        nothing = torch.zeros(0, dtype=torch.float64)
        hidden = torch.cat([nothing, *read[PUBLIC]])
        for layer in self.public_layers:
            hidden = torch.relu(dense[f"{layer}.weight"] @ hidden + dense[f"{layer}.bias"])
        left_out = torch.zeros(width, dtype=torch.float64)
        sensitive = left_out if part is Part.TRUNCATED else torch.cat([nothing, *read[SENSITIVE]])
        hidden = torch.cat([hidden, sensitive])
        for layer in self.common_layers:
            hidden = dense[f"{layer}.weight"] @ hidden + dense[f"{layer}.bias"]
            hidden = hidden if layer == OUTPUT else torch.relu(hidden)
        hidden.sum().backward()  # type: ignore[no-untyped-call]
        return {
            name: leaf.grad.numpy().astype(np.float32)
            for name, leaf in {**dense, **rows}.items()
            if leaf.grad is not None
        }


def rescale_output(dense: Mapping[str, Floats32], slope: float, shift: float) -> None:
    """Turn every score of a network into slope * score + shift: by its last layer alone, which is linear."""
    dense[f"{OUTPUT}.weight"][:] *= np.float32(slope)
    dense[f"{OUTPUT}.bias"][:] = slope * dense[f"{OUTPUT}.bias"] + shift


def read_ids(name: str, column: Ids, rows: NDArray[np.int64], table_rows: int) -> Ids:
    """Some rows of a side's ids; one that the table lacks is refused."""
    ids = np.asarray(column).take(rows, axis=0)
    if ids.size and (ids.min() < 0 or ids.max() >= table_rows):
        raise BadInput(f"expected {name} ids from 0 to {table_rows - 1}, got another")
    return ids


def _leaf(array: Floats32, trained: bool) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.float64, requires_grad=trained)


@dataclass(eq=False)
class PublicNetwork(TwoTowerNetwork):
    """`sizes` are the examples' own; what it has of the sensitive side is empty."""

    @classmethod
    def of_public(cls, shape: Fnn, sizes: Sizes, normal: NormalSource) -> PublicNetwork:
        network = cls.fresh(Mlp(shape.dim, (), shape.layers, shape.start), _public(sizes), normal)
        network.architecture, network.sizes = shape, sizes
        return network

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        expect_part(self.architecture, part)
        return super().ids(examples, rows, part)

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats32]:
        expect_part(self.architecture, part)
        sizes, layers = _public(self.sizes), (self.public_layers, self.common_layers)
        bare = TwoTowerNetwork(self.architecture, sizes, self.tables, self.dense, *layers)
        return bare.example_gradient(ids, index, part)


def _public(sizes: Sizes) -> Sizes:
    return replace(sizes, sensitive_fields=0, sensitive_rows=0)
