"""Audit cases of whole rooms against what their terms promise: real slabs in, real answers out.

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

from tacit.arrays import Floats
from tacit.cleanroom.attacks.defended_room import DefendedRoom, Protection
from tacit.cleanroom.attacks.game import AttackWorld, record_tokens
from tacit.cleanroom.attacks.probes import read_slopes
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Mode, NoiseLaw, terms_release
from tacit.cleanroom.protocol.requests import Purpose
from tacit.cleanroom.protocol.terms import MOST_EPSILON
from tacit.errors import RoomRefused
from tacit.privacy.audit.case import (
    FALSE_ALARM,
    AuditCase,
    AuditDraws,
    AuditNoiseLaw,
    Draws,
    Hits,
    claimed_epsilon,
    empirical_case,
    empirical_epsilon,
    gaussian_law,
)
from tacit.privacy.audit.catalogue import response_law
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES, FlipKey, flip_tokens
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.randomness import Source
from tacit.privacy.releases import Composed, GaussianStatistic
from tacit.privacy.units import Relation

LABEL = Relation.REPLACE_LABEL
DELTA = 0.05  # large on purpose: an event as rare as a real delta would need billions of draws
MOST_DELTA = Fraction(1, 1000)  # that terms may have: the noise is for it, the claim is then taken at DELTA

FEW_TRIALS = 30_000
"""Enough draws to catch all that must be: events are chosen for them. Each is a record that travels."""

LAPLACE_REACH = 1.6
"""In scales: how often noise reaches this far tells the most about it."""

Look = Callable[[DefendedRoom, AttackWorld, int], Floats]
"""`look(room, world, time)`: what the room says of each record, about 1 for a label of 1 and 0 for a 0."""


def cases() -> list[AuditCase]:
    """All cases. Claims come from the accountant, never from here, so that it is audited too."""
    flipped = Protection(Mode.AGGREGATE, Fraction(1))
    noised = Protection(Mode.NOISED, Fraction(4), MOST_DELTA)
    twice = replace(noised, releases_per_record=2)
    laplace = Protection(Mode.NOISED, Fraction(1), noise=NoiseLaw.LAPLACE)
    statistic = Protection(Mode.STATISTIC, Fraction(4), MOST_DELTA)
    return [
        _flips_by_token(),
        _flipping(
            "a room's sums and metrics over flipped labels",
            AuditingPlatform(flipped, (by_step, by_metric)),
            # Its secret is lost: labels flip anew.
            AuditingPlatform(flipped, (by_step, by_metric), forgets=True),
        ),
        _gaussian(
            "a room's noised sum, a record once",
            AuditingPlatform(noised, (by_step,)),
        ),
        _gaussian(
            "a room's noised sums, a record twice, over two tasks",
            # It refuses from the third on.
            AuditingPlatform(twice, (by_metric, by_second_task) * 2, tasks=2),
            # Its counts are lost.
            AuditingPlatform(twice, (by_metric, by_second_task) * 2, tasks=2, forgets=True),
        ),
        _laplace(
            "a room's metric with Laplace noise",
            AuditingPlatform(laplace, (by_metric,)),
        ),
        _gaussian(
            "a room's one statistic",
            # After the first it refuses.
            AuditingPlatform(statistic, (by_statistic, by_metric)),
            AuditingPlatform(statistic, (by_statistic, by_metric), forgets=True),
        ),
    ]


def by_step(room: DefendedRoom, world: AttackWorld, time: int) -> Floats:
    said = -read_slopes(room, world.records, codec="bf16", run=f"step-{time}")
    if np.isnan(said).any():
        raise RoomRefused(RoomRefusal.RECORD_EXHAUSTED)
    return said


def by_metric(room: DefendedRoom, world: AttackWorld, time: int) -> Floats:
    return room.positives(record_tokens(world.records), world.records, f"metric-{time}")


def by_second_task(room: DefendedRoom, world: AttackWorld, time: int) -> Floats:
    return room.positives(record_tokens(world.records), world.records, f"metric-{time}", task=1)


def by_statistic(room: DefendedRoom, world: AttackWorld, time: int) -> Floats:
    return room.positives(record_tokens(world.records), world.records, f"statistic-{time}", Purpose.STATISTIC)


@dataclass(frozen=True)
class AuditingPlatform:
    """Looks at a room in one way after the other, until it refuses. A twin's room forgets all in between."""

    protection: Protection
    looks: tuple[Look, ...]
    forgets: bool = False
    tasks: int = 1  # whose labels are the same

    def answers(self, label: int, trials: int, source: Source) -> list[Floats]:
        """What each look gave, by record."""
        world = AttackWorld(np.full((trials, self.tasks), label, np.uint8), np.arange(trials))
        room, given = DefendedRoom(world, self.protection, source), []
        for time, look in enumerate(self.looks):
            if self.forgets:
                room = DefendedRoom(world, self.protection, source)
            try:
                given.append(look(room, world, time))
            except RoomRefused:
                break
        return given

    def at(self, share: Fraction) -> AuditingPlatform:
        """The same before a room that has signed for a larger epsilon."""
        epsilon = min(round(self.protection.epsilon / share, 9), Fraction(MOST_EPSILON))  # as terms write it
        return replace(self, protection=replace(self.protection, epsilon=epsilon))

    @property
    def noise(self) -> float:
        return self.protection.example_terms().noise_multiplier

    def draws(self, event: Callable[[list[Floats]], Hits]) -> Draws:
        """Noise: how far each answer is from the label."""

        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
            label = 0 if neighbour else 1
            given = self.at(share).answers(label, trials, source)
            return AuditDraws(event(given), np.concatenate(given) - label)

        return draw


def _flips_by_token() -> AuditCase:
    """One label per trial, read twice; the event: both reads say 1. Noise: the first one lies."""

    def twice(second_version: int) -> Draws:
        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
            response = RandomizedResponse.for_epsilon(1 / share)
            secret, names = source.bytes(SECRET_BYTES), record_tokens(np.arange(trials))
            labels = np.full(trials, 0 if neighbour else 1)
            keys = (FlipKey("audit", 0), FlipKey("audit", 0, second_version))
            first, second = (flip_tokens(labels, names, key, response, secret) for key in keys)
            return AuditDraws((first == 1) & (second == 1), first != labels)

        return draw

    claimed = claimed_epsilon(RandomizedResponse.for_epsilon(1).release, LABEL, 0)
    return empirical_case(
        "flips by token, read twice", LABEL, claimed, draws=twice(0), law=response_law(1), twin_draws=twice(1)
    )


def _flipping(name: str, honest: AuditingPlatform, twin: AuditingPlatform) -> AuditCase:
    """The event: every look says 1. Noise: the first look lies."""

    def flipped(platform: AuditingPlatform) -> Draws:
        def draw(share: Fraction, neighbour: bool, trials: int, source: Source) -> AuditDraws:
            label = 0 if neighbour else 1
            given = [each > 0.5 for each in platform.at(share).answers(label, trials, source)]
            return AuditDraws(np.all(given, axis=0), given[0] != bool(label))

        return draw

    claimed = claimed_epsilon(terms_release(honest.protection.example_terms()), LABEL, 0)
    law = response_law(int(honest.protection.epsilon))
    return empirical_case(name, LABEL, claimed, draws=flipped(honest), law=law, twin_draws=flipped(twin))


def _laplace(name: str, honest: AuditingPlatform) -> AuditCase:
    """The event: the noisy label is 1 or more, from where on it tells the most."""

    def at_least_one(given: list[Floats]) -> Hits:
        hits: Hits = given[0] >= 1.0
        return hits

    scale = honest.noise
    reach = LAPLACE_REACH * scale

    def claimed_at(share: Fraction) -> float:
        return claimed_epsilon(terms_release(honest.at(share).protection.example_terms()), LABEL, 0)

    law = AuditNoiseLaw(reach, lambda share: math.exp(-reach / (scale * float(share))), claimed_at)
    return empirical_case(name, LABEL, claimed_at(Fraction(1)), draws=honest.draws(at_least_one), law=law)


def _gaussian(name: str, honest: AuditingPlatform, twin: AuditingPlatform | None = None) -> AuditCase:
    """The event: all looks together, with the noise of one, lie above what few draws tell the most by."""

    releases = honest.protection.releases_per_record
    claimed = claimed_epsilon(terms_release(honest.protection.example_terms()), LABEL, DELTA)
    noise, shift = honest.noise, math.sqrt(releases)

    def with_less(share: Fraction) -> float:
        """What sums with this share of the noise would have to claim."""
        one = GaussianStatistic(noise * float(share), 1.0, LABEL)
        return claimed_epsilon(Composed((one,), releases), LABEL, DELTA)

    def told(above: float) -> float:
        hits, others = (round(FEW_TRIALS * norm.sf((above - mean) / noise)) for mean in (shift, 0.0))
        return empirical_epsilon(hits, others, FEW_TRIALS, delta=DELTA, alpha=FALSE_ALARM)

    above = float(max(np.arange(0.0, 6.0, 0.1), key=told))

    def large(given: list[Floats]) -> Hits:
        hits: Hits = np.sum(given, axis=0) / math.sqrt(len(given)) > above
        return hits

    return empirical_case(
        name,
        LABEL,
        claimed,
        delta=DELTA,
        draws=honest.draws(large),
        law=gaussian_law(noise, with_less),  # its grid is so fine that its law is as good as continuous
        twin_draws=None if twin is None else twin.draws(large),
    )
