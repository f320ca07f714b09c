"""Fields and numbers as vectors of one size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tacit.cleanroom.model.settings import ModelSettings

START = 0.01  # standard deviation of a fresh table's entries: rare values then say little before they learn


def table(rows: int, dim: int, draw: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, dim, generator=draw) * START)


def offsets(sizes: Sequence[int], shared: bool) -> Tensor:
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
        self.table = table(settings.table_rows, dim, draw)
        self.register_buffer("begins", offsets(settings.fields, settings.shared), persistent=False)
        self.slope = nn.Parameter(torch.randn(numbers, dim, generator=draw) * START) if numbers else None
        self.start = nn.Parameter(torch.zeros(numbers, dim)) if numbers else None

    def forward(self, fields: Tensor, numbers: Tensor) -> Tensor:
        vectors = F.embedding(fields + self.begins, self.table)  # (n, fields, dim)
        if self.slope is None or self.start is None:
            return vectors
        scaled = numbers.unsqueeze(-1) * self.slope + self.start  # (n, numbers, dim)
        return torch.cat([vectors, scaled], dim=1)
