"""The training suite at toy size: the contestants do the same work, and the figures come out whole."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import Model, Part
from tacit.train.sgd.descent import Clipping, DescentSettings, GradientDescent
from tacit.train.sgd.optimizers import Sgd
from tacit_lab.bench import training, training_work
from tacit_lab.bench.measurement import Contestant, Measurement, take_turns
from tacit_lab.bench.training import PROCESS_PARTS
from tacit_lab.bench.training_work import (
    CLIPPING,
    TrainingScale,
    TrainingWorkload,
    draw_units,
    make_log,
    our_step,
    ready_batches,
    repeat_log,
    worst_rise,
)
from tests.support.training_examples import small_examples

TOY = TrainingScale(
    log_rows=1500,
    table_rows=100_000,
    batch=256,
    mlp_batch=64,
    mlp_width=8,
    items=2000,
    sequence=8,
    transformer_dim=16,
    transformer_batch=32,
    batches=(64, 256),
    logs=(500, 1500),
    rounds=2,
    slow_every=2,
)
CLOSE = 2e-5
"""Float32 sums of some hundred terms in another order: off by a few times 2^-24 of terms of order one."""

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
needs_opacus = pytest.mark.skipif(find_spec("opacus") is None, reason="opacus is not installed")

NAMES = {
    "fm": {
        "fm_lazy_vs_plain": (1.4, False),
        "fm_lazy_vs_torch": (0.25, False),
        "fm_opacus_vs_lazy": (75, True),
        "fm_dense_vs_plain": (3.0, False),
        "fm_opacus_vs_dense": (35, True),
    },
    "units": {"fm_users_vs_impressions": (1.5, False)},
    "adam": {"adam_private_vs_plain": (2.0, False)},
    "mlp": {"mlp_lazy_vs_torch": (1.2, False)},
    "torch-mlp": {
        "torch_mlp_vs_plain": (1.3, False),
        "opacus_vs_torch_mlp": (2.0, True),
        "torch_mlp_memory": (1.0, False),
    },
    "torch-transformer": {
        "torch_transformer_vs_plain": (1.3, False),
        "opacus_vs_torch_transformer": (2.0, True),
        "torch_transformer_memory": (1.0, False),
    },
    "growth-with-batch": {"growth_with_batch": (1.05, False)},
    "growth-with-log": {"growth_with_log": (1.05, False)},
    "labels": {"label_phase_vs_plain": (1.05, False)},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bench") / "columns"
    make_log(TOY, place)
    return place


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=[pytest.mark.slow] if part.startswith("torch-") else [])
        for part in PROCESS_PARTS
    ],
)
def test_each_part_measures_what_it_is_held_to(part: str, folder: Path) -> None:
    measured = {each.name: each for each in PROCESS_PARTS[part](TOY, folder)}
    assert set(NAMES[part]) <= set(measured)
    for name, each in measured.items():
        assert each.settings
        if "not measured" in each.settings:
            assert math.isnan(each.value)
        else:
            assert 0 < each.value < math.inf
            assert (each.bar, each.at_least) == NAMES[part].get(name, (None, each.at_least))


def test_a_step_of_units_reads_whole_units(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, taken = TrainingWorkload.open(folder), []

    def step(_: Any, __: Any, ___: Any, places: Any, rate: float, groups: Any) -> None:  # noqa: ARG001
        taken.append((places, groups))

    monkeypatch.setattr(GradientDescent, "step", step)
    units = draw_units(len(work.examples))
    our_step(work, FactorizationMachine(4), 300, clipping=CLIPPING, units=units)()
    ((places, groups),) = taken
    assert 150 < len(places) < 450  # 300 on average, with a standard deviation of 29
    read, sizes = np.unique(units[places], return_counts=True)
    np.testing.assert_array_equal(sizes, np.bincount(units)[read])  # all rows of each, once
    np.testing.assert_array_equal(units[places], read[groups])  # the groups are they, rising


def test_the_growth_tables_are_in_the_settings(folder: Path) -> None:
    (measured,) = PROCESS_PARTS["growth-with-log"](TOY, folder)
    assert "500: " in measured.settings
    assert "1,500: " in measured.settings


def test_a_part_in_its_own_process_says_its_allocator(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    class Child:
        stdout = '[{"name": "n", "value": 1.5, "unit": "x", "bar": 2, "at_least": false, "settings": "so"}]'

    def start(command: list[str], **_: Any) -> Child:
        started.append(command)
        return Child()

    monkeypatch.setattr(subprocess, "run", start)
    (measured,) = training._in_a_process("fm", TOY, folder)
    assert measured.holds
    assert measured.settings.startswith("so; 1 thread; MALLOC_MMAP_MAX_=0")
    assert started[0][0] == "env"
    assert {"OMP_NUM_THREADS=1", "MALLOC_MMAP_MAX_=0"} <= set(started[0])
    assert capfd.readouterr().out == ""


def test_the_suite_runs_every_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def part(name: str, *_: Any) -> list[Measurement]:
        ran.append(name)
        return [Measurement(name, 1.0, "x")]

    def progress(items: Sequence[Any], label: str) -> Iterable[Any]:
        assert label == "training"
        return items

    monkeypatch.setattr(training, "_in_a_process", part)
    monkeypatch.setattr(training, "make_log", lambda *_: ran.append("log"))
    monkeypatch.setattr(training, "memory", lambda *_: part("memory"))
    assert [each.name for each in training.run(progress, TOY)] == [*PROCESS_PARTS, "memory"]
    assert ran == ["log", *PROCESS_PARTS, "memory"]


def test_a_child_gets_the_same_scale() -> None:
    assert TrainingScale(**json.loads(json.dumps(asdict(TOY)))).described == TOY.described


@pytest.mark.parametrize(("optimizer", "batch"), [("sgd", 64), ("adam", 512)])
def test_memory_is_so_many_tables(optimizer: str, batch: int, folder: Path) -> None:
    """A table is 13 MB here; what else a process takes for its first steps is well below half of that."""
    found = training_work._in_a_process(TOY, folder, optimizer, batch)
    assert found == pytest.approx(training_work.TABLES[optimizer] + 0.2, abs=0.5)


@pytest.mark.parametrize(("values", "worst"), [([3, 2, 1], 2 / 3), ([3, 1, 2], 2), ([2, 2], 1)])
def test_the_worst_rise_is_of_a_later_value_over_an_earlier(values: list[float], worst: float) -> None:
    assert worst_rise(values) == pytest.approx(worst)


def test_turns_are_interleaved_and_slow_ones_take_fewer() -> None:
    order: list[str] = []
    seconds = take_turns(
        {
            "fast": Contestant(lambda: order.append("fast")),
            "slow": Contestant(lambda: order.append("slow"), every=2),
        },
        rounds=4,
    )
    assert order == ["fast"] * 3 + ["slow"] + ["fast", "slow", "fast", "fast", "slow", "fast"]
    assert (seconds["fast"].turns, seconds["slow"].turns) == (4, 2)


def test_a_step_of_several_counts_as_several() -> None:
    def busy() -> None:
        sum(range(200_000))

    def often() -> None:
        for _ in range(10):
            busy()

    one, ten = Contestant(busy), Contestant(often, steps=10)
    seconds = take_turns({"one": one, "ten": ten}, rounds=5)
    # The same work: without the division they would be ten apart.
    assert 1 / 3 < seconds["one"].processor / seconds["ten"].processor < 3


def test_a_repeated_log_says_the_same_rows_again(tmp_path: Path) -> None:
    examples = small_examples(40)
    longer = repeat_log(examples, 10, 35, tmp_path)
    assert len(longer) == 35
    np.testing.assert_array_equal(longer.public[20:30], examples.public[:10])
    np.testing.assert_array_equal(longer.sensitive[30:35], examples.sensitive[:5])
    np.testing.assert_array_equal(longer.labels[10:20], examples.labels[:10])


def fixed_batch(work: TrainingWorkload) -> Any:
    """The batch of all examples, over and over."""
    rows = work.examples.sizes.public_rows
    ids = np.concatenate([work.examples.public, work.examples.sensitive + np.int32(rows)], axis=1)
    return repeat((ids.astype(np.int64), work.targets.values))


def _pairs(ids: Any, labels: Any) -> list[tuple[tuple[int, ...], float]]:
    return [(tuple(row), label) for row, label in zip(ids.tolist(), labels.tolist(), strict=True)]


def network_and_peer(work: TrainingWorkload) -> tuple[Model, Any, dict[str, Any]]:
    """Ours, torch's with the same weights, and torch's layers by our names."""
    import torch

    from tacit_lab.bench.training_torch import TorchMlp

    sizes = work.examples.sizes
    model = Mlp(4, public_layers=(6,), common_layers=(6, 6), start=0.5).build(sizes, Simulation(1).normal)
    peer: Any = TorchMlp(sizes, 4, 6)
    common = {f"common.{place}": peer.common[2 * place] for place in range(2)}
    layers = {"public.0": peer.tower[0], **common, "output": peer.common[4]}
    with torch.no_grad():
        peer.public_table.weight.copy_(torch.from_numpy(model.tables["public"]))
        peer.sensitive_table.weight.copy_(torch.from_numpy(model.tables["sensitive"]))
        for name, layer in layers.items():
            layer.weight.copy_(torch.from_numpy(model.dense[f"{name}.weight"]))
            layer.bias.copy_(torch.from_numpy(model.dense[f"{name}.bias"]))
    return model, peer, layers


def machine_and_peer(work: TrainingWorkload) -> tuple[Model, Any]:
    import torch

    from tacit_lab.bench.training_torch import TorchFm

    model = FactorizationMachine(4, start=0.5).build(work.examples.sizes, Simulation(1).normal)
    peer = TorchFm(work.examples.sizes, 4)
    peer.table.weight.data = torch.tensor(model.table)
    return model, peer


def our_weights(work: TrainingWorkload, model: Model, clipping: Clipping | None, rate: float) -> None:
    """One step of ours over all examples."""
    count = len(work.examples)
    settings = DescentSettings(Part.WHOLE, Sgd(), float(count), clipping)
    descent = GradientDescent(model, settings, Simulation(2))
    descent.step(work.examples, work.targets, np.arange(count), rate)
    descent.settle()


def test_ready_batches_hold_examples_with_their_labels() -> None:
    work = TrainingWorkload.of(small_examples(40))
    rows = work.examples.sizes.public_rows
    ids, labels = next(ready_batches(work, 7))
    assert ids.shape == (7, 5)
    assert ids[:, 3:].min() >= rows
    assert set(_pairs(ids, labels)) <= set(_pairs(*next(fixed_batch(work))))


def take_torchs_step(peer: Any, work: TrainingWorkload) -> None:
    import torch

    from tacit_lab.bench.training_torch import torch_step

    torch_step(peer, fixed_batch(work), lambda module: torch.optim.SGD(module.parameters(), lr=0.5))()


@needs_torch
def test_torchs_machine_takes_the_same_step_as_ours() -> None:
    work = TrainingWorkload.of(small_examples(40))
    model, peer = machine_and_peer(work)
    before = model.tables["table"].copy()
    take_torchs_step(peer, work)
    our_weights(work, model, None, rate=0.5)
    assert np.abs(model.tables["table"] - before).max() > 0.01
    np.testing.assert_allclose(peer.table.weight.detach(), model.tables["table"], atol=CLOSE)
    np.testing.assert_allclose(peer.bias.bias.detach(), model.dense["bias"], atol=CLOSE)


@needs_torch
def test_torchs_network_takes_the_same_step_as_ours() -> None:
    work = TrainingWorkload.of(small_examples(40))
    model, peer, layers = network_and_peer(work)
    before = model.tables["sensitive"].copy()
    take_torchs_step(peer, work)
    our_weights(work, model, None, rate=0.5)
    assert np.abs(model.tables["sensitive"] - before).max() > 1e-3
    np.testing.assert_allclose(peer.sensitive_table.weight.detach(), model.tables["sensitive"], atol=CLOSE)
    np.testing.assert_allclose(peer.public_table.weight.detach(), model.tables["public"], atol=CLOSE)
    for name, layer in layers.items():
        np.testing.assert_allclose(layer.weight.detach(), model.dense[f"{name}.weight"], atol=CLOSE)


@needs_opacus
@pytest.mark.parametrize("kind", ["machine", "network"])
def test_opacus_finds_the_same_norms(kind: str) -> None:
    """Rows that an example repeats included: there are only a few rows here."""
    from tacit_lab.bench.training_torch import opacus_step

    work = TrainingWorkload.of(small_examples(40))
    model, peer = machine_and_peer(work) if kind == "machine" else network_and_peer(work)[:2]
    count = len(work.examples)
    step, wrapped = opacus_step(peer, fixed_batch(work), count, CLIPPING, count)
    step()
    everyone = np.arange(count)
    passed = model.forward(model.ids(work.examples, everyone, Part.WHOLE), Part.WHOLE)
    norms = np.sqrt(passed.squared_norms(work.targets.residual(passed.scores, everyone)))
    np.testing.assert_allclose(wrapped.per_sample_gradient_norms, norms, rtol=1e-4)


@needs_opacus
def test_opacus_adds_noise_to_every_row() -> None:
    from tacit_lab.bench.training_torch import TorchFm, opacus_step

    work = TrainingWorkload.of(small_examples(40, rows=50))
    peer = TorchFm(work.examples.sizes, 4)
    before = peer.table.weight.detach().clone()
    step, _ = opacus_step(peer, fixed_batch(work), 40, Clipping(5.0, 1.0), 40)
    step()
    assert bool((peer.table.weight.detach() != before).any(dim=1).all())
