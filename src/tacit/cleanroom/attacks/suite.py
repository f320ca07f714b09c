"""Every attack, and what each must reach where nothing protects a label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from tacit.cleanroom.attacks import (
    amended,
    averaging,
    epochs,
    error_texts,
    fewer_equations,
    gradient_matching,
    half_tokens,
    infinity,
    linear_solve,
    log_loss,
    lookup_times,
    many_blocks,
    metric_cells,
    packing,
    replay,
    sample_gradients,
    several_slabs,
    several_tasks,
    spellings,
    unit_vectors,
    unsafe,
)
from tacit.cleanroom.attacks.outcome import Scores, accuracy, area_under_curve, found, precision
from tacit.cleanroom.attacks.target import Target
from tacit.cleanroom.attacks.worlds import Records, World
from tacit.privacy.randomness import Source

Guessing = Callable[[Target, Records, Source], Scores]
Unsafe = Callable[[World, Fraction, Source], Target]


@dataclass(frozen=True)
class Attack:
    """The same guesses against whoever answers; `measure` and `bar` say when it works on the unsafe one."""

    name: str
    unsafe: str  # who it is shown to work against, in words
    victim: Unsafe
    world: Callable[[Source], World]
    guessing: Callable[[World], Guessing]
    measure: Callable[[Scores, World], float]
    measured: str
    bar: float
    slack: int = 1  # so many times what is in force our room's first terms allowed, before it tightened them

    def succeeds(self, source: Source) -> float:
        """How well it does against the unsafe one, which flips or adds noise for `CARELESS`, if it does."""
        world = self.world(source)
        scores = self.guessing(world)(self.victim(world, CARELESS, source), world.records, source)
        return self.measure(scores, world)


CARELESS = Fraction(3)
"""The epsilon that careless rooms mean to keep: bars are for it, whatever our own room promises."""

SPLIT, PUBLISHED = "split learning", "published protocol"
LABELS, AREA = "labels found", "area under curve"


def attacks(clock: lookup_times.Clock, *, scale: float = 1.0) -> list[Attack]:
    """All of them; `scale` makes worlds smaller for tests."""

    def size(records: int, whole: int = 1) -> int:
        return max(1, round(records * scale / whole)) * whole

    def coins(records: int, whole: int = 1) -> Callable[[Source], World]:
        return lambda source: World.coins(size(records, whole), source)

    def sparse(records: int, share: float, whole: int = 1) -> Callable[[Source], World]:
        some = size(records, whole)
        return lambda source: World.sparse(some, round(some * share), source)

    def on_published(
        name: str, world: Callable[[Source], World], guessing: Guessing, bar: float = 0.99
    ) -> Attack:
        return Attack(name, PUBLISHED, _published, world, lambda _: guessing, accuracy, LABELS, bar)

    return [
        Attack("length of sample gradients", SPLIT, _split, sparse(2048, 0.04),
               lambda _: sample_gradients.by_norm, area_under_curve, AREA, 0.95),
        Attack("direction of sample gradients", SPLIT, _split, sparse(2048, 0.04),
               lambda _: sample_gradients.by_cosine, area_under_curve, AREA, 0.99),
        on_published("solve 576 equations for 384 labels", coins(1152, linear_solve.BATCH),
                     linear_solve.scores),
        Attack("solve 96 equations for 384 labels", PUBLISHED, _published,
               sparse(4608, 1 / 24, fewer_equations.BATCH), lambda _: fewer_equations.scores,
               found, "positives found, none false", 0.9),
        on_published("a parameter for each record", coins(16_384), unit_vectors.scores),
        on_published("twenty labels in one number", coins(1000), packing.scores),
        Attack("replay with one row zeroed", PUBLISHED, _published, sparse(20_000, 0.005),
               lambda world: partial(replay.scores, targets=world.challenge), _of_challenge, LABELS, 0.99),
        on_published("forty labels in one loss", coins(400, log_loss.BITS), log_loss.scores),
        on_published("an infinite derivative", coins(512, infinity.BATCH), infinity.scores),
        on_published("gradient matching", coins(1024, gradient_matching.BATCH), gradient_matching.scores),
        on_published("a metric's cell for each record", coins(2048), metric_cells.scores),
        Attack("five epochs", "labels flipped afresh", unsafe.flipping_afresh, sparse(8192, 0.04),
               lambda _: epochs.scores, precision, "precision", 0.85),
        Attack("other runs, codecs and losses", "labels flipped afresh", unsafe.flipping_afresh, coins(2048),
               lambda _: spellings.scores, accuracy, LABELS, 0.99),
        Attack("several tasks with one label", "each task its own epsilon", unsafe.flipping_afresh,
               lambda source: World.coins(size(2048), source, tasks=several_tasks.TASKS),
               lambda _: several_tasks.scores, accuracy, LABELS, 0.98),
        Attack("tighten the agreement, ask again", "labels flipped afresh", unsafe.flipping_afresh, coins(2048),
               lambda _: amended.scores, accuracy, LABELS, 0.99),
        Attack("tighten what the room has tightened", "the first budget kept", unsafe.KeepingTheBudget,
               coins(4096), lambda _: amended.scores, accuracy, LABELS, 0.99, slack=amended.SLACK),
        Attack("tokens that share a half", "flips keyed by half a token", unsafe.flipping_by_half_tokens,
               coins(4096), lambda _: half_tokens.scores, found, "positives found, none false", 0.85),
        Attack("average repeated sums", "noise without a count", unsafe.noised_for_one, coins(1024),
               lambda _: averaging.scores, accuracy, LABELS, 0.98),
        Attack("one record in sixteen slabs", "repeats not looked for", unsafe.noised_for_one, coins(2560),
               lambda _: several_slabs.scores, accuracy, LABELS, 0.99),
        Attack("a derivative in 100 matrices", "clipped block by block", unsafe.noised_for_one, coins(5120),
               lambda _: many_blocks.scores, accuracy, LABELS, 0.99),
        Attack("the surest hundredth of readings", PUBLISHED, _published, coins(16_384),
               lambda _: unit_vectors.surest, _of_said, "right where it speaks", 0.99),
        Attack("what errors say", "strangers refused",
               lambda world, _epsilon, _source: unsafe.RefusingStrangers(world), coins(200),
               lambda _: error_texts.scores, accuracy, LABELS, 0.99),
        Attack("how long an answer takes", "positives worked on apart",
               lambda world, _epsilon, _source: unsafe.WalkingPositives(world),
               lambda source: World.alike(size(96), lookup_times.BATCH, source),
               lambda _: partial(lookup_times.scores, clock=clock), _of_challenge, LABELS, 0.9),
    ]  # fmt: skip


def _published(world: World, epsilon: Fraction, source: Source) -> Target:  # noqa: ARG001 (no protection)
    return unsafe.Published(world)


def _split(world: World, epsilon: Fraction, source: Source) -> Target:  # noqa: ARG001 (no protection)
    return unsafe.SplitLearning(world)


def _of_challenge(scores: Scores, world: World) -> float:
    """The share of the coins that were found."""
    return accuracy(scores[world.challenge], World(world.labels[world.challenge], world.challenge))


def _of_said(scores: Scores, world: World) -> float:
    said = scores != 0
    return accuracy(scores[said], World(world.labels[said], world.challenge))
