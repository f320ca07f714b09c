"""What a sweep says in the end: the best for each epsilon, what was refused, and what all of it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.commands.output import print_table
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.studies.runs import words
from tacit.studies.sweeping.frontier import Best, Tried, frontier
from tacit.studies.sweeping.grid import Sweep

NUMBERS = ("epsilon", "AUC loss", "log loss", "predicted / observed", "among")


@dataclass(frozen=True, eq=False)
class Told:
    """All that there is to tell. `refused` has settings and problems in words; `paid` what the ledger did."""

    sweep: Sweep
    tried: Sequence[Tried]
    refused: Sequence[tuple[str, str]]
    costs: Sequence[Guarantee]
    synthetic: bool
    paid: str
    files: Sequence[Path]

    @property
    def runs(self) -> int:
        return len(self.sweep.points) * self.sweep.seeds

    @property
    def note(self) -> str:
        """What choosing among runs costs, and how far the best may be trusted."""
        chosen = "The best were chosen on the rows and seeds that are shown: expect a little worse elsewhere."
        plain = sum(not point.config.privacy.is_private for point in self.sweep.points) * self.sweep.seeds
        if plain and not self.synthetic:
            chosen += f" {plain} run{'' if plain == 1 else 's'} without privacy promise nothing to anybody."
        if not self.costs:
            return chosen
        total = "; ".join(str(cost) for cost in self.costs)
        if self.synthetic:
            return (
                f"{chosen} Tuning on people's data spends budget: these {self.runs} runs, made on it, would "
                f"cost {total} in all, whichever model is used in the end."
            )
        return f"{chosen} Tuning spends budget: these {self.runs} runs cost {total} in all."

    def print(self) -> None:
        seeds = f"{self.sweep.seeds} seed{'' if self.sweep.seeds == 1 else 's'}"
        print_table(
            f"the best of {len(self.tried)} settings, {seeds} each",
            ("unit", "epsilon", "method", "model", "settings", *NUMBERS[1:]),
            [_row(each) for each in frontier(self.tried)],
            numbers=NUMBERS,
        )
        for settings, problem in self.refused:
            print(f"refused: {settings}: {problem}")
        print(self.note)
        print(f"{self.paid[0].upper()}{self.paid[1:]}. Written: {', '.join(str(path) for path in self.files)}")

    def as_json(self) -> dict[str, Any]:
        return {
            "frontier": [each.as_json() for each in frontier(self.tried)],
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
            "simulated": self.synthetic,
            "payment": self.paid,
            "note": self.note,
            "files": [str(path) for path in self.files],
        }


def _row(best: Best) -> tuple[str, ...]:
    unit, epsilon = best.tried.place
    method, model = best.tried.line
    return (
        unit or "nobody",
        f"{epsilon:g}" if epsilon else "none",
        method,
        model,
        best.tried.other_settings,
        words(best.tried.figure("auc_loss"), 4),
        f"{best.tried.figure('log_loss').value:.4f}",
        f"{best.tried.figure('calibration_ratio').value:.3f}",
        str(best.among),
    )
