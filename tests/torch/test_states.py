"""A run that is kept goes on as it would have, once, and is paid for once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tacit import BudgetExceeded, MemoryLedger
from tacit.errors import BadInput, LedgerConflict, ReservationTaken, SelfCheckFailed
from tacit.privacy import Budget
from tacit.privacy.ledger.rules import ReservationState
from tacit.store import LedgerStore
from tacit.torch import PrivateRun
from tacit.torch.admission import weights_digest
from tests.support.torch_runs import (
    LINE,
    Bare,
    kept,
    losses,
    make_run,
    train,
    weights,
)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_run_that_goes_on_ends_where_it_would_have(optimizer: Any) -> None:
    whole = train(make_run(optimizer=optimizer, rate=0.1))
    state = kept(train(make_run(optimizer=optimizer, rate=0.1), most=4))
    assert (state["steps"], state["epsilon_spent"]) == (4, whole.plan.epsilon_after(4))
    again = make_run(optimizer=optimizer, rate=0.1)
    again.load_state_dict(state)
    assert again.steps == 4
    train(again)
    assert again.steps == whole.steps
    for name, each in weights(whole).items():
        torch.testing.assert_close(weights(again)[name], each, rtol=0, atol=0)


def test_in_earnest_the_rest_is_drawn_afresh() -> None:
    state = kept(train(make_run(seed=None), most=4))
    ends = []
    for _ in range(2):
        run = make_run(seed=None)
        run.load_state_dict(state)
        ends.append(weights(train(run)))
        assert run.steps == 10
    assert all(not torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_run_gets_no_more_steps_than_were_planned() -> None:
    run = train(make_run())
    with pytest.raises(BadInput, match="expected a run that goes on, got one that is finished"):
        next(run.batches())
    state = kept(train(make_run(), most=9))
    changes: list[tuple[dict[str, Any], str]] = [
        ({"steps": 11}, "expected at most 10 steps, which were planned, got 11"),
        ({"version": 3}, "expected a state of version 1, got 3"),
        (
            {"plan": {**state["plan"], "steps": 20}},
            "expected a state of the same plan, steps = 10, got steps = 20",
        ),
        ({"plan": {**state["plan"], "clip_norm": 2.0}}, r"same plan, clip_norm = 1\.0, got clip_norm = 2\.0"),
        ({"simulated": False}, "expected a state of the same plan, simulated = True, got simulated = False"),
    ]
    for change, words in changes:
        with pytest.raises(BadInput, match=words):
            make_run().load_state_dict({**state, **change})
    begun = train(make_run(), most=2)
    with pytest.raises(BadInput, match="expected a run that has not begun, got one that has"):
        begun.load_state_dict(state)


def scheduled(run: PrivateRun, kind: Any = torch.optim.lr_scheduler.ExponentialLR, **named: Any) -> PrivateRun:
    run.scheduler = kind(run.optimizer, **(named or {"gamma": 0.9}))
    return run


def test_a_state_of_something_else_is_refused_before_anything_is_taken_up() -> None:
    ledger = MemoryLedger()
    ledger.grant(LINE, Budget.of(99, "1e-4"))
    pays: dict[str, Any] = {"ledger": ledger, "name": "clicks/net-1", "line": LINE, "seed": None}
    state = kept(train(scheduled(make_run(**pays)), most=6))
    lr = torch.optim.lr_scheduler
    others: list[tuple[PrivateRun, dict[str, Any], str]] = [
        (make_run(**pays), {}, "expected a state of a run without a scheduler, got one with a scheduler"),
        (scheduled(make_run(**pays)), {"scheduler": None}, "with the scheduler ExponentialLR, got none"),
        (
            scheduled(make_run(**pays), lr.CosineAnnealingLR, T_max=5),
            {},
            "with the scheduler CosineAnnealingLR, got another",
        ),
        (
            scheduled(make_run(Bare(), per_example="functional", **pays)),
            {},
            r"a state of the same module, 0\.bias",
        ),
        (
            scheduled(make_run(optimizer=torch.optim.Adam, **pays)),
            {},
            "a state of the same optimizer, Adam with the same groups of parameters, got another",
        ),
        (scheduled(make_run(**pays)), {"steps": 2.5}, "expected a state with its steps, got float for it"),
    ]
    for run, change, words in others:
        before = weights(run)
        with pytest.raises(BadInput, match=words):
            run.load_state_dict({**state, **change})
        assert run.steps == 0
        assert all(torch.equal(before[name], each) for name, each in weights(run).items())
    good = scheduled(make_run(**pays))
    good.load_state_dict(state)  # nobody has taken it up
    assert good.steps == 6


@pytest.mark.parametrize("given", [3, None, {"version": 1}, {"version": 1, "plan": 3}])
def test_what_is_no_state_is_refused_in_one_line(given: Any) -> None:
    with pytest.raises(BadInput, match=r"^expected (the state of a run|a state with its plan), got .*$"):
        make_run().load_state_dict(given)


def test_a_run_whose_state_is_loaded_by_half_never_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the trained weights would get all planned steps once more, for one payment."""
    ledger = MemoryLedger()
    ledger.grant(LINE, Budget.of(99, "1e-4"))
    pays: dict[str, Any] = {"ledger": ledger, "name": "clicks/net-1", "line": LINE, "seed": None}
    state = kept(train(make_run(**pays), most=9))
    run = make_run(**pays)

    def fails(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run.optimizer, "load_state_dict", fails)
    with pytest.raises(KeyboardInterrupt):
        run.load_state_dict(state)
    assert run.steps == 9
    for attempt in (lambda: next(run.batches()), run.state_dict, run.finish):
        with pytest.raises(SelfCheckFailed, match="got one that was stopped: nothing leaves"):
            attempt()


def test_a_state_is_of_whole_steps() -> None:
    run = make_run(max_physical_batch=7)
    batches = run.batches()
    run.step(losses(run.module, next(batches)))
    with pytest.raises(
        BadInput, match="expected a run between two steps, got one with a part of a sample taken in"
    ):
        run.state_dict()


def test_noise_is_tested_before_a_state_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(make_run(), most=3)
    monkeypatch.setattr(
        run._sums, "close", lambda: (_ for _ in ()).throw(SelfCheckFailed("noise: expected more"))
    )
    with pytest.raises(SelfCheckFailed, match="expected more"):
        run.state_dict()
    with pytest.raises(SelfCheckFailed, match="nothing leaves"):
        run.finish()


def test_a_run_reserves_before_its_first_step_and_spends_after_its_last() -> None:
    ledger = MemoryLedger()
    ledger.grant(LINE, Budget.of(9, "1e-4"))
    pays: dict[str, Any] = {
        "ledger": ledger,
        "name": "clicks/net-1",
        "line": LINE,
        "seed": None,
        "noise_multiplier": None,
        "epsilon": 4,
    }
    run = make_run(**pays)
    assert ledger.reservation("clicks/net-1") is None
    for batch in run.batches():
        reservation = ledger.reservation("clicks/net-1")
        assert reservation is not None
        assert reservation.state is ReservationState.RESERVED
        run.step(losses(run.module, batch))
    settled = ledger.reservation("clicks/net-1")
    assert settled is not None
    assert settled.state is ReservationState.COMMITTED
    assert settled.amount.budget == Budget.of(4, "1e-5")
    assert settled.release == weights_digest(run.module)
    with pytest.raises(LedgerConflict):
        next(make_run(**pays).batches())
    with pytest.raises(BudgetExceeded):
        next(make_run(**{**pays, "name": "clicks/net-2", "epsilon": 6}).batches())


def test_of_the_copies_of_a_run_one_goes_on(tmp_path: Path) -> None:
    ledger = LedgerStore.open(tmp_path / "ledger.sqlite")
    ledger.grant(LINE, Budget.of(99, "1e-4"))
    pays: dict[str, Any] = {"ledger": ledger, "name": "clicks/net-1", "line": LINE, "seed": None}
    state = kept(train(make_run(**pays), most=3))
    first, second = make_run(**pays), make_run(**pays)
    first.load_state_dict(state)
    with pytest.raises(ReservationTaken):
        second.load_state_dict(state)
    train(first)
    settled = ledger.reservation("clicks/net-1")
    assert settled is not None
    assert settled.state is ReservationState.COMMITTED


def test_a_paid_run_does_not_go_on_unpaid() -> None:
    ledger = MemoryLedger()
    ledger.grant(LINE, Budget.of(99, "1e-4"))
    state = kept(train(make_run(ledger=ledger, name="clicks/net-1", line=LINE, seed=None), most=3))
    with pytest.raises(BadInput, match="expected a state of a run without a ledger, got a paid one"):
        make_run(seed=None).load_state_dict(state)


def test_who_pays_is_said_whole() -> None:
    ledger = MemoryLedger()
    with pytest.raises(BadInput, match="expected a name and a line to pay from with a ledger, got none"):
        make_run(ledger=ledger, seed=None)
    with pytest.raises(BadInput, match="expected a ledger to pay with, got a name or a line alone"):
        make_run(name="clicks/net", seed=None)
    with pytest.raises(BadInput, match="expected no ledger for a simulation, got one"):
        make_run(ledger=ledger, name="clicks/net", line=LINE)
    unpaid = kept(train(make_run(seed=None), most=3))
    with pytest.raises(
        BadInput, match="expected a state of a run that was paid for, got one without a payment"
    ):
        make_run(ledger=ledger, name="clicks/net", line=LINE, seed=None).load_state_dict(unpaid)
