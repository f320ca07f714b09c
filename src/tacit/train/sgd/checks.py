"""A private run looks at itself: in every step one record and one table row are computed again, slowly and
apart.

A run that clips too little or forgets its noise looks like a very good run. What is looked at is drawn afresh
in every step, so that an error anywhere is met sooner or later; then the run stops, and nothing leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import SelfCheckFailed
from tacit.train.models.model import Model, Part, Sums, TableIds
from tacit.train.sgd.sampling import Places
from tacit.train.targets import Floats

TOLERANCE = 1e-3
"""Both sides are float32 sums of different order; a forgotten term is off by percents."""

ULPS = 8 * float(np.finfo(np.float32).eps)
TINY = 1e-37  # kernels take smaller numbers for 0

MOST_MEMBERS = 16  # of a group that is looked at; of larger ones the smallest is taken
CANDIDATES = 4  # rows of a record that are tried for one that no other record reads


def expect_close(
    what: str, found: NDArray[np.floating], expected: NDArray[np.floating], scale: float = 0.0
) -> None:
    """Stop unless both agree, up to the rounding of numbers as large as `scale` or the largest expected."""
    size = np.abs(expected)
    rounding = 1e-5 * (scale + float(size.max()))
    close = np.abs(found - expected) <= rounding + TOLERANCE * size  # np.allclose takes ten times as long
    if not math.isfinite(rounding) or not close.all():  # what is not finite is not close
        raise SelfCheckFailed(f"{what}, got another; the run was stopped and nothing leaves")


@dataclass(frozen=True)
class Moved:
    """Where numbers were, how far they are to go from there, and how large the parts are that add up to it,
    which bound what rounding does to it."""

    was: NDArray[np.float64]
    move: NDArray[np.float64]
    size: NDArray[np.float64]


def expect_moved(what: str, found: NDArray[np.floating], moved: Moved) -> None:
    """Stop unless numbers went by their move: to within a part of the move itself, however small it is beside
    the numbers, and their rounding."""
    rounding = ULPS * (np.abs(moved.was) + np.abs(moved.move) + moved.size) + TINY
    close = np.abs(found - moved.was - moved.move) <= TOLERANCE * np.abs(moved.move) + rounding
    if not close.all():
        raise SelfCheckFailed(f"{what}, got another; the run was stopped and nothing leaves")


def check_clipping(
    model: Model,
    ids: TableIds,
    part: Part,
    residual: Floats,
    norms: Floats,
    scale: Floats,
    clip_norm: np.float32,
    groups: Places | None,
    chosen: int,
) -> None:
    """Stop unless the chosen record's norm is what it says, and every clipped norm keeps within the bound."""
    members = np.array([chosen]) if groups is None else np.flatnonzero(groups == chosen)
    if len(members) > MOST_MEMBERS:  # computed one by one, they would take longer than the step
        members, chosen = _smallest_group(groups)
    slow = slow_norm(model, ids, part, residual, members)
    expect_close(
        "clipping: expected the fast gradient norm of a record to equal the slow one",
        norms[chosen : chosen + 1],
        np.array([slow]),
        float(clip_norm),
    )
    if not float((scale * norms).max()) <= clip_norm:
        raise SelfCheckFailed(
            f"clipping: expected norms of at most {clip_norm:g}, got a larger one; nothing leaves"
        )


def _smallest_group(groups: Places | None) -> tuple[Places, int]:
    assert groups is not None, "a single record is never too many"
    smallest = int(np.argmin(np.bincount(groups)))
    return np.flatnonzero(groups == smallest), smallest


@dataclass(frozen=True)
class Probe:
    """A table row that one record of a microbatch reads and no other, as it is before gradients are added
    up."""

    table: str
    row: int
    gradient: Floats  # what the record is to add to it
    before: Floats
    pull_before: float

    @classmethod
    def on(
        cls, model: Model, ids: TableIds, part: Part, record: int, coefficient: np.float32, sums: Sums
    ) -> Probe | None:
        """None where others read all of the rows that were tried."""
        rows = [name for name in model.example_gradient(ids, record, part) if name.endswith("]")]
        for name in rows[:CANDIDATES]:
            table, row = name[:-1].split("[")
            reads = np.count_nonzero(ids[table] == int(row))
            if reads == np.count_nonzero(ids[table][record] == int(row)):
                gradient = model.example_gradient(ids, record, part)[name] * coefficient
                pulls = sums.pulls.get(table)
                before = sums.tables[table][int(row)].copy()
                return cls(table, int(row), gradient, before, 0.0 if pulls is None else float(pulls[int(row)]))
        return None

    def check(self, model: Model, sums: Sums) -> None:
        """Stop unless the row got that record's gradient, once."""
        added = sums.tables[self.table][self.row] - self.before
        if self.table in sums.pulls:
            pull = float(sums.pulls[self.table][self.row]) - self.pull_before
            added[1:] -= np.float32(pull) * model.tables[self.table][self.row, 1:]
        scale = float(np.abs(self.before).max() + np.abs(self.gradient).max())
        expect_close(
            "clipping: expected a row to get its one reader's clipped gradient", added, self.gradient, scale
        )


def slow_norm(model: Model, ids: TableIds, part: Part, residual: Floats, members: Places) -> float:
    """The gradient norm of some records together, from their gradients."""
    total: dict[str, Floats] = {}
    for index in members.tolist():
        for name, gradient in model.example_gradient(ids, index, part).items():
            own = residual[index] * gradient
            total[name] = total[name] + own if name in total else own
    whole = np.concatenate([gradient.ravel() for gradient in total.values()]).astype(np.float64)
    return math.sqrt(float(whole @ whole))
