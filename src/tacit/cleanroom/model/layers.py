"""Layers of the conversion model: field vectors, a transformer over actions, interactions, task towers.

The transformer reads a user's last actions and a token of the ad, and gives two vectors per row. Only places
that hold something are computed: the tokens of all rows lie one after the other, the ads' first, then the
actions. Attention alone sees them as a grid, with the empty places masked. An interaction layer joins a
bit-wise and a vector-wise module and adds both to what it read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tacit.cleanroom.model.adapters import FIELDS, AdapterGate, GatedLinear, LayerActivations, Linear, ValueRows
from tacit.cleanroom.model.settings import Bitwise, ModelSettings, Vectorwise

# Standard deviation of a fresh table's entries: rare values then say little before they learn.
TABLE_STDDEV = 0.01


def embedding_table(rows: int, dim: int, draw: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, dim, generator=draw) * TABLE_STDDEV)


def table_offsets(sizes: Sequence[int], shared: bool) -> Tensor:
    """Where the rows of each part begin in one table for all."""
    if shared:
        return torch.zeros(len(sizes), dtype=torch.int64)
    return torch.tensor([0, *sizes[:-1]], dtype=torch.int64).cumsum(0)


class FieldVectors(nn.Module):
    """One table for all fields, read in one look-up; a number scales a vector of its own."""

    begins: Tensor

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        numbers, dim = settings.numbers, settings.dim
        self.table = embedding_table(settings.table_rows, dim, draw)
        self.register_buffer("begins", table_offsets(settings.fields, settings.shared), persistent=False)
        self.slope = nn.Parameter(torch.randn(numbers, dim, generator=draw) * TABLE_STDDEV) if numbers else None
        self.start = nn.Parameter(torch.zeros(numbers, dim)) if numbers else None

    def places(self, fields: Tensor) -> Tensor:
        """The rows of the table that the fields' values have, (n, fields)."""
        return fields + self.begins

    def forward(self, fields: Tensor, numbers: Tensor, gate: AdapterGate) -> Tensor:
        places = self.places(fields)
        vectors = F.embedding(places, self.table)  # (n, fields, dim)
        for route in gate.routes:
            if route.values is not None:
                vectors = _add_changes(vectors, places, route.rows, route.values)
        if gate.seen is not None:
            if not vectors.requires_grad:
                vectors.requires_grad_()
            gate.seen[FIELDS] = LayerActivations(places, vectors)
        if self.slope is None or self.start is None:
            return vectors
        scaled = numbers.unsqueeze(-1) * self.slope + self.start  # (n, numbers, dim)
        return torch.cat([vectors, scaled], dim=1)


def _add_changes(vectors: Tensor, places: Tensor, rows: Tensor, values: ValueRows) -> Tensor:
    """The vectors of these rows plus the changes of their values; all others keep their bits."""
    slots = values.slots[places[rows]]  # (rows, fields)
    known = slots >= 0
    flat = (rows.unsqueeze(1) * places.shape[1] + torch.arange(places.shape[1]))[known]
    return vectors.flatten(0, 1).index_add(0, flat, F.embedding(slots[known], values.change)).view_as(vectors)


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the tokens of a batch lie: n ads, then all actions by row, the most recent first."""

    filled: Tensor  # bool (n, 1 + positions): the places of the grid that hold a token
    places: Tensor  # i64 (tokens,): each token's place in the flattened grid
    rows: Tensor  # i64 (tokens,): each token's row

    @classmethod
    def of(cls, lengths: Tensor, positions: int) -> Packing:
        columns = positions + 1
        filled = torch.arange(columns) <= lengths.unsqueeze(1)
        actions = filled[:, 1:].flatten().nonzero().squeeze(1)  # places in the grid without the ads
        row = actions // positions
        ads = torch.arange(len(lengths))
        return cls(filled, torch.cat([ads * columns, actions + row + 1]), torch.cat([ads, row]))

    def by_row(self) -> Tensor:
        """An order of the tokens in which those of one row lie together."""
        return torch.argsort(self.places)


class SequenceTransformer(nn.Module):
    """Pre-norm layers, of which the last answers the ad's token only; beside it, the mean of what that read."""

    begins: Tensor

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        width = settings.width
        self.positions = settings.positions
        self.table = embedding_table(settings.sequence_rows, width, draw)
        self.register_buffer(
            "begins", table_offsets(settings.sequence_tables, settings.shared), persistent=False
        )
        self.place = embedding_table(settings.positions, width, draw)
        self.ad = Linear(settings.dim, width, draw)
        self.layers = nn.ModuleList(
            TransformerLayer(settings, draw) for _ in range(settings.sequence_layers - 1)
        )
        self.last = TransformerLayer(settings, draw)
        self.norm = nn.LayerNorm(width)
        self.asked, self.mean = Linear(width, settings.dim, draw), Linear(width, settings.dim, draw)

    def forward(self, ad: Tensor, sequences: Tensor, packing: Packing, gate: AdapterGate) -> Tensor:
        """Vectors (n, 2, dim) of the ads' vectors (n, dim) and the actions (n, positions, parts)."""
        rows = len(ad)
        action_rows = packing.rows[rows:]
        place = packing.places[rows:] - action_rows * (self.positions + 1) - 1
        ids = sequences[action_rows, place] + self.begins  # (actions, parts)
        actions = F.embedding_bag(ids, self.table, mode="sum") + F.embedding(place, self.place)
        x = torch.cat([self.ad(ad), actions])  # (tokens, width)
        for layer in self.layers:
            x = layer(x, packing, gate)
        answer, read = self.last.answer_ads(x, packing, gate)
        total = read.new_zeros(rows, read.shape[1]).index_add(0, action_rows, read[rows:])
        mean = total / packing.filled[:, 1:].sum(1, keepdim=True).clamp(min=1)
        return torch.stack([self.asked(self.norm(answer)), self.mean(mean)], dim=1)


class TransformerLayer(nn.Module):
    """Attention of every token to all tokens of its row, then a small network for each token."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.before_attention, self.before_mixing = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = GatedLinear(width, 3 * width, draw, positions=settings.positions + 1, per_token=True)
        self.out = Linear(width, width, draw)
        self.widen, self.narrow = Linear(width, 2 * width, draw, gain=2.0), Linear(2 * width, width, draw)

    def forward(self, x: Tensor, packing: Packing, gate: AdapterGate) -> Tensor:
        qkv = self.qkv(self.before_attention(x), gate)
        rows, columns = packing.filled.shape
        grid = qkv.new_zeros(rows * columns, qkv.shape[1]).index_copy(0, packing.places, qkv)
        query, key, value = grid.view(rows, columns, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = packing.filled.view(rows, 1, 1, columns)
        answer = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # (n, heads, columns, d)
        return self._mix(x, answer.transpose(1, 2).reshape(rows * columns, -1)[packing.places])

    def answer_ads(self, x: Tensor, packing: Packing, gate: AdapterGate) -> tuple[Tensor, Tensor]:
        """What `forward` gives for the ads' tokens (n, width), and what all tokens were read as."""
        read: Tensor = self.before_attention(x)
        query, key, value = self.qkv(read, gate).chunk(3, dim=1)  # (tokens, width) each
        rows, columns = packing.filled.shape
        split = (len(x), self.heads, -1)
        scores = (query[:rows].index_select(0, packing.rows) * key).view(split).sum(-1)  # (tokens, heads)
        scores = scores / math.sqrt(key.shape[1] // self.heads)
        grid = scores.new_full((rows * columns, self.heads), -torch.inf).index_copy(0, packing.places, scores)
        shares = grid.view(rows, columns, self.heads).softmax(1).view(rows * columns, self.heads)
        weighed = (value.view(split) * shares.index_select(0, packing.places).unsqueeze(-1)).flatten(1)
        answer = value.new_zeros(rows, value.shape[1]).index_add(0, packing.rows, weighed)
        return self._mix(x[:rows], answer), read

    def _mix(self, x: Tensor, answer: Tensor) -> Tensor:
        x = x + self.out(answer)
        mixed: Tensor = self.narrow(F.relu(self.widen(self.before_mixing(x))))
        return x + mixed


class Interaction(nn.Module):
    """Reads and gives all vectors of a row as one line of `mixed_width` numbers."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        self.bitwise = BITWISE[settings.bitwise](settings, draw)
        self.vectorwise = VECTORWISE[settings.vectorwise](settings, draw)
        self.norm = nn.LayerNorm(settings.mixed_width)

    def forward(self, x: Tensor, first: Tensor, gate: AdapterGate) -> Tensor:
        joined: Tensor = self.norm(x + self.bitwise(x, first, gate) + self.vectorwise(x, gate))
        return joined


class CrossInteraction(nn.Module):
    """first * (W x + b), where W is full or of low rank (DCN V2, arXiv:2008.13535, equations 1 and 2)."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        inner = settings.hidden or settings.mixed_width
        self.narrow = GatedLinear(settings.mixed_width, inner, draw) if settings.hidden else None
        self.widen = GatedLinear(inner, settings.mixed_width, draw)

    def forward(self, x: Tensor, first: Tensor, gate: AdapterGate) -> Tensor:
        inner = x if self.narrow is None else self.narrow(x, gate)
        crossed: Tensor = first * self.widen(inner, gate)
        return crossed


class MlpInteraction(nn.Module):
    """One hidden layer over all numbers of a row."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        inner = settings.hidden or settings.mixed_width
        self.first = GatedLinear(settings.mixed_width, inner, draw, gain=2.0)
        self.second = GatedLinear(inner, settings.mixed_width, draw)

    def forward(self, x: Tensor, first: Tensor, gate: AdapterGate) -> Tensor:  # noqa: ARG002 (as CrossInteraction)
        mixed: Tensor = self.second(F.relu(self.first(x, gate)), gate)
        return mixed


class ProductInteraction(nn.Module):
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
        self.compress = GatedLinear(len(self.pairs), settings.mixed_width, draw)

    def forward(self, x: Tensor, gate: AdapterGate) -> Tensor:
        vectors = x.view(len(x), self.vectors, -1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # (n, vectors^2)
        compressed: Tensor = self.compress(products.index_select(1, self.pairs) * self.scale, gate)
        return compressed


class AttentionInteraction(nn.Module):
    """Every vector of a row asks all of them."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        self.vectors, dim = settings.mixtures, settings.dim
        self.qkv = GatedLinear(dim, 3 * dim, draw, positions=self.vectors)
        self.out = GatedLinear(dim, dim, draw, positions=self.vectors)

    def forward(self, x: Tensor, gate: AdapterGate) -> Tensor:
        vectors = x.view(len(x), self.vectors, -1)
        query, key, value = self.qkv(vectors, gate).chunk(3, dim=-1)  # (n, vectors, dim) each
        answer: Tensor = self.out(F.scaled_dot_product_attention(query, key, value), gate)
        return answer.flatten(1)


BITWISE = {Bitwise.CROSS: CrossInteraction, Bitwise.MLP: MlpInteraction}
VECTORWISE = {Vectorwise.FM: ProductInteraction, Vectorwise.ATTENTION: AttentionInteraction}


class Tower(nn.Module):
    """A task's own layers: from what all tasks read to its logit."""

    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        widths = (settings.mixed_width, *settings.tower)
        self.layers = nn.ModuleList(GatedLinear(*pair, draw, gain=2.0) for pair in pairwise(widths))
        self.output = GatedLinear(widths[-1], 1, draw)

    def forward(self, x: Tensor, gate: AdapterGate) -> Tensor:
        """Logits (n,)."""
        for layer in self.layers:
            x = F.relu(layer(x, gate))
        logits: Tensor = self.output(x, gate)
        return logits.squeeze(1)

    def start_at(self, logit: float) -> None:
        """Begin with a prediction that is the same for every row, up to the noise of fresh weights."""
        with torch.no_grad():
            self.output.base.bias.fill_(logit)
