"""The factorization machine, by its closed form: per-example gradient norms come with the forward pass.

The score is b + sum_f w_f + sum_{f<g} <v_f, v_g>, where field f reads row (w_f, v_f) of one table that holds
the public rows first and the sensitive ones after them. With S = sum_f v_f the pairs are (|S|^2 - sum_f
|v_f|^2) / 2, and the gradient of v_f is S - v_f. So a row's gradient over a batch is sum_i c_i S_i - v sum_i
c_i: one visit for each example and field, and no tensor of batch x fields x dim (Rendle 2010; the two towers:
Chua et al., AdKDD 2024, equations 1-3). Without embeddings (`LogisticRegression`) it is logistic regression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput
from tacit.kernels import training as kernels
from tacit.train.examples import Examples, Sizes
from tacit.train.models.model import Architecture, GradientSums, NormalSource, Part, TableIds

TABLE, BIAS = "table", "bias"


@dataclass(frozen=True)
class FactorizationMachine:
    """A factorization machine: embeddings of `dim` numbers and a linear weight for each value. All of them
    start as N(0, start^2)."""

    dim: int = 32
    start: float = 0.01
    name: ClassVar[str] = "fm"

    def __post_init__(self) -> None:
        expect.whole("dim", self.dim, at_least=1)
        expect.positive("start", self.start)

    def build(self, sizes: Sizes, normal: NormalSource) -> FmModel:
        shape = (sizes.public_rows + sizes.sensitive_rows, 1 + self.dim)
        return FmModel(self, sizes, normal(shape, scale=self.start), np.zeros(1, np.float32))


@dataclass(frozen=True)
class LogisticRegression:
    """Logistic regression: one weight for each value, starting at 0. The small baseline."""

    name: ClassVar[str] = "logistic"

    def build(self, sizes: Sizes, normal: NormalSource) -> FmModel:  # noqa: ARG002 (nothing to draw)
        rows = sizes.public_rows + sizes.sensitive_rows
        return FmModel(self, sizes, np.zeros((rows, 1), np.float32), np.zeros(1, np.float32))


@dataclass(eq=False)
class FmModel:
    """A factorization machine with its weights, changed in place by training."""

    architecture: Architecture
    sizes: Sizes
    table: Floats32  # (public rows + sensitive rows, 1 + dim): the linear weight, then the embedding
    bias: Floats32  # (1,)
    tables: dict[str, Floats32] = field(init=False)
    dense: dict[str, Floats32] = field(init=False)
    penalised_from: int = field(init=False)

    def __post_init__(self) -> None:
        self.tables, self.dense = {TABLE: self.table}, {BIAS: self.bias}
        # Linear weights go free beside embeddings, which learn the noise first; alone, they are all there is.
        self.penalised_from = 1 if self.table.shape[1] > 1 else 0

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        sensitive = None if part is Part.TRUNCATED else examples.sensitive
        fields = self.sizes.public_fields + (0 if sensitive is None else self.sizes.sensitive_fields)
        ids = np.empty((len(rows), fields), np.int32)
        kernels.gather_ids(examples.public, sensitive, rows, self.sizes.public_rows, ids)
        _expect_sides(ids, self.sizes)
        return {TABLE: ids}

    def trained_ids(self, ids: TableIds, part: Part) -> TableIds:
        return {TABLE: np.ascontiguousarray(ids[TABLE][:, self._first_trained(part) :])}

    def trained_rows(self, part: Part) -> dict[str, slice]:
        first = self.sizes.public_rows if part is Part.SENSITIVE else 0
        past = self.sizes.public_rows if part is Part.TRUNCATED else len(self.table)
        return {TABLE: slice(first, past)}

    def trained_dense(self, part: Part) -> tuple[str, ...]:  # noqa: ARG002 (the bias is common)
        return (BIAS,)

    def start_at(self, score: float) -> None:
        self.bias[0] = score

    def rescale(self, slope: float, shift: float) -> None:
        self.table[:, 0] *= np.float32(slope)
        self.table[:, 1:] *= np.float32(math.sqrt(slope))  # scores are quadratic in embeddings
        self.bias[0] = slope * self.bias[0] + shift

    def forward(self, ids: TableIds, part: Part) -> FmPass:
        return FmPass(self, ids[TABLE], self._first_trained(part))

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats32]:
        example = ids[TABLE][index]
        embeddings = self.table[example, 1:].astype(np.float64)
        total = embeddings.sum(axis=0)
        own = np.concatenate([np.ones((len(example), 1)), total - embeddings], axis=1).astype(np.float32)
        gradient: dict[str, Floats32] = {BIAS: np.ones(1, np.float32)}
        for place in range(self._first_trained(part), len(example)):
            name = f"{TABLE}[{example[place]}]"
            gradient[name] = gradient[name] + own[place] if name in gradient else own[place]
        return gradient

    def _first_trained(self, part: Part) -> int:
        return self.sizes.public_fields if part is Part.SENSITIVE else 0


def _expect_sides(ids: Ids, sizes: Sizes) -> None:
    """A sensitive id below 0 would read, and train, a public row; a public one too large, a sensitive row."""
    public, sensitive = ids[:, : sizes.public_fields], ids[:, sizes.public_fields :]
    if public.size and (public.min() < 0 or public.max() >= sizes.public_rows):
        raise BadInput(f"expected public ids in 0..{sizes.public_rows - 1}, got one outside")
    if sensitive.size and (sensitive.min() < sizes.public_rows):
        raise BadInput(f"expected sensitive ids in 0..{sizes.sensitive_rows - 1}, got one outside")


class FmPass:
    """One microbatch: the scores, and all that its gradients need."""

    def __init__(self, machine: FmModel, ids: Ids, first_trained: int) -> None:
        self._machine, self._ids, self._first_trained = machine, ids, first_trained
        self.scores = np.empty(len(ids), np.float32)
        self._sums = np.empty((len(ids), machine.table.shape[1] - 1), np.float32)
        self._squares = np.empty(len(ids), np.float32)
        kernels.fm_forward(machine.table, ids, first_trained, self.scores, self._sums, self._squares)
        self.scores += machine.bias

    def squared_norms(self, residual: Floats32) -> Floats32:
        return residual * residual * (self._squares + 1)  # and one for the bias

    def squared_norms_grouped(self, residual: Floats32, groups: NDArray[np.int64]) -> Floats32:
        count = int(groups[-1]) + 1 if len(groups) else 0
        squares = np.empty(count)
        read = (self._machine.table, self._ids, self._first_trained)
        kernels.fm_group_squares(*read, residual, self._sums, groups, squares)
        bias = np.bincount(groups, residual, count)
        return (squares + bias * bias).astype(np.float32)

    def accumulate(self, coefficients: Floats32, into: GradientSums) -> None:
        kernels.fm_scatter(
            self._machine.table,
            self._ids,
            self._first_trained,
            coefficients,
            self._sums,
            into.tables[TABLE],
            into.pulls.get(TABLE),
        )
        into.dense[BIAS][0] += np.float32(coefficients.sum(dtype=np.float64))
