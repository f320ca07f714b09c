"""`NoisyStatistic`: label DP by one noisy statistic. Plan, release once, fit as often as one likes.

    method = NoisyStatistic(prior=StatisticPrior(rate=0.07))
    plan = method.plan(ids, columns.unit_keys, public=columns.public_keys, unit=unit, epsilon=1, delta=1e-6)
    print(plan.words)                                   # and pay for plan.statement, before
    released = method.release(plan, labels, Entropy())
    model = method.fit(released, ids, Entropy())
    model.predict_proba(other_ids)

Only `release` reads labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput
from tacit.privacy.allocation import unit_ids
from tacit.privacy.calibration import least_noise
from tacit.privacy.randomness import Source
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.progress import Progress, no_progress
from tacit.train.sgd.self_checks import FALSE_ALARM
from tacit.train.statistic import fit as fitting
from tacit.train.statistic import release as releasing
from tacit.train.statistic.model import FactorModel
from tacit.train.statistic.release import (
    ExpectedHarm,
    ReleasedStatistic,
    StatisticPlan,
    StatisticPrior,
    best_shares,
)
from tacit.train.statistic.tables import (
    ROUNDING,
    AlikeRows,
    CellTables,
    Fields,
    check_ids,
    pairs_of_fewest_cells,
    sensitivity,
    unit_norms,
    unit_weights,
)


@dataclass(frozen=True)
class NoisyStatistic:
    """Label DP for models of public features: positives in the cells of public tables, released once.

    A factorisation machine's log loss depends on labels only through the positives of each value and each pair
    of values. They are released for the pairs of fields that are worth their noise (`best_shares`), and the
    model is fitted to them and to nothing else. With `rank` 0 there are no pairs, and the model is linear. A
    unit whose rows together are longer than `clip_norm` is weighed down to it; a single row's length is 1.
    `most_pairs` bounds how many pairs of fields are considered, and so memory.
    """

    rank: int = 4
    clip_norm: float = 1.0
    most_pairs: int = 64
    prior: StatisticPrior = field(default_factory=StatisticPrior)
    effort: fitting.FitEffort = field(default_factory=fitting.FitEffort)

    def __post_init__(self) -> None:
        expect.whole("rank", self.rank, at_least=0)
        expect.positive("clip_norm", self.clip_norm)
        expect.whole("most_pairs", self.most_pairs, at_least=0)

    def plan(
        self,
        ids: NDArray[np.integer],
        keys: Mapping[str, ArrayLike],
        *,
        public: frozenset[str],
        unit: Unit,
        epsilon: expect.Number,
        delta: expect.Number,
        now: int | None = None,
        relation: Relation = Relation.REPLACE_LABEL,
        noise: float | None = None,
    ) -> StatisticPlan:
        """From public ids, (rows, fields), and unit keys, all of which must be public; no label is read.

        With `noise`, a multiple of the sensitivity, that is what is added, and who composes the release with
        others accounts for it; else the least noise that keeps epsilon and delta. Under `relation` replace-one,
        as it is meant here, public features stay too, so that labels alone can move the statistic.
        """
        rows = len(check_ids(ids))
        if not rows:
            raise BadInput("expected rows to learn from, got none")
        units = unit_ids(unit, keys or {"row": np.arange(rows)}, public=public, now=now)
        if len(units) != rows:
            raise BadInput(f"expected keys of {rows} rows, got {len(units)}")
        each_its_own = unit.kind is UnitKind.IMPRESSION
        units = np.arange(rows) if each_its_own else np.unique(units, return_inverse=True)[1]
        chance = expect.probability("delta", delta)
        if relation not in (Relation.REPLACE_LABEL, Relation.REPLACE_ONE):
            raise BadInput(f"expected relation replace-label or replace-one for a statistic, got {relation}")
        exact = expect.positive("epsilon", epsilon)
        multiplier = statistic_noise(exact, chance) if noise is None else float(expect.positive("noise", noise))
        # The sensitivity will be about clip_norm whatever the shares are, so that they can be chosen first.
        kinds = AlikeRows.of(ids)
        tables, shares = self._tables(kinds, units, multiplier * float(self.clip_norm))
        cells = tables.cells(kinds)
        norms = unit_norms(cells, shares, units)
        weights = unit_weights(norms, float(self.clip_norm))
        moved = sensitivity(norms, weights)
        release = GaussianStatistic(multiplier * moved * ROUNDING, moved, relation)
        return StatisticPlan(
            tables, cells, shares, weights[units], unit, release, float(chance), self.prior, self.rank
        )

    def release(
        self, plan: StatisticPlan, labels: ArrayLike, source: Source, *, simulated: bool = False
    ) -> ReleasedStatistic:
        """See `release.release_statistic` for what it promises."""
        return releasing.release_statistic(plan, labels, source, simulated=simulated)

    def fit(
        self,
        released: ReleasedStatistic,
        ids: NDArray[np.integer],
        source: Source,
        progress: Progress = no_progress,
    ) -> FactorModel:
        """A model from the statistic and the plan's public ids; of no cost, as often as one likes."""
        return fitting.fit_model(released, ids, source, self.effort, progress)

    def _tables(
        self, kinds: AlikeRows, units: NDArray[np.intp], noise_stddev: float
    ) -> tuple[CellTables, Floats]:
        """The tables that are worth their noise, and their shares."""
        single: list[Fields] = [(), *((at,) for at in range(kinds.ids.shape[1]))]
        sizes = [len(values) for values in CellTables.of(kinds.ids, ())[0].values]
        pairs = pairs_of_fewest_cells(sizes, self.most_pairs if self.rank else 0)
        tables, counts = CellTables.of(kinds.ids, [*single, *pairs], kinds.times)
        # Rows that count less let the noise count more. How much less hardly hangs on the shares.
        norms, of_row = np.ones(1), np.zeros(1, np.intp)  # as it is where every unit has one row
        if len(units) > units.max() + 1:
            even = tables.only(range(len(single)))
            norms, of_row = unit_norms(even.cells(kinds), np.full(len(single), 1 / len(single)), units), units
        row_weight = float(unit_weights(norms, float(self.clip_norm))[of_row].mean())
        if not row_weight:
            raise BadInput(f"expected a clip_norm that lets rows count, got {self.clip_norm!r}")
        shares = best_shares(
            ExpectedHarm(tables, counts, (noise_stddev / row_weight) ** 2, self.prior, self.rank)
        )
        kept = np.flatnonzero(shares)
        return tables.only(kept.tolist()), shares[kept]


@dataclass(frozen=True, eq=False)
class PlannedStatistic:
    """A statistic that is planned for the rows of a training, with what releases it and fits to it."""

    method: NoisyStatistic
    plan: StatisticPlan

    def train(
        self,
        labels: ArrayLike,
        ids: NDArray[np.integer],
        source: Source,
        start: Source,
        *,
        simulated: bool = False,
        alpha: float = FALSE_ALARM,
    ) -> FactorModel:
        """Release it from `source`, and fit a model to it, whose first weights come from `start`."""
        released = releasing.release_statistic(self.plan, labels, source, simulated=simulated, alpha=alpha)
        return self.method.fit(released, ids, start)


@cache
def statistic_noise(epsilon: Fraction, delta: Fraction) -> float:
    """The least noise, as a multiple of the sensitivity, on which alone the guarantee hangs. It is the same
    under both relations, by which a statistic is one Gaussian sum."""
    relation = Relation.REPLACE_LABEL
    return least_noise(
        lambda noise: GaussianStatistic(noise, 1.0, relation), epsilon=epsilon, delta=delta, relation=relation
    )
