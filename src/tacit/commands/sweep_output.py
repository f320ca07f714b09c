"""What a sweep says in the end: the best for each epsilon, what was refused, and what all of it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.commands.output import print_table
from tacit.privacy.ledger.guarantee import Guarantee
from tacit_lab.studies.sweep.frontier import FEWEST_SEEDS, BestPoint, TriedPoint, best_points
from tacit_lab.studies.sweep.grid import Sweep

NUMBERS = ("epsilon", "AUC loss", "log loss", "predicted / observed", "among")


@dataclass(frozen=True, eq=False)
class SweepReport:
    """All that there is to tell. `refused` has settings and problems in words."""

    sweep: Sweep
    tried: Sequence[TriedPoint]
    refused: Sequence[tuple[str, str]]
    costs: Sequence[Guarantee]
    synthetic: bool
    files: Sequence[Path]

    @property
    def runs(self) -> int:
        return len(self.sweep.points) * self.sweep.seeds

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

    def print(self) -> None:
        seeds = f"{self.sweep.seeds} seed{'' if self.sweep.seeds == 1 else 's'}"
        without = "" if self.tried[0].has_interval else f"; {seeds}: no interval (from {FEWEST_SEEDS} on)"
        print_table(
            f"the best of {len(self.tried)} settings, {seeds} each{without}",
            ("unit", "epsilon", "method", "model", "settings", *NUMBERS[1:]),
            [_row(each) for each in best_points(self.tried)],
            numbers=NUMBERS,
        )
        for settings, problem in self.refused:
            print(f"refused: {settings}: {problem}")
        print(self.note)
        print(f"Written: {', '.join(str(path) for path in self.files)}")

    def as_json(self) -> dict[str, Any]:
        return {
            "frontier": [each.as_json() for each in best_points(self.tried)],
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


def _row(best: BestPoint) -> tuple[str, ...]:
    unit, epsilon = best.tried.place
    method, model = best.tried.line
    return (
        unit or "nobody",
        f"{epsilon:g}" if epsilon else "none",
        method,
        model,
        best.tried.other_settings,
        _figure(best.tried),
        f"{best.tried.figure('log_loss').value:.4f}",
        f"{best.tried.figure('calibration_ratio').value:.3f}",
        str(best.among),
    )


def _figure(tried: TriedPoint) -> str:
    loss = tried.figure("auc_loss")
    return f"{loss.value:.4f}" + (f" [{loss.low:.4f}, {loss.high:.4f}]" if tried.has_interval else "")
