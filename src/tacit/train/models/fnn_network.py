"""The server's net with its weights: a two-tower network whose sensitive tower has no fields and no rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.train.examples import Examples, Sizes
from tacit.train.models.abilities import expect_able
from tacit.train.models.fnn import Fnn
from tacit.train.models.mlp import Mlp
from tacit.train.models.mlp_network import Network
from tacit.train.models.model import Normal, Part, TableIds
from tacit.train.targets import Floats


@dataclass(eq=False)
class PublicNetwork(Network):
    """`sizes` are the examples' own; what it has of the sensitive side is empty."""

    @classmethod
    def of_public(cls, shape: Fnn, sizes: Sizes, normal: Normal) -> PublicNetwork:
        network = cls.fresh(Mlp(shape.dim, (), shape.layers, shape.start), _public(sizes), normal)
        network.architecture, network.sizes = shape, sizes
        return network

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        expect_able(self.architecture, part)
        return super().ids(examples, rows, part)

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats]:
        expect_able(self.architecture, part)
        sizes, layers = _public(self.sizes), (self.public_layers, self.common_layers)
        bare = Network(self.architecture, sizes, self.tables, self.dense, *layers)
        return bare.example_gradient(ids, index, part)


def _public(sizes: Sizes) -> Sizes:
    return replace(sizes, sensitive_fields=0, sensitive_rows=0)
