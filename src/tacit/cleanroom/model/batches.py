"""What a model reads at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import BadInput


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of examples; places of a sequence beyond its length may hold any id of the table."""

    fields: Tensor  # i64 (n, fields): the value of each field
    numbers: Tensor  # f32 (n, numbers)
    sequences: Tensor  # i64 (n, positions, parts of an action), the most recent action first
    lengths: Tensor  # i64 (n,)
    advertiser: Tensor  # i64 (n,)

    def __post_init__(self) -> None:
        rows = len(self.fields)
        for name in ("numbers", "sequences", "lengths", "advertiser"):
            if len(getattr(self, name)) != rows:
                raise BadInput(f"expected {rows} rows of {name}, got {len(getattr(self, name))}")

    def __len__(self) -> int:
        return len(self.fields)

    def rows(self, chosen: Tensor) -> Batch:
        """Some of the rows, in the order of `chosen`."""
        return Batch(
            self.fields[chosen],
            self.numbers[chosen],
            self.sequences[chosen],
            self.lengths[chosen],
            self.advertiser[chosen],
        )

    def of_one_advertiser(self, advertiser: int) -> bool:
        return bool(torch.all(self.advertiser == advertiser))
