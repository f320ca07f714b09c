"""The noisy statistic: its public plan, and the one release of positives per cell with Gaussian noise.

Tables, shares, weights, sensitivity and noise are known, and paid for, before a label is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit.arrays import Floats
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.budget import format_rounded_up
from tacit.privacy.randomness import Source
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit
from tacit.train.statistic.design import StatisticPrior
from tacit.train.statistic.tables import GRID, CellTables, TableCells

DIVISION = 1 + 2.0**-50  # more than what rounding takes from a quotient and a root


@dataclass(frozen=True, eq=False)
class StatisticPlan:
    """What will be released, for whom and with how much noise: known, and paid for, before a label is read.

    `release` speaks of the statistic in the scale of the shares: cell c of table t times the root of share t.
    """

    tables: CellTables
    cells: TableCells
    shares: Floats  # (tables,)
    weights: Floats  # (rows,): of each row, equal within a unit
    unit: Unit
    release: GaussianStatistic
    delta: float
    prior: StatisticPrior
    rank: int

    @property
    def noise_by_table(self) -> Floats:
        """The standard deviation of the noise in every cell of each table, in positives."""
        noise: Floats = self.release.noise_stddev / np.sqrt(self.shares) * DIVISION
        return noise

    @property
    def statement(self) -> PrivacyStatement:
        return PrivacyStatement.of(
            [self.release], unit=self.unit, relation=Relation.REPLACE_LABEL, delta=self.delta
        )

    @property
    def words(self) -> str:
        """For people, before anything is released."""
        epsilon = format_rounded_up(self.statement.epsilon)
        pairs = sum(len(fields) == 2 for fields in self.tables.crossed)
        return (
            f"one statistic of {self.cells.count:,} cells in {len(self.shares)} tables, {pairs} of them of "
            f"pairs, over {self.cells.rows:,} rows; label DP for one {self.unit}: ε = {epsilon} at "
            f"δ = {self.delta:g}; sensitivity {self.release.sensitivity:.6g}, noise "
            f"{self.release.noise_stddev:.6g}; a row counts {self.weights.mean():.1%} in the mean"
        )


@dataclass(frozen=True, eq=False)
class ReleasedStatistic:
    """The noisy statistic. `simulated` says that its noise came from a seed: for studies, never to leave."""

    plan: StatisticPlan
    sums: Floats  # (cells,): weighted positives, with noise
    simulated: bool


def release_statistic(
    plan: StatisticPlan, labels: ArrayLike, source: Source, *, simulated: bool = False
) -> ReleasedStatistic:
    """Read the labels, once, and release the statistic. Drawing again is another release, to be paid again.

    Guarantee:  (epsilon, delta)-DP for the labels of one unit: `plan.statement`. Whatever is computed from the
                statistic and public features alone, any number of models, costs nothing more.
    Neighbours: replace label, for one unit (and window): features, unit keys and times are the same in both.
    Assumes:    what `tables.unit_norms` shows of the sensitivity; normals as `entropy` makes them. Sums lie on
                a grid and are exact, and noise is rounded to the same grid: the result is that of adding ideal
                noise and rounding afterwards, so that no digits of it tell about the sums.
    Source:     the Gaussian mechanism: Dwork, Roth 2014, appendix A; its epsilon: Balle, Wang 2018 (arXiv
                1805.06530), theorem 8. Sufficient statistics with noise, for whole records instead of labels:
                Kulkarni et al., ICML 2021; Ferrando, Sheldon 2024 (arXiv 2405.15002).
    """
    if not simulated and not source.fit_for_release:
        raise EntropyMisuse(
            "expected the cryptographic stream for a release, got a simulation; say simulated=True for a study"
        )
    truth = np.asarray(labels)
    if truth.shape != (plan.cells.rows,):
        raise BadInput(f"expected one label for each of {plan.cells.rows} rows, got shape {truth.shape}")
    if not np.isin(truth, (0, 1)).all():
        raise BadInput("expected labels of 0 or 1, got another value")
    sums = plan.cells.gather(plan.weights * truth)  # multiples of GRID, and exact
    cells = plan.cells
    for start, size, noise in zip(cells.starts, cells.sizes, plan.noise_by_table, strict=False):
        drawn = source.normal(size, dtype=np.float64, scale=float(noise))
        sums[start : start + size] += np.round(drawn / GRID) * GRID
    return ReleasedStatistic(plan, sums, simulated)
