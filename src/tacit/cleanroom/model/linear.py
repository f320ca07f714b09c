"""A linear layer that takes a low-rank change for the rows of one advertiser and leaves all others alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own name for it)


@dataclass(frozen=True, eq=False)
class Pair:
    """The change B A of a layer's weight (Hu et al. 2021, arXiv:2106.09685)."""

    a: nn.Parameter  # (rank, inputs)
    b: nn.Parameter  # (outputs, rank)


@dataclass(frozen=True, eq=False)
class Route:
    """One adapter in one batch: what passes through it."""

    pairs: Mapping[str, Pair]  # by layer
    rows: Tensor  # i64: places in the batch
    tokens: Tensor | None  # i64: places among the tokens of all rows; None: the model reads no sequence


@dataclass(frozen=True, eq=False)
class Seen:
    """What an adapted layer read and gave: a line for each row or token, or for each row and position."""

    inputs: Tensor  # (..., inputs)
    outputs: Tensor  # (..., outputs)


@dataclass(frozen=True, eq=False)
class Gate:
    """The routes of a batch; `seen`, where there is one, collects what passes the layers that can adapt."""

    routes: tuple[Route, ...] = ()
    seen: dict[str, Seen] | None = None


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

    def forward(self, x: Tensor, gate: Gate) -> Tensor:
        out: Tensor = self.base(x)
        for route in gate.routes:
            pair, rows = route.pairs.get(self.name), route.tokens if self.per_token else route.rows
            if pair is not None and rows is not None:
                out = out.index_add(0, rows, F.linear(F.linear(x[rows], pair.a), pair.b))
        if gate.seen is not None:
            if not out.requires_grad:
                out.requires_grad_()
            gate.seen[self.name] = Seen(x, out)
        return out
