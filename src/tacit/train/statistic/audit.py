"""The statistic as it is really released, against its claim.

One release holds as many worlds as there are trials: each world is a unit with cells that nobody else falls
into. The auditor adds up a world's cells in the direction in which its labels can move them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.stats import norm

from tacit.privacy.audit.case import (
    AuditCase,
    AuditDraws,
    Draws,
    Hits,
    best_threshold,
    claimed_epsilon,
    empirical_case,
    gaussian_law,
)
from tacit.privacy.randomness import Source
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.train.statistic.release import StatisticPlan, StatisticPrior, release_statistic
from tacit.train.statistic.tables import CellTables, sensitivity, unit_norms, unit_weights

DELTA = 0.05  # large on purpose: an event as rare as a real delta would need billions of draws
NOISE = 1.0


def cases() -> list[AuditCase]:
    """All cases. Claims come from the accountant, never from here, so that it is audited too."""
    alone = StatisticTrial(cell=(0,), unit=UnitKind.IMPRESSION)
    user = StatisticTrial(cell=(0, 0, 1), unit=UnitKind.USER)
    return [
        _case("one noisy statistic, an impression", alone),
        # The twin takes a user's rows for as many people: none is weighed down.
        _case("one noisy statistic, a user of 3 rows", user, replace(user, taken_for=UnitKind.IMPRESSION)),
    ]


@dataclass(frozen=True)
class StatisticTrial:
    """The cells of a unit's rows, the unit that is protected, and what a careless plan takes each row for."""

    cell: tuple[int, ...]
    unit: UnitKind
    taken_for: UnitKind | None = None

    def plan(self, trials: int, noise: float = NOISE) -> StatisticPlan:
        """A real plan over the rows of all worlds, with cells of their own, that adds this much noise."""
        rows, width = len(self.cell), 1 + max(self.cell)
        ids = (np.arange(trials)[:, None] * width + np.array(self.cell)).reshape(-1, 1)
        apart = (self.taken_for or self.unit) is UnitKind.IMPRESSION
        units = np.arange(trials * rows) if apart else np.repeat(np.arange(trials), rows)
        tables, _ = CellTables.of(ids, [(0,)])
        cells, shares = tables.rows(ids), np.ones(1)
        norms = unit_norms(cells, shares, units)
        weights = unit_weights(norms, 1.0)
        most = sensitivity(norms, weights)
        described = GaussianStatistic(noise * most, most, Relation.REPLACE_LABEL)
        return StatisticPlan(
            tables, cells, shares, weights[units], Unit(self.unit), described, DELTA, StatisticPrior(), rank=0
        )

    def draws(self, above: float) -> Draws:
        direction = np.bincount(self.cell) / np.linalg.norm(np.bincount(self.cell))

        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
            plan = self.plan(trials, NOISE * float(share))
            labels = np.full(plan.cells.rows, 0 if neighbour else 1)
            released = release_statistic(plan, labels, source, simulated=not source.fit_for_release)
            told: Hits = released.sums.reshape(trials, -1) @ direction > above
            noise = released.sums.ravel() / plan.release.sensitivity  # without labels there is nothing else
            return AuditDraws(told, noise if neighbour else np.empty(0))

        return draw


def _case(name: str, honest: StatisticTrial, twin: StatisticTrial | None = None) -> AuditCase:
    """The event is the threshold that tells the most, at the claim, about a move by the sensitivity of 1."""
    relation = Relation.REPLACE_LABEL

    def claimed_at(share: Fraction) -> float:
        return claimed_epsilon(GaussianStatistic(NOISE * float(share), 1.0, relation), relation, DELTA)

    claimed = claimed_at(Fraction(1))

    above = best_threshold(claimed, lambda at: norm.sf((at - 1) / NOISE), lambda at: norm.sf(at / NOISE))
    return empirical_case(
        name,
        relation,
        claimed,
        delta=DELTA,
        draws=honest.draws(above),
        law=gaussian_law(NOISE, claimed_at),
        twin_draws=None if twin is None else twin.draws(above),
    )
