"""Carries out a planned training: claim a checkpoint folder, reserve, claim what is reserved, train, say that
the model is made, put it in its place, commit; in this order alone.

    plan = DpSgd(epsilon=4, delta="1e-6").plan(examples)            # from public quantities alone
    payment = release_payment(ledger, plan.charge, examples, scope="shop", key="clicks/1")
    outcome = run_training(plan, FactorizationMachine(dim=8), payment=payment)
    outcome.predict(Examples.of(columns, "test"))

With a `Destination` the model is saved, and a run that dies goes on from its last checkpoint.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from tacit import expect
from tacit.entropy import draw_token
from tacit.errors import BadInput, ReservationTaken, SelfCheckFailed, TacitError
from tacit.files import explain_os_error
from tacit.train.job.checkpoints import Checkpoints, describe_mark
from tacit.train.job.label_flips import write_secret
from tacit.train.job.payment import Payment
from tacit.train.job.progress import Sink
from tacit.train.job.training_job import (
    Destination,
    TrainingJob,
    TrainingOutcome,
    Watch,
    put_in_place,
    saved_run,
    saved_settings,
    weights_digest,
)
from tacit.train.labels.noisy_targets import labels_for_mechanism
from tacit.train.models.device_export import export_device
from tacit.train.models.model import Architecture, Model
from tacit.train.models.onnx_export import export_onnx
from tacit.train.models.saving import SavedModel, load, save
from tacit.train.plan import LabelPhase, Plan
from tacit.train.recalibration import CalibrationResult
from tacit.train.settings import Speed
from tacit.train.steps import DEFAULT_SPEED, RunProgress

__all__ = ["Destination", "TrainingInterrupted", "TrainingOutcome", "run_training"]


class TrainingInterrupted(KeyboardInterrupt):
    """Asked to end, with a line that says how to go on."""


def run_training(
    plan: Plan,
    architecture: Architecture,
    *,
    secret: bytes | None = None,
    seed: int | None = None,
    payment: Payment | None = None,
    destination: Destination | None = None,
    speed: Speed = DEFAULT_SPEED,
    sinks: Sequence[Sink] = (),
    watch: Watch | None = None,
    handle_signals: bool = False,
) -> TrainingOutcome:
    """Train a model as planned, on the plan's own examples, and let it out once it is paid for.

    Without a `seed` everything random comes from the cryptographic stream, and what comes out is a release: on
    data that is not made up it needs a `payment`. With one it is a simulation: its result promises nothing, and
    nothing is paid for it.
    `secret` keys the flips of labels, and a payment must know them: with one secret, flips of labels that have
    changed would show which ones did. With `handle_signals` the first SIGINT or SIGTERM ends a run that has a
    destination after its step, with a checkpoint, and the second at once.
    """
    expect.kind("plan", plan, Plan)
    plan.check(architecture)
    if seed is None and plan.charge is not None and payment is None and not plan.examples.synthetic:
        raise BadInput("expected a payment for a release on data that is not made up, got none")
    if seed is not None and payment is not None:
        raise BadInput("expected no payment for a simulation, which releases nothing, got one with a seed")
    if payment is not None:
        payment.expect_covers(plan)
    if payment is not None and plan.needs_secret and payment.labels is None:
        raise BadInput("expected a payment that knows the labels which are flipped, got one without `labels`")
    if payment is not None and payment.labels is not None and payment.labels.secret != secret:
        raise BadInput("expected the secret that keys the labels which are paid for, got another or none")
    _check_labels(plan)
    job = TrainingJob(plan, architecture, secret, seed, speed, tuple(sinks), watch)
    if destination is not None:
        return _run_to_place(job, payment, destination, handle_signals=handle_signals)
    if payment is not None:
        return _run_paid(job, payment)
    began = time.monotonic()
    model, calibrated = job.train(watch)
    return job.outcome(model, _as_json(calibrated), seconds=time.monotonic() - began)


def _check_labels(plan: Plan) -> None:
    """Labels that cannot be learned from (not 0 or 1, most often) are refused before anything is paid for."""
    for phase in plan.phases:
        if isinstance(phase, LabelPhase) and phase.labelling is not None:
            labels_for_mechanism(phase.labelling.mechanism, plan.examples)
        else:
            _ = plan.examples.labels
    if plan.statistic is not None:
        _ = plan.examples.labels


def _run_paid(job: TrainingJob, payment: Payment) -> TrainingOutcome:
    """Nothing is kept on the way, so nothing can go on: what was reserved for a run that fails after its first
    step stays so, and is settled by hand."""
    began, run, token = time.monotonic(), draw_token(), draw_token()
    payment = payment.of_run(run)
    if payment.labels is not None and payment.labels.secret_path is not None:
        write_secret(payment.labels.secret_path, payment.labels.secret)
    paid = payment.reserve_for(job.plan)
    if not payment.drawn_once:
        payment.claim(token, ())
    count = _StepCount(job.watch)
    try:
        model, calibrated = job.train(count)
    except SelfCheckFailed as problem:
        raise SelfCheckFailed(f"{problem}{_stays(payment)}") from None
    except (TacitError, OSError, MemoryError) as problem:
        if count.steps or payment.drawn_once:
            raise BadInput(f"{_said(problem)}{_stays(payment)}") from None
        payment.give_back(token)
        raise
    if not payment.drawn_once:
        payment.make(token, weights_digest(model))
    payment.commit(token)
    seconds = time.monotonic() - began
    return job.outcome(model, _as_json(calibrated), seconds=seconds, paid=paid, run=run)


def _run_to_place(
    job: TrainingJob, payment: Payment | None, to: Destination, *, handle_signals: bool
) -> TrainingOutcome:
    began, model = time.monotonic(), None
    keeper = Checkpoints(to.out, _identity(job, to), to.checkpoints)
    begun = keeper.claim(resume=to.resume)
    try:
        payment = None if payment is None else payment.of_run(keeper.run)
        there = keeper.made and saved_run(to.out) == keeper.run
        placed = _PlacedRun(job, payment, to, keeper)
        if not there:
            placed.refuse_lost()
            to.check()
        labels = None if payment is None else payment.labels
        kept_at = {to.secret_path, None if labels is None else labels.secret_path} - {None}
        for place in kept_at:
            if job.secret is not None and place is not None:
                write_secret(place, job.secret)
        paid = None if payment is None else placed.pay(payment)
    except BaseException:
        keeper.release() if begun else keeper.discard()
        raise
    stays = _stays(payment)
    if not keeper.made:
        model, calibrated = placed.train(begun=begun, handle_signals=handle_signals)
        placed.finish(stays, partial(placed.stage, model, calibrated))
    attempt = placed.attempt(there)
    placed.finish(stays, lambda: placed.say_made(attempt, there))
    if not there:
        placed.finish(stays, partial(put_in_place, keeper.staged, to.out, overwrite=to.overwrite))
    placed.finish(stays, lambda: None if payment is None else payment.commit(attempt))
    placed.finish(placed.is_there, placed.export)
    keeper.discard()
    calibration = saved_settings(to.out).get("calibrated")
    seconds, run = time.monotonic() - began, keeper.run
    model = load(to.out).model if model is None else model  # an earlier run may have made it
    return job.outcome(model, calibration, seconds=seconds, paid=paid, run=run)


def _identity(job: TrainingJob, to: Destination) -> str:
    """A digest of the training that a checkpoint is of: of what is trained here, never of what somebody says
    of it. A configuration's own digest is of no other plan, model, secret or seed."""
    if to.planned is None:
        return job.digest
    if not to.planned.is_of(job.plan, job.architecture, job.secret, job.seed):
        raise BadInput(
            "expected the plan, model, secret and seed that the destination's configuration says, got others"
        )
    return to.planned.digest


class _StepCount:
    """How many steps a run has taken; whoever watches is told of each."""

    def __init__(self, watch: Watch | None) -> None:
        self.steps, self._watch = 0, watch

    def __call__(self, progress: RunProgress) -> None:
        self.steps += 1
        if self._watch is not None:
            self._watch(progress)


@dataclass(frozen=True, eq=False)
class _PlacedRun:
    """A run whose model goes to a place, with checkpoints on the way."""

    job: TrainingJob
    payment: Payment | None
    to: Destination
    keeper: Checkpoints

    def refuse_lost(self) -> None:
        """BadInput where this run has made its model and it is not to be found: it may be anywhere."""
        keeper, payment = self.keeper, self.payment
        if not keeper.made or saved_run(keeper.staged) == keeper.run:
            return
        settle = "" if payment is None else f"run `tacit ledger settle {payment.keys[0]} --left` and "
        raise BadInput(
            f"{self.to.out}: expected the model that this run has made, got none; put it back and try again, "
            f"or {settle}remove {keeper.folder}: to train once more would be another release"
        )

    def pay(self, payment: Payment) -> str:
        if self.keeper.made:  # so what it cost was reserved
            payment.refuse_unless_reserved()
            return "reserved before, by the run that made the model"
        said = payment.reserve_for(self.job.plan)
        if not payment.drawn_once:
            self.keeper.hold(payment.claim)
        return said

    def train(self, *, begun: bool, handle_signals: bool) -> tuple[Model, CalibrationResult | None]:
        job, keeper, payment = self.job, self.keeper, self.payment
        count = _StepCount(job.watch)
        try:
            with stop_on_signals(keeper) if handle_signals else nullcontext():
                return job.train(count, keeper, keeper.mark)
        except ReservationTaken:
            keeper.release()
            raise
        except SelfCheckFailed as problem:
            keeper.discard()
            raise SelfCheckFailed(f"{problem}{_stays(payment)}") from None
        except KeyboardInterrupt:
            keeper.release()
            raise TrainingInterrupted(self.how_to_go_on) from None
        except (TacitError, OSError, MemoryError) as problem:
            if begun or count.steps:
                keeper.release()
                raise BadInput(f"{_said(problem)}{_stays(payment)}; {self.how_to_go_on}") from None
            self.give_up(problem)
        except BaseException:  # of whoever watches: the run can go on from its last checkpoint
            keeper.release()
            raise

    def give_up(self, problem: BaseException) -> NoReturn:
        """Nothing was drawn yet. Noisy labels stay reserved all the same: their name is theirs for ever."""
        keeper, payment = self.keeper, self.payment
        keeper.discard()
        if payment is None:
            raise problem
        if payment.drawn_once:
            raise BadInput(f"{_said(problem)}{_stays(payment)}") from None
        payment.give_back(keeper.token)
        raise BadInput(
            f"{_said(problem)} (before the first step: nothing was spent; name another ledger.key for the next "
            "attempt)"
        ) from None

    def finish(self, standing: str, act: Callable[[], object]) -> None:
        """What comes after training may fail for want of space, and be done again. `standing` says in words
        what there is by now, and how the ledger stands."""
        try:
            act()
        except ReservationTaken:
            self.keeper.release()
            raise
        except (TacitError, OSError) as problem:
            self.keeper.release()
            raise BadInput(f"{_said(problem)}{standing}; try again with --resume") from None
        except BaseException:
            self.keeper.release()
            raise

    def stage(self, model: Model, calibrated: CalibrationResult | None) -> None:
        saved = saved_model(self.job, self.to, self.payment, model, calibrated, self.keeper.run)
        save(self.keeper.staged, saved, overwrite=True)
        self.keeper.note_made()

    def attempt(self, there: bool) -> str | None:
        """The name of this run in the ledger. Folders that were begun before there were tokens have none: such
        a run is called by its name, and where its model is in its place already nothing more leaves."""
        if self.keeper.token is None and not there:
            return f"run {self.keeper.run}"
        return self.keeper.token

    def say_made(self, attempt: str | None, there: bool) -> None:
        """To the ledger, which takes it once; of the model that waits, not of what was noted of one."""
        keeper, payment = self.keeper, self.payment
        if not there and not keeper.is_as_noted():
            raise BadInput(
                f"{keeper.staged}: expected the model that this run has made, got another; put it back and "
                "try again"
            )
        if payment is None or payment.drawn_once or attempt is None:
            return
        try:
            payment.make(attempt, keeper.release_digest)
        except ReservationTaken:
            keeper.unmake()  # it is not the one that was paid for, and nobody may see it
            raise

    def export(self) -> None:
        for write, path in ((export_onnx, self.to.onnx), (export_device, self.to.device)):
            if path is not None:
                write(load(self.to.out), path, overwrite=self.to.overwrite)

    @property
    def is_there(self) -> str:
        """For what fails after the payment was committed: to do it again costs nothing."""
        payment = self.payment
        spent = "" if payment is None else f", and what it costs is spent in the ledger as {payment.keys[0]}"
        return f" (the model is there, {self.to.out}{spent}: what is missing costs nothing more)"

    @property
    def how_to_go_on(self) -> str:
        return f"kept at {describe_mark(self.keeper.mark)}; go on with: {self.to.resume_hint}"


def saved_model(
    job: TrainingJob,
    to: Destination,
    payment: Payment | None,
    model: Model,
    calibrated: CalibrationResult | None,
    run: str,
) -> SavedModel:
    """The model with its promise, and with how it was trained: settings, never a private figure. How far off
    predictions were is from a statistic that the promise covers."""
    plan, method = job.plan, to.method
    statement = None if plan.statement is None else plan.statement.as_json()
    settings: dict[str, Any] = {
        "run": run,
        **to.settings,
        "examples": len(plan.examples),
        "steps": plan.steps,
        "calibrated": _as_json(calibrated),
        "simulated": job.seed,
        "ledger": None if payment is None else payment.as_json(),
    }
    if job.seed is not None:
        method, statement, settings["as_if"] = f"{method} (simulated, not private)", None, statement
    return SavedModel(
        model=model,
        head=plan.head,
        encoder=to.encoder,
        statement=statement,
        method=method,
        settings=settings,
        part=plan.part,
        synthetic=plan.examples.synthetic,
    )


@contextmanager
def stop_on_signals(keeper: Checkpoints) -> Iterator[None]:
    """The first SIGINT or SIGTERM ends the run after its step, with a checkpoint; the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        keeper.ask_to_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stays(payment: Payment | None) -> str:
    if payment is None:
        return ""
    return f" (what it costs stays reserved in the ledger as {payment.keys[0]}; see tacit ledger settle --help)"


def _said(problem: BaseException) -> str:
    return explain_os_error(problem) if isinstance(problem, OSError) else str(problem)


def _as_json(calibrated: CalibrationResult | None) -> dict[str, Any] | None:
    return None if calibrated is None else calibrated.as_json()
