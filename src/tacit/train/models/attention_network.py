"""A network with attention over histories: NumPy weights that torch reads and training changes in place.

Events of all examples lie one after the other, so that short histories cost nothing. Gradients are torch's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput
from tacit.kernels import training as kernels
from tacit.train.examples import Examples, Sizes
from tacit.train.models.architectures import Din, expect_history, expect_part
from tacit.train.models.model import Architecture, GradientSums, NormalSource, Part, TableIds
from tacit.train.models.two_tower_network import OUTPUT, PUBLIC, SENSITIVE, read_ids, rescale_output

CANDIDATE, EVENTS, OF = "candidate", "events", "of"  # what else is read: of the public table, and by whom
WEIGHT = "weight"
NOTHING = np.empty((0, 1), np.int32)
_READ = (PUBLIC, SENSITIVE, CANDIDATE, EVENTS)


@dataclass(eq=False)
class AttentionNetwork:
    """Layers' weights are (width, inputs): `attention.*` and `weight` say how much an event counts."""

    architecture: Architecture
    shape: Din
    sizes: Sizes
    tables: dict[str, Floats32]  # (rows, dim) by side
    dense: dict[str, Floats32]
    penalised_from: int = 0

    @classmethod
    def fresh(cls, shape: Din, sizes: Sizes, normal: NormalSource) -> AttentionNetwork:
        """Embeddings N(0, start^2), layers N(0, 2 / inputs) (He et al. 2015), biases 0."""
        rows = {PUBLIC: sizes.public_rows, SENSITIVE: sizes.sensitive_rows}
        tables = {name: normal((count, shape.dim), scale=shape.start) for name, count in rows.items()}
        event = len(shape.history) * shape.dim
        joined = (sizes.public_fields + sizes.sensitive_fields) * shape.dim + event + 1
        dense: dict[str, Floats32] = {}
        for names, chain in (
            (_unit(shape), (4 * event + len(shape.history), *shape.attention, 1)),
            (_tower(shape), (joined, *shape.layers, 1)),
        ):
            for name, (inputs, width) in zip(names, pairwise(chain), strict=True):
                dense[f"{name}.weight"] = normal((width, inputs), scale=math.sqrt(2 / inputs))
                dense[f"{name}.bias"] = np.zeros(width, np.float32)
        return cls(shape, shape, sizes, tables, dense)

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        """Besides the two tables': the candidate's own (batch, channels), the events' (events, channels), and
        whose each event is (events, 1)."""
        expect_part(self.architecture, part)
        expect_history(self.architecture, examples)
        public = read_ids(PUBLIC, examples.public, rows, len(self.tables[PUBLIC]))
        histories = [examples.histories[name] for name in self.shape.history]
        channels, owner = [], None
        for history in histories:
            ids, whose = history.last(rows, self.shape.length)
            if owner is not None and not np.array_equal(owner, whose):
                raise BadInput(f"expected {', '.join(self.shape.history)} of equal lengths, got others")
            channels.append(ids)
            owner = whose
        events = np.stack(channels, axis=1)
        if events.size and (events.min() < 0 or events.max() >= len(self.tables[PUBLIC])):
            raise BadInput(f"expected histories of ids from 0 to {len(self.tables[PUBLIC]) - 1}, got another")
        return {
            PUBLIC: public,
            SENSITIVE: read_ids(SENSITIVE, examples.sensitive, rows, len(self.tables[SENSITIVE])),
            CANDIDATE: np.ascontiguousarray(public[:, [history.field for history in histories]]),
            EVENTS: events,
            OF: NOTHING if owner is None else owner.astype(np.int32)[:, None],
        }

    def trained_ids(self, ids: TableIds, part: Part) -> TableIds:  # noqa: ARG002 (it has one part)
        read = np.concatenate([ids[PUBLIC].ravel(), ids[EVENTS].ravel()])  # the candidate's are public fields
        return {PUBLIC: read[:, None], SENSITIVE: np.ascontiguousarray(ids[SENSITIVE])}

    def trained_rows(self, part: Part) -> dict[str, slice]:  # noqa: ARG002
        return {name: slice(0, len(table)) for name, table in self.tables.items()}

    def trained_dense(self, part: Part) -> tuple[str, ...]:  # noqa: ARG002
        return tuple(self.dense)

    def start_at(self, score: float) -> None:
        self.dense[f"{OUTPUT}.bias"][:] = score

    def rescale(self, slope: float, shift: float) -> None:
        rescale_output(self.dense, slope, shift)

    def forward(self, ids: TableIds, part: Part) -> AttentionPass:
        expect_part(self.architecture, part)
        return AttentionPass(self, ids)

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats32]:  # noqa: ARG002
        raise _refusal()


class AttentionPass:
    """One microbatch; `scores` are (batch,)."""

    def __init__(self, network: AttentionNetwork, ids: TableIds) -> None:
        self._network, self._ids = network, ids
        self._dense = {name: torch.from_numpy(array).requires_grad_() for name, array in network.dense.items()}
        self._read = {name: _embeddings(network.tables[_table(name)], ids[name]) for name in _READ}
        self._scores = self._forward()
        self.scores: Floats32 = self._scores.detach().numpy().copy()

    def squared_norms(self, residual: Floats32) -> Floats32:  # noqa: ARG002
        raise _refusal()

    def squared_norms_grouped(self, residual: Floats32, groups: NDArray[np.int64]) -> Floats32:  # noqa: ARG002
        raise _refusal()

    def accumulate(self, coefficients: Floats32, into: GradientSums) -> None:
        torch.autograd.backward(self._scores, torch.from_numpy(np.ascontiguousarray(coefficients, np.float32)))
        for name, leaf in self._dense.items():
            if leaf.grad is not None:  # no event, no gradient of the attention
                torch.from_numpy(into.dense[name]).add_(leaf.grad)
        for name, leaf in self._read.items():
            if leaf.grad is not None and leaf.numel():
                kernels.add_rows(into.tables[_table(name)], self._ids[name], leaf.grad.numpy())

    def _forward(self) -> torch.Tensor:
        shape, read = self._network.shape, self._read
        batch = len(self._ids[PUBLIC])
        event = read[EVENTS].flatten(1)  # (events, channels * dim)
        of = torch.from_numpy(self._ids[OF][:, 0].astype(np.int64))
        candidate = read[CANDIDATE].flatten(1)[of]
        same = torch.from_numpy(self._ids[EVENTS] == self._ids[CANDIDATE][self._ids[OF][:, 0]]).float()
        unit = torch.cat([candidate, event, candidate - event, candidate * event, same], dim=1)
        weight = self._through(_unit(shape), unit)  # (events, 1)
        pooled = torch.zeros(batch, event.shape[1]).index_add(0, of, weight * event)
        amount = torch.zeros(batch, 1).index_add(0, of, weight)
        joined = torch.cat([read[PUBLIC].flatten(1), read[SENSITIVE].flatten(1), pooled, amount], dim=1)
        return self._through(_tower(shape), joined)[:, 0]

    def _through(self, layers: tuple[str, ...], hidden: torch.Tensor) -> torch.Tensor:
        for name in layers:
            hidden = torch.nn.functional.linear(
                hidden, self._dense[f"{name}.weight"], self._dense[f"{name}.bias"]
            )
            hidden = hidden if name in (OUTPUT, WEIGHT) else torch.relu(hidden)
        return hidden


def _refusal() -> BadInput:
    return BadInput("expected method plain or label-dp for din, which has no gradients by example, got DP-SGD")


def _table(read: str) -> str:
    return SENSITIVE if read == SENSITIVE else PUBLIC


def _unit(shape: Din) -> tuple[str, ...]:
    return (*(f"attention.{index}" for index in range(len(shape.attention))), WEIGHT)


def _tower(shape: Din) -> tuple[str, ...]:
    return (*(f"layers.{index}" for index in range(len(shape.layers))), OUTPUT)


def _embeddings(table: Floats32, ids: Ids) -> torch.Tensor:
    out = np.empty((*ids.shape, table.shape[1]), np.float32)  # (batch or events, fields, dim)
    kernels.take_rows(table, ids, out)
    return torch.from_numpy(out).requires_grad_()
