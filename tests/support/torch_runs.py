"""Small torch modules, runs of them, and records to train on."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tacit.torch
from tacit.errors import SelfCheckFailed
from tacit.privacy import Line, Relation, Unit, UnitKind
from tacit.torch import PrivateRun

LINE = Line("clicks", Unit(UnitKind.IMPRESSION), Relation.REPLACE_ONE)
RECORDS, FEATURES = 400, 6
Batch = tuple[Tensor, Tensor]


def records(count: int = RECORDS) -> TensorDataset:
    torch.manual_seed(2)
    values = torch.randn(count, FEATURES)
    return TensorDataset(values, (values.sum(dim=1) > 0).float())


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))


def make_run(module: nn.Module | None = None, **settings: Any) -> PrivateRun:
    module = network() if module is None else module
    loader: DataLoader[Any] = settings.pop("loader", None) or DataLoader(
        records(), batch_size=settings.pop("batch", 40)
    )
    optimizer = settings.pop("optimizer", torch.optim.SGD)(
        [each for each in module.parameters() if each.requires_grad], lr=settings.pop("rate", 0.5)
    )
    defaults: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-5, "epochs": 1, "seed": 7}
    return tacit.torch.private(module, optimizer, loader, **{**defaults, **settings})


def losses(module: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(module(batch[0]), batch[1], reduction="none")


def train(run: PrivateRun, most: int | None = None, by: Any = None) -> PrivateRun:
    for batch in run.batches():
        run.step((by or losses)(run.module, batch))
        if run.steps == most:
            break
    return run


def weights(run: PrivateRun) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in run.module.named_parameters()}


def kept(run: PrivateRun) -> dict[str, Any]:
    """As `torch.save` and `torch.load` keep it."""
    file = io.BytesIO()
    torch.save(run.state_dict(), file)
    file.seek(0)
    return dict(torch.load(file))


def expect_stopped(run: PrivateRun, words: str) -> None:
    with pytest.raises(SelfCheckFailed, match=words):
        train(run)
    for attempt in (lambda: next(run.batches()), run.state_dict, run.finish, lambda: run.step(torch.zeros(1))):
        with pytest.raises(SelfCheckFailed, match="got one that was stopped: nothing leaves"):
            attempt()
    assert not run.finished


def functional_losses(module: Any, batch: Batch) -> Tensor:
    return losses(module, batch)


class Bare(nn.Module):
    """A parameter of the module's own, and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FEATURES))
        self.inner = nn.Linear(FEATURES, FEATURES, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        read = nn.functional.linear(self.inner(values * self.scale).tanh(), self.inner.weight)
        return read.sum(dim=1)


def double_run(**settings: Any) -> PrivateRun:
    values, labels = records().tensors
    loader = DataLoader(TensorDataset(values.double(), labels.double()), batch_size=40)
    return make_run(network().double(), loader=loader, **settings)
