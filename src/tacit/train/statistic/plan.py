"""Everything about a release that is public: tables, shares, weights, sensitivity and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.privacy.budget import shown_up
from tacit.privacy.relations import Relation
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit
from tacit.train.statistic.cells import Cells, Reals
from tacit.train.statistic.prior import Prior
from tacit.train.statistic.tables import Tables

DIVISION = 1 + 2.0**-50  # more than what rounding takes from a quotient and a root


@dataclass(frozen=True, eq=False)
class Plan:
    """What will be released, for whom and with how much noise: known, and paid for, before a label is read.

    `release` speaks of the statistic in the scale of the shares: cell c of table t times the root of share t.
    """

    tables: Tables
    cells: Cells
    shares: Reals  # (tables,)
    weights: Reals  # (rows,): of each row, equal within a unit
    unit: Unit
    release: GaussianStatistic
    delta: float
    prior: Prior
    rank: int

    @property
    def noise_by_table(self) -> Reals:
        """The standard deviation of the noise in every cell of each table, in positives."""
        noise: Reals = self.release.noise_stddev / np.sqrt(self.shares) * DIVISION
        return noise

    @property
    def statement(self) -> PrivacyStatement:
        return PrivacyStatement.of(
            [self.release], unit=self.unit, relation=Relation.REPLACE_LABEL, delta=self.delta
        )

    @property
    def words(self) -> str:
        """For people, before anything is released."""
        epsilon = shown_up(self.statement.epsilon)
        pairs = sum(len(fields) == 2 for fields in self.tables.crossed)
        return (
            f"one statistic of {self.cells.count:,} cells in {len(self.shares)} tables, {pairs} of them of "
            f"pairs, over {self.cells.rows:,} rows; label DP for one {self.unit}: ε = {epsilon} at "
            f"δ = {self.delta:g}; sensitivity {self.release.sensitivity:.6g}, noise "
            f"{self.release.noise_stddev:.6g}; a row counts {self.weights.mean():.1%} in the mean"
        )
