"""What a run does is what its plan says: sampling, noise that is paid in the end, starts, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from tacit.entropy import Simulation
from tacit.privacy.units import Unit, UnitKind
from tacit.train import steps as running
from tacit.train.methods import DpSgd, Hybrid, Plain
from tacit.train.models.factorization_machine import LogisticRegression
from tacit.train.plan import PrivatePhase
from tacit.train.settings import Learning, PrivateLearning, Speed
from tacit.train.sgd.descent import GradientDescent, NoiseForm
from tacit.train.sgd.draws import poisson_sample
from tacit.train.sgd.optimizers import Sgd
from tacit.train.steps import Mark, Run, RunProgress
from tacit.train.targets import Head, Targets
from tests.support.training_examples import BATCH, FAST, MODEL, SECRET, learnable

ALPHA = 1e-9


def test_the_sampler_is_asked_for_what_was_accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = learnable()
    asked: list[tuple[int, float]] = []
    honest = poisson_sample

    def noted(records: int, share: float, words: object) -> NDArray[np.int64]:
        asked.append((records, share))
        return honest(records, share, words)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "poisson_sample", noted)
    for unit, records in ((UnitKind.IMPRESSION, len(examples)), (UnitKind.USER, len(examples) // 3)):
        asked.clear()
        plan = DpSgd(4, "1e-5", unit=Unit(unit), learning=FAST).plan(examples)
        model = MODEL.build(examples.sizes, Simulation(1).normal)
        Run(plan, model, examples, Simulation(2), simulated=True).go()
        (phase,) = plan.phases
        assert isinstance(phase, PrivatePhase)
        assert asked == [(records, phase.sampling_probability)] * phase.schedule.steps
        assert phase.sampling_probability == BATCH / records


class Losing(Run):
    """A run that says when it computes a loss."""

    losses = 0

    def _loss(self, *asked: Any) -> float:
        self.losses += 1
        return super()._loss(*asked)


def test_losses_are_computed_for_those_who_watch_alone() -> None:
    examples = learnable()
    tables, shown = [], list[RunProgress]()
    for watch in (None, shown.append):
        model = MODEL.build(examples.sizes, Simulation(1).normal)
        run = Losing(Plain(Learning(epochs=1)).plan(examples), model, examples, Simulation(2), simulated=True)
        run.go(watch)
        assert run.losses == sum(each.loss is not None for each in shown)
        tables.append(model.table.copy())
    assert shown[-1].loss is not None
    np.testing.assert_array_equal(tables[0], tables[1])


class Memory:
    """Keeps nothing, and lets weights be looked at whenever a checkpoint would."""

    def __init__(self, every: int) -> None:
        self.every, self.tables = every, list[NDArray[np.float32]]()

    def due(self, mark: Mark) -> bool:
        return mark.step % self.every == 0

    def keep(self, mark: Mark, model: object, descent: GradientDescent) -> None:
        del mark, descent
        self.tables.append(model.table.copy())  # type: ignore[attr-defined]

    def stop_if_asked(self) -> None:
        pass

    def restore(self, model: object, start: object) -> tuple[Mark, None]:
        del model, start
        return Mark(0, 0), None


@pytest.mark.parametrize("form", [NoiseForm.LAZY, NoiseForm.DENSE], ids=str)
def test_whoever_looks_at_the_weights_finds_all_noise_in_them(form: NoiseForm) -> None:
    """Rows that nobody reads move by noise alone: its variance must be that of all steps, at every look."""
    spare = 4000
    small = learnable()
    sizes = small.sizes.__class__(2, 2, small.sizes.public_rows, small.sizes.sensitive_rows + spare)
    examples = learnable(sizes=sizes)
    learning = PrivateLearning(epochs=1, batch=500, rate=0.5, optimizer=Sgd(0.9), recalibrate=False)
    plan = DpSgd(2, "1e-5", learning=learning).plan(examples)
    (phase,) = plan.phases
    assert isinstance(phase, PrivatePhase)
    model = LogisticRegression().build(sizes, Simulation(1).normal)
    keeper = Memory(every=5)
    Run(plan, model, examples, Simulation(3), speed=Speed(noise_form=form), simulated=True).go(keeper=keeper)
    each = phase.clipping.noise_stddev / 500
    for steps, table in ((5, keeper.tables[0]), (phase.schedule.steps, model.table)):
        velocity = weight = 0.0
        effects = []  # of each step's unit of noise on the weight, in the end
        for first in range(steps):
            velocity, weight = 1.0, -phase.schedule.at(first)
            for later in range(first + 1, steps):
                velocity *= 0.9
                weight -= phase.schedule.at(later) * velocity
            effects.append(weight)
        variance = each**2 * float(np.square(effects).sum())
        found = table[-spare:, 0].astype(np.float64)
        squares = float(found @ found) / variance
        assert chi2.cdf(squares, spare) > ALPHA
        assert chi2.sf(squares, spare) > ALPHA


def test_without_a_public_rate_dp_sgd_starts_at_even_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = learnable()
    starts: list[float] = []
    monkeypatch.setattr(
        type(MODEL.build(examples.sizes, Simulation(1).normal)),
        "start_at",
        lambda _, score: starts.append(score),
    )
    for learning, expected in (
        (FAST, []),
        (PrivateLearning(epochs=1, batch=500, start_rate=0.2), [np.log(0.25)]),
    ):
        starts.clear()
        plan = DpSgd(4, "1e-5", learning=learning).plan(examples)
        model = MODEL.build(examples.sizes, Simulation(1).normal)
        Run(plan, model, examples, Simulation(2), simulated=True).go()
        assert starts == pytest.approx(expected)
    hybrid = Hybrid(4, "1e-5", k=0.5, learning=FAST).plan(examples)
    starts.clear()
    Run(
        hybrid,
        MODEL.build(examples.sizes, Simulation(1).normal),
        examples,
        Simulation(2),
        SECRET,
        simulated=True,
    ).go()
    assert len(starts) == 2  # from noisy labels, and from the same when it begins anew on all of them
    assert starts[0] == starts[1]


def test_a_run_of_people_divides_by_people() -> None:
    examples = learnable()
    plan = DpSgd(4, "1e-5", unit=Unit(UnitKind.USER), learning=FAST).plan(examples)
    run = Run(plan, MODEL.build(examples.sizes, Simulation(1).normal), examples, Simulation(2), simulated=True)
    assert run._descent(0).settings.expected_batch == FAST.batch  # 500 users, who have 1500 rows


@pytest.mark.parametrize("head", Head, ids=str)
@pytest.mark.parametrize("forward", [False, True])
def test_residuals_are_derivatives_of_the_loss(head: Head, forward: bool) -> None:
    if forward and head is not Head.LOGISTIC:
        return
    generator = np.random.default_rng(1)
    values = generator.integers(0, 2, 20).astype(np.float32)
    keep = generator.uniform(0.6, 1.0, 20).astype(np.float32) if forward else None
    targets = Targets(values, keep, head=head)
    scores, at = generator.normal(0, 1.5, 20).astype(np.float32), np.arange(20)
    found = targets.residual(scores, at)
    for place in range(20):
        moved = [scores.astype(np.float64).copy() for _ in range(2)]
        moved[0][place] -= 1e-4
        moved[1][place] += 1e-4
        low, high = (targets.losses(each, at).sum() for each in moved)  # type: ignore[arg-type]
        assert found[place] == pytest.approx((high - low) / 2e-4, rel=2e-3, abs=1e-4)
