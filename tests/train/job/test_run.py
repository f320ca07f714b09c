"""A training that is called from Python: paid for by any ledger, let out once that is committed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.data.columns import Columns
from tacit.entropy import Simulation
from tacit.errors import BadInput, BudgetExceeded
from tacit.memory_ledger import MemoryLedger
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.rules import ReservationState
from tacit.privacy.mechanisms.memoisation import FlipKey
from tacit.privacy.units import Cap, Relation, Unit, UnitKind, Window
from tacit.train.config import CheckpointSettings, PrivacySettings
from tacit.train.config_file import load_config
from tacit.train.examples import Examples
from tacit.train.job.checkpoints import checkpoint_folder
from tacit.train.job.label_flips import LabelFlipRelease
from tacit.train.job.payment import Payment, label_payment, release_payment
from tacit.train.job.planned_training import PlannedTraining, plan_training
from tacit.train.job.run import Destination, TrainingInterrupted, run_training
from tacit.train.methods import DpSgd, LabelDp, StatisticMethod
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import predict
from tacit.train.models.saving import load
from tacit.train.plan import Plan
from tacit.train.settings import Learning
from tacit.train.statistic.model import FieldFactors
from tacit.train.steps import Run, RunProgress
from tests.support.training_examples import FAST, MODEL, SECRET, fail_at, learnable
from tests.support.training_logs import called_synthetic, dp_sgd, label_dp, prepared

PRIVATE = DpSgd(4, "1e-5", learning=FAST)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("shop"))


def paying(plan: Plan, key: str = "clicks/1", limit: str = "8") -> tuple[MemoryLedger, Payment]:
    assert plan.charge is not None
    ledger = MemoryLedger()
    payment = release_payment(ledger, plan.charge, plan.examples, scope="shop", key=key)
    ledger.grant(payment.requests[0].line, Budget.of(limit, "1e-4"))
    return ledger, payment


def state(ledger: MemoryLedger, key: str = "clicks/1") -> ReservationState | None:
    known = ledger.reservation(key)
    return None if known is None else known.state


def test_a_simulation_draws_from_the_streams_of_its_seed() -> None:
    examples = learnable()
    plan = PRIVATE.plan(examples)
    model = MODEL.build(examples.sizes, Simulation("start 3").normal)
    Run(plan, model, examples, Simulation("run 3"), simulated=True).go()
    outcome = run_training(plan, MODEL, seed=3)
    np.testing.assert_array_equal(outcome.predict(examples), predict(model, examples, plan.part, plan.head))
    assert (outcome.statement, outcome.paid, outcome.run) == (None, None, None)


def test_people_are_not_trained_on_unpaid() -> None:
    plan = PRIVATE.plan(learnable(synthetic=False))
    with pytest.raises(BadInput, match="expected a payment for a release on data"):
        run_training(plan, MODEL)
    assert run_training(plan, MODEL, seed=1).statement is None


def test_a_model_is_let_out_once_it_is_paid_for() -> None:
    plan = PRIVATE.plan(learnable(synthetic=False))
    ledger, payment = paying(plan)
    seen: list[ReservationState | None] = []
    outcome = run_training(plan, MODEL, payment=payment, watch=lambda _: seen.append(state(ledger)))
    assert set(seen) == {ReservationState.RESERVED}
    assert state(ledger) is ReservationState.COMMITTED
    assert outcome.statement == plan.statement
    assert outcome.paid == "reserved"
    known = ledger.reservation("clicks/1")
    assert known is not None
    assert known.purpose == f"train, run {outcome.run}"
    with pytest.raises(BadInput, match="a release was made"):
        run_training(plan, MODEL, payment=payment)


def test_without_room_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PRIVATE.plan(learnable(synthetic=False))
    ledger, payment = paying(plan, limit="1")
    fail_at(monkeypatch, 0, AssertionError("it trains"))
    with pytest.raises(BudgetExceeded):
        run_training(plan, MODEL, payment=payment)
    assert state(ledger) is None


@pytest.mark.parametrize(("step", "after"), [(0, ReservationState.ABORTED), (3, ReservationState.RESERVED)])
def test_what_fails_before_the_first_step_is_given_back(
    monkeypatch: pytest.MonkeyPatch, step: int, after: ReservationState
) -> None:
    plan = PRIVATE.plan(learnable(synthetic=False))
    ledger, payment = paying(plan)
    fail_at(monkeypatch, step, BadInput("no room"))
    with pytest.raises(BadInput, match="no room") as refusal:
        run_training(plan, MODEL, payment=payment)
    assert ("stays reserved in the ledger as clicks/1" in str(refusal.value)) == bool(step)
    assert state(ledger) is after


def test_flips_are_paid_for_once_and_read_again(tmp_path: Path) -> None:
    examples, epsilon, key = learnable(synthetic=False), 2, FlipKey("shop: label", 0)
    method = LabelDp(epsilon, learning=Learning(epochs=1), key=key)
    plan = method.plan(examples, secret=SECRET)
    privacy = PrivacySettings("label-dp", Unit(UnitKind.IMPRESSION), Cap(1), epsilon)
    flips = LabelFlipRelease(privacy, "flips", key, SECRET, "shop", tmp_path / "flips.secret")
    ledger = MemoryLedger()
    assert plan.charge is not None
    payment = label_payment(ledger, flips, plan.charge, examples)
    ledger.grant(payment.requests[0].line, Budget.of(2, 0))
    with pytest.raises(BadInput, match="expected the secret that keys the labels which are paid for"):
        run_training(plan, MODEL, payment=payment)
    with pytest.raises(BadInput, match="expected a payment that knows the labels which are flipped"):
        run_training(plan, MODEL, secret=SECRET, payment=replace(payment, labels=None))
    assert ledger.reservation(flips.key) is None
    assert run_training(plan, MODEL, secret=SECRET, payment=payment).paid == "reserved"
    again = run_training(plan, MODEL, secret=SECRET, payment=payment)
    assert again.paid == "paid for before: the same noisy labels, read again"
    assert (tmp_path / "flips.secret").read_bytes() == SECRET
    label = np.array(examples.label)
    label[3] ^= 1
    changed = replace(examples, label=label)
    with pytest.raises(BadInput, match="labels that have changed since they were flipped"):
        run_training(method.plan(changed, secret=SECRET), MODEL, secret=SECRET, payment=payment)


def test_a_payment_pays_for_its_own_plan_alone(tmp_path: Path) -> None:
    examples, day = learnable(synthetic=False), Unit(UnitKind.USER, Window.days(1))
    cheap, dear = (DpSgd(epsilon, "1e-5", learning=FAST).plan(examples) for epsilon in (1, 8))
    ledger, payment = paying(cheap)
    for other in (dear, DpSgd(1, "1e-5", Unit(UnitKind.USER), learning=FAST).plan(examples)):
        with pytest.raises(BadInput, match="expected a payment of"):
            run_training(other, MODEL, payment=payment)
    with pytest.raises(BadInput, match="got one of nothing"):
        run_training(cheap, MODEL, payment=replace(payment, requests=()))
    days = DpSgd(1, "1e-5", day, learning=FAST).plan(examples)
    assert days.charge is not None
    some = examples.subset(np.arange(50))
    of_some = release_payment(ledger, days.charge, some, scope="s", key="days")
    assert len(of_some.requests) < len(
        release_payment(ledger, days.charge, examples, scope="s", key="d").requests
    )
    with pytest.raises(BadInput, match="each time window"):
        run_training(days, MODEL, payment=of_some)
    assert not ledger.now.reservations

    def flipped(version: int) -> Plan:
        key = FlipKey("shop: label", 0, version)
        return LabelDp(2, learning=Learning(epochs=1), key=key).plan(examples, secret=SECRET)

    privacy = PrivacySettings("label-dp", Unit(UnitKind.IMPRESSION), Cap(1), 2)
    flips = LabelFlipRelease(
        privacy, "flips", FlipKey("shop: label", 0, 0), SECRET, "shop", tmp_path / "secret"
    )
    charge = flipped(0).charge
    assert charge is not None
    labels = label_payment(ledger, flips, charge, examples)
    ledger.grant(labels.requests[0].line, Budget.of(2, 0))
    run_training(flipped(0), MODEL, secret=SECRET, payment=labels)
    with pytest.raises(BadInput, match="by the key that is paid for"):
        run_training(flipped(1), MODEL, secret=SECRET, payment=labels)
    with pytest.raises(BadInput, match="expected a payment of"):
        run_training(dear, MODEL, secret=SECRET, payment=labels)
    two = replace(flipped(0), phases=flipped(0).phases * 2)
    with pytest.raises(BadInput, match="releases nothing else"):
        run_training(two, MODEL, secret=SECRET, payment=labels)


def test_one_noisy_statistic_is_a_method_like_the_others() -> None:
    examples = learnable()
    method = StatisticMethod(4, "1e-5", Unit(UnitKind.USER))
    plan = method.plan(examples)
    assert plan.statement is not None
    assert plan.statement.relation is Relation.REPLACE_LABEL
    outcome = run_training(plan, FieldFactors(4), seed=2)
    released = method.statistic.release(
        method.statistic.plan(
            examples.public_ids, dict(examples.keys),
            public=examples.public_keys, unit=method.unit, epsilon=4, delta="1e-5",
        ),
        examples.labels, Simulation("run 2"), simulated=True,
    )  # fmt: skip
    fitted = method.statistic.fit(released, examples.public_ids, Simulation("start 2"))
    expected = fitted.predict_proba(examples.public_ids)
    np.testing.assert_allclose(outcome.predict(examples), expected, rtol=1e-4)
    with pytest.raises(BadInput, match="expected a model that is fitted to a statistic"):
        run_training(plan, MODEL, seed=2)
    model = MODEL.build(examples.sizes, Simulation(1).normal)
    with pytest.raises(BadInput, match="expected a plan of steps, got one noisy statistic"):
        Run(plan, model, examples, Simulation(1), simulated=True)


def test_a_run_with_a_destination_goes_on_where_it_was_stopped(tmp_path: Path, log: Path) -> None:
    columns = Columns.open(log)
    plan = PRIVATE.plan(Examples.of(columns, "train"))
    ledger, payment = paying(plan)
    to = Destination(
        tmp_path / "model", columns.encoder, "dp-sgd", checkpoints=CheckpointSettings(every_steps=1)
    )
    taken: list[int] = []

    def stop(progress: RunProgress) -> None:
        taken.append(progress.step)
        if progress.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(TrainingInterrupted, match="; go on with: resume=True"):
        run_training(plan, MODEL, payment=payment, destination=to, watch=stop)
    assert state(ledger) is ReservationState.RESERVED
    with pytest.raises(BadInput, match="expected no checkpoint, got one"):
        run_training(plan, MODEL, payment=payment, destination=to)
    with pytest.raises(BadInput, match="expected a checkpoint of this configuration and data"):
        run_training(plan, FieldFactors(2), payment=payment, destination=replace(to, resume=True))
    later = run_training(
        plan, MODEL, payment=payment, destination=replace(to, resume=True), watch=lambda p: taken.append(p.step)
    )
    assert taken == [1, 2, 3, 4, *range(4, plan.steps + 1)]
    assert later.paid == "reserved before, by the run that goes on"
    assert state(ledger) is ReservationState.COMMITTED
    saved = load(to.out)
    assert saved.settings["run"] == later.run
    assert plan.statement is not None
    assert saved.statement == json.loads(json.dumps(plan.statement.as_json()))
    np.testing.assert_array_equal(saved.predict(plan.examples), later.predict(plan.examples))
    assert not checkpoint_folder(to.out).exists()


def stop_at(step: int, problem: BaseException) -> Callable[[RunProgress], None]:
    def watch(progress: RunProgress) -> None:
        if progress.step == step:
            raise problem

    return watch


def test_a_checkpoint_is_of_what_is_trained_whatever_the_destination_says(tmp_path: Path, log: Path) -> None:
    """Going on with another seed would mix two studies; with another model or plan, two trainings."""
    place = called_synthetic(shutil.copytree(log, tmp_path / "log"))
    seeded: dict[str, Any] = {"run": {"simulated": 1}, "ledger": {}, "checkpoint": {"every_steps": 1}}
    config = load_config(dp_sgd(place.parent, **seeded))
    planned = plan_training(config, now=10**9)
    plan, to, wanted = planned.plan, planned.destination(), "that the destination's configuration says"
    for model, seed in ((config.model, 2), (config.model, None), (FactorizationMachine(2), 1)):
        with pytest.raises(BadInput, match=wanted):
            run_training(plan, model, seed=seed, destination=to)
    with pytest.raises(BadInput, match=wanted):
        run_training(replace(plan), config.model, seed=1, destination=to)
    assert not checkpoint_folder(to.out).exists()
    with pytest.raises(TrainingInterrupted):
        run_training(plan, config.model, seed=1, destination=to, watch=stop_at(3, KeyboardInterrupt()))
    by_hand = replace(to, planned=None, resume=True)
    for seed in (1, 2):  # the folder's digest is of the configuration's words too
        with pytest.raises(BadInput, match="expected a checkpoint of this configuration and data"):
            run_training(plan, config.model, seed=seed, destination=by_hand)
    run_training(plan, config.model, seed=1, destination=planned.destination(resume=True))
    assert load(to.out).settings["simulated"] == 1


def test_a_checkpoint_without_a_configuration_is_of_one_seed(tmp_path: Path, log: Path) -> None:
    columns = Columns.open(log)
    plan = PRIVATE.plan(Examples.of(columns, "train"))
    every = CheckpointSettings(every_steps=1)
    to = Destination(tmp_path / "model", columns.encoder, "dp-sgd", checkpoints=every, resume=True)
    with pytest.raises(TrainingInterrupted):
        run_training(plan, MODEL, seed=1, destination=to, watch=stop_at(3, KeyboardInterrupt()))
    with pytest.raises(BadInput, match="expected a checkpoint of this configuration and data"):
        run_training(plan, MODEL, seed=2, destination=to)
    run_training(plan, MODEL, seed=1, destination=to)


def test_a_simulation_is_not_paid_for(tmp_path: Path, log: Path) -> None:
    columns = Columns.open(log)
    plan = PRIVATE.plan(Examples.of(columns, "train"))
    ledger, payment = paying(plan)
    to = Destination(tmp_path / "model", columns.encoder, "dp-sgd")
    for destination in (None, to):
        with pytest.raises(BadInput, match="expected no payment for a simulation, which releases nothing"):
            run_training(plan, MODEL, seed=0, payment=payment, destination=destination)
    assert not ledger.now.reservations
    assert not list(tmp_path.iterdir())


def test_the_secret_is_kept_with_a_destination_and_keys_the_next_training(tmp_path: Path, log: Path) -> None:
    place = called_synthetic(shutil.copytree(log, tmp_path / "log"))

    def planned(name: str) -> PlannedTraining:
        config = label_dp(place.parent, name, ledger={"secret": "flips.secret"})
        return plan_training(load_config(config), now=10**9)

    first, rival = planned("first"), planned("rival")
    assert first.secret != rival.secret
    assert not (tmp_path / "flips.secret").exists()
    run_training(first.plan, first.config.model, secret=first.secret, destination=first.destination())
    assert (tmp_path / "flips.secret").read_bytes() == first.secret
    assert planned("second").secret == first.secret
    with pytest.raises(BadInput, match=r"ledger\.secret: expected no file at"):
        run_training(rival.plan, rival.config.model, secret=rival.secret, destination=rival.destination())
    assert not (tmp_path / "rival").exists()


def test_a_paid_secret_is_kept_where_the_payment_says_with_a_destination_too(tmp_path: Path, log: Path) -> None:
    columns, key = Columns.open(log), FlipKey("shop: label", 0)
    examples = Examples.of(columns, "train")
    plan = LabelDp(2, learning=Learning(epochs=1), key=key).plan(examples, secret=SECRET)
    privacy = PrivacySettings("label-dp", Unit(UnitKind.IMPRESSION), Cap(1), 2)
    flips = LabelFlipRelease(privacy, "flips", key, SECRET, "shop", tmp_path / "flips.secret")
    assert plan.charge is not None
    ledger = MemoryLedger()
    payment = label_payment(ledger, flips, plan.charge, examples)
    ledger.grant(payment.requests[0].line, Budget.of(2, 0))
    to = Destination(tmp_path / "model", columns.encoder, "label-dp")
    run_training(plan, MODEL, secret=SECRET, payment=payment, destination=to)
    assert (tmp_path / "flips.secret").read_bytes() == SECRET


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), ZeroDivisionError("foreign"), SystemExit()])
def test_whatever_ends_a_run_lets_go_of_its_folder(tmp_path: Path, log: Path, problem: BaseException) -> None:
    columns = Columns.open(log)
    plan = PRIVATE.plan(Examples.of(columns, "train"))
    ledger, payment = paying(plan)
    to = Destination(tmp_path / "model", columns.encoder, "dp-sgd", resume=True)
    with pytest.raises(type(problem)):
        run_training(plan, MODEL, payment=payment, destination=to, watch=stop_at(4, problem))
    assert state(ledger) is ReservationState.RESERVED
    run_training(plan, MODEL, payment=payment, destination=to)  # in this very process
    assert state(ledger) is ReservationState.COMMITTED


def test_a_ledger_that_breaks_lets_go_of_the_folder(tmp_path: Path, log: Path) -> None:
    """Once before the first step, where nothing was begun, and once after the model is made."""
    columns = Columns.open(log)
    plan = PRIVATE.plan(Examples.of(columns, "train"))
    ledger, payment = paying(plan)
    to = Destination(tmp_path / "model", columns.encoder, "dp-sgd", resume=True)
    kept = []  # as a debugger would: tracebacks hold the run, so that no collector closes its lock
    for method in ("reserve_all", "commit_all"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, method, lambda *_, **__: 1 // 0)
            with pytest.raises(ZeroDivisionError) as ended:
                run_training(plan, MODEL, payment=payment, destination=to)
        kept.append(ended.value)
    run_training(plan, MODEL, payment=payment, destination=to)
    assert state(ledger) is ReservationState.COMMITTED
    assert len(kept) == 2
