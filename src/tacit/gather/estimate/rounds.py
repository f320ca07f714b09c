"""The round that asks a run's next question: what plan, question and both services say, in one record."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.gather.estimate.planning import RunPlan
from tacit.gather.wire.groups import Group
from tacit.gather.wire.questions import Question
from tacit.gather.wire.rounds import CHECK_BYTES, DIGEST_BYTES, Round
from tacit.gather.wire.validity.bounds import Bounds


@dataclass(frozen=True)
class Task:
    """What all rounds of a run have in common, beside its plan.

    parties         devices that are enrolled
    smallest_batch  reports below which nothing is released
    scope           of the ledger line that pays
    check           `wire.checking.check_hash` of the key that both parties check proofs with, if each report
                    must prove that its counts are within the plan's contribution; None: no proofs
    """

    name: str
    parties: int
    smallest_batch: int
    scope: str
    proxy_key: bytes
    server_key: bytes
    skew: int = 60
    check: bytes | None = None

    def round(self, run: RunPlan, question: Question | int, *, level: int, opens: int, closes: int) -> Round:
        """Round `level` of the run; times are Unix seconds. Instead of a question, the number of cells if what
        they count was agreed on otherwise.

        With a proof, each count is at most what the plan allows a cell, and all of them at most twice a
        device's events, since an event counts in a total and as a click or a no-click; or once, where only
        totals are asked for.
        """
        promise, proof = run.promise, self.check is not None
        if isinstance(question, Question):
            question.expect_promised(promise)
        return Round(
            task=self.name,
            level=level,
            cells=question.cells if isinstance(question, Question) else question,
            question=question.digest if isinstance(question, Question) else bytes(DIGEST_BYTES),
            group=Group.FIELD64 if proof else Group.RING64,
            opens=opens,
            closes=closes,
            skew=self.skew,
            parties=self.parties,
            smallest_batch=self.smallest_batch,
            noise=run.noise,
            bounds=Bounds(each=promise.each, total=promise.contribution.in_all) if proof else None,
            scope=self.scope,
            promise=promise,
            check=self.check or bytes(CHECK_BYTES),
            proxy_key=self.proxy_key,
            server_key=self.server_key,
        )
