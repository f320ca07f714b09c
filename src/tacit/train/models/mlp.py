"""The two-tower network: a public tower, the sensitive embeddings beside it, and common layers above both.

    public ids -> embeddings -> public layers ---+
                                                 +--> common layers -> one linear unit -> score
    sensitive ids -> embeddings -----------------+

Every layer but the last ends in a ReLU (the two towers and the sizes: Chua et al., AdKDD 2024). torch does the
products.
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
    from tacit.train.models.mlp_network import Network


@dataclass(frozen=True)
class Mlp:
    """Embeddings of `dim` numbers that start as N(0, start^2); layers by width, of which there may be none."""

    dim: int = 32
    public_layers: tuple[int, ...] = (598,)
    common_layers: tuple[int, ...] = (598, 598)
    start: float = 0.01
    name: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        expect.whole("dim", self.dim, at_least=1)
        expect.positive("start", self.start)
        for key in ("public_layers", "common_layers"):
            object.__setattr__(self, key, widths(key, getattr(self, key)))

    def build(self, sizes: Sizes, normal: Normal) -> Network:
        if importlib.util.find_spec("torch") is None:
            raise BadInput("expected torch for an mlp, got none: pip install 'tacit[train]'")
        from tacit.train.models.mlp_network import Network

        return Network.fresh(self, sizes, normal)
