"""Findings S1-S8 of figures 1 and 2, each with its rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.studies.runs import Floats, Runs, mean
from tacit.studies.semi_sensitive.frontier import DP_SGD, FROZEN, HYBRID, RR, TRUNCATED, increase
from tacit.studies.study import Finding
from tacit.studies.verdicts import apart, at_most, below, every, no_better, said

HALVED = 0.6  # "approximately halved" is read as at most this share
PLATEAU_PERCENT = 2.0


class Judge:
    """Looks at AUC loss in one world, as percent over the non-private model."""

    def __init__(self, runs: Runs, world: str, epsilons: Sequence[int], where: str) -> None:
        self._runs, self._world, self.epsilons, self._where = runs, world, epsilons, where

    def percent(self, method: str, epsilon: int | None, **labels: Any) -> Floats:
        return increase(self._runs, "auc_loss", world=self._world, method=method, epsilon=epsilon, **labels)

    def has(self, *epsilons: int) -> bool:
        return set(epsilons) <= set(self.epsilons)

    def hybrid_wins(self, id: str) -> Finding:
        pairs = [(epsilon, other) for epsilon in self.epsilons if epsilon >= 4 for other in (RR, DP_SGD)]
        seen = [
            f"{epsilon}: {apart(self.percent(HYBRID, epsilon), self.percent(other, epsilon))} against {other}"
            for epsilon, other in pairs
        ]
        return Finding(
            id,
            f"Hybrid beats RR and DP-SGD for epsilon >= 4 ({self._where})",
            "at each epsilon >= 4 the Hybrid's AUC loss is below both others', 95% over paired seeds",
            "points at epsilon " + "; ".join(seen),
            every(
                below(self.percent(HYBRID, epsilon), self.percent(other, epsilon)) for epsilon, other in pairs
            ),
        )

    def cheaper_privacy(self) -> Finding:
        words = f"Hybrid at epsilon 8 beats DP-SGD at 12 ({self._where})"
        rule = "Hybrid's AUC loss at 8 is below DP-SGD's at 12, 95% over paired seeds"
        if not self.has(8, 12):
            return Finding("S3", words, rule, "epsilon 8 and 12 were not run", None)
        hybrid, other = self.percent(HYBRID, 8), self.percent(DP_SGD, 12)
        seeds = f"{int(np.sum(hybrid < other))} of {len(hybrid)} seeds"
        return Finding("S3", words, rule, f"{apart(hybrid, other)} points, {seeds}", below(hybrid, other))

    def gap_halved(self, id: str, published: str) -> Finding:
        words = f"at epsilon 12 the gap to the non-private model is about halved: {published} ({self._where})"
        rule = f"Hybrid's increase is at most {HALVED} of DP-SGD's, 95% over paired seeds"
        hybrid, other = self.percent(HYBRID, 12), self.percent(DP_SGD, 12)
        seen = f"{said('DP-SGD', other)}%, {said('Hybrid', hybrid)}%"
        return Finding(id, words, rule, seen, below(hybrid, HALVED * other))

    def no_gain_at_one(self) -> Finding:
        words = f"at epsilon 1 the Hybrid no longer improves on DP-SGD ({self._where})"
        rule = "the 95% interval of the paired difference is not wholly below 0"
        if not self.has(1):
            return Finding("S6", words, rule, "epsilon 1 was not run", None)
        hybrid, other = self.percent(HYBRID, 1), self.percent(DP_SGD, 1)
        return Finding("S6", words, rule, f"{apart(hybrid, other)} points", no_better(hybrid, other))

    def plateau(self) -> Finding:
        rr, limit, other = self.percent(RR, 12), self.percent(TRUNCATED, None), self.percent(DP_SGD, 12)
        over_limit = np.abs(100 * ((100 + rr) / (100 + limit) - 1))
        return Finding(
            "S7",
            f"RR plateaus at the limit of a model without sensitive features ({self._where})",
            f"at epsilon 12 RR is within {PLATEAU_PERCENT}% of that model's AUC loss, and above DP-SGD's",
            f"{said('RR', rr)}%, {said('public features only', limit)}%, {said('DP-SGD', other)}%",
            every((at_most(over_limit, PLATEAU_PERCENT), below(other, rr))),
        )

    def freezing_costs(self) -> Finding:
        frozen = np.mean([self.percent(FROZEN, epsilon) for epsilon in self.epsilons], axis=0)
        tuned = np.mean([self.percent(HYBRID, epsilon) for epsilon in self.epsilons], axis=0)
        each = "; ".join(
            f"{epsilon}: {mean(self.percent(FROZEN, epsilon) - self.percent(HYBRID, epsilon)).value:+.2f}"
            for epsilon in self.epsilons
        )
        return Finding(
            "S8",
            f"freezing the public tower in the second phase is worse than fine-tuning it ({self._where})",
            "mean AUC loss over all epsilons is higher when frozen, 95% over paired seeds",
            f"{apart(frozen, tuned)} points in the mean; at epsilon {each}",
            below(tuned, frozen),
        )
