"""Per-example gradients of layers by book-keeping: their norms, and weighted sums of them, from what the layer
read and the gradient of what it gave out.

A linear layer's gradient for one example is the sum over positions t of d_t a_t', with a_t what the layer read
and d_t the gradient of its output. Its squared norm is sum_st <a_s, a_t> <d_s, d_t> (the Gram form), or that
of the sum itself (the direct form), whichever takes less work; with one position it is |a|^2 |d|^2. The
weighted sum over a batch is one product of matrices, as in plain training. Convolutions are linear maps of
patches, an embedding gives a row the sum of what its places get, and gradients of scales and shifts are small
enough to be made.

Norms are sums of floats of which some may cancel. What rounding may have taken away is added back
(`ROUNDING`), so that norms are never understated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from tacit.errors import BadInput
from tacit.kernels import grams

AT_ONCE = 2**22
"""Numbers of per-example products that are held at once: 16 MB in single precision."""

SMALL, LARGE = 1e-18, 1e6  # of a gradient, whose square would vanish in single precision; of what was read
ROUNDING = 2.0
"""Units in the last place of a sum of products, as a part of the sum of their sizes."""

Sums = Mapping[str, Tensor]
"""By the trained parameter's name within its layer: where its sum is added to."""


@dataclass(frozen=True)
class Call:
    """One use of a layer in a forward pass: its arguments, the shape of its output, and its output's
    gradient."""

    inputs: tuple[Tensor | None, ...]
    gradient: Tensor


class LayerPass(Protocol):
    """A layer in one forward and backward pass over a batch."""

    def squared_norms(self) -> Tensor:
        """|the gradient of this layer's trained parameters|^2, of each example."""
        ...

    def add_sums(self, weights: Tensor, sums: Sums) -> None:
        """sums += the sum of every example's gradient times its weight."""
        ...


class LinearPass:
    """`nn.Linear`, at any number of positions per example and in any number of calls."""

    def __init__(self, layer: nn.Linear, calls: Sequence[Call], trained: frozenset[str]) -> None:
        self._read = _joined([_positions(_present(call.inputs[0]), layer.in_features) for call in calls])
        self._gradient = _joined([_positions(call.gradient, layer.out_features) for call in calls])
        self._trained = trained

    def squared_norms(self) -> Tensor:
        if "weight" not in self._trained:
            return _squared_sums(self._gradient)
        return _squared_products(self._read, self._gradient, bias="bias" in self._trained)

    def add_sums(self, weights: Tensor, sums: Sums) -> None:
        read, gradient = self._read.flatten(0, 1), self._gradient.flatten(0, 1)  # (batch * positions, width)
        each = weights.repeat_interleave(self._read.shape[1])
        if "bias" in sums:
            sums["bias"] += (weights @ self._gradient.flatten(1)).view(-1, gradient.shape[1]).sum(dim=0)
        if "weight" not in sums:
            return
        if read.shape[1] < gradient.shape[1]:  # the smaller one is scaled
            sums["weight"].addmm_(gradient.t(), read * each[:, None])
        else:
            sums["weight"].addmm_((gradient * each[:, None]).t(), read)


class ConvolutionPass:
    """`nn.Conv1d` and `nn.Conv2d`, as linear maps of patches, group by group."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, calls: Sequence[Call], trained: frozenset[str]) -> None:
        self._flat, self._groups, self._trained = len(layer.kernel_size) == 1, layer.groups, trained
        one = (1,) if self._flat else ()
        self._kernel, self._stride, self._dilation = (
            (*one, *each) for each in (layer.kernel_size, layer.stride, layer.dilation)
        )
        self._patch = layer.in_channels * self._kernel[0] * self._kernel[1]
        self._calls = []  # what was read, padded, and the gradient: (batch, channels, height, width)
        for call in calls:
            read, gradient = _present(call.inputs[0]), call.gradient
            if read.ndim != len(layer.kernel_size) + 2:
                raise BadInput(f"expected inputs of {len(layer.kernel_size) + 2} dimensions, got {read.ndim}")
            if any(layer._reversed_padding_repeated_twice):
                mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
                read = functional.pad(read, layer._reversed_padding_repeated_twice, mode=mode)
            # A line is an image of height 1.
            self._calls.append((read.unsqueeze(2), gradient.unsqueeze(2)) if self._flat else (read, gradient))

    def squared_norms(self) -> Tensor:
        gradients = [gradient.flatten(2) for _, gradient in self._calls]
        batch, places = len(gradients[0]), sum(each.shape[2] for each in gradients)
        if "weight" not in self._trained:
            return _squared_sums(torch.cat(gradients, dim=2).transpose(1, 2))
        found = []
        for some in _chunks(batch, places * self._patch):
            patches = [
                functional.unfold(read[some], self._kernel, self._dilation, 0, self._stride)
                for read, _ in self._calls
            ]
            read = self._by_group(torch.cat(patches, dim=2))
            gradient = self._by_group(torch.cat([each[some] for each in gradients], dim=2))
            squares = _squared_products(read, gradient, bias="bias" in self._trained)
            found.append(squares.view(-1, self._groups).sum(dim=1))
        return torch.cat(found)

    def _by_group(self, values: Tensor) -> Tensor:
        """(batch, channels, places) as (batch * groups, places, channels of a group)."""
        batch, channels, places = values.shape
        return values.reshape(batch * self._groups, channels // self._groups, places).transpose(1, 2)

    def add_sums(self, weights: Tensor, sums: Sums) -> None:
        for read, gradient in self._calls:
            scaled = gradient * weights[:, None, None, None]
            if "weight" in sums:
                shape = sums["weight"].unsqueeze(2).shape if self._flat else sums["weight"].shape
                geometry = (self._stride, 0, self._dilation, self._groups)
                found = conv2d_weight(read, shape, scaled, *geometry)  # type: ignore[no-untyped-call]
                sums["weight"] += found.squeeze(2) if self._flat else found
            if "bias" in sums:
                sums["bias"] += scaled.sum(dim=(0, 2, 3))


class EmbeddingPass:
    """`nn.Embedding`: a row that an example reads twice gets the sum of both gradients."""

    def __init__(self, layer: nn.Embedding, calls: Sequence[Call], trained: frozenset[str]) -> None:
        del trained
        self._ids = _joined(
            [_positions(_present(call.inputs[0]), 1).flatten(1) for call in calls]
        )  # (batch, places)
        self._gradient = _joined([_positions(call.gradient, layer.embedding_dim) for call in calls])
        if layer.padding_idx is not None:
            self._gradient = self._gradient.masked_fill((self._ids == layer.padding_idx)[:, :, None], 0)

    def squared_norms(self) -> Tensor:
        totals = _squared_lengths(self._gradient.flatten(1))
        ordered = self._ids.sort(dim=1).values
        repeating = (ordered[:, 1:] == ordered[:, :-1]).any(dim=1).nonzero().flatten()
        count, places = len(repeating), self._ids.shape[1]
        for some in _chunks(count, places * self._gradient.shape[2]):
            chosen = repeating[some]
            own = self._gradient[chosen].flatten(0, 1)
            owner = torch.arange(len(chosen)).repeat_interleave(places)
            rows, place = _distinct(owner, self._ids[chosen].flatten())
            summed = own.new_zeros(len(rows), own.shape[1]).index_add_(0, place, own)
            squares = totals.new_zeros(len(chosen)).index_add_(0, rows, _squared_lengths(summed))
            totals[chosen] = _rounded_up(squares, places * totals[chosen], own.dtype)
        return totals

    def add_sums(self, weights: Tensor, sums: Sums) -> None:
        scaled = self._gradient * weights[:, None, None]
        sums["weight"].index_add_(0, self._ids.flatten(), scaled.flatten(0, 1))


class EmbeddingBagPass:
    """`nn.EmbeddingBag` by sum or mean, a bag per example: a row gets the bag's gradient as often as it is in
    it."""

    def __init__(self, layer: nn.EmbeddingBag, calls: Sequence[Call], trained: frozenset[str]) -> None:
        del trained
        self._batch, self._gradient = len(calls[0].gradient), torch.cat([call.gradient for call in calls])
        read, bags, shares = [], [], []
        for number, call in enumerate(calls):
            ids, bag, share = _in_bags(layer, call)
            read.append(ids)
            bags.append(bag + number * self._batch)
            shares.append(share)
        self._ids, self._bag, self._share = torch.cat(read), torch.cat(bags), torch.cat(shares)

    def squared_norms(self) -> Tensor:
        """With one call, the bag's gradient times how often each row is in it; with several, of their sums."""
        owner = self._bag % self._batch
        rows, place = _distinct(owner, self._ids)
        share = self._share.double()
        totals, size = share.new_zeros(self._batch), share.new_zeros(self._batch)
        if len(self._gradient) == self._batch:
            times, lengths = share.new_zeros(len(rows)), _squared_lengths(self._gradient)
            totals.index_add_(0, rows, times.index_add_(0, place, share).square())
            size.index_add_(0, owner, share.square())
            totals, size = totals * lengths, size * lengths
        else:
            own = self._gradient[self._bag] * self._share[:, None]
            summed = own.new_zeros(len(rows), own.shape[1]).index_add_(0, place, own)
            totals.index_add_(0, rows, _squared_lengths(summed))
            size.index_add_(0, owner, _squared_lengths(own))
        return _rounded_up(totals, size * torch.bincount(owner, minlength=self._batch), self._gradient.dtype)

    def add_sums(self, weights: Tensor, sums: Sums) -> None:
        each = weights.repeat(len(self._gradient) // self._batch)
        scaled = (self._gradient * each[:, None])[self._bag] * self._share[:, None]
        sums["weight"].index_add_(0, self._ids, scaled)


class ScalePass:
    """`nn.LayerNorm`, `nn.RMSNorm` and `nn.GroupNorm`: scales and shifts of what they have normalised."""

    def __init__(self, layer: nn.Module, calls: Sequence[Call], trained: frozenset[str]) -> None:
        self._each: dict[str, Tensor] = {}  # (batch, parameters)
        self._size: dict[str, Tensor] = {}
        for call in calls:
            read, gradient = _present(call.inputs[0]), call.gradient
            parts = {"bias": gradient} if "bias" in trained else {}
            if "weight" in trained:
                parts["weight"] = _normalised(layer, read, *call.inputs[1:]).mul_(gradient)
            for name, part in parts.items():
                if isinstance(layer, nn.GroupNorm):
                    part = part.flatten(2).transpose(1, 2) if part.ndim > 2 else part.unsqueeze(1)
                else:
                    part = part.reshape(len(part), -1, getattr(layer, name).numel())
                size = part.shape[1] * len(calls) * _squared_lengths(part.flatten(1))
                self._each[name] = self._each[name] + part.sum(dim=1) if name in self._each else part.sum(dim=1)
                self._size[name] = self._size.get(name, 0) + size

    def squared_norms(self) -> Tensor:
        parts = [
            _rounded_up(_squared_lengths(each), self._size[name], each.dtype)
            for name, each in self._each.items()
        ]
        return torch.stack(parts).sum(dim=0)

    def add_sums(self, weights: Tensor, sums: Sums) -> None:
        for name, each in self._each.items():
            sums[name] += (weights @ each).view_as(sums[name])


MakePass = Callable[[nn.Module, Sequence[Call], frozenset[str]], LayerPass]
RULES: dict[type[nn.Module], MakePass] = {
    nn.Linear: LinearPass,  # type: ignore[dict-item]
    nn.Conv1d: ConvolutionPass,  # type: ignore[dict-item]
    nn.Conv2d: ConvolutionPass,  # type: ignore[dict-item]
    nn.Embedding: EmbeddingPass,  # type: ignore[dict-item]
    nn.EmbeddingBag: EmbeddingBagPass,  # type: ignore[dict-item]
    nn.LayerNorm: ScalePass,
    nn.RMSNorm: ScalePass,
    nn.GroupNorm: ScalePass,
}


def argument_names(layer: nn.Module) -> tuple[str, ...]:
    """What a call of the layer is given, in order; the first is what has a row per example."""
    return ("input", "offsets", "per_sample_weights") if isinstance(layer, nn.EmbeddingBag) else ("input",)


def rule_for(layer: nn.Module) -> MakePass | None:
    """How this layer's gradients are book-kept; a subclass counts where it computes what its parent does."""
    for kind, rule in RULES.items():
        if isinstance(layer, kind) and type(layer).forward is kind.forward:
            return rule
    return None


def _squared_products(read: Tensor, gradient: Tensor, *, bias: bool) -> Tensor:
    """|sum_t d_t a_t'|^2 by example, and |sum_t d_t|^2 with it where there is a bias; (batch, positions,
    width)."""
    batch, positions, inputs = read.shape
    outputs, kind = gradient.shape[2], gradient.dtype
    if positions == 1:
        each = _squared_lengths(read.flatten(1)) + (1 if bias else 0)
        return each * _squared_lengths(gradient.flatten(1))
    if _is_extreme(read, gradient):
        read, gradient = read.double(), gradient.double()
    elif positions * (inputs + outputs) <= inputs * outputs:
        arrays = (each.detach().contiguous().numpy() for each in (read, gradient))
        found = grams.squared_products(*arrays, bias=bias, threads=torch.get_num_threads())
        squares, size = map(torch.from_numpy, found)
        return _rounded_up(squares.clamp_(min=0).double(), positions * size.double(), read.dtype)
    parts = []
    for some in _chunks(batch, inputs * outputs):
        a, d = read[some], gradient[some]
        squares = _squared_lengths(torch.bmm(d.transpose(1, 2), a).flatten(1))
        lengths = torch.linalg.vector_norm(a, dim=2, dtype=torch.float64).square_()
        if bias:
            squares += _squared_lengths(d.sum(dim=1))
            lengths += 1
        size = (lengths * torch.linalg.vector_norm(d, dim=2, dtype=torch.float64).square_()).sum(dim=1)
        parts.append(_rounded_up(squares, positions * size, kind))
    return torch.cat(parts)


def _is_extreme(read: Tensor, gradient: Tensor) -> bool:
    """Whether products of single precision could vanish where a gradient does not: a large input times a
    gradient whose square is 0. The sums are of the real products, so that norms must not miss them."""
    if gradient.dtype == torch.float64 or not gradient.numel() or not read.numel():
        return False
    steep, large = (each.abs().flatten(1).amax(dim=1) for each in (gradient, read))
    return bool(((steep < SMALL) & (steep > 0) & (large > LARGE)).any())


def _squared_sums(gradient: Tensor) -> Tensor:
    size = gradient.shape[1] * _squared_lengths(gradient.flatten(1))
    return _rounded_up(_squared_lengths(gradient.sum(dim=1)), size, gradient.dtype)


def _rounded_up(squares: Tensor, size: Tensor, kind: torch.dtype) -> Tensor:
    """With what rounding may have taken away of sums of products that were made in precision `kind`, whose
    sizes' sum has at most the square `size`."""
    return squares + ROUNDING * torch.finfo(kind).eps * size


def _squared_lengths(rows: Tensor) -> Tensor:
    """In double precision: in single one the square of a small length is 0, and times a large one it is not."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms.square_()


def _in_bags(layer: nn.EmbeddingBag, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Of every place in a call's bags: the row, the bag, and what part of the bag's gradient the row gets."""
    ids, offsets, own_weights = call.inputs
    ids, batch = _present(ids), len(call.gradient)
    if ids.ndim == 2:
        sizes = torch.full((batch,), ids.shape[1])
    elif layer.include_last_offset:
        sizes = _present(offsets).diff()
    else:
        sizes = torch.cat([_present(offsets), torch.tensor([len(ids)])]).diff()
    ids, bag = ids.flatten(), torch.arange(batch).repeat_interleave(sizes)
    share = call.gradient.new_ones(len(ids)) if own_weights is None else own_weights.flatten().clone()
    if layer.padding_idx is not None:
        share[ids == layer.padding_idx] = 0
    if layer.mode == "mean":
        share = share / share.new_zeros(batch).index_add_(0, bag, share).clamp(min=1)[bag]
    return ids, bag, share


def _normalised(
    layer: nn.Module, read: Tensor, mean: Tensor | None = None, scale: Tensor | None = None
) -> Tensor:
    """What the layer made of what it read, before its own scale and shift; a new array."""
    if isinstance(layer, nn.GroupNorm):
        return functional.group_norm(read, layer.num_groups, eps=layer.eps)
    if isinstance(layer, nn.LayerNorm):
        if mean is None or scale is None:
            return functional.layer_norm(read, layer.normalized_shape, eps=layer.eps)
        return (read - mean).mul_(scale)
    assert isinstance(layer, nn.RMSNorm)
    return functional.rms_norm(read, layer.normalized_shape, eps=layer.eps)


def kept_statistics(layer: nn.Module, output: Tensor) -> tuple[Tensor, ...]:
    """The mean and the inverse deviation that a layer norm's forward pass has kept: several times as fast as to
    normalise again."""
    node = output.grad_fn
    if not isinstance(layer, nn.LayerNorm) or not hasattr(node, "_saved_result2"):
        return ()
    return node._saved_result1, node._saved_result2  # type: ignore[union-attr]


def _distinct(owner: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct pairs of owner and id: the owner of each, and which of them every place is."""
    most = int(ids.max()) + 1 if len(ids) else 1
    pairs, place = torch.unique(owner * most + ids, return_inverse=True)
    return pairs // most, place


def _positions(values: Tensor, width: int) -> Tensor:
    return values.reshape(len(values), -1, width)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "held when the call was noted"
    return tensor


def _chunks(count: int, each: int) -> list[slice]:
    """Stretches of 0..count whose numbers, `each` per example, are few enough to be held at once."""
    size = max(1, AT_ONCE // max(1, each))
    return [slice(first, min(count, first + size)) for first in range(0, count, size)]
