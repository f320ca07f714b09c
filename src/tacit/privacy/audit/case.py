"""A case: what is claimed, how it is looked at, and the twin that proves that looking helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.accounting import epsilon, pure_epsilon
from tacit.privacy.audit.bounds import Row, empirical_epsilon, exact_epsilon
from tacit.privacy.randomness import Source
from tacit.privacy.relations import Relation
from tacit.privacy.releases import Release

FALSE_ALARM = 1e-9
"""The chance that an empirical bound accuses an honest mechanism, per case."""

TRIALS = 200_000

ROUNDING = 1e-12
"""Bounds and claims are both logarithms rounded up; equal ones may differ by less than this."""

Hits = NDArray[np.bool_]
Draws = Callable[[bool, int, Source], Hits]
"""`draws(neighbour, trials, source)`: whether the case's event came up, per trial, on either dataset."""


class Method(StrEnum):
    EXACT = "exact"
    EMPIRICAL = "empirical"


@dataclass(frozen=True)
class Case:
    """`bound` looks at the mechanism, `twin` at one that is deliberately too weak for the same claim."""

    name: str
    relation: Relation
    claimed: float
    delta: float
    method: Method
    bound: Callable[[int, Source], float]
    twin: Callable[[int, Source], float]

    def verdict(self, source: Source, trials: int = TRIALS) -> Verdict:
        return Verdict(self, self.bound(trials, source), self.twin(trials, source))


@dataclass(frozen=True)
class Verdict:
    """`bound` must not pass the claim, and the twin's must."""

    case: Case
    bound: float
    twin_bound: float

    @property
    def kept(self) -> bool:
        return self.bound <= self.case.claimed + ROUNDING

    @property
    def twin_caught(self) -> bool:
        return self.twin_bound > self.case.claimed + ROUNDING

    @property
    def holds(self) -> bool:
        return self.kept and self.twin_caught


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
    rows: Callable[[], Sequence[Row]],
    twin_rows: Callable[[], Sequence[Row]],
    delta: Fraction = Fraction(0),
) -> Case:
    """A mechanism with finitely many outputs: one exact pmf per private input."""
    return Case(
        name,
        relation,
        claimed,
        float(delta),
        Method.EXACT,
        bound=lambda _trials, _source: exact_epsilon(rows(), delta),
        twin=lambda _trials, _source: exact_epsilon(twin_rows(), delta),
    )


def empirical(
    name: str, relation: Relation, claimed: float, *, draws: Draws, twin_draws: Draws, delta: float = 0.0
) -> Case:
    """A mechanism that can only be sampled: how often an event comes up on either of two neighbours."""

    def bound(of: Draws) -> Callable[[int, Source], float]:
        def look(trials: int, source: Source) -> float:
            hits, neighbour_hits = (int(of(neighbour, trials, source).sum()) for neighbour in (False, True))
            return empirical_epsilon(hits, neighbour_hits, trials, delta=delta, alpha=FALSE_ALARM)

        return look

    return Case(name, relation, claimed, delta, Method.EMPIRICAL, bound=bound(draws), twin=bound(twin_draws))
