"""An adapter: one advertiser's low-rank change of the model's linear layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit import expect
from tacit.cleanroom.model.linear import GatedLinear, Pair
from tacit.cleanroom.wire.blocks import Block, Layout
from tacit.errors import BadInput


@dataclass(frozen=True, eq=False)
class Adapter:
    """Only rows of `advertiser` pass through it. Its parameters are no part of the model's own.

    It changes the layers that all tasks read, and the towers of `tasks`.
    """

    name: str
    advertiser: int
    rank: int
    tasks: tuple[str, ...]
    pairs: Mapping[str, Pair]  # by layer, in the model's order
    layout: Layout

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
            blocks.append(Block(f"{path}.A", rank, layer.inputs, layer.positions))
            blocks.append(Block(f"{path}.B", layer.outputs, rank, layer.positions))
        layout = Layout(tuple(blocks))  # refuses a rank that is too large, before anything is drawn
        pairs = {}
        for path, layer in layers.items():
            a = torch.randn(rank, layer.inputs, generator=draw) / math.sqrt(layer.inputs)
            pairs[path] = Pair(nn.Parameter(a), nn.Parameter(torch.zeros(layer.outputs, rank)))
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
