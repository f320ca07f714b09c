"""The noise of a run, calibrated to its promise before anything is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.wire.contribution import Contribution
from tacit.gather.wire.noise import ServerNoise, UserNoise
from tacit.gather.wire.promises import RELATION, Promise, expect_kept, seen_by_a_server
from tacit.privacy.budget import Budget
from tacit.privacy.calibration import least_noise
from tacit.privacy.noise.discrete_gaussian import DiscreteGaussian
from tacit.privacy.noise.discrete_laplace import DiscreteLaplace
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.noise.skellam import Skellam
from tacit.privacy.releases import DiscreteGaussianCounts, NoisyCounts, SkellamCounts
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit, UnitKind

VARIANCE_STEPS = 1000  # variances are multiples of 1/1000, rounded up


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

    Guarantee:  (epsilon, delta)-DP for all rounds together: against each server, the public, and any one device
                beside the silent ones (where users add the noise, `plan` sizes shares so that one device's,
                which it knows, does not count).
    Neighbours: the contribution of one device set to zero; who reported, and how many, is public.
    Assumes:    what `noise` does; a device chooses at most `contribution.events` events once for the whole run
                and adds at most `contribution.most` to a cell; and what `expect_kept` assumes.
    Source:     PLD of the exact laws (`wire.promises.expect_kept`).
    """

    promise: Promise
    noise: ServerNoise | UserNoise

    def __post_init__(self) -> None:
        expect_kept(self.promise, self.noise)

    @property
    def contribution(self) -> Contribution:
        return self.promise.contribution

    @property
    def levels(self) -> int:
        return self.promise.levels

    @property
    def epsilon(self) -> Fraction:
        return self.promise.epsilon

    @property
    def delta(self) -> Fraction:
        return self.promise.delta

    @property
    def cost(self) -> Budget:
        """Of the whole run."""
        return self.promise.cost

    @property
    def costs(self) -> tuple[Budget, ...]:
        """What each round puts on a ledger's line."""
        return self.promise.costs

    def release(self, levels: int | None = None) -> NoisyCounts:
        """What the first `levels` levels publish, to a server that knows its own noise; by default all."""
        levels = self.levels if levels is None else expect.whole("levels", levels, at_least=1)
        if levels > self.levels:
            raise BadInput(f"expected at most the {self.levels} levels of the run, got {levels}")
        return seen_by_a_server(self.noise, self.contribution.changes * levels)

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
    where users add it. Shares then do without one device more, since each device knows its own and could
    subtract it.
    """
    by, parties = NoiseBy(by), expect.whole("parties", parties, at_least=1)
    target = expect.positive("epsilon", epsilon)
    chosen = Law(law) if law is not None else _USUAL[by]
    if by is NoiseBy.USERS and chosen is Law.DISCRETE_GAUSSIAN:
        raise BadInput("expected skellam or discrete-laplace, which devices can share, got discrete-gaussian")
    quiet = expect.probability("silent", silent, zero=True)
    if by is NoiseBy.SERVERS and quiet:
        raise BadInput("expected silent devices only where devices add noise, got some where servers do")
    chance = _delta(chosen, delta, parties, large_delta=large_delta)
    promise = Promise(contribution.events, contribution.most, levels, target, chance)
    changes = contribution.changes * promise.levels

    def noise(parameter: Fraction) -> ServerNoise | UserNoise:
        if by is NoiseBy.USERS:
            shares = SkellamShares if chosen is Law.SKELLAM else PolyaShares
            return UserNoise(shares(parameter, parties, _not_counted(quiet, parties)))
        return ServerNoise(_SERVER_LAWS[chosen](parameter))

    if chosen is Law.DISCRETE_LAPLACE:
        parameter = sum(changes) / target
    else:
        parameter = _least_variance(chosen, changes, target, chance)
    return RunPlan(promise, noise(parameter))


def _not_counted(silent: Fraction, parties: int) -> Fraction:
    """The fraction of devices whose noise does not count: the silent ones, and one that subtracts its own."""
    others = math.floor(silent * parties) + 1
    if others >= parties:
        raise BadInput(
            f"expected more than {others} devices, whose noise may be known or left out, got {parties}"
        )
    return Fraction(others, parties)


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
