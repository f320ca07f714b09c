"""What is chosen where nothing was said: the arithmetic of the rules, and that what was said stays."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.train.estimator import Estimator
from tacit.train.examples import Sizes
from tacit.train.methods import DpSgd, LabelDp, Plain
from tacit.train.models.factorization_machine import LogisticRegression
from tacit.train.plan import PrivatePhase
from tacit.train.settings import (
    FEWEST_EPOCHS,
    Learning,
    PrivateLearning,
    RateByNoise,
    label_course,
    private_course,
    private_rate,
)
from tacit.train.sgd.descent import GradientDescent
from tacit.train.sgd.optimizers import Adam, Decay, Sgd
from tacit.train.steps import COOLING, HELD_OUT_SEED, RunProgress, _HeldOut
from tests.support.training_examples import MODEL, SECRET, learnable

SEARCH = Sizes(17, 3, 100_000, 50_000)


@pytest.mark.parametrize(
    ("records", "epsilon", "batch", "epochs"),
    [
        (4_690_218, 3, 65_142, 10.0),  # N / 72, ten epochs
        (4_690_218, 8, 130_284, 20.0),  # N / 36, twenty
        (81_805, 3, 2048, 18.025),
        (8_000, 1, 2048, 184.3),  # and not all of them at once, for ten steps
        (900, 1, 900, 720.0),
    ],
)
def test_batch_and_epochs_make_about_720_steps(records: int, epsilon: float, batch: int, epochs: float) -> None:
    course, clip_norm, chosen = private_course(PrivateLearning(), records, epsilon, SEARCH)
    assert course.batch == batch
    assert course.epochs == pytest.approx(epochs, rel=1e-3)
    assert round(course.epochs * records / course.batch) == pytest.approx(720, abs=1)
    assert clip_norm == 4.59  # the root of 21, rounded up
    keys = ["descent.batch", "descent.epochs", "descent.clip_norm"]
    assert [default.key for default in chosen] == keys
    assert all(f"{default.key} = " in default.words and "because" in default.words for default in chosen)


def test_what_was_said_stays_and_the_rest_follows() -> None:
    said = PrivateLearning(epochs=10, optimizer=Sgd(0.5), clip_norm=2.0)
    course, clip_norm, chosen = private_course(said, 72_000, 3, SEARCH)
    assert (course.batch, course.epochs, course.optimizer, clip_norm) == (1000, 10, Sgd(0.5), 2.0)
    assert [default.key for default in chosen] == ["descent.batch"]
    small = private_course(PrivateLearning(batch=100), 72_000, 3, SEARCH)[0]
    assert (small.batch, small.epochs) == (100, 10)  # 720 steps would be one epoch, and mostly noise
    large = private_course(PrivateLearning(batch=36_000), 72_000, 3, SEARCH)[0]
    assert large.epochs == 360


def test_sgd_is_chosen_while_its_rate_is_stable_and_adam_beyond() -> None:
    """By hand: random steps add up by their squares, and a velocity repeats every draw ten times."""
    learning = PrivateLearning(batch=4000)
    course, clip_norm, _ = private_course(learning, 40_000, 3, SEARCH)
    loud, schedule, chosen = private_rate(learning, course, 720, 40.0, clip_norm, 4000, SEARCH)
    assert loud.optimizer == Sgd(0.9)
    assert [default.key for default in chosen] == ["descent.optimizer", "descent.rate"]
    drawn = 40.0 * clip_norm / 4000
    moved = math.sqrt(sum((schedule.at(step) * drawn / (1 - 0.9)) ** 2 for step in range(720)))
    assert moved == pytest.approx(0.05, rel=2e-3)
    quiet, schedule, chosen = private_rate(learning, course, 720, 0.1, clip_norm, 4000, SEARCH)
    assert quiet.optimizer == Adam()
    assert "swings above 0.76" in chosen[0].because
    assert math.sqrt(sum(schedule.at(step) ** 2 for step in range(720))) == pytest.approx(0.05, rel=2e-3)
    level = replace(learning, decay=Decay.CONSTANT)
    assert private_rate(level, course, 100, 0.1, clip_norm, 4000, SEARCH)[1].rate == pytest.approx(0.005)
    # Tables that Adam would take minutes for, and whoever asks for SGD, get the largest rate that is stable.
    huge = replace(SEARCH, public_rows=10_000_000)
    sgd, schedule, chosen = private_rate(learning, course, 720, 0.1, clip_norm, 4000, huge)
    assert sgd.optimizer == Sgd(0.9)
    assert schedule.rate == pytest.approx(16 / 21)
    assert "10,050,000 table rows" in chosen[0].because
    asked = replace(learning, optimizer=Sgd(0.9))
    _, schedule, (why,) = private_rate(asked, course, 720, 0.1, clip_norm, 4000, SEARCH)
    assert schedule.rate == pytest.approx(16 / 21)
    assert "swing" in why.because


def test_a_rate_that_was_said_is_taken_as_it_is() -> None:
    course, _, _ = private_course(PrivateLearning(), 4000, 3, SEARCH)
    said = PrivateLearning(rate=0.3, optimizer=Adam())
    _, schedule, chosen = private_rate(said, course, 10, 2.0, 5.0, 4000, SEARCH)
    assert (schedule.rate, schedule.decay, chosen) == (0.3, Decay.COSINE, ())
    _, schedule, (only,) = private_rate(PrivateLearning(rate=0.3), course, 10, 2.0, 5.0, 4000, SEARCH)
    assert (schedule.rate, only.key) == (0.3, "descent.optimizer")
    assert "a rate without an optimizer is taken for SGD's" in only.because
    studied = PrivateLearning(rate=RateByNoise())
    _, schedule, chosen = private_rate(studied, course, 96, 2.0, 5.0, 500, SEARCH)
    assert schedule.rate == pytest.approx(4 * (500 / 8192 * (500 / 96) ** 0.5) / (2.0 * 5.0))
    assert chosen == ()


def test_label_phases_take_batches_by_the_log_and_hold_a_part_out() -> None:
    for examples, batch, held in ((8_000, 125, 1600), (4_690_218, 32_768, 65_536), (20, 20, 4)):
        course, schedule, chosen = label_course(Learning(), examples, "labels")
        assert (course.batch, course.held_out, schedule.decay) == (batch, held, Decay.CONSTANT)
        assert course.optimizer == Adam(epsilon=1.6 / batch)
        assert schedule.steps == 30 * -(-(examples - held) // batch)
        assert [default.key for default in chosen][:2] == ["labels.batch", "labels.epochs"]
    course, schedule, _ = label_course(
        Learning(epochs=3, batch=100, optimizer=Sgd(), rate=0.1), 1000, "descent"
    )
    assert (course.held_out, schedule.steps, schedule.decay) == (0, 30, Decay.COSINE)
    assert (course.optimizer, schedule.rate, course.penalty) == (Sgd(), 0.1, 0.0)


def test_plain_training_ends_when_held_out_examples_say_so() -> None:
    """Labels of noise: every epoch fits them better, and what was held out worse."""
    noise = np.random.default_rng(1).integers(0, 2, 6000).astype(np.uint8)
    steps: dict[str, int] = {}
    for name, examples in (("noise", learnable(label=noise)), ("signal", learnable())):
        seen: list[RunProgress] = []
        model = Estimator(MODEL, Plain(), source=Simulation(1), secret=SECRET, simulated=True)
        model.fit(examples, watch=seen.append)
        steps[name] = seen[-1].step
        if name == "signal":
            assert model.score(examples) > 0.85
    assert steps["noise"] < steps["signal"] <= 30 * -(-4800 // 94) + (30 + COOLING // 2) * -(-6000 // 94)
    noisy = Estimator(MODEL, LabelDp(3), source=Simulation(1), secret=SECRET, simulated=True)
    assert noisy.fit(learnable()).score(learnable()) > 0.68  # public half of the fields alone


def test_examples_that_were_held_out_are_learned_from_in_the_end() -> None:
    """One value is read by them alone; a logistic weight that no example moves stays 0."""
    examples = learnable()
    order = np.random.default_rng(HELD_OUT_SEED).permutation(len(examples))
    public = examples.public.copy()
    public[:, 0] = np.minimum(public[:, 0], 10)
    public[order[:1200], 0] = 11
    for method in (Plain(), LabelDp(3)):
        model = Estimator(LogisticRegression(), method, source=Simulation(1), secret=SECRET, simulated=True)
        seen: list[int] = []
        model.fit(replace(examples, public=public), watch=lambda told, seen=seen: seen.append(told.step))  # type: ignore[misc]
        assert abs(float(model.model.tables["table"][11, 0])) > 0.01
        assert seen == sorted(seen), "sinks are told steps that grow"
    assert not label_course(Learning(), 4_690_218, "labels")[0].refit, "one in seventy is not worth the time"


def test_a_rise_within_its_own_chance_ends_nothing() -> None:
    """At epsilon 1/4 an epoch gains less than a fifth of the labels can show."""
    seen: list[RunProgress] = []
    model = Estimator(MODEL, LabelDp(0.25), source=Simulation(4), secret=SECRET, simulated=True)
    model.fit(learnable(), watch=seen.append)
    assert seen[-1].step >= (2 * FEWEST_EPOCHS) * -(-4800 // 94), "as many as it needs, and again on all"


def test_what_is_held_out_is_looked_at_with_settled_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGD with momentum leaves rows waiting until somebody reads them."""
    calls: list[str] = []
    settle, look = GradientDescent.settle, _HeldOut._losses

    def settled(descent: GradientDescent) -> None:
        calls.append("settle")
        settle(descent)

    def looked(held: _HeldOut) -> np.ndarray:
        calls.append("look")
        return look(held)

    monkeypatch.setattr(GradientDescent, "settle", settled)
    monkeypatch.setattr(_HeldOut, "_losses", looked)
    said = Plain(Learning(optimizer=Sgd(0.9), rate=0.05))
    few = learnable().subset(np.arange(600))
    Estimator(MODEL, said, source=Simulation(1), secret=SECRET, simulated=True).fit(few)
    assert calls[0] == "look", "before the first step"
    assert calls[1:5] == ["settle", "look"] * 2


def test_a_plan_says_what_it_chose_and_why() -> None:
    plan = DpSgd(3, "1e-6").plan(learnable())
    (phase,) = plan.phases
    assert isinstance(phase, PrivatePhase)
    found = {default.key: default.value for default in plan.defaults}
    assert found["descent.batch"] == phase.learning.batch == 2048
    assert found["descent.rate"] == phase.schedule.rate
    assert found["descent.clip_norm"] == phase.clipping.clip_norm == 2.24
    told = DpSgd(3, "1e-6", learning=PrivateLearning(10, 500, 5.0, 0.1, optimizer=Adam())).plan(learnable())
    assert [default.key for default in told.defaults if default.key.startswith("descent")] == [
        "descent.recalibrate"
    ]


def test_a_rate_alone_is_sgds_where_adam_would_have_been_chosen() -> None:
    """Files that say so were trained like that, so it stays; and the plan says it."""
    examples, few = learnable(), PrivateLearning(epochs=1, batch=3000)
    free = DpSgd(1000, "1e-5", learning=few).plan(examples)
    bound = DpSgd(1000, "1e-5", learning=replace(few, rate=0.001)).plan(examples)
    assert free.phases[0].learning.optimizer == Adam()
    assert bound.phases[0].learning.optimizer == Sgd(0.9)
    assert ("descent.optimizer", "sgd") in [(each.key, each.value) for each in bound.defaults]


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (PrivateLearning, {"batch": 0}, "expected batch to be a whole number >= 1, got 0"),
        (PrivateLearning, {"epochs": "3"}, "expected epochs to be a number, got '3'"),
        (PrivateLearning, {"clip_norm": "1"}, "expected clip_norm to be a number, got '1'"),
        (PrivateLearning, {"rate": "0.1"}, "expected rate to be a number, got '0.1'"),
        (PrivateLearning, {"optimizer": "sgd"}, "expected optimizer to be an optimizer, such as Adam(), got"),
        (
            PrivateLearning,
            {"optimizer": Sgd, "rate": 1},
            "expected optimizer to be an optimizer, such as Adam()",
        ),
        (Learning, {"rate": RateByNoise()}, "expected rate to be a number where no noise is added, got"),
        (Learning, {"penalty": "0.1"}, "expected penalty to be a number, got '0.1'"),
        (RateByNoise, {"product": 0}, "expected product > 0, got 0"),
        (RateByNoise, {"batch": 0}, "expected batch to be a whole number >= 1, got 0"),
        (RateByNoise, {"steps": 0}, "expected steps to be a whole number >= 1, got 0"),
    ],
)
def test_settings_are_checked_where_they_are_made(kind: type, given: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        kind(**given)
