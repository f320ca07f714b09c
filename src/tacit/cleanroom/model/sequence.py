"""A transformer over a user's last actions and a token of the ad, whose answer is two vectors a row.

Only places that hold something are computed: the tokens of all rows lie one after the other, the ads' first,
then the actions. Attention alone sees them as a grid, with the empty places masked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tacit.cleanroom.model.embedding import offsets, table
from tacit.cleanroom.model.linear import Gate, GatedLinear, Linear
from tacit.cleanroom.model.settings import ModelSettings


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
        self.table = table(settings.sequence_rows, width, draw)
        self.register_buffer("begins", offsets(settings.sequence_tables, settings.shared), persistent=False)
        self.place = table(settings.positions, width, draw)
        self.ad = Linear(settings.dim, width, draw)
        self.layers = nn.ModuleList(
            TransformerLayer(settings, draw) for _ in range(settings.sequence_layers - 1)
        )
        self.last = TransformerLayer(settings, draw)
        self.norm = nn.LayerNorm(width)
        self.asked, self.mean = Linear(width, settings.dim, draw), Linear(width, settings.dim, draw)

    def forward(self, ad: Tensor, sequences: Tensor, packing: Packing, gate: Gate) -> Tensor:
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

    def forward(self, x: Tensor, packing: Packing, gate: Gate) -> Tensor:
        qkv = self.qkv(self.before_attention(x), gate)
        rows, columns = packing.filled.shape
        grid = qkv.new_zeros(rows * columns, qkv.shape[1]).index_copy(0, packing.places, qkv)
        query, key, value = grid.view(rows, columns, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = packing.filled.view(rows, 1, 1, columns)
        answer = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # (n, heads, columns, d)
        return self._mixed(x, answer.transpose(1, 2).reshape(rows * columns, -1)[packing.places])

    def answer_ads(self, x: Tensor, packing: Packing, gate: Gate) -> tuple[Tensor, Tensor]:
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
        return self._mixed(x[:rows], answer), read

    def _mixed(self, x: Tensor, answer: Tensor) -> Tensor:
        x = x + self.out(answer)
        mixed: Tensor = self.narrow(F.relu(self.widen(self.before_mixing(x))))
        return x + mixed
