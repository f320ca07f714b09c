"""Estimates how much memory a training takes, from its shapes alone, before it begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.arrays import Floats32
from tacit.train.examples import Examples, Sizes
from tacit.train.models.architectures import Din, Fnn, Mlp
from tacit.train.models.factorization_machine import FmModel
from tacit.train.models.model import Architecture, Model
from tacit.train.plan import LabelPhase, Phase, Plan
from tacit.train.settings import Speed
from tacit.train.sgd.descent import most_at_once
from tacit.train.sgd.draws import BLOCK
from tacit.train.sgd.optimizers import MOMENTS, Sgd
from tacit.train.statistic.offset import own_model
from tacit.train.statistic.release import StatisticPlan

WORD, FLOAT, ID = 8, 4, 4
PER_EXAMPLE = 12 * FLOAT  # scores, residuals, norms, weights and what they are made of
ACTIVATIONS = 2.5  # each layer's output, its gradient, and that of one layer or two scaled (2 to 2.4 measured)
STATISTIC_ROW = 6 * WORD  # of every row: its order, hash, kind and weight
KEPT_ROW = 14 * WORD  # of every kind of row: logits, targets, what they are made of, and their sums
CORRECTIONS = 10  # that a fit keeps, and a step and a gradient for each
GROUPED_ROWS, GROUPED_LAYERS = 4, 2  # copies of what a unit's rows and layers add up, in double precision
PER_PLACE = 14 * WORD  # which rows a unit reads where, and a hash table to find them


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes, by what they are for. Columns that are mapped from disk are not in it: they can be dropped."""

    weights: int
    accumulators: int
    moments: int
    bookkeeping: int
    batch: int
    labels: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    def as_json(self) -> dict[str, int]:
        return {**asdict(self), "total": self.total}


def estimate_memory(shape: Architecture, examples: Examples, plan: Plan, speed: Speed) -> MemoryEstimate:
    """What training takes at its largest: phases come one after the other, so the largest of them counts."""
    fitting = None if plan.statistic is None else _statistic_memory(examples, plan.statistic.plan)
    if fitting is not None and plan.only_fits:
        return fitting
    model = plan.trained_shape(shape).build(examples.sizes, _no_memory)
    weights = sum(array.size * FLOAT for array in (*model.tables.values(), *model.dense.values()))
    by_phase = [_phase(model, examples, phase, speed) for phase in plan.phases]
    if fitting is not None:
        by_phase.append({name: size for name, size in fitting.as_json().items() if name in by_phase[0]})
    largest = max(by_phase, key=lambda parts: sum(parts.values()))
    return MemoryEstimate(weights=weights, **largest)


def _statistic_memory(examples: Examples, plan: StatisticPlan) -> MemoryEstimate:
    sizes, rows, kept = examples.sizes, len(examples), plan.cells.kept
    weights = sizes.public_fields * sizes.public_rows * (1 + plan.rank) * FLOAT
    each = (len(plan.shares) + 2 * sizes.public_fields + plan.rank) * ID + KEPT_ROW
    values = sum(map(len, plan.tables.values))
    return MemoryEstimate(
        weights=weights,
        accumulators=0,
        moments=2 * CORRECTIONS * values * (1 + plan.rank) * WORD,
        bookkeeping=STATISTIC_ROW * rows,
        batch=kept * each,
        labels=rows * WORD,
    )


def _no_memory(shape: Any = None, *, scale: float = 1.0) -> Floats32:  # noqa: ARG001 (only the shape counts)
    return np.broadcast_to(np.float32(0), shape)


def _phase(model: Model, examples: Examples, phase: Phase, speed: Speed) -> dict[str, int]:
    learning = phase.learning
    private = not isinstance(phase, LabelPhase)
    by_row = isinstance(learning.optimizer, Sgd) and not learning.penalty
    accumulators = bookkeeping = moments = 0
    kept = len(MOMENTS[type(learning.optimizer)])
    for name in model.trained_rows(phase.part):
        table = model.tables[name]
        accumulators += table.size * FLOAT
        bookkeeping += 4 * len(table) * ID if by_row else 0  # when each row was last read, and which ones are
        bookkeeping += table.size * FLOAT if learning.held_out else 0  # the best weights so far, or fresh ones
        moments += kept * table.size * FLOAT
    for name in model.trained_dense(phase.part):
        size = model.dense[name].size * FLOAT
        accumulators, moments = accumulators + size, moments + kept * size
    read, at_once = min(learning.batch, len(examples)), speed.microbatch
    each, together = _per_example(model, examples.sizes), 0
    if not isinstance(phase, LabelPhase) and phase.groups is not None:
        sizes = np.bincount(phase.groups)
        read = int(min(learning.batch * sizes.mean(), len(examples)))
        largest = int(sizes.max())
        at_once = max(most_at_once(model, at_once, grouped=True), largest)  # nobody's examples are divided
        together = _grouped_norms(model, examples.sizes, min(read, at_once), min(read, largest))
    batch = min(read, at_once) * each + together + read * 6 * WORD
    return {
        "accumulators": accumulators,
        "moments": moments,
        "bookkeeping": bookkeeping + (BLOCK * FLOAT * 2 if private else 0),
        "batch": batch,
        "labels": _labels(phase, len(examples)),
    }


def _per_example(model: Model, sizes: Sizes) -> int:
    """Ids, what the forward pass keeps, and what the backward pass adds."""
    fields = sizes.public_fields + sizes.sensitive_fields
    shape = own_model(model).architecture
    if isinstance(shape, Mlp):
        widths = fields * shape.dim + sum(shape.public_layers) + sum(shape.common_layers)
        return PER_EXAMPLE + 2 * fields * ID + int(ACTIVATIONS * widths * FLOAT)
    if isinstance(shape, Fnn | Din):
        return PER_EXAMPLE + 2 * fields * ID + int(ACTIVATIONS * shape.activations(sizes) * FLOAT)
    width = int(next(iter(own_model(model).tables.values())).shape[1])
    return PER_EXAMPLE + 2 * fields * ID + 2 * width * FLOAT


def _grouped_norms(model: Model, sizes: Sizes, at_once: int, largest: int) -> int:
    """What the norms of whole units add. A network takes them in double precision: of every row that a
    microbatch reads, or of one layer at a time. A factorization machine lists where a unit reads which row."""
    shape, fields = own_model(model).architecture, sizes.public_fields + sizes.sensitive_fields
    if isinstance(own_model(model), FmModel):
        return largest * fields * PER_PLACE
    if isinstance(shape, Mlp):
        read = max(sizes.public_fields, sizes.sensitive_fields) * shape.dim
        return at_once * GROUPED_LAYERS * max(read, *shape.public_layers, *shape.common_layers) * WORD
    width = int(next(iter(own_model(model).tables.values())).shape[1])
    return at_once * GROUPED_ROWS * fields * width * WORD


def _labels(phase: Phase, examples: int) -> int:
    """Targets, where they belong, and the order of an epoch or the members of each unit."""
    if isinstance(phase, LabelPhase):
        noisy = 0 if phase.labelling is None else phase.labelling.count
        return examples * (FLOAT + 2) + noisy * (2 * FLOAT + 3 * WORD) + (noisy or examples) * 3 * WORD
    return examples * (FLOAT + 2) + (0 if phase.groups is None else examples * 3 * WORD)
