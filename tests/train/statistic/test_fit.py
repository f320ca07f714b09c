"""Learning from the statistic: gradients, limits with an answer of their own, a planted model found again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import check_grad, minimize
from scipy.special import expit

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.releases import GaussianStatistic
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.train.statistic.fit import expected_labels, fit_linear
from tacit.train.statistic.method import NoisyStatistic
from tacit.train.statistic.model import FactorModel, ValuePlaces
from tacit.train.statistic.release import (
    ExpectedHarm,
    ReleasedStatistic,
    StatisticPlan,
    StatisticPrior,
    best_shares,
    release_statistic,
)
from tacit.train.statistic.tables import CellTables, pairs_of_fewest_cells

IMPRESSION = Unit(UnitKind.IMPRESSION)
FIELDS, VALUES = 4, 6


def planted(rows: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Ids, labels and true probabilities of a factorisation machine with strong products."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, VALUES, (rows, FIELDS))
    effects, factors = draw.normal(size=(FIELDS, VALUES)) * 0.5, draw.normal(size=(FIELDS, VALUES, 2)) * 0.6
    of_rows = np.stack([factors[field][ids[:, field]] for field in range(FIELDS)])
    pairs = ((of_rows.sum(axis=0) ** 2).sum(axis=1) - (of_rows**2).sum(axis=(0, 2))) / 2
    probability = expit(-2 + sum(effects[field][ids[:, field]] for field in range(FIELDS)) + pairs)
    return ids, (draw.random(rows) < probability).astype(np.int64), probability


def planned(ids: NDArray[np.int64], epsilon: float, rank: int = 2) -> StatisticPlan:
    method = NoisyStatistic(rank=rank, prior=StatisticPrior(rate=0.15, pair_variance=1.0))
    return method.plan(ids, {}, public=frozenset(), unit=IMPRESSION, epsilon=epsilon, delta=1e-6)


def quietly(plan: StatisticPlan, noise_stddev: float) -> StatisticPlan:
    """The same plan with another noise, for limits."""
    return replace(plan, release=GaussianStatistic(noise_stddev, 1.0, Relation.REPLACE_LABEL))


def test_expected_labels_reproduce_a_statistic_without_noise() -> None:
    ids, labels, _ = planted(400)
    plan = quietly(planned(ids, 8), 1e-3)
    released = ReleasedStatistic(plan, plan.cells.gather(plan.weights * labels), True)
    start = np.full(plan.cells.kept, -1.5)
    expected, _ = expected_labels(released, start, np.zeros(plan.cells.count), steps=2000)
    of_rows = expected[plan.cells.alike]
    np.testing.assert_allclose(plan.cells.gather(plan.weights * of_rows), released.sums, atol=0.02)
    assert ((expected > 0) & (expected < 1)).all()


def test_expected_labels_stay_where_they_were_under_much_noise() -> None:
    ids, labels, _ = planted(400)
    plan = quietly(planned(ids, 8), 1e4)
    released = release_statistic(plan, labels, Simulation(1), simulated=True)
    before = np.linspace(-3, 1, plan.cells.kept)
    expected, _ = expected_labels(released, before, np.zeros(plan.cells.count), steps=50)
    np.testing.assert_allclose(expected, expit(before), atol=0.01)


def test_without_noise_the_linear_model_is_ridge_regression() -> None:
    """Against the definition: dense features, and a general optimiser."""
    ids, labels, _ = planted(500)
    plan = quietly(planned(ids, 8, rank=0), 1e-3)
    released = ReleasedStatistic(plan, plan.cells.gather(plan.weights * labels), True)
    effects, base = fit_linear(released, steps=500)
    dense = np.concatenate([ids[:, [field]] == np.arange(VALUES) for field in range(FIELDS)], axis=1)
    ridge = 1 / plan.prior.effect_variance(FIELDS)

    def loss(at: NDArray[np.float64]) -> float:
        logits = at[0] + dense @ at[1:]
        return float(np.logaddexp(0, logits).sum() - labels @ logits + ridge / 2 * (at[1:] ** 2).sum())

    found = minimize(loss, np.zeros(1 + dense.shape[1]), method="L-BFGS-B", options={"maxfun": 10**6})
    assert loss(np.append(base, effects)) == pytest.approx(found.fun, abs=1e-3)
    np.testing.assert_allclose(np.append(base, effects), found.x, atol=0.02)


def test_noise_holds_rare_values_back_and_frequent_ones_hardly() -> None:
    ids = np.array([[0]] * 20_000 + [[1]] * 20_000 + [[2]] * 20)
    labels = (np.arange(len(ids)) % 10 < np.where(ids[:, 0] == 0, 4, 1)).astype(np.int64)
    labels[-20:] = 1
    plan = planned(ids, 1, rank=0)
    quiet, loud = (
        fit_linear(
            ReleasedStatistic(quietly(plan, noise), plan.cells.gather(labels.astype(float)), True), steps=300
        )[0]
        for noise in (1e-3, 30.0)
    )
    assert quiet[2] > 1
    assert loud[2] < 0.1 * quiet[2]
    assert loud[0] - loud[1] > 0.8 * (quiet[0] - quiet[1])


def test_the_gradient_of_the_scores_is_right() -> None:
    ids, _, _ = planted(30)
    ids[3, 1] = 99  # a value without a row
    design = ValuePlaces.of(tuple(np.arange(VALUES) for _ in range(FIELDS)), ids)
    assert design.places[3, 1] == FIELDS * VALUES
    toward = np.random.default_rng(3).normal(size=30)
    rows = np.random.default_rng(4).normal(size=(FIELDS * VALUES + 1, 3))
    rows[-1] = 0

    def score_by_definition(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        read = rows[design.places]  # (rows, fields, factors and effect)
        products = np.einsum("rfk,rgk->rfg", read[..., :-1], read[..., :-1])
        score: NDArray[np.float64] = read[..., -1].sum(axis=1) + np.triu(products, 1).sum(axis=(1, 2))
        return score

    scores, sums = design.scores(rows.astype(np.float32))
    np.testing.assert_allclose(scores, score_by_definition(rows), atol=1e-4)
    found = design.gradient(rows.astype(np.float32), sums, toward)
    step = 1e-6
    for at in np.ndindex(FIELDS * VALUES, 3):
        ahead, back = rows.copy(), rows.copy()
        ahead[at] += step
        back[at] -= step
        slope = toward @ (score_by_definition(ahead) - score_by_definition(back)) / (2 * step)
        assert found[at] == pytest.approx(slope, abs=1e-3)


def harm_of(noise_variance: float, rows: int = 50_000, rank: int = 2) -> ExpectedHarm:
    ids, _, _ = planted(rows)
    single = [(), *((field,) for field in range(FIELDS))]
    tables, counts = CellTables.of(ids, [*single, *pairs_of_fewest_cells([VALUES] * FIELDS, 99)])
    return ExpectedHarm(tables, counts, noise_variance, StatisticPrior(), rank)


def test_the_gradient_of_the_harm_is_right() -> None:
    harm = harm_of(400.0)
    shares = np.random.default_rng(1).dirichlet(np.ones(11))
    error = check_grad(lambda at: harm.optimistic(at)[0], lambda at: harm.optimistic(at)[1], shares)
    assert error < 1e-3 * np.linalg.norm(harm.optimistic(shares)[1])


def test_pairs_are_released_only_where_they_are_worth_their_noise() -> None:
    quiet, loud = best_shares(harm_of(1.0)), best_shares(harm_of(1e6))
    assert quiet.sum() == pytest.approx(1)
    assert loud.sum() == pytest.approx(1)
    assert (quiet[5:] > 0).all()
    assert (loud[5:] == 0).all()
    harm = harm_of(1.0)
    even = np.full(11, 1 / 11)
    assert harm(np.maximum(quiet, 1e-9)) <= harm(even)


def test_fewest_cells_first() -> None:
    assert pairs_of_fewest_cells([100, 2, 3, 50], 2) == [(1, 2), (1, 3)]
    assert len(pairs_of_fewest_cells([2] * 5, 99)) == 10


def log_loss(model: FactorModel, ids: NDArray[np.int64], probability: NDArray[np.float64]) -> float:
    logits = model.logits(ids)
    return float(np.mean(np.logaddexp(0, logits) - probability * logits))


def test_a_planted_model_is_found_again_and_its_products_too() -> None:
    ids, labels, probability = planted(60_000)
    best = -float(np.mean(probability * np.log(probability) + (1 - probability) * np.log1p(-probability)))
    method = NoisyStatistic(rank=2, prior=StatisticPrior(rate=0.15, pair_variance=1.0))
    seen: list[tuple[int, int]] = []
    excess = {}
    for name, given in (("true", labels), ("shuffled", np.random.default_rng(9).permutation(labels))):
        released = method.release(planned(ids, 4), given, Simulation(2), simulated=True)
        model = method.fit(released, ids, Simulation(3), progress=lambda _, done, of: seen.append((done, of)))
        excess[name] = log_loss(model, ids, probability) - best
        assert model.predict_proba(ids).mean() == pytest.approx(labels.mean(), rel=0.03)  # calibrated
        assert model.simulated
    linear = replace(method, rank=0)
    released = linear.release(planned(ids, 4, rank=0), labels, Simulation(2), simulated=True)
    excess["linear"] = log_loss(linear.fit(released, ids, Simulation(3)), ids, probability) - best
    assert excess["true"] < 0.25 * excess["linear"] < 0.25 * excess["shuffled"]
    assert seen[-1] == (3, 3)


def test_other_rows_are_refused_and_strange_values_add_nothing() -> None:
    ids, labels, _ = planted(300)
    method = NoisyStatistic(rank=2)
    released = method.release(planned(ids, 8), labels, Simulation(2), simulated=True)
    model = method.fit(released, ids, Simulation(3))
    with pytest.raises(BadInput, match="300 rows of the plan, got 299"):
        method.fit(released, ids[1:], Simulation(3))
    strange = np.full((2, FIELDS), 77)
    np.testing.assert_allclose(model.logits(strange), model.base)
    assert model.logits(strange[:0]).shape == (0,)
    with pytest.raises(BadInput, match="ids of 4 public fields, got 3"):
        model.logits(strange[:, :3])
