"""What a run promises each device before it asks anything, and whether its noise keeps that."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tacit import expect
from tacit.errors import BadInput, NoFiniteGuarantee
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.encoding import exact_number, exact_text
from tacit.gather.wire.exchanges import exposed_exchanges
from tacit.gather.wire.noise import Noise, ServerNoise
from tacit.privacy.accounting import pld
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.amount import EPSILON_PARTS, LARGEST_EPSILON
from tacit.privacy.noise.discrete_gaussian import DiscreteGaussian
from tacit.privacy.noise.discrete_laplace import DiscreteLaplace
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.noise.skellam import Skellam
from tacit.privacy.relations import Relation
from tacit.privacy.releases import (
    DiscreteGaussianCounts,
    DiscreteLaplaceCounts,
    NoisyCounts,
    SkellamCounts,
)

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
        plain = self.events, self.each, self.levels, exact_text(self.epsilon), exact_text(self.delta)
        return (*plain, _TOTALS) if self.totals_only else plain


def promise_from_plain(plain: tuple[Any, ...]) -> Promise:
    """The promise that `to_plain` wrote; BadInput for anything else."""
    numbers, more = plain[:5], plain[5:]
    if tuple(map(type, numbers)) != (int, int, int, str, str) or more not in ((), (_TOTALS,)):
        raise BadInput("expected a promise of three whole numbers and two fractions, got something else")
    events, each, levels, epsilon, delta = numbers
    return Promise(events, each, levels, exact_number(epsilon), exact_number(delta), totals_only=bool(more))


def seen_by_a_server(noise: Noise, changes: tuple[int, ...]) -> NoisyCounts:
    """What counts that differ by so much look like to a server, which knows and subtracts its own noise."""
    match noise.law if isinstance(noise, ServerNoise) else noise.shares:
        case DiscreteGaussian(sigma_squared=sigma_squared):
            return DiscreteGaussianCounts(changes, RELATION, sigma_squared)
        case Skellam(variance=variance) | SkellamShares(variance=variance):
            return SkellamCounts(changes, RELATION, variance)
        case DiscreteLaplace(scale=scale) | PolyaShares(scale=scale):
            return DiscreteLaplaceCounts(changes, RELATION, scale)


def expect_kept(promise: Promise, noise: Noise) -> None:
    """BadInput unless the noise keeps the promise.

    Guarantee:  with this noise on every count, all rounds of the run are together (epsilon, delta)-DP against
                the public and either server.
    Neighbours: the contribution of one device set to zero; who reported, and how many, is public.
    Assumes:    what `noise` does; the device keeps to `events` and `each`; what is asked at a level depends on
                public facts and on earlier results only. For Skellam and discrete Gaussian noise, that
                concentrated contributions are the easiest to see: computed for this law, not proved (see
                `exchanges`).
    Source:     PLD of the exact laws (`accounting.pld`), over the changes of all levels.
    """
    if (missing := shortfall(promise, noise)) is not None:
        raise BadInput(missing)


@lru_cache(maxsize=256)
def shortfall(promise: Promise, noise: Noise) -> str | None:
    """Why the noise does not keep the promise, in one line; None: it does. Computed once, then remembered."""
    contribution = promise.contribution
    release = seen_by_a_server(noise, contribution.changes * promise.levels)
    wanted = f"expected noise that keeps epsilon={float(promise.epsilon):g}"
    try:
        kept = _kept_epsilon(release, promise.delta)
    except (BadInput, NoFiniteGuarantee) as unknown:
        return f"{wanted}, got noise that keeps none: {unknown}"
    if kept > promise.epsilon:
        return f"{wanted}, got noise that keeps {float(kept):g}"
    most = contribution.most
    if promise.delta and most > 1 and (exposed := exposed_exchanges(release, most)):
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
    return Fraction(pld.epsilon(release, delta=delta, relation=RELATION))
