"""What training asks of a model: scores, per-example gradient norms without per-example gradients, and sums.

One microbatch goes through a model in three moves, so that clipping costs no second forward pass:

    passed = model.forward(model.ids(examples, rows, part), part)   # passed.scores: (batch,)
    squares = passed.squared_norms(residual)                        # of d loss / d parameters, by example
    passed.accumulate(residual * weight, sums)                      # sums += sum_i weight_i * gradient_i

Parameters are NumPy arrays of float32: `tables` (rows, width) are read sparsely by ids, `dense` ones wholly.
`predict` gives what a model expects of examples: probabilities, counts or values, by its head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32, Ids
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.train.examples import Examples, Sizes
from tacit.train.targets import Head

TableIds = Mapping[str, Ids]  # by table: (batch, fields read from it)
PREDICTION_BATCH = 16384  # the network of the default widths takes 200 MB for it, and larger ones are no faster


class NormalSource(Protocol):
    """`normal` of an `Entropy` or a `Simulation`."""

    def __call__(self, shape: int | Iterable[int] | None = None, *, scale: float = 1.0) -> Any: ...


class Part(Choice):
    """The towers of a model that are used, and those that are trained: both, or the public one alone."""

    WHOLE = "whole"  # both towers, both trained
    TRUNCATED = "truncated"  # the sensitive tower left out: a model of public features alone
    SENSITIVE = "sensitive"  # both towers used, the public one frozen


@dataclass(frozen=True)
class GradientSums:
    """Where gradients are added up: arrays of the shapes of a model's tables and dense parameters.

    `pulls` (rows,) is there for tables whose update can take a gradient of the form A_r - pull_r * embedding_r
    in its two parts: a model may leave the second one there (`kernels.training.fm_scatter`).
    """

    tables: Mapping[str, Floats32]
    dense: Mapping[str, Floats32]
    pulls: Mapping[str, Floats32] = field(default_factory=dict)


class ForwardPass(Protocol):
    """One microbatch on its way through a model."""

    scores: Floats32  # (batch,)

    def squared_norms(self, residual: Floats32) -> Floats32:
        """|residual_i * d score_i / d trained parameters|^2, exactly, rows that an example repeats included."""
        ...

    def squared_norms_grouped(self, residual: Floats32, groups: NDArray[np.int64]) -> Floats32:
        """The same of the gradient sum of each group 0, 1, ...; `groups` is rising."""
        ...

    def accumulate(self, coefficients: Floats32, into: GradientSums) -> None:
        """into += sum_i coefficients_i * d score_i / d trained parameters."""
        ...


class Model(Protocol):
    architecture: Architecture
    sizes: Sizes
    tables: dict[str, Floats32]
    dense: dict[str, Floats32]
    penalised_from: int  # a table's first column that a penalty pulls to 0: embeddings, where there are any

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        """What these rows of the log (`Examples.rows`) read from each table; ids out of range are refused."""
        ...

    def trained_ids(self, ids: TableIds, part: Part) -> TableIds:
        """Those of them whose rows are trained, by table; contiguous."""
        ...

    def trained_rows(self, part: Part) -> dict[str, slice]:
        """The rows of each table that are trained; a table that is frozen or unused is left out."""
        ...

    def trained_dense(self, part: Part) -> tuple[str, ...]:
        """The dense parameters that are trained."""
        ...

    def start_at(self, score: float) -> None:
        """Begin with this score for everybody: the common bias."""
        ...

    def rescale(self, slope: float, shift: float) -> None:
        """Turn every score into slope * score + shift, for a slope above 0."""
        ...

    def forward(self, ids: TableIds, part: Part) -> ForwardPass: ...

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats32]:
        """d score / d trained parameters of one example, the slow and obvious way.

        Keys are dense names, and `table[row]` for each distinct table row that the example reads.
        """
        ...


def named_weights(model: Model) -> dict[str, Floats32]:
    """All parameters by the names under which files keep them: `tables.NAME` and `dense.NAME`."""
    tables = {f"tables.{name}": array for name, array in model.tables.items()}
    return {**tables, **{f"dense.{name}": array for name, array in model.dense.items()}}


class Architecture(Protocol):
    """A model's shape as a frozen value; `name` and the fields are what a configuration file says."""

    @property
    def name(self) -> str: ...

    def build(self, sizes: Sizes, normal: NormalSource) -> Model:
        """A model with fresh weights from `normal`; they are public, so any source will do."""
        ...


def predict(
    model: Model, examples: Examples, part: Part, head: Head, batch: int = PREDICTION_BATCH
) -> Floats32:
    """One prediction for each example, in their order."""
    step = expect.whole("batch", batch, at_least=1)
    if _sizes_read(examples.sizes, part) != _sizes_read(model.sizes, part):
        raise BadInput(f"expected examples of {model.sizes}, got {examples.sizes}")
    predictions = np.empty(len(examples), np.float32)
    for start in range(0, len(examples), step):
        places = np.arange(start, min(start + step, len(examples)), dtype=np.int64)
        ids = model.ids(examples, examples.rows(places), part)
        predictions[places[0] : places[-1] + 1] = head.mean(model.forward(ids, part).scores)
    return predictions


def _sizes_read(sizes: Sizes, part: Part) -> tuple[int, ...]:
    """The sizes of what this part of a model reads."""
    sensitive = () if part is Part.TRUNCATED else (sizes.sensitive_fields, sizes.sensitive_rows)
    return (sizes.public_fields, sizes.public_rows, *sensitive)
