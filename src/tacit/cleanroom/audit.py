"""Whole rooms against what their terms promise: real slabs in, real answers out.

One room holds as many worlds as there are trials: each is a record with a parameter, or a cell, of its own. Its
label is 1, or next door 0. The auditor is a platform that reads every record as often as it is let.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.stats import norm

from tacit.cleanroom.attacks.defended import Defended, Protection
from tacit.cleanroom.attacks.target import Floats
from tacit.cleanroom.attacks.unit_vectors import read
from tacit.cleanroom.attacks.worlds import World, tokens_of
from tacit.cleanroom.wire.agreement import MOST_EPSILON, Mode, Noise
from tacit.cleanroom.wire.refusals import Refusal
from tacit.cleanroom.wire.requests import Purpose
from tacit.cleanroom.wire.statements import release
from tacit.errors import RoomRefused
from tacit.privacy.audit.bounds import empirical_epsilon
from tacit.privacy.audit.case import (
    FALSE_ALARM,
    Case,
    Draws,
    Hits,
    Law,
    Seen,
    claim,
    empirical,
    gaussian_law,
)
from tacit.privacy.audit.catalogue import response_law
from tacit.privacy.mechanisms.memoised import SECRET_BYTES, FlipKey, flip_tokens
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.randomness import Source
from tacit.privacy.relations import Relation
from tacit.privacy.releases import Composed, GaussianStatistic

LABEL = Relation.REPLACE_LABEL
DELTA = 0.05  # large on purpose: an event as rare as a real delta would need billions of draws
MOST_DELTA = Fraction(1, 1000)  # that terms may have: the noise is for it, the claim is then taken at DELTA

FEW_TRIALS = 30_000
"""With so many draws all is caught that must be: events are chosen for them. Each is a record that travels."""

LAPLACE_REACH = 1.6
"""From about so many scales on, how often noise reaches tells the most about it."""

Look = Callable[[Defended, World, int], Floats]
"""`look(room, world, time)`: what the room says of each record, about 1 for a label of 1 and 0 for a 0."""


def cases() -> list[Case]:
    """All cases. Claims come from the accountant, never from here, so that it is audited too."""
    flipped = Protection(Mode.AGGREGATE, Fraction(1))
    noised = Protection(Mode.NOISED, Fraction(4), MOST_DELTA)
    twice = replace(noised, releases_per_record=2)
    laplace = Protection(Mode.NOISED, Fraction(1), noise=Noise.LAPLACE)
    statistic = Protection(Mode.STATISTIC, Fraction(4), MOST_DELTA)
    return [
        _flips_by_token(),
        _flipping(
            "a room's sums and metrics over flipped labels",
            Platform(flipped, (by_step, by_metric)),
            Platform(flipped, (by_step, by_metric), forgets=True),  # its secret is lost: labels flip anew
        ),
        _gaussian(
            "a room's noised sum, a record once",
            Platform(noised, (by_step,)),
        ),
        _gaussian(
            "a room's noised sums, a record twice, over two tasks",
            Platform(twice, (by_metric, by_second_task) * 2, tasks=2),  # it refuses from the third on
            Platform(twice, (by_metric, by_second_task) * 2, tasks=2, forgets=True),  # its counts are lost
        ),
        _laplace(
            "a room's metric with Laplace noise",
            Platform(laplace, (by_metric,)),
        ),
        _gaussian(
            "a room's one statistic",
            Platform(statistic, (by_statistic, by_metric)),  # after which it refuses
            Platform(statistic, (by_statistic, by_metric), forgets=True),
        ),
    ]


def by_step(room: Defended, world: World, time: int) -> Floats:
    said = -read(room, world.records, codec="bf16", run=f"step-{time}")
    if np.isnan(said).any():
        raise RoomRefused(Refusal.RECORD_EXHAUSTED)
    return said


def by_metric(room: Defended, world: World, time: int) -> Floats:
    return room.positives(tokens_of(world.records), world.records, f"metric-{time}")


def by_second_task(room: Defended, world: World, time: int) -> Floats:
    return room.positives(tokens_of(world.records), world.records, f"metric-{time}", task=1)


def by_statistic(room: Defended, world: World, time: int) -> Floats:
    return room.positives(tokens_of(world.records), world.records, f"statistic-{time}", Purpose.STATISTIC)


@dataclass(frozen=True)
class Platform:
    """Looks at a room in one way after the other, until it refuses. A twin's room forgets all in between."""

    protection: Protection
    looks: tuple[Look, ...]
    forgets: bool = False
    tasks: int = 1  # whose labels are the same

    def answers(self, label: int, trials: int, source: Source) -> list[Floats]:
        """What each look gave, by record."""
        world = World(np.full((trials, self.tasks), label, np.uint8), np.arange(trials))
        room, given = Defended(world, self.protection, source), []
        for time, look in enumerate(self.looks):
            if self.forgets:
                room = Defended(world, self.protection, source)
            try:
                given.append(look(room, world, time))
            except RoomRefused:
                break
        return given

    def at(self, share: Fraction) -> Platform:
        """The same before a room that has signed for a larger epsilon."""
        epsilon = min(round(self.protection.epsilon / share, 9), Fraction(MOST_EPSILON))  # as terms write it
        return replace(self, protection=replace(self.protection, epsilon=epsilon))

    @property
    def noise(self) -> float:
        return self.protection.example_terms().noise_multiplier

    def draws(self, event: Callable[[list[Floats]], Hits]) -> Draws:
        """Noise: how far each answer is from the label."""

        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> Seen:
            label = 0 if neighbour else 1
            given = self.at(share).answers(label, trials, source)
            return Seen(event(given), np.concatenate(given) - label)

        return draw


def _flips_by_token() -> Case:
    """One label per trial, read twice; the event: both reads say 1. Noise: the first one lies."""

    def twice(second_version: int) -> Draws:
        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> Seen:
            response = RandomizedResponse.for_epsilon(1 / share)
            secret, names = source.bytes(SECRET_BYTES), tokens_of(np.arange(trials))
            labels = np.full(trials, 0 if neighbour else 1)
            keys = (FlipKey("audit", 0), FlipKey("audit", 0, second_version))
            first, second = (flip_tokens(labels, names, key, response, secret) for key in keys)
            return Seen((first == 1) & (second == 1), first != labels)

        return draw

    claimed = claim(RandomizedResponse.for_epsilon(1).release, LABEL, 0)
    return empirical(
        "flips by token, read twice", LABEL, claimed, draws=twice(0), law=response_law(1), twin_draws=twice(1)
    )


def _flipping(name: str, honest: Platform, twin: Platform) -> Case:
    """The event: every look says 1. Noise: the first look lies."""

    def flipped(platform: Platform) -> Draws:
        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> Seen:
            label = 0 if neighbour else 1
            given = [each > 0.5 for each in platform.at(share).answers(label, trials, source)]
            return Seen(np.all(given, axis=0), given[0] != bool(label))

        return draw

    claimed = claim(release(honest.protection.example_terms()), LABEL, 0)
    law = response_law(int(honest.protection.epsilon))
    return empirical(name, LABEL, claimed, draws=flipped(honest), law=law, twin_draws=flipped(twin))


def _laplace(name: str, honest: Platform) -> Case:
    """The event: the noisy label is 1 or more, from where on it tells the most."""

    def at_least_one(given: list[Floats]) -> Hits:
        hits: Hits = given[0] >= 1.0
        return hits

    scale = honest.noise
    reach = LAPLACE_REACH * scale

    def claimed_at(share: Fraction) -> float:
        return claim(release(honest.at(share).protection.example_terms()), LABEL, 0)

    law = Law(reach, lambda share: math.exp(-reach / (scale * float(share))), claimed_at)
    return empirical(name, LABEL, claimed_at(Fraction(1)), draws=honest.draws(at_least_one), law=law)


def _gaussian(name: str, honest: Platform, twin: Platform | None = None) -> Case:
    """The event: all looks together, with the noise of one, lie above what few draws tell the most by."""

    releases = honest.protection.releases_per_record
    claimed = claim(release(honest.protection.example_terms()), LABEL, DELTA)
    noise, shift = honest.noise, math.sqrt(releases)

    def with_less(share: Fraction) -> float:
        """What sums with this share of the noise would have to claim."""
        one = GaussianStatistic(noise * float(share), 1.0, LABEL)
        return claim(Composed((one,), releases), LABEL, DELTA)

    def told(above: float) -> float:
        hits, others = (round(FEW_TRIALS * norm.sf((above - mean) / noise)) for mean in (shift, 0.0))
        return empirical_epsilon(hits, others, FEW_TRIALS, delta=DELTA, alpha=FALSE_ALARM)

    above = float(max(np.arange(0.0, 6.0, 0.1), key=told))

    def large(given: list[Floats]) -> Hits:
        hits: Hits = np.sum(given, axis=0) / math.sqrt(len(given)) > above
        return hits

    return empirical(
        name,
        LABEL,
        claimed,
        delta=DELTA,
        draws=honest.draws(large),
        law=gaussian_law(noise, with_less),  # its grid is so fine that its law is as good as continuous
        twin_draws=None if twin is None else twin.draws(large),
    )
