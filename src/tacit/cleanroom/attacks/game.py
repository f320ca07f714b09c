"""Guessing game of the attacks: records whose labels are fair coins, and how well an attack guessed them.

An outcome is held against what the guarantee lets anyone guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.stats import beta, rankdata

from tacit.cleanroom.protocol.modes import best_advantage
from tacit.cleanroom.protocol.tokens import TOKEN_BYTES
from tacit.errors import BadInput
from tacit.privacy.randomness import Source

Records = NDArray[np.int64]
Labels = NDArray[np.uint8]

NOBODY = 10**12
"""Record numbers from here on are nobody's: a platform may make up as many as it likes."""


@dataclass(frozen=True, eq=False)
class AttackWorld:
    """Records and their secret labels, some of them fair coins: what an attack is to guess.

    Both parties know record i by the number i. Where there are several tasks, all labels of a record are the
    same coin: an attack may look at any of them, and all of them are protected together.
    """

    labels: Labels  # (records, tasks)
    challenge: Records  # the records whose labels are fair coins; the others are 0

    @property
    def records(self) -> Records:
        return np.arange(len(self.labels))

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(f"task-{place}" for place in range(self.labels.shape[1]))

    @property
    def truths(self) -> Labels:
        truths: Labels = self.labels[self.challenge, 0]
        return truths

    @classmethod
    def coins(cls, records: int, source: Source, *, tasks: int = 1) -> AttackWorld:
        """Every label is a fair coin."""
        return cls._with(np.arange(records), records, source, tasks)

    @classmethod
    def sparse(cls, records: int, coins: int, source: Source) -> AttackWorld:
        """A few labels, at random places, are fair coins; the rest is 0, as most conversions are."""
        places = np.argsort(source.words(records), kind="stable")[:coins]
        return cls._with(np.sort(places).astype(np.int64), records, source, 1)

    @classmethod
    def alike(cls, batches: int, size: int, source: Source) -> AttackWorld:
        """All labels of a batch are one coin, that of its first record."""
        coins = fair_coins(batches, source)
        return cls(np.repeat(coins, size)[:, None], np.arange(0, batches * size, size))

    @classmethod
    def _with(cls, challenge: Records, records: int, source: Source, tasks: int) -> AttackWorld:
        labels = np.zeros((records, tasks), dtype=np.uint8)
        labels[challenge] = fair_coins(len(challenge), source)[:, None]
        return cls(labels, challenge)


def record_tokens(records: Records) -> NDArray[np.uint8]:
    """Sixteen bytes for each number, (n, 16), never the same for two; which ones, is all the same to a room.

    A block cipher under a public key, because it makes millions in a second.
    """
    blocks = np.zeros((len(records), 2), "<u8")
    blocks[:, 0] = records.astype(np.uint64)
    named = Cipher(algorithms.AES256(bytes(32)), modes.ECB()).encryptor().update(blocks.tobytes())
    return np.frombuffer(named, np.uint8).reshape(-1, TOKEN_BYTES).copy()


def fair_coins(count: int, source: Source) -> Labels:
    return (source.words(count) >> np.uint64(63)).astype(np.uint8)


Scores = NDArray[np.float64]
"""By record: above 0 the attack says 1, below it says 0, at 0 it says nothing."""

FALSE_ALARM = 1e-9
"""The chance that a lower bound accuses an honest room, per attack."""


@dataclass(frozen=True)
class AttackOutcome:
    """Of labels that were fair coins: for how many the attack said something, and how often it was right."""

    right: int
    said: int
    asked: int

    @classmethod
    def of(cls, scores: Scores, world: AttackWorld) -> AttackOutcome:
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
        """A lower bound on the advantage, and a test of `advantage_bound`.

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


def advantage_bound(epsilon: Fraction | float, delta: Fraction | float = 0) -> float:
    """The most by which a true-positive rate can exceed a false-positive rate: tanh(epsilon/2) for delta = 0.

    Guarantee:  (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) bounds the total variation of two neighbours.
    Neighbours: as of the output.
    Assumes:    an (epsilon, delta)-DP output.
    Source:     Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776), theorem 2.1: the ends of the trade-off curve.
    """
    return best_advantage(epsilon) + 2 * float(delta) / (math.exp(float(epsilon)) + 1)


def accuracy(scores: Scores, world: AttackWorld) -> float:
    """The share of all labels that were found, where silence counts as wrong."""
    return float(np.mean(np.sign(scores) == 2 * world.labels[:, 0].astype(np.float64) - 1))


def precision(scores: Scores, world: AttackWorld) -> float:
    """Of the records said to be positive, the share that is; 0 where nothing was said."""
    said = scores > 0
    return float(world.labels[said, 0].mean()) if said.any() else 0.0


def found_positives(scores: Scores, world: AttackWorld) -> float:
    """The share of positives that were said to be positive; nothing, if a single other record was, too."""
    said = scores > 0
    positive = world.labels[:, 0] == 1
    return float(said[positive].mean()) if not said[~positive].any() else 0.0


def area_under_curve(scores: Scores, world: AttackWorld) -> float:
    """The chance that a positive scores above a negative, ties counting half."""
    positive = world.labels[:, 0] == 1
    ranks, count = rankdata(scores), int(positive.sum())
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(scores) - count)))
