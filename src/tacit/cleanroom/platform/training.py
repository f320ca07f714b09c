"""An adapter trained through the room: derivatives go in, a sum comes back, and the platform takes the step.

    trained = train_adapter(model, "shoes", examples, tokens, link, Plan(), run="spring-1", checkpoint=path)

Everything that a step sends is decided by the plan, the run's name, the step's number and the adapter's values
before it. So a step that is repeated, after a lost answer or a crash of either side, is the very same request,
and the room neither counts nor releases anything twice.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tacit.cleanroom.model.derivatives import derivatives
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform import checkpoints, measuring
from tacit.cleanroom.platform.checkpoints import Progressed
from tacit.cleanroom.platform.descending import Descent, Floats
from tacit.cleanroom.platform.link import RoomLink
from tacit.cleanroom.platform.plans import Plan, rows_of, steps_an_epoch
from tacit.cleanroom.platform.projecting import project
from tacit.cleanroom.platform.sending import Examples, Tokens, as_decoded, step_slabs, token_slabs
from tacit.cleanroom.wire import canonical
from tacit.cleanroom.wire.agreement import Mode, Terms
from tacit.cleanroom.wire.answers import Description, Receipt, Remaining
from tacit.cleanroom.wire.codec import codec_named
from tacit.cleanroom.wire.requests import BeginRequest, StepRequest
from tacit.cleanroom.wire.statements import statement_after
from tacit.errors import BadInput
from tacit.privacy.statement import PrivacyStatement
from tacit.train.evaluation.estimates import Measured

KEPT_RECEIPTS = 64  # the newest: the log is a chain, so a later head vouches for all that came before it
DIGESTED_ROWS = 4096  # at a time

Stopwatch = Callable[[], float]


@dataclass(frozen=True)
class Progress:
    """After a step. `loss` is of its rows, before it, where the plan asks for it and the mode lets it out."""

    step: int
    steps: int
    bytes_sent: int
    bytes_received: int
    examples: int
    examples_a_second: float
    remaining: Remaining
    loss: Measured | None = None


@dataclass(frozen=True)
class Trained:
    """What a run did, all of its parts after interruptions together; seconds are those of this process."""

    steps: int
    bytes_sent: int
    bytes_received: int
    examples: int
    seconds_computing: float
    seconds_waiting: float
    bytes_a_second: float | None  # that the link and the room kept up with: to estimate a next run by
    receipts: tuple[Receipt, ...]
    statement: PrivacyStatement


def train_adapter(
    model: ConversionModel,
    adapter: str,
    examples: Examples,
    tokens: Tokens,
    link: RoomLink,
    plan: Plan,
    *,
    run: str,
    checkpoint: Path | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    stopwatch: Stopwatch = time.perf_counter,
) -> Trained:
    """Train the model's adapter in place; with a checkpoint there, from where it stands.

    `tokens` (rows, bytes) name the records to the room, in the order of the examples. A finished run that is
    asked for again asks nothing of the room but its terms.
    """
    described = link.describe()
    run_of = _Run(model, adapter, examples, tokens, link, plan, run, described.terms)
    digest = run_of.digest() if checkpoint or _sets_aside(described) else ""
    done = run_of.begun(checkpoint, digest)
    model.set_adapter_values(adapter, run_of.descent.values)
    if _sets_aside(described) and done.step < run_of.steps and (done.begun or not done.step):
        run_of.begin(digest)
        done = replace(done, begun=True)
    remaining, computing, waiting, begun = described.remaining, 0.0, 0.0, done
    for number in range(begun.step, run_of.steps):
        started = stopwatch()
        taken = run_of.step(number, stopwatch)
        done = _after(done, taken)
        if checkpoint:
            checkpoints.keep(checkpoint, digest, done, run_of.descent)
        if number == begun.step:  # terms are paid for as a whole, with their first release
            remaining = link.describe().remaining
        seconds = stopwatch() - started
        computing, waiting = computing + seconds - taken.seconds_waiting, waiting + taken.seconds_waiting
        progress(
            Progress(
                done.step, run_of.steps, done.bytes_sent, done.bytes_received, done.examples,
                taken.rows / seconds if seconds > 0 else 0.0, remaining, taken.loss,
            )
        )  # fmt: skip
    crossed = done.bytes_sent + done.bytes_received - begun.bytes_sent - begun.bytes_received
    return Trained(
        done.step, done.bytes_sent, done.bytes_received, done.examples, computing, waiting,
        crossed / waiting if waiting > 0 else None, done.receipts, statement_after(described.terms, remaining),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Step:
    rows: int
    bytes_sent: int
    bytes_received: int
    seconds_waiting: float
    receipt: Receipt
    loss: Measured | None


class _Run:
    """All that a run is made of, checked before anything is sent."""

    def __init__(
        self,
        model: ConversionModel,
        adapter: str,
        examples: Examples,
        tokens: Tokens,
        link: RoomLink,
        plan: Plan,
        run: str,
        terms: Terms,
    ) -> None:
        rows = len(examples)
        if tokens.dtype != np.uint8 or tokens.ndim != 2 or len(tokens) != rows:
            raise BadInput(
                f"expected tokens as bytes, one line for each of {rows} examples, got {tokens.shape}"
            )
        plan.refuse_unless_agreed(terms, rows)
        self.model, self.adapter, self.examples, self.tokens = model, adapter, examples, tokens
        self.link, self.plan, self.run, self.terms = link, plan, run, terms
        self.layout = model.adapter_layout(adapter)
        self.codec = codec_named(plan.codec, dense_sequences=terms.dense_sequences)
        self.descent = Descent(plan.optimizer, model.adapter_values(adapter))
        self.steps_an_epoch = steps_an_epoch(rows, plan.batch, terms.smallest_batch)

    @property
    def steps(self) -> int:
        return self.plan.epochs * self.steps_an_epoch

    def begun(self, checkpoint: Path | None, digest: str) -> Progressed:
        """Where the run stands: at its checkpoint, whose cut into batches stays, or at its start."""
        done = checkpoints.restore(checkpoint, digest, self.descent) if checkpoint else None
        if done is None:
            return Progressed(self.steps_an_epoch)
        self.steps_an_epoch = done.steps_an_epoch
        smallest = len(self.examples) // self.steps_an_epoch
        if done.step < self.steps and smallest < self.terms.smallest_batch:
            raise BadInput(
                f"{checkpoint}: expected batches of the agreed {self.terms.smallest_batch} rows or more, "
                f"got {smallest}, from before it was tightened; begin another run"
            )
        return done

    def digest(self) -> str:
        """What a checkpoint must agree with; not the terms' numbers, which may be tightened meanwhile."""
        told = {
            "run": self.run,
            "plan": self.plan.as_json(),
            "agreement": [self.terms.name, self.terms.mode],
            "layout": self.layout.as_json(),
            "base": self.model.digest,
            "start": hashlib.sha256(self.descent.values.tobytes()).hexdigest(),
            "records": hashlib.sha256(self.tokens.tobytes()).hexdigest(),
            "rows": _digest_of(self.examples),
        }
        return hashlib.sha256(canonical.spell(told)).hexdigest()

    def begin(self, digest: str) -> None:
        """Have the room set aside what all steps need: another run that begins meanwhile leaves it alone."""
        terms, plan = self.terms, self.plan
        request = BeginRequest(terms.digest, self.run, digest, plan.epochs, plan.task, len(self.tokens))
        self.link.begin(request, token_slabs(self.tokens))

    def step(self, number: int, stopwatch: Stopwatch) -> _Step:
        """Derivatives, the room's sum, and the step that follows from it."""
        chosen = rows_of(self.plan, len(self.examples), self.steps_an_epoch, number)
        tokens = self.tokens[chosen]
        logits, found = derivatives(self.model, self.examples.batch(chosen), self.plan.task, self.adapter)
        slabs = step_slabs(tokens, logits, found, self.layout, self.codec, run=self.run, number=number)
        request = StepRequest(
            self.terms.digest, self.run, number, self.plan.task, self.plan.loss, self.plan.codec, len(chosen),
            self.layout,
        )  # fmt: skip
        slabs.stopwatch, asked = stopwatch, stopwatch()
        answer = self.link.step(request, slabs)
        loss = self._loss(number, logits, tokens)
        waited = stopwatch() - asked - slabs.seconds
        sent = slabs.size + len(request.to_bytes())
        gradient = answer.sum / np.float32(answer.rows)
        if self.plan.project and answer.noise_stddev and answer.rows < self.layout.parameters:
            decoded = as_decoded(slabs, self.layout, self.codec, tokens.shape[1])
            gradient = project(gradient, decoded, self.layout).astype(np.float32)
        self.descent.step(gradient, self.plan.learning.rate(number, self.steps))
        self.model.set_adapter_values(self.adapter, self.descent.values)
        received = sum(len(chunk) for chunk in answer.to_chunks())
        return _Step(len(chosen), sent, received, waited, answer.receipt, loss)

    def _loss(self, number: int, logits: Floats, tokens: Tokens) -> Measured | None:
        if not self.plan.loss_every or number % self.plan.loss_every:
            return None
        found = measuring.ask(
            logits, tokens, self.link, self.terms, task=self.plan.task, run=self.run, number=number
        )
        return found.log_loss


def _sets_aside(described: Description) -> bool:
    """Whether releases are counted, by a room that can set them aside: those of version 1 cannot."""
    return described.terms.mode is Mode.NOISED and described.room_version != "1"


def _digest_of(examples: Examples) -> str:
    """Of all that the model reads."""
    found = hashlib.sha256()
    for first in range(0, len(examples), DIGESTED_ROWS):
        batch = examples.batch(np.arange(first, min(first + DIGESTED_ROWS, len(examples))))
        for each in (batch.fields, batch.numbers, batch.sequences, batch.lengths, batch.advertiser):
            found.update(canonical.spell([str(each.dtype), list(each.shape)]))
            found.update(np.ascontiguousarray(each.numpy()).data)
    return found.hexdigest()


def _after(done: Progressed, taken: _Step) -> Progressed:
    return replace(
        done,
        step=done.step + 1,
        bytes_sent=done.bytes_sent + taken.bytes_sent,
        bytes_received=done.bytes_received + taken.bytes_received,
        examples=done.examples + taken.rows,
        receipts=(*done.receipts, taken.receipt)[-KEPT_RECEIPTS:],
    )
