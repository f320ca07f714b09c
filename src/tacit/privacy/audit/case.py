"""Audit cases: a claimed epsilon, how it is tested, and how small a weakening the test still catches.

First the bounds: the epsilon that a mechanism has at least, exact from its rows, or bounded from draws, by
how often an event comes up on two neighbours or by how far the noise reaches. Then the case: the same test,
with the same events, judges the mechanism as it is and weaker ones, in which some of the noise is taken
away or epsilon is larger than the one claimed, in the real code. The largest share at which a weakening is
caught says what the audit can see. Beside it may stand a twin with a mistake of another kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from tacit.errors import BadInput, SelfCheckFailed
from tacit.privacy.accounting import epsilon, pure_epsilon
from tacit.privacy.budget import log_rounded_up
from tacit.privacy.noise.exact_sampler import SymmetricLaw
from tacit.privacy.randomness import Source
from tacit.privacy.releases import Release
from tacit.privacy.units import Relation

Row = Sequence[Fraction]

THOUSAND = 1000


def exact_epsilon(rows: Sequence[Row], delta: Fraction = Fraction(0)) -> float:
    """The least epsilon at which all rows, one pmf per private input, keep (epsilon, delta) to each other.

    Exact in fractions up to the last logarithm, which is rounded up; infinite where no epsilon does.
    """
    for row in rows:
        if sum(row) != 1 or min(row) < 0:
            raise BadInput(f"expected rows of probabilities that sum to 1, got the sum {sum(row)}")
    if len({len(row) for row in rows}) != 1 or len(rows) < 2:
        raise BadInput("expected at least two rows over the same outputs")
    return max(_pair_epsilon(one, other, delta) for one, other in permutations(rows, 2))


def _pair_epsilon(upper: Row, lower: Row, delta: Fraction) -> float:
    # delta(epsilon) = sum of (p - e^epsilon q) over outputs with p > e^epsilon q. As epsilon grows, outputs
    # drop out in the order of their ratios, and in between delta is linear in e^epsilon.
    impossible = sum((p for p, q in zip(upper, lower, strict=True) if q == 0), Fraction(0))
    if impossible > delta:
        return math.inf
    possible = sorted(((p / q, p, q) for p, q in zip(upper, lower, strict=True) if q > 0), reverse=True)
    mass, weight = impossible, Fraction(0)
    for ratio, p, q in possible:
        if mass - ratio * weight > delta:  # at this ratio it is too much already: the crossing lies above
            break
        mass, weight = mass + p, weight + q
    return log_rounded_up(max((mass - delta) / weight, Fraction(1)))


def empirical_epsilon(hits: int, neighbour_hits: int, trials: int, *, delta: float, alpha: float) -> float:
    """An epsilon that the mechanism has at least, from how often one event, fixed beforehand, came up.

    Wrong with probability at most alpha: two Clopper-Pearson bounds at alpha/2 each.
    Source: Clopper, Pearson 1934; as an audit: Jagielski, Ullman, Oprea 2020 (arXiv 2006.07709).
    """
    if not (0 <= hits <= trials and 0 <= neighbour_hits <= trials and trials > 0):
        raise BadInput(f"expected hits within 0..{trials}, got {hits} and {neighbour_hits}")
    low = float(beta.ppf(alpha / 2, hits, trials - hits + 1)) if hits else 0.0
    high = 1.0
    if neighbour_hits < trials:
        high = float(beta.ppf(1 - alpha / 2, neighbour_hits + 1, trials - neighbour_hits))
    return math.log((low - delta) / high) if low > delta else -math.inf


def noise_share_bound(
    reached: int, draws: int, chance: Callable[[Fraction], float], *, alpha: float
) -> Fraction:
    """The most of its noise that a mechanism can have, in thousandths and at most 2, from how often the noise
    reached a bound that was fixed beforehand; too small with probability at most alpha.

    `chance` is exact: how often the noise reaches it where a share of the noise is left, rising with the share.
    """
    if not 0 <= reached <= draws or draws <= 0:
        raise BadInput(f"expected a count within 0..{draws}, got {reached}")
    most = 1.0 if reached == draws else float(beta.ppf(1 - alpha, reached + 1, draws - reached))
    low, high = 1, 2 * THOUSAND
    while low < high:  # the least share that is not too little for what was seen
        middle = (low + high) // 2
        low, high = (middle + 1, high) if chance(Fraction(middle, THOUSAND)) < most else (low, middle)
    return Fraction(low, THOUSAND)


FALSE_ALARM = 1e-9
"""The chance that an empirical bound accuses an honest mechanism, per case."""

TRIALS = 200_000

ROUNDING = 1e-12
"""Bounds and claims are both logarithms rounded up; equal ones may differ by less than this."""

WHOLE = Fraction(1)
SHARES = tuple(Fraction(share) for share in (".99", ".95", ".9", ".8", ".7", ".5", ".3"))
"""Of the noise, or of 1 / epsilon, that weaker mechanisms have left, in the order in which they are tried."""

MUST_CATCH = {"exact": Fraction("0.95"), "empirical": Fraction("0.9")}

Hits = NDArray[np.bool_]
Numbers = NDArray[np.floating] | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True)
class AuditDraws:
    """What draws on one dataset showed, per trial: whether the case's event came up, and the noise by itself,
    as many independent draws of it as there are.

    `others` are further looks at the noise, in directions of their own. Draws are independent within each look
    and have the claimed law in each; how looks hang together does not matter.
    """

    told: Hits
    noise: Numbers
    others: tuple[Numbers, ...] = ()

    @property
    def looks(self) -> tuple[Numbers, ...]:
        return self.noise, *self.others


Draws = Callable[[Fraction, bool, int, Source], AuditDraws]
"""`draws(share, neighbour, trials, source)`: with this share of the noise, on either dataset."""


@dataclass(frozen=True)
class AuditNoiseLaw:
    """The law that the noise is claimed to have. `chance(share)` is exact: how often |noise| >= `reach` where a
    share of it is left; `epsilon(share)` is what would have to be claimed then."""

    reach: float
    chance: Callable[[Fraction], float]
    epsilon: Callable[[Fraction], float]


class AuditMethod(StrEnum):
    EXACT = "exact"
    EMPIRICAL = "empirical"


EpsilonBound = Callable[[Fraction, int, Source], float]
"""`look(share, trials, source)`: an epsilon that the mechanism has at least, with this share of its noise.

Any look accuses the mechanism as it is. A weaker one counts as caught only if each look at its noise catches it
by itself, so the least that they find is told of it.
"""


@dataclass(frozen=True)
class AuditCase:
    """`look` bounds the mechanism, `twin` one with a mistake of another kind that must be caught too.

    `stated` is what the mechanism says of itself where that is less than what is claimed: it is then held to
    that, and nothing is caught merely because the claim has room.
    """

    name: str
    relation: Relation
    claimed: float
    delta: float
    method: AuditMethod
    look: EpsilonBound
    twin: Callable[[int, Source], float] | None = None
    stated: float = math.inf

    @property
    def bar(self) -> float:
        """What no honest bound passes."""
        return min(self.claimed, self.stated) + ROUNDING

    def verdict(self, source: Source, trials: int = TRIALS) -> AuditVerdict:
        """One look at the mechanism as it is, then at weaker ones until one is caught, and at the twin."""
        bound = _bound_or_infinity(lambda: self.look(WHOLE, trials, source))
        twin = self.twin
        twin_bound = None if twin is None else _bound_or_infinity(lambda: twin(trials, source))
        for share in SHARES if self.method is AuditMethod.EXACT else SHARES[1:]:
            weak = _bound_or_infinity(lambda share=share: self.look(share, trials, source))  # type: ignore[misc]
            if weak > self.bar:
                return AuditVerdict(self, bound, share, weak, twin_bound)
        return AuditVerdict(self, bound, None, weak, twin_bound)


def _bound_or_infinity(look: Callable[[], float]) -> float:
    """What a look found; a mechanism that stops because it finds itself wrong keeps no claim."""
    try:
        return look()
    except SelfCheckFailed:
        return math.inf


@dataclass(frozen=True)
class AuditVerdict:
    """`bound` must not pass the claim; that of a mechanism with `caught_at` of its noise did."""

    case: AuditCase
    bound: float
    caught_at: Fraction | None
    weak_bound: float
    twin_bound: float | None

    @property
    def is_kept(self) -> bool:
        return self.bound <= self.case.bar

    @property
    def twin_caught(self) -> bool:
        return self.twin_bound is None or self.twin_bound > self.case.claimed + ROUNDING

    @property
    def sees(self) -> bool:
        """Whether a weakening is caught that is as small as a case of its kind must catch."""
        return self.caught_at is not None and self.caught_at >= MUST_CATCH[self.case.method]

    @property
    def holds(self) -> bool:
        return self.is_kept and self.twin_caught and self.sees

    @property
    def words(self) -> str:
        if not self.is_kept:
            return "VIOLATED"
        if not self.twin_caught:
            return "no power: twin missed"
        return "holds" if self.sees else "no power: less noise missed"

    def as_json(self) -> dict[str, Any]:
        """With None for what is infinite, which JSON has no word for."""
        case, twin = self.case, self.twin_bound
        return {
            "name": case.name,
            "value": _finite_only(self.bound),
            "bar": case.claimed,
            "stated": _finite_only(case.stated),
            "holds": self.holds,
            "relation": case.relation,
            "delta": case.delta,
            "method": case.method,
            "caught_at": None if self.caught_at is None else float(self.caught_at),
            "caught_value": _finite_only(self.weak_bound),
            "twin_value": None if twin is None else _finite_only(twin),
            "twin_caught": None if twin is None else self.twin_caught,
        }


def _finite_only(number: float) -> float | None:
    return number if math.isfinite(number) else None


def claimed_epsilon(release: Release, relation: Relation, delta: float) -> float:
    """What the accountant says of the release: it is audited along with the mechanism."""
    if delta == 0:
        return pure_epsilon(release, relation=relation)
    return epsilon(release, delta=delta, relation=relation)


def exact_case(
    name: str,
    relation: Relation,
    claimed: float,
    *,
    rows: Callable[[Fraction], Sequence[Row]],
    twin_rows: Callable[[], Sequence[Row]] | None = None,
    delta: Fraction = Fraction(0),
    stated: float = math.inf,
) -> AuditCase:
    """A mechanism with finitely many outputs: one exact pmf per private input, at a share of 1 / epsilon."""
    return AuditCase(
        name,
        relation,
        claimed,
        float(delta),
        AuditMethod.EXACT,
        look=lambda share, _trials, _source: exact_epsilon(rows(share), delta),
        twin=None if twin_rows is None else lambda _trials, _source: exact_epsilon(twin_rows(), delta),
        stated=stated,
    )


def empirical_case(
    name: str,
    relation: Relation,
    claimed: float,
    *,
    draws: Draws,
    law: AuditNoiseLaw,
    twin_draws: Draws | None = None,
    delta: float = 0.0,
) -> AuditCase:
    """A mechanism that can only be sampled, looked at in two ways, each with half the chance of a false alarm;
    looks at the noise in several directions share their half.

    How often an event comes up on either of two neighbours bounds epsilon whatever the mechanism does. How far
    its noise reaches bounds the share of it that there can be, if its law is of the kind that is claimed, and
    so epsilon: this sees a few hundredths less noise, which the first cannot.
    """

    def look(of: Draws, share: Fraction, trials: int, source: Source) -> float:
        hits, counts = {}, []
        for neighbour in (False, True):
            seen = of(share, neighbour, trials, source)
            hits[neighbour] = int(seen.told.sum())
            counts.append([(_count_reaching(noise, law.reach), noise.size) for noise in seen.looks])
        by_event = empirical_epsilon(hits[False], hits[True], trials, delta=delta, alpha=FALSE_ALARM / 2)
        most = []
        for here, there in zip(*counts, strict=True):
            reached, count = here[0] + there[0], here[1] + there[1]
            most.append(noise_share_bound(reached, count, law.chance, alpha=FALSE_ALARM / 2 / len(counts[0])))
        # Less noise is a larger epsilon: the look that found the least is the one that accuses.
        return max(by_event, law.epsilon(min(most))) if share == WHOLE else law.epsilon(max(most))

    def twin(trials: int, source: Source) -> float:
        assert twin_draws is not None
        return look(twin_draws, WHOLE, trials, source)

    return AuditCase(
        name,
        relation,
        claimed,
        delta,
        AuditMethod.EMPIRICAL,
        look=lambda share, trials, source: look(draws, share, trials, source),
        twin=None if twin_draws is None else twin,
    )


def _count_reaching(noise: Numbers, reach: float) -> int:
    return int(np.count_nonzero(np.abs(noise.astype(np.float64)) >= reach))


THRESHOLDS = np.arange(-2.0, 6.0, 0.02)


def gaussian_law(stddev: float, epsilon: Callable[[Fraction], float]) -> AuditNoiseLaw:
    """Noise N(0, stddev^2): its reach tells the most about it from about 1.6 standard deviations on."""
    return AuditNoiseLaw(1.6 * stddev, lambda share: math.erfc(1.6 / float(share) / math.sqrt(2)), epsilon)


def best_threshold(claimed: float, moved: Callable[[float], float], still: Callable[[float], float]) -> float:
    """The threshold that tells the most at the claim, of what lies above it `moved` and `still` so often."""
    return float(max(THRESHOLDS, key=lambda above: moved(above) - math.exp(claimed) * still(above)))


def discrete_law(
    law: Callable[[Fraction], SymmetricLaw], epsilon: Callable[[Fraction], float]
) -> AuditNoiseLaw:
    """Whole-numbered noise of this law at each share: its reach is what about a sixth of it has."""

    def tail(share: Fraction, reach: int) -> float:
        masses = law(share).masses
        return float(2 * masses[reach:].sum())

    reach = next(k for k in range(1, 2**20) if tail(WHOLE, k) < 1 / 6)
    return AuditNoiseLaw(float(reach), lambda share: tail(share, reach), epsilon)


def flips_law(lie: Callable[[Fraction], float], epsilon: Callable[[Fraction], float]) -> AuditNoiseLaw:
    """Noise that is 1 where an answer was not the true one."""
    return AuditNoiseLaw(1.0, lie, epsilon)
