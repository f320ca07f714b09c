"""Sums of clipped gradients, and noise on them: each example's gradient is scaled to the clip norm by its
exact norm, added up, and checked.

`BookkeptGradients` reads them off one backward pass. `FunctionalGradients` makes every example's gradient with
`torch.func`, for modules that book-keeping does not cover.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils import _pytree as trees

from tacit.errors import BadInput, SelfCheckFailed
from tacit.expect import Choice
from tacit.privacy.randomness import Source, UniformBelow
from tacit.torch.admission import TrainedLayer
from tacit.torch.bookkeeping import Bookkeeper, squared_norms
from tacit.train.sgd.descent import CLIP_MARGIN
from tacit.train.sgd.draws import BLOCK, noise_blocks
from tacit.train.sgd.monitor import ReleaseMonitor
from tacit.train.sgd.self_checks import TOLERANCE

LossFunction = Callable[[Callable[..., Any], Any], Tensor]
"""`loss_of(module, batch)`: one loss per example."""

AT_ONCE = 2**25
"""Numbers of per-example gradients that are held at once, where they are made: 128 MB in single precision."""


class PerExample(Choice):
    """How each example's gradient is measured."""

    BOOK_KEEPING = "book-keeping"
    FUNCTIONAL = "functional"


class GradientSums:
    """The sums of all trained parameters, in one array per precision; a parameter's `grad` is its part of
    it."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], monitor: ReleaseMonitor, below: UniformBelow
    ) -> None:
        self._parameters = parameters
        self.named: dict[str, Tensor] = {}
        self._flat: list[Tensor] = []
        kinds = {each.dtype: None for each in parameters.values()}
        for kind in kinds:
            own = {name: each for name, each in parameters.items() if each.dtype == kind}
            flat = torch.zeros(sum(each.numel() for each in own.values()), dtype=kind)
            self._flat.append(flat)
            parts = torch.split(flat, [each.numel() for each in own.values()])
            self.named |= {
                name: part.view(each.shape) for (name, each), part in zip(own.items(), parts, strict=True)
            }
        self._monitors = [monitor.noise_of("the gradients", len(kinds), below=below) for _ in kinds]

    def clear(self) -> None:
        for flat in self._flat:
            flat.zero_()

    def add_noise(self, source: Source, stddev: float, step: int) -> None:
        """Gaussian noise on every number, once, looked at as it arrives."""
        for flat, monitor in zip(self._flat, self._monitors, strict=True):
            array = flat.numpy()
            for some, look in noise_blocks(len(array), 4 * BLOCK, step, monitor.below):
                before = monitor.before_adding(array[some]) if look else None
                source.add_normal(array[some], stddev)
                if before is not None:
                    monitor.check_added(array[some], before)

    @contextmanager
    def handed_over(self) -> Iterator[None]:
        """An optimizer finds them where it looks for gradients; afterwards nobody does, since they are about to
        be written to without noise."""
        for name, parameter in self._parameters.items():
            parameter.grad = self.named[name]
        try:
            yield
        finally:
            for parameter in self._parameters.values():
                parameter.grad = None

    def close(self) -> None:
        """Weights may leave: test what was seen of the noise since the last tests."""
        for monitor in self._monitors:
            monitor.close()


class BookkeptGradients:
    """Norms and sums from what layers read and their outputs' gradients. One record is looked at the slow
    way."""

    def __init__(self, layers: list[TrainedLayer], parameters: Mapping[str, nn.Parameter]) -> None:
        self._layers, self._parameters = layers, parameters
        self._book = Bookkeeper(layers)

    @property
    def words(self) -> str:
        return f"norms by book-keeping in one backward pass, {len(self._layers)} layers"

    def begin(self, batch: Any, count: int) -> None:
        """A batch is handed out: its forward pass is to be noted. That it has one row per record is asked of
        every layer when the pass is over, and of the losses."""
        del batch, count
        self._book.begin()

    def close(self) -> None:
        self._book.close()

    def add(
        self,
        losses: Tensor | LossFunction,
        batch: Any,
        count: int,
        sums: GradientSums,
        monitor: ReleaseMonitor,
        look: int | None,
    ) -> None:
        """Add the clipped gradients of these losses. `look` is the record of a step's first piece whose
        gradient is made alone, too."""
        del batch
        losses = _refuse_losses(losses, count)
        passes = self._book.backward(losses, keep_graph=look is not None)
        norms, weights = _clipped(squared_norms(passes), monitor)
        monitor.check_clipped(*_arrays(torch.ones_like(norms), norms, weights))
        if look is not None:
            self._check_norm(losses, norms, look, monitor.clip_norm)
        for layer, each in zip(self._layers, passes, strict=True):
            own = {name: sums.named[layer.named(name)] for name in sorted(layer.trained)}
            each.add_sums(weights.to(next(iter(own.values())).dtype), own)
        if look is not None:
            self._check_sums(
                losses @ weights.to(losses.dtype),
                sums.named,
                count * monitor.clip_norm / monitor.expected_batch,
            )

    def _slow(self, loss: Tensor) -> dict[str, Tensor]:
        """The gradient by torch's own backward pass."""
        found = torch.autograd.grad(loss, list(self._parameters.values()), retain_graph=True, allow_unused=True)
        return {
            name: torch.zeros_like(each) if gradient is None else gradient
            for (name, each), gradient in zip(self._parameters.items(), found, strict=True)
        }

    def _check_sums(self, loss: Tensor, sums: Mapping[str, Tensor], most: float) -> None:
        """All sums, of a piece that is the first of its step, by a backward pass of torch's own; they are no
        longer than `most`."""
        slow = self._slow(loss)
        for name, found in sums.items():
            parts = zip(*(torch.split(each.flatten(), BLOCK) for each in (found, slow.pop(name))), strict=True)
            sizes = [
                (torch.linalg.vector_norm(here - there), torch.linalg.vector_norm(there))
                for here, there in parts
            ]
            off, length = (math.hypot(*(float(each) for each in column)) for column in zip(*sizes, strict=True))
            if not off <= TOLERANCE * length + 1e-5 * most:  # what is not a number is no less
                raise SelfCheckFailed(
                    f"clipping: expected the sum of clipped gradients of {name} to equal the slow one, got "
                    f"another; "
                    "the run was stopped and nothing leaves"
                )

    def _check_norm(self, losses: Tensor, norms: Tensor, look: int, clip_norm: float) -> None:
        """A record's gradient, alone: at most as long as was book-kept, or its loss follows from other
        records."""
        alone = torch.stack([torch.linalg.vector_norm(part) for part in self._slow(losses[look]).values()])
        slow, noted = float(torch.linalg.vector_norm(alone)), float(norms[look])
        if not slow <= noted * (1 + TOLERANCE) + 1e-5 * clip_norm:
            raise SelfCheckFailed(
                "clipping: expected a record's gradient to be as long as its layers say, got a longer one: "
                "does its "
                "loss follow from other records? The run was stopped and nothing leaves"
            )


class FunctionalGradients:
    """Each example's gradient by `torch.func`: any module that treats examples one by one, at the price of as
    many gradients in memory as are made at once. What `vmap` does not cover is made one by one."""

    def __init__(self, module: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
        self._module, self._parameters = module, parameters
        self._most = max(1, AT_ONCE // sum(each.numel() for each in parameters.values()))
        self._together = True

    @property
    def words(self) -> str:
        how = "torch.func.vmap(grad)" if self._together else "torch.func.grad, one by one"
        return f"every example's gradient made by {how}"

    def begin(self, batch: Any, count: int) -> None:
        """Nothing is noted: the forward pass is made here, one row of everything per record. BadInput where a
        batch has other rows, which would be clipped each by itself."""
        leaves, _ = trees.tree_flatten_with_path(batch)
        if not leaves:
            raise BadInput("expected a batch of tensors, got none in it")
        for path, each in leaves:
            where = f"batch{trees.keystr(path)}"
            if not isinstance(each, Tensor):
                raise BadInput(
                    f'{where}: expected a tensor with per_example="functional", got {type(each).__name__}'
                )
            if each.ndim == 0 or len(each) != count:  # how many there are is secret
                raise BadInput(
                    f"{where}: expected one row per record of the sample, got another number of rows: does "
                    "collate_fn repeat, drop or share records?"
                )

    def close(self) -> None:
        """Nothing was changed in the module."""

    def add(
        self,
        losses: Tensor | LossFunction,
        batch: Any,
        count: int,
        sums: GradientSums,
        monitor: ReleaseMonitor,
        look: int | None,
    ) -> None:
        """Add the clipped gradients of this batch; the slow way is the only one, so nothing more is looked
        at."""
        del look
        if isinstance(losses, Tensor) or not callable(losses):
            raise BadInput(
                'expected a function of module and batch with per_example="functional", got '
                f"{type(losses).__name__}: step(lambda module, batch: ...)"
            )
        for first in range(0, count, self._most):
            each = self._gradients(losses, _rows(batch, slice(first, first + self._most)))
            squares = [
                torch.linalg.vector_norm(part.flatten(1), dim=1, dtype=torch.float64).square_()
                for part in each.values()
            ]
            norms, weights = _clipped(torch.stack(squares).sum(dim=0), monitor)
            monitor.check_clipped(*_arrays(torch.ones_like(norms), norms, weights))
            for name, part in each.items():
                sums.named[name] += torch.tensordot(weights.to(part.dtype), part, dims=1)

    def _gradients(self, loss_of: LossFunction, batch: Any) -> dict[str, Tensor]:
        """Of each example, by parameter: (batch, *shape)."""
        module, trained = self._module, {name: each.detach() for name, each in self._parameters.items()}
        fixed = {name: each.detach() for name, each in module.named_parameters() if name not in trained}
        fixed |= dict(module.named_buffers())

        def alone(now: dict[str, Tensor], example: Any) -> Tensor:
            called = False

            def bound(*args: Any, **kwargs: Any) -> Any:
                nonlocal called
                called = True
                return functional_call(module, {**now, **fixed}, args, kwargs)

            loss = loss_of(bound, trees.tree_map(lambda each: each.unsqueeze(0), example))
            if not isinstance(loss, Tensor):
                raise BadInput(f"expected a tensor of losses, got {type(loss).__name__}")
            if loss.numel() != 1:
                raise BadInput(f"expected one loss per example, got {loss.numel()} for one")
            if not loss.is_floating_point():
                raise BadInput(f"expected losses that are real numbers, got {loss.dtype}")
            if not called:
                raise BadInput(
                    "expected losses of the module that the function is given, got some that do not follow "
                    "from it"
                )
            return loss.sum()

        if self._together:
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="There is a performance drop")
                    found: dict[str, Tensor] = vmap(grad(alone), in_dims=(None, 0), randomness="different")(
                        trained, batch
                    )
                    return found
            except (
                RuntimeError
            ):  # an operation that vmap has no rule for; what is wrong otherwise is so below, too
                self._together = False
        count = len(trees.tree_leaves(batch)[0])
        each = [grad(alone)(trained, trees.tree_map(lambda part: part[at], batch)) for at in range(count)]  # noqa: B023
        return {name: torch.stack([one[name] for one in each]) for name in trained}


def _rows(batch: Any, some: slice) -> Any:
    return trees.tree_map(lambda each: each[some], batch)


def _refuse_losses(losses: object, count: int) -> Tensor:
    if not isinstance(losses, Tensor):
        raise BadInput(f"expected a tensor of losses, got {type(losses).__name__}")
    if losses.shape != (count,):  # how many there are is secret
        got = "another number of losses"
        if losses.ndim == 0:
            got = "a single number, which does not tell whose loss it is"
        elif losses.ndim > 1:
            got = f"{losses.ndim} dimensions: add up what belongs to one example"
        raise BadInput(f'expected one loss per example (reduction="none"), got {got}')
    if not losses.is_floating_point():
        raise BadInput(f"expected losses that are real numbers, got {losses.dtype}")
    if losses.grad_fn is None:
        raise BadInput("expected losses that follow from the module, got some without a gradient")
    return losses


def _clipped(squares: Tensor, monitor: ReleaseMonitor) -> tuple[Tensor, Tensor]:
    """Norms, and the weights that scale each gradient to the clip norm over the expected batch."""
    if not torch.isfinite(squares).all():
        raise SelfCheckFailed("clipping: expected finite gradient norms, got others; nothing leaves")
    norms = squares.sqrt()
    bound = monitor.clip_norm
    return norms, float(CLIP_MARGIN) * bound / norms.clamp(min=bound) / monitor.expected_batch


def _arrays(*tensors: Tensor) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(each.detach().numpy() for each in tensors)
