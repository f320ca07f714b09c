"""The round that asks a run's next question: what plan, question and both services say, in one record."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.gather.estimate.planning import RunPlan
from tacit.gather.wire.groups import Group
from tacit.gather.wire.questions import Question
from tacit.gather.wire.rounds import Round
from tacit.gather.wire.validity.bounds import Bounds


@dataclass(frozen=True)
class Task:
    """What all rounds of a run have in common, beside its plan.

    parties         devices that are enrolled
    smallest_batch  reports below which nothing is released
    scope           of the ledger line that pays
    proof           whether each report must prove that its counts are within the plan's contribution
    """

    name: str
    parties: int
    smallest_batch: int
    scope: str
    proxy_key: bytes
    server_key: bytes
    skew: int = 60
    proof: bool = False

    def round(self, run: RunPlan, question: Question, *, level: int, opens: int, closes: int) -> Round:
        """Round `level` of the run, which pays its own part of the run's cost; times are Unix seconds.

        With a proof, each count is at most what the plan allows a cell, and all of them at most twice a
        device's events, since an event counts in a total and as a click or a no-click.
        """
        most = run.contribution.most
        return Round(
            task=self.name,
            level=level,
            cells=question.cells,
            question=question.digest,
            group=Group.FIELD64 if self.proof else Group.RING64,
            largest=most,
            opens=opens,
            closes=closes,
            skew=self.skew,
            parties=self.parties,
            smallest_batch=self.smallest_batch,
            noise=run.noise,
            bounds=Bounds(each=most, total=2 * run.contribution.events) if self.proof else None,
            scope=self.scope,
            cost=run.costs[level],
            proxy_key=self.proxy_key,
            server_key=self.server_key,
        )
