"""Both columns of every attack: that it works where nothing protects, and what is left of it in our room."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.stats import norm

from tacit.cleanroom.attacks.defended import Defended, Protection
from tacit.cleanroom.attacks.outcome import Outcome, guarantee
from tacit.cleanroom.attacks.suite import Attack
from tacit.cleanroom.wire.agreement import Mode, Noise, Terms
from tacit.privacy.randomness import Source


@dataclass(frozen=True)
class Shown:
    """One attack: `success` on the unsafe target, `outcome` in our room, which allows `allowed`."""

    attack: Attack
    success: float
    outcome: Outcome
    allowed: float

    @property
    def works(self) -> bool:
        return self.success >= self.attack.bar

    @property
    def withstood(self) -> bool:
        return self.outcome.at_least() <= self.allowed


def shown(attack: Attack, protection: Protection, source: Callable[[str], Source]) -> Shown:
    """Run both columns; `source(name)` is a stream of its own for each."""
    success = attack.succeeds(source(f"{attack.name}, unsafe"))
    drawn = source(f"{attack.name}, ours")
    world = attack.world(drawn)
    room = Defended(world, protection, drawn, slack=attack.slack)
    allowed = guarantee(room.terms.epsilon, room.terms.delta)
    outcome = Outcome.of(attack.guessing(world)(room, world.records, drawn), world)
    return Shown(attack, success, outcome, allowed)


def given_away(terms: Terms) -> float:
    """The advantage that the mechanism itself gives whoever reads one record's releases as well as can be.

    Flips: truth less lie. K Gaussian sums: a shift of sqrt(K) in units of noise. K Laplace sums: at least what
    one of them gives. All are below `guarantee`; a Gaussian at a small delta is so by far.
    """
    if terms.mode.flips:
        return 2 * terms.keep - 1
    if terms.mode is Mode.NOISED and terms.noise is Noise.LAPLACE:
        return -math.expm1(-1 / (2 * terms.noise_multiplier))
    shift = math.sqrt(terms.releases_per_record) / terms.noise_multiplier
    return float(2 * norm.cdf(shift / 2) - 1)


def best(all_shown: Sequence[Shown]) -> Shown:
    """The attack that surely got most, of those that spoke about every label."""
    spoke = [each for each in all_shown if each.outcome.said == each.outcome.asked]
    return max(spoke or all_shown, key=lambda each: each.outcome.at_least())
