"""A private run is held to the release that was paid for: noise, sampler and clipping that are off end it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import tacit.entropy
from tacit.entropy import Simulation
from tacit.errors import SelfCheckFailed
from tacit.kernels import training as kernels
from tacit.kernels.normals import fill_normals
from tacit.train import steps as running
from tacit.train.examples import Examples, Sizes
from tacit.train.methods import DpSgd
from tacit.train.models.factorization_machine import FmPass
from tacit.train.plan import Plan, PrivatePhase
from tacit.train.settings import PrivateLearning, Speed
from tacit.train.sgd import descent
from tacit.train.sgd.descent import Clipping, GradientDescent, NoiseForm
from tacit.train.sgd.draws import PendingNoise, TrainingNoise, poisson_sample
from tacit.train.sgd.optimizers import Adam, DenseTable, Optimizer, RmsProp, Sgd, Yogi
from tacit.train.sgd.self_checks import expect_moved
from tacit.train.steps import Run
from tests.support.training_examples import MODEL, learnable

Patch = pytest.MonkeyPatch
LAZY, DENSE = NoiseForm.LAZY, NoiseForm.DENSE
WAYS: dict[str, tuple[Optimizer, NoiseForm]] = {
    "sgd lazy": (Sgd(), LAZY),
    "sgd dense": (Sgd(), DENSE),
    "momentum lazy": (Sgd(0.9), LAZY),
    "momentum dense": (Sgd(0.9), DENSE),
    "adam": (Adam(), DENSE),
    "yogi": (Yogi(), DENSE),
    "rmsprop": (RmsProp(), DENSE),
}
LAZY_WAYS, MOMENTUM = ("sgd lazy", "momentum lazy"), ("momentum lazy",)
DENSE_WAYS = tuple(way for way in WAYS if way not in LAZY_WAYS)
EPOCHS = 3.0


@cache
def world() -> Examples:
    small = learnable().sizes
    return learnable(sizes=Sizes(2, 2, small.public_rows, small.sensitive_rows + 600))


@cache
def plan() -> Plan:
    learning = PrivateLearning(epochs=EPOCHS, batch=500, clip_norm=0.5, rate=0.1)
    return DpSgd(4, "1e-5", learning=learning).plan(world())


@cache
def plan_of(way: str) -> Plan:
    """The same for every optimizer: what is paid for does not depend on it."""
    (phase,) = plan().phases
    assert isinstance(phase, PrivatePhase)
    learning = replace(phase.learning, optimizer=WAYS[way][0])
    return replace(plan(), phases=(replace(phase, learning=learning),))


def go(way: str, other: Plan | None = None, **how: Any) -> None:
    examples = world()
    model = MODEL.build(examples.sizes, Simulation(1).normal)
    speed = Speed(noise_form=WAYS[way][1], **how)
    Run(other or plan_of(way), model, examples, Simulation("run"), speed=speed, simulated=True).go()


def scaled_source(patch: Patch, by: float) -> None:
    normal, add = Simulation.normal, Simulation.add_normal

    def weak(self: Any, shape: Any = None, dtype: Any = np.float32, out: Any = None, scale: float = 1) -> Any:
        return normal(self, shape, dtype, out, by * scale)

    patch.setattr(Simulation, "normal", weak)
    patch.setattr(Simulation, "add_normal", lambda self, out, scale: add(self, out, by * scale))


def scaled_kernel(patch: Patch, by: float) -> None:
    def weak(out: Any, key: bytes, scale: float, **how: Any) -> None:
        fill_normals(out, key, by * scale, **how)

    patch.setattr(tacit.entropy, "fill_normals", weak)


def scaled_stddev(patch: Patch, by: float) -> None:
    honest = TrainingNoise.__init__
    patch.setattr(TrainingNoise, "__init__", lambda self, source, stddev: honest(self, source, by * stddev))


def scaled_draws(patch: Patch, by: float) -> None:
    honest = TrainingNoise.draw_unit
    patch.setattr(TrainingNoise, "draw_unit", lambda self, count: honest(self, count) * np.float32(by))


def scaled_adding(patch: Patch, by: float) -> None:
    honest = TrainingNoise.add_to
    patch.setattr(TrainingNoise, "add_to", lambda self, array, factor=1.0: honest(self, array, by * factor))


def scaled_clipping_noise(patch: Patch, by: float) -> None:
    honest = Clipping.noise_stddev.fget  # type: ignore[attr-defined]
    patch.setattr(Clipping, "noise_stddev", property(lambda self: by * honest(self)))


def scaled_queue(patch: Patch, by: float) -> None:
    honest = PendingNoise.__init__
    patch.setattr(PendingNoise, "__init__", lambda self, stddev, momentum: honest(self, by * stddev, momentum))


def scaled_rates(patch: Patch, by: float) -> None:
    honest = PendingNoise.advance
    patch.setattr(PendingNoise, "advance", lambda self, rate: honest(self, by * rate))


def scaled_factors(patch: Patch, by: float) -> None:
    honest = kernels.never_closer_to_zero
    patch.setattr(kernels, "never_closer_to_zero", lambda factors: honest(factors) * np.float32(by))


def scaled_payment(patch: Patch, by: float) -> None:
    honest: Any = kernels.catch_up
    patch.setattr(kernels, "catch_up", lambda *given: honest(*given[:8], given[8] * np.float32(by), given[9]))


def scaled_velocity(patch: Patch, by: float) -> None:
    """Momentum's share of what is owed, and nothing else."""
    honest = PendingNoise.factors.fget  # type: ignore[attr-defined]
    patch.setattr(PendingNoise, "factors", property(lambda self: honest(self) * [by, 1.0, 1.0]))


def scaled_velocity_payment(patch: Patch, by: float) -> None:
    honest: Any = kernels.catch_up

    def weak(*given: Any) -> None:
        share = np.array([by, 1, 1], np.float32)
        honest(*given[:8], given[8] * share if given[1] is not None else given[8], given[9])

    patch.setattr(kernels, "catch_up", weak)


def scaled_steps(patch: Patch, by: float) -> None:
    """A dense step that takes its noise, with all else, for less; and Adam's kin likewise."""
    for name in ("sgd_block", "adam_block", "yogi_block", "rmsprop_block"):
        honest = getattr(kernels, name)
        place = {"sgd_block": 1, "rmsprop_block": 2}.get(name, 3)

        def weak(*given: Any, honest: Any = honest, place: int = place, **named: Any) -> None:
            given[place][:] *= np.float32(by)
            honest(*given, **named)

        patch.setattr(kernels, name, weak)


Mutation = Callable[[Patch, float], None]
NOISE: list[tuple[Mutation, tuple[str, ...]]] = [
    (scaled_source, tuple(WAYS)),
    (scaled_kernel, ("sgd lazy", "momentum dense")),
    (scaled_stddev, tuple(WAYS)),
    (scaled_draws, LAZY_WAYS),
    (scaled_adding, DENSE_WAYS),
    (scaled_clipping_noise, ("sgd lazy", "adam")),
    (scaled_queue, LAZY_WAYS),
    (scaled_rates, LAZY_WAYS),
    (scaled_factors, LAZY_WAYS),
    (scaled_payment, LAZY_WAYS),
    (scaled_velocity, MOMENTUM),
    (scaled_velocity_payment, MOMENTUM),
    (scaled_steps, ("momentum dense", "adam", "yogi", "rmsprop")),
]


@pytest.mark.parametrize("way", WAYS)
def test_an_honest_run_goes_through(way: str) -> None:
    go(way)


@pytest.mark.parametrize(
    ("mutation", "way"),
    [pytest.param(mutation, way, id=f"{mutation.__name__}-{way}") for mutation, ways in NOISE for way in ways],
)
def test_a_tenth_less_noise_anywhere_ends_the_run(
    mutation: Mutation, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of(way)  # before anything is broken
    mutation(monkeypatch, 0.9)
    with pytest.raises(SelfCheckFailed):
        go(way)


LONG = 144  # steps of `longer`


@cache
def longer(way: str = "sgd lazy") -> Plan:
    learning = PrivateLearning(epochs=12.0, batch=500, clip_norm=0.5, rate=0.1, optimizer=WAYS[way][0])
    found = DpSgd(4, "1e-5", learning=learning).plan(world())
    assert found.phases[0].schedule.steps == LONG
    return found


def after(patch: Patch, steps: float, by: float) -> None:
    """Another scale of the noise from some step on: as it is added, and as it is drawn for rows that wait."""
    step, add, draw, taken = GradientDescent.step, TrainingNoise.add_to, TrainingNoise.draw_unit, [0]

    def begin(self: GradientDescent, *given: Any, **how: Any) -> None:
        taken[0] += 1
        step(self, *given, **how)

    def scale() -> float:
        return by if taken[0] > steps else 1.0

    patch.setattr(GradientDescent, "step", begin)
    patch.setattr(TrainingNoise, "add_to", lambda self, array, factor=1.0: add(self, array, factor * scale()))
    patch.setattr(TrainingNoise, "draw_unit", lambda self, count: draw(self, count) * np.float32(scale()))


@pytest.mark.parametrize("way", ["sgd dense", "adam", "sgd lazy"])
@pytest.mark.parametrize(("since", "by"), [(0.8, 0.01), (0.7, 0.01), (0.5, 0.8)])
def test_noise_that_is_wrong_late_in_a_run_ends_it(
    way: str, since: float, by: float, monkeypatch: Patch
) -> None:
    plan = longer(way)
    go(way, plan)
    after(monkeypatch, since * LONG, by)
    with pytest.raises(SelfCheckFailed, match="variance that was paid for"):
        go(way, plan)


@pytest.mark.parametrize("way", ["sgd dense", "adam", "sgd lazy"])
def test_noise_only_in_steps_that_anybody_can_tell_beforehand_ends_the_run(
    way: str, monkeypatch: Patch
) -> None:
    """None but in the first steps and about every 32nd: which later ones are looked at is drawn."""
    plan, taken = longer(way), [0]
    step, add, draw = GradientDescent.step, TrainingNoise.add_to, TrainingNoise.draw_unit

    def begin(self: GradientDescent, *given: Any, **how: Any) -> None:
        taken[0] += 1
        step(self, *given, **how)

    def scale() -> float:
        return 1.0 if taken[0] <= 17 or (taken[0] + 1) % 32 <= 2 else 0.01

    monkeypatch.setattr(GradientDescent, "step", begin)
    monkeypatch.setattr(
        TrainingNoise, "add_to", lambda self, array, factor=1.0: add(self, array, factor * scale())
    )
    monkeypatch.setattr(TrainingNoise, "draw_unit", lambda self, count: draw(self, count) * np.float32(scale()))
    with pytest.raises(SelfCheckFailed, match="noise: expected"):
        go(way, plan)


@pytest.mark.parametrize("by", [0.9, 1.1])
def test_a_sampler_that_is_off_by_a_tenth_ends_the_run(by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def biased(records: int, share: float, words: Any) -> Any:
        return poisson_sample(records, by * share, words)

    monkeypatch.setattr(running, "poisson_sample", biased)
    with pytest.raises(SelfCheckFailed, match="sampl"):
        go("sgd lazy")


def test_batches_of_a_fixed_size_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As most trainers draw them; the accounting needs Poisson samples, whose sizes differ."""

    def fixed(records: int, share: float, words: Any) -> Any:
        return np.sort(np.argsort(words(records))[: round(share * records)])

    monkeypatch.setattr(running, "poisson_sample", fixed)
    with pytest.raises(SelfCheckFailed, match="sampl"):
        go("sgd lazy")


def skewed(records: int, share: float, words: Any) -> Any:
    half = records // 2
    first, rest = poisson_sample(half, 1.1 * share, words), poisson_sample(records - half, 0.9 * share, words)
    return np.concatenate([first, rest + half])


def half_of_them(records: int, share: float, words: Any) -> Any:
    return poisson_sample(records // 2, 2 * share, words)


def the_first(records: int, share: float, words: Any) -> Any:
    return np.arange(len(poisson_sample(records, share, words)))


def with_record_0(records: int, share: float, words: Any) -> Any:
    return np.union1d(poisson_sample(records, share, words), [0])


def some_twice(records: int, share: float, words: Any) -> Any:
    sample = poisson_sample(records, share, words)
    return np.sort(np.r_[sample[1:], sample[-1:]])


def late(records: int, share: float, words: Any) -> Any:
    """Right until the last few steps, and then too much."""
    late.steps += 1  # type: ignore[attr-defined]
    return poisson_sample(records, share * (1.5 if late.steps > 33 else 1), words)  # type: ignore[attr-defined]


@pytest.mark.parametrize("sampler", [skewed, half_of_them, the_first, with_record_0, some_twice, late])
def test_samples_of_the_right_sizes_and_the_wrong_records_end_the_run(
    sampler: Callable[..., Any], monkeypatch: Patch
) -> None:
    late.steps = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(running, "poisson_sample", sampler)
    with pytest.raises(SelfCheckFailed, match="sampl"):
        go("sgd lazy", longer() if sampler is skewed else None)


def looser(plan: Plan, by: float) -> Plan:
    (phase,) = plan.phases
    assert isinstance(phase, PrivatePhase)
    clipping = Clipping(phase.clipping.clip_norm * by, phase.clipping.noise_multiplier / by)
    return replace(plan, phases=(replace(phase, clipping=clipping),))


@pytest.mark.parametrize("way", ["sgd lazy", "adam"])
@pytest.mark.parametrize("by", [0.95, 1.05])
def test_a_clip_norm_that_is_off_by_a_twentieth_ends_the_run(way: str, by: float, monkeypatch: Patch) -> None:
    with pytest.raises(SelfCheckFailed, match="clipping"):
        go(way, looser(plan_of(way), by))  # its noise is the same
    monkeypatch.setattr(descent, "CLIP_MARGIN", np.float32(by))
    with pytest.raises(SelfCheckFailed, match="clipping"):
        go(way)


def test_clipped_gradients_that_grow_afterwards_end_the_run(monkeypatch: Patch) -> None:
    honest = GradientDescent._clipped

    def grown(self: GradientDescent, *given: Any, **how: Any) -> Any:
        clipped, norms = honest(self, *given, **how)
        return clipped * np.float32(1.05), norms

    monkeypatch.setattr(GradientDescent, "_clipped", grown)
    with pytest.raises(SelfCheckFailed, match="clipping"):
        go("sgd lazy")


@pytest.mark.parametrize("first", [True, False], ids=["the first", "all others"])
def test_norms_that_are_wrong_in_some_microbatches_end_the_run(first: bool, monkeypatch: Patch) -> None:
    """A tenth of what they are, in the first microbatch of each step or in all but that."""
    norms, step, begun = FmPass.squared_norms, GradientDescent.step, [0]

    def begin(self: GradientDescent, *given: Any, **how: Any) -> None:
        begun[0] = 0
        step(self, *given, **how)

    def wrong(self: FmPass, residual: Any) -> Any:
        begun[0] += 1
        return norms(self, residual) * np.float32(0.01 if (begun[0] == 1) == first else 1)

    go("sgd lazy", microbatch=100)
    monkeypatch.setattr(GradientDescent, "step", begin)
    monkeypatch.setattr(FmPass, "squared_norms", wrong)
    with pytest.raises(SelfCheckFailed, match="clipping: expected the fast gradient norm"):
        go("sgd lazy", microbatch=100)


@pytest.mark.parametrize("optimizer", [Sgd(), Sgd(0.9), Adam(), Yogi(), RmsProp()], ids=str)
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_honest_steps_are_close_whatever_cancels(optimizer: Optimizer, penalty: float) -> None:
    """Gradients that a penalty cancels, moments that do, and second moments that equal a square but for
    rounding."""
    draw = np.random.default_rng(5)
    weights = draw.standard_normal((400, 9), dtype=np.float32) * np.float32(1e-3)
    update = DenseTable(weights, slice(0, 400), optimizer, None, penalty=penalty, penalised_from=1)
    update.steps = 7
    update.accumulator[:] = draw.standard_normal(weights.shape)
    pull = np.where(np.arange(9) > 0, np.float32(penalty), 0) * weights
    update.accumulator[100:200] = np.nextafter(-pull[100:200], np.float32(1))
    moments, gradient = update.memory, update.accumulator + pull
    if "first" in moments:
        moments["first"][:] = -gradient * np.float32(1 / 9) * (1 + 1e-7 * draw.standard_normal(weights.shape))
    if "second" in moments:
        moments["second"][:] = np.square(gradient) * (1 + 1e-7 * draw.standard_normal(weights.shape))
    expected = [update._stepped_row(row, 0.05) for row in range(400)]
    update._change(slice(0, 400), 0.05)
    arrays = {"weights": weights, **moments, "velocity": update.accumulator}
    for row, moves in enumerate(expected):
        for name, moved in moves.items():
            expect_moved(name, arrays[name][row], moved)
