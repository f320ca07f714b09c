"""Findings S1 to S8 of figures 1 and 2, each with its rule; all look at AUC loss."""

from __future__ import annotations

import numpy as np

from tacit.arrays import Floats
from tacit_lab.studies.runs import Runs, mean
from tacit_lab.studies.semi_sensitive.recipe import DP_SGD, FROZEN, HYBRID, NON_PRIVATE, RR, TRUNCATED
from tacit_lab.studies.study import Claim, Finding
from tacit_lab.studies.verdicts import ENOUGH_SEEDS, at_most, below, between, every, no_better, say, signed_gap

HALVED = 0.6  # "approximately halved" is read as at most this share
PLATEAU_PERCENT = 2.0

S1 = Claim("S1", "figures 1 and 2", "from epsilon 4 on the Hybrid beats RR and DP-SGD, factorization machine")
S2 = Claim("S2", "figures 1 and 2", "from epsilon 4 on the Hybrid beats RR and DP-SGD, two-tower network")
S3 = Claim(
    "S3",
    "section 5.4.1",
    "the Hybrid at epsilon 8 is better than DP-SGD at epsilon 12",
    "both logs, both models",
)
S4 = Claim(
    "S4",
    "section 5.4.1",
    "at epsilon 12 the Hybrid about halves the gap to the model without privacy, factorization machine",
    "AUC loss +3.0% -> +1.2%",
)
S5 = Claim(
    "S5",
    "section 5.4.1",
    "at epsilon 12 the Hybrid about halves the gap to the model without privacy, two-tower network",
    "AUC loss +6.3% -> +3.2%",
)
S6 = Claim("S6", "section 5.4.1", "at epsilon 1 the Hybrid no longer improves on DP-SGD")
S7 = Claim("S7", "section 5.4.1", "RR levels off at the limit of a model without sensitive features")
S8 = Claim("S8", "section 5.4.2", "freezing the public tower in the second phase is worse than fine-tuning it")


class FrontierJudge:
    """Looks at one world, by percent over the model without privacy, at the epsilons that were run there."""

    def __init__(self, runs: Runs, world: str, where: str) -> None:
        self._runs, self._world, self._where = runs, world, where
        found = {row["epsilon"] for row in runs.rows if row["world"] == world}
        self.epsilons: list[int] = sorted(found - {None})

    def percent(self, method: str, epsilon: int | None = None) -> Floats:
        base = {"world": self._world, "method": NON_PRIVATE}
        return self._runs.percent_over("auc_loss", base, world=self._world, method=method, epsilon=epsilon)

    def finding(self, claim: Claim, rule: str, seen: str, holds: bool | None, why: str = "") -> Finding:
        return Finding(claim, rule, seen, holds, self._where, why)

    def hybrid_wins(self, claim: Claim) -> Finding:
        rule = "at each epsilon >= 4 the Hybrid's AUC loss is below both others', 95% over paired seeds"
        gaps = {
            (epsilon, other): (self.percent(HYBRID, epsilon), self.percent(other, epsilon))
            for epsilon in self.epsilons
            if epsilon >= 4
            for other in (RR, DP_SGD)
        }
        if not gaps:
            return self.finding(claim, rule, "no epsilon of 4 or more was run", None)
        seen = [
            f"{other} " + ", ".join(f"{signed_gap(*gap)}" for (_, name), gap in gaps.items() if name == other)
            for other in (RR, DP_SGD)
        ]
        epsilons = ", ".join(str(epsilon) for epsilon in dict.fromkeys(epsilon for epsilon, _ in gaps))
        return self.finding(
            claim,
            rule,
            f"points at epsilon {epsilons}, against {'; '.join(seen)}",
            every(below(*gap) for gap in gaps.values()),
        )

    def cheaper_privacy(self) -> Finding:
        rule = "Hybrid's AUC loss at 8 is below DP-SGD's at 12, 95% over paired seeds"
        if not {8, 12} <= set(self.epsilons):
            return self.finding(S3, rule, "epsilon 8 and 12 were not run", None)
        hybrid, other = self.percent(HYBRID, 8), self.percent(DP_SGD, 12)
        seen = f"{signed_gap(hybrid, other)} points, {int(np.sum(hybrid < other))} of {len(hybrid)} seeds"
        return self.finding(S3, rule, seen, below(hybrid, other))

    def gap_halved(self, claim: Claim) -> Finding:
        hybrid, other = self.percent(HYBRID, 12), self.percent(DP_SGD, 12)
        return self.finding(
            claim,
            f"Hybrid's increase is at most {HALVED} of DP-SGD's, 95% over paired seeds",
            f"{say('DP-SGD', other)}%, {say('Hybrid', hybrid)}%",
            at_most(hybrid - HALVED * other, 0.0),
        )

    def no_gain_at_one(self) -> Finding:
        rule = (
            "the 95% interval of the Hybrid's AUC loss less DP-SGD's, over paired seeds, is at 0 or above, or "
            f"reaches 0 with at least {ENOUGH_SEEDS} seeds; fails where all of it is below 0"
        )
        if 1 not in self.epsilons:
            return self.finding(S6, rule, "epsilon 1 was not run", None)
        hybrid, other = self.percent(HYBRID, 1), self.percent(DP_SGD, 1)
        holds = no_better(hybrid, other)
        why = "not shown to be better" if holds and below(hybrid, other) is None else ""
        return self.finding(S6, rule, f"{signed_gap(hybrid, other)} points", holds, why)

    def plateau(self) -> Finding:
        rr, limit = self.percent(RR, 12), self.percent(TRUNCATED)
        over_limit = 100 * ((100 + rr) / (100 + limit) - 1)
        holds = between(over_limit, -PLATEAU_PERCENT, PLATEAU_PERCENT)
        return self.finding(
            S7,
            f"at epsilon 12 RR's AUC loss is within {PLATEAU_PERCENT:g}% of that model's, 95% over seeds",
            f"{signed_gap(over_limit, 0 * over_limit)}% of it: {say('RR', rr)}%, "
            f"{say('public features only', limit)}%",
            holds,
            "RR trains that model, and only its labels are noisy" if holds else "",
        )

    def freezing_costs(self) -> Finding:
        rule = "mean AUC loss over all epsilons is higher when frozen, 95% over paired seeds"
        if not self.epsilons:
            return self.finding(S8, rule, "no epsilon was run", None)
        costs = {each: self.percent(FROZEN, each) - self.percent(HYBRID, each) for each in self.epsilons}
        cost = np.mean(list(costs.values()), axis=0)
        by_epsilon = "; ".join(f"{epsilon}: {mean(each).value:+.2f}" for epsilon, each in costs.items())
        return self.finding(
            S8,
            rule,
            f"{signed_gap(cost, 0 * cost)} points in the mean; at epsilon {by_epsilon}",
            below(0 * cost, cost),
        )
