"""Trains an adapter through the room: derivatives go in, a sum comes back, and the platform takes the step.

    trained = train_adapter(model, "shoes", examples, tokens, link, AdapterPlan(), run="spring-1")

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
import torch
from numpy.typing import NDArray
from scipy.special import expit

from tacit.arrays import Floats32
from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform import metrics
from tacit.cleanroom.platform.checkpoints import RunState, restore_checkpoint, save_checkpoint
from tacit.cleanroom.platform.gradients import project_gradient, touched_rows
from tacit.cleanroom.platform.steps import (
    AdapterDescent,
    AdapterPlan,
    ExampleRows,
    Tokens,
    decoded_derivatives,
    step_rows,
    step_slabs,
    steps_per_epoch,
    token_slabs,
)
from tacit.cleanroom.protocol import encoding
from tacit.cleanroom.protocol.answers import AuditReceipt, RemainingBudget, RoomDescription
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.modes import Mode, statement_after
from tacit.cleanroom.protocol.requests import BeginRequest, RoomLink, StepRequest
from tacit.cleanroom.protocol.terms import Terms
from tacit.entropy import KeyedEntropy
from tacit.errors import BadInput
from tacit.privacy.statement import PrivacyStatement
from tacit.train.evaluation.intervals import MeasuredValue

KEPT_RECEIPTS = 64  # the newest: the log is a chain, so a later head vouches for all that came before it
BEFORE_ROWS = ("1", "2")  # versions of rooms
DIGESTED_ROWS = 4096  # at a time
JOINED_ROWS = 2**14  # that are asked about before the first step

Stopwatch = Callable[[], float]


@dataclass(frozen=True)
class TrainingProgress:
    """After a step. `loss` is of its rows, before it, where the plan asks for it and the mode lets it out."""

    step: int
    steps: int
    bytes_sent: int
    bytes_received: int
    examples: int
    examples_a_second: float
    remaining: RemainingBudget
    loss: MeasuredValue | None = None


TrainingWatch = Callable[[TrainingProgress], None]


@dataclass(frozen=True)
class AdapterRunSummary:
    """What a run did, all of its parts after interruptions together; seconds are those of this process."""

    steps: int
    bytes_sent: int
    bytes_received: int
    examples: int
    seconds_computing: float
    seconds_waiting: float
    bytes_a_second: float | None  # that the link and the room kept up with: to estimate a next run by
    receipts: tuple[AuditReceipt, ...]
    statement: PrivacyStatement
    positives: MeasuredValue | None = None  # among the rows asked about before it, where flips tell for nothing


def train_adapter(
    model: ConversionModel,
    adapter: str,
    examples: ExampleRows,
    tokens: Tokens,
    link: RoomLink,
    plan: AdapterPlan,
    *,
    run: str,
    checkpoint: Path | None = None,
    progress: TrainingWatch = lambda _: None,
    stopwatch: Stopwatch = time.perf_counter,
) -> AdapterRunSummary:
    """Train the model's adapter in place; with a checkpoint there, from where it stands.

    `tokens` (rows, bytes) name the records to the room, in the order of the examples. A finished run that is
    asked for again asks nothing of the room but its terms.
    """
    described = link.describe()
    run_of = _Run(model, adapter, examples, tokens, link, plan, run, described.terms)
    if run_of.layout.by_rows and described.room_version in BEFORE_ROWS:
        raise BadInput(
            f"adapter {adapter}: expected a room of version 3 or later, which takes embeddings by rows, got "
            f"{described.room_version}"
        )
    digest = run_of.digest() if checkpoint or _sets_aside(described) else ""
    done = run_of.begun(checkpoint, digest)
    model.set_adapter_values(adapter, run_of.descent.values)
    if _sets_aside(described) and done.step < run_of.steps and (done.begun or not done.step):
        run_of.begin(digest)
        done = replace(done, begun=True)
    positives = None if done.step else run_of.check_joined()
    remaining, computing, waiting, begun = described.remaining, 0.0, 0.0, done
    for number in range(begun.step, run_of.steps):
        started = stopwatch()
        taken = run_of.step(number, stopwatch)
        done = _after(done, taken)
        if checkpoint:
            save_checkpoint(checkpoint, digest, done, run_of.descent)
        if number == begun.step:  # terms are paid for as a whole, with their first release
            remaining = link.describe().remaining
        seconds = stopwatch() - started
        computing, waiting = computing + seconds - taken.seconds_waiting, waiting + taken.seconds_waiting
        progress(
            TrainingProgress(
                done.step, run_of.steps, done.bytes_sent, done.bytes_received, done.examples,
                taken.rows / seconds if seconds > 0 else 0.0, remaining, taken.loss,
            )
        )  # fmt: skip
    crossed = done.bytes_sent + done.bytes_received - begun.bytes_sent - begun.bytes_received
    return AdapterRunSummary(
        done.step, done.bytes_sent, done.bytes_received, done.examples, computing, waiting,
        crossed / waiting if waiting > 0 else None, done.receipts, statement_after(described.terms, remaining),
        positives,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Step:
    rows: int
    bytes_sent: int
    bytes_received: int
    seconds_waiting: float
    receipt: AuditReceipt
    loss: MeasuredValue | None


class _Run:
    """All that a run is made of, checked before anything is sent."""

    def __init__(
        self,
        model: ConversionModel,
        adapter: str,
        examples: ExampleRows,
        tokens: Tokens,
        link: RoomLink,
        plan: AdapterPlan,
        run: str,
        terms: Terms,
    ) -> None:
        rows = len(examples)
        if tokens.dtype != np.uint8 or tokens.ndim != 2 or len(tokens) != rows:
            raise BadInput(
                f"expected tokens as bytes, one line for each of {rows} examples, got {tokens.shape}"
            )
        plan.refuse_unless_agreed(terms, rows)
        if model.adapter_layout(adapter).by_rows and not codec_named(plan.codec).sends_rows:
            raise BadInput(
                f"adapter {adapter}: expected a codec that sends embeddings by rows, got {plan.codec}"
            )
        plan = plan.for_rows(rows, terms.smallest_batch)
        self.model, self.adapter, self.examples, self.tokens = model, adapter, examples, tokens
        self.link, self.plan, self.run, self.terms = link, plan, run, terms
        self.layout, self.value_rows = model.adapter_layout(adapter), model.adapter(adapter).value_rows
        self._base = bytes.fromhex(model.digest)
        self.codec = codec_named(plan.codec, dense_sequences=terms.dense_sequences)
        self.learning = plan.learning(rows)
        self.descent = AdapterDescent(plan.optimizer, model.adapter_values(adapter))
        self.steps_an_epoch = steps_per_epoch(rows, plan.batch or rows, terms.smallest_batch)

    @property
    def steps(self) -> int:
        return self.plan.epochs * self.steps_an_epoch

    def begun(self, checkpoint: Path | None, digest: str) -> RunState:
        """Where the run stands: at its checkpoint, whose cut into batches stays, or at its start."""
        done = restore_checkpoint(checkpoint, digest, self.descent) if checkpoint else None
        if done is None:
            return RunState(self.steps_an_epoch)
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
            "base": self._base.hex(),
            "start": hashlib.sha256(self.descent.values.tobytes()).hexdigest(),
            "records": hashlib.sha256(self.tokens.tobytes()).hexdigest(),
            "rows": _digest_of(self.examples),
        }
        if self.value_rows is not None:
            told["values"] = hashlib.sha256(self.value_rows.places.tobytes()).hexdigest()
        return hashlib.sha256(encoding.canonical_json(told)).hexdigest()

    def begin(self, digest: str) -> None:
        """Have the room set aside what all steps need: another run that begins meanwhile leaves it alone."""
        terms, plan = self.terms, self.plan
        request = BeginRequest(terms.digest, self.run, digest, plan.epochs, plan.task, len(self.tokens))
        self.link.begin(request, token_slabs(self.tokens))

    def check_joined(self) -> MeasuredValue | None:
        """The positives among the rows, or among some of many, as the room's flips tell them; refused where
        they cannot be those of these records. In other modes asking would be a release: nothing is asked."""
        if not (self.terms.mode.flips and self.terms.metrics and self.plan.least_share):
            return None
        rows = len(self.examples)
        some = np.unique(np.linspace(0, rows - 1, min(JOINED_ROWS, rows)).astype(np.int64))
        logits = np.concatenate(
            [self._logits(some[at : at + DIGESTED_ROWS]) for at in range(0, len(some), DIGESTED_ROWS)]
        )
        found = metrics.ask_metrics(
            logits, self.tokens[some], self.link, self.terms, task=self.plan.task, run=f"{self.run} joined",
            number=0, bins=1,
        )  # fmt: skip
        predicted = float(expit(logits.astype(np.float64)).sum())
        metrics.refuse_unjoined(found.positives, predicted, len(some), self.plan.least_share)
        return found.positives

    def _logits(self, rows: NDArray[np.int64]) -> Floats32:
        with torch.inference_mode():
            found: Floats32 = self.model.logits(self.examples.batch(rows), self.plan.task).numpy()
        return found

    def step(self, number: int, stopwatch: Stopwatch) -> _Step:
        """Derivatives, the room's sum, and the step that follows from it."""
        chosen = step_rows(self.plan, len(self.examples), self.steps_an_epoch, number)
        tokens = self.tokens[chosen]
        logits, found = adapter_derivatives(
            self.model, self.examples.batch(chosen), self.plan.task, self.adapter
        )
        layout, sent, places = touched_rows(self.layout, found, self._row_order(number))
        slabs = step_slabs(tokens, logits, sent, layout, self.codec, run=self.run, number=number)
        request = StepRequest(
            self.terms.digest, self.run, number, self.plan.task, self.plan.loss, self.plan.codec, len(chosen),
            layout,
        )  # fmt: skip
        slabs.stopwatch, asked = stopwatch, stopwatch()
        answer = self.link.step(request, slabs)
        loss = self._loss(number, logits, tokens)
        waited = stopwatch() - asked - slabs.seconds
        bytes_sent = slabs.size + len(request.to_bytes())
        gradient = answer.sum / np.float32(answer.rows)
        if self.plan.project and answer.noise_stddev and answer.rows < layout.parameters:
            decoded = decoded_derivatives(slabs, layout, self.codec, tokens.shape[1])
            gradient = project_gradient(gradient, decoded, layout).astype(np.float32)
        if places is not None:  # the rows that no example of the step touches have no gradient
            whole = np.zeros(self.layout.parameters, np.float32)
            whole[places] = gradient
            gradient = whole
        self.descent.step(gradient, self.learning.rate(number, self.steps))
        self.model.set_adapter_values(self.adapter, self.descent.values)
        received = sum(len(chunk) for chunk in answer.to_chunks())
        return _Step(len(chosen), bytes_sent, received, waited, answer.receipt, loss)

    def _row_order(self, number: int) -> KeyedEntropy:
        """What numbers the rows of a step: the room, which has no model, cannot draw it again."""
        return KeyedEntropy(self._base, f"rows of {self.run} {number}".encode())

    def _loss(self, number: int, logits: Floats32, tokens: Tokens) -> MeasuredValue | None:
        if not self.plan.loss_every or number % self.plan.loss_every:
            return None
        found = metrics.ask_metrics(
            logits, tokens, self.link, self.terms, task=self.plan.task, run=self.run, number=number
        )
        return found.log_loss


def _sets_aside(described: RoomDescription) -> bool:
    """Whether releases are counted, by a room that can set them aside: those of version 1 cannot."""
    return described.terms.mode is Mode.NOISED and described.room_version != "1"


def _digest_of(examples: ExampleRows) -> str:
    """Of all that the model reads."""
    found = hashlib.sha256()
    for first in range(0, len(examples), DIGESTED_ROWS):
        batch = examples.batch(np.arange(first, min(first + DIGESTED_ROWS, len(examples))))
        for each in (batch.fields, batch.numbers, batch.sequences, batch.lengths, batch.advertiser):
            found.update(encoding.canonical_json([str(each.dtype), list(each.shape)]))
            found.update(np.ascontiguousarray(each.numpy()).data)
    return found.hexdigest()


def _after(done: RunState, taken: _Step) -> RunState:
    return replace(
        done,
        step=done.step + 1,
        bytes_sent=done.bytes_sent + taken.bytes_sent,
        bytes_received=done.bytes_received + taken.bytes_received,
        examples=done.examples + taken.rows,
        receipts=(*done.receipts, taken.receipt)[-KEPT_RECEIPTS:],
    )
