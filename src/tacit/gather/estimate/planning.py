"""The noise of a run, calibrated to its promise before anything is asked, and what each of its rounds costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.errors import BadInput, NoFiniteGuarantee
from tacit.gather.estimate.changes import Contribution, exposed_exchanges
from tacit.gather.wire.noise import ServerNoise, UserNoise
from tacit.privacy.accounting import pld
from tacit.privacy.budget import Budget
from tacit.privacy.calibration import least_noise
from tacit.privacy.ledger.amount import EPSILON_PARTS
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
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit, UnitKind

RELATION = Relation.ZERO_OUT
VARIANCE_STEPS = 1000  # variances are multiples of 1/1000, rounded up
MOST_LEVELS = 100


class NoiseBy(expect.Choice):
    """Who adds the noise: each server a whole law, or the devices in shares."""

    SERVERS = "servers"
    USERS = "users"


class Law(expect.Choice):
    """The law of the noise that a server cannot subtract. Only discrete Laplace needs no delta."""

    DISCRETE_GAUSSIAN = "discrete-gaussian"
    SKELLAM = "skellam"
    DISCRETE_LAPLACE = "discrete-laplace"


@dataclass(frozen=True)
class RunPlan:
    """A run of counts along a hierarchy: at most `levels` rounds, one release. Make it with `plan`.

    Guarantee:  (epsilon, delta)-DP for all rounds together, against the public, any device and either server.
    Neighbours: the contribution of one device set to zero; who reported, and how many, is public.
    Assumes:    what `noise` does; a device chooses at most `contribution.events` events once for the whole run
                and adds at most `contribution.most` to a cell; what is asked at a level depends on public facts
                and on earlier results only. For Skellam and discrete Gaussian noise, that concentrated
                contributions are the easiest to see: computed for this law, not proved (see `changes`).
    Source:     PLD of the exact laws (`accounting.pld`), over 2 levels (events / most) changes of `most`.
    """

    contribution: Contribution
    levels: int
    epsilon: Fraction
    delta: Fraction
    noise: ServerNoise | UserNoise

    def __post_init__(self) -> None:
        if expect.whole("levels", self.levels, at_least=1) > MOST_LEVELS:
            raise BadInput(f"expected at most {MOST_LEVELS} levels, got {self.levels}")
        object.__setattr__(self, "epsilon", expect.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", expect.probability("delta", self.delta, zero=True))
        most = self.contribution.most
        if self.delta and most > 1 and (exposed := exposed_exchanges(self.release(1), most)):
            raise NoFiniteGuarantee(
                "expected noise under which concentrated contributions are the easiest to see, got changes of "
                f"{exposed[0]} that are easier"
            )
        if (least := self._kept_epsilon()) > self.epsilon:
            asked, kept = float(self.epsilon), float(least)
            raise BadInput(f"expected noise that keeps epsilon={asked:g}, got noise that keeps {kept:g}")

    def release(self, levels: int | None = None) -> NoisyCounts:
        """What the first `levels` levels publish, to a server that knows its own noise; by default all."""
        levels = self.levels if levels is None else expect.whole("levels", levels, at_least=1)
        if levels > self.levels:
            raise BadInput(f"expected at most the {self.levels} levels of the run, got {levels}")
        changes = self.contribution.changes * levels
        match self.noise.law if isinstance(self.noise, ServerNoise) else self.noise.shares:
            case DiscreteGaussian(sigma_squared=sigma_squared):
                return DiscreteGaussianCounts(changes, RELATION, sigma_squared)
            case Skellam(variance=variance) | SkellamShares(variance=variance):
                return SkellamCounts(changes, RELATION, variance)
            case DiscreteLaplace(scale=scale) | PolyaShares(scale=scale):
                return DiscreteLaplaceCounts(changes, RELATION, scale)

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
        least = Fraction(1, EPSILON_PARTS)  # far below any epsilon whose noise can be drawn
        others = self.levels - 1
        return Budget(self.epsilon - others * least, self.delta), *[Budget(least)] * others

    def published_sd(self, answered: int) -> float:
        """The standard deviation of the noise in a published count, if so many devices answered."""
        return math.sqrt(self.noise.published_variance(answered))

    @property
    def statement(self) -> PrivacyStatement:
        """The promise of the run for one device."""
        by_users = isinstance(self.noise, UserNoise)
        silent = ", or more devices leaving out their noise than stated" if by_users else ""
        return PrivacyStatement.of(
            [self.release()],
            unit=Unit(UnitKind.DEVICE),
            relation=RELATION,
            delta=self.delta,
            also_not_protected=(
                *(() if self._says_servers else (f"against servers that collude{silent}",)),
                f"a device whose client adds more than {self.contribution.events} events to a run",
                "what later runs release: each run is an entry of its own in the ledger, and they add up",
            ),
        )

    @property
    def _says_servers(self) -> bool:
        """A statement about Skellam noise says so itself."""
        return isinstance(self.release(1), SkellamCounts)

    def _kept_epsilon(self) -> Fraction:
        """What the noise keeps over all levels, rounded up; by discrete Laplace at delta 0 exactly."""
        release = self.release()
        if self.delta == 0:
            if not isinstance(release, DiscreteLaplaceCounts):
                raise NoFiniteGuarantee("expected discrete Laplace noise at delta=0, got another law")
            return sum(release.changes) / release.scale
        return Fraction(pld.epsilon(release, delta=self.delta, relation=RELATION))


def plan(
    *,
    contribution: Contribution,
    levels: int,
    parties: int,
    epsilon: expect.Number,
    delta: expect.Number | None = None,
    by: NoiseBy = NoiseBy.SERVERS,
    law: Law | None = None,
    silent: expect.Number = 0,
    large_delta: bool = False,
) -> RunPlan:
    """The least noise that keeps (epsilon, delta) over `levels` rounds of `parties` devices.

    By default servers add discrete Gaussian and users Skellam noise, at a delta of at most 1 / (100 parties).
    A delta of 1 / parties or more, which would allow to publish somebody's counts whole, is refused unless
    `large_delta` asks for it. `silent` is the fraction of devices that may leave their noise out; it matters
    where users add it.
    """
    by, parties = NoiseBy(by), expect.whole("parties", parties, at_least=1)
    levels, target = expect.whole("levels", levels, at_least=1), expect.positive("epsilon", epsilon)
    chosen = Law(law) if law is not None else _USUAL[by]
    if by is NoiseBy.USERS and chosen is Law.DISCRETE_GAUSSIAN:
        raise BadInput("expected skellam or discrete-laplace, which devices can share, got discrete-gaussian")
    if by is NoiseBy.SERVERS and expect.probability("silent", silent, zero=True):
        raise BadInput("expected silent devices only where devices add noise, got some where servers do")
    chance = _delta(chosen, delta, parties, large_delta=large_delta)
    changes = contribution.changes * levels

    def noise(parameter: Fraction) -> ServerNoise | UserNoise:
        if by is NoiseBy.USERS:
            shares = SkellamShares if chosen is Law.SKELLAM else PolyaShares
            return UserNoise(shares(parameter, parties, expect.exact("silent", silent)))
        return ServerNoise(_SERVER_LAWS[chosen](parameter))

    if chosen is Law.DISCRETE_LAPLACE:
        parameter = sum(changes) / target
    else:
        parameter = _least_variance(chosen, changes, target, chance)
    return RunPlan(contribution, levels, target, chance, noise(parameter))


_USUAL = {NoiseBy.SERVERS: Law.DISCRETE_GAUSSIAN, NoiseBy.USERS: Law.SKELLAM}
_SERVER_LAWS: dict[Law, Callable[[Fraction], Skellam | DiscreteGaussian | DiscreteLaplace]] = {
    Law.SKELLAM: Skellam,
    Law.DISCRETE_GAUSSIAN: DiscreteGaussian,
    Law.DISCRETE_LAPLACE: DiscreteLaplace,
}


def usual_delta(parties: int) -> Fraction:
    """The largest power of ten that is at most 1 / (100 parties), and at most 1e-6."""
    power = 6
    while 10**power < 100 * parties:
        power += 1
    return Fraction(1, 10**power)


def _delta(law: Law, delta: expect.Number | None, parties: int, *, large_delta: bool) -> Fraction:
    if law is Law.DISCRETE_LAPLACE:
        if delta is not None and expect.at_least_zero("delta", delta):
            raise BadInput(f"expected no delta with discrete Laplace noise, which is pure, got {delta!r}")
        return Fraction(0)
    if delta is None:
        return usual_delta(parties)
    chance = expect.probability("delta", delta)
    if chance * parties >= 1 and not large_delta:
        raise BadInput(f"expected delta well below 1 / parties = {1 / parties:.3g}, got {delta!r}")
    return chance


def _least_variance(law: Law, changes: tuple[int, ...], epsilon: Fraction, delta: Fraction) -> Fraction:
    kind = SkellamCounts if law is Law.SKELLAM else DiscreteGaussianCounts

    def variance(sd: float) -> Fraction:
        return Fraction(math.ceil(expect.exact("noise", sd) ** 2 * VARIANCE_STEPS), VARIANCE_STEPS)

    # Of a Gaussian with this sensitivity, roughly: where the search begins.
    norm = math.sqrt(sum(change**2 for change in changes))
    start = norm * max(math.sqrt(2 * math.log(1.25 / float(delta))) / float(epsilon), 0.3)
    sd = least_noise(
        lambda sd: kind(changes, RELATION, variance(sd)),
        epsilon=epsilon,
        delta=delta,
        relation=RELATION,
        start=start,
    )
    return variance(sd)


def paper_variance(*, levels: int, events: int, epsilon: float, delta: float) -> float:
    """6 h m^2 ln(4 / delta) / epsilon^2, for comparison; stated for epsilon <= 1.

    It takes 3 m^2 for the squared L2 change of a level, where 2 m^2 is enough, and probabilistic DP.

    Source: Hardt and Nath, CCS 2012, corollary 4.3. (The last line of its proof, in the appendix, has half.)
    """
    expect.whole("levels", levels, at_least=1)
    expect.whole("events", events, at_least=1)
    chance = float(expect.probability("delta", delta))
    return 6 * levels * events**2 * math.log(4 / chance) / float(expect.positive("epsilon", epsilon)) ** 2
