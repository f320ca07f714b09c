"""One noisy statistic: a fit that reads labels through sums alone, and knows their noise."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.model.learning import predict
from tacit.cleanroom.platform.noisy_ridge import EffectPrior, StatisticInputs, _learn_variances, fit_effects
from tacit.cleanroom.platform.statistic import FieldCells, StatisticHead, fit_statistic, principal_directions
from tacit.cleanroom.protocol.modes import Mode
from tacit.errors import BadInput, RoomRefused
from tacit.train.evaluation.measures import auc
from tests.support.cleanroom_platform_world import ADVERTISER, TASK, examples, model, world

ROWS, FIELDS, VALUES, FEATURES = 6000, 3, 8, 4
BIAS = FIELDS * VALUES


def linear_world(
    seed: int = 0,
) -> tuple[StatisticInputs, NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Phi, the pre-trained logits, the true ones (linear in phi beside those), and labels."""
    draw = np.random.default_rng(seed)
    values = draw.integers(0, VALUES, (ROWS, FIELDS)) + np.arange(FIELDS) * VALUES
    cells = np.concatenate([values, np.full((ROWS, 1), BIAS)], axis=1).astype(np.int32)
    features = draw.standard_normal((ROWS, FEATURES)).astype(np.float32)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1)
    phi = StatisticInputs(cells, BIAS + 1, 0.5, features)
    offsets = -1.0 + 0.8 * draw.standard_normal(ROWS)
    truth = np.concatenate([draw.normal(0, 0.8, BIAS), [-2.0], draw.normal(0, 0.8, FEATURES)])
    logits = offsets + phi.scores(truth)
    return phi, offsets, logits, (draw.random(ROWS) < expit(logits)).astype(np.int64)


def log_loss(logits: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Expected under the true logits: no noise of labels."""
    return float(np.mean(np.logaddexp(0, logits) - expit(truth) * logits))


def test_scores_and_sums_are_those_of_the_written_out_phi() -> None:
    phi, *_ = linear_world()
    written = np.zeros((ROWS, phi.width))
    for cell in phi.cells.T:
        written[np.arange(ROWS), cell] += phi.cell_weight
    written[:, phi.cell_count :] = phi.features
    draw = np.random.default_rng(1)
    effects, weights = draw.standard_normal(phi.width), draw.random(ROWS)
    assert phi.scores(effects) == pytest.approx(written @ effects, rel=1e-6, abs=1e-6)
    assert phi.sums(weights) == pytest.approx(weights @ written, rel=1e-6, abs=1e-6)
    assert phi.squares(weights) == pytest.approx(weights @ written**2, rel=1e-6, abs=1e-6)


def test_many_sums_outweigh_the_guess_of_their_variance() -> None:
    """2000 effects of variance .3 behind little noise: the mean of their squares has a standard deviation of
    .3 sqrt(2 / 2000) = .0095, and 1.0 was guessed. Where the noise drowns them, the guess stays."""
    information, group = np.full(2000, 100.0), np.zeros(2000, np.int64)
    draw = np.random.default_rng(3)
    for noise, expected, within in ((25.0, 0.3, 0.05), (1e9, 1.0, 0.05)):
        surplus = information * draw.normal(0, np.sqrt(0.3), 2000)
        surplus += draw.normal(0, np.sqrt(information + noise))
        found = _learn_variances(np.ones(2000), group, information, surplus, noise)
        assert found == pytest.approx(np.full(2000, expected), abs=within)


def test_at_large_epsilon_it_beats_the_pretrained_logits_and_comes_near_the_truth() -> None:
    phi, offsets, logits, labels = linear_world()
    effects = fit_effects(phi.sums(labels.astype(float)), 0.0, phi, offsets, bias=BIAS)
    fitted, before, best = (log_loss(z, logits) for z in (offsets + phi.scores(effects), offsets, logits))
    assert best < fitted < best + 0.03 * (before - best)


def test_more_noise_helps_less_and_never_hurts_much() -> None:
    phi, offsets, logits, labels = linear_world()
    draw, losses = np.random.default_rng(2), []
    for stddev in (0.0, 10.0, 100.0, 1000.0):
        noisy = [phi.sums(labels.astype(float)) + stddev * draw.standard_normal(phi.width) for _ in range(5)]
        fits = [fit_effects(sums, stddev, phi, offsets, bias=BIAS) for sums in noisy]
        losses.append(np.mean([log_loss(offsets + phi.scores(effects), logits) for effects in fits]))
    assert losses == sorted(losses)
    assert losses[2] < log_loss(offsets, logits)
    # The same fit without knowing its noise is worse than no fit at all: the ridge is what holds it.
    blind = fit_effects(noisy[0], 0.0, phi, offsets, bias=BIAS)
    assert log_loss(offsets + phi.scores(blind), logits) > log_loss(offsets, logits)


def test_at_tiny_epsilon_what_stays_is_the_offset() -> None:
    phi, offsets, _, labels = linear_world()
    stddev = 1e7
    sums = phi.sums(labels.astype(float)) + stddev * np.random.default_rng(3).standard_normal(phi.width)
    effects = fit_effects(sums, stddev, phi, offsets, bias=BIAS)
    assert np.abs(phi.scores(effects)).max() < 0.01


def test_a_field_without_effects_is_held_back_by_what_its_own_sums_say() -> None:
    """Field 0 moves nothing, field 1 much: with the same guess for both, only the second is let go."""
    phi, offsets, _, _ = linear_world()
    draw, truth = np.random.default_rng(5), np.zeros(phi.width)
    truth[VALUES : 2 * VALUES] = draw.normal(0, 2, VALUES)
    labels = (draw.random(ROWS) < expit(offsets + phi.scores(truth))).astype(float)
    sums = phi.sums(labels) + 10 * draw.standard_normal(phi.width)
    for guess in (0.01, 1.0):  # far off on either side
        effects = fit_effects(sums, 10.0, phi, offsets, bias=BIAS, prior=EffectPrior(value=guess))
        still, moving = np.split(effects[: 2 * VALUES], 2)
        assert np.abs(still).mean() < 0.2
        assert np.corrcoef(moving, truth[VALUES : 2 * VALUES])[0, 1] > 0.95
        assert np.abs(moving).mean() > 0.6 * np.abs(truth[VALUES : 2 * VALUES]).mean()


def test_labels_come_in_through_the_sums_alone() -> None:
    """Two label vectors with the same sums give the same head: swap two labels among rows of equal phi."""
    phi, offsets, _, labels = linear_world()
    same = phi.cells[0] == phi.cells
    other = int(np.flatnonzero(same.all(axis=1) & (np.arange(ROWS) > 0))[0])
    features = phi.features.copy()
    features[other] = features[0]
    twin = StatisticInputs(phi.cells, phi.cell_count, phi.cell_weight, features)
    labels[[0, other]] = 0, 1
    swapped = labels.copy()
    swapped[[0, other]] = 1, 0
    one, two = (
        fit_effects(twin.sums(y.astype(float)), 1.0, twin, offsets, bias=BIAS) for y in (labels, swapped)
    )
    assert one == pytest.approx(two, abs=1e-9)


def test_it_repairs_a_bias_of_several_times() -> None:
    phi, offsets, logits, labels = linear_world()
    effects = fit_effects(phi.sums(labels.astype(float)), 3.0, phi, offsets, bias=BIAS)
    fitted = expit(offsets + phi.scores(effects)).sum()
    assert expit(offsets).sum() > 1.5 * labels.sum()
    assert fitted == pytest.approx(labels.sum(), rel=0.03)
    assert expit(logits).sum() == pytest.approx(labels.sum(), rel=0.2)


def test_what_cannot_be_meant_is_refused() -> None:
    phi, offsets, _, _ = linear_world()
    with pytest.raises(BadInput, match="finite sums"):
        fit_effects(np.zeros(3), 1.0, phi, offsets, bias=BIAS)
    with pytest.raises(BadInput, match="value > 0"):
        EffectPrior(value=0.0)


def test_asked_once_fitted_kept_and_gated(tmp_path: Path) -> None:
    here, fitted = world(Mode.STATISTIC, epsilon=Fraction(8)), model()
    before = fitted.adapter_values("shoes")
    done = fit_statistic(
        fitted, "shoes", here.examples, here.tokens, here.link, task=TASK, run="r", directions=8
    )
    assert np.array_equal(fitted.adapter_values("shoes"), before)
    assert here.most_releases() == 1
    truth = here.examples.labels(TASK)
    pretrained = predict(fitted, here.examples, TASK)
    fitted.remove_adapter("shoes")
    logits = done.head.logits(fitted, here.examples)
    assert auc(truth, logits) > auc(truth, pretrained) + 0.05
    with pytest.raises(BadInput, match="adapter among none, got"):
        fitted.adapter("shoes")
    # The head is a function of the released sums: fitting them again gives it again.
    fitted.add_adapter("again", ADVERTISER, 2, seed=2)
    offsets, phi = done.head.phi(fitted, "again", here.examples)
    again = fit_effects(done.sums, done.noise_stddev, phi, offsets, bias=done.head.cells.bias)
    assert again == pytest.approx(done.head.effects, abs=1e-9)
    fitted.remove_adapter("again")
    done.head.save(tmp_path / "head.safetensors")
    loaded = StatisticHead.load(tmp_path / "head.safetensors")
    assert np.array_equal(loaded.logits(fitted, here.examples), logits)
    assert loaded.statement["epsilon"] == done.statement.epsilon
    others = here.examples.select(np.arange(10))
    others.advertiser[:] = ADVERTISER + 1
    with pytest.raises(BadInput, match="rows of its advertiser"):
        loaded.logits(fitted, others)
    with pytest.raises(BadInput, match="adapter among none, got"):
        fitted.adapter("shoes")


def test_a_second_statistic_is_refused_and_a_repeated_one_is_the_same() -> None:
    here = world(Mode.STATISTIC, rows=300)

    def asked(run: str) -> NDArray[np.float64]:
        return fit_statistic(
            model(), "shoes", here.examples, here.tokens, here.link, task=TASK, run=run, directions=4
        ).sums

    assert np.array_equal(asked("r"), asked("r"))
    assert here.most_releases() == 1
    with pytest.raises(RoomRefused, match="no release left"):
        asked("s")


def test_directions_are_orthonormal_and_features_short(tmp_path: Path) -> None:
    data, fitted = examples(300), model()
    found = principal_directions(fitted, "shoes", TASK, data, 6)
    assert found.matrix @ found.matrix.T == pytest.approx(np.eye(6), abs=1e-4)
    logits, features = found.of(fitted, "shoes", TASK, data)
    assert np.array_equal(logits, predict(fitted, data, TASK))
    assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-6
    assert np.mean(np.linalg.norm(features, axis=1) < 1 - 1e-6) == pytest.approx(0.9, abs=0.02)
    variances = features.var(axis=0)
    assert variances[0] == variances.max()  # the strongest first
    learned = fitted.adapter_values("shoes") + np.float32(0.1)
    fitted.set_adapter_values("shoes", learned)
    with pytest.raises(BadInput, match="fresh one"):
        principal_directions(fitted, "shoes", TASK, data, 6)
    with pytest.raises(BadInput, match="statistic head"):
        StatisticHead.load(tmp_path / "none")


def test_cells_know_values_that_were_not_there() -> None:
    cells = FieldCells.of(np.array([[3, 10], [5, 10], [3, 12]]))
    assert cells.count == 2 + 1 + 2 + 1 + 1
    assert cells.cells(np.array([[5, 12], [4, 99], [9, 10]])).tolist() == [[1, 4, 6], [2, 5, 6], [2, 3, 6]]


@pytest.mark.parametrize("rank", [0, 2])
def test_directions_of_embeddings_are_those_of_the_written_out_derivatives(rank: int) -> None:
    """Sparse and dense agree; the head is saved with its rows, and asks no more than the table has."""
    fitted, rows = model(), examples(300)
    fitted.remove_adapter("shoes")
    fitted.add_adapter("shoes", ADVERTISER, rank, seed=2, values=rows)
    found = principal_directions(fitted, "shoes", TASK, rows, 6)
    _, derivatives = adapter_derivatives(fitted, rows.batch(slice(None)), TASK, "shoes")
    written = np.concatenate([derivatives[block.name].as_dense() for block in found.blocks], axis=1)
    centred = written.astype(np.float64) - written.mean(axis=0, dtype=np.float64)
    *_, directions = np.linalg.svd(centred, full_matrices=False)
    along = found.matrix @ directions[: len(found.matrix)].T
    assert np.abs(along) == pytest.approx(np.eye(len(along)), abs=2e-2)  # up to their signs
    _, features = found.of(fitted, "shoes", TASK, rows)
    expected = centred @ found.matrix.T.astype(np.float64) * found.scale
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1)
    assert features == pytest.approx(expected, abs=1e-3)


def test_a_head_over_embeddings_is_kept_and_read_again(tmp_path: Path) -> None:
    here, base = world(Mode.STATISTIC, rows=2000, epsilon=Fraction(8), delta=Fraction(1, 1000)), model()
    base.remove_adapter("shoes")
    base.add_adapter("shoes", ADVERTISER, seed=2, values=here.examples)
    fitted = fit_statistic(
        base, "shoes", here.examples, here.tokens, here.link, task=TASK, run="r", directions=8
    )
    base.remove_adapter("shoes")
    fitted.head.save(tmp_path / "head.safetensors")
    again = StatisticHead.load(tmp_path / "head.safetensors")
    told = fitted.head.logits(base, here.examples)
    assert np.array_equal(again.logits(base, here.examples), told)
    labels = here.examples.labels(TASK)
    assert told[labels == 1].mean() > told[labels == 0].mean() + 0.3
