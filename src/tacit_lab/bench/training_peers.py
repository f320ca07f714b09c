"""The same two models in stock torch, trained by its own optimizers with dense gradients, and by Opacus."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.arrays import Floats32
from tacit.train.examples import Sizes
from tacit.train.sgd.descent import Clipping

Batches = Iterator[tuple[NDArray[np.int64], Floats32]]
Optimize = Callable[[nn.Module], torch.optim.Optimizer]


class TorchFm(nn.Module):
    """One table of both sides: the linear weight, then the embedding. Split in two tables it is no faster."""

    def __init__(self, sizes: Sizes, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(sizes.public_rows + sizes.sensitive_rows, 1 + dim)
        nn.init.normal_(self.table.weight, std=0.01)
        self.bias = _bias()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.table(ids)  # (batch, fields, 1 + dim)
        embeddings = rows[..., 1:]
        total = embeddings.sum(dim=1)  # (batch, dim)
        pairs = (total.square().sum(dim=1) - embeddings.square().sum(dim=(1, 2))) / 2
        score: torch.Tensor = self.bias((rows[..., 0].sum(dim=1) + pairs)[:, None])
        return score[:, 0]


class TorchMlp(nn.Module):
    """A public tower of one layer, and two layers over it and the sensitive embeddings."""

    def __init__(self, sizes: Sizes, dim: int, width: int) -> None:
        super().__init__()
        self.public_fields, self.public_rows = sizes.public_fields, sizes.public_rows
        self.public_table = nn.Embedding(sizes.public_rows, dim)
        self.sensitive_table = nn.Embedding(sizes.sensitive_rows, dim)
        for table in (self.public_table, self.sensitive_table):
            nn.init.normal_(table.weight, std=0.01)
        self.tower = nn.Sequential(nn.Linear(sizes.public_fields * dim, width), nn.ReLU())
        self.common = nn.Sequential(
            nn.Linear(width + sizes.sensitive_fields * dim, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        public_ids = ids[:, : self.public_fields].contiguous()  # Opacus cannot do with a view
        public = self.public_table(public_ids).flatten(1)  # (batch, fields * dim)
        sensitive = self.sensitive_table(ids[:, self.public_fields :] - self.public_rows).flatten(1)
        score: torch.Tensor = self.common(torch.cat([self.tower(public), sensitive], dim=1))
        return score[:, 0]


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.001)


def adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=0.001)


def torch_step(module: nn.Module, batches: Batches, optimize: Optimize = sgd) -> Callable[[], None]:
    """A plain training step by automatic differentiation."""
    optimizer, criterion = optimize(module), nn.BCEWithLogitsLoss()
    ready = _tensors(batches)

    def step() -> None:
        ids, labels = next(ready)
        optimizer.zero_grad()
        criterion(module(ids), labels).backward()
        optimizer.step()

    return step


def opacus_step(
    module: nn.Module, batches: Batches, batch: int, clipping: Clipping, examples: int
) -> tuple[Callable[[], None], Any]:
    """A private step by Opacus's ghost clipping, and the module as Opacus has wrapped it.

    Its noise comes from torch's generator, which is fast and not cryptographic.
    """
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its generator is not secure: said above
        wrapped, optimizer, criterion, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=sgd(module),
            criterion=nn.BCEWithLogitsLoss(),
            data_loader=DataLoader(TensorDataset(torch.empty(examples, 1)), batch_size=batch),  # for its sizes
            noise_multiplier=clipping.noise_multiplier,
            max_grad_norm=clipping.clip_norm,
            grad_sample_mode="ghost",
        )
    ready = _tensors(batches)

    def step() -> None:
        ids, labels = next(ready)
        optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook")  # ids have no gradients: so be it
            criterion(wrapped(ids), labels).backward()
        optimizer.step()

    return step, wrapped


def _bias() -> nn.Linear:
    """An added number, as a layer that Opacus has a rule for: a weight of 1 that is not trained, and a bias."""
    bias = nn.Linear(1, 1)
    nn.init.ones_(bias.weight)
    nn.init.zeros_(bias.bias)
    bias.weight.requires_grad = False
    return bias


def _tensors(batches: Batches) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Without copying: the arrays are ready, and so are the tensors."""
    return ((torch.from_numpy(ids), torch.from_numpy(labels)) for ids, labels in batches)
