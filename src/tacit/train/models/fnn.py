"""The server's model: embeddings of public fields and a feed-forward net above them, and nothing else.

It is the truncated form of `mlp` with `public_layers = []`, and no more than that: there is no sensitive tower
to leave out, no weight that could meet a sensitive feature, and a part that would read one is refused. (FNN:
Zhang, Du, Wang 2016, arXiv 1601.02376, here without their pre-training.)
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit import expect
from tacit.errors import BadInput
from tacit.train.examples import Sizes
from tacit.train.models.model import Normal
from tacit.train.models.widths import widths

if TYPE_CHECKING:
    from tacit.train.models.fnn_network import PublicNetwork


@dataclass(frozen=True)
class Fnn:
    """Embeddings of `dim` numbers that start as N(0, start^2), then layers by width, each with a ReLU."""

    dim: int = 16
    layers: tuple[int, ...] = (64, 32)
    start: float = 0.05
    name: ClassVar[str] = "fnn"

    def __post_init__(self) -> None:
        expect.whole("dim", self.dim, at_least=1)
        expect.positive("start", self.start)
        object.__setattr__(self, "layers", widths("layers", self.layers))

    def activations(self, sizes: Sizes) -> int:
        """Numbers that a forward pass keeps for each example."""
        return sizes.public_fields * self.dim + sum(self.layers)

    def build(self, sizes: Sizes, normal: Normal) -> PublicNetwork:
        if importlib.util.find_spec("torch") is None:
            raise BadInput("expected torch for an fnn, got none: pip install 'tacit[train]'")
        from tacit.train.models.fnn_network import PublicNetwork

        return PublicNetwork.of_public(self, sizes, normal)
