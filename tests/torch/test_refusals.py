"""What a run refuses on the way: modules, losses, settings, other people's steps."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tacit.torch
from tacit import MemoryLedger
from tacit.errors import BadInput, SelfCheckFailed
from tacit.privacy import Budget
from tacit.torch import PrivateRun
from tests.support.torch_runs import (
    FEATURES,
    LINE,
    RECORDS,
    Batch,
    double_run,
    expect_stopped,
    functional_losses,
    kept,
    losses,
    make_run,
    network,
    records,
    train,
    weights,
)


class Detour(nn.Module):
    """Uses a layer's weight without calling the layer."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.inner, self.head = way, nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 1)
        self.place = nn.Embedding(3, FEATURES)

    def forward(self, values: Tensor) -> Tensor:
        read = self.inner(values)
        shown = torch.zeros_like(read)
        if self.way != "unused":
            shown = self.place(torch.zeros(len(values), dtype=torch.long))
        if self.way == "around":
            read = nn.functional.linear(read, self.inner.weight)
        elif self.way == "shared":
            shown = self.place(torch.arange(3)).sum(dim=0)
        elif self.way == "changed":
            values.add_(1)
        elif self.way == "ignored":
            shown = shown.detach()
        return self.head(read + shown)[:, 0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            "around",
            r"^inner\.weight: expected a parameter that its own layer alone reads \(1 times\), got .* 2 times",
        ),
        (
            "shared",
            r"^place: expected one row per example in the first dimension, got another .*: expand what",
        ),
        ("unused", r"^place: expected a forward pass through every trained layer, got none through this one"),
        ("changed", r"^inner: expected inputs that stay as they are, got some changed in place"),
        (
            "ignored",
            r"^place\.weight: expected a parameter that its own layer alone reads \(1 times\), got .* 0 times",
        ),
    ],
)
def test_what_is_not_book_kept_is_refused_by_name(way: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        train(make_run(Detour(way)))


def test_losses_are_one_per_example() -> None:
    def refused(make: Any, words: str) -> None:
        run = make_run()
        with pytest.raises(BadInput, match=words) as refusal:
            train(run, by=make)
        assert not re.search(r"\d\d", str(refusal.value)), "how many there are is secret"

    refused(
        lambda *each: losses(*each).mean(),
        r'one loss per example \(reduction="none"\), got a single number',
    )
    refused(
        lambda *each: losses(*each)[:, None].expand(-1, 3),
        "got 2 dimensions: add up what belongs to one example",
    )
    refused(
        lambda *each: losses(*each).detach(),
        "expected losses that follow from the module, got some without a gradient",
    )
    refused(lambda *_: 3.0, "expected a tensor of losses, got float")
    run = make_run()
    with pytest.raises(BadInput, match="expected one step per batch of batches"):
        run.step(torch.zeros(3))
    batches = run.batches()
    next(batches)
    with pytest.raises(BadInput, match=r"expected step\(losses\) after every batch, got none"):
        next(batches)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 3}, "expected either epsilon or noise_multiplier, got both"),
        ({"noise_multiplier": None}, "expected either epsilon or noise_multiplier, got neither"),
        ({"max_grad_norm": 0}, "expected max_grad_norm > 0, got 0"),
        ({"delta": 0}, r"expected delta in \(0, 1\), got 0"),
        ({"epochs": 0}, "expected epochs > 0, got 0"),
        ({"max_physical_batch": 0}, "expected max_physical_batch to be a whole number >= 1, got 0"),
        ({"per_example": "guess"}, "expected per_example to be one of book-keeping, functional, got 'guess'"),
        ({"unit": "click"}, "got 'click'"),
        ({"relation": "add"}, "expected relation to be one of add-remove, replace-one"),
        ({"noise_multiplier": "1"}, "expected noise_multiplier to be a number, got the text '1'"),
        ({"delta": "1e-5"}, "expected delta to be a number, got the text '1e-5'"),
        ({"noise_multiplier": None, "epsilon": "2"}, "expected epsilon to be a number, got the text '2'"),
        ({"users": [1, 2, 3]}, "expected users to have one id for each of 400 records, got others"),
        ({"users": "visitor"}, "expected users to have one id for each of 400 records, got others"),
        ({"users": [None] * 400}, "expected an id in every place of users, got a missing one"),
        ({"users": [1.0] * 399 + [float("nan")]}, "expected an id in every place of users, got a missing one"),
        ({"users": [1, ()] * 200}, "expected users to be a list of ids of one kind, got another"),
        ({"users": range(400), "unit": "impression"}, "expected a unit such as user beside users, got impr"),
        (
            {"noise_multiplier": None, "epsilon": 1e9},
            r"^epsilon: expected 0\.0001 to 1000, got .*: nothing would",
        ),
        ({"noise_multiplier": None, "epsilon": -1}, "expected epsilon > 0, got -1"),
        ({"ledger": "ledger.sqlite", "seed": None}, "^expected a ledger such as LedgerStore, got str"),
        ({"ledger": MemoryLedger(), "name": "n", "line": "clicks", "seed": None}, "expected line to be a Line"),
        ({"scheduler": "cosine"}, "^expected a torch scheduler of learning rates, got str"),
    ],
)
def test_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make_run(**settings)


def test_a_scheduler_counts_the_steps_of_this_optimizer() -> None:
    def refused(make: Any, words: str) -> None:
        module = network()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        with pytest.raises(BadInput, match=words):
            tacit.torch.private(
                module, optimizer, DataLoader(records(), batch_size=40), noise_multiplier=1, delta=1e-5,
                epochs=1, scheduler=make(optimizer), seed=1,
            )  # fmt: skip

    lr = torch.optim.lr_scheduler
    refused(
        lr.ReduceLROnPlateau,
        r"^expected a scheduler that counts steps, got ReduceLROnPlateau, which asks for a metric of records$",
    )
    other = torch.optim.SGD(network().parameters(), lr=1)
    refused(
        lambda _: lr.ExponentialLR(other, 0.9),
        r"^expected a scheduler of the run's optimizer, got a ExponentialLR of another one$",
    )


def test_evaluation_is_not_taken_for_training() -> None:
    """Without gradients, in the middle of a step; with them, it is one pass too many."""
    run = make_run()
    for batch in run.batches():
        with torch.no_grad():
            run.module(batch[0])
        run.step(losses(run.module, batch))

    def twice(module: nn.Module, batch: Batch) -> Tensor:
        module(batch[0])
        return losses(module, batch)

    with pytest.raises(BadInput, match=r"that its own layer alone reads \(2 times\), got .* 1 times"):
        train(make_run(), by=twice)


def test_nobody_else_steps_the_optimizer() -> None:
    """Who goes on by habit, backward and step, would step by gradients that nobody has clipped."""
    run = make_run(max_physical_batch=9)
    before = weights(run)
    batch = next(run.batches())
    losses(run.module, batch).mean().backward()  # type: ignore[no-untyped-call]
    with pytest.raises(
        BadInput, match=r"expected run\.step\(losses\) to step the optimizer, got a call of its own step"
    ):
        run.optimizer.step()
    assert all(torch.equal(before[name], each) for name, each in weights(run).items())
    train(run)
    assert all(each.grad is None for each in run.module.parameters())
    run.optimizer.step()  # the module is theirs again


def frozen_network() -> nn.Sequential:
    module = network()
    module[0].requires_grad_(False)
    return module


def run_of_all(module: nn.Module, kind: Any = torch.optim.SGD, **settings: Any) -> PrivateRun:
    """By an optimizer that holds what is frozen, too."""
    optimizer = kind(module.parameters(), lr=0.5)
    loader = DataLoader(records(), batch_size=40)
    defaults: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-5, "epochs": 1, "seed": 7}
    return tacit.torch.private(module, optimizer, loader, **{**defaults, **settings})


@pytest.mark.parametrize("way", ["before", "between"])
def test_a_gradient_of_before_moves_nothing_that_is_frozen(way: str) -> None:
    module = network()
    losses(module, tuple(records().tensors)).sum().backward()  # type: ignore[no-untyped-call, arg-type]
    held = module.get_parameter("0.weight")
    stale = torch.ones_like(held)
    module[0].requires_grad_(False)
    run = run_of_all(module)
    before = held.detach().clone()
    for batch in run.batches():
        if way == "between":
            held.grad = stale
        run.step(losses(module, batch))
    assert torch.equal(before, held)
    assert held.grad is None


@pytest.mark.parametrize(("layer", "trains"), [(0, True), (2, False)])
def test_what_is_frozen_stays_frozen_and_what_is_trained_trained(layer: int, trains: bool) -> None:
    module = frozen_network()
    run = train(run_of_all(module), most=2)
    module[layer].requires_grad_(trains)
    before = weights(run)
    expect_stopped(run, rf"^{layer}\.(weight|bias): expected parameters that stay trained or frozen")
    assert all(torch.equal(before[name], each) for name, each in weights(run).items())


def test_what_is_frozen_stays_so_within_a_step() -> None:
    module = frozen_network()
    run = run_of_all(module)
    found = losses(module, next(run.batches()))
    module[0].requires_grad_(True)
    with pytest.raises(SelfCheckFailed, match=r"^0\.(weight|bias): expected parameters that stay trained"):
        run.step(found)


def test_an_optimizer_gets_no_more_parameters() -> None:
    run = make_run()
    other = nn.Linear(2, 1)
    train(run, most=2)
    run.optimizer.add_param_group({"params": list(other.parameters())})
    before, outside = weights(run), other.weight.detach().clone()
    other.weight.grad = torch.ones(1, 2)
    expect_stopped(
        run, "expected an optimizer with the parameters that the run was made for, got another group"
    )
    assert all(torch.equal(before[name], each) for name, each in weights(run).items())
    assert torch.equal(outside, other.weight)


LOADED = r"^expected run\.load_state_dict to load the optimizer, got a call of its own"


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_an_optimizer_has_not_stepped_without_noise(kind: Any) -> None:
    def used() -> tuple[nn.Module, Any]:
        module = network()
        optimizer = kind(module.parameters(), lr=0.1)
        losses(module, tuple(records().tensors)).sum().backward()  # type: ignore[no-untyped-call, arg-type]
        optimizer.step()
        return module, optimizer

    module, optimizer = used()
    words = rf"^expected an optimizer that has not stepped yet, got {kind.__name__} with .*: make a new one$"
    settings: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-5, "epochs": 1, "seed": 7}
    with pytest.raises(BadInput, match=words):
        tacit.torch.private(module, optimizer, DataLoader(records(), batch_size=40), **settings)
    run = run_of_all(network(), kind)
    with pytest.raises(BadInput, match=LOADED):
        run.optimizer.load_state_dict(optimizer.state_dict())
    run.optimizer.state.update(zip(run.module.parameters(), optimizer.state.values(), strict=True))
    with pytest.raises(BadInput, match=words):
        train(run)
    train(run_of_all(network(), kind))


def test_nobody_loads_the_optimizer_in_the_middle_of_a_run() -> None:
    run = train(run_of_all(network(), torch.optim.Adam), most=3)
    other = train(run_of_all(network(), torch.optim.Adam), most=2)
    before = run.optimizer.state_dict()["state"][0]["exp_avg"].clone()
    with pytest.raises(BadInput, match=LOADED):
        run.optimizer.load_state_dict(other.optimizer.state_dict())
    assert torch.equal(before, run.optimizer.state_dict()["state"][0]["exp_avg"])
    train(run)
    run.optimizer.load_state_dict(other.optimizer.state_dict())  # it is finished: an ordinary one again


def test_batches_are_handed_out_once() -> None:
    run = make_run(max_physical_batch=9)
    first = run.batches()
    run.step(losses(run.module, next(first)))
    second = run.batches()
    run.step(losses(run.module, next(second)))
    with pytest.raises(
        BadInput, match="expected the batches of a call that goes on, got those of one that was left"
    ):
        next(first)


def test_a_step_that_is_interrupted_adds_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the functional way, whose gradients are added some at a time."""
    run = make_run(per_example="functional", epochs=0.2)
    run._gradients._most = 5  # type: ignore[union-attr]
    checks, right = [], run._monitor.check_clipped

    def interrupted(*given: Any) -> None:
        checks.append(given)
        if len(checks) == 2:
            raise KeyboardInterrupt
        right(*given)

    monkeypatch.setattr(run._monitor, "check_clipped", interrupted)
    batches = run.batches()
    next(batches)
    with pytest.raises(KeyboardInterrupt):
        run.step(functional_losses)
    with pytest.raises(BadInput, match="expected one step per batch"):
        run.step(functional_losses)
    with pytest.raises(BadInput, match="got those of one that was left"):
        next(batches)
    for _ in run.batches():
        run.step(functional_losses)
    for name, each in weights(train(make_run(epochs=0.2))).items():
        torch.testing.assert_close(weights(run)[name], each, rtol=1e-5, atol=1e-6)


def test_a_step_whose_optimizer_fails_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()

    def fails() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run.optimizer, "step", fails)
        with pytest.raises(KeyboardInterrupt):
            train(run)
    assert run.steps == 1
    assert all(each.grad is None for each in run.module.parameters())
    train(run)
    assert run.steps == run.plan.steps


def test_another_run_of_the_same_optimizer_takes_over() -> None:
    """Whoever makes one anew, as in a notebook, is not held up by the last one's guard."""
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    loader = DataLoader(records(), batch_size=40)
    first, second = (
        tacit.torch.private(module, optimizer, loader, noise_multiplier=1, delta=1e-5, epochs=1, seed=1)
        for _ in range(2)
    )
    with pytest.raises(
        BadInput, match="expected the last run that was made of an optimizer, got an earlier one"
    ):
        train(first)
    assert all(len(each._forward_hooks) <= 1 for each in module.modules())
    train(second)
    assert second.finished


def test_a_step_that_was_left_is_drawn_again() -> None:
    run = make_run(max_physical_batch=9)
    for _ in range(3):
        run.step(losses(run.module, next(run.batches())))
    assert run.steps == 0
    train(run)
    for name, each in weights(train(make_run(max_physical_batch=9))).items():
        torch.testing.assert_close(weights(run)[name], each, rtol=0, atol=0)


def pick_sample(run: PrivateRun, is_liked: Any) -> list[set[int]]:
    """All samples that a caller sees for one step who leaves those that he does not like, 20 times."""
    samples: list[set[int]] = []
    while True:
        samples.append(set())
        for values, places in run.batches():
            samples[-1] |= set(places.tolist())
            last = run._waiting is not None and run._waiting.last
            if last and not is_liked(samples[-1]) and len(samples) < 20:
                break
            if run.step(losses(run.module, (values, places.float() % 2))):
                return samples


@pytest.mark.parametrize("most", [None, 17])
@pytest.mark.parametrize("least", [0, 4])
def test_nobody_chooses_who_is_in_a_sample(least: int, most: int | None) -> None:
    """Whether he wants none of the first 20 records or at least 4 of them, 2 join a step on average."""
    loader = DataLoader(TensorDataset(records().tensors[0], torch.arange(RECORDS)), batch_size=40)
    run = make_run(loader=loader, epochs=6, seed=None, max_physical_batch=most)
    joined = 0
    for _ in range(run.plan.steps):
        samples = pick_sample(
            run, lambda seen: len([each for each in seen if each < 20]) in range(least, 5 * least + 1)
        )
        assert all(each == samples[0] for each in samples)
        joined += len([each for each in samples[-1] if each < 20])
    run.finish()
    assert run.steps == 60
    assert 60 < joined < 180, "120, give or take 10"


def test_a_sample_that_was_left_does_not_go_into_a_state_and_is_not_drawn_again_by_one() -> None:
    state = kept(make_run(seed=None))
    run = make_run(seed=None)
    next(run.batches())
    with pytest.raises(BadInput, match="expected a run between two steps"):
        run.state_dict()
    with pytest.raises(BadInput, match="expected a run that has not begun, got one that has"):
        run.load_state_dict(state)


def test_double_precision_learns_too() -> None:
    run = train(double_run(epochs=10))
    values, labels = records().tensors
    assert ((run.module(values.double()) > 0) == labels.bool()).double().mean() > 0.8
    assert {each.dtype for each in weights(run).values()} == {torch.float64}


class Mixed(nn.Module):
    """A layer in single precision, and one in double."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(FEATURES, 8), nn.Linear(8, 1).double()

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.inner(values).relu().double())[:, 0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["book-keeping", "functional"])
def test_two_precisions_in_one_module(way: str) -> None:
    def by(module: Any, batch: Batch) -> Tensor:
        return losses(module, (batch[0], batch[1].double()))

    run = make_run(Mixed(), per_example=way, epochs=3)
    for batch in run.batches():
        run.step(by if way == "functional" else by(run.module, batch))
    assert run.finished
    assert {each.dtype for each in weights(run).values()} == {torch.float32, torch.float64}


def test_a_run_that_could_not_pay_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    ledger.grant(LINE, Budget.of(99, "1e-4"))
    run = make_run(ledger=ledger, name="clicks/net-1", line=LINE, seed=None)
    made, attempts = ledger.make, []

    def fails_once(*given: Any) -> Any:
        attempts.append(given)
        if len(attempts) == 1:
            raise OSError("no space left")
        return made(*given)

    monkeypatch.setattr(ledger, "make", fails_once)
    with pytest.raises(OSError, match="no space left"):
        train(run)
    assert not run.finished
    run.finish()
    assert run.finished


def test_a_finished_module_is_an_ordinary_one() -> None:
    run = train(make_run())
    assert not any(each._forward_hooks for each in run.module.modules())
    assert all(each.grad is None for each in run.module.parameters())
    copy.deepcopy(run.module)
