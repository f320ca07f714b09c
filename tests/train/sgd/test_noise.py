"""Lazy noise has the law of dense noise, exactly and in the run itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from tacit.entropy import Simulation
from tacit.errors import SelfCheckFailed
from tacit.kernels.training import never_closer_to_zero
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import Part
from tacit.train.sgd import draws as noises
from tacit.train.sgd.descent import Clipping, DescentSettings, GradientDescent, NoiseForm
from tacit.train.sgd.draws import PendingNoise, TrainingNoise, add_noise, noise_blocks
from tacit.train.sgd.monitor import OwedNoise, ReleaseMonitor
from tacit.train.sgd.optimizers import Schedule, Sgd
from tests.support.training_examples import small_examples, true_targets

ALPHA = 1e-9
RATES = [0.5, 0.3, 0.7, 0.1, 0.4, 0.2]


def unrolled(rates: list[float], momentum: float, stddev: float) -> NDArray[np.float64]:
    """The covariance of (velocity, weight) after these steps, written as a sum over every single draw."""
    total = np.zeros((2, 2))
    for first in range(len(rates)):
        velocity, weight = 1.0, -rates[first]  # what the noise of this step has done by its end
        for rate in rates[first + 1 :]:
            velocity *= momentum
            weight -= rate * velocity
        effect = np.array([velocity, weight])
        total += stddev**2 * np.outer(effect, effect)
    return total


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_what_a_row_is_owed_is_the_sum_over_every_draw(momentum: float) -> None:
    law = PendingNoise(2.0, momentum)
    for rate in RATES:
        law.advance(rate)
    for start in range(len(RATES) + 1):
        # Start 0 is owed all steps; start j is owed step j itself too, which its row was read in.
        waited = RATES if start == 0 else RATES[start - 1 :]
        a, b, c = law.factors[start]
        np.testing.assert_allclose([[a * a, a * b], [a * b, b * b + c * c]], unrolled(waited, momentum, 2.0))
        np.testing.assert_allclose(law.weight_factors[start, 0] ** 2, unrolled(waited, momentum, 2.0)[1, 1])
        velocity, weight = 1.0, 0.0
        for rate in RATES[start:]:
            velocity *= momentum
            weight -= rate * velocity
        np.testing.assert_allclose([law.decay[start], law.drift[start]], [velocity, weight], rtol=1e-12)


def test_the_plain_sum_of_squared_rates_would_be_far_too_little() -> None:
    law = PendingNoise(1.0, 0.9)
    for _ in range(50):
        law.advance(0.1)
    plain = math.sqrt(50 * 0.1**2)
    owed = law.factors[0]
    assert math.hypot(owed[1], owed[2]) / plain > 7  # the variance is over 50 times as large


def moved(form: NoiseForm, momentum: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> NDArray[np.float32]:
    """How far weights went, where gradients are next to nothing beside the noise."""
    monkeypatch.setattr(noises, "MOST_STARTS", 7)  # so that rows are settled on the way, too
    examples = small_examples(200, rows=3000)
    model = FactorizationMachine(8, 1e-6).build(examples.sizes, Simulation(1).normal)
    before = model.table.copy()
    settings = DescentSettings(Part.WHOLE, Sgd(momentum), 10, Clipping(1e-4, 1e6), form)
    descent = GradientDescent(model, settings, Simulation(f"{form} {momentum}"))
    generator = np.random.default_rng(3)
    for step in range(steps):
        places = np.flatnonzero(generator.random(200) < 0.05)
        descent.step(examples, true_targets(examples), places, RATES[step % len(RATES)])
    descent.settle()
    return model.table - before


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("form", [NoiseForm.LAZY, NoiseForm.DENSE], ids=str)
def test_every_weight_gets_the_noise_of_every_step(
    form: NoiseForm, momentum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 20
    found = moved(form, momentum, steps, monkeypatch)
    rates = [RATES[step % len(RATES)] for step in range(steps)]
    variance = unrolled(rates, momentum, 1e-4 * 1e6 / 10)[1, 1]
    squares = float(np.sum(found.astype(np.float64) ** 2) / variance)
    assert chi2.cdf(squares, found.size) > ALPHA
    assert chi2.sf(squares, found.size) > ALPHA
    # Coordinates and rows are independent: neighbours have no correlation beyond chance.
    for product in (found[:, 1:] * found[:, :-1], found[1:] * found[:-1]):
        assert abs(float(np.mean(product))) / variance < 6.2 / math.sqrt(product.size)
    # The twin that must fail: the noise of the first step left out.
    without = unrolled(rates[1:], momentum, 10.0)[1, 1]
    assert chi2.sf(squares * variance / without, found.size) < ALPHA


BELOW = Simulation("looks").uniform_below


def add_often(source: Simulation, stddev: float = 3.0, start: float = 5.0) -> None:
    noise, watch = (
        TrainingNoise(source, stddev),
        ReleaseMonitor(stddev, 1.0, 1.0).noise_of("weights", 1, below=BELOW),
    )
    array = np.linspace(-start, start, 5000, dtype=np.float32)
    for step in range(40):
        add_noise(noise, watch, array, 0.1, look=step % 3 == 0)


def test_noise_is_looked_at_as_it_comes() -> None:
    add_often(Simulation(1))
    for wrong in (0.0, 0.9, 1.1, float("nan")):
        with pytest.raises(SelfCheckFailed, match="variance that was paid for"):
            add_often(_Scaled(wrong))


def test_noise_far_below_the_weights_rounding_is_let_through() -> None:
    add_often(Simulation(1), 1e-9, start=1000)  # it is all rounding, and no sign of wrong
    add_often(Simulation(1), 1e-4, start=1000)  # and here a good part of it


def in_turn(source: Simulation, takes_back: bool) -> Callable[[int, str], np.ndarray]:
    """Draws of a step and a parameter: every second step minus the last one's, or two buffers in turn."""
    kept: dict[tuple[str, int], np.ndarray] = {}

    def draws(step: int, name: str) -> np.ndarray:
        key = (name, step // 2 if takes_back else step % 2)
        if key not in kept:
            kept[key] = source.normal(300)
            return kept[key]
        return -kept[key] if takes_back else kept[key]

    return draws


def test_noise_that_is_like_the_noise_before_is_seen() -> None:
    """Every step has the variance that was paid for, and they cancel or repeat, in time or among parameters."""

    def go(draws: Callable[[int, str], np.ndarray]) -> None:
        monitor = ReleaseMonitor(3.0, 1.0, 1.0)
        arrays = {name: np.linspace(-5, 5, 300, dtype=np.float32) for name in ("table", "weights")}
        monitors = {name: monitor.noise_of(name, 2, below=BELOW) for name in arrays}
        for step in range(16):
            for name, array in arrays.items():
                before = monitors[name].before_adding(array)
                array += np.float32(3) * draws(step, name)
                monitors[name].check_added(array, before)

    source = Simulation("like")
    go(lambda *_: source.normal(300))
    for wrong in (
        in_turn(source, takes_back=True),
        in_turn(source, takes_back=False),
        lambda step, _: Simulation(f"step {step}").normal(300),
    ):
        with pytest.raises(SelfCheckFailed, match="expected fresh draws, got some that are like"):
            go(wrong)


SCHEDULES = [*range(1, 12), *range(12, 1100, 97), 300, 941, 1023, 1024, 1025, 1100]


def run_through(steps: int, momentum: float) -> None:
    """A schedule of `steps` steps, whose every start is checked in every step near the end."""
    law, watch = (
        PendingNoise(0.3, momentum),
        ReleaseMonitor(0.3, 1.0, 1.0).noise_of("weights", 1, momentum, below=BELOW),
    )
    schedule = Schedule(0.7, steps)
    for step in range(steps):
        law.advance(schedule.at(step))
        watch.step(schedule.at(step))
        if law.full or step >= steps - 4 or step % 100 == 0:
            watch.check_factors(never_closer_to_zero(law.factors if momentum else law.weight_factors), 1.0)
        if law.full:
            law.begin()
            watch.clear_owed()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_no_schedule_raises_a_false_alarm(momentum: float) -> None:
    for steps in SCHEDULES:
        run_through(steps, momentum)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_many_schedules_raise_no_false_alarm(momentum: float) -> None:
    for steps in range(1, 1101, 5):
        run_through(steps, momentum)


def test_what_rows_are_owed_is_exact_at_every_schedule() -> None:
    """Against sums that are rounded once, at the ends of all cosines of 1 to 1,100 steps."""
    for steps in range(1, 1101):
        rates = 0.35 * (1 + np.cos(np.pi * np.arange(steps) / steps))
        owed, squares = OwedNoise.after_steps(rates, 0.0).weights, np.square(rates).tolist()
        for start in {0, (steps + 1) // 2, max(1, steps - 2), steps}:
            exact = math.fsum(squares[max(start - 1, 0) :])
            assert abs(owed[start] - exact) <= 1e-12 * exact
    # The twin that must fail: differences of running sums, of which too little is left in the end.
    running = np.concatenate([[0.0], np.cumsum(np.square(rates))])
    assert abs((running[steps] - running[steps - 1]) - rates[-1] ** 2) > 1e-3 * rates[-1] ** 2


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_what_rows_are_owed_in_sums_is_what_they_are_owed_step_by_step(momentum: float) -> None:
    law, owed = PendingNoise(1.0, momentum), OwedNoise.after_steps(np.array(RATES), momentum)
    for rate in RATES:
        law.advance(rate)
    for start in range(len(RATES) + 1):
        covariance = unrolled(RATES if start == 0 else RATES[start - 1 :], momentum, 1.0)
        found = [[owed.velocities[start], owed.both[start]], [owed.both[start], owed.weights[start]]]
        np.testing.assert_allclose(found, covariance, rtol=1e-12)
    np.testing.assert_allclose(owed.decays, law.decay, rtol=1e-12)
    np.testing.assert_allclose(owed.drifts, law.drift, rtol=1e-12)


@pytest.mark.parametrize(("size", "at_once"), [(0, 4), (3, 4), (100, 4), (1000, 10)])
def test_every_step_looks_at_some_blocks_and_in_time_at_each(size: int, at_once: int) -> None:
    looked_at = set()
    for step in range(16):
        cut = list(noise_blocks(size, at_once, step, BELOW))
        assert [place for block, _ in cut for place in range(block.start, block.stop)] == list(range(size))
        assert any(look for _, look in cut) == (size > 0)
        looked_at |= {block.start for block, look in cut if look}
    assert looked_at == set(range(0, size, at_once))


class _Scaled(Simulation):
    def __init__(self, by: float) -> None:
        super().__init__(2)
        self._by = by

    def normal(self, shape=None, dtype=np.float32, out=None, scale=1.0):  # type: ignore[no-untyped-def]
        drawn = super().normal(shape, dtype, out, scale)
        drawn *= np.float32(self._by)
        return drawn

    def add_normal(self, out, scale):  # type: ignore[no-untyped-def]
        out += self.normal(out.shape, scale=scale)  # type: ignore[no-untyped-call]
