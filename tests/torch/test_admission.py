"""What cannot be trained is refused in one line that names it, what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from tacit.errors import BadInput
from tacit.torch.admission import admit_module, admit_optimizer
from tacit.torch.records import admit_loader


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2))


def deep(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"inside": layer}))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no module": (lambda: 3, "expected a torch module, got int"),
    "nothing to train": (lambda: nn.ReLU(), "expected a module with parameters to train, got none"),
    "batch norm": (
        lambda: deep(nn.BatchNorm1d(4)),
        r"^1\.inside: .* got BatchNorm1d.*use GroupNorm or LayerNorm$",
    ),
    "batch norm without parameters": (
        lambda: deep(nn.BatchNorm2d(4, affine=False)),
        r"^1\.inside: .* BatchNorm2d",
    ),
    "instance norm with averages": (
        lambda: deep(nn.InstanceNorm1d(4, track_running_stats=True)),
        r"^1\.inside: expected track_running_stats=False",
    ),
    "tied weights": (Tied, r"^head\.weight: expected a parameter of its own, got table\.weight again"),
    "a parameter of the module's own": (
        Bare,
        r"^the module itself: expected .*, got scale of Bare: freeze it, or say",
    ),
    "attention": (
        lambda: deep(nn.MultiheadAttention(4, 2)),
        r"^1\.inside: .*MultiheadAttention: .*scaled_dot_product_attention",
    ),
    "a transformer's layer": (
        lambda: nn.TransformerEncoderLayer(4, 2),
        r"^self_attn: .* got in_proj_bias, in_proj_weight of MultiheadAttention",
    ),
    "a recurrent layer": (
        lambda: deep(nn.LSTM(4, 4)),
        r"^1\.inside: .* of LSTM: its gradients are not book-kept",
    ),
    "a volume": (lambda: deep(nn.Conv3d(1, 1, 2)), r"^1\.inside: .* got bias, weight of Conv3d"),
    "rows of a bounded norm": (
        lambda: deep(nn.Embedding(4, 2, max_norm=1.0)),
        r"^1\.inside: expected max_norm=None, got 1",
    ),
    "rows by how often they are read": (
        lambda: deep(nn.Embedding(4, 2, scale_grad_by_freq=True)),
        r"^1\.inside: expected scale_grad_by_freq=False",
    ),
    "sparse gradients": (lambda: deep(nn.Embedding(4, 2, sparse=True)), r"^1\.inside: expected sparse=False"),
    "the largest of a bag": (
        lambda: deep(nn.EmbeddingBag(4, 2, mode="max")),
        r"^1\.inside: expected mode 'sum' or 'mean'",
    ),
    "half precision": (
        lambda: deep(nn.Linear(2, 2).half()),
        r"^1\.inside\.weight: expected float32 or float64, got torch",
    ),
    "no shape yet": (lambda: deep(nn.LazyLinear(2)), r"^1\.inside\.weight: expected a parameter with a shape"),
    "in parallel": (
        lambda: nn.DataParallel(nn.Linear(2, 2)),
        "expected a plain module in one process, got DataParallel",
    ),
    "elsewhere": (
        lambda: deep(nn.Linear(2, 2, device="meta")),
        r"^1\.inside\.weight: expected .* on the CPU, got meta",
    ),
}


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_a_module_is_refused_by_name(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(BadInput, match=words) as refusal:
        admit_module(make())
    assert "\n" not in str(refusal.value)


def test_frozen_layers_may_be_anything_that_treats_examples_one_by_one() -> None:
    module = nn.Sequential(
        nn.LSTM(4, 4).requires_grad_(False), nn.Linear(4, 2), nn.Conv3d(1, 1, 2).requires_grad_(False)
    )
    assert [each.path for each in admit_module(module)] == ["1"]


@pytest.mark.parametrize("make", [Tied, Bare, lambda: nn.LSTM(4, 4), lambda: nn.MultiheadAttention(4, 2)])
def test_the_functional_way_takes_what_is_not_book_kept(make: Callable[[], nn.Module]) -> None:
    assert admit_module(make(), functional=True)


def test_the_functional_way_takes_no_batch_norm() -> None:
    with pytest.raises(BadInput, match=r"^1\.inside: .*BatchNorm1d"):
        admit_module(deep(nn.BatchNorm1d(4)), functional=True)


def test_an_optimizer_moves_what_is_trained_and_nothing_else() -> None:
    module, other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), nn.Linear(1, 1)
    trained = dict(module.named_parameters())
    admit_optimizer(torch.optim.Adam(module.parameters()), trained)
    with pytest.raises(
        BadInput, match=r"^1\.weight: expected an optimizer with every trained parameter, got one without"
    ):
        admit_optimizer(torch.optim.SGD(module[0].parameters(), lr=1), trained)
    with pytest.raises(
        BadInput, match="expected an optimizer of the module's parameters alone, got one with others"
    ):
        admit_optimizer(torch.optim.SGD([*module.parameters(), *other.parameters()], lr=1), trained)
    with pytest.raises(BadInput, match="expected an optimizer that takes one gradient per step, got LBFGS"):
        admit_optimizer(torch.optim.LBFGS(module.parameters()), trained)
    with pytest.raises(BadInput, match="expected a torch optimizer, got str"):
        admit_optimizer("sgd", trained)  # type: ignore[arg-type]


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield torch.zeros(1)


class Endless(Dataset[Tensor]):
    def __getitem__(self, place: int) -> Tensor:
        return torch.zeros(1)


class Counted(Endless):
    def __len__(self) -> int:
        return 0


RECORDS = TensorDataset(torch.zeros(10, 2))
LOADERS: dict[str, tuple[Callable[[], Any], str]] = {
    "no loader": (lambda: [1, 2], "expected a torch DataLoader, got list"),
    "a stream": (lambda: DataLoader(Stream()), "read by index, got the IterableDataset Stream"),
    "no length": (lambda: DataLoader(Endless(), sampler=range(3)), "a length of at least 1, got Endless"),
    "nobody": (lambda: DataLoader(Counted(), sampler=range(3)), "a length of at least 1, got Counted"),
    "batches of another's making": (
        lambda: DataLoader(RECORDS, batch_sampler=BatchSampler(range(10), 2, False)),
        "expected a loader with a batch_size, got the batch sampler BatchSampler",
    ),
    "no batches": (
        lambda: DataLoader(RECORDS, batch_size=None),
        "a loader with a batch_size, got none$",
    ),
    "weights": (
        lambda: DataLoader(RECORDS, batch_size=2, sampler=WeightedRandomSampler([1.0] * 10, 10)),
        "got WeightedRandomSampler: each record joins a step with the same probability",
    ),
    "some": (
        lambda: DataLoader(RECORDS, batch_size=2, sampler=SubsetRandomSampler([1, 2])),
        "got SubsetRandomSampler",
    ),
    "again and again": (
        lambda: DataLoader(RECORDS, batch_size=2, sampler=RandomSampler(RECORDS, replacement=True)),
        "got a RandomSampler",
    ),
    "more than there are": (
        lambda: DataLoader(RECORDS, batch_size=2, sampler=RandomSampler(RECORDS, num_samples=20)),
        "got a RandomSampler",
    ),
    "other processes": (
        lambda: DataLoader(RECORDS, batch_size=2, num_workers=2),
        "expected num_workers=0, got 2",
    ),
    "one twice": (
        lambda: DataLoader(Subset(RECORDS, [1, 2, 1]), batch_size=2),
        "expected every record once, got a Subset that has one twice",
    ),
    "one twice, from its end": (
        lambda: DataLoader(Subset(RECORDS, [9, -1]), batch_size=2),
        "got a Subset that has one twice",
    ),
    "one twice, within": (
        lambda: DataLoader(Subset(Subset(RECORDS, [3, 3, 4]), [0, 1]), batch_size=2),
        "got a Subset that has one twice",
    ),
    "all twice": (
        lambda: DataLoader(ConcatDataset([RECORDS, TensorDataset(*RECORDS.tensors)]), batch_size=2),
        "got a ConcatDataset that has one twice",
    ),
    "some twice": (
        lambda: DataLoader(ConcatDataset([Subset(RECORDS, [1, 2]), Subset(RECORDS, [2, 3])]), batch_size=2),
        "got a ConcatDataset that has one twice",
    ),
    "other places": (
        lambda: DataLoader(Subset(RECORDS, [1, 20]), batch_size=2),
        "expected a Subset of whole numbers within its dataset",
    ),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_is_refused_by_name(name: str) -> None:
    make, words = LOADERS[name]
    with pytest.raises(BadInput, match=words) as refusal:
        admit_loader(make())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_plain_loader_is_taken(shuffle: bool) -> None:
    assert admit_loader(DataLoader(RECORDS, batch_size=4, shuffle=shuffle)) == (10, 4)
    parts = random_split(RECORDS, [6, 4])
    assert admit_loader(DataLoader(parts[0], batch_size=4, shuffle=shuffle)) == (6, 4)
    whole: ConcatDataset[Any] = ConcatDataset([*parts, TensorDataset(torch.zeros(3, 2))])
    assert admit_loader(DataLoader(whole, batch_size=4, shuffle=shuffle)) == (13, 4)
