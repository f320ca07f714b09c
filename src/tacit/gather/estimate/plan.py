"""The noise of a run, chosen by its planned error and calibrated to its promise before anything is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tacit import expect
from tacit.errors import BadInput
from tacit.gather.protocol.noise import ServerNoise, UserNoise
from tacit.gather.protocol.promises import RELATION, Contribution, Promise, expect_kept, release_seen_by_server
from tacit.privacy.budget import Budget
from tacit.privacy.calibration import least_noise
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.releases import DiscreteGaussianCounts, NoisyCounts, SkellamCounts
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Unit, UnitKind

VARIANCE_STEPS = 1000  # variances are multiples of 1/1000, rounded up


class NoiseBy(expect.Choice):
    """Who adds the noise: each server a whole law, or the devices in shares."""

    SERVERS = "servers"
    USERS = "users"


class CountNoiseLaw(expect.Choice):
    """The law of the noise that a server cannot subtract. Only discrete Laplace needs no delta."""

    DISCRETE_GAUSSIAN = "discrete-gaussian"
    SKELLAM = "skellam"
    DISCRETE_LAPLACE = "discrete-laplace"


NoiseChoice = tuple[NoiseBy, CountNoiseLaw]


@dataclass(frozen=True)
class NoiseOption:
    """A law that would keep a run's promise, and what it costs.

    delta    that it needs: 0 for discrete Laplace, whatever was allowed
    sd       standard deviation of the noise in a published count, if every device answers: the planned error
    assumes  what must be true beyond what noise by servers needs; empty: nothing
    """

    by: NoiseBy
    law: CountNoiseLaw
    delta: Fraction
    sd: float
    assumes: str = ""

    def __str__(self) -> str:
        return f"{self.law} by {self.by}, standard deviation {self.sd:,.2f}, delta {float(self.delta):g}"

    def as_json(self) -> dict[str, Any]:
        return {
            "by": str(self.by),
            "law": str(self.law),
            "delta": float(self.delta),
            "sd": self.sd,
            "assumes": self.assumes,
        }


@dataclass(frozen=True)
class RunPlan:
    """A run of counts along a hierarchy: at most `levels` rounds, one release. Make it with `plan_run`.

    Guarantee:  (epsilon, delta)-DP for all rounds together: against each server, the public, and any one device
                beside the silent ones (where users add the noise, `plan_run` sizes shares so that one device's,
                which it knows, does not count).
    Neighbours: the contribution of one device set to zero; who reported, and how many, is public.
    Assumes:    what `noise` does; a device chooses at most `contribution.events` events once for the whole run
                and adds at most `contribution.most` to a cell; and what `expect_kept` assumes.
    Source:     PLD of the exact laws (`protocol.promises.expect_kept`).
    """

    promise: Promise
    noise: ServerNoise | UserNoise
    options: tuple[NoiseOption, ...] = field(default=(), compare=False)  # chosen from; the first is its own

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
        return release_seen_by_server(self.noise, self.contribution.changes * levels)

    def published_sd(self, answered: int) -> float:
        """The standard deviation of the noise in a published count, if `answered` devices did."""
        return math.sqrt(self.noise.published_variance(answered))

    @property
    def by(self) -> NoiseBy:
        return NoiseBy.USERS if isinstance(self.noise, UserNoise) else NoiseBy.SERVERS

    @property
    def law(self) -> CountNoiseLaw:
        """Of the noise that a server cannot subtract."""
        match self.noise.shares if isinstance(self.noise, UserNoise) else self.noise.law:
            case DiscreteGaussian():
                return CountNoiseLaw.DISCRETE_GAUSSIAN
            case Skellam() | SkellamShares():
                return CountNoiseLaw.SKELLAM
            case DiscreteLaplace() | PolyaShares():
                return CountNoiseLaw.DISCRETE_LAPLACE

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


def plan_run(
    *,
    contribution: Contribution,
    levels: int,
    parties: int,
    epsilon: expect.Number,
    delta: expect.Number | None = None,
    by: NoiseBy | None = None,
    law: CountNoiseLaw | None = None,
    silent: expect.Number | None = None,
    large_delta: bool = False,
) -> RunPlan:
    """The least noise that keeps (epsilon, delta) over `levels` rounds of `parties` devices.

    Of the laws that are not ruled out the one with the least planned error is taken, from public numbers alone:
    the standard deviation of a published count's noise if every device answers. Who names a `law`, or `by` whom
    noise is added, keeps it. `RunPlan.options` has what it was chosen from, `noise_options` all there is.

    `silent` is the fraction of devices that may leave their noise out. Devices add noise only where it is
    stated, or `by` says so: less noise is no reason to trust them. Shares then do without one device more,
    since each device knows its own and could subtract it. A law that only servers add is refused with it.

    Discrete Laplace noise keeps delta 0, whatever was allowed; for others delta is at most 1 / (100 parties) by
    default. A delta of 1 / parties or more, which would allow to publish somebody's counts whole, is refused
    unless `large_delta` asks for it.
    """
    expect.kind("contribution", contribution, Contribution)
    asked = _RunRequest(contribution, levels, parties, epsilon, delta, silent, large_delta)
    adding = {NoiseBy(by)} if by is not None else {NoiseBy.SERVERS} if silent is None else set(NoiseBy)
    allowed = _CHOICES if law is None else tuple(way for way in _ALL_CHOICES if way[1] is CountNoiseLaw(law))
    ways = [way for way in allowed if way[0] in adding]
    if not ways:
        raise BadInput("expected skellam or discrete-laplace, which devices can share, got discrete-gaussian")
    if asked.quiet and all(way[0] is NoiseBy.SERVERS for way in ways):
        raise BadInput("expected silent devices only where devices add noise, got some where servers do")
    found = asked.plans(ways, named=law is not None)
    best = found[0][1]
    return replace(best, options=tuple(option for option, _ in found))


def noise_options(
    *,
    contribution: Contribution,
    levels: int,
    parties: int,
    epsilon: expect.Number,
    delta: expect.Number | None = None,
    silent: expect.Number | None = None,
    large_delta: bool = False,
) -> tuple[NoiseOption, ...]:
    """Every law that a run could have, the least noise first; noise by users says what it would assume."""
    asked = _RunRequest(contribution, levels, parties, epsilon, delta, silent, large_delta)
    return tuple(option for option, _ in asked.plans(_CHOICES, named=False))


def noise_record(run: RunPlan, options: Iterable[NoiseOption]) -> dict[str, Any]:
    """Which noise a run has, and what every law would have cost: all public, for machines."""
    return {
        "noise": {"by": str(run.by), "law": str(run.law)},
        "noise_options": [each.as_json() for each in options],
    }


def noise_lines(run: RunPlan, options: Iterable[NoiseOption]) -> list[str]:
    """The same in words, the run's own noise first."""
    own = (run.by, run.law)
    lines = [f"noise: {run.options[0]}, if every device answers"]
    lines += [
        f"  or: {each}" + (f"; it assumes {each.assumes}" if each.assumes else "")
        for each in options
        if (each.by, each.law) != own
    ]
    return lines


@dataclass(frozen=True)
class _RunRequest:
    """What a run is to keep, before its law is chosen."""

    contribution: Contribution
    levels: int
    parties: int
    epsilon: expect.Number
    delta: expect.Number | None
    silent: expect.Number | None
    large_delta: bool

    def __post_init__(self) -> None:
        """A delta that cannot be meant is refused also where pure noise would do without it."""
        parties = expect.whole("parties", self.parties, at_least=1)
        if self.delta is not None and expect.at_least_zero("delta", self.delta):
            _run_delta(CountNoiseLaw.DISCRETE_GAUSSIAN, self.delta, parties, large_delta=self.large_delta)

    @property
    def quiet(self) -> Fraction:
        return expect.probability("silent", 0 if self.silent is None else self.silent, zero=True)

    def plans(self, ways: Iterable[NoiseChoice], *, named: bool) -> list[tuple[NoiseOption, RunPlan]]:
        """The ways that can be gone, the least noise first; BadInput, that of the first, where none can."""
        found: list[tuple[NoiseOption, RunPlan]] = []
        refused: list[BadInput] = []
        for by, law in ways:
            try:
                run = self.plan(by, law, named=named)
            except BadInput as reason:
                refused.append(reason)
            else:
                assumes = _assumption(self.silent) if by is NoiseBy.USERS else ""
                found.append((NoiseOption(by, law, run.delta, run.published_sd(self.parties), assumes), run))
        if not found:
            raise refused[0]
        return sorted(found, key=lambda each: each[0].sd)

    def plan(self, by: NoiseBy, law: CountNoiseLaw, *, named: bool) -> RunPlan:
        """The least noise of one law. Unless it was named, pure noise takes nothing of an allowed delta."""
        parties, target, quiet = int(self.parties), expect.positive("epsilon", self.epsilon), self.quiet
        unused = law is CountNoiseLaw.DISCRETE_LAPLACE and not named
        chance = _run_delta(law, None if unused else self.delta, parties, large_delta=self.large_delta)
        bound = self.contribution
        promise = Promise(bound.events, bound.most, self.levels, target, chance, bound.totals_only)
        changes = bound.changes * promise.levels
        if law is CountNoiseLaw.DISCRETE_LAPLACE:
            parameter = sum(changes) / target
        else:
            parameter = _least_variance(law, changes, target, chance)
        if by is NoiseBy.SERVERS:
            return RunPlan(promise, ServerNoise(_SERVER_LAWS[law](parameter)))
        shares = SkellamShares if law is CountNoiseLaw.SKELLAM else PolyaShares
        return RunPlan(promise, UserNoise(shares(parameter, parties, _uncounted_fraction(quiet, parties))))


def _assumption(silent: expect.Number | None) -> str:
    if silent is None:
        return "that no device leaves its noise out or is made up, which silent = 0 would state"
    most = float(expect.exact("silent", silent))
    return f"that at most {most:.4g} of the devices leave their noise out or are made up, as was stated"


def _uncounted_fraction(silent: Fraction, parties: int) -> Fraction:
    """The fraction of devices whose noise does not count: the silent ones, and one that subtracts its own."""
    others = math.floor(silent * parties) + 1
    if others >= parties:
        raise BadInput(
            f"expected more than {others} devices, whose noise may be known or left out, got {parties}"
        )
    return Fraction(others, parties)


_CHOICES: tuple[NoiseChoice, ...] = (
    (NoiseBy.SERVERS, CountNoiseLaw.DISCRETE_GAUSSIAN),
    (NoiseBy.SERVERS, CountNoiseLaw.DISCRETE_LAPLACE),
    (NoiseBy.USERS, CountNoiseLaw.SKELLAM),
    (NoiseBy.USERS, CountNoiseLaw.DISCRETE_LAPLACE),
)
# By servers, Skellam noise is as much as discrete Gaussian noise: only who names it gets it.
_ALL_CHOICES = (*_CHOICES, (NoiseBy.SERVERS, CountNoiseLaw.SKELLAM))
_SERVER_LAWS: dict[CountNoiseLaw, Callable[[Fraction], Skellam | DiscreteGaussian | DiscreteLaplace]] = {
    CountNoiseLaw.SKELLAM: Skellam,
    CountNoiseLaw.DISCRETE_GAUSSIAN: DiscreteGaussian,
    CountNoiseLaw.DISCRETE_LAPLACE: DiscreteLaplace,
}


def default_delta(parties: int) -> Fraction:
    """The largest power of ten that is at most 1 / (100 parties), and at most 1e-6."""
    power = 6
    while 10**power < 100 * parties:
        power += 1
    return Fraction(1, 10**power)


def _run_delta(law: CountNoiseLaw, delta: expect.Number | None, parties: int, *, large_delta: bool) -> Fraction:
    if law is CountNoiseLaw.DISCRETE_LAPLACE:
        if delta is not None and expect.at_least_zero("delta", delta):
            raise BadInput(f"expected no delta with discrete Laplace noise, which is pure, got {delta!r}")
        return Fraction(0)
    if delta is None:
        return default_delta(parties)
    chance = expect.probability("delta", delta)
    if chance * parties >= 1 and not large_delta:
        raise BadInput(f"expected delta well below 1 / parties = {1 / parties:.3g}, got {delta!r}")
    return chance


@lru_cache(maxsize=256)
def _least_variance(
    law: CountNoiseLaw, changes: tuple[int, ...], epsilon: Fraction, delta: Fraction
) -> Fraction:
    kind = SkellamCounts if law is CountNoiseLaw.SKELLAM else DiscreteGaussianCounts

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
