"""A case: what is claimed, how it is looked at, and how little of a weakening that look still catches.

The same look, with the same events, judges the mechanism as it is and weaker ones: some of its noise is taken
away, or its epsilon is larger than the one that is claimed, at the seams of the real code. The largest share at
which it is caught says what the audit can see. Beside it may stand a twin with a mistake of another kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit.errors import SelfCheckFailed
from tacit.privacy.accounting import epsilon, pure_epsilon
from tacit.privacy.audit.bounds import Row, empirical_epsilon, exact_epsilon, most_share
from tacit.privacy.noise.symmetric import SymmetricLaw
from tacit.privacy.randomness import Source
from tacit.privacy.relations import Relation
from tacit.privacy.releases import Release

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
class Seen:
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


Draws = Callable[[Fraction, bool, int, Source], Seen]
"""`draws(share, neighbour, trials, source)`: with this share of the noise, on either dataset."""


@dataclass(frozen=True)
class Law:
    """The law that the noise is claimed to have. `chance(share)` is exact: how often |noise| >= `reach` where a
    share of it is left; `epsilon(share)` is what would have to be claimed then."""

    reach: float
    chance: Callable[[Fraction], float]
    epsilon: Callable[[Fraction], float]


class Method(StrEnum):
    EXACT = "exact"
    EMPIRICAL = "empirical"


Look = Callable[[Fraction, int, Source], float]
"""`look(share, trials, source)`: an epsilon that the mechanism has at least, with this share of its noise.

Any look accuses the mechanism as it is. A weaker one counts as caught only if each look at its noise catches it
by itself, so the least that they find is told of it.
"""


@dataclass(frozen=True)
class Case:
    """`look` bounds the mechanism, `twin` one with a mistake of another kind that must be caught too.

    `stated` is what the mechanism says of itself where that is less than what is claimed: it is then held to
    that, and nothing is caught merely because the claim has room.
    """

    name: str
    relation: Relation
    claimed: float
    delta: float
    method: Method
    look: Look
    twin: Callable[[int, Source], float] | None = None
    stated: float = math.inf

    @property
    def bar(self) -> float:
        """What no honest bound passes."""
        return min(self.claimed, self.stated) + ROUNDING

    def verdict(self, source: Source, trials: int = TRIALS) -> Verdict:
        """One look at the mechanism as it is, then at weaker ones until one is caught, and at the twin."""
        bound = _looked(lambda: self.look(WHOLE, trials, source))
        twin = self.twin
        twin_bound = None if twin is None else _looked(lambda: twin(trials, source))
        for share in SHARES if self.method is Method.EXACT else SHARES[1:]:
            weak = _looked(lambda share=share: self.look(share, trials, source))  # type: ignore[misc]
            if weak > self.bar:
                return Verdict(self, bound, share, weak, twin_bound)
        return Verdict(self, bound, None, weak, twin_bound)


def _looked(look: Callable[[], float]) -> float:
    """What a look found; a mechanism that stops because it finds itself wrong keeps no claim."""
    try:
        return look()
    except SelfCheckFailed:
        return math.inf


@dataclass(frozen=True)
class Verdict:
    """`bound` must not pass the claim; that of a mechanism with `caught_at` of its noise did."""

    case: Case
    bound: float
    caught_at: Fraction | None
    weak_bound: float
    twin_bound: float | None

    @property
    def kept(self) -> bool:
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
        return self.kept and self.twin_caught and self.sees


def claim(release: Release, relation: Relation, delta: float) -> float:
    """What the accountant says of the release: it is audited along with the mechanism."""
    if delta == 0:
        return pure_epsilon(release, relation=relation)
    return epsilon(release, delta=delta, relation=relation)


def exact(
    name: str,
    relation: Relation,
    claimed: float,
    *,
    rows: Callable[[Fraction], Sequence[Row]],
    twin_rows: Callable[[], Sequence[Row]] | None = None,
    delta: Fraction = Fraction(0),
    stated: float = math.inf,
) -> Case:
    """A mechanism with finitely many outputs: one exact pmf per private input, at a share of 1 / epsilon."""
    return Case(
        name,
        relation,
        claimed,
        float(delta),
        Method.EXACT,
        look=lambda share, _trials, _source: exact_epsilon(rows(share), delta),
        twin=None if twin_rows is None else lambda _trials, _source: exact_epsilon(twin_rows(), delta),
        stated=stated,
    )


def empirical(
    name: str,
    relation: Relation,
    claimed: float,
    *,
    draws: Draws,
    law: Law,
    twin_draws: Draws | None = None,
    delta: float = 0.0,
) -> Case:
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
            counts.append([(_reaching(noise, law.reach), noise.size) for noise in seen.looks])
        by_event = empirical_epsilon(hits[False], hits[True], trials, delta=delta, alpha=FALSE_ALARM / 2)
        most = []
        for here, there in zip(*counts, strict=True):
            reached, count = here[0] + there[0], here[1] + there[1]
            most.append(most_share(reached, count, law.chance, alpha=FALSE_ALARM / 2 / len(counts[0])))
        # Less noise is a larger epsilon: the look that found the least is the one that accuses.
        return max(by_event, law.epsilon(min(most))) if share == WHOLE else law.epsilon(max(most))

    def twin(trials: int, source: Source) -> float:
        assert twin_draws is not None
        return look(twin_draws, WHOLE, trials, source)

    return Case(
        name,
        relation,
        claimed,
        delta,
        Method.EMPIRICAL,
        look=lambda share, trials, source: look(draws, share, trials, source),
        twin=None if twin_draws is None else twin,
    )


def _reaching(noise: Numbers, reach: float) -> int:
    return int(np.count_nonzero(np.abs(noise.astype(np.float64)) >= reach))


def gaussian_law(stddev: float, epsilon: Callable[[Fraction], float]) -> Law:
    """Noise N(0, stddev^2): its reach tells the most about it from about 1.6 standard deviations on."""
    return Law(1.6 * stddev, lambda share: math.erfc(1.6 / float(share) / math.sqrt(2)), epsilon)


def discrete_law(law: Callable[[Fraction], SymmetricLaw], epsilon: Callable[[Fraction], float]) -> Law:
    """Whole-numbered noise of this law at each share: its reach is what about a sixth of it has."""

    def tail(share: Fraction, reach: int) -> float:
        masses = law(share).masses
        return float(2 * masses[reach:].sum())

    reach = next(k for k in range(1, 2**20) if tail(WHOLE, k) < 1 / 6)
    return Law(float(reach), lambda share: tail(share, reach), epsilon)


def flips_law(lie: Callable[[Fraction], float], epsilon: Callable[[Fraction], float]) -> Law:
    """Noise that is 1 where an answer was not the true one."""
    return Law(1.0, lie, epsilon)
