"""What another policy would have earned, from a log of this one: with logged propensities, and without.

Private choices are logged without propensities. What stays is the share with which each item was shown in each
position, over the whole log: marginal propensities. They serve where the choice did not follow private taste,
and mislead where it did, since then the people who were shown an item are those who like it. The functions here
measure that on logs whose propensities may be known, like the Open Bandit rows (Saito et al. 2020, arXiv
2008.07146).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.errors import BadInput

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PRIOR_ROWS = 50.0
"""The direct model draws a cell's mean towards the log's with the weight of so many rows."""


@dataclass(frozen=True, eq=False)
class BanditLog:
    """Shown items with their position, reward, and the chance they were shown with; all (rows,)."""

    item: Integers
    position: Integers
    reward: Floats
    propensity: Floats

    def __post_init__(self) -> None:
        if not len(self.item) or any(
            len(x) != len(self.item) for x in (self.position, self.reward, self.propensity)
        ):
            raise BadInput("expected columns of one length with at least one row, got others")
        if self.item.min() < 0 or self.position.min() < 0:
            raise BadInput("expected items and positions >= 0, got a negative one")
        if not np.isfinite(self.reward).all() or not ((self.propensity > 0) & (self.propensity <= 1)).all():
            raise BadInput("expected finite rewards and propensities in (0, 1], got others")

    @property
    def on_policy(self) -> tuple[float, float]:
        """The mean reward of the policy that made the log, and its standard error."""
        return float(self.reward.mean()), float(self.reward.std(ddof=1) / math.sqrt(len(self.reward)))

    def shares(self, items: int, positions: int, *, smoothing: float = 1.0) -> Floats:
        """How often each item is shown in each position, (items, positions): marginal propensities."""
        counts = np.full((items, positions), float(expect.at_least_zero("smoothing", smoothing)))
        np.add.at(counts, (self.item, self.position), 1.0)
        shares: Floats = counts / counts.sum(axis=0)
        return shares


@dataclass(frozen=True)
class Estimate:
    """An estimated mean reward, with its standard error over rows."""

    value: float
    standard_error: float


def estimates(log: BanditLog, policy: Floats, *, marginal: bool = False) -> dict[str, Estimate]:
    """What `policy` (items, positions), columns summing to 1, would earn at this log's positions.

    ips     rewards weighted by policy / propensity
    snips   the same over the sum of weights
    dm      the direct method: mean rewards by item and position, drawn towards the log's mean
    dr      doubly robust: dm, corrected by weighted residuals

    With `marginal`, propensities are the log's own shares: what can be had without logged ones. The standard
    error of dr takes the direct model as given.
    """
    items, positions = policy.shape
    if log.item.max() >= items or log.position.max() >= positions:
        raise BadInput(f"expected items below {items} and positions below {positions}, got one beyond")
    if not np.allclose(policy.sum(axis=0), 1.0) or policy.min() < 0:
        raise BadInput("expected a policy whose chances sum to 1 in each position, got another")
    at = (log.item, log.position)
    propensity = log.shares(items, positions, smoothing=0.0)[at] if marginal else log.propensity
    weight = policy[at] / propensity
    model, pull = _direct_model(log, items, positions)
    direct = (policy * model).sum(axis=0)[log.position]
    weighted = weight * log.reward
    ratio = float(weighted.sum() / weight.sum()) if weight.sum() else math.nan
    return {
        "ips": _mean(weighted),
        "snips": Estimate(ratio, _mean(weight * (log.reward - ratio) / weight.mean()).standard_error),
        "dm": Estimate(float(direct.mean()), _direct_error(log, policy, pull)),
        "dr": _mean(direct + weight * (log.reward - model[at])),
    }


def _direct_model(log: BanditLog, items: int, positions: int) -> tuple[Floats, Floats]:
    """Mean rewards by cell, and what one row of the cell weighs in its own."""
    rewards, counts = np.zeros((items, positions)), np.zeros((items, positions))
    np.add.at(rewards, (log.item, log.position), log.reward)
    np.add.at(counts, (log.item, log.position), 1.0)
    return (rewards + PRIOR_ROWS * log.reward.mean()) / (counts + PRIOR_ROWS), 1 / (counts + PRIOR_ROWS)


def _direct_error(log: BanditLog, policy: Floats, pull: Floats) -> float:
    """The direct method is linear in the rewards: each row weighs by its cell, and by the log's mean."""
    share = np.bincount(log.position, minlength=policy.shape[1]) / len(log.position)
    cell = share * policy * pull
    influence = cell[log.item, log.position] + PRIOR_ROWS * cell.sum() / len(log.item)
    return float(np.sqrt(((influence * (log.reward - log.reward.mean())) ** 2).sum()))


def _mean(values: Floats) -> Estimate:
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))
