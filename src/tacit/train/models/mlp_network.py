"""A two-tower network with its weights: NumPy arrays that torch reads and training changes in place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.train.examples import Examples, Ids, Sizes
from tacit.train.models.mlp import Mlp
from tacit.train.models.mlp_pass import PUBLIC, SENSITIVE, MlpPass
from tacit.train.models.model import Architecture, Normal, Part, TableIds
from tacit.train.targets import Floats

OUTPUT = "output"


@dataclass(eq=False)
class Network:
    """Layers' weights are (width, inputs); the first common one reads the public tower, then the sensitive."""

    architecture: Architecture
    sizes: Sizes
    tables: dict[str, Floats]  # (rows, dim) by side
    dense: dict[str, Floats]  # public.0.weight, public.0.bias, ..., common.0.weight, ..., output.bias
    public_layers: tuple[str, ...]
    common_layers: tuple[str, ...]  # the output is the last of them
    penalised_from: int = 0

    @classmethod
    def fresh(cls, shape: Mlp, sizes: Sizes, normal: Normal) -> Self:
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
        dense: dict[str, Floats] = {}
        for name, (inputs, width) in {**public, **common}.items():
            dense[f"{name}.weight"] = normal((width, inputs), scale=math.sqrt(2 / max(1, inputs)))
            dense[f"{name}.bias"] = np.zeros(width, np.float32)
        return cls(shape, sizes, tables, dense, tuple(public), tuple(common))

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        ids = {PUBLIC: taken(PUBLIC, examples.public, rows, len(self.tables[PUBLIC]))}
        if part is not Part.TRUNCATED:
            ids[SENSITIVE] = taken(SENSITIVE, examples.sensitive, rows, len(self.tables[SENSITIVE]))
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
        self.dense[f"{OUTPUT}.weight"] *= np.float32(slope)
        self.dense[f"{OUTPUT}.bias"][:] = slope * self.dense[f"{OUTPUT}.bias"] + shift

    def forward(self, ids: TableIds, part: Part) -> MlpPass:
        return MlpPass(self.tables, self.dense, self.public_layers, self.common_layers, ids, part)

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats]:
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


def taken(name: str, column: Ids, rows: NDArray[np.int64], table_rows: int) -> Ids:
    """Some rows of a side's ids; one that the table lacks is refused."""
    ids = np.asarray(column).take(rows, axis=0)
    if ids.size and (ids.min() < 0 or ids.max() >= table_rows):
        raise BadInput(f"expected {name} ids from 0 to {table_rows - 1}, got another")
    return ids


def _leaf(array: Floats, trained: bool) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.float64, requires_grad=trained)
