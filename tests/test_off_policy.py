"""Off-policy estimates: right with logged propensities, and misled without them where taste decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.deliver.off_policy import BanditLog, estimates
from tacit.errors import BadInput

ITEMS, POSITIONS = 6, 2
CLICKS = np.linspace(0.1, 0.6, ITEMS)[:, None] * np.array([1.0, 0.7])


def made(rows: int, chances: np.ndarray[tuple[int, ...], np.dtype[np.float64]], seed: int) -> BanditLog:
    """A log of a policy that is the same for everyone, chances (items, positions)."""
    draws = np.random.default_rng(seed)
    position = draws.integers(POSITIONS, size=rows)
    item = (draws.random((rows, 1)) > np.cumsum(chances, axis=0).T[position]).sum(axis=1)
    reward = (draws.random(rows) < CLICKS[item, position]).astype(np.float64)
    return BanditLog(item, position, reward, chances[item, position])


LOGGED = np.array([[0.4, 0.2, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.2, 0.4]]).T
POLICY = np.array([[0.05, 0.05, 0.1, 0.2, 0.3, 0.3], [0.3, 0.3, 0.2, 0.1, 0.05, 0.05]]).T


@pytest.mark.parametrize("marginal", [False, True])
def test_estimates_agree_with_the_truth_where_the_policy_read_nothing_private(marginal: bool) -> None:
    log = made(40_000, LOGGED, 1)
    truth = float((POLICY * CLICKS).sum(axis=0) @ np.bincount(log.position) / len(log.position))
    found = estimates(log, POLICY, marginal=marginal)
    assert set(found) == {"ips", "snips", "dm", "dr"}
    for estimate in found.values():
        assert abs(estimate.value - truth) < 5 * estimate.standard_error
        assert estimate.standard_error < 0.01
    assert abs(log.on_policy[0] - truth) > 5 * found["ips"].standard_error  # the policies do differ
    assert found["dr"].standard_error < found["ips"].standard_error


def test_standard_errors_are_right_over_many_logs() -> None:
    runs = [estimates(made(1000, LOGGED, seed), POLICY) for seed in range(150)]
    for name in ("ips", "snips", "dm", "dr"):
        spread = np.std([run[name].value for run in runs], ddof=1)
        stated = np.mean([run[name].standard_error for run in runs])
        # A deviation from 150 runs errs by 1/sqrt(300) of itself; four of those.
        assert abs(stated / spread - 1) < 4 / np.sqrt(300)


def test_shares_mislead_where_private_taste_decided() -> None:
    """People who like an item are shown it: its share says nothing of what others would do."""
    draws, rows = np.random.default_rng(3), 40_000
    taste = draws.integers(ITEMS, size=rows)
    odds = np.exp(2.0)
    truthful = draws.random(rows) < (odds - 1) / (odds - 1 + ITEMS)
    item = np.where(truthful, taste, draws.integers(ITEMS, size=rows))
    reward = (draws.random(rows) < np.where(item == taste, 0.5, 0.1)).astype(np.float64)
    propensity = np.where(item == taste, odds, 1.0) / (odds + ITEMS - 1)
    log = BanditLog(item, np.zeros(rows, np.int64), reward, propensity)
    even = np.full((ITEMS, 1), 1 / ITEMS)
    truth = 0.5 / ITEMS + 0.1 * (1 - 1 / ITEMS)
    with_them, without = estimates(log, even)["ips"], estimates(log, even, marginal=True)["ips"]
    assert abs(with_them.value - truth) < 5 * with_them.standard_error
    assert without.value > truth + 20 * without.standard_error


def test_a_ratio_of_weights_does_not_hang_on_their_scale() -> None:
    """All propensities halved: IPS doubles, and SNIPS and its error stay what they are."""
    log = made(500, LOGGED, 4)
    halved = estimates(replace(log, propensity=log.propensity / 2), POLICY)
    whole = estimates(log, POLICY)
    assert halved["ips"].value == pytest.approx(2 * whole["ips"].value)
    assert halved["snips"].value == pytest.approx(whole["snips"].value)
    assert halved["snips"].standard_error == pytest.approx(whole["snips"].standard_error)


def test_bad_input_is_refused() -> None:
    ones = np.ones(1, np.int64)
    with pytest.raises(BadInput, match="propensities"):
        BanditLog(ones, ones, np.ones(1), np.zeros(1))
    with pytest.raises(BadInput, match="one length"):
        BanditLog(ones, ones, np.ones(2), np.ones(1))
    with pytest.raises(BadInput, match="sum to 1"):
        estimates(BanditLog(ones, ones, np.ones(1), np.ones(1)), np.ones((2, 2)))
    with pytest.raises(BadInput, match="one beyond"):
        estimates(BanditLog(ones, ones, np.ones(1), np.ones(1)), np.ones((1, 1)))
