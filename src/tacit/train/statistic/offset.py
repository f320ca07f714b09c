"""A model beside one that is fitted to the noisy statistic: the fitted logit is added, and stays as it is.

What DP-SGD learns is then what the statistic leaves over, with first weights of its own. A warm start would
give it a public tower that clipped steps pull away from where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.errors import BadInput
from tacit.privacy.randomness import Source
from tacit.train.examples import Examples, Sizes
from tacit.train.models.factorization_machine import TABLE
from tacit.train.models.model import Architecture, ForwardPass, Model, NormalSource, Part, TableIds
from tacit.train.statistic.method import PlannedStatistic
from tacit.train.statistic.model import FactorModel, FieldFactors, FieldFmModel

FIXED_TABLE, FIXED_BIAS = "statistic", "statistic.bias"


@dataclass(frozen=True)
class BesideStatistic:
    """A model of shape `own`, and beside it what is fitted to a statistic, with `rank` factors for a value."""

    own: Architecture
    rank: int = 4
    name: ClassVar[str] = "beside-statistic"

    def __post_init__(self) -> None:
        if not hasattr(self.own, "build") or isinstance(self.own, BesideStatistic | FieldFactors):
            raise BadInput(f"expected own as the shape of a model trained in steps, got {self.own!r}")
        expect.whole("rank", self.rank, at_least=0)

    def build(self, sizes: Sizes, normal: NormalSource) -> OffsetModel:
        """With nothing beside it as yet: `set_aside` has what was fitted."""
        fixed = FieldFactors(self.rank).build(sizes, normal)
        return OffsetModel(self, sizes, self.own.build(sizes, normal), fixed)


@dataclass(eq=False)
class OffsetModel:
    """`own` with the score of `fixed` added. Training changes `own` alone."""

    architecture: Architecture
    sizes: Sizes
    own: Model
    fixed: FieldFmModel
    tables: dict[str, Floats32] = field(init=False)
    dense: dict[str, Floats32] = field(init=False)
    penalised_from: int = field(init=False)

    def __post_init__(self) -> None:
        self.tables = {**self.own.tables, FIXED_TABLE: self.fixed.table}
        self.dense = {**self.own.dense, FIXED_BIAS: self.fixed.bias}
        self.penalised_from = self.own.penalised_from

    def ids(self, examples: Examples, rows: NDArray[np.int64], part: Part) -> TableIds:
        return {
            **self.own.ids(examples, rows, part),
            FIXED_TABLE: self.fixed.ids(examples, rows, Part.TRUNCATED)[TABLE],
        }

    def trained_ids(self, ids: TableIds, part: Part) -> TableIds:
        return self.own.trained_ids(_own_ids(ids), part)

    def trained_rows(self, part: Part) -> dict[str, slice]:
        return self.own.trained_rows(part)

    def trained_dense(self, part: Part) -> tuple[str, ...]:
        return self.own.trained_dense(part)

    def start_at(self, score: float) -> None:
        self.own.start_at(score)

    def rescale(self, slope: float, shift: float) -> None:
        self.own.rescale(slope, shift)
        self.fixed.rescale(slope, 0.0)

    def forward(self, ids: TableIds, part: Part) -> ForwardPass:
        passed = self.own.forward(_own_ids(ids), part)
        passed.scores += self.fixed.forward({TABLE: ids[FIXED_TABLE]}, Part.TRUNCATED).scores
        return passed

    def example_gradient(self, ids: TableIds, index: int, part: Part) -> dict[str, Floats32]:
        return self.own.example_gradient(_own_ids(ids), index, part)


def set_aside(
    planned: PlannedStatistic, model: Model, examples: Examples, source: Source, *, alpha: float
) -> None:
    """Tell the statistic, once, and put what is fitted to it beside the model from now on.

    Checkpoints have it: a run that goes on from one has told it already. One that has kept none tells a fresh
    one, since nobody has seen the one before.
    """
    simulated = not source.fit_for_release
    fitted = planned.train(
        examples.labels, examples.public_ids, source, source, simulated=simulated, alpha=alpha
    )
    put_beside(model, fitted)


def put_beside(model: Model, fitted: FactorModel) -> None:
    """From now on scores have this logit added."""
    assert isinstance(model, OffsetModel), "checked when the run was made"
    filled = FieldFactors(fitted.rank).filled(model.sizes, fitted)
    model.fixed.table[...] = filled.table
    model.fixed.bias[...] = filled.bias


def own_model(model: Model) -> Model:
    """The model that is trained, whatever stands beside it."""
    return model.own if isinstance(model, OffsetModel) else model


def _own_ids(ids: TableIds) -> Mapping[str, NDArray[np.int32]]:
    return {name: read for name, read in ids.items() if name != FIXED_TABLE}
