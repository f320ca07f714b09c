"""Carries out a planned training: claim a checkpoint folder, reserve, claim what is reserved, train, say that
the model is made, put it in its place, commit; in this order alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from tacit.commands.train_output import shown_progress
from tacit.commands.train_placing import put_in_place, saved_run, saved_settings
from tacit.commands.train_plan import check_out
from tacit.errors import BadInput, ReservationTaken, SelfCheckFailed, TacitError
from tacit.files import explain_os_error

if TYPE_CHECKING:
    from tacit.train.job.checkpoints import Checkpoints
    from tacit.train.job.payment import Payment
    from tacit.train.job.plan import PlannedTraining
    from tacit.train.job.progress import Sink
    from tacit.train.models.model import Model
    from tacit.train.models.saving import SavedModel
    from tacit.train.recalibration import CalibrationResult
    from tacit.train.run import RunProgress


SETTINGS = ("model", "privacy", "labels", "descent", "statistic")  # what a model says of its configuration


class Interrupted(KeyboardInterrupt):
    """Asked to end, with a line that says how to go on."""


@dataclass(frozen=True)
class TrainingOutcome:
    seconds: float
    paid: str | None  # in words
    calibrated: Mapping[str, Any] | None  # `CalibrationResult.as_json`, as the saved model has it


def run_training(
    chosen: PlannedTraining, payment: Payment | None, *, resume: bool, overwrite: bool
) -> TrainingOutcome:
    from tacit.train.job import progress
    from tacit.train.job.checkpoints import Checkpoints
    from tacit.train.job.label_flips import write_secret

    config, begun_at = chosen.config, time.monotonic()
    _ = chosen.examples.labels  # labels that are not 0 or 1 are refused here, before anything is paid for
    with progress.open_sinks(config.run) as told:
        keeper = Checkpoints(config.out, chosen.digest, config.keeping)
        begun = keeper.claim(resume=resume)
        try:
            payment = None if payment is None else payment.of_run(keeper.run)
            there = keeper.made and saved_run(config.out) == keeper.run
            if not there:
                _refuse_lost(chosen, payment, keeper)
                check_out(config, overwrite=overwrite)
            if chosen.secret is not None and config.ledger.secret is not None:
                write_secret(config.ledger.secret, chosen.secret)
            paid = None if payment is None else _pay(chosen, payment, keeper)
        except BaseException:
            keeper.release() if begun else keeper.discard()
            raise
        if not keeper.made:
            model, calibrated = _trained(chosen, payment, keeper, told, begun=begun)
            _finish(keeper, _stays(payment), lambda: _stage(chosen, payment, model, calibrated, keeper))
        attempt = _attempt(keeper, there)
        _finish(keeper, _stays(payment), lambda: _say_made(payment, keeper, attempt, there))
        if not there:
            place = partial(put_in_place, keeper.staged, config.out, overwrite=overwrite)
            _finish(keeper, _stays(payment), place)
        _finish(keeper, _stays(payment), lambda: None if payment is None else payment.commit(attempt))
        if config.onnx is not None:
            _finish(keeper, _is_there(chosen, payment), lambda: _export(chosen, overwrite))
        keeper.discard()
    return TrainingOutcome(time.monotonic() - begun_at, paid, saved_settings(config.out).get("calibrated"))


def _refuse_lost(chosen: PlannedTraining, payment: Payment | None, keeper: Checkpoints) -> None:
    """A model that was made, and is not to be found, may be anywhere."""
    if not keeper.made or saved_run(keeper.staged) == keeper.run:
        return
    settle = "" if payment is None else f"run `tacit ledger settle {payment.keys[0]} --left` and "
    raise BadInput(
        f"{chosen.config.out}: expected the model that this run has made, got none; put it back and try again, "
        f"or {settle}remove {keeper.folder}: to train once more would be another release"
    )


def _pay(chosen: PlannedTraining, payment: Payment, keeper: Checkpoints) -> str:
    if keeper.made:  # so what it cost was reserved
        payment.refuse_unless_reserved()
        return "reserved before, by the run that made the model"
    said = payment.reserve_for(chosen.plan)
    if not payment.drawn_once:
        keeper.hold(payment.claim)
    return said


def _attempt(keeper: Checkpoints, there: bool) -> str | None:
    """The name of this run in the ledger. Folders that were begun before there were tokens have none: such a
    run is called by its name, and where its model is in its place already nothing more leaves."""
    if keeper.token is None and not there:
        return f"run {keeper.run}"
    return keeper.token


def _say_made(payment: Payment | None, keeper: Checkpoints, attempt: str | None, there: bool) -> None:
    """To the ledger, which takes it once; of the model that waits, not of what was noted of one."""
    if not there and not keeper.is_as_noted():
        raise BadInput(
            f"{keeper.staged}: expected the model that this run has made, got another; put it back and try "
            "again"
        )
    if payment is None or payment.drawn_once or attempt is None:
        return
    try:
        payment.make(attempt, keeper.release_digest)
    except ReservationTaken:
        keeper.unmake()  # it is not the one that was paid for, and nobody may see it
        raise


def _trained(
    chosen: PlannedTraining,
    payment: Payment | None,
    keeper: Checkpoints,
    told: tuple[Sink, ...],
    *,
    begun: bool,
) -> tuple[Model, CalibrationResult | None]:
    from tacit.entropy import Entropy, Simulation
    from tacit.train.job.progress import Spending
    from tacit.train.run import Run

    config, seed = chosen.config, chosen.config.run.simulated
    selection = chosen.examples.selection
    spending = Spending(chosen.plan, () if selection is None else (selection.release,))
    source: Entropy | Simulation = Entropy()
    start: Entropy | Simulation = source
    if seed is not None:
        # A run that goes on draws from another stream: never the same noise twice, in a study neither.
        source, start = Simulation(f"run {seed} {keeper.mark}"), Simulation(f"start {seed}")
    steps = 0
    try:
        if chosen.plan.statistic is not None:
            return _from_statistic(chosen), None
        with _stopping(keeper), shown_progress(chosen.plan, spending, told) as watch:

            def count(progress: RunProgress) -> None:
                nonlocal steps
                steps += 1
                watch(progress)

            model = config.model.build(chosen.examples.sizes, start.normal)
            run = Run(
                chosen.plan, model, chosen.examples, source, chosen.secret,
                speed=config.speed, simulated=seed is not None,
            )  # fmt: skip
            return run.go(count, keeper), run.calibrated
    except ReservationTaken:
        keeper.release()
        raise
    except SelfCheckFailed as problem:
        keeper.discard()
        raise SelfCheckFailed(f"{problem}{_stays(payment)}") from None
    except KeyboardInterrupt:
        keeper.release()
        raise Interrupted(_how_to_go_on(chosen, keeper)) from None
    except (TacitError, OSError, MemoryError) as problem:
        if begun or steps:
            keeper.release()
            raise BadInput(f"{_said(problem)}{_stays(payment)}; {_how_to_go_on(chosen, keeper)}") from None
        _give_up(keeper, payment, problem)


def _from_statistic(chosen: PlannedTraining) -> Model:
    from tacit.commands.output import spinner
    from tacit.entropy import Entropy, Simulation
    from tacit.train.statistic.model import FieldFactors

    examples, seed, planned = chosen.examples, chosen.config.run.simulated, chosen.plan.statistic
    assert planned is not None
    assert isinstance(chosen.config.model, FieldFactors)
    source: Entropy | Simulation = Entropy() if seed is None else Simulation(f"run {seed}")
    start: Entropy | Simulation = source if seed is None else Simulation(f"start {seed}")
    with spinner("fitting to one noisy statistic"):
        fitted = planned.train(examples.labels, examples.public_ids, source, start, simulated=seed is not None)
    return chosen.config.model.filled(examples.sizes, fitted)


def _give_up(keeper: Checkpoints, payment: Payment | None, problem: BaseException) -> NoReturn:
    """Nothing was drawn yet. Noisy labels stay reserved all the same: their name is theirs for ever."""
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


def _finish(keeper: Checkpoints, standing: str, act: Callable[[], object]) -> None:
    """What comes after training may fail for want of space, and be done again. `standing` says in words what
    there is by now, and how the ledger stands."""
    try:
        act()
    except ReservationTaken:
        keeper.release()
        raise
    except (TacitError, OSError) as problem:
        keeper.release()
        raise BadInput(f"{_said(problem)}{standing}; try again with --resume") from None
    except BaseException:
        keeper.release()
        raise


def _stage(
    chosen: PlannedTraining,
    payment: Payment | None,
    model: Model,
    calibrated: CalibrationResult | None,
    keeper: Checkpoints,
) -> None:
    from tacit.train.models.saving import save

    save(keeper.staged, as_saved(chosen, payment, model, calibrated, keeper.run), overwrite=True)
    keeper.note_made()


def as_saved(
    chosen: PlannedTraining,
    payment: Payment | None,
    model: Model,
    calibrated: CalibrationResult | None,
    run: str,
) -> SavedModel:
    """The model with its promise, and with how it was trained: settings, never a private figure. How far off
    predictions were is from a statistic that the promise covers."""
    from tacit.train.models.saving import SavedModel

    config, plan = chosen.config, chosen.plan
    statement = None if plan.statement is None else plan.statement.as_json()
    said = {name: config.said[name] for name in SETTINGS if name in config.said}
    settings: dict[str, Any] = {
        "run": run,
        "configuration": said,
        "part": config.part,
        "examples": len(chosen.examples),
        "units": chosen.units,
        "steps": plan.steps,
        "calibrated": None if calibrated is None else calibrated.as_json(),
        "log": chosen.columns.manifest.get("log"),
        "simulated": config.run.simulated,
        "ledger": None if payment is None else payment.as_json(),
    }
    method = config.privacy.method
    if chosen.simulated:
        method, statement, settings["as_if"] = f"{method} (simulated, not private)", None, statement
    return SavedModel(
        model=model,
        head=plan.head,
        encoder=chosen.columns.encoder,
        statement=statement,
        method=method,
        settings=settings,
        part=plan.part,
        synthetic=chosen.examples.synthetic,
    )


def _export(chosen: PlannedTraining, overwrite: bool) -> None:
    from tacit.train.models.onnx_export import export_onnx
    from tacit.train.models.saving import load

    assert chosen.config.onnx is not None
    export_onnx(load(chosen.config.out), chosen.config.onnx, overwrite=overwrite)


def _stays(payment: Payment | None) -> str:
    if payment is None:
        return ""
    return f" (what it costs stays reserved in the ledger as {payment.keys[0]}; see tacit ledger settle --help)"


def _is_there(chosen: PlannedTraining, payment: Payment | None) -> str:
    """For what fails after the payment was committed: to do it again costs nothing."""
    spent = "" if payment is None else f", and what it costs is spent in the ledger as {payment.keys[0]}"
    return f" (the model is there, {chosen.config.out}{spent}: what is missing costs nothing more)"


def _said(problem: BaseException) -> str:
    return explain_os_error(problem) if isinstance(problem, OSError) else str(problem)


def _how_to_go_on(chosen: PlannedTraining, keeper: Checkpoints) -> str:
    from tacit.train.job.checkpoints import describe_mark

    return f"kept at {describe_mark(keeper.mark)}; go on with: tacit train {chosen.config.place} --resume"


@contextmanager
def _stopping(keeper: Checkpoints) -> Iterator[None]:
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
