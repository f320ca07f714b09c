"""What a sweep comes to: the best for each epsilon, what was refused, and what choosing among runs costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.privacy.ledger.guarantee import Guarantee
from tacit_lab.studies.sweep.frontier import BestPoint, TriedPoint, best_points
from tacit_lab.studies.sweep.grid import Sweep


@dataclass(frozen=True, eq=False)
class SweepReport:
    """The best for each epsilon, what was refused (setting and problem, in words), and what all of it costs."""

    sweep: Sweep
    tried: Sequence[TriedPoint]
    refused: Sequence[tuple[str, str]]
    costs: Sequence[Guarantee]
    synthetic: bool
    files: Sequence[Path]

    @property
    def runs(self) -> int:
        return len(self.sweep.points) * self.sweep.seeds

    @cached_property
    def best(self) -> list[BestPoint]:
        """The frontier: the best point for each epsilon."""
        return best_points(self.tried)

    @property
    def note(self) -> str:
        """What choosing among runs costs, and how far the best may be trusted."""
        chosen = "The best were chosen on the rows and seeds that are shown: expect a little worse elsewhere."
        if not self.synthetic:
            chosen += " Seeds are known and figures are exact: nothing is promised to the people in these data."
        if not self.costs:
            return chosen
        total = "; ".join(str(cost) for cost in self.costs)
        return (
            f"{chosen} Tuning on people's data spends budget: these {self.runs} runs, made as releases, would "
            f"cost {total} in all, whichever model is used in the end."
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "frontier": [each.as_json() for each in self.best],
            "runs": self.runs,
            "refused": [{"settings": settings, "problem": problem} for settings, problem in self.refused],
            "composed": [
                {
                    "unit": str(cost.unit),
                    "relation": str(cost.relation),
                    "epsilon": float(cost.budget.epsilon),
                    "delta": float(cost.budget.delta),
                }
                for cost in self.costs
            ],
            "simulated": True,
            "synthetic": self.synthetic,
            "note": self.note,
            "files": [str(path) for path in self.files],
        }
