"""How well labels were guessed, and how well the guarantee lets anyone guess them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, rankdata

from tacit.cleanroom.attacks.worlds import World
from tacit.cleanroom.wire.statements import best_advantage
from tacit.errors import BadInput

Scores = NDArray[np.float64]
"""By record: above 0 the attack says 1, below it says 0, at 0 it says nothing."""

FALSE_ALARM = 1e-9
"""The chance that a lower bound accuses an honest room, per attack."""


@dataclass(frozen=True)
class Outcome:
    """Of labels that were fair coins: for how many the attack said something, and how often it was right."""

    right: int
    said: int
    asked: int

    @classmethod
    def of(cls, scores: Scores, world: World) -> Outcome:
        if scores.shape != (len(world.labels),):
            raise BadInput(f"expected a score for each of {len(world.labels)} records, got {scores.shape}")
        told = scores[world.challenge]
        said = told != 0
        right = (told[said] > 0) == (world.truths[said] == 1)
        return cls(int(right.sum()), int(said.sum()), len(told))

    @property
    def advantage(self) -> float:
        """2 x accuracy - 1 where it said something: for fair coins, its true- less its false-positive rate."""
        return 2 * self.right / self.said - 1 if self.said else 0.0

    def at_least(self, alpha: float = FALSE_ALARM) -> float:
        """A lower bound on the advantage, and a test of `guarantee`.

        Guarantee:  it exceeds tanh(epsilon / 2) with probability at most alpha, whatever the attack, if the
                    room is epsilon-DP; and at most alpha + 2 x asked x delta if it is (epsilon, delta)-DP.
        Neighbours: replace label, for one record.
        Assumes:    labels are independent fair coins. Guesses need not be independent: given all other labels
                    the odds on one are at most e^epsilon, so that the number of right ones is stochastically
                    at most binomial; and the Clopper-Pearson bound is exact for that.
        Source:     Steinke, Nasr, Jagielski 2023 (arXiv 2305.08846); Clopper, Pearson 1934.
        """
        low = float(beta.ppf(alpha, self.right, self.said - self.right + 1)) if self.right else 0.0
        return 2 * low - 1

    def at_most(self, alpha: float = FALSE_ALARM) -> float:
        """The upper bound that goes with it: an attack without power stays far below any guarantee."""
        wrong = self.said - self.right
        high = float(beta.ppf(1 - alpha, self.right + 1, wrong)) if wrong else 1.0
        return 2 * high - 1


def guarantee(epsilon: Fraction | float, delta: Fraction | float = 0) -> float:
    """The most by which a true-positive rate can exceed a false-positive rate: tanh(epsilon/2) for delta = 0.

    Guarantee:  (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) bounds the total variation of two neighbours.
    Neighbours: as of the output.
    Assumes:    an (epsilon, delta)-DP output.
    Source:     Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776), theorem 2.1: the ends of the trade-off curve.
    """
    return best_advantage(epsilon) + 2 * float(delta) / (math.exp(float(epsilon)) + 1)


def accuracy(scores: Scores, world: World) -> float:
    """The share of all labels that were found, where silence counts as wrong."""
    return float(np.mean(np.sign(scores) == 2 * world.labels[:, 0].astype(np.float64) - 1))


def precision(scores: Scores, world: World) -> float:
    """Of the records said to be positive, the share that is; 0 where nothing was said."""
    said = scores > 0
    return float(world.labels[said, 0].mean()) if said.any() else 0.0


def found(scores: Scores, world: World) -> float:
    """The share of positives that were said to be positive; nothing, if a single other record was, too."""
    said = scores > 0
    positive = world.labels[:, 0] == 1
    return float(said[positive].mean()) if not said[~positive].any() else 0.0


def area_under_curve(scores: Scores, world: World) -> float:
    """The chance that a positive scores above a negative, ties counting half."""
    positive = world.labels[:, 0] == 1
    ranks, count = rankdata(scores), int(positive.sum())
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(scores) - count)))
