"""What a run promises each device: the most it may contribute, (epsilon, delta), and whether noise keeps it.

At each level an event counts in the total of its node, and as a click or a no-click: in two cells, or in one
where only totals are asked for. So the counts of a device at a level are at most `each` and add up to at most
`in_all` (2 events, or as many as events), which is also what its client and a proof hold it to. The squared
L2 change of one level is at most q each^2 + rest^2, with q and rest the quotient and remainder of `in_all` by
each: sums of squares are largest where parts are as unequal as can be.

Noise that is not Gaussian does not go by the L2 norm alone. `undominated_exchanges` looks at each step
towards less equal parts, (a, b) -> (a + 1, b - 1) with a >= b, and says where it is *not* the easier one to
see.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats
from tacit.errors import BadInput, NoFiniteGuarantee
from tacit.gather.protocol.encoding import fraction_text, parse_fraction
from tacit.gather.protocol.noise import RoundNoise, ServerNoise
from tacit.privacy.accounting import accountant
from tacit.privacy.accounting.loss_distributions import count_noise_atoms
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.lines import EPSILON_PARTS, LARGEST_EPSILON
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.releases import (
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    NoisyCounts,
    SkellamCounts,
)
from tacit.privacy.units import Relation


@dataclass(frozen=True)
class Contribution:
    """What a device may add: at most `events` in a run, chosen once, and at most `each` to one cell.

    Without `each`, a cell takes all of a device's events; with 1, cells count devices. With `totals_only` a run
    asks how often contexts were seen and nothing about ads: an event counts once per level, for less noise.
    """

    events: int
    each: int | None = None
    totals_only: bool = False

    def __post_init__(self) -> None:
        expect.whole("events", self.events, at_least=1)
        if self.each is not None and expect.whole("each", self.each, at_least=1) > self.events:
            raise BadInput(f"expected each <= events = {self.events}, got {self.each}")
        if type(self.totals_only) is not bool:
            raise BadInput("expected totals_only to be True or False, got something else")

    @property
    def most(self) -> int:
        """The largest entry of a device's vector."""
        return self.events if self.each is None else self.each

    @property
    def in_all(self) -> int:
        """What the cells of a device's vector add up to at most."""
        return self.events if self.totals_only else 2 * self.events

    @property
    def changes(self) -> tuple[int, ...]:
        """By how much the cells of one level change at worst, whichever of them they are."""
        full, rest = divmod(self.in_all, self.most)
        return (self.most,) * full + ((rest,) if rest else ())


LARGEST_BOUND = 2**62
"""Counts, sums and what is left to the bound are whole numbers below the field's prime, without wrapping."""


@dataclass(frozen=True)
class CountBounds:
    """Every count in 0..each, and all counts of a report together at most `total`."""

    each: int
    total: int

    def __post_init__(self) -> None:
        for name in ("each", "total"):
            bound = expect.whole(name, getattr(self, name), at_least=1)
            if bound >= LARGEST_BOUND:
                raise BadInput(f"expected {name} below 2^62, got {bound}")
            object.__setattr__(self, name, bound)

    def check(self, counts: NDArray[np.int64]) -> None:
        """Refuse counts out of bounds; the message says which bound and not which count."""
        if counts.dtype != np.int64 or counts.ndim != 1:
            raise BadInput(f"expected counts as a flat array of int64, got {counts.dtype} of {counts.shape}")
        if len(counts) and not 0 <= counts.min() <= counts.max() <= self.each:
            raise BadInput(f"expected every count in 0..{self.each}, got one outside")
        if sum(counts.tolist()) > self.total:  # whole numbers of Python, which do not wrap
            raise BadInput(f"expected counts that add up to at most {self.total}, got more")


MOST_PARTS = 8  # up to here all exchanges are looked at; beyond, parts of some sizes
DIVERGENCE_ROUNDING = 1e-12
MOST_WORK = 10**6  # values of noise times exchanges: ten seconds or so
BEYOND_ALL = 1e4  # a loss that stands for infinity


def undominated_exchanges(release: NoisyCounts, each: int, points: int = 60) -> list[tuple[int, int]]:
    """The (a, b) with a >= b for which counts that change by (a + 1, b - 1) do *not* dominate (a, b).

    Where the list is empty, any change of a level by parts of at most `each` is dominated by the most unequal
    one: steps of this kind lead there from every other. Dominating pairs compose, also adaptively, so that
    holds for all levels of a run together, however the parts differ between them.

    Compared are the hockey-stick divergences, at `points` epsilons from 0 to the largest loss, up to 1e-12. For
    discrete Gaussian and Skellam noise we know no proof, and found none exposed at any noise tried; for single
    Gaussian counts it follows from the L2 norm, and for discrete Laplace at delta = 0 only the sum counts.

    Noise so wide that this would take long is refused: devices look, too, at whatever round comes.

    Source: domination: Zhu, Dong, Wang 2022 (arXiv 2106.08567).
    """
    exchanges = _exchanges(each)
    atoms = len(count_noise_atoms(release, 1)[0])
    if atoms * len(exchanges) > MOST_WORK:
        raise BadInput(
            f"expected narrower noise or at most a few counts in a cell, got {atoms:,} values of noise and "
            f"{each} counts: too many ways to look at"
        )
    return [pair for pair in exchanges if _is_undominated(release, *pair, points)]


def _exchanges(each: int) -> list[tuple[int, int]]:
    sizes = list(range(1, each))
    if each > MOST_PARTS:
        sizes = sorted({round(float(size)) for size in np.geomspace(1, each - 1, MOST_PARTS)})
    return [(a, b) for a in sizes for b in sizes if b <= a]


def _is_undominated(release: NoisyCounts, a: int, b: int, points: int) -> bool:
    losses = count_noise_atoms(release, a + 1)[0]
    highest = float(losses[np.isfinite(losses)].max())
    epsilons = np.r_[0.0, np.geomspace(highest * 1e-4, highest * 1.5, points - 1)]
    apart = two_count_hockey_stick(release, (a + 1, b - 1), epsilons)
    equal = two_count_hockey_stick(release, (a, b), epsilons)
    return bool((equal > apart * (1 + DIVERGENCE_ROUNDING) + DIVERGENCE_ROUNDING).any())


def two_count_hockey_stick(release: NoisyCounts, changes: tuple[int, int], epsilons: Floats) -> Floats:
    """(epsilons,) the delta at each epsilon of two counts that change by `changes`; the second may be 0."""
    losses, mass = _falling_atoms(release, changes[0])
    second, second_mass = _falling_atoms(release, changes[1]) if changes[1] else (np.zeros(1), np.ones(1))
    # Of the second count, P(loss >= l_j), and the neighbour's probability there: the sum of p e^-loss.
    above = np.r_[0.0, np.cumsum(second_mass)]
    neighbour = np.r_[0.0, np.cumsum(np.exp(np.minimum(np.log(second_mass) - second, 0.0)))]
    with np.errstate(divide="ignore"):
        log_neighbour = np.log(neighbour)
    found = np.empty(len(epsilons))
    for at, epsilon in enumerate(epsilons):
        needed = epsilon - losses  # of the second count, to go beyond epsilon
        beyond = np.searchsorted(-second, -needed)
        lost = np.exp(np.minimum(needed + log_neighbour[beyond], 700.0))
        found[at] = mass @ np.maximum(above[beyond] - lost, 0.0)
    return found


def _falling_atoms(release: NoisyCounts, change: int) -> tuple[Floats, Floats]:
    """Losses from the largest down, and their masses; infinite ones count as larger than any that matters."""
    losses, mass = count_noise_atoms(release, change)
    seen = mass > 1e-300
    losses, mass = np.minimum(losses[seen], BEYOND_ALL), mass[seen]
    order = np.argsort(-losses)
    return losses[order], mass[order]


RELATION = Relation.ZERO_OUT
MOST_LEVELS = 100
MOST_EVENTS = 1 << 20
MOST_CHANGES = 1 << 17  # counts of a run that one device can change: what an accountant has to go through
_TOTALS = "totals"  # the word of a promise for totals alone; others are spelled without it
LEAST_EPSILON = Fraction(1, EPSILON_PARTS)  # what a ledger can count; far below any whose noise can be drawn


@dataclass(frozen=True)
class Promise:
    """(epsilon, delta)-DP for one device, over all rounds of a run. `expect_kept` says whether noise keeps it.

    The device adds at most `events` events to the run, chosen once, and at most `each` to one cell of a level;
    the run has at most `levels` levels. With `totals_only` it asks for totals of contexts alone, so that an
    event counts in one cell of a level and not in two.
    """

    events: int
    each: int
    levels: int
    epsilon: Fraction
    delta: Fraction
    totals_only: bool = False

    def __post_init__(self) -> None:
        for name, most in (("events", MOST_EVENTS), ("each", MOST_EVENTS), ("levels", MOST_LEVELS)):
            number = expect.whole(name, getattr(self, name), at_least=1)
            if number > most:
                raise BadInput(f"expected at most {most} {name}, got {number}")
            object.__setattr__(self, name, number)
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", expect.probability("delta", self.delta, zero=True))
        if not self.levels * LEAST_EPSILON < self.epsilon <= LARGEST_EPSILON:
            raise BadInput(f"expected an epsilon that a ledger can count, got {float(self.epsilon):g}")
        changes = -(-self.contribution.in_all // self.each) * self.levels  # checks each <= events, too
        if changes > MOST_CHANGES:
            raise BadInput(f"expected a device to change at most {MOST_CHANGES} counts, got {changes}")

    @property
    def contribution(self) -> Contribution:
        return Contribution(self.events, self.each, self.totals_only)

    @property
    def cost(self) -> Budget:
        """Of the whole run."""
        return Budget(self.epsilon, self.delta)

    @property
    def costs(self) -> tuple[Budget, ...]:
        """What each round puts on a ledger's line: the first the whole run, but the least part for each other.

        Results decide how deep a run goes, and a promise for the rounds that were held does not cover that they
        were so few. So all is paid before the first, and every round still has its entry.
        """
        others = self.levels - 1
        return Budget(self.epsilon - others * LEAST_EPSILON, self.delta), *[Budget(LEAST_EPSILON)] * others

    def expect_level(self, level: int) -> None:
        if expect.whole("level", level, at_least=0) >= self.levels:
            raise BadInput(f"expected a level below the {self.levels} levels of the run, got {level}")

    def to_plain(self) -> tuple[Any, ...]:
        plain = self.events, self.each, self.levels, fraction_text(self.epsilon), fraction_text(self.delta)
        return (*plain, _TOTALS) if self.totals_only else plain


def promise_from_plain(plain: tuple[Any, ...]) -> Promise:
    """The promise that `to_plain` wrote; BadInput for anything else."""
    numbers, more = plain[:5], plain[5:]
    if tuple(map(type, numbers)) != (int, int, int, str, str) or more not in ((), (_TOTALS,)):
        raise BadInput("expected a promise of three whole numbers and two fractions, got something else")
    events, each, levels, epsilon, delta = numbers
    return Promise(events, each, levels, parse_fraction(epsilon), parse_fraction(delta), totals_only=bool(more))


def release_seen_by_server(noise: RoundNoise, changes: tuple[int, ...]) -> NoisyCounts:
    """What counts that differ by `changes` look like to a server, which knows and subtracts its own noise."""
    match noise.law if isinstance(noise, ServerNoise) else noise.shares:
        case DiscreteGaussian(sigma_squared=sigma_squared):
            return DiscreteGaussianCounts(changes, RELATION, sigma_squared)
        case Skellam(variance=variance) | SkellamShares(variance=variance):
            return SkellamCounts(changes, RELATION, variance)
        case DiscreteLaplace(scale=scale) | PolyaShares(scale=scale):
            return DiscreteLaplaceCounts(changes, RELATION, scale)


def expect_kept(promise: Promise, noise: RoundNoise) -> None:
    """BadInput unless the noise keeps the promise.

    Guarantee:  with this noise on every count, all rounds of the run are together (epsilon, delta)-DP against
                the public and either server.
    Neighbours: the contribution of one device set to zero; who reported, and how many, is public.
    Assumes:    what `noise` does; the device keeps to `events` and `each`; what is asked at a level depends on
                public facts and on earlier results only. For Skellam and discrete Gaussian noise, that
                concentrated contributions are the easiest to see: computed for this law, not proved (see
                `undominated_exchanges`).
    Source:     PLD of the exact laws (`accounting.accountant`), over the changes of all levels.
    """
    expect.kind("promise", promise, Promise)
    if (missing := promise_shortfall(promise, noise)) is not None:
        raise BadInput(missing)


@lru_cache(maxsize=256)
def promise_shortfall(promise: Promise, noise: RoundNoise) -> str | None:
    """Why the noise does not keep the promise, in one line; None: it does. Computed once, then remembered."""
    contribution = promise.contribution
    release = release_seen_by_server(noise, contribution.changes * promise.levels)
    wanted = f"expected noise that keeps epsilon={float(promise.epsilon):g}"
    try:
        kept = _kept_epsilon(release, promise.delta)
    except (BadInput, NoFiniteGuarantee) as unknown:
        return f"{wanted}, got noise that keeps none: {unknown}"
    if kept > promise.epsilon:
        return f"{wanted}, got noise that keeps {float(kept):g}"
    most = contribution.most
    if promise.delta and most > 1 and (exposed := undominated_exchanges(release, most)):
        return (
            "expected noise under which concentrated contributions are the easiest to see, got changes of "
            f"{exposed[0]} that are easier"
        )
    return None


def _kept_epsilon(release: NoisyCounts, delta: Fraction) -> Fraction:
    """What the noise keeps, rounded up; by discrete Laplace at delta 0 exactly."""
    if delta == 0:
        if not isinstance(release, DiscreteLaplaceCounts):
            raise NoFiniteGuarantee("expected discrete Laplace noise at delta=0, got another law")
        return sum(release.changes) / release.scale
    return Fraction(accountant.epsilon(release, delta=delta, relation=RELATION))
