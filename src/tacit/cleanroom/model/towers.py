"""One small network a task, over what the interaction layers give."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tacit.cleanroom.model.linear import Gate, GatedLinear
from tacit.cleanroom.model.settings import ModelSettings


class Tower(nn.Module):
    def __init__(self, settings: ModelSettings, draw: torch.Generator) -> None:
        super().__init__()
        widths = (settings.mixed, *settings.tower)
        self.layers = nn.ModuleList(GatedLinear(*pair, draw, gain=2.0) for pair in pairwise(widths))
        self.output = GatedLinear(widths[-1], 1, draw)

    def forward(self, x: Tensor, gate: Gate) -> Tensor:
        """Logits (n,)."""
        for layer in self.layers:
            x = F.relu(layer(x, gate))
        logits: Tensor = self.output(x, gate)
        return logits.squeeze(1)

    def start_at(self, logit: float) -> None:
        """Begin with a prediction that is the same for every row, up to the noise of fresh weights."""
        with torch.no_grad():
            self.output.base.bias.fill_(logit)
