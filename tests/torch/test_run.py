"""A run samples, clips, adds noise, steps, checks itself, goes on and pays; and stops where it does not."""

from __future__ import annotations

import copy
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tacit.torch
from tacit import BudgetExceeded, MemoryLedger, Simulation, epsilon
from tacit.errors import BadInput, LedgerConflict, ReservationTaken, SelfCheckFailed
from tacit.privacy import Budget, Line, Relation, SubsampledGaussian, Unit, UnitKind
from tacit.privacy.budget import format_rounded_up
from tacit.privacy.ledger.rules import ReservationState
from tacit.store import LedgerStore
from tacit.torch import PrivateRun, bookkeeping, gradients
from tacit.torch import run as runs
from tacit.train.sgd.draws import poisson_sample

RECORDS, FEATURES = 400, 6
Batch = tuple[Tensor, Tensor]


def records(count: int = RECORDS) -> TensorDataset:
    torch.manual_seed(2)
    values = torch.randn(count, FEATURES)
    return TensorDataset(values, (values.sum(dim=1) > 0).float())


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))


def make_run(module: nn.Module | None = None, **settings: Any) -> PrivateRun:
    module = network() if module is None else module
    loader: DataLoader[Any] = settings.pop("loader", None) or DataLoader(
        records(), batch_size=settings.pop("batch", 40)
    )
    optimizer = settings.pop("optimizer", torch.optim.SGD)(
        [each for each in module.parameters() if each.requires_grad], lr=settings.pop("rate", 0.5)
    )
    defaults: dict[str, Any] = {"noise_multiplier": 1.0, "delta": 1e-5, "epochs": 1, "seed": 7}
    return tacit.torch.private(module, optimizer, loader, **{**defaults, **settings})


def losses(module: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(module(batch[0]), batch[1], reduction="none")


def train(run: PrivateRun, most: int | None = None, by: Any = None) -> PrivateRun:
    for batch in run.batches():
        run.step((by or losses)(run.module, batch))
        if run.steps == most:
            break
    return run


def weights(run: PrivateRun) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in run.module.named_parameters()}


def test_a_run_learns_and_says_what_it_promises() -> None:
    run = make_run(epochs=10, seed=None, noise_multiplier=None, epsilon=8)
    train(run)
    values, labels = records().tensors
    assert ((run.module(values) > 0) == labels.bool()).double().mean() > 0.8
    assert run.steps == run.plan.steps == 100
    assert run.finished
    statement = run.statement
    assert statement is not None
    assert (statement.unit, statement.relation) == (Unit(UnitKind.IMPRESSION), Relation.REPLACE_ONE)
    assert 7.9 < statement.epsilon <= 8
    assert run.epsilon_spent == statement.epsilon
    release = SubsampledGaussian(run.plan.noise_multiplier, 0.1, 100)
    assert statement.epsilon == epsilon(release, delta=1e-5, relation=Relation.REPLACE_ONE)
    assert str(run).splitlines() == [
        "DP-SGD: 100 steps over Poisson samples of 40 of 400 records on average",
        f"  clipped to norms of 1, noise multiplier {run.plan.noise_multiplier:.4g}",
        f"  ({format_rounded_up(statement.epsilon)}, 1e-05)-DP per impression, replace-one neighbours",
        "  norms by book-keeping in one backward pass, 2 layers",
    ]


@pytest.mark.parametrize(("relation", "unit"), [("add-remove", "impression"), ("replace-one", "user")])
def test_relation_and_unit_are_named(relation: str, unit: str) -> None:
    statement = make_run(relation=relation, unit=unit, seed=None).statement
    assert statement is not None
    assert (str(statement.relation), str(statement.unit)) == (relation, unit)


def test_a_simulation_states_nothing() -> None:
    run = make_run(seed=7)
    assert run.statement is None
    assert str(run).splitlines()[-1] == "  simulated: nothing is promised"


def test_a_step_is_the_clipped_sum_with_noise_over_the_expected_batch() -> None:
    """By hand: torch's own gradient of each record, scaled, added up; and the noise of the same source."""
    run, module = make_run(rate=1.0, max_grad_norm=0.3, epochs=0.1), network()
    before = {name: each.detach().double() for name, each in module.named_parameters()}
    sample: list[Batch] = []
    for values, labels in run.batches():
        run.step(losses(run.module, (values, labels)))
        sample += zip(values, labels, strict=True)
    total = {name: torch.zeros_like(each) for name, each in before.items()}
    for value, label in sample:
        alone = torch.autograd.grad(losses(module, (value[None], label[None]))[0], list(module.parameters()))
        norm = math.sqrt(sum(float(part.double().square().sum()) for part in alone))
        for name, part in zip(total, alone, strict=True):
            total[name] += part.double() * min(1.0, 0.3 / norm)
    source = Simulation("7, step 0")
    drawn = skip_to_noise(source)
    assert len(drawn) == sum(each.numel() for each in total.values())
    at = 0
    for name, after in run.module.named_parameters():
        noise = torch.from_numpy(drawn[at : at + after.numel()].reshape(after.shape).astype(np.float64))
        at += after.numel()
        torch.testing.assert_close(
            after.double(), before[name] - (total[name] + 0.3 * noise) / 40, rtol=0, atol=2e-6
        )


def skip_to_noise(source: Simulation) -> np.ndarray[Any, Any]:
    """What a step draws before its noise: the sample, who is looked at, and where noise is."""
    places = poisson_sample(RECORDS, 0.1, source.words)
    source.uniform_below(len(places))
    source.uniform_below(2**32)
    source.uniform_below(1)
    return source.normal(sum(each.numel() for each in network().parameters()))


def test_pieces_of_a_sample_add_up_to_the_whole() -> None:
    whole, pieces = train(make_run()), train(make_run(max_physical_batch=7))
    for name, each in weights(whole).items():
        torch.testing.assert_close(weights(pieces)[name], each, rtol=1e-5, atol=1e-6)


def test_a_piece_has_at_most_as_many_records_and_the_weights_stay_until_the_last() -> None:
    run = make_run(max_physical_batch=7, epochs=0.1)
    moved = []
    for values, labels in run.batches():
        assert len(values) <= 7
        before = weights(run)
        moved.append(run.step(losses(run.module, (values, labels))))
        same = all(torch.equal(before[name], each) for name, each in weights(run).items())
        assert same != moved[-1]
    assert moved[-1]
    assert moved.count(True) == run.steps == 1


def test_empty_samples_are_steps_of_noise_alone() -> None:
    run = make_run(loader=DataLoader(records(2), batch_size=1), epochs=10)
    before, handed_out = weights(run), 0
    for batch in run.batches():
        handed_out += 1
        run.step(losses(run.module, batch))
    assert handed_out < run.steps == 20
    assert all(not torch.equal(before[name], each) for name, each in weights(run).items())


def test_dropout_and_any_optimizer_and_schedule() -> None:
    module = nn.Sequential(
        nn.Linear(FEATURES, 8), nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Linear(8, 1), nn.Flatten(0)
    )
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    run = tacit.torch.private(
        module, optimizer, DataLoader(records(), batch_size=40), noise_multiplier=1, delta=1e-5, epochs=1,
        scheduler=scheduler, seed=1,
    )  # fmt: skip
    train(run)
    assert scheduler.last_epoch == run.steps == 10


def test_samples_are_poisson() -> None:
    run, sizes, size = make_run(epochs=20), [], 0
    for batch in run.batches():
        size += len(batch[0])
        if run.step(losses(run.module, batch)):
            sizes.append(size)
            size = 0
    assert len(sizes) == run.steps == 200
    assert np.mean(sizes) == pytest.approx(40, abs=2)
    assert np.var(sizes) == pytest.approx(36, rel=0.4)


class Pairs(Dataset[dict[str, Tensor]]):
    """Records as people have them, to be read one by one."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        return {"values": torch.full((FEATURES,), float(place)), "label": torch.tensor(float(place % 2))}


def test_records_are_put_together_as_the_loader_would() -> None:
    run = make_run(loader=DataLoader(Pairs(), batch_size=40), epochs=0.1)
    for batch in run.batches():
        assert batch["values"].shape == (len(batch["label"]), FEATURES)
        assert torch.equal(batch["values"][:, 0] % 2, batch["label"])
        run.step(losses(run.module, (batch["values"], batch["label"])))


# --- going on -------------------------------------------------------------------------------------------------


def kept(run: PrivateRun) -> dict[str, Any]:
    """As `torch.save` and `torch.load` keep it."""
    file = io.BytesIO()
    torch.save(run.state_dict(), file)
    file.seek(0)
    return dict(torch.load(file))


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


# --- paying ---------------------------------------------------------------------------------------------------

LINE = Line("clicks", Unit(UnitKind.IMPRESSION), Relation.REPLACE_ONE)


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
    assert settled.release == runs.weights_digest(run.module)
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


# --- what is refused on the way -------------------------------------------------------------------------------


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
    run.optimizer.load_state_dict(optimizer.state_dict())
    with pytest.raises(BadInput, match=words):
        train(run)
    train(run_of_all(network(), kind))


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


def double_run(**settings: Any) -> PrivateRun:
    values, labels = records().tensors
    loader = DataLoader(TensorDataset(values.double(), labels.double()), batch_size=40)
    return make_run(network().double(), loader=loader, **settings)


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


# --- a run that finds itself wrong ----------------------------------------------------------------------------


def expect_stopped(run: PrivateRun, words: str) -> None:
    with pytest.raises(SelfCheckFailed, match=words):
        train(run)
    for attempt in (lambda: next(run.batches()), run.state_dict, run.finish, lambda: run.step(torch.zeros(1))):
        with pytest.raises(SelfCheckFailed, match="got one that was stopped: nothing leaves"):
            attempt()
    assert not run.finished


@pytest.mark.parametrize("make", [make_run, double_run])
def test_too_little_noise_is_found(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(epochs=3)
    monkeypatch.setattr(run, "_noise_stddev", 0.7 * run._noise_stddev)
    expect_stopped(run, "expected the noise of the gradients to have the variance that was paid for")


def test_no_clipping_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gradients, "_clipped", lambda squares, _: (squares.sqrt(), torch.full_like(squares, 1 / 40))
    )
    expect_stopped(make_run(max_grad_norm=0.1), "clipping: expected gradients scaled to norms of at most 0.1")


def test_understated_norms_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = bookkeeping.squared_norms
    monkeypatch.setattr(gradients, "squared_norms", lambda passes: 0.9 * right(passes))
    expect_stopped(make_run(), "expected a record's gradient to be as long as its layers say, got a longer one")


@pytest.mark.parametrize("batch", [40, 390])
@pytest.mark.parametrize("wrong", ["0.weight", "2.bias"])
def test_wrong_sums_are_found(batch: int, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth too much in one parameter."""
    right = gradients.BookkeptGradients._check_sums

    def more(self: Any, loss: Tensor, sums: Any, most: float) -> None:
        sums[wrong] *= 1.01
        right(self, loss, sums, most)

    monkeypatch.setattr(gradients.BookkeptGradients, "_check_sums", more)
    expect_stopped(
        make_run(batch=batch), f"clipping: expected the sum of clipped gradients of {wrong} to equal"
    )


def test_losses_that_follow_from_other_records_are_found() -> None:
    def mixed(module: nn.Module, batch: Batch) -> Tensor:
        scores = module(batch[0])
        return nn.functional.softplus(scores - scores.roll(1)) + batch[1]

    with pytest.raises(
        SelfCheckFailed, match=r"does its loss follow from other records|sum of clipped gradients"
    ):
        train(make_run(), by=mixed)


def test_records_that_are_mixed_before_the_forward_pass_are_not_found_and_the_run_says_so() -> None:
    """A limit, which whoever mends it may write anew: nothing flows back through labels."""

    def weighed(module: nn.Module, batch: Batch) -> Tensor:
        return losses(module, batch) / (0.1 + batch[1].mean())

    assert train(make_run(), by=weighed).finished
    page = Path(__file__).parents[2] / "docs" / "own_torch_model.md"
    for words in (str(PrivateRun.__doc__), page.read_text(encoding="utf-8")):
        assert "labels.mean()" in words
        assert re.search(r"NOT detected in general|in general nobody finds out", words)
        assert "losses that follow from\nother records of the batch are met too" not in words


def test_gradients_that_are_no_numbers_stop_the_run() -> None:
    with pytest.raises(SelfCheckFailed, match="expected finite gradient norms, got others"):
        train(make_run(), by=lambda module, batch: losses(module, (batch[0] * math.inf, batch[1])))


def test_a_sampler_that_reads_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runs, "poisson_sample", lambda count, share, words: poisson_sample(count, 1.5 * share, words)
    )
    expect_stopped(make_run(epochs=40), "sampling: expected")


class Averaging(nn.Module):
    """Keeps an average of what it reads, in a buffer or in a state of its own."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.inner, self.seen = way, network(), 0.0
        self.register_buffer("average", torch.full((FEATURES,), math.nan if way == "never" else 0.0))

    def get_extra_state(self) -> dict[str, float]:
        return {"seen": self.seen}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.seen = state["seen"]

    def forward(self, values: Tensor) -> Tensor:
        if self.way == "in place":
            self.get_buffer("average").mul_(0.9).add_(values.detach().mean(dim=0), alpha=0.1)
        elif self.way == "anew":
            self.average = values.detach().mean(dim=0)
        elif self.way == "extra":
            self.seen = float(values.sum())
        return self.inner(values)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("way", "name"), [("in place", "average"), ("anew", "average"), ("extra", "_extra_state")]
)
def test_a_buffer_that_is_made_of_records_stops_the_run(way: str, name: str) -> None:
    run = make_run(Averaging(way))
    before = weights(run)
    expect_stopped(run, f"^{name}: expected a buffer that stays as it was, got another")
    assert all(torch.equal(before[name], each) for name, each in weights(run).items())


@pytest.mark.parametrize("leave", [PrivateRun.state_dict, PrivateRun.finish])
def test_a_buffer_that_is_changed_after_a_step_does_not_leave(leave: Any) -> None:
    run = train(make_run(Averaging("never")), most=3)
    run.module.get_buffer("average").fill_(1.0)
    with pytest.raises(SelfCheckFailed, match=r"^average: expected a buffer that stays as it was"):
        leave(run)


def test_buffers_that_stay_are_kept_and_go_on() -> None:
    state = kept(train(make_run(Averaging("never")), most=3))
    run = make_run(Averaging("never"))
    run.load_state_dict(state)
    assert train(run).finished


# --- the functional way ---------------------------------------------------------------------------------------


def functional_losses(module: Any, batch: Batch) -> Tensor:
    return losses(module, batch)


def test_the_functional_way_takes_the_same_steps() -> None:
    run = make_run(per_example="functional")
    for _ in run.batches():
        run.step(functional_losses)
    for name, each in weights(train(make_run())).items():
        torch.testing.assert_close(weights(run)[name], each, rtol=1e-5, atol=1e-6)
    made, simulated = str(run).splitlines()[-2:]
    assert made == "  every example's gradient made by torch.func.vmap(grad)"
    assert simulated == "  simulated: nothing is promised"


class Bare(nn.Module):
    """A parameter of the module's own, and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FEATURES))
        self.inner = nn.Linear(FEATURES, FEATURES, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        read = nn.functional.linear(self.inner(values * self.scale).tanh(), self.inner.weight)
        return read.sum(dim=1)


def test_the_functional_way_trains_what_is_not_book_kept() -> None:
    run = make_run(Bare(), per_example="functional", epochs=4)
    before = weights(run)
    for _ in run.batches():
        run.step(functional_losses)
    assert all(not torch.equal(before[name], each) for name, each in weights(run).items())
    with pytest.raises(BadInput, match=r"expected a function of module and batch .*, got Tensor"):
        train(make_run(Bare(), per_example="functional"))


class Recurrent(nn.Module):
    """A layer that `vmap` has no rule for."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(FEATURES, 4), nn.Linear(4, 1)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.cell(values))[:, 0]  # type: ignore[no-any-return]


def test_what_vmap_does_not_cover_is_made_one_by_one() -> None:
    run = make_run(Recurrent(), per_example="functional", epochs=0.2)
    for _ in run.batches():
        run.step(functional_losses)
    assert run.steps == 2
    assert str(run).splitlines()[-2] == "  every example's gradient made by torch.func.grad, one by one"


def test_attention_of_torchs_own_is_trained_the_functional_way() -> None:
    torch.manual_seed(4)
    layer = nn.TransformerEncoderLayer(FEATURES, 2, 8, batch_first=True)
    module = nn.Sequential(
        nn.Unflatten(1, (1, FEATURES)), layer, nn.Flatten(1), nn.Linear(FEATURES, 1), nn.Flatten(0)
    )
    run = make_run(module, per_example="functional", epochs=0.2)
    for _ in run.batches():
        run.step(functional_losses)
    assert run.finished


def test_the_function_is_to_use_the_module_that_it_is_given() -> None:
    run = make_run(per_example="functional")
    next(run.batches())
    with pytest.raises(
        BadInput, match="expected losses of the module that the function is given, got some that do not"
    ):
        run.step(lambda _, batch: losses(run.module, batch))


def repeated(rows: list[Batch]) -> list[Tensor]:
    """Every record ten times."""
    return [torch.stack([row[part] for row in rows for _ in range(10)]) for part in (0, 1)]


def test_a_record_is_one_row_of_a_batch() -> None:
    """Or each of its rows would be clipped by itself, and it would move weights by ten clip norms."""
    run = make_run(loader=DataLoader(records(), batch_size=40, collate_fn=repeated), per_example="functional")
    before = weights(run)
    with pytest.raises(BadInput, match=r"^batch\[0\]: expected one row per record of the sample, got another"):
        train(run, by=lambda *_: functional_losses)
    assert all(torch.equal(before[name], each) for name, each in weights(run).items())
    run = make_run(loader=DataLoader(records(), batch_size=40, collate_fn=repeated))
    with pytest.raises(BadInput, match="expected one row per example in the first dimension, got another"):
        train(run, by=lambda *each: losses(*each).view(-1, 10).sum(dim=1))


def some_rows(rows: list[Batch], kind: str) -> Any:
    values, labels = (torch.stack(part) for part in zip(*rows, strict=True))
    if kind == "shared":
        return {"values": values, "label": labels, "scale": torch.tensor(2.0)}
    if kind == "words":
        return {"values": values, "label": ["yes" if each else "no" for each in labels]}
    return ()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("shared", r"^batch\['scale'\]: expected one row per record of the sample, got another"),
        ("words", r"^batch\['label'\]\[0\]: expected a tensor with .*, got str$"),
        ("nothing", r"^expected a batch of tensors, got none in it$"),
    ],
)
def test_the_functional_way_takes_rows_of_tensors(kind: str, words: str) -> None:
    loader = DataLoader(records(), batch_size=40, collate_fn=lambda rows: some_rows(rows, kind))
    with pytest.raises(BadInput, match=words):
        next(make_run(loader=loader, per_example="functional").batches())


def test_gradients_that_are_all_zero_are_a_step_of_noise() -> None:
    run = make_run(per_example="functional", epochs=0.2)
    for _ in run.batches():
        run.step(lambda module, batch: (module(batch[0]) - 9).relu())
    assert run.finished
    noise = train(make_run(epochs=0.2), by=lambda module, batch: 0 * losses(module, batch))
    for name, each in weights(noise).items():
        torch.testing.assert_close(weights(run)[name], each, rtol=1e-5, atol=1e-6)


def test_losses_are_real_numbers() -> None:
    with pytest.raises(BadInput, match=r"^expected losses that are real numbers, got torch\.complex64$"):
        train(make_run(), by=lambda *each: losses(*each) * 1j)
    run = make_run(per_example="functional")
    next(run.batches())
    with pytest.raises(BadInput, match=r"^expected losses that are real numbers, got torch\.complex64$"):
        run.step(lambda *each: losses(*each) * 1j)
    run = make_run(per_example="functional")
    next(run.batches())
    with pytest.raises(BadInput, match=r"^expected a tensor of losses, got float$"):
        run.step(lambda *_: 3.0)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So that sums come out the same to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
