"""Predictions put right after DP-SGD: the bound on what one record moves, the fit, and the promise."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from tacit.entropy import Simulation
from tacit.errors import SelfCheckFailed
from tacit.privacy.calibration import epsilon as epsilon_of
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.train import recalibration
from tacit.train.estimator import Estimator
from tacit.train.methods import DpSgd
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.model import Architecture, Part
from tacit.train.recalibration import KNOTS, SENSITIVITY, CalibrationResult, Recalibration, fit_calibration
from tacit.train.settings import PrivateLearning
from tacit.train.steps import Run
from tests.support.training_examples import MODEL, SECRET, learnable


def told(scores: list[float], labels: list[int], weight: float = 1.0) -> np.ndarray:
    found: np.ndarray = recalibration._vectors(
        np.array(scores, np.float32), np.array(labels, np.uint8), np.full(len(scores), weight)
    )
    return found


def test_no_record_moves_the_statistic_by_more_than_its_sensitivity() -> None:
    """Every pair of records on a fine grid of scores, ends and beyond; and units of two that count half."""
    scores = [-np.inf, *np.linspace(-8, 4, 49), np.inf, np.nan]
    vectors = np.array([told([score], [label]) for score in scores for label in (0, 1)])
    gaps = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    assert gaps.max() <= SENSITIVITY
    assert gaps.max() > 0.99 * SENSITIVITY  # and the bound is no larger than it has to be
    few = [(-9.0, 0), (-6.5, 1), (0.2, 0), (3.0, 1)]
    units = [told([a[0], b[0]], [a[1], b[1]], 0.5) for a, b in itertools.product(few, repeat=2)]
    assert max(float(np.linalg.norm(a - b)) for a, b in itertools.product(units, repeat=2)) <= SENSITIVITY
    unweighted = [told([a[0], b[0]], [a[1], b[1]]) for a, b in itertools.product(few, repeat=2)]
    assert max(float(np.linalg.norm(a - b)) for a, b in itertools.product(unweighted, repeat=2)) > SENSITIVITY


def test_the_statistic_tells_what_a_model_predicts_in_all() -> None:
    scores = np.linspace(-6.9, 2.9, 1000).astype(np.float32)
    found = told(list(scores), [0] * 1000)
    assert found[2:] @ expit(KNOTS) == pytest.approx(expit(scores).sum(), rel=1e-4)
    assert found[2:].sum() == pytest.approx(1000, rel=1e-4)


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.6), (0.6, -0.4), (1.5, 1.0)])
def test_a_slope_and_a_shift_are_found_again(slope: float, shift: float) -> None:
    generator = np.random.default_rng(3)
    scores = generator.normal(-2.5, 0.9, 200_000).astype(np.float32)
    rate = expit(slope * scores + shift)
    found = fit_calibration(
        told(list(scores), list((generator.random(200_000) < rate).astype(int))), noise_stddev=20.0
    )
    # Knots a logit apart take a steeper or flatter slope for a little less of one.
    assert abs(found.slope - slope) < 0.05 + 0.2 * abs(slope - 1)
    after = expit(found.slope * scores + found.shift).sum()
    assert after == pytest.approx(rate.sum(), rel=0.03)
    assert found.predicted == pytest.approx(expit(scores).sum() / rate.sum(), rel=0.02)
    assert found.is_close
    assert "WARNING" not in found.words


def test_where_noise_hides_the_positives_it_says_so_loudly() -> None:
    scores, labels = [-3.0] * 1000, [0] * 950 + [1] * 50
    hidden = fit_calibration(told(scores, labels), noise_stddev=40.0)
    assert hidden == CalibrationResult()
    assert hidden.words.startswith("WARNING: predictions are not calibrated")


def test_a_change_that_would_be_mostly_noise_is_not_made() -> None:
    """400 records at even odds, 190 of them positive, told with a standard deviation of 40: 1.05 ± .6."""
    figures = told([0.0] * 400, [1] * 190 + [0] * 210)
    found = fit_calibration(figures, noise_stddev=40.0)
    assert (found.slope, found.shift, found.is_close) == (1.0, 0.0, False)
    assert "nothing was changed" in found.words
    # Where noise is small beside it, the same difference is corrected.
    found = fit_calibration(figures * 1000, noise_stddev=40.0)
    assert found.shift < -0.02
    assert found.is_close


@pytest.mark.parametrize(
    "shape", [FactorizationMachine(4), LogisticRegression(), Mlp(2, (3,), (4,))], ids=lambda shape: shape.name
)
def test_scores_are_changed_as_was_said(shape: Architecture) -> None:
    if isinstance(shape, Mlp):
        pytest.importorskip("torch", reason="an mlp needs torch")
    examples = learnable()
    model = shape.build(examples.sizes, Simulation(1).normal)
    for table in model.tables.values():
        table += Simulation(2).normal(table.shape, scale=0.3)
    model.start_at(-1.0)
    ids = model.ids(examples, np.arange(50), Part.WHOLE)
    before = model.forward(ids, Part.WHOLE).scores.copy()
    model.rescale(1.7, 0.4)
    np.testing.assert_allclose(model.forward(ids, Part.WHOLE).scores, 1.7 * before + 0.4, rtol=1e-4, atol=1e-5)


def test_predictions_of_dp_sgd_agree_with_what_happens() -> None:
    examples = learnable()
    truth = float(examples.labels.mean())
    means = {}
    for recalibrate in (False, True):
        learning = PrivateLearning(epochs=8, batch=500, clip_norm=0.5, recalibrate=recalibrate)
        method = DpSgd(8, "1e-5", learning=learning)
        model = Estimator(MODEL, method, source=Simulation(4), secret=SECRET, simulated=True).fit(examples)
        means[recalibrate] = float(model.predict(examples).mean()) / truth
        assert (model.calibration is not None) is recalibrate
    assert abs(means[False] - 1) > 0.15
    assert abs(means[True] - 1) < 0.1


def test_it_is_paid_for_jointly_and_costs_little() -> None:
    examples = learnable()
    plans = {
        recalibrate: DpSgd(3, "1e-6", learning=PrivateLearning(recalibrate=recalibrate)).plan(examples)
        for recalibrate in (False, True)
    }
    noise = {each: plan.phases[0].clipping.noise_multiplier for each, plan in plans.items()}  # type: ignore[union-attr]
    assert 1 < noise[True] / noise[False] < 1.04
    plan = plans[True]
    assert plan.statement is not None
    assert 2.98 < plan.statement.epsilon <= 3
    assert isinstance(plan.recalibration, Recalibration)
    assert plan.releases[-1] == plan.recalibration.release
    assert len(plan.statement.mechanisms) == 2
    user = DpSgd(3, "1e-6", unit=Unit(UnitKind.USER)).plan(examples).recalibration
    assert user is not None
    assert user.weights is not None
    np.testing.assert_allclose(user.weights, 1 / 3)


def test_millions_of_records_need_next_to_nothing_for_it() -> None:
    small, large = (recalibration.plan_statistic(1.0, 1e-6, records, 0.1) for records in (8_000, 5_000_000))
    assert large.noise_stddev == pytest.approx(0.002 * 5_000_000 * 0.1)
    alone = epsilon_of(large, delta=1e-6, relation=Relation.REPLACE_ONE)
    assert alone < 0.01
    assert small.noise_stddev < 60
    assert isinstance(small, GaussianStatistic)
    assert small.relation is Relation.REPLACE_ONE


PAID = Recalibration(GaussianStatistic(30.0, SENSITIVITY, Relation.REPLACE_ONE))
SUMS = np.arange(2.0 + len(KNOTS)) * 1000


@pytest.mark.parametrize("by", [0.0, 0.5, 0.9, 1.1])
def test_noise_that_is_not_what_was_paid_for_is_told_nobody(by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    recalibration.noisy_sums(PAID, SUMS, Simulation("told"))
    honest = Simulation.normal
    monkeypatch.setattr(
        Simulation, "normal", lambda self, *given, **how: honest(self, *given, **how) * by
    )  # whatever it is asked for
    with pytest.raises(SelfCheckFailed, match="noise: expected the noise of the recalibration"):
        recalibration.noisy_sums(PAID, SUMS, Simulation("told"))


def test_noise_that_is_drawn_and_not_added_is_told_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalibration, "GRID", 2.0**10)  # coarser than the noise: it rounds to nothing
    with pytest.raises(SelfCheckFailed, match="noise: expected the statistic to be told with its noise"):
        recalibration.noisy_sums(PAID, SUMS, Simulation("told"))


def test_a_statistic_that_was_not_paid_for_is_not_told() -> None:
    examples = learnable()
    plan = DpSgd(4, "1e-5", learning=PrivateLearning(epochs=1, batch=500)).plan(examples)
    assert plan.recalibration is not None
    paid = plan.recalibration.release
    cheap = replace(plan.recalibration, release=replace(paid, noise_stddev=paid.noise_stddev / 2))
    model = MODEL.build(examples.sizes, Simulation(1).normal)
    run = Run(replace(plan, recalibration=cheap), model, examples, Simulation("run"), simulated=True)
    with pytest.raises(SelfCheckFailed, match="recalibration"):
        run.go()
    assert run.calibrated is None
