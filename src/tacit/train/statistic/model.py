"""What was learned: a logit made of a base, an effect for each value, and products of values' factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit

from tacit.train.statistic.cells import Reals
from tacit.train.statistic.tables import Tables

Floats = NDArray[np.float32]
CHUNK = 2**17


@dataclass(frozen=True, eq=False)
class FactorModel:
    """logit = base + sum_f effect(x_f) + sum_{f < g} factors(x_f) . factors(x_g); linear where rank is 0.

    `rows` holds a row for each value, fields one after another: its factors, then its effect. A value that was
    not there in training adds nothing.
    """

    values: tuple[NDArray[np.int64], ...]
    base: float
    rows: Floats  # (values of all fields, rank + 1)
    simulated: bool

    @property
    def rank(self) -> int:
        return int(self.rows.shape[1]) - 1

    def logits(self, ids: NDArray[np.integer]) -> Reals:
        """(rows,) from public ids, (rows, fields)."""
        parts = [
            scores(Design.of(self.values, ids[start : start + CHUNK]), self.rows)[0]
            for start in range(0, len(ids), CHUNK)
        ]
        return self.base + np.concatenate([np.zeros(0), *parts])

    def predict_proba(self, ids: NDArray[np.integer]) -> Reals:
        probabilities: Reals = expit(self.logits(ids))
        return probabilities


@dataclass(frozen=True, eq=False)
class Design:
    """Which values each row has, as a sparse matrix of ones: (rows, values of all fields)."""

    ones: csr_matrix
    turned: csr_matrix  # its transpose, by rows too: twice as fast as reading it sideways

    @classmethod
    def of(cls, values: tuple[NDArray[np.int64], ...], ids: NDArray[np.integer]) -> Design:
        places = Tables(values, (), ()).places(ids)
        sizes = [len(known) for known in values]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        column = np.stack([start + place for start, place in zip(starts, places, strict=False)], axis=1)
        seen = np.stack([place < size for place, size in zip(places, sizes, strict=True)], axis=1)
        ends = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
        data = np.ones(int(ends[-1]), np.float32)
        ones = csr_matrix((data, column[seen].astype(np.int32), ends), shape=(len(ids), int(starts[-1])))
        return cls(ones, ones.T.tocsr())


def scores(design: Design, rows: Floats) -> tuple[Reals, Floats]:
    """Logits without the base, (rows,), and the sums of factors and effects, (rows, rank + 1)."""
    sums: Floats = design.ones @ rows
    factors = rows[:, :-1]
    squares = design.ones @ np.einsum("vk,vk->v", factors, factors)
    pairs = np.einsum("rk,rk->r", sums[:, :-1], sums[:, :-1]) - squares
    return sums[:, -1].astype(np.float64) + 0.5 * pairs, sums


def gradient(design: Design, rows: Floats, sums: Floats, by_score: Reals) -> Floats:
    """Of a loss in `rows`, from its derivatives in the scores."""
    residual = by_score.astype(np.float32)
    spread = sums * residual[:, None]
    spread[:, -1] = residual
    found: Floats = design.turned @ spread
    found[:, :-1] -= rows[:, :-1] * found[:, -1:]  # a value is no partner of itself
    return found
