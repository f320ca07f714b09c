"""Low-rank adapters: linear layers with a change for the rows of one advertiser, and all changes of one.

Rows of all other advertisers keep every bit (Hu et al. 2021, arXiv:2106.09685, for the low-rank change). Beside
or instead of the layers an adapter changes rows of the fields' embedding table, those of values that its
advertiser's examples have: a change of their own, which no other advertiser's rows read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own name for it)

from tacit import expect
from tacit.cleanroom.protocol.layout import ParameterBlock, ParameterLayout
from tacit.errors import BadInput


@dataclass(frozen=True, eq=False)
class LowRankPair:
    """The change B A of a layer's weight (Hu et al. 2021, arXiv:2106.09685)."""

    a: nn.Parameter  # (rank, inputs)
    b: nn.Parameter  # (outputs, rank)


FIELDS = "fields"  # the layer of all fields' vectors, in what a batch has seen
VALUE_ROWS = "fields.rows"  # the block of the changes of its table's rows
TABLE_PLACES = "fields.places"  # in files: which rows of the table these are


@dataclass(frozen=True, eq=False)
class ValueRows:
    """A change of rows of the fields' embedding table: of the values that an advertiser's examples have."""

    places: NDArray[np.int64]  # (rows,): rows of the table, rising
    change: nn.Parameter  # (rows, dim)
    slots: Tensor  # i64 (rows of the table,): the row of the change, -1 for none

    @classmethod
    def fresh(cls, places: NDArray[np.integer], table_rows: int, dim: int) -> ValueRows:
        """No change yet."""
        rows = np.asarray(places, np.int64)
        if (
            rows.ndim != 1
            or not len(rows)
            or np.any(np.diff(rows) <= 0)
            or rows[0] < 0
            or rows[-1] >= table_rows
        ):
            raise BadInput(f"expected rising rows of a table of {table_rows}, at least one, got others")
        slots = torch.full((table_rows,), -1, dtype=torch.int64)
        slots[torch.from_numpy(rows)] = torch.arange(len(rows))
        return cls(rows, nn.Parameter(torch.zeros(len(rows), dim)), slots)


@dataclass(frozen=True, eq=False)
class AdapterRoute:
    """One adapter in one batch: what passes through it."""

    pairs: Mapping[str, LowRankPair]  # by layer
    values: ValueRows | None
    rows: Tensor  # i64: places in the batch
    tokens: Tensor | None  # i64: places among the tokens of all rows; None: the model reads no sequence


@dataclass(frozen=True, eq=False)
class LayerActivations:
    """What an adapted layer read and gave: a line for each row or token, or for each row and position."""

    inputs: Tensor  # (..., inputs)
    outputs: Tensor  # (..., outputs)


@dataclass(frozen=True, eq=False)
class AdapterGate:
    """The routes of a batch; `seen`, where there is one, collects what passes the layers that can adapt."""

    routes: tuple[AdapterRoute, ...] = ()
    seen: dict[str, LayerActivations] | None = None


class Linear(nn.Module):
    """x W^T + b, started at N(0, gain / inputs) by a generator of its own: the global one is left alone."""

    def __init__(self, inputs: int, outputs: int, draw: torch.Generator, *, gain: float = 1.0) -> None:
        super().__init__()
        start = torch.randn(outputs, inputs, generator=draw) * math.sqrt(gain / inputs)
        self.inputs, self.outputs = inputs, outputs
        self.weight, self.bias = nn.Parameter(start), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class GatedLinear(nn.Module):
    """A linear layer, and for the rows of a route also x A^T B^T.

    The base product is formed for the whole batch, adapters or not, and a route adds to its own rows only, so
    every other row keeps its bits. `positions` says how often a row may pass; `per_token` that it passes as
    tokens, one line each.
    """

    def __init__(
        self, inputs: int, outputs: int, draw: torch.Generator, *, gain: float = 1.0, positions: int = 1,
        per_token: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.base = Linear(inputs, outputs, draw, gain=gain)
        self.inputs, self.outputs, self.positions, self.per_token = inputs, outputs, positions, per_token
        self.name = ""  # its path in the model, once it has one

    def forward(self, x: Tensor, gate: AdapterGate) -> Tensor:
        out: Tensor = self.base(x)
        for route in gate.routes:
            pair, rows = route.pairs.get(self.name), route.tokens if self.per_token else route.rows
            if pair is not None and rows is not None:
                out = out.index_add(0, rows, F.linear(F.linear(x[rows], pair.a), pair.b))
        if gate.seen is not None:
            if not out.requires_grad:
                out.requires_grad_()
            gate.seen[self.name] = LayerActivations(x, out)
        return out


@dataclass(frozen=True, eq=False)
class Adapter:
    """Only rows of `advertiser` pass through it. Its parameters are no part of the model's own.

    It changes the layers that all tasks read, and the towers of `tasks`.
    """

    name: str
    advertiser: int
    rank: int
    tasks: tuple[str, ...]
    pairs: Mapping[str, LowRankPair]  # by layer, in the model's order; none at rank 0
    layout: ParameterLayout
    value_rows: ValueRows | None = None

    @classmethod
    def fresh(
        cls, name: str, advertiser: int, rank: int, tasks: tuple[str, ...], layers: Mapping[str, GatedLinear],
        *, seed: int, value_rows: ValueRows | None = None, fields: int = 1,
    ) -> Adapter:  # fmt: skip
        """A ~ N(0, 1 / inputs) and B = 0, and no change of values: at first it changes nothing.

        At rank 0 there are no pairs: what changes are the rows of the values alone. `fields` is how many of
        these an example has, at most.
        """
        draw = torch.Generator().manual_seed(expect.whole("seed", seed, at_least=0))
        rank = expect.whole("rank", rank, at_least=1 if value_rows is None else 0)
        if not -(2**63) <= expect.integer("advertiser", advertiser) < 2**63:
            raise BadInput(f"adapter {name}: expected an advertiser of 64 signed bits, got a larger number")
        blocks = []
        for path, layer in layers.items() if rank else ():
            blocks.append(ParameterBlock(f"{path}.A", rank, layer.inputs, layer.positions))
            blocks.append(ParameterBlock(f"{path}.B", layer.outputs, rank, layer.positions))
        if value_rows is not None:
            rows, dim = value_rows.change.shape
            blocks.append(ParameterBlock(VALUE_ROWS, rows, dim, fields, by_rows=True))
        layout = ParameterLayout(tuple(blocks))  # refuses a rank that is too large, before anything is drawn
        pairs = {}
        for path, layer in layers.items() if rank else ():
            a = torch.randn(rank, layer.inputs, generator=draw) / math.sqrt(layer.inputs)
            pairs[path] = LowRankPair(nn.Parameter(a), nn.Parameter(torch.zeros(layer.outputs, rank)))
        return cls(name, int(advertiser), rank, tasks, pairs, layout, value_rows)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """In the order of the layout."""
        matrices = [matrix for pair in self.pairs.values() for matrix in (pair.a, pair.b)]
        return matrices if self.value_rows is None else [*matrices, self.value_rows.change]

    @property
    def values(self) -> NDArray[np.float32]:
        """All matrices one after the other, each in C order: a copy."""
        flat: NDArray[np.float32] = torch.cat([each.detach().flatten() for each in self.parameters]).numpy()
        return flat

    def set_values(self, flat: NDArray[np.float32]) -> None:
        expected = self.layout.parameters
        if flat.shape != (expected,):
            raise BadInput(f"adapter {self.name}: expected {expected} values, got {flat.shape}")
        if not np.all(np.isfinite(flat)):
            raise BadInput(f"adapter {self.name}: expected finite values, got one that is not")
        parts = self.layout.split(np.asarray(flat, np.float32))
        with torch.no_grad():
            for matrix, part in zip(self.parameters, parts.values(), strict=True):
                matrix.copy_(torch.from_numpy(part.copy()))

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Each matrix by the name of its block."""
        each = zip(self.layout.blocks, self.parameters, strict=True)
        return {block.name: matrix.detach().numpy() for block, matrix in each}

    def record(self, base: str, statement: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a file says of it beside its matrices."""
        return {
            "name": self.name,
            "advertiser": self.advertiser,
            "rank": self.rank,
            "tasks": list(self.tasks),
            "base": base,
            "statement": None if statement is None else dict(statement),
        }
