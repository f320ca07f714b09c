"""One forward and one backward pass, noted layer by layer: what every example's gradient measures, and clipped
sums, without a second backward pass.

Hooks note what each trained layer read. The backward pass is asked for the gradients of the layers' outputs
alone, so it computes no gradient of a weight; sums of clipped gradients are formed from both afterwards. A
walk through the graph holds that every trained parameter was read by its own layer and by nothing else: what
goes around its layer would have no norm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.errors import BadInput
from tacit.torch.admission import TrainedLayer
from tacit.torch.layers import Call, LayerPass, argument_names, kept_statistics


@dataclass(frozen=True)
class NotedCall:
    """A call of a layer: what it read, as it was then, and where its output is in the graph."""

    inputs: tuple[Tensor | None, ...]
    versions: tuple[int, ...]
    edge: GradientEdge
    shape: torch.Size


class Bookkeeper:
    """Notes calls of trained layers while it is `open`, between a batch and its losses."""

    def __init__(self, layers: Sequence[TrainedLayer]) -> None:
        self.layers = layers
        self.open = False
        self._calls: dict[int, list[NotedCall]] = {}
        self._hooks = [
            each.layer.register_forward_hook(self._note, prepend=True, with_kwargs=True) for each in layers
        ]

    def close(self) -> None:
        """Let the module go: it is an ordinary one again."""
        self.open = False
        self._calls.clear()
        for hook in self._hooks:
            hook.remove()

    def begin(self) -> None:
        self.open = True
        self._calls.clear()

    def _note(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if not self.open or not torch.is_grad_enabled():
            return
        names = argument_names(layer)
        given = dict(zip(names, args, strict=False)) | kwargs
        inputs = tuple(None if given.get(name) is None else given[name].detach() for name in names)
        inputs += kept_statistics(layer, output)
        base = output._base
        # A layer's output may be a view of what it computed; who changes that in place leaves the view's own
        # node.
        if base is None or base.grad_fn is None or base.shape.numel() != output.shape.numel():
            base = output
        self._calls.setdefault(id(layer), []).append(
            NotedCall(
                inputs,
                tuple(0 if each is None else each._version for each in inputs),
                get_gradient_edge(base),
                output.shape,
            )
        )

    def backward(self, losses: Tensor, *, keep_graph: bool = False) -> list[LayerPass]:
        """Every trained layer's part of the pass; `keep_graph` leaves it for another look."""
        noted = [(each, self._calls.get(id(each.layer), [])) for each in self.layers]
        self.open = False
        batch = len(losses)
        for each, calls in noted:
            _refuse_calls(each, calls, batch)
        self._refuse_detours(losses)
        edges = [call.edge for _, calls in noted for call in calls]
        found = torch.autograd.grad(losses.sum(), edges, retain_graph=keep_graph, allow_unused=True)
        passes, at = [], 0
        for each, calls in noted:
            complete = []
            for call in calls:
                gradient, at = found[at], at + 1
                if gradient is None:
                    raise BadInput(
                        f"{each.path}: expected an output that every loss follows from and that stays as it "
                        f"is, got "
                        "one that is not used, or was changed in place"
                    )
                if any(tensor is not None and tensor._version != version
                       for tensor, version in zip(call.inputs, call.versions, strict=True)):  # fmt: skip
                    raise BadInput(
                        f"{each.path}: expected inputs that stay as they are, got some changed in place"
                    )
                if gradient.dtype != next(iter(each.layer.parameters())).dtype:
                    raise BadInput(
                        f"{each.path}: expected outputs in the parameters' precision, got {gradient.dtype}: "
                        f"without "
                        "autocast"
                    )
                complete.append(Call(call.inputs, gradient.reshape(call.shape)))
            assert each.rule is not None, "held when the module was admitted"
            try:
                passes.append(each.rule(each.layer, complete, each.trained))
            except BadInput as problem:
                raise BadInput(f"{each.path}: {problem}") from None
        self._calls.clear()
        return passes

    def _refuse_detours(self, losses: Tensor) -> None:
        """BadInput where the graph reads a trained parameter in another way than its layer's calls."""
        readers = parameter_readers(losses)
        for each in self.layers:
            calls = len(self._calls.get(id(each.layer), []))
            for name in sorted(each.trained):
                found = readers[id(getattr(each.layer, name))]
                if found != calls:
                    raise BadInput(
                        f"{each.named(name)}: expected a parameter that its own layer alone reads ({calls} "
                        f"times), got "
                        f"one that is read {found} times: call the layer"
                    )


def _refuse_calls(each: TrainedLayer, calls: Iterable[NotedCall], batch: int) -> None:
    if not calls:
        raise BadInput(
            f"{each.path}: expected a forward pass through every trained layer, got none through this one: "
            f"freeze it"
        )
    for call in calls:
        first = call.inputs[0]
        if (
            first is None
            or call.shape[:1] != (batch,)
            or (first.shape[:1] != (batch,) and not isinstance(each.layer, nn.EmbeddingBag))
        ):
            raise BadInput(
                f"{each.path}: expected one row per example in the first dimension, got another number of "
                f"rows: "
                "expand what examples share, and keep the batch first"
            )


def parameter_readers(losses: Tensor) -> Counter[int]:
    """How many nodes of the graph read each parameter, by its id."""
    found: Counter[int] = Counter()
    seen, waiting = set(), [losses.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for reader, _ in node.next_functions:
            if reader is None:
                continue
            variable = getattr(reader, "variable", None)
            if variable is not None:
                found[id(variable)] += 1
            else:
                waiting.append(reader)
    return found


def squared_norms(passes: Sequence[LayerPass]) -> Tensor:
    """|the whole gradient|^2 of each example."""
    return torch.stack([each.squared_norms().double() for each in passes]).sum(dim=0)
