"""What is publicly expected of a label before anything about it was reported."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import BadInput


@dataclass(frozen=True, eq=False)
class Prior:
    """Probabilities of the classes: one list for all examples, or one for each group of them.

    `table` is (groups, classes); `groups` holds the group of every example, None: all are in group 0. Both must
    be free of the labels that are to be reported. They may come from public data, or from a model that was
    trained on other units' noisy labels, at their expense: then no unit may have examples on both sides (by
    impression any two halves will do, by user it must be two halves of the users).
    """

    table: NDArray[np.float64]
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        table = np.array(self.table, np.float64, ndmin=2)
        if table.ndim != 2 or table.shape[1] < 2:
            raise BadInput(f"expected a prior of shape (groups, 2 or more classes), got {table.shape}")
        if not np.all(table >= 0) or not np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-6):
            raise BadInput("expected each prior to be probabilities that sum to 1, got another")
        table.flags.writeable = False
        object.__setattr__(self, "table", table)
        if self.groups is None:
            if len(table) != 1:
                raise BadInput(f"expected the group of every example for {len(table)} priors, got none")
            return
        groups = np.asarray(self.groups)
        if groups.ndim != 1 or groups.dtype.kind not in "iu":
            raise BadInput(f"expected one whole group per example, got dtype {groups.dtype} {groups.shape}")
        if groups.size and (groups.min() < 0 or groups.max() >= len(table)):
            raise BadInput(f"expected groups in 0..{len(table) - 1}, got one outside")
        object.__setattr__(self, "groups", groups.astype(np.int64))

    @classmethod
    def of_rate(cls, rates: ArrayLike) -> Prior:
        """For labels of 0 or 1: the probability of a 1, one for all examples or one for each."""
        rate = np.asarray(rates, np.float64)
        table = np.stack([1 - rate, rate], axis=-1)
        return cls(table, np.arange(len(rate)) if rate.ndim else None)

    def groups_of(self, rows: NDArray[np.intp], *, examples: int) -> NDArray[np.int64]:
        """The groups of these places within the examples."""
        if self.groups is None:
            return np.zeros(len(rows), np.int64)
        if len(self.groups) != examples:
            raise BadInput(f"expected the prior's group of {examples} examples, got {len(self.groups)}")
        return self.groups[rows]

    def check_classes(self, count: int) -> None:
        if self.table.shape[1] != count:
            raise BadInput(f"expected a prior over {count} classes, got {self.table.shape[1]}")
