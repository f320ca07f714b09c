"""Low-rank adapters: linear layers with a change for the rows of one advertiser, and all changes of one.

Rows of all other advertisers keep every bit (Hu et al. 2021, arXiv:2106.09685, for the low-rank change).
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


@dataclass(frozen=True, eq=False)
class AdapterRoute:
    """One adapter in one batch: what passes through it."""

    pairs: Mapping[str, LowRankPair]  # by layer
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
    pairs: Mapping[str, LowRankPair]  # by layer, in the model's order
    layout: ParameterLayout

    @classmethod
    def fresh(
        cls, name: str, advertiser: int, rank: int, tasks: tuple[str, ...], layers: Mapping[str, GatedLinear],
        *, seed: int,
    ) -> Adapter:  # fmt: skip
        """A ~ N(0, 1 / inputs) and B = 0: at first it changes nothing."""
        draw = torch.Generator().manual_seed(expect.whole("seed", seed, at_least=0))
        rank = expect.whole("rank", rank, at_least=1)
        if not -(2**63) <= expect.integer("advertiser", advertiser) < 2**63:
            raise BadInput(f"adapter {name}: expected an advertiser of 64 signed bits, got a larger number")
        blocks = []
        for path, layer in layers.items():
            blocks.append(ParameterBlock(f"{path}.A", rank, layer.inputs, layer.positions))
            blocks.append(ParameterBlock(f"{path}.B", layer.outputs, rank, layer.positions))
        layout = ParameterLayout(tuple(blocks))  # refuses a rank that is too large, before anything is drawn
        pairs = {}
        for path, layer in layers.items():
            a = torch.randn(rank, layer.inputs, generator=draw) / math.sqrt(layer.inputs)
            pairs[path] = LowRankPair(nn.Parameter(a), nn.Parameter(torch.zeros(layer.outputs, rank)))
        return cls(name, int(advertiser), rank, tasks, pairs, layout)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """In the order of the layout."""
        return [matrix for pair in self.pairs.values() for matrix in (pair.a, pair.b)]

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
