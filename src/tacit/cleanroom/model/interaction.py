"""Interaction layers: each joins a bit-wise module and a vector-wise one, and adds both to what it read."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tacit.cleanroom.model.linear import Gate, GatedLinear
from tacit.cleanroom.model.settings import Bitwise, ModelSettings, Vectorwise


class Interaction(nn.Module):
    """Reads and gives all vectors of a row as one line of `mixed` numbers."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        self.bitwise = BITWISE[settings.bitwise](settings, draw)
        self.vectorwise = VECTORWISE[settings.vectorwise](settings, draw)
        self.norm = nn.LayerNorm(settings.mixed)

    def forward(self, x: Tensor, first: Tensor, gate: Gate) -> Tensor:
        joined: Tensor = self.norm(x + self.bitwise(x, first, gate) + self.vectorwise(x, gate))
        return joined


class Cross(nn.Module):
    """first * (W x + b), where W is full or of low rank (DCN V2, arXiv:2008.13535, equations 1 and 2)."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        inner = settings.hidden or settings.mixed
        self.narrow = GatedLinear(settings.mixed, inner, draw) if settings.hidden else None
        self.widen = GatedLinear(inner, settings.mixed, draw)

    def forward(self, x: Tensor, first: Tensor, gate: Gate) -> Tensor:
        inner = x if self.narrow is None else self.narrow(x, gate)
        crossed: Tensor = first * self.widen(inner, gate)
        return crossed


class Mlp(nn.Module):
    """One hidden layer over all numbers of a row."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        inner = settings.hidden or settings.mixed
        self.first = GatedLinear(settings.mixed, inner, draw, gain=2.0)
        self.second = GatedLinear(inner, settings.mixed, draw)

    def forward(self, x: Tensor, first: Tensor, gate: Gate) -> Tensor:  # noqa: ARG002 (as Cross)
        mixed: Tensor = self.second(F.relu(self.first(x, gate)), gate)
        return mixed


class Products(nn.Module):
    """The inner products of all pairs of vectors, compressed linearly."""

    pairs: Tensor

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        self.vectors, self.scale = settings.mixtures, 1 / math.sqrt(settings.dim)
        above = torch.triu_indices(self.vectors, self.vectors, offset=1)
        self.register_buffer("pairs", above[0] * self.vectors + above[1], persistent=False)
        # A single vector has no pairs: it is compared with itself.
        if not len(self.pairs):
            self.register_buffer("pairs", torch.zeros(1, dtype=torch.int64), persistent=False)
        self.compress = GatedLinear(len(self.pairs), settings.mixed, draw)

    def forward(self, x: Tensor, gate: Gate) -> Tensor:
        vectors = x.view(len(x), self.vectors, -1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # (n, vectors^2)
        compressed: Tensor = self.compress(products.index_select(1, self.pairs) * self.scale, gate)
        return compressed


class Attention(nn.Module):
    """Every vector of a row asks all of them."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        self.vectors, dim = settings.mixtures, settings.dim
        self.qkv = GatedLinear(dim, 3 * dim, draw, positions=self.vectors)
        self.out = GatedLinear(dim, dim, draw, positions=self.vectors)

    def forward(self, x: Tensor, gate: Gate) -> Tensor:
        vectors = x.view(len(x), self.vectors, -1)
        query, key, value = self.qkv(vectors, gate).chunk(3, dim=-1)  # (n, vectors, dim) each
        answer: Tensor = self.out(F.scaled_dot_product_attention(query, key, value), gate)
        return answer.flatten(1)


BITWISE = {Bitwise.CROSS: Cross, Bitwise.MLP: Mlp}
VECTORWISE = {Vectorwise.FM: Products, Vectorwise.ATTENTION: Attention}
