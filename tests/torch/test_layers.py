"""Norms and clipped sums by book-keeping are those of gradients that torch makes one example at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.torch import layers
from tacit.torch.admission import admit_module
from tacit.torch.bookkeeping import Bookkeeper, squared_norms

BATCH = 6
Inputs = tuple[Tensor, ...]


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    yield
    torch.set_default_dtype(torch.float32)


class Twice(nn.Module):
    """One layer, called twice."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(self.layer(values).tanh())  # type: ignore[no-any-return]


class TwoBags(nn.Module):
    """A bag for each of two halves of the ids, of which some rows are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(6, 3, mode="mean", padding_idx=2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids[:, :3]) * self.table(ids[:, 3:]).exp()  # type: ignore[no-any-return]


class TwoReads(nn.Module):
    """An embedding that is read in two calls, of which some rows are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids[:, :2]).sum(dim=1) * self.table(ids[:, 2:]).mean(dim=1)  # type: ignore[no-any-return]


class Attention(nn.Module):
    """A transformer's block, of linear maps."""

    def __init__(self, dim: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.table, self.place = nn.Embedding(12, dim), nn.Embedding(5, dim)
        self.norm, self.norm_after = nn.LayerNorm(dim), nn.RMSNorm(dim)
        self.maps, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.wide, self.back = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        read = self.table(ids) + self.place(torch.arange(length).expand(batch, length))
        maps = self.maps(self.norm(read)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*maps).transpose(1, 2).reshape(read.shape)
        read = read + self.out(mixed)
        return read + self.back(nn.functional.gelu(self.wide(self.norm_after(read))))  # type: ignore[no-any-return]


def numbers(*shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(BATCH, *shape),)


def ids(most: int, *shape: int) -> Callable[[], Inputs]:
    def make() -> Inputs:
        found = torch.randint(0, most, (BATCH, *shape))
        found[0] = 1  # one row, everywhere
        return (found,)

    return make


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "linear": (lambda: nn.Linear(5, 4), numbers(5)),
    "linear without bias": (lambda: nn.Linear(5, 4, bias=False), numbers(5)),
    "linear, a short sequence, by Gram": (lambda: nn.Linear(9, 8), numbers(3, 9)),
    "linear, a long sequence, direct": (lambda: nn.Linear(3, 2), numbers(7, 3)),
    "linear, two leading dimensions": (lambda: nn.Linear(5, 6), numbers(2, 3, 5)),
    "linear, twice": (lambda: Twice(nn.Linear(4, 4)), numbers(4)),
    "linear over a sequence, twice": (lambda: Twice(nn.Linear(4, 4)), numbers(3, 4)),
    "embedding": (lambda: nn.Embedding(7, 3), ids(7, 5)),
    "embedding of one id": (lambda: nn.Embedding(7, 3), ids(7)),
    "embedding with padding": (lambda: nn.Embedding(7, 3, padding_idx=1), ids(7, 5)),
    "embedding, two calls": (TwoReads, ids(9, 4)),
    "bag by sum": (lambda: nn.EmbeddingBag(6, 3, mode="sum"), ids(6, 5)),
    "bag by mean, with padding": (lambda: nn.EmbeddingBag(6, 3, mode="mean", padding_idx=2), ids(6, 5)),
    "bags, two calls": (TwoBags, ids(6, 7)),
    "convolution of lines, twice": (lambda: Twice(nn.Conv1d(4, 4, 3, groups=2)), numbers(4, 9)),
    "convolution of images, twice": (lambda: Twice(nn.Conv2d(2, 2, 2, padding=1)), numbers(2, 4, 3)),
    "group norm, twice": (lambda: Twice(nn.GroupNorm(2, 6)), numbers(6, 3)),
    "convolution of lines": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), numbers(4, 7)),
    "convolution of lines, same": (lambda: nn.Conv1d(2, 3, 4, padding="same", dilation=2), numbers(2, 9)),
    "convolution of images": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=(1, 0)), numbers(3, 6, 5)),
    "convolution of images, around": (
        lambda: nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular", bias=False), numbers(2, 5, 5)
    ),
    "convolution, each channel alone": (lambda: nn.Conv2d(4, 4, 3, groups=4), numbers(4, 5, 5)),
    "layer norm": (lambda: nn.LayerNorm(5), numbers(4, 5)),
    "layer norm of two dimensions": (lambda: nn.LayerNorm([3, 4]), numbers(3, 4)),
    "root mean square norm": (lambda: nn.RMSNorm(5), numbers(4, 5)),
    "group norm": (lambda: nn.GroupNorm(2, 6), numbers(6, 3, 3)),
    "group norm without places": (lambda: nn.GroupNorm(2, 6), numbers(6)),
    "a transformer's block": (Attention, ids(12, 5)),
    "changed in place": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)), numbers(2, 4)
    ),
}  # fmt: skip


def losses_of(module: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    out = module(*inputs)
    return nn.functional.softplus(out.flatten(1) * torch.linspace(-2, 3, out[0].numel())).sum(dim=1)


def one_by_one(module: nn.Module, inputs: Inputs) -> dict[str, Tensor]:
    """Every example's gradient by `torch.func`, or by one backward pass each where torch has no other way."""
    if any(isinstance(each, nn.EmbeddingBag) for each in module.modules()):
        names, found = zip(*module.named_parameters(), strict=True)
        each = [
            torch.autograd.grad(losses_of(module, *(part[place : place + 1] for part in inputs))[0], found)
            for place in range(BATCH)
        ]
        return {name: torch.stack(parts) for name, parts in zip(names, zip(*each, strict=True), strict=True)}

    def loss(parameters: dict[str, Tensor], *example: Tensor) -> Tensor:
        return losses_of(
            lambda *each: functional_call(module, parameters, each), *(part[None] for part in example)
        )[0]

    trained = {name: each.detach() for name, each in module.named_parameters() if each.requires_grad}
    return dict(vmap(grad(loss), in_dims=(None, *(0 for _ in inputs)))(trained, *inputs))


def book_kept(
    module: nn.Module, losses: Callable[[], Tensor]
) -> tuple[Tensor, Callable[[Tensor], dict[str, Tensor]]]:
    found = admit_module(module)
    book = Bookkeeper(found)
    book.begin()
    passes = book.backward(losses())
    book.close()

    def sums(weights: Tensor) -> dict[str, Tensor]:
        added = {
            each.named(name): torch.zeros_like(getattr(each.layer, name))
            for each in found
            for name in each.trained
        }
        for layer, each in zip(found, passes, strict=True):
            each.add_sums(weights, {name: added[layer.named(name)].detach() for name in layer.trained})
        return added

    return squared_norms(passes), sums


def expect_same(module: nn.Module, inputs: Inputs, truth: dict[str, Tensor] | None = None) -> None:
    truth = one_by_one(module, inputs) if truth is None else truth
    squares, sums = book_kept(module, lambda: losses_of(module, *inputs))
    expected = torch.stack([each.flatten(1).square().sum(dim=1) for each in truth.values()]).sum(dim=0)
    torch.testing.assert_close(squares, expected, rtol=1e-12, atol=0)
    weights = torch.rand(BATCH)
    added = sums(weights)
    assert added.keys() == truth.keys()
    for name, each in truth.items():
        torch.testing.assert_close(added[name], torch.tensordot(weights, each, dims=1), rtol=1e-11, atol=1e-13)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # of torch.func, not of ours
@pytest.mark.parametrize("name", CASES)
def test_norms_and_sums_are_those_of_gradients_made_one_by_one(name: str) -> None:
    make, inputs = CASES[name]
    expect_same(make(), inputs())


@pytest.mark.parametrize(
    "name", ["linear, a long sequence, direct", "convolution of images", "embedding", "embedding, two calls"]
)
def test_in_chunks_it_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "AT_ONCE", 20)
    make, inputs = CASES[name]
    expect_same(make(), inputs())


@pytest.mark.parametrize("trained", ["weight", "bias"])
@pytest.mark.parametrize(
    "name", ["linear, a short sequence, by Gram", "convolution of images", "layer norm", "group norm"]
)
def test_frozen_parameters_have_no_part(name: str, trained: str) -> None:
    make, inputs = CASES[name]
    layer = make()
    for part, parameter in layer.named_parameters():
        parameter.requires_grad_(part == trained)
    expect_same(layer, inputs())


@pytest.mark.parametrize("last", [False, True])
def test_bags_with_offsets_and_weights_of_their_own(last: bool) -> None:
    """Bags of different lengths cannot be stacked, so torch is asked for one after the other."""
    bag = nn.EmbeddingBag(6, 3, mode="sum", include_last_offset=last)
    read, offsets = (
        torch.tensor([1, 1, 4, 2, 0, 0, 0, 5]),
        torch.tensor([0, 3, 3, 4, 7, 8, 8])[: None if last else -1],
    )
    own = torch.randn(len(read))

    def losses() -> Tensor:
        return losses_of(lambda: bag(read, offsets, per_sample_weights=own))

    found = losses()
    alone = [torch.autograd.grad(found[place], bag.weight, retain_graph=True)[0] for place in range(BATCH)]
    squares, sums = book_kept(bag, losses)
    torch.testing.assert_close(squares, torch.stack([each.square().sum() for each in alone]))
    weights = torch.rand(BATCH)
    torch.testing.assert_close(sums(weights)["weight"], torch.tensordot(weights, torch.stack(alone), dims=1))


def test_repeated_rows_without_their_multiplicity_would_be_understated() -> None:
    """The mistake that this must not have: a row that an example reads five times counted as five rows."""
    table, (read,) = nn.Embedding(7, 3), ids(7, 5)()
    squares, _ = book_kept(table, lambda: table(read).sum(dim=(1, 2)))
    assert squares[0].item() == pytest.approx(5 * 5 * 3)  # not 5 * 3


@pytest.mark.parametrize("length", [2, 40])
def test_norms_are_not_understated_where_gradients_cancel(length: int) -> None:
    """In single precision, at positions whose gradients nearly take each other away."""
    torch.set_default_dtype(torch.float32)
    layer = nn.Linear(64, 64, bias=False)
    read = torch.randn(BATCH, 1, 64).expand(BATCH, length, 64) + 1e-3 * torch.randn(BATCH, length, 64)
    signs = torch.tensor([1.0, -1.0]).repeat(length // 2)[:, None] * torch.randn(BATCH, 1, 64)
    squares, _ = book_kept(layer, lambda: (layer(read) * signs).sum(dim=(1, 2)))
    exact = torch.einsum("bto,bti->boi", signs.double(), read.double()).flatten(1).square().sum(dim=1)
    assert (squares.double() >= exact * (1 - 1e-6)).all()


def test_a_layer_that_computes_something_else_is_no_linear_one() -> None:
    class Scaled(nn.Linear):
        def forward(self, values: Tensor) -> Tensor:
            return 2 * super().forward(values)

    class Named(nn.Linear):
        pass

    assert layers.rule_for(Scaled(2, 2)) is None
    assert layers.rule_for(Named(2, 2)) is layers.RULES[nn.Linear]


def test_dropout_and_other_layers_without_parameters_are_taken_as_they_are() -> None:
    module: Any = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 3))
    (inputs,) = numbers(5)()
    book = Bookkeeper(admit_module(module))
    book.begin()
    losses = losses_of(module, inputs)
    alone = [
        torch.cat(
            [part.flatten() for part in torch.autograd.grad(each, list(module.parameters()), retain_graph=True)]
        )
        for each in losses
    ]
    squares = squared_norms(book.backward(losses))
    torch.testing.assert_close(squares, torch.stack(alone).square().sum(dim=1))


@pytest.mark.parametrize("flush", [False, True], ids=["", "denormals flushed"])
@pytest.mark.parametrize(
    "layer", ["linear", "positions", "wide positions", "convolution", "bag"], ids=lambda name: name
)
def test_a_small_gradient_times_a_large_input_is_not_lost(layer: str, flush: bool) -> None:
    """The square of a gradient of 2e-23 is 0 in single precision."""
    weights = frozenset({"weight"})
    known = torch.full((3, 64), 1e19) / 8
    torch.set_flush_denormal(flush)
    try:
        if layer == "linear":
            of: Any = layers.LinearPass(
                nn.Linear(64, 1, bias=False), [layers.Call((known,), torch.full((3, 1), 2e-23))], weights
            )
            true = 1e19 * 2e-23
        elif layer in ("positions", "wide positions"):
            wide = 96 if layer == "wide positions" else 1
            call = layers.Call((known[:, None].repeat(1, 2, 1),), torch.full((3, 2, wide), 2e-23))
            of, true = (
                layers.LinearPass(nn.Linear(64, wide, bias=False), [call], weights),
                2 * 1e19 * 2e-23 * wide**0.5,
            )
        elif layer == "convolution":
            call = layers.Call((known[:, None],), torch.full((3, 1, 1), 2e-23))
            of, true = layers.ConvolutionPass(nn.Conv1d(1, 1, 64, bias=False), [call], weights), 1e19 * 2e-23
        else:
            call = layers.Call(
                (torch.tensor([[1], [2], [3]]), None, torch.full((3, 1), 1e18)), torch.full((3, 3), 1e-23)
            )
            of, true = (
                layers.EmbeddingBagPass(nn.EmbeddingBag(7, 3, mode="sum"), [call], weights),
                1e18 * 1e-23 * 3**0.5,
            )
        found = of.squared_norms().sqrt()
    finally:
        torch.set_flush_denormal(False)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), true, rtol=1e-3)
