"""Suite of all attacks: what each must reach where nothing protects, and what is left of it in our room.

`tacit room attack` prints both columns of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from scipy.stats import norm

from tacit.cleanroom.attacks import careless_attacks, probes, published_attacks, unsafe_targets
from tacit.cleanroom.attacks.defended_room import DefendedRoom, Protection
from tacit.cleanroom.attacks.game import (
    AttackOutcome,
    AttackWorld,
    Records,
    Scores,
    accuracy,
    advantage_bound,
    area_under_curve,
    found_positives,
    precision,
)
from tacit.cleanroom.attacks.probes import Target
from tacit.cleanroom.protocol.modes import Mode, NoiseLaw
from tacit.cleanroom.protocol.terms import Terms
from tacit.privacy.randomness import Source

Guessing = Callable[[Target, Records, Source], Scores]
Unsafe = Callable[[AttackWorld, Fraction, Source], Target]


@dataclass(frozen=True)
class Attack:
    """The same guesses against any target; `measure` and `bar` say when it works on the unsafe one."""

    name: str
    unsafe: str  # the target that it is shown to work against, in words
    victim: Unsafe
    world: Callable[[Source], AttackWorld]
    guessing: Callable[[AttackWorld], Guessing]
    measure: Callable[[Scores, AttackWorld], float]
    measured: str
    bar: float
    slack: int = 1  # what our room's first terms allowed, in multiples of those that it tightened them to

    def succeeds(self, source: Source) -> float:
        """How well it does against the unsafe one, which flips or adds noise for `CARELESS`, if it does."""
        world = self.world(source)
        scores = self.guessing(world)(self.victim(world, CARELESS, source), world.records, source)
        return self.measure(scores, world)


CARELESS = Fraction(3)
"""The epsilon that careless rooms mean to keep: bars are for it, whatever our own room promises."""

SPLIT, PUBLISHED = "split learning", "published protocol"
LABELS, AREA = "labels found", "area under curve"


def attacks(clock: careless_attacks.Clock, *, scale: float = 1.0) -> list[Attack]:
    """All of them; `scale` makes worlds smaller for tests."""

    def size(records: int, whole: int = 1) -> int:
        return max(1, round(records * scale / whole)) * whole

    def coins(records: int, whole: int = 1) -> Callable[[Source], AttackWorld]:
        return lambda source: AttackWorld.coins(size(records, whole), source)

    def sparse(records: int, share: float, whole: int = 1) -> Callable[[Source], AttackWorld]:
        some = size(records, whole)
        return lambda source: AttackWorld.sparse(some, round(some * share), source)

    def on_published(
        name: str, world: Callable[[Source], AttackWorld], guessing: Guessing, bar: float = 0.99
    ) -> Attack:
        return Attack(name, PUBLISHED, _published_target, world, lambda _: guessing, accuracy, LABELS, bar)

    return [
        Attack(
            "length of sample gradients",
            SPLIT,
            _split_target,
            sparse(2048, 0.04),
            lambda _: published_attacks.gradient_norm_scores,
            area_under_curve,
            AREA,
            0.95,
        ),
        Attack(
            "direction of sample gradients",
            SPLIT,
            _split_target,
            sparse(2048, 0.04),
            lambda _: published_attacks.gradient_cosine_scores,
            area_under_curve,
            AREA,
            0.99,
        ),
        on_published(
            "solve 576 equations for 384 labels",
            coins(1152, published_attacks.LINEAR_SOLVE_BATCH),
            published_attacks.linear_solve_scores,
        ),
        Attack(
            "solve 96 equations for 384 labels",
            PUBLISHED,
            _published_target,
            sparse(4608, 1 / 24, published_attacks.FEWER_EQUATIONS_BATCH),
            lambda _: published_attacks.fewer_equations_scores,
            found_positives,
            "positives found, none false",
            0.9,
        ),
        on_published("a parameter for each record", coins(16_384), probes.unit_vector_scores),
        on_published("twenty labels in one number", coins(1000), published_attacks.packing_scores),
        Attack(
            "replay with one row zeroed",
            PUBLISHED,
            _published_target,
            sparse(20_000, 0.005),
            lambda world: partial(published_attacks.replay_scores, targets=world.challenge),
            _of_challenge,
            LABELS,
            0.99,
        ),
        on_published(
            "forty labels in one loss",
            coins(400, published_attacks.LOSS_BITS),
            published_attacks.log_loss_scores,
        ),
        on_published(
            "an infinite derivative",
            coins(512, published_attacks.INFINITY_BATCH),
            published_attacks.infinity_scores,
        ),
        on_published(
            "gradient matching",
            coins(1024, published_attacks.MATCHING_BATCH),
            published_attacks.gradient_matching_scores,
        ),
        on_published(
            "a value that one record alone has",
            coins(1024, published_attacks.VALUE_BATCH),
            published_attacks.own_value_scores,
        ),
        on_published("a metric's cell for each record", coins(2048), published_attacks.metric_cell_scores),
        Attack(
            "five epochs",
            "labels flipped afresh",
            unsafe_targets.fresh_flip_room,
            sparse(8192, 0.04),
            lambda _: careless_attacks.epoch_scores,
            precision,
            "precision",
            0.85,
        ),
        Attack(
            "other runs, codecs and losses",
            "labels flipped afresh",
            unsafe_targets.fresh_flip_room,
            coins(2048),
            lambda _: careless_attacks.request_variant_scores,
            accuracy,
            LABELS,
            0.99,
        ),
        Attack(
            "several tasks with one label",
            "each task its own epsilon",
            unsafe_targets.fresh_flip_room,
            lambda source: AttackWorld.coins(size(2048), source, tasks=careless_attacks.TASKS),
            lambda _: careless_attacks.several_task_scores,
            accuracy,
            LABELS,
            0.98,
        ),
        Attack(
            "tighten the agreement, ask again",
            "labels flipped afresh",
            unsafe_targets.fresh_flip_room,
            coins(2048),
            lambda _: careless_attacks.amendment_scores,
            accuracy,
            LABELS,
            0.99,
        ),
        Attack(
            "tighten what the room has tightened",
            "the first budget kept",
            unsafe_targets.StaleBudgetRoom,
            coins(4096),
            lambda _: careless_attacks.amendment_scores,
            accuracy,
            LABELS,
            0.99,
            slack=careless_attacks.AMENDMENT_SLACK,
        ),
        Attack(
            "tokens that share a half",
            "flips keyed by half a token",
            unsafe_targets.half_token_room,
            coins(4096),
            lambda _: careless_attacks.half_token_scores,
            found_positives,
            "positives found, none false",
            0.85,
        ),
        Attack(
            "average repeated sums",
            "noise without a count",
            unsafe_targets.single_release_room,
            coins(1024),
            lambda _: careless_attacks.averaging_scores,
            accuracy,
            LABELS,
            0.98,
        ),
        Attack(
            "one record in sixteen slabs",
            "repeats not looked for",
            unsafe_targets.single_release_room,
            coins(2560),
            lambda _: careless_attacks.repeated_slab_scores,
            accuracy,
            LABELS,
            0.99,
        ),
        Attack(
            "a derivative in 100 matrices",
            "clipped block by block",
            unsafe_targets.single_release_room,
            coins(5120),
            lambda _: careless_attacks.many_block_scores,
            accuracy,
            LABELS,
            0.99,
        ),
        Attack(
            "the surest hundredth of readings",
            PUBLISHED,
            _published_target,
            coins(16_384),
            lambda _: probes.surest_unit_vector_scores,
            _of_said,
            "right where it speaks",
            0.99,
        ),
        Attack(
            "what errors say",
            "strangers refused",
            lambda world, _epsilon, _source: unsafe_targets.StrangerRefusingRoom(world),
            coins(200),
            lambda _: careless_attacks.error_text_scores,
            accuracy,
            LABELS,
            0.99,
        ),
        Attack(
            "how long an answer takes",
            "positives worked on apart",
            lambda world, _epsilon, _source: unsafe_targets.SlowPositivesRoom(world),
            lambda source: AttackWorld.alike(size(96), careless_attacks.TIMED_BATCH, source),
            lambda _: partial(careless_attacks.timing_scores, clock=clock),
            _of_challenge,
            LABELS,
            0.9,
        ),
    ]


def _published_target(world: AttackWorld, epsilon: Fraction, source: Source) -> Target:  # noqa: ARG001 (no protection)
    return unsafe_targets.PublishedProtocol(world)


def _split_target(world: AttackWorld, epsilon: Fraction, source: Source) -> Target:  # noqa: ARG001 (no protection)
    return unsafe_targets.SplitLearning(world)


def _of_challenge(scores: Scores, world: AttackWorld) -> float:
    """The share of the coins that were found."""
    return accuracy(scores[world.challenge], AttackWorld(world.labels[world.challenge], world.challenge))


def _of_said(scores: Scores, world: AttackWorld) -> float:
    said = scores != 0
    return accuracy(scores[said], AttackWorld(world.labels[said], world.challenge))


@dataclass(frozen=True)
class AttackResult:
    """One attack: `success` on the unsafe target, `outcome` in our room, which allows `allowed`."""

    attack: Attack
    success: float
    outcome: AttackOutcome
    allowed: float

    @property
    def works(self) -> bool:
        return self.success >= self.attack.bar

    @property
    def withstood(self) -> bool:
        return self.outcome.at_least() <= self.allowed


def run_attack(attack: Attack, protection: Protection, source: Callable[[str], Source]) -> AttackResult:
    """Run both columns; `source(name)` is a stream of its own for each."""
    success = attack.succeeds(source(f"{attack.name}, unsafe"))
    drawn = source(f"{attack.name}, ours")
    world = attack.world(drawn)
    room = DefendedRoom(world, protection, drawn, slack=attack.slack)
    allowed = advantage_bound(room.terms.epsilon, room.terms.delta)
    outcome = AttackOutcome.of(attack.guessing(world)(room, world.records, drawn), world)
    return AttackResult(attack, success, outcome, allowed)


def mechanism_advantage(terms: Terms) -> float:
    """The advantage that the mechanism itself gives a reader that makes the best of one record's releases.

    Flips: truth less lie. K Gaussian sums: a shift of sqrt(K) in units of noise. K Laplace sums: at least what
    one of them gives. All are below `advantage_bound`; a Gaussian at a small delta is so by far.
    """
    if terms.mode.flips:
        return 2 * terms.keep - 1
    if terms.mode is Mode.NOISED and terms.noise is NoiseLaw.LAPLACE:
        return -math.expm1(-1 / (2 * terms.noise_multiplier))
    shift = math.sqrt(terms.releases_per_record) / terms.noise_multiplier
    return float(2 * norm.cdf(shift / 2) - 1)


def strongest_attack(all_shown: Sequence[AttackResult]) -> AttackResult:
    """The attack that surely got most, of those that spoke about every label."""
    spoke = [each for each in all_shown if each.outcome.said == each.outcome.asked]
    return max(spoke or all_shown, key=lambda each: each.outcome.at_least())
