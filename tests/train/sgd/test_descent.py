"""The fast step against its slow twin, for every optimizer, part of a model and form of noise."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.entropy import Simulation
from tacit.errors import BadInput, SelfCheckFailed
from tacit.kernels import training as kernels
from tacit.train.examples import Examples
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine, FmModel, FmPass, LogisticRegression
from tacit.train.models.model import GradientSums, Part
from tacit.train.sgd.descent import (
    GROUPED_AT_ONCE,
    Clipping,
    DescentSettings,
    GradientDescent,
    NoiseForm,
    most_at_once,
)
from tacit.train.sgd.draws import PendingNoise
from tacit.train.sgd.optimizers import Adam, Optimizer, RmsProp, Sgd, Yogi
from tests.support.slow_descent import SlowDescent
from tests.support.training_examples import small_examples, true_targets

QUIET = Clipping(clip_norm=0.7, noise_multiplier=1e-6)  # clips most records and adds next to nothing
OPTIMIZERS: list[Optimizer] = [Sgd(), Sgd(0.9), Adam(epsilon=1e-3), Yogi(), RmsProp(epsilon=1e-3)]


def machine(dim: int = 4, start: float = 0.5) -> FmModel:
    examples = small_examples()
    chosen = FactorizationMachine(dim, start) if dim else LogisticRegression()
    return chosen.build(examples.sizes, Simulation(3).normal)


def run(settings: DescentSettings, steps: int = 6, *, groups: bool = False) -> tuple[FmModel, FmModel]:
    """Both twins after the same steps, an empty batch and one with a repeated place among them."""
    examples = small_examples()
    targets = true_targets(examples)
    fast, slow = machine(), machine()
    descents = (GradientDescent(fast, settings, Simulation(5)), SlowDescent(slow, settings))
    generator = np.random.default_rng(2)
    for step in range(steps):
        places = np.sort(generator.integers(0, len(examples), 0 if step == 2 else 13))
        owners = np.repeat(np.arange(5), [1, 4, 2, 5, 1])[: len(places)] if groups else None
        for descent in descents:
            descent.step(examples, targets, places, rate=0.3 / (1 + step), groups=owners)
    descents[0].settle()
    return fast, slow


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("part", Part, ids=str)
@pytest.mark.parametrize("clipping", [None, QUIET], ids=["plain", "clipped"])
def test_the_fast_step_is_the_slow_one(optimizer: Optimizer, part: Part, clipping: Clipping | None) -> None:
    settings = DescentSettings(part, optimizer, expected_batch=13, clipping=clipping, microbatch=5)
    fast, slow = run(settings)
    assert np.abs(slow.table - machine().table).max() > 0.01  # they moved
    # The fast step clips 2e-5 below the bound, and RMSProp magnifies what differs where gradients are small.
    np.testing.assert_allclose(fast.table, slow.table, rtol=3e-4, atol=1e-4)
    np.testing.assert_allclose(fast.bias, slow.bias, rtol=3e-4, atol=1e-4)


@pytest.mark.parametrize("form", [NoiseForm.LAZY, NoiseForm.DENSE], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_both_forms_of_noise_leave_the_gradient_alone(form: NoiseForm, momentum: float) -> None:
    settings = DescentSettings(Part.WHOLE, Sgd(momentum), 13, QUIET, form)
    fast, slow = run(settings)
    np.testing.assert_allclose(fast.table, slow.table, rtol=3e-4, atol=3e-5)


@pytest.mark.parametrize("part", Part, ids=str)
def test_records_of_a_group_are_clipped_together(part: Part) -> None:
    settings = DescentSettings(part, Sgd(), 13, QUIET, microbatch=4)
    fast, slow = run(settings, groups=True)
    np.testing.assert_allclose(fast.table, slow.table, rtol=3e-4, atol=3e-5)
    by_record, _ = run(settings)
    assert np.abs(by_record.table - fast.table).max() > 1e-3  # grouping is not the same as clipping each


def test_a_penalty_pulls_embeddings_and_not_linear_weights() -> None:
    for optimizer in OPTIMIZERS:
        fast, slow = run(DescentSettings(Part.WHOLE, optimizer, 13, penalty=0.5))
        np.testing.assert_allclose(fast.table, slow.table, rtol=3e-4, atol=3e-5)
    with pytest.raises(BadInput, match="dense noise with a penalty"):
        DescentSettings(Part.WHOLE, Sgd(), 13, QUIET, NoiseForm.LAZY, penalty=0.1)
    with pytest.raises(BadInput, match="dense noise with adam"):
        DescentSettings(Part.WHOLE, Adam(), 13, QUIET, NoiseForm.LAZY)


def test_microbatches_change_nothing_but_memory() -> None:
    whole, _ = run(DescentSettings(Part.WHOLE, Sgd(0.9), 13, QUIET, NoiseForm.LAZY))
    cut, _ = run(DescentSettings(Part.WHOLE, Sgd(0.9), 13, QUIET, NoiseForm.LAZY, microbatch=1))
    np.testing.assert_allclose(whole.table, cut.table, rtol=1e-4, atol=1e-5)


def test_microbatches_of_groups_change_nothing_but_memory() -> None:
    whole, _ = run(DescentSettings(Part.WHOLE, Sgd(0.9), 13, QUIET, NoiseForm.LAZY), groups=True)
    cut, _ = run(DescentSettings(Part.WHOLE, Sgd(0.9), 13, QUIET, NoiseForm.LAZY, microbatch=1), groups=True)
    np.testing.assert_allclose(whole.table, cut.table, rtol=1e-4, atol=1e-5)


def test_only_networks_take_groups_in_smaller_pieces() -> None:
    pytest.importorskip("torch")
    network = Mlp(4, (5,), (6,)).build(small_examples().sizes, Simulation(3).normal)
    assert most_at_once(machine(), 5000, grouped=True) == most_at_once(network, 5000, grouped=False) == 5000
    assert most_at_once(network, 5000, grouped=True) == GROUPED_AT_ONCE
    assert most_at_once(network, 50, grouped=True) == 50


def test_frozen_rows_do_not_move_whatever_the_noise() -> None:
    loud = Clipping(1.0, 50.0)
    for form, momentum in product((NoiseForm.LAZY, NoiseForm.DENSE), (0.0, 0.9)):
        fast, _ = run(DescentSettings(Part.SENSITIVE, Sgd(momentum), 13, loud, form))
        moved = np.abs(fast.table - machine().table).max(axis=1)
        public = fast.sizes.public_rows
        assert np.all(moved[:public] == 0)
        assert np.all(moved[public:] > 0)  # read or not: every trained row has its noise


def test_wrong_norms_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = FmPass.squared_norms
    monkeypatch.setattr(
        FmPass, "squared_norms", lambda self, residual: honest(self, residual) * np.float32(0.98)
    )
    with pytest.raises(SelfCheckFailed, match="clipping"):
        run(DescentSettings(Part.WHOLE, Sgd(), 13, QUIET))


class Muted(Simulation):
    """A source whose noise is a tenth too quiet."""

    def normal(self, shape: Any = None, dtype: Any = np.float32, out: Any = None, scale: float = 1.0) -> Any:
        return super().normal(shape, dtype, out, 0.9 * scale)

    def add_normal(self, out: Any, scale: float) -> None:
        super().add_normal(out, 0.9 * scale)


def test_noise_that_is_too_quiet_stops_the_run() -> None:
    examples = small_examples(rows=3000)
    model = FactorizationMachine(8).build(examples.sizes, Simulation(3).normal)
    settings = DescentSettings(Part.WHOLE, Sgd(), 13, Clipping(1.0, 1.0), NoiseForm.DENSE)
    steps = GradientDescent(model, settings, Simulation(4))
    quiet = GradientDescent(copy.deepcopy(model), settings, Muted(4))
    places = np.arange(13)
    for _ in range(8):
        steps.step(examples, true_targets(examples), places, 0.1)
    with pytest.raises(SelfCheckFailed, match="noise"):
        quiet.step(examples, true_targets(examples), places, 0.1)


def muted_factors(self: PendingNoise) -> NDArray[np.float64]:
    return np.zeros((self.steps + 1, 3))


def doubled(self: FmPass, coefficients: NDArray[np.float32], into: GradientSums) -> None:
    honest_accumulate(self, coefficients, into)
    honest_accumulate(self, coefficients, into)


def later_norms_too_small(self: FmPass, residual: NDArray[np.float32]) -> NDArray[np.float32]:
    squares = honest_norms(self, residual)
    squares[1:] *= np.float32(0.01)
    return squares


class Stuck(Simulation):
    """A source that gives the same draws every time."""

    def normal(self, shape: Any = None, dtype: Any = np.float32, out: Any = None, scale: float = 1.0) -> Any:
        return Simulation("stuck").normal(shape, dtype, out, scale)

    def add_normal(self, out: Any, scale: float) -> None:
        Simulation("stuck").add_normal(out, scale)


honest_accumulate, honest_norms = FmPass.accumulate, FmPass.squared_norms
FORGOTTEN = [
    ("no noise is owed", PendingNoise, "weight_factors", property(muted_factors), Sgd(), NoiseForm.LAZY),
    (
        "no noise is owed with momentum",
        PendingNoise,
        "factors",
        property(muted_factors),
        Sgd(0.9),
        NoiseForm.LAZY,
    ),
    ("noise is not paid", kernels, "catch_up", lambda *_: None, Sgd(0.9), NoiseForm.LAZY),
    ("dense noise is not added", Simulation, "add_normal", lambda *_: None, Sgd(), NoiseForm.DENSE),
    ("Adam's noise is not added", Simulation, "add_normal", lambda *_: None, Adam(), NoiseForm.DENSE),
    ("dense noise is not added, momentum", kernels, "sgd_block", lambda *_: None, Sgd(0.9), NoiseForm.DENSE),
    ("Adam sees no noise", kernels, "adam_block", lambda *_, **__: None, Adam(), NoiseForm.DENSE),
    ("gradients are added twice", FmPass, "accumulate", doubled, Sgd(), NoiseForm.LAZY),
    ("only the first norm is right", FmPass, "squared_norms", later_norms_too_small, Sgd(), NoiseForm.LAZY),
]


@pytest.mark.parametrize(
    ("place", "name", "wrong", "optimizer", "form"),
    [case[1:] for case in FORGOTTEN],
    ids=[case[0] for case in FORGOTTEN],
)
def test_a_run_that_breaks_its_promise_stops(
    place: Any, name: str, wrong: Any, optimizer: Optimizer, form: NoiseForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = small_examples(400, rows=3000)
    targets, settings = (
        true_targets(examples),
        DescentSettings(Part.WHOLE, optimizer, 13, Clipping(0.7, 1.0), form),
    )

    def steps() -> None:
        model = FactorizationMachine(4).build(examples.sizes, Simulation(3).normal)
        descent = GradientDescent(model, settings, Simulation(4))
        for step in range(12):
            descent.step(examples, targets, np.arange(13) + 13 * step, 0.1)

    steps()  # the honest one goes through
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(SelfCheckFailed):
        steps()


def test_draws_that_repeat_stop_the_run() -> None:
    examples = small_examples(rows=2000)
    model = FactorizationMachine(8).build(examples.sizes, Simulation(3).normal)
    descent = GradientDescent(
        model, DescentSettings(Part.WHOLE, Sgd(), 13, Clipping(1.0, 1.0), NoiseForm.DENSE), Stuck(1)
    )
    descent.step(examples, true_targets(examples), np.arange(13), 0.1)
    with pytest.raises(SelfCheckFailed, match="fresh draws"):
        descent.step(examples, true_targets(examples), np.arange(13), 0.1)


def read_all(examples: Examples) -> None:
    model = machine()
    model.forward(model.ids(examples, np.arange(10), Part.WHOLE), Part.WHOLE)


@pytest.mark.parametrize(
    ("name", "wrong"), [("sensitive", -2), ("public", 7), ("public", -1), ("sensitive", 9)]
)
def test_ids_of_the_other_side_are_refused(name: str, wrong: int) -> None:
    examples = small_examples()
    read_all(examples)
    getattr(examples, name)[3, 0] = wrong
    with pytest.raises(BadInput, match="expected"):
        read_all(examples)


def test_weights_that_are_not_finite_are_refused() -> None:
    examples = small_examples()
    for clipping, problem in ((None, BadInput), (QUIET, SelfCheckFailed)):
        model = machine()
        model.table[:] = np.nan
        descent = GradientDescent(model, DescentSettings(Part.WHOLE, Sgd(), 13, clipping), Simulation(1))
        with pytest.raises(problem):
            descent.step(examples, true_targets(examples), np.arange(5), 0.1)
