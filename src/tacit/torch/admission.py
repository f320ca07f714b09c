"""What can be trained: which modules and optimizers are taken, and why others are refused, each in one line
that names it."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import BadInput, SelfCheckFailed
from tacit.torch.layers import MakePass, rule_for

FUNCTIONAL = 'per_example="functional"'
INSTEAD: dict[type[nn.Module], str] = {
    nn.MultiheadAttention: "its maps are not layers; use nn.Linear and scaled_dot_product_attention",
    nn.RNNBase: "its gradients are not book-kept",
    nn.RNNCellBase: "its gradients are not book-kept",
}
"""What is known not to work and what to use, before the general advice."""


@dataclass(frozen=True, eq=False)
class TrainedLayer:
    """A layer with trained parameters, by its path in the module; `rule` is None where none is needed."""

    path: str
    layer: nn.Module
    rule: MakePass | None
    trained: frozenset[str]

    def named(self, parameter: str) -> str:
        return f"{self.path}.{parameter}" if self.path else parameter


def admit_module(module: nn.Module, *, functional: bool = False) -> list[TrainedLayer]:
    """The layers to be trained; BadInput where an example's gradient would not be known.

    `functional` takes any layer that treats examples one by one, and any parameter that is used in any way.
    """
    if not isinstance(module, nn.Module):
        raise BadInput(f"expected a torch module, got {type(module).__name__}")
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel) or hasattr(
        module, "_orig_mod"
    ):
        raise BadInput(
            f"expected a plain module in one process, got {type(module).__name__}: hand over the module inside"
        )
    owners: dict[int, str] = {}
    found = []
    for path, layer in module.named_modules():
        _refuse_mixing(path, layer)
        trained = {
            name: each for name, each in layer._parameters.items() if each is not None and each.requires_grad
        }
        for name, parameter in trained.items():
            full = f"{path}.{name}" if path else name
            _refuse_parameter(full, parameter)
            if id(parameter) in owners and not functional:
                raise BadInput(
                    f"{full}: expected a parameter of its own, got {owners[id(parameter)]} again: gradients of "
                    f"tied "
                    f"weights have a common norm; untie them, or say {FUNCTIONAL}"
                )
            owners.setdefault(id(parameter), full)
        if not trained:
            continue
        rule = None if functional else rule_for(layer)
        if rule is None and not functional:
            raise BadInput(_unsupported(path, layer, sorted(trained)))
        if not functional:
            _refuse_options(path, layer)
        found.append(TrainedLayer(path, layer, rule, frozenset(trained)))
    if not found:
        raise BadInput("expected a module with parameters to train, got none that requires gradients")
    return found


def _unsupported(path: str, layer: nn.Module, names: list[str]) -> str:
    where, kind = path or "the module itself", type(layer).__name__
    advice = next((words for known, words in INSTEAD.items() if isinstance(layer, known)), "")
    parts = [part for part in (advice, f"freeze it, or say {FUNCTIONAL}") if part]
    return (
        f"{where}: expected trained parameters in Linear, Embedding, EmbeddingBag, Conv1d, Conv2d, LayerNorm, "
        f"RMSNorm "
        f"or GroupNorm, got {', '.join(names)} of {kind}: {'; '.join(parts)}"
    )


def _refuse_mixing(path: str, layer: nn.Module) -> None:
    """Layers whose output for one example depends on the others of its batch, or that remember them."""
    kind = type(layer).__name__
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        raise BadInput(
            f"{path}: expected layers that treat each example by itself, got {kind}, which mixes a batch and "
            f"keeps "
            "its averages: use GroupNorm or LayerNorm"
        )
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        raise BadInput(
            f"{path}: expected track_running_stats=False, got True: it keeps averages of examples that nothing "
            f"hides"
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        raise BadInput(
            f"{path}: expected max_norm=None, got {layer.max_norm:g}: rows that are read would be changed "
            f"without noise"
        )


def _refuse_options(path: str, layer: nn.Module) -> None:
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        if layer.scale_grad_by_freq:
            raise BadInput(
                f"{path}: expected scale_grad_by_freq=False, got True: it weighs examples by one another"
            )
        if layer.sparse:
            raise BadInput(f"{path}: expected sparse=False, got True: noise is added to every row, read or not")
    if isinstance(layer, nn.EmbeddingBag) and layer.mode == "max":
        raise BadInput(f"{path}: expected mode 'sum' or 'mean', got 'max'; or say {FUNCTIONAL}")


def _refuse_parameter(name: str, parameter: nn.Parameter) -> None:
    if isinstance(parameter, nn.UninitializedParameter):
        raise BadInput(f"{name}: expected a parameter with a shape, got a lazy one: run the module once before")
    if parameter.dtype not in (torch.float32, torch.float64):
        raise BadInput(f"{name}: expected float32 or float64, got {parameter.dtype}")
    if parameter.device.type != "cpu":
        raise BadInput(f"{name}: expected a parameter on the CPU, got {parameter.device}")


def admit_optimizer(
    optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], scheduler: object = None
) -> None:
    """BadInput unless this moves exactly the trained parameters, by the gradients that it finds in them, at
    rates that follow from the number of steps alone."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise BadInput(f"expected a torch optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise BadInput(
            "expected an optimizer that takes one gradient per step, got LBFGS, which asks for several"
        )
    moved = {id(each) for group in optimizer.param_groups for each in group["params"] if each.requires_grad}
    for name, parameter in parameters.items():
        if id(parameter) not in moved:
            raise BadInput(
                f"{name}: expected an optimizer with every trained parameter, got one without: freeze it"
            )
    if moved - {id(each) for each in parameters.values()}:
        raise BadInput("expected an optimizer of the module's parameters alone, got one with others")
    if scheduler is None:
        return
    kind = type(scheduler).__name__
    if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
        raise BadInput(f"expected a torch scheduler of learning rates, got {kind}")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise BadInput(
            f"expected a scheduler that counts steps, got {kind}, which asks for a metric of records"
        )
    if getattr(scheduler, "optimizer", None) is not optimizer:
        raise BadInput(f"expected a scheduler of the run's optimizer, got a {kind} of another one")


class HeldParameters:
    """Which parameters a run trains and which it leaves alone, as they were when it was made: it is stopped
    where they are others, since their gradients would be un-noised."""

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, trained: Mapping[str, nn.Parameter]
    ) -> None:
        self._module, self._optimizer = module, optimizer
        self._trained = {id(each) for each in trained.values()}
        self._named, self._moved = self._named_now(), self._moved_now()
        self.refuse_earlier_steps()

    def refuse_earlier_steps(self) -> None:
        """BadInput where the optimizer remembers steps: these would move the weights, and have no noise."""
        for state in self._optimizer.state.values():
            if state and float(state.get("step", 1)) != 0:  # Adagrad has zeros from the start
                raise BadInput(
                    "expected an optimizer that has not stepped yet, got "
                    f"{type(self._optimizer).__name__} with a state of earlier steps: make a new one"
                )

    def check(self) -> None:
        """SelfCheckFailed unless all is as it was; what is not trained has no gradient afterwards."""
        now = self._named_now()
        for name in self._named.keys() | now.keys():
            if now.get(name) != self._named.get(name):
                raise SelfCheckFailed(
                    f"{name}: expected parameters that stay trained or frozen as the run was made, got others; "
                    "it was stopped and nothing leaves"
                )
        if self._moved_now() != self._moved:
            raise SelfCheckFailed(
                "expected an optimizer with the parameters that the run was made for, got another group of "
                "them: the run was stopped and nothing leaves"
            )
        for group in self._optimizer.param_groups:
            for each in group["params"]:
                if id(each) not in self._trained:
                    each.grad = None  # a gradient of earlier steps, which nobody has clipped

    def _named_now(self) -> dict[str, tuple[int, bool]]:
        return {
            name: (id(each), each.requires_grad)
            for name, each in self._module.named_parameters(remove_duplicate=False)
        }

    def _moved_now(self) -> list[int]:
        return sorted(id(each) for group in self._optimizer.param_groups for each in group["params"])


class HeldBuffers:
    """What a module has besides parameters, buffers that its `state_dict` leaves out too, as it was when the
    run began: it gets no noise, so a run in which it changes is stopped."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._kept = {name: copy.deepcopy(each) for name, each in self._now().items()}

    def check(self) -> None:
        """SelfCheckFailed, by its name, where something is no longer what it was."""
        now = self._now()
        for name in sorted(self._kept.keys() | now.keys()):
            if name not in now or name not in self._kept or not _is_same(self._kept[name], now[name]):
                raise SelfCheckFailed(
                    f"{name}: expected a buffer that stays as it was, got another: what it keeps of records "
                    "would leave without noise; the run was stopped and nothing leaves (a cache of places or "
                    "shapes: run the module once before)"
                )

    def _now(self) -> dict[str, Any]:
        found = dict(self._module.named_buffers(remove_duplicate=False))
        found |= self._module.state_dict(keep_vars=True)
        return {
            name: each.detach() if isinstance(each, Tensor) else each
            for name, each in found.items()
            if not isinstance(each, nn.Parameter)
        }


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        same = one.shape == other.shape and one.dtype == other.dtype
        return same and bool(torch.eq(one, other).logical_or(one.isnan() & other.isnan()).all())
    return pickle.dumps(one) == pickle.dumps(other)  # a module's extra state, of any kind


def admit_state(
    state: Mapping[str, Any],
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None,
) -> None:
    """BadInput unless what was kept is of this module, optimizer and scheduler: nothing is loaded by half."""
    own, kept = _shapes(module.state_dict()), _shapes(state["module"])
    for name in sorted(own.keys() | kept.keys()):
        if own.get(name) != kept.get(name):
            raise BadInput(
                f"expected a state of the same module, {name} of {own.get(name, 'nothing')}, got "
                f"{kept.get(name, 'nothing')}"
            )
    found = state.get("scheduler")
    if scheduler is None:
        if found is not None:
            raise BadInput("expected a state of a run without a scheduler, got one with a scheduler")
    elif not isinstance(found, Mapping) or found.keys() != scheduler.state_dict().keys():
        got = "none" if found is None else "another"
        raise BadInput(f"expected a state with the scheduler {type(scheduler).__name__}, got {got}")
    if _groups(state["optimizer"]) != _groups(optimizer.state_dict()):
        raise BadInput(
            f"expected a state of the same optimizer, {type(optimizer).__name__} with the same groups of "
            f"parameters, got another"
        )


def weights_digest(module: nn.Module) -> str:
    """A digest of all weights and buffers, by their names."""
    digest = hashlib.sha256()
    for name, each in module.state_dict().items():
        if isinstance(each, Tensor):
            digest.update(f"{name} {tuple(each.shape)} {each.dtype} ".encode())
            digest.update(each.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _shapes(state: Mapping[str, Any]) -> dict[str, str]:
    """Of each entry its kind, and its shape if it has one."""
    return {
        name: f"shape {tuple(each.shape)}" if isinstance(each, Tensor) else type(each).__name__
        for name, each in state.items()
    }


def _groups(state: Mapping[str, Any]) -> list[tuple[list[str], int]] | None:
    """Of each group the names of its settings and how many parameters it has; None if there are none."""
    try:
        return [(sorted(group), len(group["params"])) for group in state["param_groups"]]
    except (KeyError, TypeError):
        return None
