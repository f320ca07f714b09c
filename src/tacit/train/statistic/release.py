"""The noisy statistic: how tables share its noise, its public plan, and the one release of positives per cell.

Tables, shares, weights, sensitivity and noise are known, and paid for, before a label is read.

Shares of one unit of squared norm are such that noise does the least harm under a public prior, which is what
one expects before any label was seen: it shapes the noise and the fit, and no guarantee rests on it.

A table with share d^2 gets noise of variance s^2 / d^2 in each cell. A cell of n rows has the information
j = v n about its effect, v being a label's variance, and with noise i = j^2 / (j + s^2 / d^2). Expected harm,
up to a factor, is j times what stays unknown. With effects of variance t, what is unknown about a value's
effect is 1 / (1/t + i). With factors of variance f, what is known of a pair's product is the product of the
shares r_a and r_b that are known of the two values' factors,

    r_a = 1 - 1 / (1 + f^2 sum over cells (a, b) of i r_b),

since a cell tells about one factor only as far as the other is known. Everything is public: counts of rows, the
noise, and the prior. The shares are searched for with r_b = 1 on the right, which has a simple gradient, and
then moved towards those without pairs as far as the harm by the full equations asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput, EntropyMisuse
from tacit.privacy.budget import format_rounded_up
from tacit.privacy.randomness import Source
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit
from tacit.train.sgd.self_checks import FALSE_ALARM, SquareSum
from tacit.train.statistic.tables import GRID, CellTables, TableCells

LEAST_SHARE = 5e-3  # of a pair table; one below it only costs time and memory
ITERATIONS = 60
TOWARDS_PAIRS = (0.0, 0.25, 0.5, 0.75, 1.0)
ROUNDS = 20  # of the equations for r, from everything known downwards
LEARNED = 0.5
"""Of what the equations say is known about a product, what a fit really learns: they take all directions of the
other factors as known. Measured: without it pairs are chosen at epsilons where they lose to values alone."""
_TINY = 1e-9


@dataclass(frozen=True)
class StatisticPrior:
    """`rate` of positives, and how much of the logit's variance all fields and all pairs of fields explain.

    Guesses from public knowledge: taken from the labels they would be a release of their own. They are shared
    out evenly: a value's effect is N(0, value_variance / fields), and the `rank` factors of a value are
    N(0, v) each, with v such that the products over all pairs of fields have `pair_variance` in sum.
    """

    rate: float = 0.05
    value_variance: float = 1.0
    pair_variance: float = 0.25

    def __post_init__(self) -> None:
        expect.probability("rate", self.rate)
        expect.positive("value_variance", self.value_variance)
        expect.positive("pair_variance", self.pair_variance)

    @property
    def logit(self) -> float:
        return math.log(self.rate / (1 - self.rate))

    @property
    def label_variance(self) -> float:
        return self.rate * (1 - self.rate)

    def effect_variance(self, fields: int) -> float:
        return self.value_variance / fields

    def factor_variance(self, fields: int, rank: int) -> float:
        pairs = max(fields * (fields - 1) // 2, 1)
        return math.sqrt(self.pair_variance / (pairs * rank))


@dataclass(frozen=True, eq=False)
class ExpectedHarm:
    """The expected harm of shares, and its gradient. `rows[t]` counts the rows in each cell of table t."""

    tables: CellTables
    rows: Sequence[NDArray[np.int64]]
    noise_variance: float
    prior: StatisticPrior
    rank: int

    def optimistic(self, shares: Floats) -> tuple[float, Floats]:
        """With every pair's other value known; and the gradient."""
        gradient = np.zeros(len(shares))
        harm = self._of_singles(shares, gradient)
        if not self._pairs:
            return harm, gradient
        total, gains = np.zeros(len(self._value_rows)), {}
        for table in self._pairs:
            known, gains[table] = self._learned_effects(table, shares[table])
            for end in self._ends[table]:
                total += np.bincount(end, known, minlength=len(total))
        unknown = 1 / (1 + self._factors**2 * total)
        worth = self._pair_worth * (len(self.tables.values) - 1) * self._value_rows
        slope = worth * unknown**2 * self._factors**2
        for table, gained in gains.items():
            gradient[table] = -float(sum(slope[end] @ gained for end in self._ends[table]))
        return harm + float(worth @ unknown), gradient

    def __call__(self, shares: Floats) -> float:
        """By the full equations."""
        harm = self._of_singles(shares, np.zeros(len(shares)))
        known = {table: LEARNED * self._learned_effects(table, shares[table])[0] for table in self._pairs}
        share = np.ones(len(self._value_rows))
        for _ in range(ROUNDS if known else 0):
            total = np.zeros(len(share))
            for table, information in known.items():
                one, other = self._ends[table]
                total += np.bincount(one, information * share[other], minlength=len(total))
                total += np.bincount(other, information * share[one], minlength=len(total))
            share = 1 - 1 / (1 + self._factors**2 * total)
        for table in known:
            one, other = self._ends[table]
            harm += self._pair_worth * float(self.rows[table] @ (1 - share[one] * share[other]))
        return harm

    def _of_singles(self, shares: Floats, gradient: Floats) -> float:
        """The harm in tables of one field, or none; adds to the gradient."""
        harm, effects = 0.0, self.prior.effect_variance(len(self.tables.values))
        for table, fields in enumerate(self.tables.crossed):
            if len(fields) == 2:
                continue
            known, gained = self._learned_effects(table, shares[table])
            unknown = 1 / (1 / effects + known)
            worth = self.prior.label_variance * self.rows[table]
            harm += float(worth @ unknown)
            gradient[table] = -float((worth * unknown**2) @ gained)
        return harm

    def _learned_effects(self, table: int, share: float) -> tuple[Floats, Floats]:
        """What is learned about each cell's effect, and how fast that grows with the share."""
        noise = self.noise_variance / share
        information = self.prior.label_variance * self.rows[table]
        known = information**2 / (information + noise)
        return known, known / (information + noise) * (noise / share)

    @property
    def _factors(self) -> float:
        return self.prior.factor_variance(len(self.tables.values), self.rank)

    @property
    def _pair_worth(self) -> float:
        """The harm of one row's pair of values about whose product nothing is known."""
        return self.prior.label_variance * self.rank * self._factors**2

    @property
    def _pairs(self) -> list[int]:
        return [table for table, fields in enumerate(self.tables.crossed) if len(fields) == 2]

    @cached_property
    def _ends(self) -> dict[int, list[NDArray[np.int64]]]:
        """The two values of each cell of each pair table, fields one after another."""
        starts = np.concatenate([[0], np.cumsum([len(values) for values in self.tables.values])])
        return {
            table: [
                starts[field] + place
                for field, place in zip(self.tables.crossed[table], self.tables.ends(table), strict=True)
            ]
            for table in self._pairs
        }

    @cached_property
    def _value_rows(self) -> NDArray[np.int64]:
        """How many rows each value has, fields one after another."""
        fields = {fields[0]: table for table, fields in enumerate(self.tables.crossed) if len(fields) == 1}
        return np.concatenate([self.rows[fields[field]] for field in range(len(self.tables.values))])


def best_shares(harm: ExpectedHarm) -> Floats:
    """Shares that add up to one, of the least harm that was found; pair tables that are not worth it get 0."""
    is_pair = np.array([len(fields) == 2 for fields in harm.tables.crossed])
    single = np.flatnonzero(~is_pair).tolist()
    alone = ExpectedHarm(
        harm.tables.only(single), [harm.rows[table] for table in single], harm.noise_variance, harm.prior, 0
    )
    without = np.zeros(len(is_pair))
    without[single] = _search_shares(alone)
    if not is_pair.any():
        return without
    with_pairs = _search_shares(harm)
    mixed = [(1 - part) * without + part * with_pairs for part in TOWARDS_PAIRS]
    best = min(mixed, key=lambda shares: harm(np.maximum(shares, _TINY)))
    best[is_pair & (best < LEAST_SHARE)] = 0.0
    shares: Floats = best / best.sum()
    return shares


def _search_shares(harm: ExpectedHarm) -> Floats:
    is_pair = np.array([len(fields) == 2 for fields in harm.tables.crossed])
    for_pairs = 0.5 if is_pair.any() else 0.0
    start = np.where(is_pair, for_pairs / max(is_pair.sum(), 1), (1 - for_pairs) / (~is_pair).sum())

    def of_logs(logs: Floats) -> tuple[float, Floats]:
        shares = _as_shares(logs)
        value, gradient = harm.optimistic(shares)
        return value, shares * (gradient - shares @ gradient)

    found = minimize(of_logs, np.log(start), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return _as_shares(found.x)


def _as_shares(logs: Floats) -> Floats:
    """Positive, and adding up to one."""
    weights = np.exp(logs - logs.max()) + _TINY
    shares: Floats = weights / weights.sum()
    return shares


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
            [self.release], unit=self.unit, relation=self.release.relation, delta=self.delta
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
    plan: StatisticPlan,
    labels: ArrayLike,
    source: Source,
    *,
    simulated: bool = False,
    alpha: float = FALSE_ALARM,
) -> ReleasedStatistic:
    """Read the labels, once, and release the statistic. Drawing again is another release, to be paid again.

    Noise that is not what was paid for stops it; honest noise does so with a chance of at most `alpha`.

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
    sums = plan.cells.gather(plan.weights * truth)  # multiples of GRID, and exact in whatever order
    cells = plan.cells
    paid = plan.release.noise_stddev / np.sqrt(plan.shares)
    drawn = SquareSum()
    for start, size, noise, owed in zip(cells.starts, cells.sizes, plan.noise_by_table, paid, strict=False):
        normals = source.normal(size, dtype=np.float64, scale=float(noise))
        drawn.add(int(size), float(np.square(normals / owed).sum()), 0.0)
        sums[start : start + size] += np.round(normals / GRID) * GRID
    drawn.expect("the noise of the statistic", alpha / 2)
    return ReleasedStatistic(plan, sums, simulated)
