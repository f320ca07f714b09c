"""A run samples, clips, adds noise and steps, by book-keeping and the functional way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tacit.torch
from tacit import Simulation, epsilon
from tacit.errors import BadInput
from tacit.privacy import Relation, SubsampledGaussian, Unit, UnitKind
from tacit.privacy.budget import format_rounded_up
from tacit.torch import run as runs
from tacit.train.sgd.draws import poisson_sample
from tests.support.torch_runs import (
    FEATURES,
    RECORDS,
    Bare,
    Batch,
    functional_losses,
    losses,
    make_run,
    network,
    records,
    train,
    weights,
)


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


def test_users_are_sampled_and_give_one_record_each() -> None:
    """Of 60 users some have a few records and one has many: a step reads at most one of each, any of them."""
    owner = [0] * 120 + [1 + place % 59 for place in range(280)]
    module = nn.Sequential(nn.Linear(1, 1), nn.Flatten(0))
    loader = DataLoader(TensorDataset(torch.arange(400.0)[:, None]), batch_size=20)
    run = make_run(module, loader=loader, users=owner, epochs=400, rate=1e-6)
    assert (run.plan.records, run.plan.steps, run.plan.sampling_probability) == (60, 1200, 1 / 3)
    assert "Poisson samples of 20 of 60 users on average, one record each" in str(run)
    drawn: Counter[int] = Counter()
    now: list[int] = []
    for (values,) in run.batches():
        now += [int(each) for each in values]
        if run.step(module(values * 0)):
            assert len({owner[place] for place in now}) == len(now)
            drawn.update(now)
            now = []
    whose = Counter(owner[place] for place in drawn.elements())
    # Each user comes Binomial(1200, 1/3) times, and each record of the first one a 120th of that.
    assert all(abs(whose[user] - 400) <= 7 * (1200 * 2 / 9) ** 0.5 for user in range(60))
    assert sum(drawn[place] > 0 for place in range(120)) > 100
    assert max(drawn[place] for place in range(120)) < 25


def test_whether_a_record_is_a_whole_user_is_stated() -> None:
    believed = make_run(unit="user", seed=None).statement
    assert believed is not None
    assert any("was said, and not checked" in each for each in believed.not_protected)
    several: list[Any] = [list("ab") * 200, np.arange(400), pd.Series(range(400)), torch.arange(400)]
    for users in several:
        statement = make_run(users=users, seed=None, batch=1).statement
        assert statement is not None
        assert str(statement.unit) == "user"
        assert not any("several records" in each for each in statement.not_protected)


def test_a_run_says_how_far_it_is_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []

    @contextmanager
    def bar(label: str, total: int, measure: str) -> Iterator[Any]:
        del measure
        yield lambda done: told.append((label, done, total))

    monkeypatch.setattr(runs, "patient_bar", bar)
    train(make_run())
    assert told == [("step", done, 10) for done in range(10)]
    run = make_run()
    for batch in run.batches(progress=False):
        run.step(losses(run.module, batch))
    assert len(told) == 10


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


def test_the_functional_way_takes_the_same_steps() -> None:
    run = make_run(per_example="functional")
    for _ in run.batches():
        run.step(functional_losses)
    for name, each in weights(train(make_run())).items():
        torch.testing.assert_close(weights(run)[name], each, rtol=1e-5, atol=1e-6)
    made, simulated = str(run).splitlines()[-2:]
    assert made == "  every example's gradient made by torch.func.vmap(grad)"
    assert simulated == "  simulated: nothing is promised"


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
