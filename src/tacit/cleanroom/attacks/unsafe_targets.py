"""UNSAFE, FOR COMPARISON ONLY: targets that answer as others do, or as careless rooms would.

Nothing here protects a label; attacks are shown to work against these.

`SplitLearning`      sends each record's gradient back (Vepakomma et al. 2018, arXiv 1812.00564)
`PublishedProtocol`  Li et al., RecSys 2024: only sums over a batch leave, without noise, and the loss
careless rooms       the published protocol with protections that are each one step short of what they should be
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.cleanroom.attacks.careless_attacks import AMENDMENT_SLACK
from tacit.cleanroom.attacks.game import AttackWorld, Labels, Records, record_tokens
from tacit.cleanroom.attacks.probes import Logits, StepQuestion, Tokens
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.losses import Loss, losses, slopes
from tacit.cleanroom.protocol.modes import gaussian_multiplier
from tacit.cleanroom.room.labels import LabelTable
from tacit.errors import RoomRefused
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES, FlipKey, flip_labels, flip_tokens
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.randomness import Source

SMALL_DELTA = Fraction(1, 10**6)

LabelReader = Callable[[Tokens, int], Labels]
"""`reads(tokens, task)`: the labels that a sum is made of."""


def true_labels(world: AttackWorld) -> LabelReader:
    table = LabelTable.of(record_tokens(world.records), world.labels, world.tasks)
    return lambda named, task: table.look_up(named, world.tasks[task])


class PublishedProtocol:
    """Sums over a batch, without noise, of whatever derivatives come. UNSAFE."""

    def __init__(
        self,
        world: AttackWorld,
        reads: LabelReader | None = None,
        *,
        keep: float | None = None,
        noise: Callable[[int], Floats] | None = None,
    ) -> None:
        self._reads = reads or true_labels(world)
        self._keep = keep
        self._noise = noise

    def tokens(self, records: Records) -> Tokens:
        return record_tokens(records)

    def aggregate(self, asked: StepQuestion) -> Floats:
        labels = self._reads(asked.tokens, asked.task)
        weights = slopes(asked.logits, labels, asked.loss, self._keep)
        sums = [
            asked.derivatives[block.name].weighted_sum(weights, dtype=np.float64).reshape(-1)
            for block in asked.layout.blocks
        ]
        total: Floats = np.concatenate(sums)
        if self._noise is not None:
            total = total + self._noise(len(total))
        return total.astype(np.float32).astype(np.float64)  # an answer has the precision of a gradient

    def sample_gradients(self, tokens: Tokens, logits: Logits, directions: Floats) -> Floats:  # noqa: ARG002
        raise RoomRefused(RoomRefusal.NOT_AGREED, "only sums over a batch are answered")

    def log_loss(self, tokens: Tokens, logits: Logits) -> float:
        return float(losses(logits, self._reads(tokens, 0), Loss.RAW, None).sum())

    def positives(self, tokens: Tokens, cells: Records, run: str) -> Floats:  # noqa: ARG002 (any run)
        counts: Floats = np.bincount(cells, weights=self._reads(tokens, 0)).astype(np.float64)
        return counts

    def tighten(self) -> None:
        """There is no agreement."""


class SplitLearning(PublishedProtocol):
    """Each record's gradient, at the cut of the model. UNSAFE."""

    def sample_gradients(self, tokens: Tokens, logits: Logits, directions: Floats) -> Floats:
        weights: Floats = slopes(logits, self._reads(tokens, 0), Loss.RAW, None)
        return weights[:, None] * directions


def fresh_flip_room(world: AttackWorld, epsilon: Fraction, source: Source) -> PublishedProtocol:
    """Careless: labels are flipped, but anew whenever they are read."""
    response, truth = RandomizedResponse.for_epsilon(epsilon), true_labels(world)

    def reads(named: Tokens, task: int) -> Labels:
        return response.sample_array(truth(named, task), source.words).astype(np.uint8)

    return PublishedProtocol(world, reads, keep=float(response.truth))


class StaleBudgetRoom(PublishedProtocol):
    """Careless: labels are flipped once under each terms, and paid for, but from the budget of the first terms.
    Those in force allow much less; a platform that tightens them a little more has every label flipped again.
    UNSAFE."""

    def __init__(self, world: AttackWorld, epsilon: Fraction, source: Source) -> None:
        self._epsilon, self._left = epsilon, AMENDMENT_SLACK * epsilon
        self._response, self._secret = RandomizedResponse.for_epsilon(epsilon), source.bytes(SECRET_BYTES)
        self._truth, self._tightened, self._paid = true_labels(world), 0, set[int]()
        super().__init__(world, self._flip_labels, keep=float(self._response.truth))

    def tighten(self) -> None:
        self._tightened += 1

    def _flip_labels(self, named: Tokens, task: int) -> Labels:
        if self._tightened not in self._paid:
            if self._left < self._epsilon:
                raise RoomRefused(RoomRefusal.BUDGET)
            self._left -= self._epsilon
            self._paid.add(self._tightened)
        key = FlipKey(f"task-{task}", self._tightened)
        flips = flip_tokens(self._truth(named, task), named, key, self._response, self._secret)
        return flips.astype(np.uint8)


def half_token_room(world: AttackWorld, epsilon: Fraction, source: Source) -> PublishedProtocol:
    """Careless: labels are flipped once, but two tokens that begin alike share what decides."""
    response, truth, secret = (
        RandomizedResponse.for_epsilon(epsilon),
        true_labels(world),
        source.bytes(SECRET_BYTES),
    )

    def reads(named: Tokens, task: int) -> Labels:
        labels, halves = truth(named, task), np.ascontiguousarray(named[:, :8]).view("<u8").reshape(-1)
        said = np.empty(len(labels), np.uint8)
        for value in (0, 1):  # flips refuse a repeated record: each value and half apart
            for own in _distinct(halves, labels == value):
                flips = flip_labels(labels[own], halves[own], FlipKey("careless", task), response, secret)
                said[own] = flips
        return said

    return PublishedProtocol(world, reads, keep=float(response.truth))


def _distinct(values: NDArray[np.uint64], among: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """The places of `among`, in groups in which no value comes twice."""
    places, groups = np.flatnonzero(among), []
    while len(places):
        _, first = np.unique(values[places], return_index=True)
        groups.append(places[first])
        places = np.delete(places, first)
    return groups


def single_release_room(world: AttackWorld, epsilon: Fraction, source: Source) -> PublishedProtocol:
    """Careless: noise is for a record that is released once, once in a sum, and in one matrix; nobody looks."""
    stddev = gaussian_multiplier(epsilon, SMALL_DELTA, 1)
    return PublishedProtocol(world, noise=lambda size: source.normal(size, dtype=np.float64, scale=stddev))


class StrangerRefusingRoom(PublishedProtocol):
    """Careless: a record that never converted is not in the table, and is refused. UNSAFE."""

    def aggregate(self, asked: StepQuestion) -> Floats:
        if not self._reads(asked.tokens[:1], asked.task).all():
            raise RoomRefused(RoomRefusal.UNKNOWN_TASK, "a record is not in the table")
        return super().aggregate(asked)


class SlowPositivesRoom(PublishedProtocol):
    """Careless: each positive is worked on by itself, which takes time. UNSAFE."""

    def aggregate(self, asked: StepQuestion) -> Floats:
        for place in np.flatnonzero(self._reads(asked.tokens, asked.task)):
            slopes(asked.logits[place : place + 1], np.ones(1), asked.loss, self._keep)
        return super().aggregate(asked)
